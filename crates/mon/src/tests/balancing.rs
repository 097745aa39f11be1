use expect_test::expect;
use wire::{MdsState, Message, MonOp};

use super::bench::Bench;
use crate::MonInput;

/// A monitor with two ranks.
fn two_ranks() -> Bench {
    let mut bench = Bench::serving();
    bench.beacon(2, 1, 1, MdsState::Active);
    bench.settle();
    bench.check_last(&expect![
        "  to conn.2: map e3 next client.1, mds.0 e1 active unix:/0, mds.1 e1 active unix:/1"
    ]);
    bench
}

fn set(name: &'static str) -> MonOp<'static> {
    let text = b"-- When policy\nif false then\n-- Where policy\ntargets[1] = 1\nend\n";
    MonOp::SetBalancer { name: name.as_bytes(), text }
}

#[test]
fn a_policy_is_stored_before_it_is_in_force_and_all_ranks_hear_of_it_together() {
    let mut bench = two_ranks();
    bench.ask(9, 1, set("mine"));
    bench.settle();
    bench.check(&expect![[r#"
        conn.9: tid:1 set balancer mine, "-- When policy" and 4 more lines
          store: put if Absent: balancer/policy/0000000000000002, "-- When policy" and 4 more lines
        store: Stored(1)
          store: put if Version(103): map e4 next client.1, mds.0 e1 active unix:/0, mds.1 e1 active unix:/1, balancer 2 mine of 2 ""
        store: Stored(104)
          to conn.9: tid:1 Balancer(BalancerEntry { version: 2, object: 2, name: "mine", time: Timestamp(0), why: "", failed: false })
          to conn.1: map e4 next client.1, mds.0 e1 active unix:/0, mds.1 e1 active unix:/1, balancer 2 mine of 2 ""
          to conn.2: map e4 next client.1, mds.0 e1 active unix:/0, mds.1 e1 active unix:/1, balancer 2 mine of 2 ""
    "#]]);
}

#[test]
fn an_invalid_policy_is_refused_with_its_line() {
    let mut bench = two_ranks();
    bench.ask(9, 1, MonOp::SetBalancer { name: b"bad", text: b"-- When policy\nif x == then\n" });
    bench.ask(9, 2, MonOp::SetBalancer { name: b"", text: b"" });
    assert!(bench.pending.is_empty() && bench.policies.is_empty());
    bench.check(&expect![[r#"
        conn.9: tid:1 set balancer bad, "-- When policy" and 1 more lines
          to conn.9: tid:1 EINVAL: bad: line 2: Expected identifier when parsing expression, got 'then'; correct the policy; `cudele balancer check FILE` tells more
        conn.9: tid:2 set balancer , "" and 0 more lines
          to conn.9: tid:2 EINVAL: the name of a balancer policy has 1 to 255 bytes
    "#]]);
}

#[test]
fn a_number_that_has_an_object_is_not_used() {
    let mut bench = two_ranks();
    // A monitor died between the two steps.
    let object = wire::BalancerEntry::object_name(2);
    bench.policies.insert(object.clone(), b"of another".to_vec());
    bench.ask(9, 1, set("mine"));
    bench.settle();
    let entry = bench.stored_map().balancer();
    assert_eq!((entry.version, entry.object, entry.name.as_str()), (3, 3, "mine"));
    assert_eq!(bench.policies[&object], b"of another");
}

#[test]
fn a_policy_that_is_not_stored_is_not_in_force() {
    let mut bench = two_ranks();
    bench.ask(9, 1, set("mine"));
    bench.ask(9, 2, set("other"));
    bench.store_fails(false);
    bench.check(&expect![[r#"
        conn.9: tid:1 set balancer mine, "-- When policy" and 4 more lines
          store: put if Absent: balancer/policy/0000000000000002, "-- When policy" and 4 more lines
        conn.9: tid:2 set balancer other, "-- When policy" and 4 more lines
          to conn.9: tid:2 EAGAIN: another balancer policy is being stored
        store: store: the disk is on fire (EIO)
          to conn.9: tid:1 EIO: the store did not take the balancer policy (store: the disk is on fire); the one before stays in force
    "#]]);
    assert_eq!(bench.stored_map().balancer().version, 1);
}

#[test]
fn a_revert_makes_the_previous_policy_a_new_version() {
    let mut bench = two_ranks();
    for (tid, name) in [(2, "one"), (3, "two")] {
        bench.ask(9, tid, set(name));
        bench.settle();
    }
    bench.ask(9, 4, MonOp::RevertBalancer);
    bench.settle();
    let entry = bench.stored_map().balancer();
    assert_eq!((entry.version, entry.object, entry.name.as_str()), (4, 2, "one"));
    assert_eq!(entry.why, "version 3 was reverted");
    // The policy survives a restart.
    let bench = bench.restarted();
    assert_eq!(bench.stored_map().balancer(), entry);
}

#[test]
fn the_first_policy_is_that_of_cephfs_and_a_revert_gives_static() {
    for by_hand in [true, false] {
        let mut bench = two_ranks();
        let entry = bench.stored_map().balancer();
        assert_eq!((entry.version, entry.object, entry.name.as_str()), (1, 0, "cephfs"));
        if by_hand {
            bench.ask(9, 1, MonOp::RevertBalancer);
        } else {
            bench.given_up(1, 0, 1, "line 1: bad");
        }
        bench.settle();
        let entry = bench.stored_map().balancer();
        assert_eq!((entry.version, entry.object, entry.name.as_str()), (2, 0, "static"));
    }
}

#[test]
fn a_revert_from_static_without_an_earlier_policy_fails() {
    let mut bench = two_ranks();
    bench.given_up(1, 0, 1, "line 1: bad");
    bench.settle();
    bench.ask(9, 1, MonOp::RevertBalancer);
    bench.check_last(&expect![
        "  to conn.9: tid:1 ENODATA: no balancer policy was in force before static"
    ]);
}

#[test]
fn a_policy_that_one_rank_gave_up_is_reverted_for_all_and_for_good() {
    let mut bench = two_ranks();
    for (tid, name) in [(1, "good"), (2, "bad"), (3, "worse")] {
        bench.ask(9, tid, set(name));
        bench.settle();
    }
    // An old version is no news.
    bench.given_up(1, 0, 3, "line 1: old");
    bench.settle();
    assert_eq!(bench.stored_map().balancer().version, 4);
    bench.given_up(2, 1, 4, "line 2: worse");
    bench.settle();
    let entry = bench.stored_map().balancer();
    assert_eq!((entry.version, entry.name.as_str()), (5, "bad"));
    bench.given_up(2, 1, 5, "line 3: bad");
    bench.given_up(1, 0, 5, "line 3: bad");
    bench.settle();
    let entry = bench.stored_map().balancer();
    assert_eq!((entry.version, entry.name.as_str()), (6, "good"));
    assert_eq!(entry.why, "mds.1 gave it up: line 3: bad");
    // By hand, too.
    bench.ask(9, 4, MonOp::RevertBalancer);
    bench.settle();
    let entry = bench.stored_map().balancer();
    assert_eq!(
        (entry.version, entry.object, entry.name.as_str()),
        (7, 0, balancer::DEFAULT_POLICY)
    );
}

#[test]
fn a_heartbeat_goes_to_all_other_ranks_and_records_are_kept_in_order() {
    let mut bench = two_ranks();
    bench.beacon(3, 2, 1, MdsState::Active);
    bench.settle();
    bench.check_last(&expect!["  to conn.3: map e4 next client.1, mds.0 e1 active unix:/0, mds.1 e1 active unix:/1, mds.2 e1 active unix:/2"]);
    bench.message(2, Message::Heartbeat(b"beat"));
    bench.message(9, Message::Heartbeat(b"of nobody"));
    bench.message(9, Message::Balanced(b"of nobody"));
    for record in [&b"one"[..], b"two", b"three"] {
        bench.message(1, Message::Balanced(record));
    }
    bench.settle();
    for (tid, after) in [(1, 0), (2, 2), (3, 3), (4, 99)] {
        bench.ask(9, tid, MonOp::BalancerLog { after });
    }
    bench.check(&expect![[r#"
        conn.2: heartbeat([98, 101, 97, 116])
          to conn.1: heartbeat([98, 101, 97, 116])
          to conn.3: heartbeat([98, 101, 97, 116])
        conn.9: heartbeat([111, 102, 32, 110, 111, 98, 111, 100, 121])
        conn.9: balanced([111, 102, 32, 110, 111, 98, 111, 100, 121])
        conn.1: balanced([111, 110, 101])
          store: List { prefix: "balancer/log/" }
        conn.1: balanced([116, 119, 111])
        conn.1: balanced([116, 104, 114, 101, 101])
        store: Names([])
        conn.9: tid:1 balancerlog { after: 0 }
          to conn.9: tid:1 BalancerLog { before: 0, records: [[111, 110, 101], [116, 119, 111], [116, 104, 114, 101, 101]] }
        conn.9: tid:2 balancerlog { after: 2 }
          to conn.9: tid:2 BalancerLog { before: 2, records: [[116, 104, 114, 101, 101]] }
        conn.9: tid:3 balancerlog { after: 3 }
          to conn.9: tid:3 BalancerLog { before: 3, records: [] }
        conn.9: tid:4 balancerlog { after: 99 }
          to conn.9: tid:4 BalancerLog { before: 0, records: [[111, 110, 101], [116, 119, 111], [116, 104, 114, 101, 101]] }
    "#]]);
}

/// The log for a requester with this many records: the number before, and the lengths.
fn log(bench: &mut Bench, after: u64) -> (u64, Vec<usize>) {
    bench.ask(9, 7, MonOp::BalancerLog { after });
    bench.settle();
    let wire::MonAnswer::BalancerLog { before, records } = bench.answer() else {
        panic!("a log");
    };
    (before, records.iter().map(Vec::len).collect())
}

/// A second, in which the ranks are heard of.
fn a_second(bench: &mut Bench) {
    for _ in 0..2 {
        bench.beacon(1, 0, 1, MdsState::Active);
        bench.beacon(2, 1, 1, MdsState::Active);
        bench.settle();
        bench.wait(500);
        bench.settle();
    }
}

/// A monitor that continues after another one, with a server.
fn next_of(bench: Bench) -> Bench {
    let log = bench.log;
    let mut bench = Bench::with(bench.object);
    bench.log = log;
    bench.input(MonInput::Start);
    bench.settle();
    bench.beacon(1, 0, 1, MdsState::Active);
    bench.settle();
    bench
}

#[test]
fn old_records_are_dropped_and_their_number_is_reported() {
    let mut bench = two_ranks();
    let long = vec![b'x'; 1 << 20];
    for _ in 0..10 {
        bench.message(1, Message::Balanced(&long));
        bench.settle();
        a_second(&mut bench);
    }
    assert_eq!(log(&mut bench, 0), (4, vec![1 << 20; 6]));
    assert_eq!(bench.log.len(), 6, "what is not kept is not in the store");
}

#[test]
fn the_next_monitor_goes_on_with_the_log() {
    let mut bench = two_ranks();
    for length in 1..=3 {
        bench.message(1, Message::Balanced(&vec![b'x'; length]));
    }
    bench.settle();
    assert!(bench.log.is_empty(), "records that come together are stored together");
    a_second(&mut bench);
    assert_eq!(bench.log.len(), 1);
    // A record that comes before the store was read, without a request.
    let mut bench = next_of(bench);
    bench.message(1, Message::Balanced(b"four"));
    assert_eq!(log(&mut bench, 0), (0, vec![1, 2, 3, 4]));
    assert_eq!(log(&mut bench, 2), (2, vec![3, 4]));
    a_second(&mut bench);
    assert_eq!(bench.log.len(), 1, "the part has room");
    // The end waits until all is stored.
    bench.message(1, Message::Balanced(b"fives"));
    bench.input(MonInput::Terminate);
    bench.closed(1);
    bench.closed(2);
    assert!(!bench.stopped());
    bench.settle();
    assert!(bench.stopped());
    let mut bench = next_of(bench);
    assert_eq!(log(&mut bench, 0), (0, vec![1, 2, 3, 4, 5]));
}

#[test]
fn a_log_has_many_parts_and_a_damaged_one_is_left_out() {
    let mut bench = two_ranks();
    let record = vec![b'x'; 60_000];
    for _ in 0..9 {
        bench.message(1, Message::Balanced(&record));
        bench.settle();
        a_second(&mut bench);
    }
    let parts: Vec<String> = bench.log.keys().cloned().collect();
    assert_eq!(parts, [0, 3, 6].map(|first| format!("balancer/log/{first:016x}")));
    bench.log.get_mut(&parts[1]).unwrap()[100] ^= 1;
    let mut bench = next_of(bench);
    assert_eq!(log(&mut bench, 0), (6, vec![60_000; 3]), "numbers stay");
    bench.message(1, Message::Balanced(b"ten"));
    assert_eq!(log(&mut bench, 9), (9, vec![3]));
}

#[test]
fn a_store_that_fails_is_asked_again() {
    let mut bench = two_ranks();
    bench.message(1, Message::Balanced(b"one"));
    bench.ask(9, 1, MonOp::BalancerLog { after: 0 });
    bench.store_fails(false);
    bench.check_last(&expect![
        "  to conn.9: tid:1 EIO: the balancers' log cannot be read: store: the disk is on fire"
    ]);
    a_second(&mut bench);
    bench.wait(500);
    bench.beacon(1, 0, 1, MdsState::Active);
    bench.wait(500);
    bench.store_fails(false);
    assert!(bench.log.is_empty());
    a_second(&mut bench);
    assert_eq!(bench.log.len(), 1);
    assert_eq!(log(&mut bench, 0), (0, vec![3]));
}

#[test]
fn a_policy_takes_effect_although_its_client_disconnected() {
    let mut bench = two_ranks();
    bench.ask(9, 1, set("mine"));
    bench.closed(9);
    bench.settle();
    assert_eq!(bench.stored_map().balancer().name, "mine");
}
