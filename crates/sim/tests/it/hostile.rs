//! Hostile clients send requests that no honest client would: no other client must lose anything,
//! and the server keeps serving.

#![allow(clippy::unwrap_used, reason = "the harness of tests")]

use types::{Attr, AttrChange, ClientId, Cred, Errno, Ino, Rank, RenameFlags, Tid, Timestamp};
use wire::{
    Access, Answer, ChangeOp, JobOp, Message, NewInode, Op, RankOp, ReadOp, Replay, Request,
    SessionOp, WantsExclusive,
};

use crate::server::{World, conn};

const FILE: u32 = 0o100_644;
const DIR: u32 = 0o040_755;
const HONEST: usize = 0;
const HOSTILE: usize = 1;

fn create(parent: Ino, name: &[u8], mode: u32) -> Op<'_> {
    Op::Change(ChangeOp::Create { parent, name, new: NewInode { mode, ..NewInode::default() } })
}

impl World {
    /// The answer to an honest client.
    fn answered(&mut self, op: Op<'_>) -> Result<Answer, Errno> {
        let tid = self.ask(HONEST, op);
        self.until(|world| world.is_answered(HONEST, tid));
        self.clients[HONEST].answers.remove(&tid).unwrap().map_err(|failure| failure.errno)
    }

    fn attr(&mut self, op: Op<'_>) -> Attr {
        let Ok(Answer::Attr(attr)) = self.answered(op) else { panic!("{op:?}") };
        attr
    }

    /// A request that no session makes.
    fn forge(&mut self, tid: u64, op: Op<'_>, replay: Option<Replay>, is_async: bool) {
        let request = Request::new(Tid(tid), Tid(tid - 1), Cred::root(), op);
        let request = Request { replay, is_async, ..request };
        self.handle(mds::MdsInput::Message(conn(HOSTILE), Message::Request(request)));
        self.pass(3);
    }
}

fn replay(ino: Ino) -> Option<Replay> {
    Some(Replay { ino, time: Timestamp(i64::MIN), ..Replay::default() })
}

/// A server with two clients, a directory with a file in it, and the attributes of both.
fn world() -> (World, Attr, Attr) {
    let mut world = World::new("consistency: rpcs\ndurability: stream", 2);
    let dir = world.attr(create(Ino::ROOT, b"dir", DIR));
    let file = world.attr(create(dir.ino, b"file", FILE));
    let dir = world.attr(Op::Read(ReadOp::GetAttr { ino: dir.ino }));
    (world, dir, file)
}

#[test]
fn a_number_that_is_taken_is_not_taken_again() {
    let (mut world, dir, file) = world();
    let root = world.attr(Op::Read(ReadOp::GetAttr { ino: Ino::ROOT }));
    let taken = [Ino::ROOT, dir.ino, file.ino, Ino::LINKS, Ino::ANCHOR, Ino::TRASH];
    for (at, ino) in taken.into_iter().enumerate() {
        for is_async in [false, true] {
            let name = format!("forged{at}{is_async}");
            let tid = 1000 + at as u64 * 2 + u64::from(is_async);
            world.forge(tid, create(Ino::ROOT, name.as_bytes(), FILE), replay(ino), is_async);
            let found = world
                .answered(Op::Read(ReadOp::Lookup { parent: Ino::ROOT, name: name.as_bytes() }));
            assert_eq!(found, Err(Errno::NotFound), "{ino} is somebody's");
        }
    }
    assert_eq!(world.attr(Op::Read(ReadOp::GetAttr { ino: Ino::ROOT })), root);
    assert_eq!(world.attr(Op::Read(ReadOp::GetAttr { ino: dir.ino })), dir);
    assert_eq!(world.attr(Op::Read(ReadOp::Lookup { parent: dir.ino, name: b"file" })), file);
}

