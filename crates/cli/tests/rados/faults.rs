//! Faults of the Ceph cluster under a client that works: changes that it knows as safe stay, and it
//! continues when it can.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cudele::{Dir, Errno, Fs, NewFile};
use testceph::{CephSettings, OsdStore, Signal};

use crate::cluster::eventually;
use crate::{OnCeph, up};

/// So many files more show that work continues.
const MORE: u64 = 30;

/// Creates a file with content in its inode, and returns when that is safe.
fn create(fs: &Fs, dir: &Dir, number: u64) -> cudele::Result<()> {
    let data = number.to_le_bytes();
    let new = NewFile { size: data.len() as u64, data: &data, ..NewFile::default() };
    dir.create(format!("f{number:06}"), &new)?;
    fs.sync().map(|_| ())
}

/// Lets a client create files, each safe before the next, while `faults` strikes, which calls its
/// argument to wait until work has continued. Afterwards the servers are killed, too, and
/// everything that was safe must exist.
fn survives(on: &OnCeph, faults: impl FnOnce(&dyn Fn(&str))) {
    let fs = on.cluster.mount();
    fs.make_dir("/busy", 0o755).unwrap();
    let dir = fs.open_dir("/busy").unwrap();
    let (safe, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let number = safe.load(Ordering::Relaxed);
                create(&fs, &dir, number).unwrap_or_else(|error| panic!("file {number}: {error}"));
                safe.store(number + 1, Ordering::Relaxed);
            }
        });
        faults(&|what| {
            let target = safe.load(Ordering::Relaxed) + MORE;
            eventually(what, || {
                assert!(!worker.is_finished(), "the client failed {what}");
                safe.load(Ordering::Relaxed) >= target
            });
        });
        stop.store(true, Ordering::Relaxed);
    });
    drop((dir, fs));
    everything_is_there(on, safe.into_inner());
}

fn everything_is_there(on: &OnCeph, safe: u64) {
    for daemon in ["mds", "mon"] {
        on.cluster.kill(daemon);
    }
    on.cluster.start();
    let expected: Vec<String> = (0..safe).map(|number| format!("f{number:06}")).collect();
    // A create that was under way may be there, too.
    let names = on.cluster.names("/busy");
    assert!(names.starts_with(&expected), "{} of {safe} are there", names.len());
    let last = on.cluster.run(&["cp", &format!("/busy/f{:06}", safe - 1), "-"]);
    assert_eq!(last, (safe - 1).to_le_bytes());
}

fn in_files(osds: u32, copies: u32) -> impl FnOnce(&mut CephSettings) {
    move |settings| {
        (settings.osds, settings.copies, settings.store) = (osds, copies, OsdStore::File);
    }
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn work_goes_on_while_one_of_two_osds_is_killed_and_comes_back() {
    let Some(on) = up(&[], in_files(2, 2)) else { return };
    survives(&on, |progress| {
        progress("with both OSDs");
        on.ceph.signal("osd.1", Signal::KILL).unwrap();
        progress("with one OSD");
        on.ceph.start("osd.1").unwrap();
        progress("with both again");
    });
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn work_goes_on_while_two_of_three_osds_are_killed() {
    let Some(on) = up(&[], in_files(3, 3)) else { return };
    survives(&on, |progress| {
        progress("with three OSDs");
        for osd in ["osd.0", "osd.1"] {
            on.ceph.signal(osd, Signal::KILL).unwrap();
            progress(&format!("without {osd}"));
        }
    });
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn work_waits_for_an_osd_that_stands_still_and_goes_on() {
    // No other daemon may decide that it is dead.
    let patient = |settings: &mut CephSettings| {
        in_files(2, 2)(settings);
        settings.options.push(("osd heartbeat grace".into(), "3600".into()));
    };
    let Some(on) = up(&[], patient) else { return };
    let hasty = objstore::open_existing(&format!("{}&op_timeout=1", on.ceph.url("test"))).unwrap();
    survives(&on, |progress| {
        progress("with both OSDs");
        for _ in 0..3 {
            on.ceph.signal("osd.1", Signal::STOP).unwrap();
            // Every change needs both copies, so nothing is safe while this one stands still.
            let waits = hasty.append("journal/probe", b"x").unwrap_err();
            assert_eq!(waits.errno, Errno::TimedOut, "{waits}");
            on.ceph.signal("osd.1", Signal::CONT).unwrap();
            progress("after it goes on");
        }
    });
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn work_goes_on_without_a_monitor_and_with_a_new_one() {
    let Some(on) = up(&[], in_files(1, 1)) else { return };
    survives(&on, |progress| {
        progress("with a monitor");
        on.ceph.signal("mon.a", Signal::KILL).unwrap();
        progress("without");
        on.ceph.start("mon.a").unwrap();
        progress("with a new one");
    });
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn a_full_cluster_refuses_changes_and_loses_none() {
    let small = |settings: &mut CephSettings| settings.bytes = 96 << 20;
    let Some(on) = up(&[], small) else { return };
    let fs: Arc<Fs> = on.cluster.mount();
    fs.make_dir("/busy", 0o755).unwrap();
    let dir = fs.open_dir("/busy").unwrap();
    let store = on.store();
    let block = vec![7; 4 << 20];
    let (mut safe, mut blocks, mut refused) = (0, 0, None);
    eventually("the cluster is full", || {
        if blocks < 23 && store.write_range(&format!("data/ff/{blocks}"), 0, &block).is_ok() {
            blocks += 1;
        }
        match create(&fs, &dir, safe) {
            Ok(()) => safe += 1,
            Err(error) => refused = Some(error),
        }
        refused.is_some()
    });
    let refused = refused.unwrap();
    assert_eq!(refused.errno, Errno::NoSpace, "{refused}");
    assert!(safe > 0 && blocks > 10, "{safe} files, {blocks} blocks");
    // Reading goes on.
    assert!(fs.stat(format!("/busy/f{:06}", safe - 1)).is_ok());
    for number in 0..blocks {
        assert_eq!(store.delete(&format!("data/ff/{number}")), Ok(true));
    }
    // The refused file may exist in memory: a create under way is kept.
    let mut next = safe + 1;
    eventually("there is room again", || {
        next += 1;
        create(&fs, &dir, next).is_ok()
    });
    drop((dir, fs));
    on.cluster.kill("mds");
    on.cluster.start();
    let names = on.cluster.names("/busy");
    for number in (0..safe).chain([next]) {
        assert!(names.contains(&format!("f{number:06}")), "{number} is gone");
    }
}
