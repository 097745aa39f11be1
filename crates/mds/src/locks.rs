//! Locks on files: the holders, the waiting requests, and their order.
//!
//! Waiting requests are served in the order of arrival. A client without a lock on the file also
//! waits behind earlier requests that exclude its own, so that readers that come and go do not
//! starve a writer; a client with a lock waits only for locks that are held, so that every circle
//! of waiting clients leads through held locks. For the locks of processes, a request that would
//! close such a circle is refused; those of open files may wait for each other for ever, as `flock`
//! allows.
//!
//! The table is in memory only: clients report their locks to a restarted server, and with each new
//! connection. Between the end of a connection and these reports the locks of the client are *old*:
//! they exclude other locks, and end if the client does not report them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use types::{ClientId, Ino, Lock, LockKind, LockMode, LockRanges};

/// The owner of a lock.
type Owner = (LockKind, ClientId, u64);

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockOutcome {
    /// The request was executed.
    Set,
    /// Another owner has a conflicting lock.
    Taken,
    /// Waiting would never end.
    Deadlock,
    /// The ticket will be among those that are served.
    Waits,
}

/// See the module documentation. `T` is the ticket of a waiting request.
#[derive(Debug)]
pub(crate) struct Locks<T> {
    files: BTreeMap<Ino, File<T>>,
    /// Files that were moving when a lock ended: waiting requests may be possible there.
    deferred: BTreeSet<Ino>,
}

#[derive(Debug)]
struct File<T> {
    held: BTreeMap<Owner, LockRanges>,
    /// Locks that their clients have not reported with their present connections.
    old: BTreeMap<Owner, LockRanges>,
    waiting: VecDeque<Wish<T>>,
}

#[derive(Debug)]
struct Wish<T> {
    client: ClientId,
    lock: Lock,
    ticket: T,
}

impl<T> Default for Locks<T> {
    fn default() -> Self {
        Self { files: BTreeMap::new(), deferred: BTreeSet::new() }
    }
}

impl<T> Default for File<T> {
    fn default() -> Self {
        Self { held: BTreeMap::new(), old: BTreeMap::new(), waiting: VecDeque::new() }
    }
}

fn owner(client: ClientId, lock: &Lock) -> Owner {
    (lock.kind, client, lock.owner)
}

impl<T> File<T> {
    /// The locks of other owners that exclude this one.
    fn in_the_way<'a>(
        &'a self,
        client: ClientId,
        lock: &'a Lock,
    ) -> impl Iterator<Item = (Owner, &'a Lock)> {
        let all = self.held.iter().chain(&self.old);
        let others = all.filter(move |(other, _)| **other != owner(client, lock));
        others.flat_map(move |(other, ranges)| {
            let excluded = ranges.iter().filter(move |held| held.excludes(lock));
            excluded.map(move |held| (*other, held))
        })
    }

    fn is_free(&self, client: ClientId, lock: &Lock) -> bool {
        self.in_the_way(client, lock).next().is_none()
    }

    fn place(&mut self, client: ClientId, lock: Lock) {
        let key = owner(client, &lock);
        debug_assert!(self.is_free(client, &lock), "{lock:?} of {client} is excluded by no lock");
        let ranges = self.held.entry(key).or_default();
        ranges.set(lock);
        if ranges.is_empty() {
            self.held.remove(&key);
        }
        if let Some(old) = self.old.get_mut(&key) {
            old.set(Lock { mode: LockMode::Unlock, ..lock });
            self.old.retain(|_, ranges| !ranges.is_empty());
        }
    }

    /// All locks of a client become old.
    fn outdate(&mut self, client: ClientId) {
        for (key, ranges) in self.held.extract_if(.., |(_, holder, _), _| *holder == client) {
            let old = self.old.entry(key).or_default();
            ranges.iter().for_each(|lock| old.set(*lock));
        }
    }

    /// The clients with locks.
    fn holders(&self) -> impl Iterator<Item = ClientId> {
        self.held.keys().chain(self.old.keys()).map(|(_, client, _)| *client)
    }

    /// Whether one of the first `count` waiting requests excludes this lock.
    fn is_behind(&self, count: usize, client: ClientId, lock: &Lock) -> bool {
        self.waiting.iter().take(count).any(|wish| {
            owner(wish.client, &wish.lock) != owner(client, lock) && wish.lock.excludes(lock)
        })
    }
}

