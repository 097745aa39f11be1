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

/// When the server writes all changes to the metadata store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    Never,
    AfterMerge,
    AfterDiscard,
}

fn interfered_and_killed(written: Written) {
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
                if written == Written::AfterMerge {
                    owner.checkpoint().unwrap();
                }
                let path = format!("{path}{below}");
                let job = beside(&third, &other, (&path, "later"), is_first_later);
                job.discard().unwrap();
            }
        }
    }
    if written == Written::AfterDiscard {
        owner.checkpoint().unwrap();
    }
    let found = || cluster.say(&["find", "/"]);
    let before = found();
    assert!(before.contains("/1/both/file of the job"), "{before}");
    assert!(before.contains("/8/both/later/file of the other"), "{before}");
    drop([owner, other, third]);
    cluster.kill("mds");
    cluster.start();
    // The policy keeps in memory what the metadata store does not have.
    let kept = found();
    assert!(kept.lines().all(|path| before.lines().any(|line| line == path)), "{kept}");
    assert!(kept.contains("/8/both") && kept.contains("/1/later/file of the other"), "{kept}");
    if written == Written::AfterMerge {
        assert!(kept.contains("/8/both/file of the job"), "{kept}");
    }
    if written == Written::AfterDiscard {
        assert_eq!(kept, before);
    }
    cluster.run(&["down"]);
    cluster.run(&["fsck"]);
    cluster.start();
    assert_eq!(found(), kept);
}

#[test]
fn a_directory_that_a_job_and_another_client_made_has_its_name_after_a_discard_and_a_kill() {
    interfered_and_killed(Written::Never);
}

#[test]
fn so_it_has_if_the_server_wrote_it_after_the_merge() {
    interfered_and_killed(Written::AfterMerge);
}

#[test]
fn so_it_has_if_the_server_wrote_it_after_the_discard() {
    interfered_and_killed(Written::AfterDiscard);
}
