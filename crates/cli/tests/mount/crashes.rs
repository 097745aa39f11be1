//! Servers and mounts that end without a warning.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::mounts::{Mount, cluster, until};

#[test]
fn a_program_at_work_survives_the_metadata_server() {
    let Some(world) = cluster() else { return };
    let mount = Mount::new(&world);
    fs::create_dir(mount.path("work")).unwrap();
    let (stop, made) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut number = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                let name = mount.path(&format!("work/{number}"));
                let mut file = File::create(&name).unwrap();
                writeln!(file, "{number}").unwrap();
                drop(file);
                fs::rename(&name, mount.path(&format!("work/file.{number}"))).unwrap();
                number += 1;
                made.store(number, Ordering::Relaxed);
            }
        });
        for round in 1..=3 {
            until("it is at work", || {
                made.load(Ordering::Relaxed) > round * 20 || worker.is_finished()
            });
            let before = made.load(Ordering::Relaxed);
            world.crash();
            until("it goes on", || made.load(Ordering::Relaxed) > before || worker.is_finished());
        }
        stop.store(true, Ordering::Relaxed);
    });
    let made = made.into_inner();
    let other = Mount::new(&world);
    assert_eq!(fs::read_dir(other.path("work")).unwrap().count() as u64, made);
    for number in 0..made {
        let content = fs::read_to_string(other.path(&format!("work/file.{number}"))).unwrap();
        assert_eq!(content, format!("{number}\n"));
    }
    other.end();
    mount.end();
}

#[test]
fn files_stay_open_over_a_crash_of_the_metadata_server() {
    let Some(world) = cluster() else { return };
    let mount = Mount::new(&world);
    fs::create_dir_all(mount.path("a/b")).unwrap();
    let large = vec![7_u8; 3 << 20];
    fs::write(mount.path("a/b/large"), &large).unwrap();
    let mut reader = File::open(mount.path("a/b/large")).unwrap();
    let mut writer = File::create(mount.path("a/b/log")).unwrap();
    writeln!(writer, "before").unwrap();
    world.crash();
    writeln!(writer, "after").unwrap();
    writer.sync_all().unwrap();
    let mut read = Vec::new();
    reader.read_to_end(&mut read).unwrap();
    assert!(read == large);
    assert_eq!(fs::read_to_string(mount.path("a/b/log")).unwrap(), "before\nafter\n");
    drop((reader, writer));
    mount.end();
}

#[test]
fn flushed_content_survives_a_kill_of_the_mount() {
    let Some(world) = cluster() else { return };
    let mut mount = Mount::new(&world);
    let large = vec![9_u8; 6 << 20];
    fs::create_dir(mount.path("d")).unwrap();
    fs::write(mount.path("d/closed"), "closed").unwrap();
    fs::write(mount.path("d/large"), &large).unwrap();
    let mut synced = File::create(mount.path("d/synced")).unwrap();
    synced.write_all(b"synced").unwrap();
    synced.sync_all().unwrap();
    let mut lost = File::create(mount.path("d/held")).unwrap();
    lost.write_all(b"held").unwrap();
    mount.kill();
    // Over io_uring, requests are cancelled until the kernel has removed the rings.
    let dead = Some(rustix::io::Errno::NOTCONN);
    until("the mount is dead", || {
        let gone = fs::metadata(mount.path("d")).unwrap_err();
        rustix::io::Errno::from_io_error(&gone) == dead
    });
    drop((synced, lost));
    let other = Mount::new(&world);
    assert_eq!(fs::read(other.path("d/closed")).unwrap(), b"closed");
    assert_eq!(fs::read(other.path("d/synced")).unwrap(), b"synced");
    assert!(fs::read(other.path("d/large")).unwrap() == large);
    let held = fs::read(other.path("d/held")).unwrap();
    assert!(held.is_empty() || held == b"held");
    other.end();
    // The dead mount is unmounted like any other.
    world.run(&["umount", mount.point().text()]).done();
}

