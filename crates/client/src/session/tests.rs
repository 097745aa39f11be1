use types::{
    Attr, ClientId, Cred, Epoch, Errno, Ino, Lock, LockKind, LockMode, Seq, Stripe, Tid, Timestamp,
};
use wire::{
    Access, Answer, ChangeOp, Failure, Message, Op, Opened, Reply, Request, SessionOp, Welcome,
};

use super::{Session, SessionEffects, SessionInput};

mod async_ops;
mod begin;
mod lending;
mod linking;

const FILE: Ino = Ino(1 << 41);

struct Bench {
    session: Session,
    effects: SessionEffects,
}

impl Bench {
    fn connected() -> Self {
        let session = Session::new(ClientId(1), Tid(1));
        let mut bench = Self { session, effects: SessionEffects::default() };
        bench.welcome(1);
        bench
    }

    /// A connection to a server of this term. Returns the messages to the server.
    fn welcome(&mut self, epoch: u64) -> Vec<String> {
        self.session.handle(SessionInput::Disconnected, &mut self.effects);
        self.session.handle(SessionInput::Connected, &mut self.effects);
        let welcome = Welcome { epoch: Epoch(epoch), ..Welcome::default() };
        self.session.handle(SessionInput::Message(Message::Welcome(welcome)), &mut self.effects);
        self.sent()
    }

    fn sent(&mut self) -> Vec<String> {
        let frames = std::mem::take(&mut self.effects.frames);
        let (mut rest, mut sent) = (frames.as_slice(), Vec::new());
        while let Some((frame, length)) = wire::frame::decode(rest).unwrap() {
            let message = Message::decode(frame.payload).unwrap();
            if let Message::Batch(batch) = message {
                let mut requests = batch.requests();
                while let Some(Request { op, .. }) = requests.read().unwrap() {
                    sent.push(format!("again: {op:?}"));
                }
                rest = &rest[length..];
                continue;
            }
            sent.push(if let Message::Request(Request { op, replay, .. }) = message {
                let again = if replay.is_some() { "again: " } else { "" };
                format!("{again}{op:?}")
            } else if let Message::Hello(hello) = message {
                format!("hello, {}", hello.unsafe_requests)
            } else {
                format!("{message:?}")
            });
            rest = &rest[length..];
        }
        sent
    }

    fn call(&mut self, op: Op<'_>) -> Tid {
        self.session.call(&Cred::root(), op, &mut self.effects)
    }

    fn answer(&mut self, tid: Tid, seq: u64, result: Result<Answer, Failure>) {
        let time = Timestamp(i64::from(seq > 0));
        let reply = Reply { tid, seq: Seq(seq), time, safe: Seq(0), grants: None, result };
        self.session.handle(SessionInput::Message(Message::Reply(reply)), &mut self.effects);
    }
}

fn lock(mode: LockMode, start: u64, end: u64) -> Lock {
    Lock { kind: LockKind::Posix, mode, owner: 5, pid: 6, start, end }
}

