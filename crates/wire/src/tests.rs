use proptest::prelude::*;
use types::{
    Attr, AttrChange, ClientId, ConnId, Epoch, Errno, Ino, InoRange, Lock, LockKind, LockMode,
    Rank, Seq, Span, Stripe, Tid, Timestamp,
};

use crate::*;

#[test]
fn a_reply_says_which_request_it_answers() {
    let result = Err(Failure::from(Errno::NotFound));
    let (tid, seq, time) = (Tid(1 << 40), Seq(3), Timestamp(4));
    let reply = Message::Reply(Reply { tid, seq, time, safe: seq, grants: None, result });
    let frame = reply.to_frame();
    assert_eq!(answered(&frame), Some(tid));
    assert!((0..frame::HEADER_BYTES + 2).all(|length| answered(&frame[..length]).is_none()));
    assert_eq!(answered(&Message::Recall { ino: Ino(4) }.to_frame()), None);
}

fn attr() -> Attr {
    Attr {
        ino: Ino(1 << 41),
        mode: 0o100_644,
        nlink: 1,
        size: 77,
        mtime: Timestamp(-5),
        ctime: Timestamp(1_700_000_000_000_000_001),
        ..Attr::default()
    }
}

/// Two ranges: 2 from 5 on, 1 from 300 on.
const UNUSED: [u8; 5] = [5, 2, 0xac, 2, 1];

fn lock() -> Lock {
    Lock {
        kind: LockKind::Posix,
        mode: LockMode::Write,
        owner: 1 << 60,
        pid: 77,
        start: 5,
        end: u64::MAX,
    }
}

#[allow(clippy::too_many_lines, reason = "a line for each operation")]
fn ops() -> Vec<Op<'static>> {
    let (parent, name, ino) = (Ino(1), &b"name\xff"[..], Ino(1 << 40));
    let new =
        NewInode { mode: 0o100_600, owner: Some((1, 2)), data: b"data", ..NewInode::default() };
    vec![
        Op::Read(ReadOp::Lookup { parent, name }),
        Op::Read(ReadOp::Walk { base: parent, path: b"/a/b" }),
        Op::Read(ReadOp::GetAttr { ino }),
        Op::Change(ChangeOp::Create { parent, name, new }),
        Op::Change(ChangeOp::Link { ino, parent, name }),
        Op::Change(ChangeOp::Unlink { parent, name }),
        Op::Change(ChangeOp::Rmdir { parent, name }),
        Op::Change(ChangeOp::Rename {
            parent,
            name,
            new_parent: ino,
            new_name: b"new",
            flags: RenameFlags { no_replace: true, exchange: false },
        }),
        Op::Change(ChangeOp::SetAttr {
            ino,
            change: AttrChange { size: Some(9), ..AttrChange::default() },
        }),
        Op::Read(ReadOp::GetXattr { ino, name }),
        Op::Read(ReadOp::ListXattr { ino }),
        Op::Admin(AdminOp::WriteDown { parent: ino, name: b"x" }),
        Op::Session(SessionOp::Held { ino }),
        Op::Rank(RankOp::Split { dir: ino }),
        Op::Rank(RankOp::Join { dir: ino }),
        Op::Rank(RankOp::Arrive { dir: ino, moved: b"record" }),
        Op::Change(ChangeOp::SetXattr {
            ino,
            name,
            value: Some(b"v"),
            flags: XattrFlags::default(),
        }),
        Op::Read(ReadOp::GetData { ino }),
        Op::Change(ChangeOp::SetData { ino, data: b"content", size: 7 }),
        Op::Read(ReadOp::List { dir: ino, after: Some(b"x"), limit: 10, attrs: true }),
        Op::Session(SessionOp::Sync),
        Op::Read(ReadOp::GetPolicy { dir: ino }),
        Op::Change(ChangeOp::SetPolicy {
            path: b"/p",
            policy: b"consistency: rpcs",
            client: ClientId(7),
        }),
        Op::Job(JobOp::Decouple { path: b"/p", client: ClientId(3), policy: b"" }),
        Op::Job(JobOp::Extend { subtree: ino, count: 100 }),
        Op::Job(JobOp::Merge {
            subtree: ino,
            bytes: 1000,
            object: b"journal/x",
            flags: MergeFlags { release: true, ..MergeFlags::default() },
            unused: UnusedNumbers::new(&UNUSED),
        }),
        Op::Job(JobOp::Release { subtree: ino, unused: UnusedNumbers::default() }),
        Op::Admin(AdminOp::Checkpoint),
        Op::Job(JobOp::TakeOver { subtree: ino }),
        Op::Session(SessionOp::Open { ino, write: true }),
        Op::Session(SessionOp::Close { ino, write: false }),
        Op::Session(SessionOp::Reopen {
            ino,
            access: Access { read: true, write: false, shared: true },
        }),
        Op::Session(SessionOp::Yield { ino }),
        Op::Change(ChangeOp::Grow { ino, size: 1 << 30 }),
        Op::Change(ChangeOp::Append { ino, length: 300 }),
        Op::Session(SessionOp::Lock { ino, lock: lock(), wait: true }),
        Op::Session(SessionOp::CancelLock { ino, lock: lock() }),
        Op::Session(SessionOp::GetLock { ino, lock: Lock { mode: LockMode::Read, ..lock() } }),
        Op::Session(SessionOp::Return { dir: ino }),
        Op::Session(SessionOp::AwaitAsync),
        Op::Rank(RankOp::Export { dir: ino, rank: Rank(2) }),
        Op::Rank(RankOp::Colocate { ino, rank: Rank(1) }),
        Op::Admin(AdminOp::Snapshot { dir: ino, id: u64::MAX }),
        Op::Job(JobOp::Adopt { subtree: ino, branch: b"nightly", block: true }),
        Op::Change(ChangeOp::Accessed { ino, at: Timestamp(-5) }),
        Op::Change(ChangeOp::Discard { parent, name }),
        Op::Change(ChangeOp::Restore { ino, parent, name }),
        Op::Change(ChangeOp::EmptyTrash { ino }),
        Op::Read(ReadOp::ListTrash { after: Some(b"x"), limit: 3 }),
        Op::Read(ReadOp::Watch { path: b"/a", after: None, wait: 0 }),
        Op::Read(ReadOp::Watch {
            path: b"/",
            after: Some(WatchPoint { term: Epoch(3), next: 300 }),
            wait: 2000,
        }),
    ]
}

