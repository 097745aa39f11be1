//! Connections: made, and made again.
//!
//! A server that returns from a crash first gets the state that this client has seen: the repeated
//! requests, then the logs of strong consistency with local durability. Other requests follow.

use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use client::{Attempts, SessionInput};
use net::{Address, Connection};
use policy::Mechanism;
use types::{Errno, Error, Moment, Result, Span, Tid};
use wire::{JobOp, MergeFlags, Message, Op, UnusedNumbers};

use super::{CHUNK_BYTES, Link, State, Waiting};
use crate::strong_log::StrongLog;
use crate::{Fs, Stage};

impl Fs {
    /// Says how long a request waits for a server that is away before it fails with `EIO`: half a
    /// minute unless this is called, and for ever with `None`.
    pub fn set_patience(&self, patience: Option<Duration>) {
        let patience =
            patience.map(|most| Span(u64::try_from(most.as_nanos()).unwrap_or(u64::MAX)));
        self.link().lock().patience = patience;
        self.ranks.others().iter().for_each(|link| link.lock().patience = patience);
    }
}

impl Link {
    /// Connects to the server, unless that was done.
    pub(crate) fn be_connected(&self) -> Result<()> {
        self.connect(self.lock(), crate::moment()).1
    }

    /// Replaces a broken connection for the waiting threads. If that fails, all of them get the
    /// error.
    pub(super) fn restore<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        error: &Error,
    ) -> MutexGuard<'a, State> {
        self.disconnect(&mut state);
        let chunked = |waiting: &Waiting| waiting.chunked && waiting.answer.is_none();
        let of = |state: &State, which: &dyn Fn(&Waiting) -> bool| -> Vec<Tid> {
            let found = state.waiting.iter().filter(|(_, waiting)| which(waiting));
            found.map(|(tid, _)| *tid).collect()
        };
        for tid in of(&state, &chunked) {
            // A transfer is not repeated behind the caller's back: it may be large.
            state.session.forget(tid);
            let error = error.clone().remedy("the merge may be run again; that is harmless");
            state.answer(tid, Err(error));
        }
        if !state.has_unanswered() && !state.listening.present {
            return state;
        }
        if self.check_open().is_ok() {
            self.cluster.contact.lost(self.rank, error);
        }
        let (mut state, connected) = self.connect(state, crate::moment());
        if let Err(error) = connected {
            let error = client::unreached(error);
            for tid in of(&state, &|waiting| waiting.answer.is_none()) {
                state.session.forget(tid);
                state.answer(tid, Err(error.clone()));
            }
        }
        state
    }

    fn disconnect(&self, state: &mut State) {
        (state.receiver, state.sender) = (None, None);
        state.generation += 1;
        (state.reading, state.sending) = (false, false);
        self.may_send.notify_all();
        state.effects.frames.clear();
        state.session.handle(SessionInput::Disconnected, &mut state.effects);
    }

    /// Connects to the active server, unless that was done, or another thread does it. The patience
    /// counts from `since`: a thread that waited for the attempts of other threads waits no longer
    /// than they did.
    ///
    /// The lock is free while the thread waits: the state of files in this session may be asked
    /// for, or go to the session with another rank.
    pub(crate) fn connect<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        since: Moment,
    ) -> (MutexGuard<'a, State>, Result<()>) {
        while state.connecting {
            state = self.connected.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.sender.is_some() {
            return (state, Ok(()));
        }
        state.connecting = true;
        let began = Instant::now();
        self.away.set(Some((began, "no connection yet".to_owned())));
        let attempts = Attempts::new(since, state.patience);
        let connected = loop {
            let (locked, connected) = self.try_connect(state);
            state = locked;
            let Err(error) = connected else { break Ok(()) };
            if let Err(closed) = self.check_open() {
                break Err(closed);
            }
            self.cluster.contact.lost(self.rank, &error);
            match attempts.failed(crate::moment(), &error) {
                Ok(pause) => {
                    drop(state);
                    self.away.set(Some((began, error.cause)));
                    crate::pause(pause);
                    state = self.lock();
                }
                Err(error) => break Err(error),
            }
        };
        self.away.set(None);
        state.connecting = false;
        self.connected.notify_all();
        if connected.is_ok() {
            self.cluster.contact.restored(self.rank);
        }
        (state, connected)
    }

    /// Opens a connection to the server.
    fn open(&self, address: Option<Address>) -> (Option<Address>, Result<Box<Connection>>) {
        let found = || -> Result<Address> {
            match address {
                Some(address) => Ok(address),
                None => client::server_of(&self.cluster.status()?, self.rank)?.parse(),
            }
        };
        let found = self.check_open().and_then(|()| found());
        let opened =
            found.clone().and_then(|address| Connection::open(&address, self.cluster.keys()));
        let address = found.ok().filter(|_| opened.is_ok());
        (address, opened.map(Box::new))
    }

    fn try_connect<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> (MutexGuard<'a, State>, Result<()>) {
        let address = state.address.take();
        drop(state);
        let (address, opened) = self.open(address);
        state = self.lock();
        state.address = address;
        let connected = opened.and_then(|connection| self.begin(&mut state, connection));
        (state, connected)
    }

    /// Begins to use a connection.
    fn begin(&self, state: &mut State, mut connection: Box<Connection>) -> Result<()> {
        if let Some(until) = state.session.lent_until() {
            crate::pause(until.since(crate::moment()));
        }
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
            return Err(client::refusal(error, receive(state, connection).err()));
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
            let (bytes, next) = match log.wanted(epoch, state.session.crashed()) {
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
            let (thread, asked) = (std::thread::current(), (crate::moment(), op.name()));
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
    state.take_message(message);
    if state.session.is_fenced() {
        return Err(client::fenced(state.session.client()));
    }
    if state.effects.frames.is_empty() { Ok(()) } else { flush(state, connection) }
}

fn await_answer(state: &mut State, connection: &mut Connection, tid: Tid) -> Result<()> {
    while state.waiting.get(&tid).is_some_and(|waiting| waiting.answer.is_none()) {
        receive(state, connection)?;
    }
    Ok(())
}