#[test]
fn open_files_move_to_the_session_of_their_new_rank() {
    let [mut one, mut other] = [Bench::connected(), Bench::connected()];
    let tid = one.call(Op::Session(SessionOp::Open { ino: FILE, write: true }));
    one.answer(tid, 0, Ok(Answer::Opened(Opened::default())));
    let tid = one.call(Op::Session(SessionOp::Lock {
        ino: FILE,
        lock: lock(LockMode::Read, 0, 9),
        wait: false,
    }));
    one.answer(tid, 0, Ok(Answer::Done));
    // This one is not answered: it is asked again at the other one.
    let pending = one.call(Op::Session(SessionOp::Open { ino: FILE, write: false }));
    one.sent();
    let file_state = one.session.take_out(FILE, &mut one.effects);
    let unlock =
        Op::Session(SessionOp::Lock { ino: FILE, lock: lock(LockMode::Unlock, 0, 9), wait: false });
    let closed = format!("again: {:?}", Op::Session(SessionOp::Close { ino: FILE, write: true }));
    assert_eq!(one.sent(), [closed, format!("again: {unlock:?}")]);
    one.answer(pending, 0, Err(Errno::Remote.into()));
    assert_eq!(one.sent(), [""; 0]);
    assert!(!one.session.has(FILE));
    other.session.put_in(FILE, Some(file_state), &mut other.effects);
    let access = Access { read: false, write: true, shared: false };
    let expected = [
        format!(
            "again: {:?}",
            Op::Session(SessionOp::Lock {
                ino: FILE,
                lock: lock(LockMode::Read, 0, 9),
                wait: false
            })
        ),
        format!("again: {:?}", Op::Session(SessionOp::Reopen { ino: FILE, access })),
    ];
    assert_eq!(other.sent(), expected);
    // It is recalled and closed there, and told again there.
    other.session.handle(SessionInput::Message(Message::Recall { ino: FILE }), &mut other.effects);
    assert_eq!(std::mem::take(&mut other.effects.recalled), [FILE]);
    assert_eq!(other.welcome(2).len(), 4, "hello, what is open and locked, the end");
    assert!(other.session.close(FILE, true, &mut other.effects) || !other.sent().is_empty());
    // A closed file is reported, too: another client waits for it.
    let other_file = Ino(FILE.0 + 1);
    other.session.put_in(other_file, None, &mut other.effects);
    let nothing = Op::Session(SessionOp::Reopen { ino: other_file, access: Access::default() });
    assert_eq!(other.sent(), [format!("again: {nothing:?}")]);
}

#[test]
fn an_open_that_was_reported_and_refused_after_the_file_moved_is_closed() {
    let mut one = Bench::connected();
    let tid = one.call(Op::Session(SessionOp::Open { ino: FILE, write: true }));
    one.welcome(2);
    drop(one.session.take_out(FILE, &mut one.effects));
    assert_eq!(one.sent(), [""; 0], "the open may be granted yet");
    one.answer(tid, 0, Err(Errno::Stale.into()));
    let close = Op::Session(SessionOp::Close { ino: FILE, write: true });
    assert_eq!(one.sent(), [format!("{close:?}")]);
}

#[test]
fn a_file_whose_report_is_rejected_is_given_up_and_the_server_knows_that_the_client_knows() {
    let mut one = Bench::connected();
    let tid = one.call(Op::Session(SessionOp::Open { ino: FILE, write: true }));
    one.answer(tid, 0, Ok(Answer::Opened(Opened::default())));
    one.welcome(1);
    assert!(!one.session.is_recalled(FILE));
    // The last request but the sync was the report.
    one.answer(Tid(one.session.next_tid - 2), 0, Err(Errno::Stale.into()));
    assert_eq!(std::mem::take(&mut one.effects.recalled), [FILE]);
    assert!(one.session.is_recalled(FILE));
    assert_eq!(one.sent(), [format!("again: {:?}", Op::Session(SessionOp::Sync))]);
}

#[test]
fn a_lock_whose_end_has_no_reply_is_not_reported() {
    let mut one = Bench::connected();
    for mode in [LockMode::Write, LockMode::Unlock] {
        let op = SessionOp::Lock { ino: FILE, lock: lock(mode, 0, 9), wait: false };
        let tid = one.call(Op::Session(op));
        if mode == LockMode::Write {
            one.answer(tid, 0, Ok(Answer::Done));
        }
    }
    let end =
        Op::Session(SessionOp::Lock { ino: FILE, lock: lock(LockMode::Unlock, 0, 9), wait: false });
    let marker = format!("again: {:?}", Op::Session(SessionOp::Sync));
    one.sent();
    assert_eq!(one.welcome(1)[1..], [format!("{end:?}"), marker]);
    assert!(!one.session.has(FILE), "the server ends it, even if it refuses the request");
}