fn answers() -> Vec<Answer> {
    vec![
        Answer::Done,
        Answer::Attr(attr()),
        Answer::Walked { parent: Ino(4), attr: Some(attr()) },
        Answer::Entries { entries: vec![(b"n".to_vec(), attr())], more: true },
        Answer::Data(vec![1, 2]),
        Answer::Names(vec![b"user.a".to_vec()]),
        Answer::Policy(EffectivePolicy::default()),
        Answer::Decoupled(Decoupled {
            root: attr(),
            range: InoRange { start: 5, end: 10 },
            epoch: Epoch(2),
            empty: true,
        }),
        Answer::Range(InoRange { start: 1, end: 2 }),
        Answer::Merged(Box::new(MergeReport {
            events: 1,
            samples: vec![MergeSample {
                kind: SampleKind::Rejected,
                errno: Some(types::Errno::Exists),
                parent: Ino(1),
                name: b"x".to_vec(),
                path: b"/a/x".to_vec(),
            }],
            ..MergeReport::default()
        })),
        Answer::Safe(Seq(9)),
        Answer::Pending(ClientId(7)),
        Answer::Opened(Opened { attr: attr(), data: b"small".to_vec(), shared: true }),
        Answer::Locked(Some((ClientId(3), lock()))),
        Answer::Snapshot(7),
        Answer::Redirect(Box::new(Redirect {
            rank: Rank(1),
            root: Ino(4),
            parent: Ino(5),
            rest: b"a/b".to_vec(),
        })),
        Answer::Fragments(Box::new(Fragments {
            attr: attr(),
            frag: types::Frag { bits: 3, value: 1 << 29 },
            parts: [1_u16, 2, 3, 4, 5, 6, 7, 8].map(|at| (Ino(u64::from(at)), Rank(at % 3))),
            rest: b"name".to_vec(),
        })),
        Answer::Watched(Box::new(WatchPage {
            next: WatchPoint { term: Epoch(3), next: 301 },
            more: true,
            changes: vec![(300, watched())],
            ..WatchPage::default()
        })),
    ]
}

