//! Requests over io_uring, where root has switched that on for the machine.

use std::fs::{self, File};
use std::sync::Mutex;

use rustix::thread::CpuSet;

use crate::mounts::{Mount, MountPoint, cluster, until};

/// The kernel's setting for new mounts.
const SETTING: &str = "/sys/module/fuse/parameters/enable_uring";
/// More than the threads that a mount has for one processor.
const WAITING: usize = 12;

fn is_offered() -> bool {
    fs::read_to_string(SETTING).is_ok_and(|setting| setting.trim() == "Y")
}

/// Binds this thread, whose requests then come to one queue.
fn bind() {
    let mut first = CpuSet::new();
    first.set(0);
    rustix::thread::sched_setaffinity(None, &first).unwrap();
}

#[test]
fn a_mount_insists_on_io_uring_or_does_without() {
    let Some(world) = cluster() else { return };
    let point = MountPoint::new();
    let has_log_line = |option: &str| {
        let log = world.json(&["mount", "-o", option, point.text()])["log"].clone();
        let text = fs::read_to_string(log.as_str().unwrap()).unwrap();
        fs::write(point.path().join("file"), option).unwrap();
        world.run(&["umount", point.text()]).done();
        text.lines().last().unwrap_or_default().contains("over io_uring")
    };
    assert!(!has_log_line("noio_uring"));
    if is_offered() {
        assert!(has_log_line("io_uring") && has_log_line("rw"));
    } else {
        assert!(!has_log_line("rw"), "the device serves it");
        let said = world.run(&["mount", "-o", "io_uring", point.text()]);
        said.refused(&["io_uring", "enable_uring"]);
        assert!(!point.is_mounted());
    }
}

/// The threads of one queue all wait for a lock, and the unlock comes to the same queue.
#[test]
fn blocked_requests_of_a_processor_do_not_block_the_unlock() {
    let Some(world) = cluster() else { return };
    if !is_offered() {
        eprintln!("skipped: {SETTING} is not Y, so the kernel offers no requests over io_uring");
        return;
    }
    let mount = Mount::with(&world, &["-o", "io_uring"]);
    fs::write(mount.path("file"), "content").unwrap();
    let held = File::open(mount.path("file")).unwrap();
    held.lock().unwrap();
    let waiting = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let lock = || {
            bind();
            let file = File::open(mount.path("file")).unwrap();
            waiting.lock().unwrap().push(rustix::thread::gettid());
            file.lock().unwrap();
        };
        (0..WAITING).for_each(|_| drop(scope.spawn(lock)));
        until("all wait", || {
            let waiting = waiting.lock().unwrap();
            let waits = |thread: &rustix::process::Pid| {
                let stat = format!("/proc/self/task/{}/stat", thread.as_raw_pid());
                !fs::read_to_string(stat).unwrap().contains(") R ")
            };
            waiting.len() == WAITING && waiting.iter().all(waits)
        });
        scope.spawn(move || {
            bind();
            held.unlock().unwrap();
        });
    });
    mount.end();
}
