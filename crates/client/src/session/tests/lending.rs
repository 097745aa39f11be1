//! Answers that a kernel may use, and the return of their directories.

use types::{Moment, Span};
use wire::{ReadOp, SessionOp};

use super::*;
use crate::lent::{FRESH, LAPSE, LEND};

const DIR: Ino = Ino(100);
const LOOK: Op<'static> = Op::Read(ReadOp::Lookup { parent: DIR, name: b"file" });

fn file() -> Attr {
    Attr { ino: FILE, nlink: 1, mode: 0o100_644, ..Attr::default() }
}

/// A session that caches a name and its attributes, which it asked for at 0, and lends them.
fn lending() -> Bench {
    let mut bench = Bench::connected();
    bench.session.remember();
    bench.session.lend_to_kernel();
    let tid = bench.call(LOOK);
    let dir = Attr { ino: DIR, nlink: 2, mode: 0o040_755, ..Attr::default() };
    let reply = Reply {
        tid,
        seq: Seq(0),
        time: Timestamp(0),
        safe: Seq(0),
        grants: Some(wire::Grants { dir, inode: true, ..wire::Grants::default() }),
        result: Ok(Answer::Attr(file())),
    };
    bench.session.handle(SessionInput::Message(Message::Reply(reply)), &mut bench.effects);
    bench.effects.frames.clear();
    bench
}

fn revoke(bench: &mut Bench) {
    let revoke = SessionInput::Message(Message::Revoke { dir: DIR });
    bench.session.handle(revoke, &mut bench.effects);
    bench.session.validate();
}

/// The returns among the frames to send, which are taken.
fn returns(bench: &mut Bench) -> Vec<Ino> {
    let frames = std::mem::take(&mut bench.effects.frames);
    let (mut rest, mut found) = (frames.as_slice(), Vec::new());
    while let Ok(Some((frame, length))) = wire::frame::decode(rest) {
        rest = &rest[length..];
        if let Ok(Message::Request(request)) = Message::decode(frame.payload)
            && let Op::Session(SessionOp::Return { dir }) = request.op
        {
            found.push(dir);
        }
    }
    found
}

fn at(millis: u64) -> Moment {
    Moment::default() + Span::from_millis(millis)
}

#[test]
fn a_kernel_may_use_what_the_client_would_answer_itself() {
    let mut bench = lending();
    let session = &mut bench.session;
    assert_eq!(session.lend_name(at(10), DIR, b"file", Some(FILE)), LEND);
    assert_eq!(session.lend_attr(at(10), &file()), LEND);
    for other in [Some(Ino(7)), None] {
        assert_eq!(session.lend_name(at(10), DIR, b"file", other), Span(0), "{other:?}");
    }
    assert_eq!(session.lend_name(at(10), DIR, b"other", None), Span(0), "not known");
    let longer = Attr { size: 1, ..file() };
    assert_eq!(session.lend_attr(at(10), &longer), Span(0), "not what the client knows");
    let late = Moment::default() + FRESH;
    assert_eq!(session.lend_name(late, DIR, b"file", Some(FILE)), Span(0), "the server is silent");
}

#[test]
fn a_revoked_directory_is_returned_when_its_answers_have_lapsed() {
    let mut bench = lending();
    bench.session.lend_attr(at(10), &file());
    revoke(&mut bench);
    assert_eq!(returns(&mut bench), []);
    assert_eq!(bench.session.lapse_due(), Some(at(10) + LAPSE));
    assert_eq!(bench.session.lend_attr(at(20), &file()), Span(0));
    revoke(&mut bench);
    bench.session.return_lapsed(at(309), &mut bench.effects);
    assert_eq!(returns(&mut bench), []);
    bench.session.return_lapsed(at(310), &mut bench.effects);
    bench.session.validate();
    assert_eq!((returns(&mut bench), bench.session.lapse_due()), (vec![DIR], None));
}

#[test]
fn a_directory_that_no_kernel_uses_is_returned_at_once() {
    let mut bench = lending();
    revoke(&mut bench);
    assert_eq!((returns(&mut bench), bench.session.lapse_due()), (vec![DIR], None));
}

#[test]
fn a_client_that_leaves_returns_everything_at_once() {
    let mut bench = lending();
    bench.session.lend_attr(at(10), &file());
    revoke(&mut bench);
    assert_eq!(returns(&mut bench), []);
    bench.session.leave(&mut bench.effects);
    bench.session.validate();
    assert_eq!((returns(&mut bench), bench.session.lapse_due()), (vec![DIR], None));
}

#[test]
fn a_new_connection_waits_for_the_kernel_and_returns_everything() {
    let mut bench = lending();
    bench.session.lend_attr(at(10), &file());
    revoke(&mut bench);
    bench.session.handle(SessionInput::Disconnected, &mut bench.effects);
    bench.session.validate();
    assert_eq!(bench.session.lent_until(), Some(at(10) + LAPSE));
    assert_eq!(bench.session.lapse_due(), None);
    assert_eq!(bench.session.lend_attr(at(20), &file()), Span(0), "no connection");
}

#[test]
fn a_client_without_a_kernel_lends_nothing_and_keeps_its_cache_longer() {
    let mut bench = Bench::connected();
    bench.session.remember();
    assert_eq!(bench.session.lent_until(), None);
    assert_eq!(bench.session.lend_attr(at(1), &file()), Span(0));
    let mut lending = lending();
    for (bench, fresh_for) in [(&mut bench, crate::VALID), (&mut lending, FRESH)] {
        let tid = bench.call(LOOK);
        bench.answer(tid, 0, Ok(Answer::Done));
        assert!(bench.session.is_fresh(Moment(fresh_for.0 - 1)));
        assert!(!bench.session.is_fresh(Moment(fresh_for.0)));
    }
    const { assert!(FRESH.0 + LAPSE.0 < 1_500_000_000, "a lapse is before the server's patience ends") }
}