fn watched() -> WatchedChange {
    let name = |path: &[u8]| Some(ChangedName { dir: Ino(1), path: path.to_vec() });
    WatchedChange {
        time: Timestamp(-5),
        kind: ChangeKind::Rename,
        ino: Ino(4),
        at: name(b"/a"),
        to: name(b"/b\xff"),
        other: Ino(5),
        number: 6,
        xattr: b"user.x".to_vec(),
        ..WatchedChange::default()
    }
}

fn map() -> ClusterMap {
    ClusterMap {
        epoch: Epoch(4),
        cluster: "c".into(),
        store: "dir:/x".into(),
        next_client: ClientId(8),
        mds: vec![MdsEntry {
            rank: Rank(0),
            counters: vec![("requests".into(), 5)],
            state: MdsState::Active,
            ..MdsEntry::default()
        }],
        policies: vec![PolicyEntry::default()],
        decoupled: vec![DecoupledSubtree::default()],
        balancers: vec![balancer()],
        warnings: vec![(Rank(3), warning())],
        revoked: vec![7, u64::MAX],
    }
}

fn balancer() -> BalancerEntry {
    let (name, why) = ("greedy-spill".into(), "revert".into());
    BalancerEntry { version: 5, object: 2, name, time: Timestamp(7), why, failed: true }
}

fn warning() -> Warning {
    Warning { code: "CODE".into(), text: "text".into(), remedy: "remedy".into() }
}

fn mon_ops() -> Vec<MonOp<'static>> {
    let path = &b"/p"[..];
    vec![
        MonOp::Register,
        MonOp::Status,
        MonOp::Decouple { path, client: ClientId(1), policy: b"x" },
        MonOp::SetPolicy { path, policy: b"", client: ClientId(7) },
        MonOp::Stop,
        MonOp::SetBalancer { name: b"name", text: b"text" },
        MonOp::RevertBalancer,
        MonOp::BalancerLog { after: 300 },
    ]
}

fn mon_answers() -> Vec<MonAnswer> {
    vec![
        MonAnswer::Done,
        MonAnswer::Client(ClientId(3)),
        MonAnswer::Map(Box::new(map())),
        MonAnswer::Decoupled(Decoupled::default()),
        MonAnswer::Balancer(balancer()),
        MonAnswer::BalancerLog { before: 3, records: vec![b"one".to_vec(), Vec::new()] },
    ]
}

fn peer_messages() -> impl Iterator<Item = Message<'static>> {
    let steps = [
        TransferStep::AskSubtree { root: Ino(1 << 41) },
        TransferStep::Reserved { fence: 300 },
        TransferStep::Refused { errno: Errno::Busy, why: "it is stopping".into() },
        TransferStep::Committed,
        TransferStep::Stayed,
    ];
    let transfer = |step| PeerBody::Transfer { giver: Rank(2), number: 1 << 33, step };
    let (number, cred) = (300, Cred { uid: 7, gid: 8, groups: vec![9] });
    let op = Op::Rank(RankOp::Arrive { dir: Ino(1 << 40), moved: b"record" });
    let failure = Failure { errno: Errno::Busy, text: "pinned".into() };
    let questions = [
        PeerBody::Hello,
        PeerBody::Ask { number, cred, op },
        PeerBody::Answer { number, result: Ok(Answer::Done) },
        PeerBody::Answer { number, result: Err(failure) },
    ];
    let bodies = questions.into_iter().chain(steps.map(transfer));
    bodies.map(|body| {
        let (from, term, to) = (Rank(2), Epoch(9), Rank(300));
        Message::Peer(Box::new(PeerMessage { from, term, to, body }))
    })
}

