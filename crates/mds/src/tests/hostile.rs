//! Hostile clients: any message in any order, in their own session and in others', on two ranks. A
//! server that panics serves nobody, and every input is followed by a check of all invariants.

mod frames;
mod reports;

use journal::JournalBuffer;
use metastore::MovedName;
use types::rng::Rng;
use types::{
    Attr, AttrChange, ClientId, ConnId, Cred, EntryName, Epoch, Errno, Ino, KeyRule, KeyRules,
    Lock, LockKind, LockMode, Origin, Peer, Rank, RenameFlags, Seq, Tid, Timestamp, XattrFlags,
};
use wire::{
    Access, AdminOp, Answer, ChangeOp, Failure, Hello, JobOp, MergeFlags, Message, NewInode, Op,
    PeerBody, PeerMessage, RankOp, ReadOp, Redirect, Replay, Request, SessionOp, TransferStep,
    UnusedNumbers, WantsExclusive, WatchPoint,
};

use super::Cluster;
use super::cluster::{DIR, FILE, user};
use super::fixture::Tree;
use crate::{MdsInput, Settings};

/// Seeds of an ordinary run, and the messages of each.
const SEEDS: u64 = 24;
const MESSAGES: usize = 250;
/// Connections, and the clients that they say they are.
const CONNS: u64 = 4;
/// The first number of the hostile connections: the honest client has a lower one.
const FIRST_CONN: u64 = 1000;

const NAMES: [&[u8]; 7] = [b"dir", b"file", b"sub", b"full", b"x", b"", b"a/../b"];
const PATHS: [&[u8]; 6] = [b"/", b"/dir", b"/dir/full", b"/open", b"/nothing", b"no path"];
const POLICIES: [&[u8]; 5] = [
    b"",
    b"consistency: rpcs\ndurability: stream\n",
    b"consistency: append_client_journal+volatile_apply\ndurability: none\nallocated_inodes: 10\n",
    b"consistency: rpcs\ndurability: stream\ncache: lease\ntrash: 1h\n",
    b"\xff: no policy",
];

struct Hostile {
    cluster: Tree,
    choice: Rng,
    inos: Vec<Ino>,
    /// A lower bound of the request numbers that were not used yet.
    tid: u64,
}

impl Hostile {
    fn new(seed: u64) -> Self {
        Self::on(seed, Tree::on(Cluster::with(Settings::default(), 2)))
    }

    fn on(seed: u64, cluster: Tree) -> Self {
        let of_other = Ino::space_of(Rank(1)).start;
        let first = Ino::space_of(Rank(0)).start;
        let mut inos = vec![Ino(0), Ino::ROOT, Ino::LINKS, Ino::ANCHOR, Ino::TRASH, Ino(u64::MAX)];
        inos.extend([cluster.dir, cluster.file, cluster.link, cluster.sub, cluster.full]);
        inos.extend([cluster.open, Ino::mount_stub(cluster.dir), Ino(of_other), Ino(first)]);
        Self { cluster, choice: Rng::new(seed), inos, tid: 1 }
    }

    /// The keys of some connections have rules.
    fn limit_some(&mut self) {
        for conn in (0..CONNS).map(|conn| ConnId(FIRST_CONN + conn)) {
            if self.choice.percent(75) {
                continue;
            }
            let rules = ["read:/", "read,write,merge:/dir", "decouple,branch,balance:/open"];
            let rule = KeyRule::parse(self.choice.pick(&rules)).unwrap();
            let with_root = self.choice.percent(50);
            let host = if with_root { Peer::host() } else { Peer::host_without_root() };
            let peer = Peer::Limited(Box::new(host), KeyRules::new(vec![rule]).unwrap());
            for rank in 0..2 {
                self.cluster.input(rank, MdsInput::Opened(conn, peer.clone()));
            }
        }
    }

    fn ino(&mut self) -> Ino {
        let known = self.choice.pick(&self.inos);
        match self.choice.below(8) {
            0 => Ino(known.0.wrapping_add(self.choice.below(40))),
            1 => Ino(self.choice.bits()),
            _ => known,
        }
    }

