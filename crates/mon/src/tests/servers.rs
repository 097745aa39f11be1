use expect_test::expect;
use types::{ClientId, Epoch, Rank};
use wire::{Beacon, DecoupledSubtree, MdsState, Message, MonOp};

use super::bench::Bench;
use crate::MonInput;

#[test]
fn a_server_that_starts_is_recorded_and_gets_the_map() {
    let mut bench = Bench::new();
    bench.beacon(1, 0, 1, MdsState::Replaying);
    bench.input(MonInput::Start);
    bench.store();
    bench.beacon(1, 0, 1, MdsState::Replaying);
    bench.settle();
    bench.beacon(1, 0, 1, MdsState::Active);
    bench.settle();
    bench.beacon(1, 0, 1, MdsState::Active);
    bench.check(&expect![[r#"
        conn.1: beacon mds.0 e1 replaying
        start
          store: Get { object: "mon/map" }
        store: Missing
          store: put if Absent: map e1 next client.1
        conn.1: beacon mds.0 e1 replaying
        store: Stored(101)
          to conn.1: map e1 next client.1
          store: put if Version(101): map e2 next client.1, mds.0 e1 replaying unix:/0
        store: Stored(102)
          to conn.1: map e2 next client.1, mds.0 e1 replaying unix:/0
        conn.1: beacon mds.0 e1 active
          store: put if Version(102): map e3 next client.1, mds.0 e1 active unix:/0
        store: Stored(103)
          to conn.1: map e3 next client.1, mds.0 e1 active unix:/0
        conn.1: beacon mds.0 e1 active
    "#]]);
}

#[test]
fn each_event_of_servers_and_store_is_logged_once() {
    let mut bench = Bench::serving();
    bench.beacon(1, 0, 1, MdsState::Active);
    bench.settle();
    bench.closed(1);
    bench.store_fails(false);
    bench.wait(500);
    bench.settle();
    bench.beacon(2, 0, 2, MdsState::Active);
    bench.settle();
    bench.wait(10_000);
    bench.wait(10);
    let wanted = [
        "serving: the cluster map is read and has 0 ranks",
        "mds.0 is active at unix:/0 (process 7, term 1)",
        "mds.0 has lost its server (process 7)",
        "the store fails: store: the disk is on fire (EIO)",
        "mds.0 is active at unix:/0 (process 7, term 2)",
        "the server of mds.0 does not answer: given up",
        "mds.0 has lost its server (process 7)",
        "the store works again",
    ];
    assert_eq!(bench.log_lines, wanted);
}

#[test]
fn counters_and_decoupled_subtrees_are_shown_but_not_stored() {
    let mut bench = Bench::serving();
    let subtree = |path: &str| DecoupledSubtree {
        path: path.into(),
        client: ClientId(4),
        ..DecoupledSubtree::default()
    };
    let beacon = Beacon {
        rank: Rank(0),
        epoch: Epoch(1),
        address: "unix:/0".into(),
        state: MdsState::Active,
        pid: 7,
        counters: vec![("requests".into(), 5)],
        decoupled: vec![subtree("/b"), subtree("/a")],
        ..Beacon::default()
    };
    bench.message(1, Message::Beacon(beacon));
    bench.ask(5, 1, MonOp::Status);
    bench.check(&expect![[r#"
        conn.1: beacon mds.0 e1 active
        conn.5: tid:1 status
          to conn.5: tid:1 map e2 next client.1, mds.0 e1 active unix:/0 requests=5, /a is client.4's, /b is client.4's
    "#]]);
}

#[test]
fn a_report_that_is_too_long_is_cut() {
    let mut bench = Bench::serving();
    let subtree = DecoupledSubtree { path: vec![b'x'; 4000], ..DecoupledSubtree::default() };
    for rank in 0..20 {
        let conn = u64::from(rank) + 1;
        let beacon = Beacon {
            rank: Rank(rank),
            epoch: Epoch(1),
            decoupled: vec![subtree.clone(); 1000],
            ..Beacon::default()
        };
        bench.message(conn, Message::Beacon(beacon));
    }
    let mut out = Vec::new();
    bench.mon.status().encode(&mut out, true);
    let megabytes = out.len() / (1 << 20);
    assert_eq!(megabytes, 7, "as much as fits a message, from every server the same at most");
}

#[test]
fn a_server_whose_connection_closes_is_lost_at_once_and_may_come_back() {
    let mut bench = Bench::serving();
    bench.closed(1);
    bench.ask(5, 1, MonOp::Status);
    bench.settle();
    bench.beacon(2, 0, 2, MdsState::Replaying);
    bench.settle();
    bench.check(&expect![[r#"
        conn.1 closed
          store: put if Version(102): map e3 next client.1, mds.0 e1 lost unix:/0
        conn.5: tid:1 status
          to conn.5: tid:1 map e3 next client.1, mds.0 e1 lost unix:/0
        store: Stored(103)
        conn.2: beacon mds.0 e2 replaying
          to conn.2: map e3 next client.1, mds.0 e1 lost unix:/0
          store: put if Version(103): map e4 next client.1, mds.0 e2 replaying unix:/0
        store: Stored(104)
          to conn.2: map e4 next client.1, mds.0 e2 replaying unix:/0
    "#]]);
}

#[test]
fn a_silent_server_is_lost_after_the_grace() {
    let mut bench = Bench::serving();
    bench.ask(5, 1, MonOp::SetPolicy { path: b"/a", policy: b"", client: ClientId(0) });
    bench.wait(999);
    bench.wait(1);
    bench.settle();
    bench.check(&expect![[r#"
        conn.5: tid:1 set policy of /a, "" and 0 more lines
          to conn.1: tid:4294967297 set policy of /a, "" and 0 more lines
        tick
        tick
          to conn.5: tid:1 EIO: the metadata server went away; ask `cudele status` whether it took effect
          store: put if Version(102): map e3 next client.1, mds.0 e1 lost unix:/0
          close conn.1
        store: Stored(103)
    "#]]);
}

#[test]
fn a_server_that_a_restarted_monitor_does_not_hear_of_is_lost_after_the_grace() {
    let bench = Bench::serving();
    let mut bench = bench.restarted();
    bench.wait(999);
    bench.wait(1);
    bench.check(&expect![[r#"
        start
          store: Get { object: "mon/map" }
        store: bytes of version 102
          store: put if Version(102): map e3 next client.1, mds.0 e1 active unix:/0
        store: Stored(103)
        tick
        tick
          store: put if Version(103): map e4 next client.1, mds.0 e1 lost unix:/0
    "#]]);
}

#[test]
fn an_earlier_server_of_a_rank_must_stop() {
    let mut bench = Bench::serving();
    bench.beacon(2, 0, 2, MdsState::Replaying);
    bench.settle();
    bench.beacon(3, 0, 1, MdsState::Active);
    bench.check(&expect![[r#"
        conn.2: beacon mds.0 e2 replaying
          to conn.2: map e2 next client.1, mds.0 e1 active unix:/0
          store: put if Version(102): map e3 next client.1, mds.0 e2 replaying unix:/0
          close conn.1
        store: Stored(103)
          to conn.2: map e3 next client.1, mds.0 e2 replaying unix:/0
        conn.3: beacon mds.0 e1 active
          to conn.3: stop
    "#]]);
}

#[test]
fn a_server_that_does_not_know_its_term_yet_is_left_alone() {
    let mut bench = Bench::serving();
    bench.beacon(2, 0, 0, MdsState::Replaying);
    bench.input(MonInput::Terminate);
    bench.beacon(2, 0, 0, MdsState::Replaying);
    bench.check(&expect![[r#"
        conn.2: beacon mds.0 e0 replaying
        terminate
          to conn.1: stop
          to conn.2: stop
        conn.2: beacon mds.0 e0 replaying
          to conn.2: stop
    "#]]);
}

#[test]
fn a_connection_is_one_server_and_ranks_are_few() {
    let mut bench = Bench::serving();
    bench.beacon(1, 1, 1, MdsState::Active);
    bench.beacon(2, crate::RANKS_MAX, 1, MdsState::Active);
    bench.beacon(3, 1, 1, MdsState::Lost);
    bench.settle();
    bench.check(&expect![[r#"
        conn.1: beacon mds.1 e1 active
          store: put if Version(102): map e3 next client.1, mds.0 e1 lost unix:/0
          close conn.1
        conn.2: beacon mds.256 e1 active
          close conn.2
        conn.3: beacon mds.1 e1 lost
          close conn.3
        store: Stored(103)
    "#]]);
}

#[test]
fn the_cluster_stops_when_every_server_has() {
    let mut bench = Bench::serving();
    bench.beacon(2, 1, 1, MdsState::Active);
    bench.settle();
    bench.ask(5, 1, MonOp::Stop);
    bench.ask(6, 1, MonOp::Register);
    bench.ask(6, 2, MonOp::SetPolicy { path: b"/a", policy: b"", client: ClientId(0) });
    bench.beacon(1, 0, 1, MdsState::Stopping);
    bench.beacon(2, 1, 1, MdsState::Stopping);
    bench.closed(1);
    bench.wait(500);
    bench.beacon(2, 1, 1, MdsState::Stopping);
    bench.wait(900);
    bench.closed(2);
    bench.settle();
    assert!(bench.stopped());
    bench.check(&expect![[r#"
        conn.2: beacon mds.1 e1 active
          to conn.2: map e2 next client.1, mds.0 e1 active unix:/0
          store: put if Version(102): map e3 next client.1, mds.0 e1 active unix:/0, mds.1 e1 active unix:/1
        store: Stored(103)
          to conn.1: map e3 next client.1, mds.0 e1 active unix:/0, mds.1 e1 active unix:/1
          to conn.2: map e3 next client.1, mds.0 e1 active unix:/0, mds.1 e1 active unix:/1
        conn.5: tid:1 stop
          to conn.1: stop
          to conn.2: stop
        conn.6: tid:1 register
          to conn.6: tid:1 EAGAIN: the cluster is stopping
        conn.6: tid:2 set policy of /a, "" and 0 more lines
          to conn.6: tid:2 EAGAIN: the cluster is stopping
        conn.1: beacon mds.0 e1 stopping
          store: put if Version(103): map e4 next client.1, mds.0 e1 stopping unix:/0, mds.1 e1 active unix:/1
        conn.2: beacon mds.1 e1 stopping
        conn.1 closed
        tick
        conn.2: beacon mds.1 e1 stopping
        tick
        conn.2 closed
        store: Stored(104)
          store: put if Version(104): map e5 next client.1, mds.0 e1 lost unix:/0, mds.1 e1 lost unix:/1
        store: Stored(105)
          to conn.5: tid:1 Done
          stopped
    "#]]);
}

#[test]
fn a_server_that_does_not_stop_is_given_up() {
    let mut bench = Bench::serving();
    bench.input(MonInput::Terminate);
    bench.wait(600);
    bench.beacon(1, 0, 1, MdsState::Active);
    bench.beacon(2, 1, 1, MdsState::Active);
    bench.wait(400);
    bench.check(&expect![[r#"
        terminate
          to conn.1: stop
        tick
        conn.1: beacon mds.0 e1 active
        conn.2: beacon mds.1 e1 active
          to conn.2: stop
          to conn.2: map e2 next client.1, mds.0 e1 active unix:/0
          store: put if Version(102): map e3 next client.1, mds.0 e1 active unix:/0, mds.1 e1 active unix:/1
        tick
          close conn.1
          close conn.2
    "#]]);
    bench.settle();
    assert!(bench.stopped());
}

#[test]
fn a_store_that_does_not_answer_does_not_keep_the_monitor_from_stopping() {
    let mut bench = Bench::serving();
    bench.ask(5, 1, MonOp::Register);
    bench.closed(1);
    bench.ask(5, 2, MonOp::Stop);
    bench.wait(2000);
    bench.check(&expect![[r#"
        conn.5: tid:1 register
          store: put if Version(102): map e3 next client.1001, mds.0 e1 active unix:/0
        conn.1 closed
        conn.5: tid:2 stop
        tick
          to conn.5: tid:1 EIO: the monitor stopped before the store took the cluster map
          to conn.5: tid:2 Done
          stopped
    "#]]);
    bench.ask(5, 3, MonOp::Status);
    assert!(bench.stopped(), "it says so until it is heard");
}

#[test]
fn a_monitor_without_a_server_says_that_it_stops_the_cluster() {
    let mut bench = Bench::serving();
    bench.closed(1);
    bench.settle();
    bench.log_lines.clear();
    bench.ask(5, 1, MonOp::Stop);
    assert_eq!(bench.log_lines, ["stopping the cluster"]);
    bench.wait(2000);
    assert!(bench.stopped(), "no standby has taken over");
}

#[test]
fn a_monitor_that_has_just_started_waits_for_the_servers_of_its_map_before_it_ends() {
    let bench = Bench::serving();
    let mut bench = bench.restarted();
    bench.ask(5, 1, MonOp::Stop);
    bench.wait(500);
    assert!(!bench.stopped(), "the server connects again, and must hear that it stops");
    bench.transcript.clear();
    bench.beacon(1, 0, 1, MdsState::Active);
    bench.closed(1);
    bench.settle();
    assert!(bench.stopped());
    bench.check(&expect![[r#"
        conn.1: beacon mds.0 e1 active
          to conn.1: stop
          to conn.1: map e3 next client.1, mds.0 e1 active unix:/0
        conn.1 closed
          store: put if Version(103): map e4 next client.1, mds.0 e1 lost unix:/0
        store: Stored(104)
          to conn.5: tid:1 Done
          stopped
    "#]]);
}

#[test]
fn a_standby_that_takes_over_while_the_cluster_stops_is_stopped() {
    let mut bench = Bench::serving();
    bench.closed(1);
    bench.settle();
    bench.ask(5, 1, MonOp::Stop);
    bench.wait(1500);
    bench.beacon(2, 0, 0, MdsState::Replaying);
    bench.wait(600);
    assert!(!bench.stopped(), "a server is starting");
    bench.beacon(2, 0, 2, MdsState::Active);
    bench.closed(2);
    bench.settle();
    bench.check(&expect![[r#"
        conn.1 closed
          store: put if Version(102): map e3 next client.1, mds.0 e1 lost unix:/0
        store: Stored(103)
        conn.5: tid:1 stop
        tick
        conn.2: beacon mds.0 e0 replaying
          to conn.2: stop
        tick
        conn.2: beacon mds.0 e2 active
          to conn.2: stop
          to conn.2: map e3 next client.1, mds.0 e1 lost unix:/0
          store: put if Version(103): map e4 next client.1, mds.0 e2 active unix:/0
        conn.2 closed
        store: Stored(104)
          store: put if Version(104): map e5 next client.1, mds.0 e2 lost unix:/0
        store: Stored(105)
          to conn.5: tid:1 Done
          stopped
    "#]]);
    assert!(bench.stopped());
}

#[test]
fn a_monitor_without_a_map_just_stops() {
    let mut bench = Bench::new();
    bench.input(MonInput::Start);
    bench.input(MonInput::Terminate);
    assert!(bench.stopped());
}

#[test]
fn the_last_rank_is_removed_when_its_server_has_ended() {
    let mut bench = Bench::serving();
    bench.beacon(2, 1, 1, MdsState::Active);
    bench.beacon(3, 2, 1, MdsState::Active);
    let ranks = |bench: &Bench| -> Vec<u16> {
        bench.mon.status().mds.iter().map(|entry| entry.rank.0).collect()
    };
    for kept in [0, 1] {
        bench.ask(5, 1, MonOp::Remove { rank: Rank(kept) });
    }
    bench.ask(5, 3, MonOp::Remove { rank: Rank(2) });
    assert_eq!(ranks(&bench), [0, 1, 2], "it has not ended yet");
    bench.closed(3);
    assert_eq!(ranks(&bench), [0, 1]);
    // One without a server is gone at once, and a server that comes back is a new one.
    bench.closed(2);
    bench.ask(5, 4, MonOp::Remove { rank: Rank(1) });
    assert_eq!(ranks(&bench), [0]);
    bench.beacon(2, 1, 2, MdsState::Active);
    assert_eq!(ranks(&bench), [0, 1]);
}

#[test]
fn revoked_keys_are_in_the_map_that_servers_get_once() {
    let mut bench = Bench::serving();
    bench.input(MonInput::Revoked { keys: vec![9, 3] });
    bench.settle();
    bench.input(MonInput::Revoked { keys: vec![3] });
    bench.input(MonInput::Revoked { keys: vec![9, 3, 7] });
    bench.settle();
    assert_eq!(bench.mon.revoked(), [3, 7, 9]);
    let stored = bench.object.as_ref().map(|(bytes, _)| crate::read_map(bytes));
    let stored = stored.expect("stored").expect("a map");
    assert_eq!((stored.revoked, stored.epoch), (vec![3, 7, 9], Epoch(4)));
    // Another monitor goes on with them.
    let mut next = Bench::with(bench.object);
    next.input(MonInput::Start);
    next.settle();
    assert_eq!(next.mon.revoked(), [3, 7, 9]);
}
