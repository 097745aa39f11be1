//! Verification outside of the metadata server.

use std::sync::Arc;

use cudele::{Completion, FileType, Fs, Ino, NewFile, Policy, ProofKey, Subtree};
use metastore::RunList;
use objstore::Expect;

use crate::fixture::World;
use crate::tools::{mount, seen};

const POLICY: &str = "consistency: append_client_journal\ndurability: global_persist\n\
                      check: merge\nmerge_by: reference\nallocated_inodes: 20000";
/// Enough for a run.
const FILES: usize = 5_000;

/// A cluster with servers that trust a key.
fn world() -> World {
    let world = World::new();
    world.run(&["verify", "--new-key"]).done();
    world.crash();
    world
}

/// A job that is done, and in the store.
fn job(fs: &Arc<Fs>, path: &str) -> Subtree {
    fs.make_dir(path, 0o755).unwrap();
    let mut job = fs.decouple(path, &Policy::parse(POLICY).unwrap().policy).unwrap();
    let root = job.root();
    let new = NewFile { file_type: FileType::Directory, permissions: 0o750, ..NewFile::default() };
    let big = job.create(root, b"big", &new).unwrap();
    for number in 0..FILES {
        job.create(big, format!("f{number}").as_bytes(), &NewFile::default()).unwrap();
    }
    job.create(root, b"small", &NewFile::default()).unwrap();
    job
}

/// Ends it; nothing of it stays on this machine.
fn merge(mut job: Subtree) -> Completion {
    let done = job.merge().unwrap();
    job.forget().unwrap();
    done
}

fn proof(world: &World) -> (String, Vec<u8>) {
    let store = world.store();
    let names = store.list("journal/proof/").unwrap();
    let [name] = names.as_slice() else { panic!("{names:?}") };
    (name.clone(), store.get(name).unwrap().0)
}

#[test]
fn proved_runs_are_linked_and_the_other_events_are_judged() {
    let world = world();
    let fs = mount(&world);
    fs.make_dir("/job", 0o755).unwrap();
    // Else the root would be all the job's own.
    fs.open_dir("/job").unwrap().create("theirs", &NewFile::default()).unwrap();
    let mut job = job(&fs, "/job");
    job.complete().unwrap();
    let said = world.run(&["verify", "/job"]).done().out;
    assert!(said.contains("in 1 runs, with a proof"), "{said}");
    // Files of other clients obstruct some of it since.
    fs.open_dir("/job").unwrap().create("small", &NewFile::default()).unwrap();
    let done = merge(job);
    let report = done.merge.unwrap();
    assert_eq!((done.merged_by.runs, done.merged_by.because), (1, None));
    assert_eq!((report.created, report.rejected), (FILES as u64 + 1, 1), "{report:?}");
    assert_eq!(seen(&world, "/job/big").len(), FILES);
    let mut names = seen(&world, "/job");
    names.sort();
    assert_eq!(names, ["big", "small", "theirs"]);
    assert!(world.store().list("journal/proof/").unwrap().is_empty(), "it is used up");
    world.crash();
    assert_eq!(seen(&world, "/job/big").len(), FILES);
}

