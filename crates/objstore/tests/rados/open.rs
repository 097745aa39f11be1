//! The messages for a store that cannot be opened.

use types::{Errno, Error};

use crate::cluster::up;

/// The error of opening, which must have this number and these words.
#[track_caller]
fn refused(url: &str, errno: Errno, words: &[&str]) {
    let error: Error = objstore::open(url).unwrap_err();
    assert_eq!(error.errno, errno, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{word} is not in: {error}");
    }
    assert!(!error.remedy.is_empty(), "{error}");
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn errors_name_the_missing_pool_file_or_user() {
    let Some(ceph) = up(|_| {}) else { return };
    let url = ceph.url("test");
    refused(&ceph.url("none"), Errno::NotFound, &["no pool named none", "pool create none"]);
    refused("rados://test?conf=/no/such.conf", Errno::NotFound, &["/no/such.conf", "conf="]);
    refused(&format!("{url}&id=nobody"), Errno::Access, &["client.nobody", "keyring="]);
    refused(&format!("{url}&keyring=/no/such"), Errno::Access, &["client.admin", "/no/such"]);
    let missing = objstore::open_existing(&format!("{url}&namespace=typo")).unwrap_err();
    assert_eq!(missing.errno, Errno::NotFound);
    assert!(missing.to_string().contains("no store in namespace typo of pool test"), "{missing}");
    objstore::open(&url).unwrap();
    objstore::open_existing(&url).unwrap();
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn wrong_keys_and_missing_rights_are_refused() {
    let Some(ceph) = up(|_| {}) else { return };
    let url = ceph.url("test");
    objstore::open(&url).unwrap();
    // A key that the cluster never gave out.
    let forged = ceph.home.path().join("forged");
    let key = "[client.admin]\n\tkey = AQBzLVNnAAAAABAAvNXKQJNiNIZNMcVNKsNtPQ==\n";
    std::fs::write(&forged, key).unwrap();
    let forged = format!("{url}&keyring={}", forged.display());
    refused(&forged, Errno::Access, &["accepts no key of client.admin", "auth get"]);
    // A user with read access.
    let keyring = ceph.user("reader", &["mon", "allow r", "osd", "allow r pool=test"]).unwrap();
    let reader = format!("{url}&id=reader&keyring={}", keyring.display());
    let store = objstore::open_existing(&reader).unwrap();
    let error = store.append("a", b"x").unwrap_err();
    assert_eq!(error.errno, Errno::Access, "{error}");
    assert!(error.to_string().contains("ceph auth get"), "{error}");
    assert_eq!(store.list(""), Ok(Vec::new()));
    // The rights from the administrator's guide are enough, also to fence a dead holder.
    let rights = ["mon", "allow r, allow command \"osd blocklist\"", "osd", "allow rwx pool=test"];
    let keyring = ceph.user("cudele", &rights).unwrap();
    let user = format!("{url}&id=cudele&keyring={}", keyring.display());
    let store = objstore::open(&format!("{user}&namespace=mine")).unwrap();
    store.append("journal/a", b"x").unwrap();
    drop(store.lock("lock", "me").unwrap());
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn a_cluster_that_does_not_answer_is_given_up() {
    let Some(ceph) = up(|_| {}) else { return };
    ceph.signal("mon.a", testceph::Signal::KILL).unwrap();
    let url = format!("{}&connect_timeout=1", ceph.url("test"));
    refused(&url, Errno::TimedOut, &["no monitor answered within 1 seconds", "mon host"]);
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn an_object_whose_attribute_is_damaged_is_an_error_and_no_more() {
    let Some(ceph) = up(|_| {}) else { return };
    let store = ceph.open("");
    store.append("a", b"content").unwrap();
    let conf = ceph.conf();
    // Too short; and a length for which there is no memory.
    for value in ["garbage", "000000000000000000000000"] {
        let mut rados = std::process::Command::new("rados");
        rados.arg("-c").arg(&conf).args(["-p", "test", "-N", "cudele.metadata"]);
        let set = rados.args(["setxattr", "a", "cudele.large", value]).status();
        assert!(set.unwrap().success());
        let store = ceph.open("");
        assert_eq!(store.get("a").unwrap_err().errno, Errno::BadMessage, "{value}");
        assert_eq!(store.stat("a").unwrap_err().errno, Errno::BadMessage);
        assert_eq!(store.append("a", b"more").unwrap_err().errno, Errno::BadMessage);
        let put = store.put("a", b"new", objstore::Expect::Any);
        assert_eq!(put.unwrap_err().errno, Errno::BadMessage, "it is not overwritten unseen");
    }
}
