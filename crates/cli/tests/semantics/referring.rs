//! Merging by reference: the client's work is in the store before the server learns of it.

use std::sync::Arc;

use cudele::{Completion, EntryName, FileType, Fs, Ino, NewFile, Subtree};
use metastore::ObjectName;

use crate::fixture::World;
use crate::tools::{decouple, eventually, mount, seen};

const BY_VALUE: &str = "consistency: append_client_journal+volatile_apply\nallocated_inodes: 20000";
/// Enough for a run.
const FILES: usize = 5_000;

fn by_reference() -> String {
    format!("{BY_VALUE}\nmerge_by: reference")
}

fn fill(job: &mut Subtree, dir: Ino) {
    for number in 0..FILES {
        job.create(dir, format!("f{number}").as_bytes(), &NewFile::default()).unwrap();
    }
}

fn make(job: &mut Subtree, parent: Ino, name: &str) -> Ino {
    let new = NewFile { file_type: FileType::Directory, permissions: 0o750, ..NewFile::default() };
    job.create(parent, name.as_bytes(), &new).unwrap()
}

/// Work in new directories, in the root, and on new files.
fn work(job: &mut Subtree) {
    let root = job.root();
    let big = make(job, root, "big");
    fill(job, big);
    let small = make(job, root, "small");
    make(job, small, "below");
    let data = NewFile { data: b"content", size: 7, ..NewFile::default() };
    job.create(small, b"both", &data).unwrap();
    job.create(big, b"with", &data).unwrap();
    job.unlink(big, b"f7").unwrap();
    job.rename(
        EntryName::new(big, b"f8"),
        EntryName::new(big, b"g8"),
        cudele::RenameFlags::default(),
    )
    .unwrap();
    job.rename(
        EntryName::new(root, b"big"),
        EntryName::new(root, b"large"),
        cudele::RenameFlags::default(),
    )
    .unwrap();
}

/// Names, types, modes and lengths of everything below a directory.
fn everything(fs: &Arc<Fs>, path: &str) -> Vec<String> {
    let (mut all, mut todo) = (Vec::new(), vec![path.to_owned()]);
    while let Some(dir) = todo.pop() {
        for entry in fs.open_dir(dir.as_str()).unwrap().list().unwrap() {
            let below = format!("{dir}/{}", String::from_utf8_lossy(&entry.name));
            let attr = fs.stat(below.as_str()).unwrap();
            let about = &below[path.len()..];
            let size = if attr.is_dir() { 0 } else { attr.size };
            all.push(format!("{about} {:o} {size} {} {}", attr.mode, attr.nlink, attr.uid));
            if attr.is_dir() {
                todo.push(below);
            }
        }
    }
    all.sort();
    all
}

fn merge(job: Subtree) -> Completion {
    let mut job = job;
    job.merge().unwrap()
}

#[test]
fn runs_and_events_give_the_same_tree() {
    let world = World::new();
    let (owner, other) = (mount(&world), mount(&world));
    let mut trees = Vec::new();
    for (path, policy) in [("/value", BY_VALUE.to_owned()), ("/reference", by_reference())] {
        let mut job = decouple(&owner, path, &policy);
        work(&mut job);
        let said = job.dry_run().unwrap();
        let done = merge(job);
        let did = done.merge.unwrap();
        assert_eq!((said.events, said.created), (did.events, did.created), "{path}");
        assert_eq!((did.replaced, did.rejected), (0, 0), "{path}");
        let is_reference = done.merged_by.runs > 0;
        assert_eq!(is_reference, path == "/reference", "{:?}", done.merged_by);
        trees.push(everything(&other, path));
    }
    assert_eq!(trees[0].len(), FILES + 4);
    assert_eq!(trees[0], trees[1]);
}

#[test]
fn conflicting_directories_are_merged_by_value() {
    let world = World::new();
    let (owner, other) = (mount(&world), mount(&world));
    let mut trees = Vec::new();
    for (path, policy) in [("/value", BY_VALUE.to_owned()), ("/reference", by_reference())] {
        let mut job = decouple(&owner, path, &policy);
        work(&mut job);
        // Where the owner's names are, above them, and beside them.
        other.make_dir(format!("{path}/large"), 0o700).unwrap();
        let dir = other.open_dir(path).unwrap();
        dir.create("small", &NewFile::default()).unwrap();
        dir.create("theirs", &NewFile::default()).unwrap();
        let large = other.open_dir(format!("{path}/large")).unwrap();
        large.create("f1", &NewFile { permissions: 0o600, ..NewFile::default() }).unwrap();
        large.create("theirs", &NewFile::default()).unwrap();
        let done = merge(job);
        assert!(done.merge.unwrap().replaced >= 2);
        assert_eq!(done.merged_by.runs, u64::from(path == "/reference"), "the large directory");
        trees.push(everything(&other, path));
    }
    assert_eq!(trees[0].len(), FILES + 4 + 2);
    assert_eq!(trees[0], trees[1]);
}

#[test]
fn linked_runs_survive_a_crash_of_the_server() {
    let world = World::new();
    let owner = mount(&world);
    let mut job = decouple(&owner, "/job", &by_reference());
    let root = job.root();
    fill(&mut job, root);
    let done = merge(job);
    assert_eq!((done.merged_by.runs, done.merged_by.events), (1, FILES as u64));
    world.crash();
    assert_eq!(seen(&world, "/job").len(), FILES);
    // Later changes there are kept, too.
    world.run(&["rm", "/job/f3"]).done();
    world.crash();
    assert_eq!(seen(&world, "/job").len(), FILES - 1);
}

