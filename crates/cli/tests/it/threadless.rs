//! A client without threads, in a process that forks between two calls.

use std::process::Command;

use cudele::{Errno, Locator, NewFile, Policy, ThreadlessClient};
use net::Keyring;

use crate::cluster::{Cluster, text};

const MONITOR: &str = "CUDELE_TEST_THREADLESS";

#[allow(unsafe_code, reason = "fork, of which no safe form can exist")]
mod sys {
    unsafe extern "C" {
        fn fork() -> i32;
        fn _exit(status: i32) -> !;
    }

    /// Runs `act` in a child, which ends with its result without destructors of this process.
    pub(super) fn in_child(act: impl FnOnce() -> bool) -> i32 {
        // SAFETY: the process has no other thread that could hold a lock.
        match unsafe { fork() } {
            // SAFETY: ends the child, and touches nothing of the parent.
            0 => unsafe { _exit(i32::from(!act())) },
            child => child,
        }
    }
}

fn tasks() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

fn ended_well(child: i32) -> bool {
    let child = rustix::process::Pid::from_raw(child).unwrap();
    let options = rustix::process::WaitOptions::empty();
    let (_, status) = rustix::process::waitpid(Some(child), options).unwrap().unwrap();
    status.exit_status() == Some(0)
}

/// The names of a directory, sorted.
fn names(client: &mut ThreadlessClient, dir: &str) -> Vec<String> {
    let mut names: Vec<_> =
        client.list(dir).unwrap().iter().map(|entry| text(&entry.name)).collect();
    names.sort();
    names
}

/// The same test as a program of its own, in which no other test starts threads.
#[test]
fn a_client_without_threads_works_and_forks() {
    let cluster = Cluster::up();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["threadless::the_client", "--exact", "--test-threads=1", "--nocapture"]);
    command.env(MONITOR, Locator::monitor_of(&cluster.dir).to_string());
    command.env("CUDELE_STATE", cluster.home.join("state")).env("HOME", &cluster.home);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("@done"), "{}", text(&output.stdout));
    let dir = cluster.mount().open_dir("/dir").unwrap();
    let mut names: Vec<_> = dir.list().unwrap().iter().map(|it| text(&it.name)).collect();
    names.sort();
    assert_eq!(names, ["by-child", "renamed", "sub"]);
}

#[test]
fn the_client() {
    let Ok(monitor) = std::env::var(MONITOR) else { return };
    let before = tasks();
    let mut client =
        ThreadlessClient::connect(&monitor.parse().unwrap(), &Keyring::default()).unwrap();
    work(&mut client);
    assert_eq!(tasks(), before, "requests start no thread");
    decoupled(&mut client);
    assert_eq!(tasks(), before, "a decoupled subtree starts no thread");
    forks(&mut client);
    assert_eq!(tasks(), before, "no thread after a fork");
    println!("@done");
}

fn work(client: &mut ThreadlessClient) {
    client.make_dir("/dir/sub", 0o755).unwrap();
    client.create("/dir/file", &NewFile { size: 3, data: b"abc", ..NewFile::default() }).unwrap();
    client.create("/dir/gone", &NewFile::default()).unwrap();
    assert_eq!(client.stat("/dir/file").unwrap().size, 3);
    client.rename("/dir/file", "/dir/renamed").unwrap();
    client.remove("/dir/gone").unwrap();
    client.make_dir("/dir/empty", 0o755).unwrap();
    client.remove_dir("/dir/empty").unwrap();
    assert_eq!(client.stat("/dir/file").unwrap_err().errno, Errno::NotFound);
    assert_eq!(names(client, "/dir"), ["renamed", "sub"]);
    client.sync().unwrap();
}

/// Appends and merges under policies of which a client with threads starts some.
fn decoupled(client: &mut ThreadlessClient) {
    let during = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let policies = [
        "durability: global_persist\nmerge: at 5000 updates\n",
        "durability: local_persist\nmerge_by: reference\n",
        "durability: local_persist||global_persist\n",
    ];
    for (at, policy) in policies.into_iter().enumerate() {
        let path = format!("/job{at}");
        client.make_dir(&path, 0o755).unwrap();
        let policy = format!("consistency: append_client_journal+volatile_apply\n{policy}");
        let policy = Policy::from_name_or_text(&policy).unwrap().policy;
        let mut job = client.decouple(&path, &policy).unwrap();
        let job_fs = job.get().unwrap().fs().clone();
        let most = during.clone();
        job_fs.observe(std::sync::Arc::new(move |_| {
            most.fetch_max(tasks(), std::sync::atomic::Ordering::Relaxed);
        }));
        drop(job_fs);
        let subtree = job.get().unwrap();
        let root = subtree.root();
        for number in 0..20_000 {
            let name = format!("file.{number:05}");
            subtree.create(root, name.as_bytes(), &NewFile::default()).unwrap();
        }
        subtree.merge().unwrap();
        job.forget().unwrap();
        assert_eq!(client.list(&path).unwrap().len(), 20_000, "{path}");
    }
    let most = during.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(most, tasks(), "mechanisms run on the caller's thread");
    client.make_dir("/on-demand", 0o755).unwrap();
    let policy = "consistency: append_client_journal+volatile_apply\nmerge: on_demand\n";
    let policy = Policy::from_name_or_text(policy).unwrap().policy;
    assert_eq!(client.decouple("/on-demand", &policy).unwrap_err().errno, Errno::Again);
}

/// A child has a session of its own, and leaves that of its parent and the parent's subtree alone.
fn forks(client: &mut ThreadlessClient) {
    client.make_dir("/forked", 0o755).unwrap();
    let policy = Policy::from_name_or_text("batchfs").unwrap().policy;
    let mut held = client.decouple("/forked", &policy).ok();
    let job = held.as_mut().unwrap();
    let root = job.get().unwrap().root();
    job.get().unwrap().create(root, b"before", &NewFile::default()).unwrap();
    let id = client.client().unwrap();
    let child = sys::in_child(|| {
        let stale = held.as_mut().unwrap().get().is_err_and(|error| error.errno == Errno::Stale);
        // The child drops its copy.
        held = None;
        let works = client.create("/dir/by-child", &NewFile::default()).is_ok();
        stale && works && client.client().is_ok_and(|own| own != id)
    });
    assert!(ended_well(child));
    let job = held.as_mut().unwrap();
    job.get().unwrap().create(root, b"after", &NewFile::default()).unwrap();
    assert_eq!(client.client().unwrap(), id);
    client.stat("/dir/by-child").unwrap();
    job.get().unwrap().merge().unwrap();
    assert_eq!(names(client, "/forked"), ["after", "before"]);
}
