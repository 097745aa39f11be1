//! `cudele fsck` and `cudele scrub` on stores that were damaged in every way that their parts
//! allow.

use std::path::PathBuf;

use serde_json::Value;

use crate::cluster::Cluster;

/// A stopped cluster with directories, files inline and not, and hard links.
fn stopped() -> Cluster {
    let cluster = Cluster::up();
    for dir in ["/a", "/a/b", "/a/b/c", "/empty"] {
        cluster.run(&["mkdir", dir]);
    }
    let fs = cluster.mount();
    for (path, bytes) in [("/a/small", 100), ("/a/b/large", 6_000_000), ("/a/b/c/deep", 3)] {
        let content = vec![b'x'; bytes];
        cluster.run_with_input(&["cp", "-", path], &content);
    }
    let small = fs.stat("/a/small").unwrap().ino;
    fs.open_dir("/a/b").unwrap().link(small, "other").unwrap();
    drop(fs);
    cluster.run(&["down"]);
    cluster
}

fn objects(cluster: &Cluster) -> std::sync::Arc<dyn objstore::Store> {
    objstore::open_existing(cluster.dir.join("store").to_str().unwrap()).unwrap()
}

/// What `fsck` finds: codes, in order.
fn found(cluster: &Cluster, arguments: &[&str]) -> (Vec<String>, Value) {
    let output = cluster.command(&[&["--json", "fsck"], arguments].concat()).output().unwrap();
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let codes = value["findings"].as_array().unwrap().iter();
    let codes = codes.map(|finding| finding["code"].as_str().unwrap().to_owned()).collect();
    let whole = !output.status.success();
    let damaged =
        |list: &Value| list.as_array().into_iter().flatten().any(|it| it["gravity"] == "damage");
    if value["mended"].is_null() {
        assert_eq!(whole, damaged(&value["findings"]), "{value:#}");
    }
    (codes, value)
}

/// Damages a store, and returns the findings and the cluster after the repair.
fn mended(damage: impl FnOnce(&Cluster, &dyn objstore::ObjectStore)) -> (Cluster, Vec<String>) {
    mended_of(stopped(), damage)
}

/// The same of a cluster that is stopped.
fn mended_of(
    cluster: Cluster,
    damage: impl FnOnce(&Cluster, &dyn objstore::ObjectStore),
) -> (Cluster, Vec<String>) {
    damage(&cluster, &*objects(&cluster));
    let (codes, _) = found(&cluster, &[]);
    let (again, dry) = found(&cluster, &["--repair", "--dry-run"]);
    assert_eq!(codes, again);
    assert!(dry["mended"].is_null(), "nothing is changed by looking");
    let (_, value) = found(&cluster, &["--repair"]);
    assert!(value["mended"].as_array().is_some_and(|all| !all.is_empty()), "{value:#}");
    let (left, value) = found(&cluster, &[]);
    let damage = value["findings"].as_array().unwrap();
    assert!(damage.iter().all(|finding| finding["gravity"] != "damage"), "{left:?}");
    cluster.start();
    (cluster, codes)
}

fn put(store: &dyn objstore::ObjectStore, name: &str, bytes: &[u8]) {
    let put = store.put(name, bytes, objstore::Expect::Any).unwrap();
    assert!(matches!(put, objstore::PutOutcome::Done(_)));
}

fn manifest_of(cluster: &Cluster, path: &str) -> String {
    cluster.start();
    let ino = cluster.mount().stat(path).unwrap().ino;
    cluster.run(&["down"]);
    metastore::manifest_name(types::DirFragId { ino, ..types::DirFragId::default() })
}

fn runs(store: &dyn objstore::ObjectStore, manifest: &str) -> Vec<String> {
    let prefix = manifest.strip_suffix("manifest").unwrap();
    let mut names = store.list(prefix).unwrap();
    names.retain(|name| name != manifest);
    names
}

#[test]
fn a_store_that_is_whole_adds_up_and_one_that_works_is_not_checked() {
    let cluster = stopped();
    let (codes, value) = found(&cluster, &[]);
    assert!(codes.is_empty(), "{value:#}");
    assert!(value["incomplete"].is_null());
    assert!(value["names"].as_u64().unwrap() >= 9, "{value:#}");
    cluster.start();
    let said = cluster.fails(1, &["fsck"]);
    assert!(said.contains("cudele scrub"), "{said}");
    cluster.run(&["mkdir", "/meanwhile"]);
    let scrubbed = cluster.run(&["--json", "scrub"]);
    let scrubbed: Value = serde_json::from_slice(&scrubbed).unwrap();
    assert_eq!(scrubbed["findings"].as_array().unwrap().len(), 0, "{scrubbed:#}");
    assert!(scrubbed["bytes"].as_u64().unwrap() > 0);
    // After a crash the journal says more than the directories.
    cluster.kill("mds");
    cluster.kill("mon");
    let (codes, value) = found(&cluster, &[]);
    assert!(codes.is_empty(), "{value:#}");
    assert!(value["incomplete"].as_str().unwrap().contains("journal"), "{value:#}");
}

