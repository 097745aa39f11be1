//! Connections: made, and made again.
//!
//! A server that returns from a crash first gets the state that this client has seen: the repeated
//! requests, then the logs of strong consistency with local durability. Other requests follow.

use std::time::{Duration, Instant};

use client::SessionInput;
use net::{Address, Connection};
use policy::Mechanism;
use types::{Errno, Error, Rank, Result, Tid};
use wire::{JobOp, MdsEntry, MdsState, MergeFlags, Message, Op, UnusedNumbers};

use super::{CHUNK_BYTES, Link, State, Waiting};
use crate::strong_log::StrongLog;
use crate::{Cluster, Fs, Stage};

/// The default time that a request waits for a server that is away.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// The error of a client whose work another client took over.
const FENCED: Errno = Errno::Stale;
/// How long to wait before looking for the server again.
const RETRY: Duration = Duration::from_millis(20);
/// The same for a server without room for another connection: refused clients must not take the
/// time that the connected ones need.
const RETRY_FULL: Duration = Duration::from_millis(500);
/// How a server refuses one connection too many.
const FULL: Errno = Errno::Busy;

impl Fs {
    /// Says how long a request waits for a server that is away before it fails with `EIO`: half a
    /// minute unless this is called, and for ever with `None`.
    pub fn set_patience(&self, patience: Option<Duration>) {
        self.link().lock().patience = patience;
        self.ranks.others().iter().for_each(|link| link.lock().patience = patience);
    }
}

impl Link {
    /// Connects to the server, unless that was done.
    pub(crate) fn be_connected(&self) -> Result<()> {
        let mut state = self.lock();
        if state.sender.is_some() { Ok(()) } else { self.connect(&mut state, Instant::now()) }
    }

    /// Replaces a broken connection for the waiting threads. If that fails, all of them get the
    /// error.
    pub(super) fn restore(&self, state: &mut State, error: &Error) {
        self.disconnect(state);
        let chunked = |waiting: &Waiting| waiting.chunked && waiting.answer.is_none();
        let of = |state: &State, which: &dyn Fn(&Waiting) -> bool| -> Vec<Tid> {
            let found = state.waiting.iter().filter(|(_, waiting)| which(waiting));
            found.map(|(tid, _)| *tid).collect()
        };
        for tid in of(state, &chunked) {
            // A transfer is not repeated behind the caller's back: it may be large.
            state.session.forget(tid);
            let error = error.clone().remedy("the merge may be run again; that is harmless");
            state.answer(tid, Err(error));
        }
        if !state.has_unanswered() && !state.listening.present {
            return;
        }
        if self.check_open().is_ok() {
            self.cluster.contact.lost(self.rank, error);
        }
        if let Err(error) = self.connect(state, Instant::now()) {
            let error = away(error);
            for tid in of(state, &|waiting| waiting.answer.is_none()) {
                state.session.forget(tid);
                state.answer(tid, Err(error.clone()));
            }
        }
    }

    fn disconnect(&self, state: &mut State) {
        (state.receiver, state.sender) = (None, None);
        state.generation += 1;
        (state.reading, state.sending) = (false, false);
        self.may_send.notify_all();
        state.effects.frames.clear();
        state.session.handle(SessionInput::Disconnected, &mut state.effects);
    }

    /// Connects to the active server. The wait for one counts from `since`: a thread that waited
    /// for the attempts of other threads waits no longer than they did.
    pub(crate) fn connect(&self, state: &mut State, since: Instant) -> Result<()> {
        self.away.set(Some((since, "no connection yet".to_owned())));
        let connected = self.connect_patiently(state, since);
        self.away.set(None);
        connected
    }

    fn connect_patiently(&self, state: &mut State, since: Instant) -> Result<()> {
        loop {
            self.check_open()?;
            let result = self.try_connect(state);
            match &result {
                Ok(()) => self.cluster.contact.restored(self.rank),
                Err(error) => self.cluster.contact.lost(self.rank, error),
            }
            match result {
                Ok(()) => return Ok(()),
                Err(error) if error.errno == FENCED => return Err(error),
                Err(error) if state.patience.is_some_and(|most| since.elapsed() >= most) => {
                    if error.errno == FULL {
                        return Err(error);
                    }
                    return Err(error.remedy(
                        "see `cudele status`; a server that crashed is restarted by `cudele up`",
                    ));
                }
                Err(error) => {
                    let pause = if error.errno == FULL { RETRY_FULL } else { RETRY };
                    self.away.set(Some((since, error.cause)));
                    std::thread::sleep(pause);
                }
            }
        }
    }

    fn try_connect(&self, state: &mut State) -> Result<()> {
        let address = match &state.address {
            Some(address) => address.clone(),
            None => active_server(&self.cluster, self.rank)?,
        };
        let opened = Connection::open(&address);
        if opened.is_err() {
            state.address = None;
        }
        let mut connection = Box::new(opened?);
        state.address = Some(address);
        state.effects.frames.clear();
        state.session.handle(SessionInput::Connected, &mut state.effects);
        match self.introduce(state, &mut connection) {
            Ok(()) => {
                state.sender = Some(connection.sender().clone());
                state.receiver = Some(connection);
                Ok(())
            }
            Err(error) => {
                self.disconnect(state);
                Err(error)
            }
        }
    }

