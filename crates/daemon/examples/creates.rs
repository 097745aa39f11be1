//! Creates as the metadata server's core sees them: for counting its instructions.
//!
//! `creates N` has one client create N files by request, `creates N ahead` in a directory that it
//! has alone (asynchronously), and `creates N user` by request as a process that speaks for one
//! user only. Nothing waits and no clock is read, so every run does exactly the same. The counted
//! work happens in `served`, one function for a profiler to look for: a batch of frames is decoded
//! and handed to the server, which has its time for background work then; frames are made, answers
//! read and the store called outside. The client's own work for `ahead` happens in `answered`.
//! `cargo xtask instructions` uses all three.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "I/O edge: a program with arguments and a terminal"
)]

use client::{LocalAnswer, Session};
use engine::execute;
use mds::{Mds, MdsEffects, MdsInput, Settings};
use objstore::Memory;
use types::{
    ClientId, Clock, ConnId, Cred, FileType, Ino, Moment, Peer, Rank, Span, Tid, Timestamp,
};
use wire::{ChangeOp, JobOp, Message, NewInode, Op, WantsExclusive};

const CONN: ConnId = ConnId(1);
/// Creates that arrive together.
const BATCH: u64 = 100;
/// Time that passes from one batch to the next.
const STEP: Span = Span::from_millis(1);
const DIR: Ino = Ino::ROOT;

struct Pair {
    mds: Mds,
    effects: MdsEffects,
    store: Memory,
    clock: Clock,
    /// The user of the client's process.
    cred: Cred,
    session: Session,
    said: client::SessionEffects,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let user = || Peer::User(Cred { uid: 7, gid: 7, groups: Vec::new() });
    let (files, is_async, peer) = match arguments[..] {
        [files] => (files, false, Peer::Trusted),
        [files, "ahead"] => (files, true, Peer::Trusted),
        [files, "user"] => (files, false, user()),
        _ => ("", false, Peer::Trusted),
    };
    let Ok(files) = files.parse::<u64>() else {
        println!("usage: creates N [ahead | user]");
        std::process::exit(2);
    };
    let mut pair = Pair::start(is_async, peer);
    if is_async {
        pair.take_directory();
    }
    let before = pair.creates();
    let mut number = 0;
    while number < files {
        let batch = BATCH.min(files - number);
        for name in number..number + batch {
            if is_async { pair.create_async(name) } else { pair.create(name) }
        }
        number += batch;
        pair.session.send_async(&mut pair.said);
        pair.exchange();
    }
    let created = pair.creates() - before;
    assert!(created >= files, "{created} of {files} files were created");
    println!("{created} files");
}

/// What is counted.
#[inline(never)]
fn served(mds: &mut Mds, clock: Clock, frames: &[u8], effects: &mut MdsEffects) {
    let mut start = 0;
    while let Some((frame, length)) = wire::frame::decode(&frames[start..]).expect("our own frames")
    {
        let message = Message::decode(frame.payload).expect("our own messages");
        mds.handle(clock, MdsInput::Message(CONN, message), effects);
        start += length;
    }
    mds.handle(clock, MdsInput::Tick, effects);
    if mds.has_work() {
        mds.handle(clock, MdsInput::Work, effects);
    }
}

/// The counted work of a client that answers itself.
#[inline(never)]
fn answered(
    session: &mut Session,
    name: &[u8],
    time: Timestamp,
    said: &mut client::SessionEffects,
) -> LocalAnswer {
    session.known(&Cred::root(), &create(name), time, said)
}