#[test]
fn a_manifest_that_is_gone_is_made_again_from_its_runs() {
    let (cluster, codes) = mended(|cluster, store| {
        let manifest = manifest_of(cluster, "/a/b");
        assert!(store.delete(&manifest).unwrap());
    });
    assert_eq!(codes[0], "no_manifest");
    assert_eq!(cluster.names("/a/b"), ["c", "large", "other"]);
    assert_eq!(cluster.run(&["cp", "/a/b/c/deep", "-"]), b"xxx");
    assert_eq!(cluster.run(&["cp", "/a/b/large", "-"]).len(), 6_000_000);
}

#[test]
fn a_manifest_that_is_damaged_is_set_aside() {
    let (cluster, codes) = mended(|cluster, store| {
        let manifest = manifest_of(cluster, "/a");
        put(store, &manifest, b"nothing");
    });
    assert_eq!(codes[0], "unreadable");
    assert_eq!(cluster.names("/a"), ["b", "small"]);
    assert_eq!(objects(&cluster).list("lost/").unwrap().len(), 1, "the damaged one is kept");
}

fn damage_runs(store: &dyn objstore::ObjectStore, manifest: &str) {
    for run in runs(store, manifest) {
        let (mut bytes, _) = store.get(&run).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        put(store, &run, &bytes);
    }
}

#[test]
fn names_of_a_file_are_counted_on_the_rank_that_has_it() {
    let cluster = Cluster::by_hand(&["--mds", "2"]);
    for path in ["/one", "/one/d"] {
        cluster.run(&["mkdir", path]);
    }
    cluster.run(&["mds", "pin", "/one", "1"]);
    cluster.run_with_input(&["cp", "-", "/one/first"], b"content");
    let fs = cluster.mount();
    let file = fs.stat("/one/first").unwrap().ino;
    fs.open_dir("/one/d").unwrap().link(file, "second").unwrap();
    drop(fs);
    cluster.run(&["down"]);
    let (cluster, codes) =
        mended_of(cluster, |cluster, store| damage_runs(store, &manifest_of(cluster, "/one/d")));
    assert!(codes.contains(&"link_count".to_owned()), "{codes:?}");
    assert!(cluster.names("/one/d").is_empty());
    let first = cluster.json(&["stat", "/one/first"]);
    assert_eq!((&first["nlink"], &first["rank"]), (&1.into(), &1.into()), "{first}");
    assert_eq!(cluster.run(&["cp", "/one/first", "-"]), b"content");
}

/// Everything below has lost its name, and comes back in `/lost+found`; a hard link of a lost name
/// counts one less.
#[test]
fn entries_of_a_damaged_run_come_back_in_lost_and_found() {
    let (cluster, codes) = mended(|cluster, store| damage_runs(store, &manifest_of(cluster, "/a")));
    assert!(codes.contains(&"unreadable".to_owned()), "{codes:?}");
    assert!(codes.contains(&"unreachable".to_owned()), "{codes:?}");
    assert!(codes.contains(&"link_count".to_owned()), "{codes:?}");
    assert!(cluster.names("/a").is_empty());
    let [b] = &cluster.names("/lost+found")[..] else { panic!("one directory was lost") };
    let b = format!("/lost+found/{b}");
    assert_eq!(cluster.names(&b), ["c", "large", "other"]);
    assert_eq!(cluster.run(&["cp", &format!("{b}/c/deep"), "-"]), b"xxx");
    assert_eq!(cluster.mount().stat(format!("{b}/other")).unwrap().nlink, 1);
    // And it is a directory like any other.
    cluster.run(&["mv", &b, "/a/b"]);
    cluster.run(&["down"]);
    cluster.start();
    assert_eq!(cluster.names("/a/b"), ["c", "large", "other"]);
    assert!(cluster.names("/lost+found").is_empty());
}

