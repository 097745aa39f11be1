use expect_test::expect;
use types::{ClientId, ConnId, Epoch, Ino};
use wire::{Answer, ClusterMap, MdsEntry, MdsState, MonOp, PolicyEntry};

use super::bench::Bench;
use crate::{MonInput, format};

fn set(path: &[u8]) -> MonOp<'_> {
    MonOp::SetPolicy { path, policy: b"durability: none", client: ClientId(0) }
}

#[test]
fn policies_survive_a_restart() {
    let mut bench = Bench::serving();
    for nth in 1..=2 {
        bench.ask(5, nth, set(b"/a"));
        bench.reply(1, bench.forward_tid(nth), Ok(Answer::Done));
        bench.settle();
    }
    let before = bench.stored_map();
    let mut bench = bench.restarted();
    assert_eq!(bench.mon.status().policies, before.policies);
    assert!(bench.stored_map().epoch > before.epoch, "a restart is an epoch of its own");
    bench.beacon(1, 0, 2, MdsState::Replaying);
    bench.settle();
    bench.check(&expect![[r#"
        start
          store: Get { object: "mon/map" }
        store: bytes of version 104
          store: put if Version(104): map e5 next client.1, mds.0 e1 active unix:/0, /a v2 "consistency: rpcs"
        store: Stored(105)
        conn.1: beacon mds.0 e2 replaying
          to conn.1: map e5 next client.1, mds.0 e1 active unix:/0, /a v2 "consistency: rpcs"
          store: put if Version(105): map e6 next client.1, mds.0 e2 replaying unix:/0, /a v2 "consistency: rpcs"
        store: Stored(106)
          to conn.1: map e6 next client.1, mds.0 e2 replaying unix:/0, /a v2 "consistency: rpcs"
    "#]]);
}

#[test]
fn changes_made_while_a_put_is_under_way_share_the_next_one() {
    let mut bench = Bench::serving();
    for nth in 1..=3 {
        bench.ask(5, nth, set(format!("/{nth}").as_bytes()));
    }
    for nth in 1..=3 {
        bench.reply(1, bench.forward_tid(nth), Ok(Answer::Done));
    }
    bench.ask(6, 1, MonOp::Register);
    bench.store();
    bench.store();
    assert!(bench.pending.is_empty());
    bench.check(&expect![[r#"
        conn.5: tid:1 set policy of /1, "durability: none" and 0 more lines
          to conn.1: tid:4294967297 set policy of /1, "consistency: rpcs" and 12 more lines
        conn.5: tid:2 set policy of /2, "durability: none" and 0 more lines
          to conn.1: tid:4294967298 set policy of /2, "consistency: rpcs" and 12 more lines
        conn.5: tid:3 set policy of /3, "durability: none" and 0 more lines
          to conn.1: tid:4294967299 set policy of /3, "consistency: rpcs" and 12 more lines
        conn.1: tid:4294967297 Done
          store: put if Version(102): map e3 next client.1, mds.0 e1 active unix:/0, /1 v1 "consistency: rpcs"
        conn.1: tid:4294967298 Done
        conn.1: tid:4294967299 Done
        conn.6: tid:1 register
        store: Stored(103)
          to conn.5: tid:1 Done
          to conn.1: map e3 next client.1, mds.0 e1 active unix:/0, /1 v1 "consistency: rpcs"
          store: put if Version(103): map e4 next client.1001, mds.0 e1 active unix:/0, /1 v1 "consistency: rpcs", /2 v1 "consistency: rpcs", /3 v1 "consistency: rpcs"
        store: Stored(104)
          to conn.5: tid:2 Done
          to conn.5: tid:3 Done
          to conn.6: tid:1 Client(client.1)
          to conn.1: map e4 next client.1001, mds.0 e1 active unix:/0, /1 v1 "consistency: rpcs", /2 v1 "consistency: rpcs", /3 v1 "consistency: rpcs"
    "#]]);
}

#[test]
fn a_monitor_whose_map_another_one_changed_stops() {
    let mut bench = Bench::serving();
    let mut other = Bench::with(bench.object.clone());
    other.input(MonInput::Start);
    other.settle();
    bench.object = other.object;
    bench.ask(5, 1, set(b"/a"));
    bench.ask(5, 2, MonOp::Register);
    bench.ask(5, 3, MonOp::Stop);
    bench.store();
    assert!(bench.stopped());
    bench.check(&expect![[r#"
        conn.5: tid:1 set policy of /a, "durability: none" and 0 more lines
          to conn.1: tid:4294967297 set policy of /a, "consistency: rpcs" and 12 more lines
        conn.5: tid:2 register
          store: put if Version(102): map e3 next client.1001, mds.0 e1 active unix:/0
        conn.5: tid:3 stop
          to conn.1: stop
        store: Conflict
          to conn.5: tid:2 EAGAIN: another monitor took over this cluster; ask that one
          to conn.5: tid:1 EAGAIN: another monitor took over this cluster; ask that one
          to conn.5: tid:3 EAGAIN: another monitor took over this cluster; ask that one
          fatal: mon/map: another monitor took over this cluster (EBUSY); a cluster has one monitor: find the other with `cudele status`
          stopped
    "#]]);
}

#[test]
fn a_put_that_failed_is_made_again_after_a_look() {
    let mut bench = Bench::serving();
    bench.ask(5, 1, MonOp::Register);
    bench.store_fails(false);
    bench.ask(5, 2, MonOp::Register);
    bench.wait(50);
    bench.wait(50);
    bench.store();
    bench.store();
    bench.check(&expect![[r#"
        conn.5: tid:1 register
          store: put if Version(102): map e3 next client.1001, mds.0 e1 active unix:/0
        store: store: the disk is on fire (EIO)
          to conn.5: tid:1 EIO: the store did not take the cluster map (store: the disk is on fire); the change may still be made later
        conn.5: tid:2 register
        tick
        tick
          store: Get { object: "mon/map" }
        store: bytes of version 102
          store: put if Version(102): map e3 next client.1001, mds.0 e1 active unix:/0
        store: Stored(103)
          to conn.5: tid:2 Client(client.2)
          to conn.1: map e3 next client.1001, mds.0 e1 active unix:/0
    "#]]);
}

#[test]
fn a_put_that_failed_but_took_effect_counts() {
    let mut bench = Bench::serving();
    bench.ask(5, 1, MonOp::Register);
    bench.store_fails(true);
    bench.ask(5, 2, MonOp::Register);
    bench.wait(100);
    bench.store_fails(false);
    bench.ask(5, 3, MonOp::Register);
    bench.wait(100);
    bench.store();
    assert!(bench.pending.is_empty());
    bench.check(&expect![[r#"
        conn.5: tid:1 register
          store: put if Version(102): map e3 next client.1001, mds.0 e1 active unix:/0
        store: store: the disk is on fire (EIO)
          to conn.5: tid:1 EIO: the store did not take the cluster map (store: the disk is on fire); the change may still be made later
        conn.5: tid:2 register
        tick
          store: Get { object: "mon/map" }
        store: store: the disk is on fire (EIO)
          to conn.5: tid:2 EIO: the store did not take the cluster map (store: the disk is on fire); the change may still be made later
        conn.5: tid:3 register
        tick
          store: Get { object: "mon/map" }
        store: bytes of version 103
          to conn.5: tid:3 Client(client.3)
          to conn.1: map e3 next client.1001, mds.0 e1 active unix:/0
    "#]]);
}

#[test]
fn a_put_that_failed_may_have_been_overtaken() {
    let mut bench = Bench::serving();
    bench.ask(5, 1, MonOp::Register);
    bench.store_fails(false);
    let mut other = Bench::with(bench.object.clone());
    other.input(MonInput::Start);
    other.settle();
    bench.object = other.object;
    bench.wait(100);
    bench.store();
    assert!(bench.stopped());
}

#[test]
fn a_store_that_cannot_be_read_is_tried_again() {
    let mut bench = Bench::new();
    bench.input(MonInput::Start);
    bench.store_fails(false);
    bench.ask(5, 1, MonOp::Status);
    bench.wait(100);
    bench.settle();
    bench.ask(5, 2, MonOp::Status);
    bench.check(&expect![[r#"
        start
          store: Get { object: "mon/map" }
        store: store: the disk is on fire (EIO)
        conn.5: tid:1 status
        tick
          store: Get { object: "mon/map" }
        store: Missing
          to conn.5: tid:1 map e1 next client.1
          store: put if Absent: map e1 next client.1
        store: Stored(101)
        conn.5: tid:2 status
          to conn.5: tid:2 map e1 next client.1
    "#]]);
}

#[test]
fn a_damaged_map_is_refused_and_left_alone() {
    let (mut bytes, version) = Bench::serving().object.expect("a map");
    bytes[12] ^= 1;
    let mut bench = Bench::with(Some((bytes, version)));
    bench.input(MonInput::Start);
    bench.store();
    bench.ask(5, 1, MonOp::Status);
    bench.ask(5, 2, MonOp::Register);
    bench.beacon(1, 0, 1, MdsState::Active);
    bench.wait(5000);
    assert!(bench.pending.is_empty(), "nothing is written");
    bench.input(MonInput::Terminate);
    bench.check(&expect![[r#"
        start
          store: Get { object: "mon/map" }
        store: bytes of version 102
        conn.5: tid:1 status
          to conn.5: tid:1 EBADMSG: mon/map: at byte 10: expected a map whose checksum matches; restore this object from a copy of the store; do not delete it, or client ids would be given out a second time
        conn.5: tid:2 register
          to conn.5: tid:2 EBADMSG: mon/map: at byte 10: expected a map whose checksum matches; restore this object from a copy of the store; do not delete it, or client ids would be given out a second time
        conn.1: beacon mds.0 e1 active
        tick
        terminate
          stopped
    "#]]);
}

fn map() -> ClusterMap {
    ClusterMap {
        epoch: Epoch(9),
        cluster: "c".into(),
        store: "dir:/x".into(),
        next_client: ClientId(2001),
        mds: vec![MdsEntry { address: "unix:/x".into(), ..MdsEntry::default() }],
        policies: vec![PolicyEntry {
            path: b"/a".to_vec(),
            version: 3,
            policy: "x".into(),
            ino: Ino(0),
        }],
        ..ClusterMap::default()
    }
}

#[test]
fn every_truncation_and_every_bit_flip_of_a_stored_map_is_detected() {
    let bytes = format::encode(&map());
    assert_eq!(format::decode(&bytes), Ok(map()));
    for cut in 0..bytes.len() {
        assert!(format::decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(format::decode(&damaged).is_err(), "flip of bit {bit}");
    }
}

#[test]
fn a_map_of_version_1_does_not_name_inodes() {
    // The inode of the only policy is a byte before the numbers of subtrees, balancers, warnings
    // and revoked keys.
    assert_eq!(format::decode(&earlier(1, 5, 1)), Ok(map()));
}

#[test]
fn a_map_of_version_2_has_no_balancers() {
    assert_eq!(format::decode(&earlier(2, 3, 0)), Ok(map()));
}

#[test]
fn a_map_of_version_3_has_no_revoked_keys() {
    assert_eq!(format::decode(&earlier(3, 1, 0)), Ok(map()));
}

/// The bytes of a map without its last bytes, and with zeros in their place.
fn earlier(version: u8, without: usize, zeros: usize) -> Vec<u8> {
    let mut bytes = format::encode(&map());
    bytes[8] = version;
    bytes.truncate(bytes.len() - 4 - without);
    bytes.resize(bytes.len() + zeros, 0);
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn a_map_of_a_later_version_has_a_remedy_of_its_own() {
    let mut bytes = format::encode(&map());
    bytes[8] = 5;
    let body = bytes.len() - 4;
    let crc = crc32c::crc32c(&bytes[..body]);
    bytes[body..].copy_from_slice(&crc.to_le_bytes());
    let error = format::decode(&bytes).expect_err("another version");
    expect!["mon/map: at byte 8: expected a format version that this build reads (EBADMSG); run the release that wrote it, or a later one"].assert_eq(&error.to_string());
}

#[test]
fn a_map_that_contradicts_itself_is_refused() {
    let mut twice = map();
    twice.mds.push(MdsEntry::default());
    let mut nobody = map();
    nobody.next_client = ClientId(0);
    let mut unsorted = map();
    unsorted.policies.insert(0, PolicyEntry { path: b"/b".to_vec(), ..PolicyEntry::default() });
    let revoked = ClusterMap { revoked: vec![3, 3], ..map() };
    for wrong in [twice, nobody, unsorted, revoked] {
        assert!(format::decode(&format::encode(&wrong)).is_err());
    }
}

#[test]
fn a_request_waits_for_a_map_that_cannot_be_read_for_a_time() {
    let mut bench = Bench::new();
    bench.input(MonInput::Start);
    bench.store_fails(false);
    bench.ask(5, 1, MonOp::Status);
    bench.ask(6, 1, MonOp::Status);
    bench.input(MonInput::Closed { conn: ConnId(6) });
    bench.wait(1900);
    bench.store_fails(false);
    bench.wait(100);
    bench.check(&expect![[r#"
        start
          store: Get { object: "mon/map" }
        store: store: the disk is on fire (EIO)
        conn.5: tid:1 status
        conn.6: tid:1 status
        conn.6 closed
        tick
          store: Get { object: "mon/map" }
        store: store: the disk is on fire (EIO)
        tick
          to conn.5: tid:1 EAGAIN: the monitor is still reading its map
          store: Get { object: "mon/map" }
    "#]]);
}