impl Pair {
    fn start(is_async: bool, peer: Peer) -> Self {
        let cred = if let Peer::User(cred) = &peer { cred.clone() } else { Cred::root() };
        let client = ClientId::of_user(peer.uid(), 1);
        let settings = Settings {
            root_owner: (cred.uid, cred.gid),
            // Nothing but creates is counted: no checkpoint.
            segments_max: usize::MAX,
            ..Settings::default()
        };
        let mut pair = Self {
            mds: Mds::new(Rank(0), settings),
            effects: MdsEffects::default(),
            store: Memory::new(),
            clock: Clock { now: Moment(1_000_000_000), time: Timestamp(1_000_000_000) },
            cred,
            session: Session::new(client, Tid(1)),
            said: client::SessionEffects::default(),
        };
        pair.mds.handle(pair.clock, MdsInput::Start, &mut pair.effects);
        pair.mds.handle(pair.clock, MdsInput::Opened(CONN, peer), &mut pair.effects);
        for _ in 0..1_000 {
            pair.exchange();
        }
        if is_async {
            pair.session.remember();
            pair.session.take_exclusive(WantsExclusive::Always);
        }
        pair.session.handle(client::SessionInput::Connected, &mut pair.said);
        while !pair.session.is_connected() {
            pair.exchange();
        }
        pair
    }

    /// Files that the server has created.
    fn creates(&self) -> u64 {
        let counters = self.mds.counters();
        counters.into_iter().find(|(name, _)| name == "creates").map_or(0, |(_, count)| count)
    }

    /// One batch to the server, and all that follows from it.
    fn exchange(&mut self) {
        self.clock.now = self.clock.now + STEP;
        let frames = std::mem::take(&mut self.said.frames);
        served(&mut self.mds, self.clock, &frames, &mut self.effects);
        while !self.effects.store.is_empty() {
            for (token, op) in std::mem::take(&mut self.effects.store) {
                let result = execute(&self.store, op);
                self.mds.handle(self.clock, MdsInput::Stored(token, result), &mut self.effects);
            }
        }
        let outbox = &mut self.effects.outbox;
        for (_, range) in outbox.sends.drain(..) {
            let mut frames = &outbox.frames[range];
            while let Some((frame, length)) = wire::frame::decode(frames).expect("its frames") {
                let message = Message::decode(frame.payload).expect("its messages");
                self.session.handle(client::SessionInput::Message(message), &mut self.said);
                frames = &frames[length..];
            }
        }
        outbox.clear();
        self.effects.to_monitor.clear();
        for (_, result) in self.said.completed.drain(..) {
            result.expect("every request is carried out");
        }
    }

    /// The client has the directory alone from now on.
    fn take_directory(&mut self) {
        for number in 0..100 {
            let name = format!("first.{number}");
            self.session.call(&Cred::root(), create(name.as_bytes()), &mut self.said);
            for _ in 0..100 {
                self.exchange();
            }
            if self.session.exclusive_count() > 0 {
                return;
            }
        }
        panic!("the client does not get the directory");
    }

    fn create_async(&mut self, number: u64) {
        let name = format!("file.{number:07}");
        let time = Timestamp(self.clock.now.0.try_into().expect("a short run"));
        for _ in 0..100 {
            match answered(&mut self.session, name.as_bytes(), time, &mut self.said) {
                LocalAnswer::Async(_, answer) => return drop(answer.expect("nobody else is here")),
                LocalAnswer::WantsNumbers(count) => {
                    let op = Op::Job(JobOp::Extend { subtree: Ino(0), count });
                    self.session.call(&Cred::root(), op, &mut self.said);
                }
                LocalAnswer::Soon
                | LocalAnswer::Nothing
                | LocalAnswer::Remembered(_)
                | LocalAnswer::Local(_) => {}
            }
            self.exchange();
        }
        panic!("the directory is not the client's alone");
    }

    fn create(&mut self, number: u64) {
        let name = format!("file.{number:07}");
        self.session.call(&self.cred, create(name.as_bytes()), &mut self.said);
    }
}

fn create(name: &[u8]) -> Op<'_> {
    let mode = FileType::Regular.mode_bits() | 0o644;
    Op::Change(ChangeOp::Create {
        parent: DIR,
        name,
        new: NewInode { mode, ..NewInode::default() },
    })
}
