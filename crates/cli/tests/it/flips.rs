//! `cudele fsck` reports every kind of damage of every kind of object, in the store of a cluster.

use std::collections::BTreeMap;

use fsck::{Depth, FsckReport, Scope};
use objstore::{Expect, Memory, ObjectStore};

use crate::cluster::Cluster;

/// So many bits of an object are flipped, one at a time.
const FLIPS: usize = 48;

/// The kind of an object, from its name.
fn kind_of(name: &str) -> &'static str {
    use metastore::ObjectName;
    match metastore::ObjectName::parse(name) {
        Some(ObjectName::Manifest(_)) => "manifest",
        Some(ObjectName::Run(..)) => "run",
        Some(ObjectName::Values(..)) => "values",
        Some(ObjectName::Data(..)) => "content",
        Some(ObjectName::Sums(..)) => "checksums",
        None if name.starts_with("rank/") => "table",
        None if name == "mon/map" => "map",
        None if name == "mds/subtrees" => "list",
        None if name.starts_with("copy/") => "copy",
        None if name.starts_with("journal/client/") => "client's journal",
        None if name.starts_with("journal/mds.") => "journal",
        None => "other",
    }
}

/// A cluster with an object of every kind.
fn populated() -> Cluster {
    let cluster = Cluster::by_hand(&["--mds", "2"]);
    for path in ["/one", "/one/d", "/two", "/two/d"] {
        cluster.run(&["mkdir", path]);
        cluster.run_with_input(&["cp", "-", &format!("{path}/file")], b"content");
    }
    cluster.run_with_input(&["cp", "-", "/one/large"], &[7; 200_000]);
    let two = cluster.mount().open_dir("/two").unwrap();
    for number in 0..60u8 {
        let data = [number; 3000];
        let new = cudele::NewFile { size: 3000, data: &data, ..cudele::NewFile::default() };
        two.create(format!("long{number}"), &new).unwrap();
    }
    drop(two);
    cluster.run(&["mds", "pin", "/one", "1"]);
    for tree in ["first", "second"] {
        let source = cluster.home.join(tree);
        std::fs::create_dir(&source).unwrap();
        std::fs::write(source.join("file"), tree).unwrap();
        let source = source.to_str().unwrap();
        cluster.run(&["ingest", "--policy", "invisible-global", source, &format!("/{tree}")]);
    }
    cluster
}

fn copied(cluster: &Cluster) -> BTreeMap<String, Vec<u8>> {
    let store = objstore::open_existing(cluster.dir.join("store").to_str().unwrap()).unwrap();
    let names = store.list("").unwrap();
    names.into_iter().map(|name| (name.clone(), store.get(&name).unwrap().0)).collect()
}

fn checked(all: &BTreeMap<String, Vec<u8>>) -> FsckReport {
    let store = Memory::new();
    for (name, bytes) in all {
        let _ = store.put(name, bytes, Expect::Any).unwrap();
    }
    fsck::check(&store, Scope::AtRest, Depth::Content, &mut |_, _| {}).unwrap()
}

/// The damaged versions of an object, each with a description; `None` for its removal.
fn damages(whole: &[u8], other: Option<&[u8]>) -> Vec<(String, Option<Vec<u8>>)> {
    let mut all = Vec::new();
    let step = (whole.len() * 8 / FLIPS).max(1);
    for bit in (0..whole.len() * 8).step_by(step) {
        let mut bytes = whole.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        all.push((format!("bit {bit} of {}", whole.len() * 8), Some(bytes)));
    }
    for length in [whole.len() - 1, whole.len() / 2, 1, 0] {
        all.push((format!("cut to {length} of {}", whole.len()), Some(whole[..length].to_vec())));
    }
    all.push(("zeros".to_owned(), Some(vec![0; whole.len()])));
    all.push(("grown".to_owned(), Some([whole, b"\0"].concat())));
    all.push(("removed".to_owned(), None));
    all.extend(other.map(|other| ("swapped".to_owned(), Some(other.to_vec()))));
    all
}

/// Whether a crash leaves the same bytes.
fn is_exempt(kind: &str, what: &str) -> bool {
    match kind {
        // Only the client lists its journals, and an empty journal is a new one.
        "client's journal" => what == "removed" || what.starts_with("cut to 0"),
        // The next change of the object writes its copy again.
        "copy" => what == "removed",
        // Content of earlier releases has no checksums, and zeros are no checksum.
        "checksums" => matches!(what, "removed" | "zeros" | "grown") || what.starts_with("cut to"),
        // No file has bytes behind the end of its content.
        "content" => what == "grown",
        _ => false,
    }
}

#[test]
fn damage_of_every_kind_of_object_is_reported() {
    let cluster = populated();
    cluster.run(&["down"]);
    let all = copied(&cluster);
    let before = checked(&all).findings;
    let mut kinds: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    for name in all.keys() {
        kinds.entry(kind_of(name)).or_default().push(name);
    }
    let expected = [
        "checksums",
        "client's journal",
        "content",
        "copy",
        "list",
        "manifest",
        "map",
        "run",
        "table",
        "values",
    ];
    assert!(expected.iter().all(|kind| kinds.contains_key(kind)), "{kinds:?}");
    let mut silent = Vec::new();
    for kind in expected {
        // The largest object has the most fields.
        let mut names = kinds[kind].clone();
        names.sort_by_key(|name| std::cmp::Reverse(all[*name].len()));
        let name = names[0];
        let other = names.iter().map(|name| &all[*name]).find(|bytes| **bytes != all[name]);
        for (what, bytes) in damages(&all[name], other.map(Vec::as_slice)) {
            let mut damaged = all.clone();
            match bytes {
                Some(bytes) => damaged.insert(name.clone(), bytes),
                None => damaged.remove(name),
            };
            let found = checked(&damaged).findings;
            if !found.iter().any(|finding| !before.contains(finding)) && !is_exempt(kind, &what) {
                silent.push(format!("{kind} {name}: {what}"));
            }
        }
    }
    assert!(silent.is_empty(), "{silent:#?}");
}
