//! Locks on files in directories that move: at no time two clients have the same one, whatever is
//! killed, and none is refused for a client that has none.
//!
//! A client has a lock from the answer that grants it until the request that ends it. It may have
//! the lock a little longer: from the request for it until the answer about its end. A client that
//! loses a connection while the server runs may lose its locks.

use std::collections::BTreeMap;

use types::{Errno, Ino, Lock, LockKind, LockMode, Result as Answered};
use wire::Answer;

use super::Ranks;
use super::register::Place;
use super::script::{Role, Script};
use crate::call::CallKind;

/// All files with locks.
#[derive(Debug, Default)]
pub(super) struct Locks {
    files: Vec<File>,
}

#[derive(Debug)]
struct File {
    ino: Ino,
    place: Place,
    owners: BTreeMap<usize, Owner>,
}

/// The lock of one client.
#[derive(Clone, Copy, Debug, Default)]
struct Owner {
    /// The client has the lock, unless it lost a connection: since then, and the number of
    /// connections that it had lost by then.
    granted: Option<(u64, u64)>,
    /// It may have the lock since then.
    since: Option<u64>,
    /// It may have had the lock until then.
    until: u64,
}

impl Owner {
    /// Whether the client may have had the lock at some moment since `asked`.
    fn may_have_had(&self, asked: u64) -> bool {
        self.since.is_some() || self.until >= asked
    }
}

fn lock(mode: LockMode) -> Lock {
    Lock { kind: LockKind::Posix, mode, owner: 1, pid: 1, start: 0, end: u64::MAX }
}

/// A step about a lock on a file.
fn step(file: usize, call: CallKind) -> Script {
    Script { call, role: Role::Lock(file) }
}

fn ends(ino: Ino) -> CallKind {
    CallKind::Lock { ino, lock: lock(LockMode::Unlock), wait: false }
}

impl Locks {
    /// How many files with locks there are.
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// The inode of such a file.
    pub(super) fn ino(&self, file: usize) -> Ino {
        self.files[file].ino
    }

    /// The file with this inode.
    pub(super) fn file(&self, ino: Ino) -> Option<usize> {
        self.files.iter().position(|file| file.ino == ino)
    }

    /// The question who has the lock on a file.
    pub(super) fn ask(&self, file: usize) -> CallKind {
        CallKind::GetLock { ino: self.ino(file), lock: lock(LockMode::Write) }
    }
}

impl Ranks {
    /// A file with locks was made.
    pub(super) fn lock_file_made(&mut self, place: Place, ino: Ino) {
        self.locks.files.push(File { ino, place, owners: BTreeMap::new() });
    }

    /// The path of a file with locks, for a client that must look for the file.
    pub(super) fn lock_place(&self, file: usize) -> &Place {
        &self.locks.files[file].place
    }

    /// A client's next step about a lock.
    pub(super) fn choose_lock(&mut self, client: usize) -> Script {
        let file = self.world.rng.index(self.locks.files.len());
        let holds_any = self
            .locks
            .files
            .iter()
            .any(|file| file.owners.get(&client).is_some_and(|owner| owner.since.is_some()));
        let (now, rng) = (self.world.now, &mut self.world.rng);
        let File { ino, ref mut owners, .. } = self.locks.files[file];
        let owner = owners.entry(client).or_default();
        if rng.percent(30) {
            return step(file, self.locks.ask(file));
        }
        if owner.since.is_some() {
            owner.granted = None;
            return step(file, ends(ino));
        }
        owner.since = Some(now);
        // Two clients that wait for each other at two ranks would wait for ever.
        let wait = !holds_any && rng.percent(50);
        step(file, CallKind::Lock { ino, lock: lock(LockMode::Write), wait })
    }

    /// The last step of a client about a lock, if it has one.
    pub(super) fn end_lock(&mut self, client: usize) -> Option<Script> {
        for (at, file) in self.locks.files.iter_mut().enumerate() {
            let Some(owner) = file.owners.get_mut(&client) else { continue };
            if owner.since.is_some() {
                owner.granted = None;
                return Some(step(at, ends(file.ino)));
            }
        }
        None
    }

    /// A step about a lock on a file was answered.
    pub(super) fn lock_answered(
        &mut self,
        client: usize,
        (file, asked): (usize, u64),
        call: &CallKind,
        result: &Answered<Answer>,
    ) -> Result<(), &'static str> {
        let (now, lost) = (self.world.now, self.world.clients[client].lost_conns);
        let errno = result.as_ref().err().map(|error| error.errno);
        let other = self.other_with_lock(client, file);
        let file = &mut self.locks.files[file];
        let may_others = |file: &File| {
            let mut others = file.owners.iter().filter(|(other, _)| **other != client);
            others.any(|(_, owner)| owner.may_have_had(asked))
        };
        let owner = file.owners.entry(client).or_default();
        match (call, result) {
            (CallKind::Lock { lock, .. }, Ok(Answer::Done)) if lock.mode == LockMode::Unlock => {
                *owner = Owner { until: now, ..Owner::default() };
            }
            (CallKind::Lock { .. }, Ok(Answer::Done)) => {
                if other.is_some() {
                    return Err("another client has the lock");
                }
                owner.granted = Some((now, lost));
                self.world.tally.count("locks granted", 1);
            }
            (CallKind::Lock { .. }, Err(_)) if errno == Some(Errno::Again) => {
                *owner = Owner { until: now, ..Owner::default() };
                if !may_others(file) {
                    return Err("no other client has the lock");
                }
                self.world.tally.count("locks refused", 1);
            }
            (CallKind::GetLock { .. }, Ok(Answer::Locked(None))) => {
                if other.is_some_and(|since| since <= asked) {
                    return Err("another client has the lock");
                }
            }
            (CallKind::GetLock { .. }, Ok(Answer::Locked(Some((named, _))))) => {
                let named = self.world.clients.iter().position(|known| known.id == *named);
                let owner = named.and_then(|named| file.owners.get(&named));
                if owner.is_none_or(|owner| !owner.may_have_had(asked)) {
                    return Err("that client does not have the lock");
                }
            }
            _ => return Err("no answer to a request about a lock"),
        }
        Ok(())
    }

    /// When another client got the lock that it certainly has.
    fn other_with_lock(&self, client: usize, file: usize) -> Option<u64> {
        let others = self.locks.files[file].owners.iter().filter(|(other, _)| **other != client);
        let certain = others.filter_map(|(other, owner)| {
            let (since, lost) = owner.granted?;
            (self.world.clients[*other].lost_conns == lost).then_some(since)
        });
        certain.min()
    }

    /// A client hears that it lost a lock.
    pub(super) fn locks_lost(&mut self, client: usize, files: &[Ino]) {
        let lost_conns = self.world.clients[client].lost_conns;
        for ino in files {
            let Some(file) = self.locks.files.iter_mut().find(|file| file.ino == *ino) else {
                continue;
            };
            let owner = file.owners.entry(client).or_default();
            if owner.granted.take().is_some_and(|(_, lost)| lost == lost_conns) {
                let text = format!("client.{client} lost its lock on {ino}");
                self.world.fail(text);
            }
            self.world.tally.count("locks lost with a connection", 1);
        }
    }

    /// In the end no client has a lock.
    pub(super) fn audit_locks(&mut self) {
        for file in 0..self.locks.len() {
            self.workers[0].script.push_back(step(file, self.locks.ask(file)));
        }
    }
}