#[test]
fn asynchronous_operations_need_an_exclusive_directory() {
    let (mut world, dir, file) = world();
    let flags = RenameFlags::default();
    let (parent, name, ino) = (dir.ino, &b"file"[..], file.ino);
    let gone = AttrChange { size: Some(0), mode: Some(0), ..AttrChange::default() };
    let ops = [
        create(parent, b"forged", FILE),
        Op::Change(ChangeOp::Link { ino, parent, name: b"forged" }),
        Op::Change(ChangeOp::Unlink { parent, name }),
        Op::Change(ChangeOp::Rmdir { parent: Ino::ROOT, name: b"dir" }),
        Op::Change(ChangeOp::Rename {
            parent,
            name,
            new_parent: Ino::ROOT,
            new_name: b"forged",
            flags,
        }),
        Op::Change(ChangeOp::Discard { parent: Ino::ROOT, name: b"dir" }),
        Op::Change(ChangeOp::Restore { ino: parent, parent: Ino::ROOT, name: b"forged" }),
        Op::Change(ChangeOp::EmptyTrash { ino: parent }),
        Op::Change(ChangeOp::SetAttr { ino, change: gone }),
        Op::Change(ChangeOp::SetAttr { ino: Ino::ROOT, change: gone }),
        Op::Change(ChangeOp::Accessed { ino, at: Timestamp(i64::MAX) }),
        Op::Change(ChangeOp::SetData { ino, data: b"forged", size: u64::MAX }),
        Op::Change(ChangeOp::Grow { ino, size: u64::MAX }),
        Op::Change(ChangeOp::Append { ino, length: u64::MAX }),
        Op::Session(SessionOp::Open { ino, write: true }),
        Op::Session(SessionOp::Close { ino, write: true }),
        Op::Session(SessionOp::Reopen {
            ino: Ino(7),
            access: Access { read: true, write: true, shared: true },
        }),
        Op::Session(SessionOp::Yield { ino }),
        Op::Session(SessionOp::Return { dir: parent }),
        Op::Read(ReadOp::List { dir: parent, after: None, limit: 0, attrs: true }),
        Op::Read(ReadOp::Walk { base: Ino(u64::MAX), path: b"a/../b" }),
        Op::Job(JobOp::Extend { subtree: Ino(0), count: u64::MAX }),
        Op::Job(JobOp::Extend { subtree: parent, count: 1 }),
        Op::Job(JobOp::Release { subtree: parent, unused: wire::UnusedNumbers::default() }),
        Op::Job(JobOp::TakeOver { subtree: parent }),
        Op::Rank(RankOp::Colocate { ino, rank: Rank(9) }),
        Op::Rank(RankOp::Colocate { ino: parent, rank: Rank(0) }),
        Op::Session(SessionOp::AwaitAsync),
        Op::Session(SessionOp::Sync),
    ];
    for (at, op) in ops.into_iter().enumerate() {
        world.forge(1000 + at as u64, op, replay(Ino(u64::MAX)), true);
    }
    assert_eq!(world.attr(Op::Read(ReadOp::GetAttr { ino: dir.ino })), dir);
    assert_eq!(world.attr(Op::Read(ReadOp::Lookup { parent: dir.ino, name: b"file" })), file);
    let listed = world.answered(Op::Read(ReadOp::List {
        dir: Ino::ROOT,
        after: None,
        limit: 9,
        attrs: false,
    }));
    let Ok(Answer::Entries { entries, .. }) = listed else { panic!("{listed:?}") };
    assert_eq!(entries.len(), 1);
    assert_eq!(world.counted("ahead"), 0);
}

/// Has a directory alone, with numbers, as an honest session would.
fn exclusive_dir(world: &mut World) -> (Ino, Ino) {
    let mut tid = 2000;
    for attempt in 0..50_u64 {
        tid += 1;
        let name = format!("own{attempt}");
        let op = create(Ino::ROOT, name.as_bytes(), DIR);
        let request = Request::new(Tid(tid), Tid(tid - 1), Cred::root(), op);
        let request =
            Request { remembers: true, wants_exclusive: WantsExclusive::Always, ..request };
        world.handle(mds::MdsInput::Message(conn(HOSTILE), Message::Request(request)));
        world.pass(20);
        if world.counted("caps_alone") > 0 {
            let own = world.mds.namespace().peek(Ino::ROOT, name.as_bytes()).unwrap().unwrap();
            tid += 1;
            world.forge(tid, Op::Job(JobOp::Extend { subtree: Ino(0), count: 4 }), None, false);
            world.pass(20);
            // The numbers that were given are the newest.
            let newest = world.numbers_end();
            return (own, Ino(newest.0 - 4));
        }
    }
    panic!("nothing is given alone");
}

impl World {
    /// The first number without an owner: the next that the server grants to a client.
    fn numbers_end(&mut self) -> Ino {
        let before = self.ask(HONEST, Op::Job(JobOp::Extend { subtree: Ino(0), count: 1 }));
        self.until(|world| world.is_answered(HONEST, before));
        let Some(Ok(Answer::Range(range))) = self.clients[HONEST].answers.remove(&before) else {
            panic!("no numbers");
        };
        Ino(range.start)
    }
}

#[test]
fn an_own_inode_number_is_used_once() {
    let (mut world, ..) = world();
    let (own, number) = exclusive_dir(&mut world);
    world.forge(3000, create(own, b"a", FILE), replay(number), true);
    let first = world.counted("ahead");
    world.forge(3001, create(own, b"b", FILE), replay(number), true);
    assert_eq!((first, world.counted("ahead"), world.counted("ahead_refused")), (1, 1, 1));
    let names = |world: &World| {
        let listed = world.mds.namespace().list(&Cred::root(), own, None, 9, false).unwrap();
        listed.into_iter().map(|entry| entry.name).collect::<Vec<_>>()
    };
    assert_eq!(names(&world), [b"a"]);
    // A rejected client loses its exclusive capabilities, and other clients continue there.
    world.forge(3002, create(own, b"c", FILE), replay(Ino(number.0 + 1)), true);
    assert_eq!(names(&world), [b"a"]);
    world.attr(create(own, b"theirs", FILE));
    assert_eq!(world.mds.namespace().getattr(number).unwrap().nlink, 1);
    assert_ne!(world.clients[HOSTILE].session.client(), ClientId(0));
}