#[test]
fn a_lock_leaves_a_session_only_with_the_answer_to_its_report() {
    let locked_again = || {
        let mut one = Bench::connected();
        let held = lock(LockMode::Write, 0, 9);
        let tid = one.call(Op::Session(SessionOp::Lock { ino: FILE, lock: held, wait: false }));
        one.answer(tid, 0, Ok(Answer::Done));
        assert!(!one.session.awaits_report(FILE), "the server has granted the lock");
        one.welcome(1);
        assert!(one.session.awaits_report(FILE) && !one.session.awaits_report(Ino(FILE.0 + 1)));
        let report = Tid(one.session.next_tid - 2);
        (one, report)
    };
    let (mut one, report) = locked_again();
    one.answer(report, 0, Ok(Answer::Done));
    assert!(!one.session.awaits_report(FILE));
    assert!(!one.session.take_out(FILE, &mut one.effects).is_empty());
    assert_eq!(one.effects.locks_lost, [Ino(0); 0]);
    // Another client may have it by now.
    let (mut one, _) = locked_again();
    one.session.handle(SessionInput::Disconnected, &mut one.effects);
    assert!(!one.session.awaits_report(FILE), "no answer comes");
    assert!(one.session.take_out(FILE, &mut one.effects).is_empty());
    assert_eq!(one.effects.locks_lost, [FILE]);
    // Without a caller that waits, too; and it is lost once.
    let (mut one, report) = locked_again();
    one.sent();
    assert!(one.session.take_out(FILE, &mut one.effects).is_empty());
    assert_eq!(one.sent().len(), 1, "the server hears of the end");
    one.answer(report, 0, Err(Errno::Stale.into()));
    assert_eq!(one.effects.locks_lost, [FILE]);
}

#[test]
fn the_answer_of_the_old_rank_about_a_lock_that_moved_loses_no_lock() {
    let mut one = Bench::connected();
    let held = lock(LockMode::Write, 0, 9);
    let tid = one.call(Op::Session(SessionOp::Lock { ino: FILE, lock: held, wait: false }));
    one.answer(tid, 0, Ok(Answer::Done));
    one.sent();
    drop(one.session.take_out(FILE, &mut one.effects));
    assert_eq!(one.sent().len(), 1, "the end of the lock");
    one.answer(Tid(tid.0 + 1), 0, Err(Errno::Stale.into()));
    assert_eq!(one.effects.locks_lost, [Ino(0); 0]);
}

#[test]
fn a_lock_whose_end_is_under_way_does_not_follow_the_file() {
    let mut one = Bench::connected();
    let ask = |one: &mut Bench, mode, start, end| {
        let lock = lock(mode, start, end);
        one.call(Op::Session(SessionOp::Lock { ino: FILE, lock, wait: false }))
    };
    let tid = ask(&mut one, LockMode::Write, 0, 9);
    one.answer(tid, 0, Ok(Answer::Done));
    let end = ask(&mut one, LockMode::Unlock, 4, 20);
    let moved = one.session.take_out(FILE, &mut one.effects);
    assert!(one.session.has(FILE) && !moved.is_empty());
    let mut other = Bench::connected();
    other.session.put_in(FILE, Some(moved), &mut other.effects);
    let kept = lock(LockMode::Write, 0, 3);
    let kept = Op::Session(SessionOp::Lock { ino: FILE, lock: kept, wait: false });
    assert_eq!(other.sent()[0], format!("again: {kept:?}"));
    one.answer(end, 0, Ok(Answer::Done));
    assert!(!one.session.has(FILE), "the old rank ended the rest");
    // Or it says that the other rank is to do that.
    let tid = ask(&mut one, LockMode::Write, 0, 9);
    one.answer(tid, 0, Ok(Answer::Done));
    let end = ask(&mut one, LockMode::Unlock, 0, 9);
    assert!(one.session.take_out(FILE, &mut one.effects).is_empty() && one.session.has(FILE));
    let elsewhere = wire::Redirect { rank: types::Rank(1), ..wire::Redirect::default() };
    one.answer(end, 0, Ok(Answer::Redirect(Box::new(elsewhere))));
    assert!(!one.session.has(FILE), "a later report of the move carries nothing");
    one.session.validate();
}