#[test]
fn a_run_that_is_gone_is_left_out() {
    let (cluster, codes) = mended(|cluster, store| {
        let manifest = manifest_of(cluster, "/a/b/c");
        for run in runs(store, &manifest) {
            store.delete(&run).unwrap();
        }
    });
    assert!(codes.contains(&"missing_run".to_owned()), "{codes:?}");
    assert!(cluster.names("/a/b/c").is_empty());
    cluster.run(&["mkdir", "/a/b/c/again"]);
}

/// Makes files with content in value segments, and returns the names of these.
fn long_files(cluster: &Cluster, store: &dyn objstore::ObjectStore) -> Vec<String> {
    let manifest = manifest_of(cluster, "/empty");
    cluster.start();
    let fs = cluster.mount();
    let dir = fs.open_dir("/empty").unwrap();
    for number in 0..LONG_FILES {
        let data = [number; 3000];
        let new = cudele::NewFile { size: 3000, data: &data, ..cudele::NewFile::default() };
        dir.create(format!("long{number}"), &new).unwrap();
    }
    drop((dir, fs));
    cluster.run(&["down"]);
    let mut values = runs(store, &manifest);
    values.retain(|name| name.contains("/values."));
    assert!(!values.is_empty(), "that much content is not kept in runs");
    values
}

const LONG_FILES: u8 = 60;

/// The number of those files that are empty; the rest have their content.
fn emptied(cluster: &Cluster) -> usize {
    let fs = cluster.mount();
    let content = |number: u8| {
        let path = format!("/empty/long{number}");
        let attr = fs.stat(&path).unwrap();
        let mut data = Vec::new();
        fs.read_file(&attr, &mut |piece| {
            data.extend_from_slice(piece);
            Ok(())
        })
        .unwrap();
        assert_eq!(data, vec![number; usize::try_from(attr.size).unwrap()], "{path}");
        data.is_empty()
    };
    (0..LONG_FILES).filter(|number| content(*number)).count()
}

#[test]
fn files_whose_content_is_damaged_are_empty_and_the_others_stay() {
    let (cluster, codes) = mended(|cluster, store| {
        let values = long_files(cluster, store);
        let (mut bytes, _) = store.get(&values[0]).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        put(store, &values[0], &bytes);
    });
    assert_eq!(codes, ["unreadable", "content_lost"]);
    assert_eq!(emptied(&cluster), 1);
}

#[test]
fn fsck_removes_dangling_names_and_unreferenced_objects() {
    let left = |cluster: &Cluster| -> Vec<String> {
        let mut all = objects(cluster).list("").unwrap();
        all.retain(|name| name.contains("run.00000000000000ff") || name.starts_with("data/"));
        all
    };
    let (cluster, codes) = mended(|cluster, store| {
        let manifest = manifest_of(cluster, "/empty");
        let prefix = manifest.strip_suffix("manifest").unwrap();
        put(store, &manifest, &empty(prefix));
        put(store, &format!("{prefix}run.00000000000000ff"), b"x");
        put(store, "data/77/0000000000abcd77.00000000", b"left");
        assert_eq!(left(cluster).len(), 5, "{:?}", left(cluster));
    });
    assert_eq!(codes, ["left_run", "left_content"]);
    assert_eq!(left(&cluster).len(), 3, "the file's content stays: {:?}", left(&cluster));
    let (cluster, codes) = mended(|_, store| {
        let hidden = metastore::manifest_name(types::DirFragId {
            ino: types::Ino::LINKS,
            ..types::DirFragId::default()
        });
        for name in runs(store, &hidden).iter().chain([&hidden]) {
            store.delete(name).unwrap();
        }
    });
    assert_eq!(codes, ["name_of_nothing", "name_of_nothing"]);
    assert_eq!(cluster.names("/a"), ["b"]);
    assert_eq!(cluster.names("/a/b"), ["c", "large"]);
}

fn empty(prefix: &str) -> Vec<u8> {
    let name = format!("{prefix}manifest");
    let Some(metastore::ObjectName::Manifest(dirfrag)) = metastore::ObjectName::parse(&name) else {
        panic!("{name} is a manifest");
    };
    metastore::Manifest::new(dirfrag).encode()
}

#[test]
fn a_path_without_a_store_is_refused() {
    let cluster = Cluster::down();
    let nowhere: PathBuf = cluster.dir.join("nowhere");
    let said = cluster.fails(1, &["fsck", "--store", nowhere.to_str().unwrap()]);
    assert!(said.contains("nowhere"), "{said}");
}
