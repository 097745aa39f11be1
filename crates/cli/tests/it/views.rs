//! The first question about a decoupled subtree after a merge: a job that only appends has no view
//! of its subtree before.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cudele::{AttrChange, FileType, Fs, Ino, Locator, NewFile, Policy, Subtree};

use crate::cluster::{Cluster, eventually};

const OPEN: &str = "consistency: append_client_journal\ninterfere_policy: allow";

fn decoupled(fs: &Arc<Fs>, policy: &str) -> Subtree {
    fs.make_dir("/job", 0o755).unwrap();
    fs.decouple("/job", &Policy::from_name_or_text(policy).unwrap().policy).unwrap()
}

fn directory() -> NewFile<'static> {
    NewFile { file_type: FileType::Directory, permissions: 0o755, ..NewFile::default() }
}

fn names(job: &mut Subtree, dir: Ino) -> BTreeSet<String> {
    let entries = job.list(dir).unwrap();
    let names: BTreeSet<_> =
        entries.iter().map(|it| String::from_utf8(it.name.clone()).unwrap()).collect();
    assert_eq!(names.len(), entries.len(), "each name once");
    names
}

fn set<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}

#[test]
fn the_first_question_after_a_merge_finds_what_was_merged_and_what_was_not() {
    let cluster = Cluster::up();
    let fs = cluster.mount();
    let mut job = decoupled(&fs, "batchfs");
    let root = job.root();
    let dir = job.create(root, b"dir", &directory()).unwrap();
    job.create(dir, b"merged", &NewFile::default()).unwrap();
    let large = job.create(dir, b"large", &NewFile::default()).unwrap();
    job.sync().unwrap();
    job.create(dir, b"pending", &NewFile::default()).unwrap();
    job.create(root, b"file", &NewFile::default()).unwrap();
    let grown = AttrChange { size: Some(1 << 20), ..AttrChange::default() };
    job.set_attr_blindly(dir, large, &grown);
    // The server writes the directory down, and has it in memory no more.
    fs.checkpoint().unwrap();
    cluster.kill("mds");
    cluster.start();
    assert_eq!(names(&mut job, dir), set(["large", "merged", "pending"]));
    assert_eq!(names(&mut job, root), set(["dir", "file"]));
    let size = job.lookup(dir, b"large").unwrap().size;
    assert_eq!(size, 1 << 20, "it grew after its creation was merged");
    job.unlink(dir, b"merged").unwrap();
    // The connection to the old server ends now, and a merge is not sent again by itself.
    job.merge().or_else(|_| job.merge()).unwrap();
    let of = |path: &str| fs.open_dir(path).unwrap().list().unwrap();
    let left: Vec<_> = of("/job/dir").into_iter().map(|entry| entry.name).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.contains(&b"large".to_vec()) && left.contains(&b"pending".to_vec()));
}

#[test]
fn the_first_question_beside_merges_in_the_background_sees_every_name() {
    let cluster = Cluster::up();
    let (fs, other) = (cluster.mount(), cluster.mount());
    let mut job = decoupled(&fs, OPEN);
    let (root, mut made) = (job.root(), 0);
    job.sync_every(Duration::from_millis(1)).unwrap();
    eventually("a part is merged", || {
        for _ in 0..1_000 {
            job.create(root, format!("f{made}").as_bytes(), &NewFile::default()).unwrap();
            made += 1;
        }
        other.open_dir("/job").unwrap().list().is_ok_and(|names| !names.is_empty())
    });
    assert_eq!(names(&mut job, root).len(), made);
    job.merge().unwrap();
    assert_eq!(other.open_dir("/job").unwrap().list().unwrap().len(), made);
}

#[test]
fn a_process_that_takes_the_work_up_after_a_merge_finds_what_was_merged() {
    let cluster = Cluster::up();
    let fs = cluster.mount();
    let mut job = decoupled(&fs, "batchfs");
    let (root, client) = (job.root(), fs.client());
    job.create(root, b"merged", &NewFile::default()).unwrap();
    job.sync().unwrap();
    job.create(root, b"pending", &NewFile::default()).unwrap();
    job.keep_here().unwrap();
    drop((job, fs));
    let monitor = Locator::monitor_of(&cluster.dir);
    let fs = cudele::Cluster::connect(&monitor).unwrap().mount_as(client).unwrap();
    let mut job = fs.attach("/job").unwrap();
    assert_eq!(names(&mut job, root), set(["merged", "pending"]));
    job.merge().unwrap();
    assert_eq!(fs.open_dir("/job").unwrap().list().unwrap().len(), 2);
}

#[test]
fn a_subtree_that_was_merged_without_a_question_is_no_empty_one() {
    let cluster = Cluster::up();
    let fs = cluster.mount();
    let mut job = decoupled(&fs, "batchfs");
    let root = job.root();
    let dir = job.create(root, b"dir", &directory()).unwrap();
    job.create(dir, b"file", &NewFile::default()).unwrap();
    job.merge().unwrap();
    assert_eq!(names(&mut job, root), set(["dir"]));
    assert_eq!(names(&mut job, dir), set(["file"]));
}