#[test]
fn every_connection_reclaims_open_files_and_locks() {
    let mut bench = Bench::connected();
    for write in [false, true, true] {
        let tid = bench.call(Op::Session(SessionOp::Open { ino: FILE, write }));
        bench.answer(tid, 0, Ok(Answer::Opened(Opened::default())));
    }
    let refused = bench.call(Op::Session(SessionOp::Open { ino: Ino(9), write: true }));
    bench.answer(refused, 0, Err(Errno::Access.into()));
    let tid = bench.call(Op::Session(SessionOp::Yield { ino: FILE }));
    bench.answer(tid, 0, Ok(Answer::Done));
    for (mode, start, end) in [(LockMode::Write, 0, 9), (LockMode::Unlock, 4, 5)] {
        let tid = bench.call(Op::Session(SessionOp::Lock {
            ino: FILE,
            lock: lock(mode, start, end),
            wait: true,
        }));
        bench.answer(tid, 0, Ok(Answer::Done));
    }
    bench.sent();
    bench.session.close(FILE, true, &mut bench.effects);
    assert_eq!(bench.sent(), [""; 0], "it is open once more");
    let access = Access { read: true, write: true, shared: true };
    let again = |op: Op<'_>| format!("again: {op:?}");
    let low =
        Op::Session(SessionOp::Lock { ino: FILE, lock: lock(LockMode::Write, 0, 3), wait: false });
    let high =
        Op::Session(SessionOp::Lock { ino: FILE, lock: lock(LockMode::Write, 6, 9), wait: false });
    let reopen = Op::Session(SessionOp::Reopen { ino: FILE, access });
    let expected = [reopen, low, high, Op::Session(SessionOp::Sync)].map(again);
    let sent = bench.welcome(1);
    assert_eq!((sent[0].as_str(), &sent[1..]), ("hello, 1", &expected[..]));
    let sent = bench.welcome(2);
    assert_eq!(sent[1..], expected);
    // The last two requests but the sync were the locks.
    let high_tid = Tid(bench.session.next_tid - 2);
    bench.answer(high_tid, 0, Err(Errno::Again.into()));
    assert_eq!(std::mem::take(&mut bench.effects.locks_lost), [FILE]);
    bench.session.close(FILE, true, &mut bench.effects);
    assert_eq!(
        bench.sent(),
        [format!("{:?}", Op::Session(SessionOp::Close { ino: FILE, write: true }))]
    );
    let access = Access { write: false, ..access };
    let sent = bench.welcome(3);
    let close = format!("{:?}", Op::Session(SessionOp::Close { ino: FILE, write: true }));
    assert_eq!(sent[1], again(Op::Session(SessionOp::Reopen { ino: FILE, access })));
    // The end of what comes again is behind requests without an answer, too.
    assert_eq!(sent[2..], [again(low), close, again(Op::Session(SessionOp::Sync))]);
}

fn opened(shared: bool) -> Result<Answer, Failure> {
    Ok(Answer::Opened(Opened { shared, ..Opened::default() }))
}

impl Bench {
    fn open(&mut self, write: bool, shared: bool) {
        let tid = self.call(Op::Session(SessionOp::Open { ino: FILE, write }));
        self.answer(tid, 0, opened(shared));
    }

    fn close(&mut self, write: bool) -> bool {
        self.session.close(FILE, write, &mut self.effects)
    }

    /// The server wants the file. Says whether that is handed on.
    fn recall(&mut self) -> bool {
        let recall = Message::Recall { ino: FILE };
        self.session.handle(SessionInput::Message(recall), &mut self.effects);
        !std::mem::take(&mut self.effects.recalled).is_empty()
    }
}

#[test]
fn a_recall_applies_only_to_opens_before_it() {
    let mut bench = Bench::connected();
    bench.open(true, false);
    assert!(bench.recall() && bench.session.is_recalled(FILE));
    assert!(bench.close(true), "somebody waits for that");
    assert!(!bench.recall(), "it is closed");
    // Opened again: a recall that comes before the answer was made before.
    let tid = bench.call(Op::Session(SessionOp::Open { ino: FILE, write: true }));
    assert!(!bench.recall() && !bench.session.is_recalled(FILE));
    bench.answer(tid, 0, opened(false));
    assert!(!bench.session.is_recalled(FILE));
    assert!(!bench.close(true), "nobody waits");
}

