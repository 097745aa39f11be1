use expect_test::expect;
use types::{Attr, ClientId, ConnId, Errno, Ino, KeyRule, KeyRules, Peer};
use wire::{Answer, ClusterMap, Decoupled, Failure, MdsState, MonOp, PolicyEntry};

use super::bench::Bench;
use crate::{MonInput, WAITING_MAX, format};

const POLICY: &[u8] = b"{ \"consistency\": \"append_client_journal+volatile_apply\" }";

fn set(path: &[u8]) -> MonOp<'_> {
    MonOp::SetPolicy { path, policy: POLICY, client: ClientId(0) }
}

fn decouple(path: &[u8]) -> MonOp<'_> {
    MonOp::Decouple { path, client: ClientId(7), policy: POLICY }
}

#[test]
fn client_ids_are_given_out_once_their_block_is_stored() {
    let mut bench = Bench::new();
    bench.input(MonInput::Start);
    bench.ask(5, 1, MonOp::Register);
    bench.settle();
    bench.ask(5, 2, MonOp::Register);
    bench.ask(6, 1, MonOp::Register);
    bench.settle();
    bench.ask(6, 2, MonOp::Register);
    bench.check(&expect![[r#"
        start
          store: Get { object: "mon/map" }
        conn.5: tid:1 register
        store: Missing
          store: put if Absent: map e1 next client.1001
        store: Stored(101)
          to conn.5: tid:1 Client(client.1)
        conn.5: tid:2 register
          to conn.5: tid:2 Client(client.2)
        conn.6: tid:1 register
          to conn.6: tid:1 Client(client.3)
        conn.6: tid:2 register
          to conn.6: tid:2 Client(client.4)
    "#]]);
}

#[test]
fn a_restart_and_a_used_up_block_give_out_new_ids() {
    let mut bench = Bench::serving();
    for tid in 0..crate::CLIENT_BLOCK {
        bench.ask(5, tid, MonOp::Register);
        bench.settle();
    }
    let mut bench = bench.restarted();
    bench.ask(5, 1, MonOp::Register);
    bench.settle();
    bench.check(&expect![[r#"
        start
          store: Get { object: "mon/map" }
        store: bytes of version 103
          store: put if Version(103): map e4 next client.1001, mds.0 e1 active unix:/0
        store: Stored(104)
        conn.5: tid:1 register
          store: put if Version(104): map e5 next client.2001, mds.0 e1 active unix:/0
        store: Stored(105)
          to conn.5: tid:1 Client(client.1001)
    "#]]);
}

#[test]
fn a_policy_is_checked_passed_on_recorded_and_only_then_confirmed() {
    let mut bench = Bench::serving();
    bench.ask(5, 1, set(b"a/./b"));
    bench.reply(1, bench.forward_tid(1), Ok(Answer::Done));
    bench.store();
    bench.ask(5, 2, MonOp::SetPolicy { path: b"/a/b", policy: b"", client: ClientId(0) });
    bench.reply(1, bench.forward_tid(2), Ok(Answer::Done));
    bench.store();
    bench.check(&expect![[r#"
        conn.5: tid:1 set policy of a/./b, "{ \"consistency\": \"append_client_journal+volatile_apply\" }" and 0 more lines
          to conn.1: tid:4294967297 set policy of /a/b, "consistency: append_client_journal+volatile_apply" and 12 more lines
        conn.1: tid:4294967297 Done
          store: put if Version(102): map e3 next client.1, mds.0 e1 active unix:/0, /a/b v1 "consistency: append_client_journal+volatile_apply"
        store: Stored(103)
          to conn.5: tid:1 Done
          to conn.1: map e3 next client.1, mds.0 e1 active unix:/0, /a/b v1 "consistency: append_client_journal+volatile_apply"
        conn.5: tid:2 set policy of /a/b, "" and 0 more lines
          to conn.1: tid:4294967298 set policy of /a/b, "" and 0 more lines
        conn.1: tid:4294967298 Done
          store: put if Version(103): map e4 next client.1, mds.0 e1 active unix:/0
        store: Stored(104)
          to conn.5: tid:2 Done
          to conn.1: map e4 next client.1, mds.0 e1 active unix:/0
    "#]]);
}

#[test]
fn a_subtree_is_decoupled_by_the_server_and_its_policy_recorded() {
    let mut bench = Bench::serving();
    bench.ask(5, 1, decouple(b"msevilla/mydir"));
    bench.reply(1, bench.forward_tid(1), Ok(Answer::Decoupled(Decoupled::default())));
    bench.store();
    bench.check(&expect![[r#"
        conn.5: tid:1 decouple msevilla/mydir for client.7, "{ \"consistency\": \"append_client_journal+volatile_apply\" }" and 0 more lines
          to conn.1: tid:4294967297 decouple /msevilla/mydir for client.7, "consistency: append_client_journal+volatile_apply" and 12 more lines
        conn.1: tid:4294967297 decoupled
          store: put if Version(102): map e3 next client.1, mds.0 e1 active unix:/0, /msevilla/mydir v1 "consistency: append_client_journal+volatile_apply"
        store: Stored(103)
          to conn.5: tid:1 decoupled
          to conn.1: map e3 next client.1, mds.0 e1 active unix:/0, /msevilla/mydir v1 "consistency: append_client_journal+volatile_apply"
    "#]]);
}

#[test]
fn a_policy_that_is_none_changes_nothing_and_the_place_is_named() {
    let mut bench = Bench::serving();
    let policy = b"consistency: rpcs\ninterfere_policy: maybe\n";
    bench.ask(5, 1, MonOp::SetPolicy { path: b"/a", policy, client: ClientId(0) });
    bench.ask(5, 2, MonOp::Decouple { path: b"/a", client: ClientId(1), policy: b"\xff" });
    bench.ask(5, 3, set(b"/a/../b"));
    assert!(bench.pending.is_empty(), "nothing is stored");
    bench.check(&expect![[r#"
        conn.5: tid:1 set policy of /a, "consistency: rpcs" and 1 more lines
          to conn.5: tid:1 EINVAL: line 2, column 19: interfere_policy: `maybe` is none of its values; use one of: allow, block
        conn.5: tid:2 decouple /a for client.1, "�" and 0 more lines
          to conn.5: tid:2 EINVAL: line 1, column 1: here is a byte that is not UTF-8; save the file as UTF-8 text
        conn.5: tid:3 set policy of /a/../b, "{ \"consistency\": \"append_client_journal+volatile_apply\" }" and 0 more lines
          to conn.5: tid:3 EINVAL: "/a/../b" is not a path within the namespace: invalid argument
    "#]]);
}

#[test]
fn a_change_that_the_server_refuses_is_not_recorded() {
    let mut bench = Bench::serving();
    bench.ask(5, 1, decouple(b"/nowhere"));
    let failure = Failure { errno: Errno::NotFound, text: "/nowhere does not exist".into() };
    bench.reply(1, bench.forward_tid(1), Err(failure));
    bench.ask(5, 2, set(b"/a"));
    bench.reply(1, bench.forward_tid(2), Ok(Answer::Names(Vec::new())));
    assert!(bench.pending.is_empty(), "nothing is stored");
    bench.check(&expect![[r#"
        conn.5: tid:1 decouple /nowhere for client.7, "{ \"consistency\": \"append_client_journal+volatile_apply\" }" and 0 more lines
          to conn.1: tid:4294967297 decouple /nowhere for client.7, "consistency: append_client_journal+volatile_apply" and 12 more lines
        conn.1: tid:4294967297 ENOENT: /nowhere does not exist
          to conn.5: tid:1 ENOENT: /nowhere does not exist
        conn.5: tid:2 set policy of /a, "{ \"consistency\": \"append_client_journal+volatile_apply\" }" and 0 more lines
          to conn.1: tid:4294967298 set policy of /a, "consistency: append_client_journal+volatile_apply" and 12 more lines
        conn.1: tid:4294967298 Names([])
          to conn.5: tid:2 EIO: the metadata server answered something else
    "#]]);
}

#[test]
fn of_two_decouples_of_one_directory_one_wins() {
    let mut bench = Bench::serving();
    bench.ask(5, 1, decouple(b"/a"));
    bench.ask(6, 1, decouple(b"a/"));
    bench.reply(1, bench.forward_tid(1), Ok(Answer::Decoupled(Decoupled::default())));
    bench.store();
    bench.check(&expect![[r#"
        conn.5: tid:1 decouple /a for client.7, "{ \"consistency\": \"append_client_journal+volatile_apply\" }" and 0 more lines
          to conn.1: tid:4294967297 decouple /a for client.7, "consistency: append_client_journal+volatile_apply" and 12 more lines
        conn.6: tid:1 decouple a/ for client.7, "{ \"consistency\": \"append_client_journal+volatile_apply\" }" and 0 more lines
          to conn.6: tid:1 EBUSY: another request for this directory is under way
        conn.1: tid:4294967297 decoupled
          store: put if Version(102): map e3 next client.1, mds.0 e1 active unix:/0, /a v1 "consistency: append_client_journal+volatile_apply"
        store: Stored(103)
          to conn.5: tid:1 decoupled
          to conn.1: map e3 next client.1, mds.0 e1 active unix:/0, /a v1 "consistency: append_client_journal+volatile_apply"
    "#]]);
}

#[test]
fn without_an_active_server_policies_have_to_wait() {
    let mut bench = Bench::new();
    bench.input(MonInput::Start);
    bench.settle();
    bench.ask(5, 1, set(b"/a"));
    bench.beacon(1, 0, 1, MdsState::Replaying);
    bench.ask(5, 2, set(b"/a"));
    bench.check(&expect![[r#"
        start
          store: Get { object: "mon/map" }
        store: Missing
          store: put if Absent: map e1 next client.1
        store: Stored(101)
        conn.5: tid:1 set policy of /a, "{ \"consistency\": \"append_client_journal+volatile_apply\" }" and 0 more lines
          to conn.5: tid:1 EAGAIN: mds.0 is unknown: no metadata server can do this now
        conn.1: beacon mds.0 e1 replaying
          to conn.1: map e1 next client.1
          store: put if Version(101): map e2 next client.1, mds.0 e1 replaying unix:/0
        conn.5: tid:2 set policy of /a, "{ \"consistency\": \"append_client_journal+volatile_apply\" }" and 0 more lines
          to conn.5: tid:2 EAGAIN: mds.0 is replaying: no metadata server can do this now
    "#]]);
}

#[test]
fn a_server_that_goes_away_leaves_the_outcome_open() {
    let mut bench = Bench::serving();
    bench.ask(5, 1, decouple(b"/a"));
    bench.closed(1);
    bench.check(&expect![[r#"
        conn.5: tid:1 decouple /a for client.7, "{ \"consistency\": \"append_client_journal+volatile_apply\" }" and 0 more lines
          to conn.1: tid:4294967297 decouple /a for client.7, "consistency: append_client_journal+volatile_apply" and 12 more lines
        conn.1 closed
          to conn.5: tid:1 EIO: the metadata server went away; ask `cudele status` whether it took effect
          store: put if Version(102): map e3 next client.1, mds.0 e1 lost unix:/0
    "#]]);
}

#[test]
fn a_client_that_goes_away_is_not_answered_but_its_policy_is_recorded() {
    let mut bench = Bench::serving();
    bench.ask(5, 1, set(b"/a"));
    bench.closed(5);
    bench.reply(1, bench.forward_tid(1), Ok(Answer::Done));
    bench.ask(6, 1, MonOp::Register);
    bench.closed(6);
    bench.settle();
    bench.check(&expect![[r#"
        conn.5: tid:1 set policy of /a, "{ \"consistency\": \"append_client_journal+volatile_apply\" }" and 0 more lines
          to conn.1: tid:4294967297 set policy of /a, "consistency: append_client_journal+volatile_apply" and 12 more lines
        conn.5 closed
        conn.1: tid:4294967297 Done
          store: put if Version(102): map e3 next client.1, mds.0 e1 active unix:/0, /a v1 "consistency: append_client_journal+volatile_apply"
        conn.6: tid:1 register
        conn.6 closed
        store: Stored(103)
          to conn.1: map e3 next client.1, mds.0 e1 active unix:/0, /a v1 "consistency: append_client_journal+volatile_apply"
          store: put if Version(103): map e4 next client.1001, mds.0 e1 active unix:/0, /a v1 "consistency: append_client_journal+volatile_apply"
        store: Stored(104)
          to conn.1: map e4 next client.1001, mds.0 e1 active unix:/0, /a v1 "consistency: append_client_journal+volatile_apply"
    "#]]);
}

#[test]
fn only_so_many_requests_wait() {
    let mut bench = Bench::serving();
    for tid in 0..WAITING_MAX as u64 {
        bench.ask(5, tid, set(format!("/{tid}").as_bytes()));
    }
    bench.check_last(&expect![[r#"  to conn.1: tid:4294968320 set policy of /1023, "consistency: append_client_journal+volatile_apply" and 12 more lines"#]]);
    bench.ask(5, 9999, set(b"/more"));
    bench.ask(5, 9999, MonOp::Register);
    bench.check(&expect![[r#"
        conn.5: tid:9999 set policy of /more, "{ \"consistency\": \"append_client_journal+volatile_apply\" }" and 0 more lines
          to conn.5: tid:9999 EAGAIN: too many requests wait for the monitor
        conn.5: tid:9999 register
          to conn.5: tid:9999 EAGAIN: too many requests wait for the monitor
    "#]]);
}

#[test]
fn a_policy_is_known_by_its_directory_whatever_that_is_called() {
    let mut bench = Bench::serving();
    let dir = |ino| Ok(Answer::Attr(Attr { ino: Ino(ino), ..Attr::default() }));
    let remove = |path| MonOp::SetPolicy { path, policy: b"", client: ClientId(0) };
    // The first directory is renamed, and another one gets its name.
    let asked = [set(b"/a"), set(b"/a"), set(b"/b"), set(b"/c"), remove(b"/d")];
    for (tid, (op, ino)) in (1..).zip(asked.into_iter().zip([7, 8, 7, 9, 9])) {
        bench.ask(5, tid, op);
        bench.reply(1, bench.forward_tid(tid), dir(ino));
        bench.settle();
    }
    let known = bench.stored_map().policies.into_iter();
    let known: Vec<_> = known.map(|entry| (entry.path, entry.ino.0, entry.version)).collect();
    assert_eq!(known, [(b"/a".to_vec(), 8, 1), (b"/b".to_vec(), 7, 2)]);
}

#[test]
fn the_map_holds_only_so_many_policies() {
    let path = |name: String| format!("/{name:n>250}").repeat(16).into_bytes();
    let entry = |nth| PolicyEntry {
        path: path(format!("{nth:04}")),
        version: 1,
        policy: "x".into(),
        ino: Ino(0),
    };
    let policies: Vec<_> = (0..1035).map(entry).collect();
    let map = ClusterMap { next_client: ClientId(1), policies, ..ClusterMap::default() };
    let mut bench = Bench::with(Some((format::encode(&map), 1)));
    bench.input(MonInput::Start);
    bench.settle();
    bench.beacon(1, 0, 1, MdsState::Active);
    bench.settle();
    bench.ask(5, 1, set(&path("more".into())));
    bench.check_last(&expect!["  to conn.5: tid:1 ENOSPC: the cluster map holds no more policies; remove some with `cudele policy rm`"]);
    bench.ask(5, 2, set(b"/short"));
    bench.check_last(&expect![[r#"  to conn.1: tid:4294967297 set policy of /short, "consistency: append_client_journal+volatile_apply" and 12 more lines"#]]);
    bench.ask(5, 3, set(b"/another"));
    bench.ask(
        5,
        4,
        MonOp::SetPolicy { path: &path("0001".into()), policy: b"", client: ClientId(0) },
    );
    bench.reply(1, bench.forward_tid(3), Ok(Answer::Done));
    bench.settle();
    assert_eq!(bench.stored_map().policies.len(), 1034, "removing is always possible");
    let mut out = Vec::new();
    bench.mon.status().encode(&mut out, true);
    assert!(out.len() < wire::frame::PAYLOAD_BYTES_MAX / 3, "{} bytes", out.len());
}

#[test]
fn a_message_that_is_not_for_a_monitor_closes_the_connection() {
    let mut bench = Bench::serving();
    bench.message(8, wire::Message::Hello(wire::Hello::default()));
    bench.message(8, wire::Message::Stop);
    bench.reply(8, 1, Ok(Answer::Done));
    bench.input(MonInput::Opened { conn: ConnId(9), peer: Peer::Trusted });
    bench.check(&expect![[r#"
        conn.8: hello(hello { client: client.0, epoch: e0, unsafe_requests: 0 })
          close conn.8
        conn.8: stop
          close conn.8
        conn.8: tid:1 Done
          close conn.8
        conn.9 opened
    "#]]);
}

#[test]
fn a_limited_key_sees_the_policies_of_its_subtrees_only() {
    let mut bench = Bench::serving();
    for (tid, path) in [b"/jobs/one/a".as_slice(), b"/jobs/two", b"/"].into_iter().enumerate() {
        bench.ask(5, tid as u64, set(path));
        bench.reply(1, bench.forward_tid(tid as u64 + 1), Ok(Answer::Done));
        bench.settle();
    }
    let rule = KeyRule::parse("read,write:/jobs/one").unwrap();
    let rules = KeyRules::new(vec![rule]).unwrap();
    let host = Box::new(Peer::host());
    bench.input(MonInput::Opened { conn: ConnId(9), peer: Peer::Limited(host, rules) });
    let mut seen = |conn| {
        bench.ask(conn, 100, MonOp::Status);
        let wire::MonAnswer::Map(map) = bench.answer() else { panic!("no map") };
        map.policies.iter().map(|entry| entry.path.clone()).collect::<Vec<_>>()
    };
    assert_eq!(seen(5).len(), 3);
    assert_eq!(seen(9), [b"/".to_vec(), b"/jobs/one/a".to_vec()]);
    bench.ask(9, 101, MonOp::BalancerLog { after: 0 });
    assert!(bench.transcript.contains("EACCES: the key of this connection lacks read:/"));
}