    fn name(&mut self) -> &'static [u8] {
        self.choice.pick(&NAMES)
    }

    fn number(&mut self) -> u64 {
        let small = self.choice.below(100);
        match self.choice.below(4) {
            0 => u64::MAX - small,
            1 => self.choice.bits(),
            _ => small,
        }
    }

    fn rank(&mut self) -> Rank {
        self.choice.pick(&[Rank(0), Rank(1), Rank(2), Rank(u16::MAX)])
    }

    fn client(&mut self) -> ClientId {
        // The honest client is 1. A connection that says that it is another one's client takes that
        // client's session over.
        self.choice.pick(&[0, 2, 3, 4, 5, u64::MAX].map(ClientId))
    }

    fn yes(&mut self) -> bool {
        self.choice.percent(50)
    }

    fn lock(&mut self) -> Lock {
        let kind = if self.yes() { LockKind::Posix } else { LockKind::Flock };
        let mode = self.choice.pick(&[LockMode::Unlock, LockMode::Read, LockMode::Write]);
        let (owner, pid) = (self.choice.below(3), 1);
        Lock { kind, mode, owner, pid, start: self.number(), end: self.number() }
    }

    fn file_change(&mut self, ino: Ino) -> Op<'static> {
        match self.choice.below(8) {
            0 => Op::Session(SessionOp::Open { ino, write: self.yes() }),
            1 => Op::Session(SessionOp::Close { ino, write: self.yes() }),
            2 => {
                let access = Access { read: self.yes(), write: self.yes(), shared: self.yes() };
                Op::Session(SessionOp::Reopen { ino, access })
            }
            3 => Op::Session(SessionOp::Yield { ino }),
            4 => Op::Session(SessionOp::Lock { ino, lock: self.lock(), wait: self.yes() }),
            5 => Op::Session(SessionOp::CancelLock { ino, lock: self.lock() }),
            6 => Op::Session(SessionOp::Return { dir: ino }),
            _ => Op::Session(SessionOp::AwaitAsync),
        }
    }

    fn change(&mut self, ino: Ino) -> Op<'static> {
        let (name, parent) = (self.name(), ino);
        match self.choice.below(14) {
            0 | 1 => {
                let mode = self.choice.pick(&[FILE, DIR, DIR | 0o777, 0, u32::MAX]);
                Op::Change(ChangeOp::Create {
                    parent,
                    name,
                    new: NewInode { mode, ..NewInode::default() },
                })
            }
            2 => Op::Change(ChangeOp::Link { ino: self.ino(), parent, name }),
            3 => Op::Change(ChangeOp::Unlink { parent, name }),
            4 => Op::Change(ChangeOp::Rmdir { parent, name }),
            5 => {
                let flags = RenameFlags { exchange: self.yes(), ..RenameFlags::default() };
                Op::Change(ChangeOp::Rename {
                    parent,
                    name,
                    new_parent: self.ino(),
                    new_name: self.name(),
                    flags,
                })
            }
            6 => {
                let size = Some(self.number());
                Op::Change(ChangeOp::SetAttr {
                    ino,
                    change: AttrChange { size, ..AttrChange::default() },
                })
            }
            7 => Op::Change(ChangeOp::SetData { ino, data: b"data", size: self.number() }),
            8 => Op::Change(ChangeOp::Grow { ino, size: self.number() }),
            9 => Op::Change(ChangeOp::Append { ino, length: self.number() }),
            10 => Op::Change(ChangeOp::Discard { parent, name }),
            11 => Op::Change(ChangeOp::Restore { ino: self.ino(), parent, name }),
            12 => Op::Change(ChangeOp::EmptyTrash { ino }),
            _ => {
                let (value, flags) = (Some(&b"value"[..]), XattrFlags::default());
                Op::Change(ChangeOp::SetXattr { ino, name: b"user.x", value, flags })
            }
        }
    }

    fn whole(&mut self, ino: Ino) -> Op<'static> {
        let (path, policy) = (self.choice.pick(&PATHS), self.choice.pick(&POLICIES));
        match self.choice.below(17) {
            0 => Op::Change(ChangeOp::SetPolicy { path, policy, client: self.client() }),
            1 | 2 => Op::Job(JobOp::Decouple { path, client: self.client(), policy }),
            3 => Op::Job(JobOp::Extend { subtree: ino, count: self.number() }),
            4 => Op::Job(JobOp::Release { subtree: ino, unused: UnusedNumbers::default() }),
            5 => Op::Job(JobOp::TakeOver { subtree: ino }),
            6 => {
                let (bytes, unused) = (self.choice.below(64), UnusedNumbers::default());
                let (check, dry_run) = (self.yes(), self.yes());
                let flags = MergeFlags { check, dry_run, ..MergeFlags::default() };
                Op::Job(JobOp::Merge { subtree: ino, bytes, object: b"no journal", flags, unused })
            }
            7 => Op::Rank(RankOp::Export { dir: ino, rank: self.rank() }),
            8 => Op::Rank(RankOp::Colocate { ino, rank: self.rank() }),
            9 => Op::Rank(RankOp::Split { dir: ino }),
            10 => Op::Rank(RankOp::Join { dir: ino }),
            11 => Op::Change(ChangeOp::Link { ino, parent: self.ino(), name: self.name() }),
            12 => {
                Op::Rank(RankOp::Arrive { dir: ino, moved: self.moved_name(ino, Rank(1), Rank(0)) })
            }
            13 => Op::Change(ChangeOp::Rmdir { parent: ino, name: self.name() }),
            14 => Op::Admin(AdminOp::Snapshot { dir: ino, id: self.number() }),
            15 => {
                let (name, new_parent, new_name) = (self.name(), self.ino(), self.name());
                let flags = RenameFlags { no_replace: self.yes(), exchange: false };
                Op::Change(ChangeOp::Rename { parent: ino, name, new_parent, new_name, flags })
            }
            _ => Op::Job(JobOp::Adopt { subtree: ino, branch: b"branch", block: self.yes() }),
        }
    }

    /// The record of a name that goes to a directory: mostly one that a rank could send.
    fn moved_name(&mut self, dir: Ino, from: Rank, to: Rank) -> &'static [u8] {
        if self.choice.percent(20) {
            return self.name();
        }
        let parent = self.cluster.dir;
        let name = if self.choice.percent(80) { b"full" } else { self.name() };
        let planned = self.cluster.mds(0).namespace().plan().departure(
            &Cred::root(),
            EntryName::new(parent, name),
            Timestamp(1),
        );
        let mut buffer = JournalBuffer::new(Seq(1), true);
        if let Ok((_, planned)) = planned {
            buffer.append(Origin::default(), &planned.event());
        }
        buffer.close_block();
        let record = MovedName {
            from: if self.choice.percent(80) { from } else { self.rank() },
            // A repeated question is about the same name.
            number: self.choice.below(8),
            to: if self.choice.percent(80) { to } else { self.rank() },
            is_dir: self.yes(),
            no_replace: self.yes(),
            is_given: self.choice.percent(10),
            is_taken: self.choice.percent(10),
            ino: self.ino(),
            parent,
            name: name.to_vec(),
            new_parent: if self.choice.percent(80) { dir } else { self.ino() },
            new_name: if self.yes() { b"came" } else { self.name() }.to_vec(),
            time: Timestamp(self.number().cast_signed()),
            inode: buffer.take_blocks().concat(),
            request: (self.client(), Tid(self.number())),
        };
        record.encode().leak()
    }

    fn question(&mut self, ino: Ino) -> Op<'static> {
        let name = self.name();
        match self.choice.below(10) {
            8 => {
                let point = WatchPoint { term: Epoch(self.choice.below(4)), next: self.number() };
                let after = self.yes().then_some(point);
                let path = self.choice.pick(&PATHS);
                Op::Read(ReadOp::Watch { path, after, wait: u32::MAX })
            }
            7 => {
                let limit = u32::try_from(self.choice.below(3)).expect("a small number");
                Op::Read(ReadOp::ListTrash { after: Some(name), limit })
            }
            0 => Op::Read(ReadOp::Lookup { parent: ino, name }),
            1 => Op::Read(ReadOp::Walk { base: ino, path: self.choice.pick(&PATHS) }),
            2 => Op::Read(ReadOp::GetAttr { ino }),
            3 => Op::Read(ReadOp::List { dir: ino, after: None, limit: 3, attrs: self.yes() }),
            4 => Op::Read(ReadOp::GetPolicy { dir: ino }),
            5 => Op::Admin(AdminOp::WriteDown { parent: ino, name }),
            6 => Op::Session(SessionOp::Held { ino }),
            _ => Op::Session(SessionOp::Sync),
        }
    }

    fn request(&mut self) -> Message<'static> {
        let ino = self.ino();
        let op = match self.choice.below(4) {
            0 => self.file_change(ino),
            1 => self.change(ino),
            2 => self.whole(ino),
            _ => self.question(ino),
        };
        // Mostly a new number, now and then one from before, or of the far future.
        self.tid += 1;
        let tid = match self.choice.below(12) {
            0 => self.choice.below(self.tid),
            1 => self.tid + 1_000_000,
            _ => self.tid,
        };
        let cred = if self.yes() { Cred::root() } else { user(7) };
        let replayed = |hostile: &mut Self| Replay {
            seq: Seq(hostile.number()),
            ino: hostile.ino(),
            time: Timestamp(hostile.number().cast_signed()),
            ..Replay::default()
        };
        let replay = self.choice.percent(20).then(|| replayed(self));
        let acked = Tid(self.choice.below(self.tid));
        let wants = [WantsExclusive::Never, WantsExclusive::AsPolicySays, WantsExclusive::Always];
        Message::Request(Request {
            replay,
            remembers: self.yes(),
            wants_exclusive: self.choice.pick(&wants),
            is_async: self.choice.percent(15),
            ..Request::new(Tid(tid), acked, cred, op)
        })
    }

    /// A client that says that it is a rank.
    fn peer_message(&mut self) -> PeerMessage<'static> {
        let step = match self.choice.below(5) {
            0 => TransferStep::AskSubtree { root: self.ino() },
            1 => TransferStep::Reserved { fence: self.number() },
            2 => TransferStep::Refused { errno: Errno::Busy, why: "no".into() },
            3 => TransferStep::Committed,
            _ => TransferStep::Stayed,
        };
        let (number, ino, from) = (self.number(), self.ino(), self.rank());
        let to = self.choice.pick(&[Rank(0), Rank(1)]);
        let body = match self.choice.below(5) {
            4 => {
                let dir = self.choice.pick(&[self.cluster.dir, self.cluster.full, ino]);
                let op = Op::Rank(RankOp::Arrive { dir, moved: self.moved_name(dir, from, to) });
                PeerBody::Ask { number, cred: Cred::root(), op }
            }
            0 => PeerBody::Ask { number, cred: user(7), op: self.whole(ino) },
            1 => PeerBody::Answer { number: self.choice.below(40), result: self.answer() },
            _ => PeerBody::Transfer { giver: self.rank(), number, step },
        };
        let term = Epoch(self.choice.below(5));
        PeerMessage { from, term, to, body }
    }

    fn answer(&mut self) -> Result<Answer, Failure> {
        match self.choice.below(4) {
            0 => Ok(Answer::Done),
            1 => Ok(Answer::Attr(Attr { ino: self.ino(), ..Attr::default() })),
            2 => {
                let to = Redirect { rank: self.rank(), ..Redirect::default() };
                Ok(Answer::Redirect(Box::new(to)))
            }
            _ => Err(Errno::Busy.into()),
        }
    }

    fn step(&mut self) {
        let rank = self.choice.index(2);
        let conn = ConnId(FIRST_CONN + self.choice.below(CONNS));
        match self.choice.below(40) {
            0..4 => {
                let (epoch, unsafe_requests) = (Epoch(self.choice.below(3)), self.choice.below(3));
                let hello = Hello { client: self.client(), epoch, unsafe_requests };
                self.cluster.input(rank, MdsInput::Message(conn, Message::Hello(hello)));
            }
            4 => self.cluster.input(rank, MdsInput::Closed(conn)),
            5 => {
                let chunk =
                    Message::Chunk { tid: Tid(self.choice.below(self.tid)), bytes: b"part" };
                self.cluster.input(rank, MdsInput::Message(conn, chunk));
            }
            6 => self.cluster.pass(30),
            8 | 9 => {
                let message = Message::Peer(Box::new(self.peer_message()));
                self.cluster.input(rank, MdsInput::Message(conn, message));
            }
            7 if self.choice.percent(5) => {
                self.cluster.crash(rank);
                self.cluster.start(rank);
                self.cluster.pass(5);
            }
            _ => {
                let request = self.request();
                self.cluster.input(rank, MdsInput::Message(conn, request));
            }
        }
        self.cluster.settle();
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the seeds of a longer run")]
fn a_server_survives_any_message_and_still_answers_an_honest_client() {
    // `CUDELE_HOSTILE_SEEDS=526-526` repeats one seed.
    let range = std::env::var("CUDELE_HOSTILE_SEEDS").ok();
    let range = range.as_deref().and_then(|range| range.split_once('-'));
    let number = |text: &str| text.parse::<u64>().unwrap();
    let (first, last) = range.map_or((1, SEEDS), |(first, last)| (number(first), number(last)));
    for seed in first..=last {
        println!("seed {seed}");
        let mut hostile = Hostile::new(seed);
        hostile.limit_some();
        for _ in 0..MESSAGES {
            hostile.step();
        }
        // Open files and locks of the hostile clients end with their connections.
        for conn in 0..CONNS {
            for rank in 0..2 {
                let gone = MdsInput::Closed(ConnId(FIRST_CONN + conn));
                hostile.cluster.input(rank, gone);
            }
        }
        hostile.cluster.connect(1);
        hostile.cluster.answer(Op::Read(ReadOp::GetAttr { ino: Ino::ROOT })).unwrap();
    }
}
