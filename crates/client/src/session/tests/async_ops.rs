//! Requests that the client answers before the server receives them.

use types::{InoRange, MODE_TYPE};
use wire::{Grants, JobOp, NewInode, ReadOp, WantsExclusive};

use super::*;
use crate::LocalAnswer;

const DIR: Ino = Ino(100);
pub(super) const SUB: Ino = Ino(200);
const NUMBERS: InoRange = InoRange { start: 1000, end: 1100 };
pub(super) const FILE_MODE: u32 = 0o100_644;
pub(super) const DIR_MODE: u32 = 0o040_755;

fn attr(ino: Ino, mode: u32, size: u64) -> Attr {
    Attr {
        ino,
        mode,
        nlink: if mode & MODE_TYPE == 0o040_000 { 2 } else { 1 },
        size,
        ..Attr::default()
    }
}

pub(super) fn create<'a>(parent: Ino, name: &'a [u8], mode: u32) -> Op<'a> {
    Op::Change(ChangeOp::Create { parent, name, new: NewInode { mode, ..NewInode::default() } })
}

impl Bench {
    /// One that has the directory `SUB`, which it made, alone, and numbers.
    pub(super) fn with_sub() -> Self {
        let mut bench = Self::connected();
        bench.session.remember();
        bench.session.take_exclusive(WantsExclusive::Always);
        let tid = bench.call(create(DIR, b"sub", DIR_MODE));
        let dir = attr(DIR, DIR_MODE, 1);
        let grants = Grants {
            dir,
            inode: true,
            exclusive: None,
            new_exclusive: Some(Stripe::default()),
            lease: None,
        };
        let result = Ok(Answer::Attr(attr(SUB, DIR_MODE, 0)));
        bench.reply(tid, 1, Some(grants), result);
        assert!(matches!(bench.known(create(SUB, b"a", FILE_MODE)), LocalAnswer::WantsNumbers(_)));
        let tid = bench.call(Op::Job(JobOp::Extend { subtree: Ino(0), count: 100 }));
        bench.answer(tid, 0, Ok(Answer::Range(NUMBERS)));
        bench.sent();
        bench.effects.completed.clear();
        bench
    }

    fn reply(
        &mut self,
        tid: Tid,
        seq: u64,
        grants: Option<Grants>,
        result: Result<Answer, Failure>,
    ) {
        let time = Timestamp(i64::from(seq > 0));
        let reply = Reply { tid, seq: Seq(seq), time, safe: Seq(0), grants, result };
        self.session.handle(SessionInput::Message(Message::Reply(reply)), &mut self.effects);
    }

    /// The server has come up to this position.
    pub(super) fn settle(&mut self, tid: Tid, seq: u64) {
        let (time, safe, grants, result) = (Timestamp(0), Seq(0), None, Ok(Answer::Done));
        let reply = Reply { tid, seq: Seq(seq), time, safe, grants, result };
        self.session.handle(SessionInput::Message(Message::Reply(reply)), &mut self.effects);
    }

    pub(super) fn known(&mut self, op: Op<'_>) -> LocalAnswer {
        self.session.known(&Cred::root(), &op, Timestamp(7), &mut self.effects)
    }

    /// A change that is answered here.
    pub(super) fn perform_async(&mut self, op: Op<'_>) -> (Tid, Answer) {
        let known = self.known(op);
        let LocalAnswer::Async(tid, Ok(answer)) = known else { panic!("{op:?}: {known:?}") };
        (tid, answer)
    }

    pub(super) fn send_async(&mut self) -> Vec<Request<'static>> {
        self.session.send_async(&mut self.effects);
        self.requests()
    }

    /// The sent messages, without names and content.
    #[allow(clippy::wildcard_enum_match_arm, reason = "the tests look at these")]
    pub(super) fn requests(&mut self) -> Vec<Request<'static>> {
        let frames = std::mem::take(&mut self.effects.frames);
        let (mut rest, mut sent) = (frames.as_slice(), Vec::new());
        while let Some((frame, length)) = wire::frame::decode(rest).unwrap() {
            match Message::decode(frame.payload).unwrap() {
                Message::Request(request) => sent.push(bare(&request)),
                Message::Batch(batch) => {
                    let mut requests = batch.requests();
                    while let Some(request) = requests.read().unwrap() {
                        sent.push(bare(request));
                    }
                }
                _ => {}
            }
            rest = &rest[length..];
        }
        sent
    }
}

