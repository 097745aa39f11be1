use super::*;
use types::{FileType, Seq, Span, Timestamp};
use wire::Failure;

const DIR: Ino = Ino(10);
const FILE: Ino = Ino(20);
/// The server's lease, and its extra wait.
const LEASE: Span = Span::from_millis(1000);
const SLACK: Span = Span::from_millis(10);

fn at(millis: u64) -> Moment {
    Moment::default() + Span::from_millis(millis)
}

fn dir(mode: u32) -> Attr {
    Attr { ino: DIR, mode: FileType::Directory.mode_bits() | mode, nlink: 2, ..Attr::default() }
}

fn file(ino: Ino) -> Attr {
    Attr { ino, mode: FileType::Regular.mode_bits() | 0o644, nlink: 1, ..Attr::default() }
}

fn grants() -> Grants {
    Grants { dir: dir(0o755), inode: true, lease: Some(LEASE), ..Grants::default() }
}

struct Bench {
    leases: Leases,
    next: u64,
}

impl Bench {
    fn new() -> Self {
        Self { leases: Leases::default(), next: 0 }
    }

    fn ask(&mut self, now: Moment, op: &Op<'_>) -> Tid {
        self.next += 1;
        self.leases.at(now);
        self.leases.ask(Tid(self.next), op);
        Tid(self.next)
    }

    fn reply(&mut self, tid: Tid, now: Moment, grants: Grants, result: Result<Answer, Failure>) {
        self.leases.at(now);
        let (seq, safe, time) = (Seq(0), Seq(0), Timestamp(0));
        self.leases.note_reply(&Reply { tid, seq, time, safe, grants: Some(grants), result });
    }

    fn answered(&mut self, now: Moment, op: &Op<'_>, result: Result<Answer, Failure>) {
        let tid = self.ask(now, op);
        self.reply(tid, now, grants(), result);
    }

    fn look(&self, now: Moment, name: &[u8]) -> Option<Option<Ino>> {
        let looked = self.leases.look(now, &Cred::root(), DIR, name)?;
        Some(looked.expect("root may look"))
    }
}

fn lookup(name: &[u8]) -> Op<'_> {
    Op::Read(ReadOp::Lookup { parent: DIR, name })
}

#[test]
fn a_lease_counts_from_the_time_of_its_request() {
    let mut bench = Bench::new();
    let tid = bench.ask(at(100), &lookup(b"a"));
    bench.reply(tid, at(900), grants(), Ok(Answer::Attr(file(FILE))));
    bench.answered(at(600), &lookup(b"none"), Err(Errno::NotFound.into()));
    for (now, a, none) in
        [(900, Some(Some(FILE)), Some(None)), (1100, None, Some(None)), (1900, None, None)]
    {
        assert_eq!((bench.look(at(now), b"a"), bench.look(at(now), b"none")), (a, none), "{now}");
    }
    assert_eq!(bench.leases.attr(at(1099), FILE), Some(file(FILE)));
    assert_eq!(bench.leases.attr(at(1100), FILE), None);
    // An answer that took longer than the lease is worth nothing.
    let tid = bench.ask(at(2000), &lookup(b"b"));
    bench.reply(tid, at(3000), grants(), Ok(Answer::Attr(file(Ino(21)))));
    assert_eq!((bench.look(at(2000), b"b"), bench.leases.attr(at(2000), Ino(21))), (None, None));
}

#[test]
fn an_answer_without_a_lease_is_not_cached() {
    let mut bench = Bench::new();
    let tid = bench.ask(at(0), &lookup(b"a"));
    bench.reply(tid, at(1), Grants { lease: None, ..grants() }, Ok(Answer::Attr(file(FILE))));
    assert!(bench.leases.is_empty());
    let tid = bench.ask(at(0), &lookup(b"a"));
    bench.reply(tid, at(1), Grants { inode: false, ..grants() }, Ok(Answer::Attr(file(FILE))));
    assert_eq!((bench.look(at(2), b"a"), bench.leases.attr(at(2), FILE)), (Some(Some(FILE)), None));
}

#[test]
fn a_lookup_without_search_permission_fails_with_eacces() {
    let mut bench = Bench::new();
    let tid = bench.ask(at(0), &lookup(b"a"));
    let closed = Grants { dir: dir(0o700), ..grants() };
    bench.reply(tid, at(1), closed, Ok(Answer::Attr(file(FILE))));
    let stranger = Cred { uid: 5, gid: 5, groups: vec![] };
    let looked = |cred| bench.leases.look(at(2), cred, DIR, b"a");
    assert_eq!(looked(&stranger), Some(Err(Errno::Access)));
    assert_eq!(looked(&Cred::root()), Some(Ok(Some(FILE))));
}

