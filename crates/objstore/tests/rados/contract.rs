//! The contract of every store, and several connections to one.

use objstore::conformance::conformance;
use objstore::{Expect, ObjectStore, PutOutcome, SyncScope, Version};
use types::Errno;

use crate::cluster::{Ceph, two_copies, up};

fn keeps_the_contract(ceph: &Ceph) {
    conformance(&|| Box::new(ceph.store()));
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn rados_keeps_the_contract_in_memory() {
    let Some(ceph) = up(|_| {}) else { return };
    keeps_the_contract(&ceph);
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn rados_keeps_the_contract_in_files_with_two_copies() {
    let Some(ceph) = up(two_copies) else { return };
    keeps_the_contract(&ceph);
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn two_connections_see_each_others_changes() {
    let Some(ceph) = up(|_| {}) else { return };
    let (one, two) = (ceph.open(""), ceph.open(""));
    let done = |outcome: types::Result<PutOutcome>| match outcome.unwrap() {
        PutOutcome::Done(version) => version,
        PutOutcome::Conflict(current) => panic!("unexpected conflict with {current:?}"),
    };
    let first = done(one.put("mon/map", b"1", Expect::Absent));
    let second = done(two.put("mon/map", b"2", Expect::Is(first)));
    // The first connection's cache is out of date, and must not count.
    let late = one.put("mon/map", b"late", Expect::Is(first));
    assert_eq!(late, Ok(PutOutcome::Conflict(Some(second))));
    done(one.put("mon/map", b"3", Expect::Is(second)));
    // Equal content is the same version, however it came about.
    done(two.put("mon/map", b"2", Expect::Any));
    done(one.put("mon/map", b"4", Expect::Is(Version::of(b"2"))));

    for round in 0..10 {
        assert_eq!(one.append("journal/x", b"ab"), Ok(round * 3));
        assert_eq!(two.append("journal/x", b"c"), Ok(round * 3 + 2));
    }
    assert_eq!(one.append("journal/x", b""), Ok(30), "nothing lands at the end, too");
    assert_eq!(two.delete("journal/x"), Ok(true));
    assert_eq!(one.append("journal/x", b"new"), Ok(0));

    let guard = one.lock("rank/0000.lock", "one").unwrap();
    let error = two.lock("rank/0000.lock", "two").unwrap_err();
    assert_eq!(error.errno, Errno::Busy);
    assert!(error.to_string().contains("held by one"), "{error}");
    drop(guard);
    drop(two.lock("rank/0000.lock", "two").unwrap());
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn every_purpose_has_its_pool() {
    let pools = ["test", "fast", "bulk"].map(str::to_owned).to_vec();
    let Some(ceph) = up(|settings| settings.pools = pools) else { return };
    let store = ceph.open("&journal_pool=fast&data_pool=bulk");
    for name in ["journal/mds.0000/0", "data/01/0101.0", "dirs/1/manifest", "mon/map"] {
        store.write_range(name, 0, b"x").unwrap();
    }
    drop(store);
    assert_eq!(ceph.objects("fast", "cudele.journal"), ["journal/mds.0000/0"]);
    assert_eq!(ceph.objects("bulk", "cudele.data"), ["data/01/0101.0"]);
    assert_eq!(ceph.objects("test", "cudele.metadata"), ["dirs/1/manifest", "mon/map"]);
    // The store knows it, so no later address needs to name it; and none may contradict it.
    let store = objstore::open_existing(&ceph.url("test")).unwrap();
    assert_eq!(store.list("").unwrap().len(), 4);
    assert_eq!(store.list("jour").unwrap(), ["journal/mds.0000/0"]);
    assert_eq!(store.list("data/01/").unwrap(), ["data/01/0101.0"]);
    store.sync(SyncScope::All).unwrap();
    let other = objstore::open_existing(&format!("{}&data_pool=fast", ceph.url("test")));
    let error = other.unwrap_err();
    assert_eq!(error.errno, Errno::Invalid);
    assert!(error.to_string().contains("in pool bulk, not in fast"), "{error}");
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn a_chosen_pool_has_its_number_for_ever() {
    let pools = ["test", "fast", "bulk"].map(str::to_owned).to_vec();
    let Some(ceph) = up(|settings| settings.pools = pools) else { return };
    let (one, two) = (ceph.open(""), ceph.open(""));
    let large = vec![7; 5 << 20];
    let data = |pool: u8| format!("data/pool{pool:02x}/01/0000000000000101.00000000");
    // Several that ask at once get the same.
    let numbers: Vec<_> = std::thread::scope(|scope| {
        let ask = |name| [&one, &two].map(|store| scope.spawn(move || store.pool(name).unwrap()));
        let threads: Vec<_> = ["fast", "bulk"].into_iter().flat_map(ask).collect();
        threads.into_iter().map(|thread| thread.join().unwrap().0).collect()
    });
    let [fast, same, bulk, as_well] = numbers[..] else { panic!("{numbers:?}") };
    assert!((fast, bulk) == (same, as_well) && fast != bulk && fast + bulk == 3, "{numbers:?}");
    one.write_range(&data(fast), 0, &large).unwrap();
    two.write_range(&data(bulk), 0, b"x").unwrap();
    assert_eq!(ceph.objects("fast", "cudele.data"), [data(fast)]);
    assert_eq!(ceph.objects("fast", "cudele.data.pieces").len(), 1);
    assert_eq!(ceph.objects("bulk", "cudele.data"), [data(bulk)]);
    assert_eq!(ceph.objects("test", "cudele.data").len(), 0);
    // Another connection reads it without asking for a number.
    let three = ceph.open("");
    assert_eq!(three.get(&data(fast)).unwrap().0, large);
    let mut all = vec![data(fast), data(bulk)];
    all.sort();
    assert_eq!(three.list("data/").unwrap(), all);
    assert_eq!(three.list("data/po").unwrap(), all);
    assert_eq!(three.list(&data(bulk)).unwrap(), [data(bulk)]);
    assert_eq!(three.list("data/01/").unwrap(), Vec::<String>::new());
    assert_eq!(three.pool("none").unwrap_err().errno, Errno::NotFound);
    // A pool that was never chosen, or is gone, is no file of zeros.
    let error = three.stat(&data(9)).unwrap_err();
    assert_eq!(error.errno, Errno::NoSuchPlace, "{error}");
    let sure = "--yes-i-really-really-mean-it";
    ceph.ceph(&["config", "set", "mon", "mon_allow_pool_delete", "true"]).unwrap();
    ceph.ceph(&["osd", "pool", "delete", "bulk", "bulk", sure]).unwrap();
    let four = ceph.open("");
    let error = four.get(&data(bulk)).unwrap_err();
    assert_eq!(error.errno, Errno::NoSuchPlace, "{error}");
    assert!(error.to_string().contains("pool bulk, which the cluster has not any more"), "{error}");
    assert_eq!(four.delete(&data(bulk)), Ok(false));
    assert_eq!(four.list("data/").unwrap(), [data(fast)]);
}
