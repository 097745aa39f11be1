//! The connection to the metadata server: kept up over restarts of the server.

use std::time::{Duration, Instant};

use client::{Effects, Input, Session};
use net::{Address, Connection};
use policy::Mechanism;
use types::{ClientId, Cred, Errno, Error, Result, Tid};
use wire::{Answer, MdsState, Message, Op};

use crate::observe::Observed;
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
    observed: Observed,
}

impl Link {
    pub(crate) fn new(client: ClientId, observed: Observed) -> Self {
        // Request numbers grow over the processes that act as one client.
        let first_tid = Tid(crate::now().0.unsigned_abs() / 1000);
        Self {
            session: Session::new(client, first_tid),
            connection: None,
            address: None,
            effects: Effects::default(),
            answered: Vec::new(),
            requests: 0,
            observed,
        }
    }

    /// Whether the server started anew since the last time this was asked.
    pub(crate) fn take_restarted(&mut self) -> bool {
        std::mem::take(&mut self.effects.restarted)
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
        // The welcome: everything that was not answered is sent again with it.
        self.receive()
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