#[test]
fn a_message_between_servers_of_another_version_is_refused() {
    let peer = PeerMessage { from: Rank(1), term: Epoch(2), to: Rank(0), body: PeerBody::Hello };
    let mut bytes = Vec::new();
    Message::Peer(Box::new(peer)).encode(&mut bytes);
    assert_eq!(bytes, [17, PEER_VERSION, 1, 2, 0, 0]);
    bytes[1] += 1;
    assert!(Message::decode(&bytes).is_err());
}

fn traces() -> Vec<Message<'static>> {
    vec![
        Message::Trace { tid: Tid(9) },
        Message::Traced(Box::new(Traced {
            tid: Tid(9),
            steps: Ok(vec![TraceStep {
                at: Span(1_000),
                part: TracePart::Journal,
                text: "append".into(),
            }]),
        })),
        Message::Traced(Box::new(Traced { tid: Tid(9), steps: Err(Errno::Busy.into()) })),
    ]
}

fn messages() -> Vec<Message<'static>> {
    let cred = Cred { uid: 7, gid: 8, groups: vec![1, 2] };
    let mut all = vec![
        Message::Hello(Hello::default()),
        Message::Welcome(Welcome::default()),
        Message::Chunk { tid: Tid(4), bytes: b"bytes" },
        Message::Beacon(Beacon {
            address: "unix:/x".into(),
            decoupled: vec![DecoupledSubtree {
                client: ClientId(4),
                ..DecoupledSubtree::default()
            }],
            warnings: vec![warning()],
            given_up: (4, "line 3".into()),
            ..Beacon::default()
        }),
        Message::Map(Box::new(map())),
        Message::Stop,
        Message::Recall { ino: Ino(1 << 40) },
        Message::Revoke { dir: Ino(1 << 41) },
        Message::Moved { to: Rank(3), files: vec![Ino(1 << 40), Ino(1 << 41)] },
        Message::Batch(Batch::new(b"some bytes")),
        Message::Heartbeat(b"beat"),
        Message::Balanced(b"record"),
    ];
    all.extend(peer_messages());
    all.extend(traces());
    let wants = [WantsExclusive::Never, WantsExclusive::AsPolicySays, WantsExclusive::Always];
    for (tid, op) in ops().into_iter().enumerate() {
        let wants_exclusive = wants[tid % wants.len()];
        let replay = (tid % 2 == 0).then_some(Replay {
            seq: Seq(1),
            stripe: Stripe::MIN,
            ..Replay::default()
        });
        let (tid, acked) = (Tid(tid as u64), Tid(tid as u64 / 2));
        all.push(Message::Request(Request {
            tid,
            acked,
            cred: cred.clone(),
            remembers: true,
            wants_exclusive,
            is_async: replay.is_some(),
            replay,
            op,
        }));
    }
    let reply = |result: Result<Answer, Failure>| {
        let grants = result.is_ok().then(|| Grants {
            dir: attr(),
            inode: true,
            exclusive: Some(Stripe::MIN),
            new_exclusive: Some(Stripe::MIN),
            lease: Some(Span::from_millis(1000)),
        });
        let (tid, seq, time, safe) = (Tid(1), Seq(2), Timestamp(3), Seq(1));
        Message::Reply(Reply { tid, seq, time, safe, grants, result })
    };
    all.extend(answers().into_iter().map(|answer| reply(Ok(answer))));
    all.push(reply(Err(Failure { errno: Errno::Busy, text: "why".into() })));
    for op in mon_ops() {
        all.push(Message::MonRequest { tid: Tid(1), cred: cred.clone(), op });
    }
    for answer in mon_answers() {
        all.push(Message::MonReply { tid: Tid(1), result: Ok(answer) });
    }
    all
}

