//! Open files in directories that move: while a client caches a file, no other client writes it, or
//! reads what the first one writes, whatever is killed.
//!
//! A client caches an open file from the answer that the file is not shared until the client gives
//! it up, closes it, or loses a connection while the server runs. The files are those with locks.

use std::collections::BTreeMap;

use types::{Ino, Result as Answered};
use wire::{Answer, Opened};

use super::script::{Role, Script};
use super::{Drive, Event, MS, PATIENCE, Ranks, Routes};
use crate::call::{Call, CallKind};

/// The files that clients have open, by file and client.
#[derive(Debug, Default)]
pub(super) struct Opens {
    openers: BTreeMap<(usize, usize), Opener>,
}

/// A client that has a file open, or asks for that.
#[derive(Clone, Copy, Debug)]
struct Opener {
    write: bool,
    /// The client caches the file, unless it has lost more connections than these.
    caches: Option<u64>,
}

impl Ranks {
    /// A client's next step about an open file.
    pub(super) fn choose_open(&mut self, client: usize) -> Script {
        let file = self.world.rng.index(self.locks.len());
        let ino = self.locks.ino(file);
        if self.opens.openers.contains_key(&(file, client)) {
            self.close_file(client, file);
            return Script { call: self.locks.ask(file), role: Role::Lock(file) };
        }
        let write = self.world.rng.percent(50);
        self.opens.openers.insert((file, client), Opener { write, caches: None });
        Script { call: CallKind::Open { ino, write }, role: Role::Open(file) }
    }

    /// Closes a file. Nobody waits for the server to hear of it.
    fn close_file(&mut self, client: usize, file: usize) {
        let ino = self.locks.ino(file);
        let Some(Opener { write, .. }) = self.opens.openers.remove(&(file, client)) else { return };
        let rank = self.holder(client, ino);
        let link = self.world.link(client, rank);
        link.session.close(ino, write, &mut link.effects);
        self.flush(client, rank);
    }

    /// Closes the files that a client has open, at the end.
    pub(super) fn close_files(&mut self, client: usize) {
        for file in 0..self.locks.len() {
            self.close_file(client, file);
        }
    }

    /// An open was answered.
    pub(super) fn open_answered(
        &mut self,
        client: usize,
        file: usize,
        result: &Answered<Answer>,
    ) -> Result<(), &'static str> {
        let Ok(Answer::Opened(Opened { shared, .. })) = result else {
            self.opens.openers.remove(&(file, client));
            return Err("no answer to an open");
        };
        let Some(opener) = self.opens.openers.get_mut(&(file, client)) else {
            return Err("the client has not asked for that");
        };
        let write = opener.write;
        let lost = self.world.clients[client].lost_conns;
        opener.caches = (!shared).then_some(lost);
        self.world.tally.count("files opened", 1);
        let others = self.opens.openers.iter();
        let mut others = others.filter(|((of, other), _)| *of == file && *other != client);
        if others.any(|((_, other), opener)| {
            (write || opener.write) && self.is_caching(*other, opener.caches, file)
        }) {
            return Err("another client caches the file");
        }
        // A recall may be older than the answer.
        self.recalled(client, &[self.locks.ino(file)]);
        Ok(())
    }

    /// Whether a client certainly caches a file. A client may give a file up before its open is
    /// answered, and caches nothing until that is done.
    fn is_caching(&self, client: usize, since: Option<u64>, file: usize) -> bool {
        let (known, ino) = (&self.world.clients[client], self.locks.ino(file));
        let is_shared = known.links.values().any(|link| link.session.is_shared(ino));
        let gives_up = |call: &CallKind| *call == CallKind::Yield { ino };
        let is_giving_up = known.routed.values().any(|routed| gives_up(&routed.call.what));
        since == Some(known.lost_conns) && !is_shared && !is_giving_up
    }

    /// Servers want the client to give files up.
    pub(super) fn recalled(&mut self, client: usize, files: &[Ino]) {
        for ino in files {
            if self.locks.file(*ino).is_some() {
                let after = self.world.rng.between(1, 2 * MS);
                self.world.schedule(after, Event::Recalled(client, *ino));
            }
        }
    }

    /// The client has written what it caches, and gives the file up.
    pub(super) fn give_up(&mut self, client: usize, ino: Ino) {
        let rank = self.holder(client, ino);
        let holder = self.world.clients[client].links.get(&rank);
        if !holder.is_some_and(|link| link.session.is_recalled(ino)) {
            return;
        }
        let file = self.locks.file(ino);
        if let Some(opener) = file.and_then(|file| self.opens.openers.get_mut(&(file, client))) {
            opener.caches = None;
        }
        self.world.tally.count("files given up", 1);
        self.begin(client, Call::root(CallKind::Yield { ino }), None, Vec::new());
    }

    /// A file that was recalled is given up, or was not.
    pub(super) fn given_up(&mut self, client: usize, ino: Ino, result: &Answered<Answer>) {
        if result.is_err() {
            self.world.schedule(5 * MS, Event::Recalled(client, ino));
        }
    }

    /// In the end no client has a file open.
    pub(super) fn audit_opens(&mut self) {
        if !self.run_until(PATIENCE, |run| run.open_files() == 0) {
            self.world.fail(format!("{} files are open in the end", self.open_files()));
        }
    }

    /// How many files the servers have as open.
    fn open_files(&self) -> u64 {
        let servers = self.world.servers.iter().filter_map(|server| server.mds.as_ref());
        let counters = servers.flat_map(mds::Mds::counters);
        counters.filter(|(name, _)| name == "open_files").map(|(_, count)| count).sum()
    }
}