/// A request without names and content.
#[allow(clippy::wildcard_enum_match_arm, reason = "the tests look at these")]
fn bare(request: &Request<'_>) -> Request<'static> {
    let Request { tid, acked, replay, is_async, .. } = *request;
    let op = match request.op {
        Op::Change(ChangeOp::Create { parent, new, .. }) => {
            Op::Change(ChangeOp::Create { parent, name: b"", new: NewInode { data: b"", ..new } })
        }
        Op::Change(ChangeOp::Link { ino, parent, .. }) => {
            Op::Change(ChangeOp::Link { ino, parent, name: b"" })
        }
        Op::Change(ChangeOp::Unlink { parent, .. }) => {
            Op::Change(ChangeOp::Unlink { parent, name: b"" })
        }
        Op::Change(ChangeOp::Rename { parent, new_parent, flags, .. }) => {
            Op::Change(ChangeOp::Rename { parent, name: b"", new_parent, new_name: b"", flags })
        }
        Op::Session(SessionOp::Return { dir }) => Op::Session(SessionOp::Return { dir }),
        Op::Session(SessionOp::AwaitAsync) => Op::Session(SessionOp::AwaitAsync),
        Op::Session(SessionOp::Close { ino, write }) => {
            Op::Session(SessionOp::Close { ino, write })
        }
        _ => Op::Session(SessionOp::Sync),
    };
    Request { replay, is_async, ..Request::new(tid, acked, Cred::root(), op) }
}

pub(super) fn kinds(requests: &[Request<'_>]) -> Vec<(&'static str, bool)> {
    requests.iter().map(|request| (request.op.name(), request.is_async)).collect()
}

#[test]
fn a_change_in_an_exclusive_directory_is_answered_here_and_sent_later() {
    let mut bench = Bench::with_sub();
    let (tid, answer) = bench.perform_async(create(SUB, b"a", FILE_MODE));
    let Answer::Attr(made) = answer else { panic!("{answer:?}") };
    assert_eq!((made.ino, made.ctime, made.nlink), (Ino(1000), Timestamp(7), 1));
    assert!(bench.sent().is_empty() && bench.session.is_async());
    // The new name exists for this client, as in the server's answer.
    let found = bench.known(Op::Read(ReadOp::Lookup { parent: SUB, name: b"a" }));
    assert!(matches!(found, LocalAnswer::Local(Ok(Answer::Attr(attr))) if attr == made));
    let again = bench.known(create(SUB, b"a", FILE_MODE));
    assert!(matches!(again, LocalAnswer::Local(Err(failure)) if failure.errno == Errno::Exists));
    let sent = bench.send_async();
    assert_eq!(kinds(&sent), [("create", true), ("settle", false)]);
    let replay = sent[0].replay.unwrap();
    assert_eq!((sent[0].tid, replay.ino, replay.time), (tid, Ino(1000), Timestamp(7)));
    bench.settle(sent[1].tid, 5);
    assert!(!bench.session.is_async() && bench.effects.async_acknowledged);
    assert_eq!(bench.session.unsafe_count(), 2, "applied, and not known to be safe");
}

#[test]
fn an_exclusive_directory_is_found_in_its_cached_parent() {
    let mut bench = Bench::with_sub();
    bench.perform_async(create(SUB, b"a", FILE_MODE));
    let LocalAnswer::Local(Ok(Answer::Attr(sub))) =
        bench.known(Op::Read(ReadOp::GetAttr { ino: SUB }))
    else {
        panic!("it is alone")
    };
    let named = bench.known(Op::Read(ReadOp::Lookup { parent: DIR, name: b"sub" }));
    assert!(
        matches!(named, LocalAnswer::Remembered(Ok(Answer::Attr(attr))) if attr == sub),
        "{named:?}"
    );
    let other = bench.known(Op::Read(ReadOp::Lookup { parent: DIR, name: b"other" }));
    assert!(matches!(other, LocalAnswer::Nothing), "{other:?}");
}

#[test]
fn changes_are_sent_before_their_directory_is_returned() {
    let mut bench = Bench::with_sub();
    bench.perform_async(create(SUB, b"a", FILE_MODE));
    let revoke = Message::Revoke { dir: SUB };
    bench.session.handle(SessionInput::Message(revoke), &mut bench.effects);
    let sent = bench.requests();
    assert_eq!(kinds(&sent), [("create", true), ("settle", false), ("return", false)]);
    assert!(matches!(
        bench.known(Op::Read(ReadOp::Lookup { parent: SUB, name: b"a" })),
        LocalAnswer::Nothing
    ));
}

#[test]
fn a_leaving_client_returns_directories_after_its_changes() {
    let mut bench = Bench::with_sub();
    bench.perform_async(create(SUB, b"a", FILE_MODE));
    bench.session.leave(&mut bench.effects);
    let sent = bench.requests();
    let sent = kinds(&sent);
    assert_eq!(sent[0], ("create", true));
    assert!(sent[1..].contains(&("return", false)), "{sent:?}");
    assert!(sent[1..].iter().all(|(kind, _)| matches!(*kind, "settle" | "return")), "{sent:?}");
    assert!(matches!(
        bench.known(Op::Read(ReadOp::Lookup { parent: SUB, name: b"a" })),
        LocalAnswer::Nothing
    ));
    bench.session.leave(&mut bench.effects);
    assert!(bench.requests().is_empty(), "nothing is left to be given back");
}

#[test]
fn a_directory_made_in_an_exclusive_one_is_exclusive_until_removed() {
    let mut bench = Bench::with_sub();
    let (_, answer) = bench.perform_async(create(SUB, b"d", DIR_MODE));
    let Answer::Attr(made) = answer else { panic!("{answer:?}") };
    bench.perform_async(create(made.ino, b"f", FILE_MODE));
    let full = bench.known(Op::Change(ChangeOp::Rmdir { parent: SUB, name: b"d" }));
    assert!(matches!(full, LocalAnswer::Local(Err(failure)) if failure.errno == Errno::NotEmpty));
    bench.perform_async(Op::Change(ChangeOp::Unlink { parent: made.ino, name: b"f" }));
    bench.perform_async(Op::Change(ChangeOp::Rmdir { parent: SUB, name: b"d" }));
    assert_eq!(bench.session.exclusive_count(), 1);
    let gone = bench.known(Op::Read(ReadOp::GetAttr { ino: made.ino }));
    assert!(matches!(gone, LocalAnswer::Nothing), "the server says that: {gone:?}");
}

#[test]
fn an_emptied_directory_is_known_without_its_attributes() {
    let mut bench = Bench::with_sub();
    let tid = bench.call(Op::Change(ChangeOp::Rmdir { parent: DIR, name: b"last" }));
    let dir = attr(DIR, DIR_MODE, 0);
    let grants = Grants { dir, exclusive: Some(Stripe::default()), ..Grants::default() };
    bench.reply(tid, 2, Some(grants), Ok(Answer::Done));
    assert_eq!(bench.session.exclusive_count(), 2);
    let absent = bench.known(Op::Read(ReadOp::Lookup { parent: DIR, name: b"a" }));
    assert!(matches!(absent, LocalAnswer::Local(Err(failure)) if failure.errno == Errno::NotFound));
    assert!(matches!(bench.known(Op::Read(ReadOp::ListXattr { ino: DIR })), LocalAnswer::Nothing));
    let new = bench.known(Op::Read(ReadOp::ListXattr { ino: SUB }));
    assert!(matches!(new, LocalAnswer::Local(Ok(Answer::Names(names))) if names.is_empty()));
}

#[test]
fn a_new_server_gets_unsafe_changes_in_their_first_order() {
    let mut bench = Bench::with_sub();
    bench.perform_async(create(SUB, b"a", FILE_MODE));
    let sent = bench.send_async();
    bench.settle(sent[1].tid, 5);
    bench.perform_async(create(SUB, b"b", FILE_MODE));
    let sent = bench.welcome(3);
    // Not the next term: the state that its predecessor stored is unknown.
    let (again, rest): (Vec<_>, Vec<_>) = sent.iter().partition(|line| line.starts_with("again"));
    assert_eq!(again.len(), 4, "mkdir, both creates, and the end: {sent:?}");
    assert!(rest.iter().any(|line| line.contains("AwaitAsync")), "{sent:?}");
    assert!(!rest.iter().any(|line| line.contains("Return")), "it gave nothing: {sent:?}");
    assert_eq!(bench.session.exclusive_count(), 0);
}

#[test]
fn a_new_connection_sends_changes_before_returns() {
    let mut bench = Bench::with_sub();
    bench.perform_async(create(SUB, b"a", FILE_MODE));
    let sent = bench.welcome(1);
    let place = |what: &str| sent.iter().position(|line| line.contains(what)).unwrap();
    assert!(
        place("Create") < place("AwaitAsync") && place("AwaitAsync") < place("Return"),
        "{sent:?}"
    );
}

#[test]
fn a_lost_change_fails_the_next_sync_and_ends_exclusive_use() {
    let mut bench = Bench::with_sub();
    let (tid, _) = bench.perform_async(create(SUB, b"a", FILE_MODE));
    let sent = bench.send_async();
    bench.answer(tid, 0, Err(Errno::Stale.into()));
    let returned = bench.requests();
    assert_eq!(kinds(&returned), [("return", false)]);
    bench.answer(sent[1].tid, 0, Ok(Answer::Done));
    assert_eq!(bench.session.take_lost().map(|lost| lost.errno), Some(Errno::Stale));
    assert_eq!((bench.session.exclusive_count(), bench.session.is_async()), (0, false));
}

#[test]
fn a_refused_change_is_sent_to_no_later_server() {
    let mut bench = Bench::with_sub();
    bench.perform_async(create(SUB, b"a", FILE_MODE));
    let (refused, answer) = bench.perform_async(create(SUB, b"b", FILE_MODE));
    let Answer::Attr(types::Attr { ino: lost, .. }) = answer else { panic!("{answer:?}") };
    let sent = bench.send_async();
    let kept = bench.session.unsafe_count();
    bench.answer(refused, 0, Err(Errno::NoSpace.into()));
    // The error goes to whoever asks first; the file's own stays until the change was repeated.
    assert_eq!(bench.session.take_lost().map(|lost| lost.errno), Some(Errno::NoSpace));
    assert_eq!(bench.session.take_lost(), None);
    assert_eq!(bench.session.lost_of(lost).map(|lost| lost.errno), Some(Errno::NoSpace));
    bench.session.forget_lost(lost);
    assert_eq!(bench.session.lost_of(lost), None);
    assert_eq!(bench.session.unsafe_count(), kept - 1);
    bench.settle(sent[2].tid, 5);
    let sent = bench.welcome(3);
    let again: Vec<_> = sent.iter().filter(|line| line.starts_with("again")).collect();
    assert_eq!(again.len(), 3, "mkdir, the first create, and the end: {sent:?}");

    // No other request was under way.
    let mut bench = Bench::with_sub();
    let (refused, _) = bench.perform_async(create(SUB, b"a", FILE_MODE));
    bench.send_async();
    bench.answer(refused, 0, Err(Errno::NoSpace.into()));
    let sent = bench.welcome(3);
    let again: Vec<_> = sent.iter().filter(|line| line.starts_with("again")).collect();
    assert_eq!(again.len(), 2, "mkdir, and the end: {sent:?}");
}