#[test]
fn every_message_survives_the_round_trip_and_every_truncation_is_refused() {
    for message in messages() {
        let bytes = message.to_frame();
        let (frame, length) = frame::decode(&bytes).expect("intact").expect("whole");
        assert_eq!(length, bytes.len());
        assert_eq!(Message::decode(frame.payload).as_ref(), Ok(&message));
        for cut in 0..frame.payload.len() {
            assert!(Message::decode(&frame.payload[..cut]).is_err(), "{message:?} cut at {cut}");
        }
        for cut in 0..bytes.len() {
            assert!(matches!(frame::decode(&bytes[..cut]), Ok(None)), "incomplete, not wrong");
        }
    }
}

#[test]
fn every_bit_flip_in_a_frame_is_noticed() {
    let bytes = Message::Welcome(Welcome { epoch: Epoch(3), ..Welcome::default() }).to_frame();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(!matches!(frame::decode(&damaged), Ok(Some(_))), "flip of bit {bit}");
    }
}

#[test]
fn other_versions_and_foreign_protocols_are_named() {
    let mut bytes = Message::Stop.to_frame();
    bytes[4] = crate::VERSION + 1;
    assert_eq!(frame::decode(&bytes).err(), Some(FrameError::Version(crate::VERSION + 1)));
    assert!(matches!(frame::decode(b"GET / HTTP/1.1\r\n"), Err(FrameError::Length(_))));
}

#[test]
fn the_stored_map_omits_the_periodic_reports_of_servers() {
    let mut bytes = Vec::new();
    map().encode(&mut bytes, false);
    let stored = ClusterMap::decode(&mut types::bytes::Reader::new(&bytes)).expect("a map");
    let mut expected = map();
    expected.mds[0].counters.clear();
    expected.decoupled.clear();
    expected.warnings.clear();
    assert_eq!(stored, expected);
}

#[test]
fn an_outbox_keeps_messages_apart_and_in_order() {
    let mut outbox = Outbox::default();
    let messages = [
        (ConnId(2), Message::Stop),
        (ConnId(1), Message::Welcome(Welcome::default())),
        (ConnId(2), Message::Chunk { tid: Tid(1), bytes: b"x" }),
    ];
    for (conn, message) in &messages {
        outbox.send(*conn, message);
    }
    let frames: Vec<_> = outbox.iter().collect();
    let expected: Vec<_> = messages.iter().map(|(c, m)| (*c, m.to_frame())).collect();
    assert_eq!(frames.len(), expected.len());
    for ((conn, frame), (to, bytes)) in frames.iter().zip(&expected) {
        assert_eq!((conn, *frame), (to, bytes.as_slice()));
    }
    outbox.clear();
    assert!(outbox.is_empty() && outbox.frames.is_empty());
}

#[test]
fn unused_numbers_are_a_list_of_ranges() {
    let ranges = [InoRange { start: 5, end: 7 }, InoRange { start: 300, end: 301 }];
    assert_eq!(UnusedNumbers::encode(&ranges), UNUSED);
    assert_eq!(UnusedNumbers::new(&UNUSED).ranges().collect::<Vec<_>>(), ranges);
    assert_eq!(UnusedNumbers::default().ranges().count(), 0);
    let mut bytes = Vec::new();
    Op::Job(JobOp::Release { subtree: Ino(1), unused: UnusedNumbers::new(&UNUSED[..3]) })
        .encode(&mut bytes);
    assert!(Op::decode(&mut types::bytes::Reader::new(&bytes)).is_err(), "half a range");
}

/// The requests of a batch, with the values of which they were made.
fn read(batch: Batch<'_>) -> Vec<(Tid, Tid, Cred, Replay, String)> {
    let (mut requests, mut all) = (batch.requests(), Vec::new());
    while let Some(request) = requests.read().expect("our own") {
        assert!(request.is_async);
        let Request { tid, acked, ref cred, replay, op, .. } = *request;
        all.push((tid, acked, cred.clone(), replay.expect("always"), format!("{op:?}")));
    }
    all
}