#[test]
fn a_job_that_cannot_merge_by_reference_merges_by_value() {
    let world = World::new();
    let owner = mount(&world);
    let mut job = decouple(&owner, "/job", &by_reference());
    let root = job.root();
    fill(&mut job, root);
    let one = job.create(root, b"one", &NewFile::default()).unwrap();
    job.link(one, root, b"two").unwrap();
    let done = merge(job);
    assert_eq!((done.merged_by.runs, done.merged_by.because), (0, Some("it makes hard links")));
    assert_eq!(seen(&world, "/job").len(), FILES + 2);
}

/// The runs of clients in the store, of all directories or of one.
fn runs(world: &World, dir: Option<Ino>) -> usize {
    let names = world.store().list("dirs/").unwrap();
    let is_clients = |name: &String| match ObjectName::parse(name) {
        Some(ObjectName::Run(dirfrag, id)) => {
            id.is_clients() && dir.is_none_or(|dir| dir == dirfrag.ino)
        }
        Some(
            ObjectName::Manifest(_)
            | ObjectName::Values(..)
            | ObjectName::Data(..)
            | ObjectName::Sums(..),
        )
        | None => false,
    };
    names.iter().filter(|name| is_clients(name)).count()
}

/// Appends until the store has runs of the root, which no merge has asked for.
fn work_until_runs(world: &World, job: &mut Subtree) -> usize {
    let root = job.root();
    let new = NewFile { data: &[7; 100], size: 100, ..NewFile::default() };
    let mut files = 0;
    while runs(world, Some(root)) == 0 {
        assert!(files < 3_000_000, "no runs are written");
        for _ in 0..20_000 {
            job.create(root, format!("f{files}").as_bytes(), &new).unwrap();
            files += 1;
        }
    }
    files
}

#[test]
fn runs_are_written_while_the_job_works() {
    let world = World::new();
    let owner = mount(&world);
    let mut job = decouple(&owner, "/job", &by_reference().replace("20000", "4000000"));
    let files = work_until_runs(&world, &mut job);
    let done = merge(job);
    assert!(done.merged_by.runs >= 2, "{:?}", done.merged_by);
    assert_eq!(done.merged_by.events, files as u64);
    assert_eq!(done.merge.unwrap().created, files as u64);
    // The server may have merged some of the linked runs since.
    assert!(runs(&world, None) as u64 <= done.merged_by.runs, "none of them is left unlinked");
    world.crash();
    assert_eq!(seen(&world, "/job").len(), files);
}

#[test]
fn a_discarded_job_leaves_no_runs() {
    let world = World::new();
    let owner = mount(&world);
    let mut job = decouple(&owner, "/job", &by_reference().replace("20000", "4000000"));
    work_until_runs(&world, &mut job);
    job.discard().unwrap();
    assert_eq!(runs(&world, None), 0);
    // A journal with further events is distinguished from the complete one.
    let mut job = decouple(&owner, "/again", &by_reference().replace("20000", "4000000"));
    let files = work_until_runs(&world, &mut job);
    let root = job.root();
    job.unlink(root, b"f0").unwrap();
    let done = merge(job);
    assert_eq!((done.merged_by.runs, done.merged_by.because), (1, None));
    assert_eq!((seen(&world, "/again").len(), runs(&world, None)), (files - 1, 1));
}

#[test]
fn runs_of_a_dead_client_are_swept() {
    let world = World::new();
    let owner = mount(&world);
    let policy = by_reference().replace("20000", "4000000");
    // Beside one that is merged, and one that is at work.
    let mut merged = decouple(&owner, "/merged", &policy);
    let root = merged.root();
    fill(&mut merged, root);
    assert_eq!(merge(merged).merged_by.runs, 1);
    let mut living = decouple(&owner, "/living", &policy);
    work_until_runs(&world, &mut living);
    let mut dead = decouple(&owner, "/dead", &policy);
    work_until_runs(&world, &mut dead);
    let root = dead.root();
    // It has no time to clean up.
    std::mem::forget(dead);
    let sweep = |arguments: &[&str]| {
        let runs = world.json(arguments)["runs"].clone();
        (runs["removed"].as_u64().unwrap(), runs["held"].as_u64().unwrap())
    };
    let (removed, held) = sweep(&["sweep"]);
    assert!(removed == 0 && held >= 2, "it may be alive: {removed} {held}");
    owner.release(root).unwrap();
    assert!(sweep(&["sweep", "--dry-run"]).0 >= 1);
    assert!(runs(&world, Some(root)) >= 1, "nothing is done in a dry run");
    // A write that was under way when it died may arrive after the sweep.
    eventually("nothing of it is left", || {
        sweep(&["sweep"]);
        runs(&world, Some(root)) == 0
    });
    let files = living.pending_events();
    let done = merge(living);
    assert!(done.merged_by.runs >= 2, "{:?}", done.merged_by);
    assert_eq!(seen(&world, "/living").len() as u64, files);
    assert_eq!(seen(&world, "/merged").len(), FILES);
}