#[test]
fn a_soft_mount_gives_eio_after_its_timeout() {
    let Some(world) = cluster() else { return };
    let soft = Mount::with(&world, &["-o", "timeout=1"]);
    let hard = Mount::with(&world, &["-o", "hard"]);
    fs::write(soft.path("file"), "content").unwrap();
    assert_eq!(fs::read(hard.path("file")).unwrap(), b"content");
    world.kill_server();
    std::thread::scope(|scope| {
        // As long as it takes.
        let waits = scope.spawn(|| fs::read(hard.path("file")));
        let start = Instant::now();
        let asked = ["file", "absent", "other"].map(|name| {
            let path = soft.path(name);
            scope.spawn(move || fs::metadata(path).unwrap_err())
        });
        for asked in asked {
            let error = asked.join().unwrap();
            assert_eq!(Errno::from_io_error(&error), Some(Errno::IO), "{error}");
        }
        let made = File::create(soft.path("new")).unwrap_err();
        assert_eq!(Errno::from_io_error(&made), Some(Errno::IO), "{made}");
        let took = start.elapsed();
        assert!(took >= Duration::from_secs(1), "{took:?}");
        assert!(took < Duration::from_secs(15), "{took:?}");
        assert!(!waits.is_finished());
        world.run(&["up"]).done();
        assert_eq!(waits.join().unwrap().unwrap(), b"content");
    });
    assert_eq!(fs::read(soft.path("file")).unwrap(), b"content");
    assert!(!soft.path("new").exists());
    hard.end();
    soft.end();
}

/// Content leaves the store only when the inode has the remaining part of it.
#[test]
fn a_file_that_could_not_be_cut_off_is_whole() {
    let Some(world) = cluster() else { return };
    let mut mount = Mount::with(&world, &["-o", "timeout=1"]);
    let content: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
    let file = File::create(mount.path("file")).unwrap();
    file.write_all_at(&content, 0).unwrap();
    file.sync_all().unwrap();
    world.kill_server();
    let error = file.set_len(10).unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::IO), "{error}");
    mount.kill();
    world.run(&["up"]).done();
    let other = Mount::new(&world);
    assert!(fs::read(other.path("file")).unwrap() == content);
    other.end();
    drop(file);
    world.run(&["umount", mount.point().text()]).done();
}

/// A client that gets inode numbers that a killed mount had used finds nothing of its content.
#[test]
fn content_of_a_killed_mount_appears_in_no_other_file() {
    let Some(world) = cluster() else { return };
    let decoupled = |mount: &Mount, name: &str| {
        let (dir, flags) = (mount.path(name), rustix::fs::XattrFlags::empty());
        fs::create_dir(&dir).unwrap();
        rustix::fs::setxattr(&dir, "cudele.dir.policy", b"batchfs", flags).unwrap();
        rustix::fs::setxattr(&dir, "cudele.dir.state", b"decouple", flags).unwrap();
        dir
    };
    let length = 100_000;
    let mut mount = Mount::new(&world);
    let job = decoupled(&mount, "job");
    for number in 0..20 {
        fs::write(job.join(format!("{number}")), vec![b'x'; length]).unwrap();
    }
    mount.kill();
    world.run(&["umount", mount.point().text()]).done();
    world.run(&["merge", "/job"]).done();
    let mount = Mount::new(&world);
    let job = decoupled(&mount, "other");
    for number in 0..40 {
        let path = job.join(format!("{number}"));
        File::create(&path).unwrap().set_len(length as u64).unwrap();
        assert!(fs::read(&path).unwrap() == vec![0; length], "{number}");
    }
    mount.end();
}

/// A lock that is never given back must not keep a program from being ended.
#[test]
fn a_wait_for_a_lock_can_be_interrupted() {
    let Some(world) = cluster() else { return };
    let mount = Mount::new(&world);
    let path = mount.path("file");
    let holder = fs::File::create(&path).unwrap();
    holder.lock().unwrap();
    for signal in ["TERM", "KILL"] {
        let mut waiter =
            std::process::Command::new("flock").arg(&path).arg("true").spawn().unwrap();
        let stack = format!("/proc/{}/wchan", waiter.id());
        until("it waits for the lock", || {
            fs::read_to_string(&stack).is_ok_and(|at| at.contains("request_wait_answer"))
        });
        let pid = rustix::process::Pid::from_child(&waiter);
        let signal = if signal == "TERM" {
            rustix::process::Signal::TERM
        } else {
            rustix::process::Signal::KILL
        };
        rustix::process::kill_process(pid, signal).unwrap();
        until("it has ended", || waiter.try_wait().unwrap().is_some());
        assert!(!waiter.wait().unwrap().success());
    }
    drop(holder);
    let given = std::process::Command::new("flock").arg(&path).arg("true").status().unwrap();
    assert!(given.success());
    mount.end();
}