#[test]
fn a_yield_of_a_closed_file_does_not_apply_to_a_later_open() {
    let mut bench = Bench::connected();
    bench.open(true, false);
    bench.recall();
    let before = bench.call(Op::Session(SessionOp::Yield { ino: FILE }));
    bench.close(true);
    let tid = bench.call(Op::Session(SessionOp::Open { ino: FILE, write: true }));
    bench.answer(before, 0, Ok(Answer::Done));
    bench.answer(tid, 0, opened(false));
    assert!(!bench.session.is_shared(FILE));
    bench.recall();
    let now = bench.call(Op::Session(SessionOp::Yield { ino: FILE }));
    bench.answer(now, 0, Ok(Answer::Done));
    assert!(bench.session.is_shared(FILE) && !bench.session.is_recalled(FILE));
    assert!(!bench.close(true), "whoever waited has it");
    bench.open(false, false);
    assert!(!bench.session.is_shared(FILE));
}

#[test]
fn a_recall_that_overtakes_its_create_applies_after_it() {
    let mut bench = Bench::connected();
    let new = wire::NewInode { mode: 0o100_644, open: true, ..wire::NewInode::default() };
    let tid = bench.call(Op::Change(ChangeOp::Create { parent: Ino::ROOT, name: b"file", new }));
    assert!(!bench.recall());
    let attr = Attr { ino: FILE, ..Attr::default() };
    bench.answer(tid, 7, Ok(Answer::Attr(attr)));
    assert_eq!(std::mem::take(&mut bench.effects.recalled), [FILE]);
    assert!(bench.session.is_recalled(FILE));
    bench.close(true);
    assert!(!bench.recall(), "nothing is being created");
}

#[test]
fn a_refused_last_open_is_sent_as_a_close() {
    let mut bench = Bench::connected();
    bench.open(true, false);
    let tid = bench.call(Op::Session(SessionOp::Open { ino: FILE, write: true }));
    bench.close(true);
    bench.sent();
    bench.answer(tid, 0, Err(Errno::Access.into()));
    assert_eq!(
        bench.sent(),
        [format!("{:?}", Op::Session(SessionOp::Close { ino: FILE, write: true }))]
    );
    let tid = bench.call(Op::Session(SessionOp::Open { ino: FILE, write: true }));
    bench.sent();
    bench.answer(tid, 0, Err(Errno::Access.into()));
    assert_eq!(bench.sent(), [""; 0], "it was not open");
}

#[test]
fn an_append_that_is_sent_again_asks_for_the_length_that_it_was_given() {
    let mut bench = Bench::connected();
    let tid = bench.call(Op::Change(ChangeOp::Append { ino: FILE, length: 10 }));
    let attr = Attr { ino: FILE, size: 110, ..Attr::default() };
    bench.answer(tid, 7, Ok(Answer::Attr(attr)));
    bench.sent();
    let sent = bench.welcome(2);
    assert_eq!(
        sent[1],
        format!("again: {:?}", Op::Change(ChangeOp::Grow { ino: FILE, size: 110 }))
    );
}

#[test]
fn a_create_that_is_sent_again_says_how_the_file_is_striped() {
    let mut bench = Bench::connected();
    let new = wire::NewInode { mode: 0o100_644, ..wire::NewInode::default() };
    let tid = bench.call(Op::Change(ChangeOp::Create { parent: Ino::ROOT, name: b"file", new }));
    let attr = Attr { ino: FILE, stripe: Stripe::MIN, ..Attr::default() };
    bench.answer(tid, 7, Ok(Answer::Attr(attr)));
    bench.sent();
    // Another policy may be in force by then, but content may be in the store.
    bench.session.handle(SessionInput::Disconnected, &mut bench.effects);
    bench.session.handle(SessionInput::Connected, &mut bench.effects);
    let welcome = Welcome { epoch: Epoch(2), ..Welcome::default() };
    bench.session.handle(SessionInput::Message(Message::Welcome(welcome)), &mut bench.effects);
    let frames = std::mem::take(&mut bench.effects.frames);
    let (_, hello) = wire::frame::decode(&frames).unwrap().unwrap();
    let (frame, _) = wire::frame::decode(&frames[hello..]).unwrap().unwrap();
    let Message::Request(request) = Message::decode(frame.payload).unwrap() else {
        panic!("a request is sent again");
    };
    let replay = request.replay.unwrap();
    assert_eq!((replay.seq, replay.ino, replay.stripe), (Seq(7), FILE, Stripe::MIN));
}
