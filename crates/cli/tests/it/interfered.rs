//! Other clients change a subtree that a job has (`interfere_policy: allow`), and the server is
//! killed afterwards: `cudele fsck` finds each directory and file under one name.

use std::sync::Arc;

use cudele::{FileType, Fs, NewFile, Policy, Subtree};

use crate::cluster::Cluster;

const POLICY: &str = "consistency: append_client_journal\ninterfere_policy: allow";

fn decoupled(fs: &Arc<Fs>, path: &str) -> Subtree {
    fs.decouple(path, &Policy::from_name_or_text(POLICY).unwrap().policy).unwrap()
}

fn directory() -> NewFile<'static> {
    NewFile { file_type: FileType::Directory, permissions: 0o755, ..NewFile::default() }
}

/// Adds a directory with a file and a directory to a subtree.
fn add(job: &mut Subtree, name: &str) {
    let root = job.root();
    let dir = job.create(root, name.as_bytes(), &directory()).unwrap();
    job.create(dir, b"file of the job", &NewFile::default()).unwrap();
    job.create(dir, b"directory of the job", &directory()).unwrap();
}

/// Makes the same directory through the server, with a file and a directory.
fn interfere(other: &Arc<Fs>, path: &str) {
    other.make_dir(path, 0o755).unwrap();
    let dir = other.open_dir(path).unwrap();
    dir.create("file of the other", &NewFile::default()).unwrap();
    other.make_dir(format!("{path}/directory of the other"), 0o755).unwrap();
}

/// Runs a job beside another client, which makes the same directory before or after the job.
fn beside(owner: &Arc<Fs>, other: &Arc<Fs>, (path, name): (&str, &str), is_first: bool) -> Subtree {
    let mut job = decoupled(owner, path);
    let shared = format!("{path}/{name}");
    if is_first {
        interfere(other, &shared);
    }
    add(&mut job, name);
    if !is_first {
        interfere(other, &shared);
    }
    job
}

#[test]
fn a_directory_that_a_job_and_another_client_made_has_its_name_after_a_discard_and_a_kill() {
    let cluster = Cluster::up();
    let [owner, other, third] = [(); 3].map(|()| cluster.mount());
    let mut number = 0;
    for is_first in [true, false] {
        for is_first_later in [true, false] {
            // The third client decouples the directory above, or the one that both made.
            for below in ["", "/both"] {
                number += 1;
                let path = format!("/{number}");
                owner.make_dir(&path, 0o755).unwrap();
                beside(&owner, &other, (&path, "both"), is_first).merge().unwrap();
                let path = format!("{path}{below}");
                let job = beside(&third, &other, (&path, "later"), is_first_later);
                job.discard().unwrap();
            }
        }
    }
    let found = || cluster.say(&["find", "/"]);
    let before = found();
    assert!(before.contains("/1/both/file of the job"), "{before}");
    assert!(before.contains("/8/both/later/file of the other"), "{before}");
    drop([owner, other, third]);
    cluster.kill("mds");
    cluster.start();
    assert_eq!(found(), before);
    cluster.run(&["down"]);
    cluster.run(&["fsck"]);
    cluster.start();
    assert_eq!(found(), before);
}
