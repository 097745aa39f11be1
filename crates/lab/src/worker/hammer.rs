//! A client that sends requests as fast as they are answered, several at a time.
//!
//! The library waits for each answer before it sends the next request, so that many busy clients
//! would mostly measure the switching between processes. This drives the library's session with
//! windows of requests instead. Invariant: the answer to every request is looked at.

use std::collections::VecDeque;

use client::{Session, SessionEffects, SessionInput};
use cudele::{Cluster, Cred, Errno, Error, FileType, Ino, MdsState, Result};
use net::Connection;
use types::Tid;
use wire::{ChangeOp, Message, NewInode, Op, SessionOp};

use super::dialogue::{Stopwatch, await_start_time, latencies_us, sleep_until};
use crate::harness::clock::clock_ns;
use crate::harness::job::{Hammer, JobOutcome, TAIL};
use crate::harness::numbered::Numbered;

/// Names that are enough for any window.
const NAMES: u64 = 1_000_000_000;

/// Requests that were sent together.
struct Batch {
    sent_ns: u64,
    unanswered: usize,
}

struct Client<'a> {
    task: &'a Hammer,
    cred: Cred,
    connection: Connection,
    session: Session,
    effects: SessionEffects,
    names: Numbered,
    batches: VecDeque<Batch>,
}

/// Sends creates from now on, and counts the answers in the window.
pub(super) fn run(mon: &str, task: &Hammer) -> Result<JobOutcome> {
    let cluster = Cluster::connect(&mon.parse()?)?;
    let mut client = Client::connect(&cluster, task)?;
    // As fast as possible: two windows of half the size, so that the server has one while the other
    // is answered. At a pace: one, as an answer must not wait until the next is due.
    let windows = if task.interval_ns == 0 { task.in_flight.min(2) } else { 1 };
    let size = task.in_flight.div_ceil(windows.max(1)).max(1);
    let mut outcome = JobOutcome::default();
    let mut tenths = Vec::new();
    let start_ns = await_start_time()?;
    let end_ns = start_ns.saturating_add(task.window_ns);
    let tail_ns = u64::try_from(TAIL.as_nanos()).unwrap_or(u64::MAX);
    let mut watch = None;
    let mut due_ns = clock_ns();
    loop {
        while client.batches.len() < windows.max(1) {
            sleep_until(due_ns);
            // A late sender catches up.
            due_ns = due_ns.saturating_add(task.interval_ns);
            client.send(size)?;
        }
        let sent_ns = client.receive_batch()?;
        let now_ns = clock_ns();
        if watch.is_none() && now_ns >= start_ns {
            watch = Some(Stopwatch::start());
        }
        if (start_ns..end_ns).contains(&now_ns) {
            outcome.events += size as u64;
            let elapsed = now_ns.saturating_sub(sent_ns) / 100;
            tenths.push(u32::try_from(elapsed).unwrap_or(u32::MAX));
        } else if now_ns >= end_ns {
            if outcome.end_ns == 0
                && let Some(watch) = &watch
            {
                watch.stop(&mut outcome);
            }
            if now_ns >= end_ns.saturating_add(tail_ns) {
                break;
            }
        }
    }
    while !client.batches.is_empty() {
        client.receive_batch()?;
    }
    outcome.requests = outcome.events;
    outcome.latencies_us = Some(latencies_us(tenths));
    Ok(outcome)
}

impl<'a> Client<'a> {
    fn connect(cluster: &Cluster, task: &'a Hammer) -> Result<Self> {
        let id = cluster.register()?;
        let map = cluster.status()?;
        let active = map.mds.iter().find(|entry| entry.state == MdsState::Active);
        let active = active.ok_or_else(|| Error::of(Errno::Again, "metadata server"))?;
        let mut client = Self {
            task,
            cred: cudele::own_cred(),
            connection: Connection::open(&active.address.parse()?, cluster.keys())?,
            session: Session::new(id, Tid(1)),
            effects: SessionEffects::default(),
            names: Numbered::new(task.first, NAMES),
            batches: VecDeque::new(),
        };
        client.session.handle(SessionInput::Connected, &mut client.effects);
        client.transmit()?;
        while !client.session.is_connected() {
            client.receive()?;
        }
        Ok(client)
    }

    fn transmit(&mut self) -> Result<()> {
        let sent = self.connection.send(&self.effects.frames);
        self.effects.frames.clear();
        sent
    }

    /// Sends a window of creates, and first waits for the journal if the session demands it.
    fn send(&mut self, size: usize) -> Result<()> {
        if self.session.must_sync() {
            while !self.batches.is_empty() {
                self.receive_batch()?;
            }
            self.session.call(&self.cred, Op::Session(SessionOp::Sync), &mut self.effects);
            self.transmit()?;
            while self.effects.completed.is_empty() {
                self.receive()?;
            }
            self.effects.completed.clear();
        }
        let new = NewInode { mode: FileType::Regular.mode_bits() | 0o644, ..NewInode::default() };
        let parent = Ino(self.task.dir_ino);
        for _ in 0..size {
            let op = Op::Change(ChangeOp::Create { parent, name: self.names.name(), new });
            self.session.call(&self.cred, op, &mut self.effects);
            self.names.advance();
        }
        self.batches.push_back(Batch { sent_ns: clock_ns(), unanswered: size });
        self.transmit()
    }

    fn receive(&mut self) -> Result<()> {
        let message = Message::decode(self.connection.receive()?)?;
        self.session.handle(SessionInput::Message(message), &mut self.effects);
        Ok(())
    }

    /// Waits until the oldest window is answered, and says when it was sent. Answers come in the
    /// order of the requests, as all of them are changes.
    fn receive_batch(&mut self) -> Result<u64> {
        loop {
            match self.batches.front() {
                Some(batch) if batch.unanswered == 0 => break,
                Some(_) => self.receive()?,
                None => return Ok(0),
            }
            for (_, result) in self.effects.completed.drain(..) {
                let errno = result.err().map(|failure| failure.errno);
                if errno != self.task.refused.then_some(Errno::Busy) {
                    let cause = format!("a create was answered with {errno:?}");
                    return Err(Error::new(Errno::Io, "metadata server", cause));
                }
                if let Some(batch) = self.batches.front_mut() {
                    batch.unanswered = batch.unanswered.saturating_sub(1);
                }
            }
        }
        Ok(self.batches.pop_front().map_or(0, |batch| batch.sent_ns))
    }
}
