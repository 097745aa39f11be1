//! Which clients have which files open, and which of them may cache.
//!
//! A file that one client has open, or that several have open for reading only, is *private*: its
//! clients may cache its attributes and their writes. One that several clients have open, with a
//! writer among them, is *shared*: no client caches anything. It becomes shared when every client
//! that may cache it has been notified and has answered, and until then the open request waits; it
//! stays shared until no client has it open.
//!
//! The table is in memory only: clients report their open files to a restarted server, and with
//! each new connection. Between the end of a connection and these reports the client is an *old*
//! opener: the open file ends if the client does not report it.

use std::collections::{BTreeMap, BTreeSet};

use crate::ReplyTo;
use namespace::FreedInode;
use types::{ClientId, ConnId, Ino, Moment, Seq};
use wire::Access;

/// How a client may have a file open now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Alone, or with other readers.
    Private,
    /// With other clients; its attributes are durable when the journal is up to here.
    Shared(Seq),
    /// It must become shared first.
    Wait,
}

/// See the module documentation.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Opens {
    files: BTreeMap<Ino, File>,
    /// Files that are shared, or becoming so.
    shared: BTreeSet<Ino>,
}

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
struct File {
    openers: BTreeMap<ClientId, Opener>,
    shared: bool,
    /// The event that took its inline content out of the namespace.
    moved: Seq,
    sharing: Option<Sharing>,
    /// It has no name any more.
    freed: Option<FreedInode>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Opener {
    read: bool,
    write: bool,
    /// It may cache attributes and writes.
    keeps: bool,
    /// The client has not reported the file with its present connection.
    old: bool,
}

/// A file that is becoming shared.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Sharing {
    until: Moment,
    /// Its content is moving to the object store.
    moving: bool,
    /// Requests that will be handled when it is shared.
    pub(crate) waiting: Vec<(ConnId, Vec<u8>)>,
    /// Yields that will be answered then.
    pub(crate) yields: Vec<ReplyTo>,
    /// The file, if it lost its last name and its last client closed it since.
    pub(crate) freed: Option<FreedInode>,
}

/// The files of a client that left.
#[derive(Debug, Default)]
pub(crate) struct LeftOpen {
    /// Files without a name that no client has open any more.
    pub(crate) freed: Vec<FreedInode>,
    /// Files that are becoming shared.
    pub(crate) sharing: Vec<Ino>,
}

impl Sharing {
    /// A connection ended, and no answer reaches it.
    fn end_requests_of(&mut self, conn: ConnId) {
        self.waiting.retain(|(from, _)| *from != conn);
        self.yields.retain(|at| at.conn != conn);
    }
}

impl File {
    fn is_contested(&self, client: ClientId, write: bool) -> bool {
        let mut others = self.openers.iter().filter(|(other, _)| **other != client).peekable();
        others.peek().is_some() && (write || others.any(|(_, opener)| opener.write))
    }
}

impl Opens {
    /// How many files are open.
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// The files that are open.
    pub(crate) fn files(&self) -> impl Iterator<Item = Ino> {
        self.files.keys().copied()
    }

    /// The files that other clients have open.
    pub(crate) fn of_others(&self, client: ClientId) -> impl Iterator<Item = Ino> {
        let of_others = move |file: &File| file.openers.keys().any(|opener| *opener != client);
        self.files.iter().filter(move |(_, file)| of_others(file)).map(|(ino, _)| *ino)
    }

    /// How a client may open a file.
    pub(crate) fn judge(&self, client: ClientId, ino: Ino, write: bool) -> Verdict {
        match self.files.get(&ino) {
            None => Verdict::Private,
            Some(file) if file.sharing.is_some() => Verdict::Wait,
            Some(file) if file.shared => Verdict::Shared(file.moved),
            Some(file) if file.is_contested(client, write) => Verdict::Wait,
            Some(_) => Verdict::Private,
        }
    }

    /// Whether a client has a file open.
    pub(crate) fn has(&self, client: ClientId, ino: Ino) -> bool {
        self.files.get(&ino).is_some_and(|file| file.openers.contains_key(&client))
    }

    /// The clients that have a file open.
    pub(crate) fn clients(&self, ino: Ino) -> impl Iterator<Item = ClientId> {
        self.files.get(&ino).into_iter().flat_map(|file| file.openers.keys().copied())
    }

    /// A file is another rank's, with all its clients. Returns the yields that wait for an answer.
    pub(crate) fn remove(&mut self, ino: Ino) -> Vec<ReplyTo> {
        self.shared.remove(&ino);
        let file = self.files.remove(&ino);
        file.and_then(|file| file.sharing).map(|sharing| sharing.yields).unwrap_or_default()
    }

