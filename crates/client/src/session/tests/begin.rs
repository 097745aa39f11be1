//! The steps before a request, and the time at which local changes leave.

use types::{Clock, Moment};
use wire::WantsExclusive;
use wire::{ChangeOp, ReadOp, SessionOp};

use super::async_ops::SUB;
use super::*;
use crate::{AsyncDue, RequestStep, VALID};

const LOOK: Op<'static> = Op::Read(ReadOp::Lookup { parent: Ino(100), name: b"file" });

fn begin(bench: &mut Bench, op: Op<'_>, begun: Moment) -> RequestStep {
    let clock = Clock { now: begun, time: Timestamp(7) };
    bench.session.begin(&Cred::root(), &op, begun, clock, &mut bench.effects)
}

/// A session that caches a name and its attributes, which it asked for at 0.
fn with_cached_file() -> Bench {
    let mut bench = Bench::connected();
    bench.session.remember();
    let tid = bench.call(LOOK);
    let attr = Attr { ino: FILE, nlink: 1, ..Attr::default() };
    let grants = wire::Grants {
        dir: Attr { ino: Ino(100), nlink: 2, ..Attr::default() },
        inode: true,
        exclusive: None,
        new_exclusive: None,
        lease: None,
    };
    let reply = Reply {
        tid,
        seq: Seq(0),
        time: Timestamp(0),
        safe: Seq(0),
        grants: Some(grants),
        result: Ok(Answer::Attr(attr)),
    };
    bench.session.handle(SessionInput::Message(Message::Reply(reply)), &mut bench.effects);
    bench
}

#[test]
fn the_cache_answers_for_a_while_after_the_last_request_that_was_answered() {
    let mut bench = with_cached_file();
    let last = Moment(VALID.0 - 1);
    assert!(matches!(begin(&mut bench, LOOK, last), RequestStep::Answered(Ok(_))));
    assert!(matches!(begin(&mut bench, LOOK, Moment(VALID.0)), RequestStep::Send));
    bench.session.handle(SessionInput::Disconnected, &mut bench.effects);
    assert!(matches!(begin(&mut bench, LOOK, last), RequestStep::Send), "no connection");
}

#[test]
fn a_client_asks_whether_the_server_hears_it_before_it_uses_its_own_directories() {
    let mut bench = Bench::with_sub();
    let late = Moment(VALID.0);
    let step = begin(&mut bench, LOOK, late);
    assert!(matches!(step, RequestStep::First(Op::Session(SessionOp::AwaitAsync))), "{step:?}");
    bench.session.at(late);
    let tid = bench.call(Op::Session(SessionOp::AwaitAsync));
    bench.answer(tid, 0, Ok(Answer::Done));
    let step = begin(&mut bench, LOOK, late);
    assert!(matches!(step, RequestStep::Send), "{step:?}");
}

#[test]
fn collected_changes_leave_soon_and_many_at_once() {
    let mut bench = Bench::with_sub();
    assert_eq!(bench.session.async_due(&bench.effects).pause(), None);
    let name = [b'x'; 200];
    let new = wire::NewInode { mode: 0o100_644, ..wire::NewInode::default() };
    let mut made = 0;
    let due = loop {
        let create = Op::Change(ChangeOp::Create { parent: SUB, name: &name[..200 - made], new });
        let step = begin(&mut bench, create, Moment(1));
        assert!(matches!(step, RequestStep::AnsweredAhead(Ok(_))), "{step:?}");
        made += 1;
        let due = bench.session.async_due(&bench.effects);
        if due != AsyncDue::Soon {
            break due;
        }
    };
    assert!((10..60).contains(&made) && due == AsyncDue::Now, "{made} changes, {due:?}");
    bench.session.send_async_at(Moment(2), &mut bench.effects);
    assert_eq!(bench.session.async_due(&bench.effects), AsyncDue::AtLeisure);
}

#[test]
fn a_fenced_client_is_not_connected() {
    let mut bench = Bench::connected();
    bench.session.take_exclusive(WantsExclusive::Never);
    bench.session.handle(SessionInput::Disconnected, &mut bench.effects);
    let welcome = Welcome { fenced: true, crashed: Epoch(3), ..Welcome::default() };
    bench.session.handle(SessionInput::Message(Message::Welcome(welcome)), &mut bench.effects);
    assert!(bench.session.is_fenced() && !bench.session.is_connected());
    assert_eq!(bench.session.crashed(), Epoch(3));
}
