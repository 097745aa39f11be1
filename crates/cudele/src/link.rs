//! The connection to the metadata server: kept up over restarts of the server.
//!
//! A server that comes back from a crash is first brought to what this client had seen: with the
//! requests that are sent again, then with the logs of strong consistency with local durability.
//! Only then is it asked for anything else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Effects, Input, Session};
use net::{Address, Connection};
use policy::Mechanism;
use types::{ClientId, Cred, Epoch, Errno, Error, Result, Tid};
use wire::{Answer, MdsState, MergeFlags, Message, Op, Unused};

use crate::observe::Observed;
use crate::strong_log::{StrongLog, StrongLogs};
use crate::{Cluster, Stage};

/// How long a request may wait for a server that is away.
const PATIENCE: Duration = Duration::from_secs(30);
/// What a client is told whose work was taken over.
const FENCED: Errno = Errno::Stale;
/// How long to wait before looking for the server again.
const RETRY: Duration = Duration::from_millis(20);

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) session: Session,
    connection: Option<Connection>,
    address: Option<Address>,
    effects: Effects,
    answered: Vec<(Tid, std::result::Result<Answer, wire::Failure>)>,
    /// Requests made so far.
    pub(crate) requests: u64,
    /// The newest tenure of the server that ended without being stopped.
    pub(crate) crashed: Epoch,
    logs: Arc<StrongLogs>,
    /// Why a log could not be replayed, for the next who asks for something.
    refused_log: Option<Error>,
    observed: Observed,
}

impl Link {
    pub(crate) fn new(client: ClientId, observed: Observed, logs: Arc<StrongLogs>) -> Self {
        // Request numbers grow over the processes that act as one client.
        let first_tid = Tid(crate::now().0.unsigned_abs() / 1000);
        Self {
            session: Session::new(client, first_tid),
            connection: None,
            address: None,
            effects: Effects::default(),
            answered: Vec::new(),
            requests: 0,
            crashed: Epoch(0),
            logs,
            refused_log: None,
            observed,
        }
    }

    /// Why a log could not be replayed, once.
    pub(crate) fn take_refused_log(&mut self) -> Option<Error> {
        self.refused_log.take()
    }

    /// Makes a request, followed by a journal in chunks if there are any, and waits for the answer.
    pub(crate) fn request(
        &mut self,
        cluster: &Cluster,
        cred: &Cred,
        op: Op<'_>,
        chunks: &[&[u8]],
    ) -> Result<Answer> {
        self.requests += 1;
        if self.connection.is_none() {
            self.connect(cluster)?;
        }
        let tid = self.session.call(cred, op, &mut self.effects);
        let chunked = !chunks.is_empty();
        let mut sent = self.send();
        if sent.is_ok() && chunked {
            sent = self.send_chunks(tid, chunks);
        }
        loop {
            if let Some(at) = self.answered.iter().position(|(answered, _)| *answered == tid) {
                return self.answered.swap_remove(at).1.map_err(Error::from);
            }
            let arrived = match std::mem::replace(&mut sent, Ok(())) {
                Ok(()) => self.receive(),
                Err(error) => Err(error),
            };
            if let Err(error) = arrived {
                self.connection = None;
                self.session.handle(Input::Disconnected, &mut self.effects);
                if chunked {
                    // A transfer is not repeated behind the caller's back: it may be large.
                    self.session.forget(tid);
                    return Err(error.remedy("the merge may be run again; that is harmless"));
                }
                if let Err(error) = self.connect(cluster) {
                    self.session.forget(tid);
                    return Err(error);
                }
            }
        }
    }

    fn send(&mut self) -> Result<()> {
        let result = match &mut self.connection {
            Some(connection) => connection.send(&self.effects.frames),
            None => Err(Error::of(Errno::Io, "connection")),
        };
        self.effects.frames.clear();
        result
    }

    fn send_chunks(&mut self, tid: Tid, chunks: &[&[u8]]) -> Result<()> {
        let mut frame = Vec::new();
        for (at, bytes) in chunks.iter().flat_map(|chunk| chunk.chunks(1 << 20)).enumerate() {
            if at == 1 {
                self.observed.note(Mechanism::VolatileApply, Stage::Sending);
            }
            frame.clear();
            Message::Chunk { tid, bytes }.append_frame(&mut frame);
            if let Some(connection) = &mut self.connection {
                connection.send(&frame)?;
            }
        }
        self.observed.note(Mechanism::VolatileApply, Stage::Sent);
        Ok(())
    }