    /// Forgets that other clients than these have a file open.
    pub(crate) fn keep_only(&mut self, ino: Ino, kept: impl Fn(ClientId) -> bool) {
        if let Some(file) = self.files.get_mut(&ino) {
            file.openers.retain(|client, _| kept(*client));
            let freed = self.tidy(ino);
            debug_assert!(freed.is_none(), "{ino}: a file with a name comes from another rank");
        }
    }

    /// A client has a file open.
    pub(crate) fn enter(&mut self, client: ClientId, ino: Ino, write: bool) {
        let file = self.files.entry(ino).or_default();
        let opener = file.openers.entry(client).or_default();
        opener.read |= !write;
        opener.write |= write;
        opener.keeps = !file.shared;
        opener.old = false;
    }

    /// Whether a client has a file open for writing.
    pub(crate) fn writes(&self, client: ClientId, ino: Ino) -> bool {
        let file = self.files.get(&ino);
        file.and_then(|file| file.openers.get(&client)).is_some_and(|opener| opener.write)
    }

    /// A file must become shared, because `asker` wants it. Returns the clients to notify.
    pub(crate) fn begin(&mut self, ino: Ino, asker: ClientId, until: Moment) -> Vec<ClientId> {
        let Some(file) = self.files.get_mut(&ino) else { return Vec::new() };
        if file.sharing.is_some() {
            return Vec::new();
        }
        assert!(!file.openers.is_empty(), "{ino}: a file that becomes shared is open");
        let (waiting, yields) = (Vec::new(), Vec::new());
        let (moving, freed) = (false, None);
        file.sharing = Some(Sharing { until, moving, waiting, yields, freed });
        self.shared.insert(ino);
        if let Some(opener) = file.openers.get_mut(&asker) {
            // The answer notifies it. It has nothing to write: otherwise no other client could have
            // the file open.
            opener.keeps = false;
        }
        keepers(file)
    }

    /// The sharing that is under way for a file.
    pub(crate) fn sharing(&mut self, ino: Ino) -> Option<&mut Sharing> {
        self.files.get_mut(&ino)?.sharing.as_mut()
    }

    /// A client caches nothing of a file any more. Returns whether the file must be shared now: the
    /// client regards it as shared, though the client that wanted it is gone. It may have closed
    /// the file and opened it again since it was notified.
    pub(crate) fn yielded(&mut self, client: ClientId, ino: Ino) -> bool {
        let Some(file) = self.files.get_mut(&ino) else { return false };
        let Some(opener) = file.openers.get_mut(&client) else { return false };
        opener.keeps = false;
        !file.shared && file.sharing.is_none()
    }

    /// Whether a file is becoming shared.
    pub(crate) fn is_becoming_shared(&self, ino: Ino) -> bool {
        self.files.get(&ino).is_some_and(|file| file.sharing.is_some())
    }

    /// Whether a file is shared.
    pub(crate) fn is_shared(&self, ino: Ino) -> bool {
        self.files.get(&ino).is_some_and(|file| file.shared)
    }

    /// Whether any file is shared, or will be.
    pub(crate) fn is_any_shared(&self) -> bool {
        !self.shared.is_empty()
    }

    /// Whether every client has answered. From now on the content is moved.
    pub(crate) fn start_moving(&mut self, ino: Ino) -> bool {
        let Some(file) = self.files.get_mut(&ino) else { return false };
        let kept = file.openers.values().any(|opener| opener.keeps);
        match &mut file.sharing {
            Some(sharing) if !sharing.moving && !kept => {
                sharing.moving = true;
                true
            }
            Some(_) | None => false,
        }
    }

    /// A file is shared, unless no client has it open any more, or sharing failed: then it is as
    /// private as before, also to clients that had given it up.
    pub(crate) fn finish(&mut self, ino: Ino, moved: Option<Seq>) -> Option<Sharing> {
        let file = self.files.get_mut(&ino)?;
        let sharing = file.sharing.take();
        if let Some(moved) = moved {
            (file.shared, file.moved) = (true, file.moved.max(moved));
        } else if !file.shared {
            file.openers.values_mut().for_each(|opener| opener.keeps = true);
        }
        if !file.shared {
            self.shared.remove(&ino);
        }
        let freed = self.tidy(ino);
        sharing.map(|sharing| Sharing { freed, ..sharing })
    }

    /// A client reports an open file. Returns whether the file must become shared: clients keep
    /// their caches although other clients have the file open, too.
    ///
    /// A report of known state is not a new open: the client still gives up a file that was
    /// recalled since.
    pub(crate) fn reopen(&mut self, client: ClientId, ino: Ino, access: Access) -> bool {
        let file = self.files.entry(ino).or_default();
        let Access { read, write, shared } = access;
        // The client has forgotten recalls from before its connection.
        if file.openers.get(&client).is_some_and(|known| known.old) {
            file.openers.remove(&client);
        }
        if let Some(known) = file.openers.get_mut(&client)
            && (known.read, known.write) == (read, write)
        {
            known.keeps &= !shared;
            return false;
        }
        file.openers.insert(client, Opener { read, write, keeps: !shared, old: false });
        file.shared |= shared;
        if file.shared {
            self.shared.insert(ino);
        }
        let must_share = file.shared || file.is_contested(client, write);
        must_share && file.sharing.is_none() && !keepers(file).is_empty()
    }