#[test]
fn a_batch_says_each_request_by_how_it_differs() {
    let like = |name| {
        Op::Change(ChangeOp::Create {
            parent: Ino(7),
            name,
            new: NewInode { mode: 0o100_644, open: true, ..NewInode::default() },
        })
    };
    let (root, other) = (Cred::root(), Cred { uid: 7, gid: 8, groups: vec![1, 2] });
    let replay = |ino, time| Replay { ino: Ino(ino), time: Timestamp(time), ..Replay::default() };
    let far = Replay { seq: Seq(u64::MAX), stripe: Stripe::MIN, ..replay(0, i64::MIN) };
    let (mut writer, mut wanted) = (BatchWriter::default(), Vec::new());
    let mut lengths = Vec::new();
    let mut push = |tid, acked, cred: &Cred, replay, op: Op<'_>| {
        let before = writer.bytes();
        writer.push(Tid(tid), Tid(acked), cred, replay, &op);
        lengths.push(writer.bytes() - before);
        wanted.push((Tid(tid), Tid(acked), cred.clone(), replay, format!("{op:?}")));
    };
    push(1 << 50, 1 << 49, &root, replay(1 << 41, 1 << 60), like(b"file.0000001"));
    push(
        (1 << 50) + 1,
        1 << 49,
        &root,
        replay((1 << 41) + 1, (1 << 60) + 50),
        like(b"file.0000002"),
    );
    push(
        (1 << 50) + 2,
        1 << 49,
        &other,
        far,
        Op::Change(ChangeOp::Unlink { parent: Ino(7), name: b"x" }),
    );
    push((1 << 50) + 3, 1 << 49, &root, replay((1 << 41) + 2, 5), like(b"file.0000003"));
    for (at, op) in (0..).zip(ops()) {
        push(at, at / 2, if at % 3 == 0 { &root } else { &other }, replay(at, i64::MAX), op);
    }
    assert_eq!(read(writer.batch()), wanted);
    assert_eq!(lengths[1], 1 + 1 + 13, "flags, time, name");
}

#[test]
fn garbage_after_a_valid_batch_is_refused_at_its_offset() {
    let mut writer = BatchWriter::default();
    writer.push(
        Tid(1),
        Tid(0),
        &Cred::root(),
        Replay::default(),
        &Op::Session(SessionOp::AwaitAsync),
    );
    let good = writer.bytes();
    let mut bytes = Vec::new();
    for end in [&[1 << 7][..], &[1 << 5, 1, 0], &[0]] {
        bytes.clear();
        Message::Batch(writer.batch()).encode(&mut bytes);
        let mut bytes = bytes.split_off(bytes.len() - good);
        bytes.extend_from_slice(end);
        let mut requests = Batch::new(&bytes).requests();
        assert!(
            matches!(requests.read(), Ok(Some(request)) if request.op == Op::Session(SessionOp::AwaitAsync))
        );
        let malformed = requests.read().expect_err("flags, nothing to be like, the end");
        assert!(malformed.offset >= good, "{malformed}");
    }
}

/// The page that documents the bytes.
const PAGE: &str = include_str!("../../../docs/formats/wire.md");

/// The name of a variant.
fn variant(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    text.chars().take_while(char::is_ascii_alphanumeric).collect()
}

/// The section of the page under a heading, up to the next one.
fn section(heading: &str) -> &'static str {
    let start = PAGE.find(&format!("\n## {heading}\n")).expect("the page has the section") + 1;
    let rest = &PAGE[start..];
    rest.find("\n## ").map_or(rest, |end| &rest[..end])
}

#[test]
fn the_page_lists_every_code_with_its_name() {
    let first = |heading: &str, code: u8, name: String| {
        let row = format!("\n| {code} | `{name}` |");
        assert!(section(heading).contains(&row), "{heading} lacks {row:?}");
    };
    for message in messages() {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        first("Messages", bytes[0], variant(&message));
    }
    for op in ops() {
        let mut bytes = Vec::new();
        op.encode(&mut bytes);
        let kind = format!("{}(", variant(&op));
        let inner = format!("{op:?}").split_off(kind.len());
        first("Operations", bytes[0], variant(&format_args!("{inner}")));
    }
    for answer in answers() {
        let mut bytes = Vec::new();
        answer.encode(&mut bytes);
        first("Answers", bytes[0], variant(&answer));
    }
    for op in mon_ops() {
        let mut bytes = Vec::new();
        op.encode(&mut bytes);
        first("Requests to the monitor", bytes[0], variant(&op));
    }
    for answer in mon_answers() {
        let mut bytes = Vec::new();
        answer.encode(&mut bytes);
        first("Answers of the monitor", bytes[0], variant(&answer));
    }
}

