//! OSDs and monitors that stop, stand still and come back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use objstore::{Expect, ObjectStore, PutOutcome};
use testceph::{CephSettings, OsdStore, Signal};
use types::Errno;

use crate::cluster::{eventually, two_copies, up};

fn record(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(1 + usize::try_from(number % 50).unwrap())
}

/// Checks that an object consists of the records 0, 1, 2, …, and says how many there are.
fn records(store: &dyn ObjectStore, name: &str) -> u64 {
    let (content, _) = store.get(name).unwrap();
    let (mut rest, mut number) = (&content[..], 0);
    while !rest.is_empty() {
        let wanted = record(number);
        assert!(rest.starts_with(&wanted), "record {number} is torn or twice there");
        rest = &rest[wanted.len()..];
        number += 1;
    }
    number
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn a_killed_osd_loses_nothing_that_was_acknowledged() {
    let Some(ceph) = up(two_copies) else { return };
    let store = ceph.open("");
    let (acknowledged, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let number = acknowledged.load(Ordering::Relaxed);
                let name = format!("dirs/{number}");
                let put = store.put(&name, &record(number), Expect::Absent);
                assert!(matches!(put, Ok(PutOutcome::Done(_))), "{put:?}");
                store.append("journal/log", &record(number)).unwrap();
                acknowledged.store(number + 1, Ordering::Relaxed);
            }
        });
        let progress = |what: &str| {
            let target = acknowledged.load(Ordering::Relaxed) + 20;
            eventually(what, || {
                assert!(!writer.is_finished(), "the writer failed {what}");
                acknowledged.load(Ordering::Relaxed) >= target
            });
        };
        progress("with both OSDs");
        ceph.signal("osd.1", Signal::KILL).unwrap();
        progress("after one was killed");
        ceph.start("osd.1").unwrap();
        progress("after it is back");
        stop.store(true, Ordering::Relaxed);
    });
    let acknowledged = acknowledged.into_inner();
    // Another connection, which remembers nothing.
    let store = ceph.open("");
    assert_eq!(records(&*store, "journal/log"), acknowledged);
    for number in 0..acknowledged {
        assert_eq!(store.get(&format!("dirs/{number}")).unwrap().0, record(number), "{number}");
    }
    assert_eq!(store.list("dirs/").unwrap().len() as u64, acknowledged);
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn the_last_copy_alone_has_everything() {
    let three = |settings: &mut CephSettings| {
        (settings.osds, settings.copies, settings.store) = (3, 3, OsdStore::File);
    };
    let Some(ceph) = up(three) else { return };
    let store = ceph.open("");
    let mut written = 0;
    let mut write = |count: u64| {
        for number in written..written + count {
            store.append("journal/log", &record(number)).unwrap();
            let _ = store.put(&format!("dirs/{number}"), &record(number), Expect::Absent).unwrap();
        }
        written += count;
        assert_eq!(records(&*store, "journal/log"), written);
        for number in 0..written {
            assert_eq!(store.get(&format!("dirs/{number}")).unwrap().0, record(number));
        }
    };
    write(40);
    // One, and then the second while the cluster has not made up for the first.
    for osd in ["osd.0", "osd.1"] {
        ceph.signal(osd, Signal::KILL).unwrap();
        write(20);
    }
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn everything_killed_and_started_again_has_everything() {
    let Some(ceph) = up(two_copies) else { return };
    let store = ceph.open("");
    for number in 0..40 {
        store.append("journal/log", &record(number)).unwrap();
    }
    for daemon in ["osd.0", "osd.1", "mon.a"] {
        ceph.signal(daemon, Signal::KILL).unwrap();
    }
    for daemon in ["mon.a", "osd.0", "osd.1"] {
        ceph.start(daemon).unwrap();
    }
    // The connection finds the new daemons without help.
    store.append("journal/log", &record(40)).unwrap();
    assert_eq!(records(&*store, "journal/log"), 41);
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn an_osd_that_stands_still_is_waited_for_as_long_as_it_was_said() {
    // No other daemon may decide that it is dead: there is no second copy.
    let patient = |settings: &mut testceph::CephSettings| {
        settings.options.push(("osd heartbeat grace".into(), "3600".into()));
    };
    let Some(ceph) = up(patient) else { return };
    let (hasty, patient) = (ceph.open("&op_timeout=1"), ceph.open(""));
    hasty.append("journal/log", &record(0)).unwrap();
    ceph.signal("osd.0", Signal::STOP).unwrap();
    let start = Instant::now();
    let error = hasty.append("journal/log", &record(1)).unwrap_err();
    assert_eq!(error.errno, Errno::TimedOut, "{error}");
    assert!(error.to_string().contains("whether it was done is not known"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    let waits = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            waits.store(true, Ordering::Relaxed);
            patient.append("journal/other", b"waited")
        });
        eventually("the other connection waits", || waits.load(Ordering::Relaxed));
        // A full second in which nothing can be answered.
        let error = hasty.stat("journal/log").unwrap_err();
        assert_eq!(error.errno, Errno::TimedOut, "{error}");
        assert!(!waiter.is_finished(), "an OSD that stands still does not answer");
        ceph.signal("osd.0", Signal::CONT).unwrap();
        assert_eq!(waiter.join().unwrap(), Ok(0));
    });
    // The append that was given up happened once or not at all, and the next one goes behind it.
    let there = records(&*hasty, "journal/log");
    assert!((1..=2).contains(&there), "{there}");
    hasty.append("journal/log", &record(there)).unwrap();
    assert_eq!(records(&*patient, "journal/log"), there + 1);
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn a_restarted_monitor_is_not_missed() {
    let Some(ceph) = up(|_| {}) else { return };
    let store = ceph.open("");
    store.append("journal/log", &record(0)).unwrap();
    ceph.signal("mon.a", Signal::KILL).unwrap();
    store.append("journal/log", &record(1)).unwrap();
    let guard = store.lock("rank/0000.lock", "one").unwrap();
    ceph.start("mon.a").unwrap();
    store.append("journal/log", &record(2)).unwrap();
    let other = ceph.open("");
    assert_eq!(records(&*other, "journal/log"), 3);
    assert_eq!(other.lock("rank/0000.lock", "two").unwrap_err().errno, Errno::Busy);
    drop(guard);
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn a_full_cluster_says_so_and_recovers() {
    let small = |settings: &mut testceph::CephSettings| settings.bytes = 64 << 20;
    let Some(ceph) = up(small) else { return };
    let store = ceph.open("");
    let block = vec![7; 4 << 20];
    let mut written = 0;
    let mut error = None;
    // How full an OSD is it says every few seconds.
    eventually("the cluster is full", || {
        if written < 16 {
            match store.write_range(&format!("data/00/{written}.0"), 0, &block) {
                Ok(()) => written += 1,
                Err(full) => error = Some(full),
            }
        } else if let Err(full) = store.append("journal/log", b"x") {
            error = Some(full);
        }
        error.is_some()
    });
    let error = error.unwrap();
    assert_eq!(error.errno, Errno::NoSpace, "{error}");
    assert!(error.to_string().contains("ceph df"), "{error}");
    // A server writes beyond the full ratio, and takes locks.
    let server = ceph.open("");
    server.allow_reserve();
    server.append("journal/removals", b"x").unwrap();
    let put = server.put("metadata", b"x", objstore::Expect::Any).unwrap();
    assert!(matches!(put, objstore::PutOutcome::Done(_)));
    assert!(server.is_short() && !store.is_short());
    assert!(server.reserve(1 << 20).unwrap().is_short());
    assert_eq!(store.append("journal/log", b"x").unwrap_err().errno, Errno::NoSpace);
    // Reads continue, and so do deletes, which are the way out.
    assert_eq!(store.stat("data/00/0.0").unwrap().size, 4 << 20);
    for number in 0..written {
        assert_eq!(store.delete(&format!("data/00/{number}.0")), Ok(true));
    }
    eventually("there is room again", || store.append("journal/log", b"y").is_ok());
    eventually("the server knows", || !server.reserve(1 << 20).unwrap().is_short());
    assert!(!server.is_short());
}