    /// A client closes a file. Returns the file if it is to be deleted.
    pub(crate) fn close(&mut self, client: ClientId, ino: Ino, write: bool) -> Option<FreedInode> {
        let file = self.files.get_mut(&ino)?;
        let opener = file.openers.get_mut(&client)?;
        if write {
            opener.write = false;
        } else {
            opener.read = false;
        }
        if !opener.read && !opener.write {
            file.openers.remove(&client);
        }
        self.tidy(ino)
    }

    /// Keeps the content of a file without a name, if a client has it open. A client may also say
    /// that it has a directory open: then only the purge waits.
    pub(crate) fn keep(&mut self, freed: FreedInode) -> bool {
        match self.files.get_mut(&freed.ino) {
            Some(file) if !file.openers.is_empty() => {
                file.freed = Some(freed);
                true
            }
            Some(_) | None => false,
        }
    }

    /// A file that had lost its last name has a name again.
    pub(crate) fn named_again(&mut self, ino: Ino) {
        if let Some(file) = self.files.get_mut(&ino) {
            file.freed = None;
        }
    }

    /// Whether an open file has lost its last name.
    pub(crate) fn is_nameless(&self, ino: Ino) -> bool {
        self.files.get(&ino).is_some_and(|file| file.freed.is_some())
    }

    /// The connection of a client is gone, and with it the requests that wait. The client is an old
    /// opener. Returns its files that are becoming shared.
    pub(crate) fn disconnect(&mut self, client: ClientId, conn: ConnId) -> Vec<Ino> {
        let mut sharing = Vec::new();
        for (ino, file) in &mut self.files {
            if let Some(opener) = file.openers.get_mut(&client) {
                opener.old = true;
            }
            if let Some(under_way) = &mut file.sharing {
                under_way.end_requests_of(conn);
                sharing.push(*ino);
            }
        }
        sharing
    }

    /// A client has reported all its open files, and closed the ones that are still old.
    pub(crate) fn end_old(&mut self, client: ClientId) -> LeftOpen {
        let mut left = LeftOpen::default();
        let is_old = |file: &File| file.openers.get(&client).is_some_and(|opener| opener.old);
        let old = self.files.iter().filter(|(_, file)| is_old(file));
        for ino in old.map(|(ino, _)| *ino).collect::<Vec<_>>() {
            let Some(file) = self.files.get_mut(&ino) else { continue };
            file.openers.remove(&client);
            if file.sharing.is_some() {
                left.sharing.push(ino);
            }
            left.freed.extend(self.tidy(ino));
        }
        left
    }

    /// Whether a client has any file open.
    pub(crate) fn is_any_of(&self, client: ClientId) -> bool {
        self.files.values().any(|file| file.openers.contains_key(&client))
    }

    /// Whether a client has to give up a file that becomes shared.
    pub(crate) fn must_give_up(&self, client: ClientId, ino: Ino) -> bool {
        let file = self.files.get(&ino).filter(|file| file.sharing.is_some());
        file.and_then(|file| file.openers.get(&client)).is_some_and(|opener| opener.keeps)
    }

    /// Clients that did not answer in time.
    pub(crate) fn silent(&self, now: Moment) -> Vec<ClientId> {
        let overdue = |file: &&File| {
            file.sharing.as_ref().is_some_and(|sharing| !sharing.moving && now >= sharing.until)
        };
        let mut silent: Vec<_> = self.files.values().filter(overdue).flat_map(keepers).collect();
        silent.sort_unstable();
        silent.dedup();
        silent
    }

    /// Forgets a file that no client has open.
    fn tidy(&mut self, ino: Ino) -> Option<FreedInode> {
        let file = self.files.get(&ino)?;
        if !file.openers.is_empty() || file.sharing.is_some() {
            return None;
        }
        let file = self.files.remove(&ino)?;
        assert!(file.openers.is_empty(), "{ino}: no client has the forgotten file open");
        self.shared.remove(&ino);
        file.freed
    }

    /// Whether any client has a file open.
    pub(crate) fn is_open(&self, ino: Ino) -> bool {
        self.files.get(&ino).is_some_and(|file| !file.openers.is_empty())
    }
}

fn keepers(file: &File) -> Vec<ClientId> {
    let keeping = file.openers.iter().filter(|(_, opener)| opener.keeps);
    keeping.map(|(client, _)| *client).collect()
}

mod validate;

#[cfg(test)]
mod tests;