/// A frame, one line for each of its parts.
fn annotated(frame: &[u8], parts: &[(usize, &str)]) -> String {
    let mut text = String::from("```\n");
    let mut at = 0;
    for (length, meaning) in parts {
        let bytes = types::hex::spaced(&frame[at..at + length]);
        text += &format!("{at:04x}  {bytes:<24}{meaning}\n");
        at += length;
    }
    assert_eq!(at, frame.len(), "every byte is explained");
    text + "```\n"
}

#[test]
fn the_examples_of_the_page_are_what_is_sent() {
    let cred = Cred { uid: 1000, gid: 100, groups: vec![] };
    let op = Op::Read(ReadOp::Lookup { parent: Ino(1 << 40), name: b"book" });
    let (tid, acked) = (Tid(300), Tid(299));
    let request = Request::new(tid, acked, cred, op);
    let request = Message::Request(request).to_frame();
    let parts = [
        (4, "length of the payload: 21"),
        (1, "version 11"),
        (3, "reserved"),
        (4, "checksum"),
        (1, "message 3: Request"),
        (2, "tid 300"),
        (1, "acked: all up to 1 before it"),
        (2, "uid 1000"),
        (1, "gid 100"),
        (1, "no further groups"),
        (1, "not a replay"),
        (1, "operation 1: Lookup"),
        (6, "parent: inode 2^40"),
        (1, "length of the name"),
        (4, "name: book"),
    ];
    let text = annotated(&request, &parts);
    assert!(PAGE.contains(&text), "the page should say\n{text}");

    let failure = Failure { errno: Errno::Again, text: "later".into() };
    let reply = Message::MonReply { tid: Tid(1), result: Err(failure) }.to_frame();
    let parts = [
        (4, "length of the payload: 11"),
        (1, "version 11"),
        (3, "reserved"),
        (4, "checksum"),
        (1, "message 7: MonReply"),
        (1, "tid 1"),
        (1, "failure"),
        (2, "error number 11: EAGAIN"),
        (1, "length of the text"),
        (5, "text: later"),
    ];
    let text = annotated(&reply, &parts);
    assert!(PAGE.contains(&text), "the page should say\n{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn arbitrary_bytes_are_no_batch_that_panics(bytes in prop::collection::vec(any::<u8>(), 0..99)) {
        let mut requests = Batch::new(&bytes).requests();
        while let Ok(Some(_)) = requests.read() {}
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzz::decode(&bytes);
    }

    #[test]
    fn mutated_messages_never_panic(
        which in any::<prop::sample::Index>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let messages = messages();
        let mut bytes = Vec::new();
        which.get(&messages).encode(&mut bytes);
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        fuzz::decode(&bytes);
    }
}

#[test]
fn a_frame_says_its_length_before_it_is_there_and_a_lower_limit_holds() {
    let mut frame = Vec::new();
    frame::encode(&mut frame, |out| out.resize(out.len() + 100, 7));
    assert_eq!(frame::announced(&frame[..3]), None);
    assert_eq!(frame::announced(&frame[..4]), Some(frame.len()));
    assert_eq!(frame::decode_up_to(&frame[..20], 100).map(|found| found.is_some()), Ok(false));
    assert!(frame::decode_up_to(&frame, 100).is_ok_and(|found| found.is_some()));
    assert_eq!(frame::decode_up_to(&frame[..20], 99).err(), Some(FrameError::Length(100)));
    let failure = Failure { errno: Errno::Busy, text: "full".into() };
    let refusal = Reply::refusal(failure.clone());
    assert_eq!(refusal.refused(), Some(&failure));
    assert_eq!(Reply { tid: Tid(1), ..refusal }.refused(), None);
}