impl<T> Locks<T> {
    /// Executes a client's request, or lets it wait if it has a ticket. The tickets of requests
    /// that need not wait any more are added to `served`.
    pub(crate) fn set(
        &mut self,
        ino: Ino,
        client: ClientId,
        lock: Lock,
        ticket: Option<T>,
        served: &mut Vec<T>,
    ) -> LockOutcome {
        let holds = self.holds_any(owner(client, &lock));
        let file = self.files.entry(ino).or_default();
        let free = file.is_free(client, &lock);
        let queues = ticket.is_some() && !holds && file.is_behind(usize::MAX, client, &lock);
        let outcome = match ticket {
            _ if free && !queues => {
                file.place(client, lock);
                LockOutcome::Set
            }
            None => LockOutcome::Taken,
            Some(_) if lock.kind == LockKind::Posix && self.closes_circle(ino, client, &lock) => {
                LockOutcome::Deadlock
            }
            Some(ticket) => {
                let file = self.files.entry(ino).or_default();
                if lock.kind == LockKind::Flock {
                    // An open file gives up its lock first: otherwise two files that both want to
                    // upgrade from reading to writing would wait for each other.
                    file.place(client, Lock { mode: LockMode::Unlock, ..lock });
                }
                file.waiting.push_back(Wish { client, lock, ticket });
                LockOutcome::Waits
            }
        };
        self.serve(ino, served);
        outcome
    }

    /// The first lock of another owner that excludes this one, and its client.
    pub(crate) fn test(&self, ino: Ino, client: ClientId, lock: &Lock) -> Option<(ClientId, Lock)> {
        let found = self.files.get(&ino)?.in_the_way(client, lock);
        let first = found.min_by_key(|(owner, held)| (held.start, *owner));
        first.map(|((_, client, _), held)| (client, *held))
    }

    /// A client cancels its wait. Returns the ticket, if the request was waiting.
    pub(crate) fn cancel(
        &mut self,
        ino: Ino,
        client: ClientId,
        lock: &Lock,
        served: &mut Vec<T>,
    ) -> Option<T> {
        let file = self.files.get_mut(&ino)?;
        let same = |wish: &Wish<T>| wish.client == client && wish.lock == *lock;
        let at = file.waiting.iter().position(same)?;
        let wish = file.waiting.remove(at);
        self.serve(ino, served);
        wish.map(|wish| wish.ticket)
    }