#[test]
fn a_proof_without_the_key_has_no_effect() {
    let world = world();
    let fs = mount(&world);
    let key = std::fs::read_to_string(world.path("c/verify.key")).unwrap();
    assert!(ProofKey::parse(&key).is_some());
    let forge = |name: &str, forge: &dyn Fn(&mut RunList, &mut Vec<u8>)| {
        let path = format!("/{name}");
        let mut job = job(&fs, &path);
        job.complete().unwrap();
        world.run(&["verify", &path]).done();
        let (object, bytes) = proof(&world);
        let (mut list, rest) = RunList::decode(&bytes).unwrap();
        let mut rest = rest.to_vec();
        forge(&mut list, &mut rest);
        let forged = [list.encode(), rest].concat();
        assert_ne!(forged, bytes);
        let _ = world.store().put(&object, &forged, Expect::Any).unwrap();
        // By value, every event judged.
        let done = merge(job);
        assert_eq!(done.merged_by.runs, 0, "{name}");
        assert_eq!(done.merge.unwrap().created, FILES as u64 + 2, "{name}");
        assert_eq!(seen(&world, &format!("{path}/big")).len(), FILES, "{name}");
        world.store().delete(&object).unwrap();
    };
    forge("none", &|list, _| list.proof = None);
    forge("changed", &|list, _| list.proof.as_mut().unwrap()[3] ^= 1);
    forge("count", &|list, _| list.dirs[0].run.rows += 1);
    forge("directory", &|list, _| list.dirs[0].dir = Ino(list.dirs[0].dir.0 + 1));
    forge("twice", &|list, _| {
        let again = list.dirs[0];
        list.dirs.push(again);
    });
    forge("rest", &|_, rest| rest.extend_from_within(journal::segment::HEADER_BYTES..));
    // Another key, of another cluster.
    let other = ProofKey::new([1; 32]);
    let mut job = job(&fs, "/other");
    job.complete().unwrap();
    fs.verify("/other", &other).unwrap();
    let done = merge(job);
    assert_eq!((done.merged_by.runs, done.merge.unwrap().created), (0, FILES as u64 + 2));
    assert_eq!(seen(&world, "/other/big").len(), FILES);
}

#[test]
fn a_proof_is_of_one_journal_and_one_moment() {
    let world = world();
    let fs = mount(&world);
    // Events that were appended since are not proved.
    let mut more = job(&fs, "/more");
    more.complete().unwrap();
    world.run(&["verify", "/more"]).done();
    let root = more.root();
    more.create(root, b"later", &NewFile::default()).unwrap();
    let done = merge(more);
    assert_eq!((done.merged_by.runs, done.merge.unwrap().created), (0, FILES as u64 + 3));
    for object in world.store().list("journal/proof/").unwrap() {
        world.store().delete(&object).unwrap();
    }
    // A verdict for another state of the directory does not count, either.
    let mut changed = job(&fs, "/changed");
    changed.complete().unwrap();
    world.run(&["verify", "/changed"]).done();
    let change = cudele::AttrChange { mode: Some(0o777), ..cudele::AttrChange::default() };
    fs.open_dir("/").unwrap().set_attr("changed", &change).unwrap();
    let done = merge(changed);
    assert_eq!((done.merged_by.runs, done.merge.unwrap().created), (0, FILES as u64 + 2));
}

#[test]
fn a_journal_that_breaks_a_rule_gets_no_proof() {
    let world = world();
    let fs = mount(&world);
    let forge = |name: &str, says: &str, forge: &dyn Fn(&mut Subtree)| {
        let path = format!("/{name}");
        let mut job = job(&fs, &path);
        forge(&mut job);
        job.complete().unwrap();
        world.run(&["verify", &path]).refused(&[says]);
        assert!(world.store().list("journal/proof/").unwrap().is_empty());
        job
    };
    let outside = fs.stat("/").unwrap().ino;
    let job = forge("parent", "breaks a rule", &|job| {
        job.create(outside, b"mine", &NewFile::default()).unwrap();
    });
    // The server leaves out events that it does not trust, and reports them.
    assert_eq!(merge(job).merge.unwrap().rejected, 1);
    assert!(!seen(&world, "/").contains(&"mine".to_owned()));
    let job = forge("twice", "breaks a rule", &|job| {
        let root = job.root();
        job.create(root, b"small", &NewFile::default()).unwrap();
    });
    assert_eq!(merge(job).merge.unwrap().rejected, 1);
    fs.make_dir("/nobodys", 0o755).unwrap();
    world.run(&["verify", "/nobodys"]).refused(&["nobody has this subtree"]);
}
