//! Other clients change a subtree that a job has (`interfere_policy: allow`), and the server is
//! killed afterwards: `cudele fsck` finds each directory and file under one name.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cudele::{FileType, Fs, NewFile, Policy, Subtree};

use crate::cluster::{Cluster, eventually};

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

/// Checks that the store of a stopped cluster has no fault.
fn adds_up(cluster: &Cluster) {
    let found = cluster.command(&["fsck", "--json"]).output().unwrap();
    let found = serde_json::from_slice::<serde_json::Value>(&found.stdout).unwrap();
    assert_eq!(found["findings"].as_array().map(Vec::len), Some(0), "{found:#}");
}

/// When the other client makes the directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Other {
    BeforeTheDecoupling,
    BeforeTheJob,
    AfterTheJob,
}

const ORDERS: [Other; 3] = [Other::BeforeTheDecoupling, Other::BeforeTheJob, Other::AfterTheJob];

/// Runs a job beside another client, which makes the same directory.
fn beside(owner: &Arc<Fs>, other: &Arc<Fs>, (path, name): (&str, &str), order: Other) -> Subtree {
    let shared = format!("{path}/{name}");
    let at = |now: Other| {
        if now == order {
            interfere(other, &shared);
        }
    };
    at(Other::BeforeTheDecoupling);
    let mut job = decoupled(owner, path);
    at(Other::BeforeTheJob);
    add(&mut job, name);
    at(Other::AfterTheJob);
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
    for order in ORDERS {
        for later in ORDERS {
            // The third client decouples the directory above, or the one that both made.
            for below in ["", "/both"] {
                number += 1;
                let path = format!("/{number}");
                owner.make_dir(&path, 0o755).unwrap();
                beside(&owner, &other, (&path, "both"), order).merge().unwrap();
                if written == Written::AfterMerge {
                    owner.checkpoint().unwrap();
                }
                let path = format!("{path}{below}");
                let job = beside(&third, &other, (&path, "later"), later);
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
    assert!(before.contains("/18/both/later/file of the other"), "{before}");
    other.sync().unwrap();
    drop([owner, other, third]);
    cluster.kill("mds");
    cluster.start();
    // The policy has no durability, so a merge may be lost. Requests of others are journalled.
    let kept = found();
    assert!(kept.lines().all(|path| before.lines().any(|line| line == path)), "{kept}");
    let of_other = before.lines().filter(|path| path.ends_with("of the other"));
    let lost: Vec<&str> = of_other.filter(|path| !kept.lines().any(|line| line == *path)).collect();
    assert_eq!(lost, [""; 0]);
    if written == Written::AfterMerge {
        assert!(kept.contains("/18/both/file of the job"), "{kept}");
    }
    if written == Written::AfterDiscard {
        assert_eq!(kept, before);
    }
    cluster.run(&["down"]);
    adds_up(&cluster);
    cluster.start();
    assert_eq!(found(), kept);
}

#[test]
fn a_directory_of_job_and_interferer_keeps_its_name_after_a_kill() {
    interfered_and_killed(Written::Never);
}

#[test]
fn the_directory_keeps_its_name_if_the_server_wrote_it_after_the_merge() {
    interfered_and_killed(Written::AfterMerge);
}

#[test]
fn the_directory_keeps_its_name_if_the_server_wrote_it_after_the_discard() {
    interfered_and_killed(Written::AfterDiscard);
}

/// Runs a function when it is dropped.
struct AtEnd<F: Fn()>(F);

impl<F: Fn()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Other clients work in the directories of a job while the job merges parts of its work, and the
/// server is killed in between.
#[test]
fn no_kill_between_the_merges_of_a_job_leaves_a_directory_without_a_name() {
    const ROUNDS: usize = 6;
    const DIRS: usize = 8;
    let cluster = Cluster::up();
    let owner = cluster.mount();
    owner.make_dir("/job", 0o755).unwrap();
    let (round, made) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for name in ["one", "two"] {
            let other = cluster.mount();
            let (round, made) = (&round, &made);
            scope.spawn(move || {
                for number in 0.. {
                    let round = round.load(Ordering::Relaxed);
                    if round == ROUNDS {
                        return;
                    }
                    // The directory is not there before the merge, nor after a crash that undid it.
                    let Ok(dir) = other.open_dir(format!("/job/{round}.{}", number % DIRS)) else {
                        continue;
                    };
                    let created = dir.create(format!("{name}{number}"), &NewFile::default());
                    made.fetch_add(usize::from(created.is_ok()), Ordering::Relaxed);
                }
            });
        }
        // Also after a failure, or the threads would go on for ever.
        let _end = AtEnd(|| round.store(ROUNDS, Ordering::Relaxed));
        for now in 0..ROUNDS {
            round.store(now, Ordering::Relaxed);
            let before = made.load(Ordering::Relaxed);
            let mut job = decoupled(&owner, "/job");
            for number in 0..DIRS {
                add(&mut job, &format!("{now}.{number}"));
                // Each part is a merge in the memory of the server.
                job.sync().unwrap();
            }
            job.merge().unwrap();
            eventually("other clients have worked there", || {
                made.load(Ordering::Relaxed) > before + 10 * (now + 1)
            });
            cluster.kill("mds");
            cluster.start();
        }
    });
    drop(owner);
    cluster.run(&["down"]);
    adds_up(&cluster);
}