    /// Forgets the locks on a file of other clients than these.
    pub(crate) fn keep_only(&mut self, ino: Ino, kept: impl Fn(ClientId) -> bool) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        file.held.retain(|(_, client, _), _| kept(*client));
        file.old.retain(|(_, client, _), _| kept(*client));
        self.tidy(ino);
    }

    /// The connection of a client is gone, and with it the requests that wait. Its locks are old.
    /// On a file that is not served now, waiting requests are granted later ([`Locks::deferred`]).
    pub(crate) fn disconnect(
        &mut self,
        client: ClientId,
        is_served: impl Fn(Ino) -> bool,
        served: &mut Vec<T>,
    ) {
        let change = |file: &mut File<T>| {
            file.outdate(client);
            file.waiting.retain(|wish| wish.client != client);
        };
        self.change_all_of(client, change, is_served, served);
    }

    /// A client has reported all its locks: those that are still old have ended.
    pub(crate) fn end_old(
        &mut self,
        client: ClientId,
        is_served: impl Fn(Ino) -> bool,
        served: &mut Vec<T>,
    ) {
        let change = |file: &mut File<T>| file.old.retain(|(_, holder, _), _| *holder != client);
        self.change_all_of(client, change, is_served, served);
    }

    /// Changes each file on which a client has or wants a lock.
    fn change_all_of(
        &mut self,
        client: ClientId,
        change: impl Fn(&mut File<T>),
        is_served: impl Fn(Ino) -> bool,
        served: &mut Vec<T>,
    ) {
        let touched = |file: &File<T>| {
            file.holders().any(|holder| holder == client)
                || file.waiting.iter().any(|wish| wish.client == client)
        };
        let files = self.files.iter().filter(|(_, file)| touched(file));
        let files: Vec<Ino> = files.map(|(ino, _)| *ino).collect();
        for ino in files {
            if let Some(file) = self.files.get_mut(&ino) {
                change(file);
            }
            if is_served(ino) {
                self.serve(ino, served);
            } else {
                self.deferred.insert(ino);
                self.tidy(ino);
            }
        }
    }

    /// Whether a client has any lock.
    pub(crate) fn is_any_of(&self, client: ClientId) -> bool {
        self.files.values().any(|file| file.holders().any(|holder| holder == client))
    }

    /// The files that have locks, or are waited for.
    pub(crate) fn files(&self) -> impl Iterator<Item = Ino> {
        self.files.keys().copied()
    }

    /// The clients with locks on a file.
    pub(crate) fn clients(&self, ino: Ino) -> impl Iterator<Item = ClientId> {
        self.files.get(&ino).into_iter().flat_map(File::holders)
    }

    /// A file is another rank's, with all its locks. Returns the tickets of the waiting requests.
    pub(crate) fn remove(&mut self, ino: Ino) -> Vec<T> {
        self.deferred.remove(&ino);
        let waiting = self.files.remove(&ino).map(|file| file.waiting).unwrap_or_default();
        waiting.into_iter().map(|wish| wish.ticket).collect()
    }

    /// How many files have locks, or are waited for.
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    fn holds_any(&self, owner: Owner) -> bool {
        self.files.values().any(|file| file.held.contains_key(&owner))
    }

    /// Grants the waiting requests for a file that are possible, in their order.
    pub(crate) fn serve(&mut self, ino: Ino, served: &mut Vec<T>) {
        self.deferred.remove(&ino);
        let mut at = 0;
        while let Some(file) = self.files.get(&ino)
            && let Some(Wish { client, lock, .. }) = file.waiting.get(at)
        {
            let (client, lock) = (*client, *lock);
            let behind = file.is_behind(at, client, &lock);
            let may =
                file.is_free(client, &lock) && (!behind || self.holds_any(owner(client, &lock)));
            if !may {
                at += 1;
                continue;
            }
            let file = self.files.entry(ino).or_default();
            if let Some(wish) = file.waiting.remove(at) {
                served.push(wish.ticket);
            }
            file.place(client, lock);
            // Its previous lock may have excluded an earlier request.
            at = 0;
        }
        self.tidy(ino);
    }

    /// Files that were moving when a lock ended; their waiting requests are granted later.
    pub(crate) fn deferred(&self) -> impl Iterator<Item = Ino> {
        self.deferred.iter().copied()
    }

    /// Forgets a file without locks.
    fn tidy(&mut self, ino: Ino) {
        let is_unused =
            |file: &File<T>| file.held.is_empty() && file.old.is_empty() && file.waiting.is_empty();
        if self.files.get(&ino).is_some_and(is_unused) {
            self.files.remove(&ino);
            self.deferred.remove(&ino);
        }
    }

    /// Whether the owners for which a request would wait already wait for its owner.
    fn closes_circle(&self, ino: Ino, client: ClientId, lock: &Lock) -> bool {
        let start = owner(client, lock);
        let mut seen = BTreeSet::new();
        let mut next: Vec<Owner> = Vec::new();
        if let Some(file) = self.files.get(&ino) {
            next.extend(file.in_the_way(client, lock).map(|(other, _)| other));
        }
        while let Some(waiter) = next.pop() {
            if waiter == start {
                return true;
            }
            if !seen.insert(waiter) {
                continue;
            }
            for file in self.files.values() {
                for wish in &file.waiting {
                    if owner(wish.client, &wish.lock) == waiter {
                        let others = file.in_the_way(wish.client, &wish.lock);
                        next.extend(others.map(|(other, _)| other));
                    }
                }
            }
        }
        false
    }
}

mod validate;

#[cfg(test)]
mod tests;