#[test]
fn a_lookup_below_a_file_is_left_to_the_server() {
    let mut bench = Bench::new();
    bench.answered(at(0), &lookup(b"a"), Ok(Answer::Attr(file(FILE))));
    let anybody = Cred { uid: 7, gid: 7, groups: Vec::new() };
    assert_eq!(bench.leases.attr(at(1), FILE), Some(file(FILE)));
    assert_eq!(bench.leases.look(at(1), &anybody, FILE, b"b"), None);
}

#[test]
fn a_walk_caches_the_last_name_of_its_path() {
    let mut bench = Bench::new();
    let walk = Op::Read(ReadOp::Walk { base: Ino::ROOT, path: b"/d/a" });
    let attr = Some(file(FILE));
    bench.answered(at(0), &walk, Ok(Answer::Walked { parent: DIR, attr }));
    assert_eq!(bench.look(at(1), b"a"), Some(Some(FILE)));
    let walk = Op::Read(ReadOp::Walk { base: Ino::ROOT, path: b"/d/none" });
    bench.answered(at(0), &walk, Ok(Answer::Walked { parent: DIR, attr: None }));
    assert_eq!(bench.look(at(1), b"none"), Some(None));
}

#[test]
fn a_listing_holds_as_long_as_its_first_part() {
    let mut bench = Bench::new();
    let entry = |name: &[u8], ino| (name.to_vec(), file(Ino(ino)));
    let list = |after| Op::Read(ReadOp::List { dir: DIR, after, limit: 2, attrs: true });
    let first = vec![entry(b"a", 1), entry(b"b", 2)];
    bench.answered(at(0), &list(None), Ok(Answer::Entries { entries: first, more: true }));
    assert_eq!(bench.look(at(1), b"x"), None);
    let rest = vec![entry(b"c", 3)];
    let end = Answer::Entries { entries: rest, more: false };
    bench.answered(at(400), &list(Some(b"b")), Ok(end.clone()));
    assert_eq!(
        (bench.look(at(999), b"x"), bench.look(at(999), b"a")),
        (Some(None), Some(Some(Ino(1))))
    );
    assert_eq!((bench.look(at(1000), b"x"), bench.look(at(1000), b"a")), (None, None));
    assert_eq!(bench.look(at(1000), b"c"), Some(Some(Ino(3))));
    // The end of a listing without a valid beginning says nothing about missing names.
    bench.answered(
        at(5000),
        &list(None),
        Ok(Answer::Entries { entries: vec![entry(b"a", 1)], more: true }),
    );
    bench.answered(at(6000), &list(Some(b"a")), Ok(end));
    assert_eq!(bench.look(at(6001), b"x"), None);
}

/// The clock of a client: with an offset, and slower or faster by this many in a million.
fn clock(real: Moment, ppm: i64) -> Moment {
    let rate = u64::try_from(1_000_000 + ppm).expect("it runs forward");
    Moment(77_000_000_000 + real.0 / 1_000_000 * rate)
}

/// The times at which a client stops using a reply that came after this delay, and at which the
/// server stops delaying changes, both in real time.
fn ends(ppm: i64, asked: Moment, answered: Span) -> (Moment, Moment) {
    let mut bench = Bench::new();
    let tid = bench.ask(clock(asked, ppm), &lookup(b"a"));
    let told_at = asked + answered;
    bench.reply(tid, clock(told_at, ppm), grants(), Ok(Answer::Attr(file(FILE))));
    let used = |real: &Moment| bench.look(clock(*real, ppm), b"a").is_some();
    let mut steps = (0..3000).map(|millis| asked + Span::from_millis(millis));
    let last = steps.rfind(used).unwrap_or(asked);
    (last, told_at + LEASE + SLACK)
}

#[test]
fn clocks_need_not_agree_and_may_drift_by_the_slack() {
    for ppm in [-9_900, -5_000, -100, 0, 100, 9_900, 200_000] {
        for answered in [0, 1, 300, 999, 2000] {
            let (used, waits) = ends(ppm, at(123_456), Span::from_millis(answered));
            assert!(used < waits, "{ppm} {answered}: {used:?} is not before {waits:?}");
        }
    }
    // Slower than that is outside of the promise; the test would notice.
    let (used, waits) = ends(-50_000, at(123_456), Span(0));
    assert!(used > waits);
}