    /// Waits for the welcome, and gives the server the state that this client has seen.
    fn introduce(&self, state: &mut State, connection: &mut Connection) -> Result<()> {
        let logs = self.logs.all();
        if let Err(error) = flush(state, connection) {
            // A server that refuses the connection says why before it closes it.
            return Err(receive(state, connection)
                .err()
                .filter(|why| why.errno == FULL)
                .unwrap_or(error));
        }
        if logs.is_empty() {
            // The welcome: everything that was not answered is sent again with it.
            return receive(state, connection);
        }
        state.session.set_aside();
        receive(state, connection)?;
        logs.iter().try_for_each(|log| self.replay(state, connection, log))?;
        state.session.go_on(&mut state.effects);
        flush(state, connection)
    }

    /// Sends the server a log that it needs. Returns errors of the connection; the next request
    /// gets an error of the log.
    fn replay(
        &self,
        state: &mut State,
        connection: &mut Connection,
        log: &StrongLog,
    ) -> Result<()> {
        let epoch = state.session.epoch();
        loop {
            let (bytes, next) = match log.wanted(epoch, state.crashed) {
                Ok(Some(wanted)) => wanted,
                Ok(None) => return Ok(()),
                Err(error) => {
                    state.refused_log = Some(log.refused(epoch, error));
                    return Ok(());
                }
            };
            let flags = MergeFlags { strong_log: true, ..MergeFlags::default() };
            let (subtree, length) = (log.subtree, bytes.len() as u64);
            let op = Op::Job(JobOp::Merge {
                subtree,
                bytes: length,
                object: b"",
                flags,
                unused: UnusedNumbers::default(),
            });
            let tid = state.session.call(&crate::own_cred(), op, &mut state.effects);
            let (thread, asked) = (std::thread::current(), (Instant::now(), op.name()));
            state.waiting.insert(tid, Waiting { thread, asked, chunked: true, answer: None });
            let exchanged = flush(state, connection)
                .and_then(|()| self.send_log(connection, tid, &bytes))
                .and_then(|()| await_answer(state, connection, tid));
            state.session.forget(tid);
            let answer = state.waiting.remove(&tid).and_then(|waiting| waiting.answer);
            exchanged?;
            let outcome = match answer.unwrap_or_else(|| Err(Error::of(Errno::Io, "connection"))) {
                // A server that is stopping: the next one is to have it.
                Err(error) if error.errno == Errno::Again => return Err(error),
                Err(error) => Err(error),
                Ok(_) => log.replayed(epoch, next),
            };
            if let Err(error) = outcome {
                state.refused_log = Some(log.refused(epoch, error));
            }
        }
    }

    fn send_log(&self, connection: &mut Connection, tid: Tid, log: &[u8]) -> Result<()> {
        let mut frame = Vec::new();
        for (at, bytes) in log.chunks(CHUNK_BYTES).enumerate() {
            if at == 1 {
                self.observed.note(Mechanism::VolatileApply, Stage::Sending);
            }
            frame.clear();
            Message::Chunk { tid, bytes }.append_frame(&mut frame);
            connection.send(&frame)?;
        }
        self.observed.note(Mechanism::VolatileApply, Stage::Sent);
        Ok(())
    }
}

/// The error of a request that was not executed because no server could be reached. The error of
/// the connection is no answer to the request: `ENOENT` would mean that there is no such file.
pub(super) fn away(error: Error) -> Error {
    if error.errno == FENCED { error } else { Error { errno: Errno::Io, ..error } }
}

fn flush(state: &mut State, connection: &mut Connection) -> Result<()> {
    let result = connection.send(&state.effects.frames);
    state.effects.frames.clear();
    result
}

/// Waits for one message and lets the session have it.
fn receive(state: &mut State, connection: &mut Connection) -> Result<()> {
    let address = connection.address().to_string();
    let message = Message::decode(connection.receive()?)?;
    if let Message::Reply(reply) = &message
        && let Some(failure) = reply.refused()
    {
        return Err(Error::from(failure.clone()).about(address));
    }
    if let Message::Welcome(welcome) = &message {
        if welcome.fenced {
            state.fenced = true;
            let cause = "its work was taken over by another client, and it is not heard any more";
            return Err(Error::new(FENCED, state.session.client().to_string(), cause)
                .remedy("`cudele status` shows who has the subtree now"));
        }
        state.crashed = welcome.crashed;
    }
    state.take_message(message);
    if state.effects.frames.is_empty() { Ok(()) } else { flush(state, connection) }
}

fn await_answer(state: &mut State, connection: &mut Connection, tid: Tid) -> Result<()> {
    while state.waiting.get(&tid).is_some_and(|waiting| waiting.answer.is_none()) {
        receive(state, connection)?;
    }
    Ok(())
}

/// The address of the active server, or of one that recovers: that one waits for its clients, which
/// must repeat unsafe requests before it serves any other request.
fn active_server(cluster: &Cluster, rank: Rank) -> Result<Address> {
    let map = cluster.status()?;
    let of_rank = |entry: &&MdsEntry| entry.rank == rank;
    let is = |state| map.mds.iter().filter(of_rank).find(|entry| entry.state == state);
    match is(MdsState::Active).or_else(|| is(MdsState::Replaying)) {
        Some(entry) => entry.address.parse(),
        // Nothing is to be waited for.
        None if rank != Rank(0) && !map.mds.iter().any(|entry| entry.rank == rank) => {
            Err(Error::new(Errno::Stale, rank.to_string(), "the cluster has no such rank any more"))
        }
        None => {
            Err(Error::new(Errno::Again, rank.to_string(), "the metadata server is not active"))
        }
    }
}