    /// Waits for one message and lets the session have it.
    fn receive(&mut self) -> Result<()> {
        let Some(connection) = &mut self.connection else {
            return Err(Error::of(Errno::Io, "connection"));
        };
        let message = Message::decode(connection.receive()?)?;
        if matches!(&message, Message::Welcome(welcome) if welcome.fenced) {
            let cause = "its work was taken over by another client, and it is not heard any more";
            return Err(Error::new(FENCED, self.session.client().to_string(), cause)
                .remedy("`cudele status` shows who has the subtree now"));
        }
        if let Message::Welcome(welcome) = &message {
            self.crashed = welcome.crashed;
        }
        self.session.handle(Input::Message(message), &mut self.effects);
        self.answered.append(&mut self.effects.completed);
        if self.effects.frames.is_empty() { Ok(()) } else { self.send() }
    }

    /// Connects to the active server, waiting for one for a while.
    pub(crate) fn connect(&mut self, cluster: &Cluster) -> Result<()> {
        let start = Instant::now();
        loop {
            let result = self.try_connect(cluster);
            match result {
                Ok(()) => return Ok(()),
                Err(error) if error.errno == FENCED => return Err(error),
                Err(error) if start.elapsed() >= PATIENCE => {
                    return Err(error.remedy(
                        "see `cudele status`; a server that crashed is restarted by `cudele up`",
                    ));
                }
                Err(_) => std::thread::sleep(RETRY),
            }
        }
    }

    fn try_connect(&mut self, cluster: &Cluster) -> Result<()> {
        let address = match &self.address {
            Some(address) => address.clone(),
            None => active_server(cluster)?,
        };
        let opened = Connection::open(&address);
        if opened.is_err() {
            self.address = None;
        }
        self.connection = Some(opened?);
        self.address = Some(address);
        self.effects.frames.clear();
        self.session.handle(Input::Connected, &mut self.effects);
        self.send()?;
        let logs = self.logs.all();
        if logs.is_empty() {
            // The welcome: everything that was not answered is sent again with it.
            return self.receive();
        }
        self.session.set_aside();
        let replayed =
            self.receive().and_then(|()| logs.iter().try_for_each(|log| self.replay(log)));
        if replayed.is_err() {
            self.connection = None;
            self.session.handle(Input::Disconnected, &mut self.effects);
            return replayed;
        }
        self.session.go_on(&mut self.effects);
        self.send()
    }

    /// Sends the server a log that it needs. Errors are of the connection: one of the log itself is
    /// told to whoever asks next.
    fn replay(&mut self, log: &StrongLog) -> Result<()> {
        let epoch = self.session.epoch();
        loop {
            let (bytes, next) = match log.wanted(epoch, self.crashed) {
                Ok(Some(wanted)) => wanted,
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.refused_log = Some(log.refused(epoch, error));
                    return Ok(());
                }
            };
            let flags = MergeFlags { strong_log: true, ..MergeFlags::default() };
            let (subtree, length) = (log.subtree, bytes.len() as u64);
            let unused = Unused::default();
            let op = Op::Merge { subtree, bytes: length, object: b"", flags, unused };
            let tid = self.session.call(&crate::own_cred(), op, &mut self.effects);
            let sent = self.send().and_then(|()| self.send_chunks(tid, &[&bytes]));
            let answer = sent.and_then(|()| self.await_answer(tid));
            self.session.forget(tid);
            let outcome = match answer? {
                // A server that is stopping: the next one is to have it.
                Err(failure) if failure.errno == Errno::Again => return Err(failure.into()),
                Err(failure) => Err(failure.into()),
                Ok(_) => log.replayed(epoch, next),
            };
            if let Err(error) = outcome {
                self.refused_log = Some(log.refused(epoch, error));
            }
        }
    }

    fn await_answer(&mut self, tid: Tid) -> Result<std::result::Result<Answer, wire::Failure>> {
        loop {
            if let Some(at) = self.answered.iter().position(|(answered, _)| *answered == tid) {
                return Ok(self.answered.swap_remove(at).1);
            }
            self.receive()?;
        }
    }
}

/// The server that answers, or will: one that recovers waits for its clients, which have to send
/// again what is not safe before anybody else is served.
fn active_server(cluster: &Cluster) -> Result<Address> {
    let map = cluster.status()?;
    let is = |state| map.mds.iter().find(|entry| entry.state == state);
    match is(MdsState::Active).or_else(|| is(MdsState::Replaying)) {
        Some(entry) => entry.address.parse(),
        None => Err(Error::new(Errno::Again, "cluster", "no metadata server is active")),
    }
}
