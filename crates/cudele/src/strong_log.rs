//! Strong consistency with local durability (`rpcs+local_persist`): every request of this client
//! is also logged on its own disk before it returns. When the metadata server comes back from a
//! crash without its memory, the client applies its log again, before anything else that it asks
//! for; and if the client is dead by then, the next process of the same user on the same machine
//! does ([`dead`]).
//!
//! The header of a log has the first term of the server that needs it. A server replays the log
//! only if that term or a later one crashed: a stopped server has stored all events, and the log
//! begins again. A long log begins again after a checkpoint, too.
//!
//! Logs of several clients have no common order. After a crash they are applied one after the
//! other, each in its own order. If two clients changed the same name since the last checkpoint,
//! the log that is applied last wins.

pub(crate) mod dead;
mod file;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use client::{LogNeed, LogState, LogStep};
use journal::{Create, Event, InodeSnapshot, SegmentHeader, Writer};
use policy::{Checksums, Mechanism, Sharing};
use types::{Attr, AttrChange, EntryName, Epoch, Errno, Error, Ino, Result, Seq};

use crate::observe::Observed;
use crate::state::io_error;
use crate::{Fs, Stage, StateDir};

use file::LogFile;
pub(crate) use file::is_log;

/// The time for which the policy of a directory is cached.
const KNOWN_FOR: Duration = Duration::from_secs(1);
/// So many directories are remembered; then the memory starts afresh.
const KNOWN_MAX: usize = 4096;

/// The logs of a client, by the directory with the policy that asks for them.
#[derive(Debug, Default)]
pub(crate) struct StrongLogs {
    logs: Mutex<BTreeMap<Ino, Arc<StrongLog>>>,
    known: Mutex<BTreeMap<Ino, KnownTerms>>,
}

/// The effect of a directory's policy on its clients.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// The log for changes in the directory, if the policy asks for one.
    pub(crate) log: Option<Arc<StrongLog>>,
    /// How long content is kept inline.
    pub(crate) inline_bytes: u32,
    /// Writes to shared files may wait for the flush.
    pub(crate) lazy: bool,
    /// Written content gets checksums.
    pub(crate) checksums: bool,
}

/// The terms of a directory, and when they were asked.
#[derive(Clone, Debug)]
struct KnownTerms {
    terms: Terms,
    at: Instant,
}

/// A log on the local disk.
#[derive(Debug)]
pub(crate) struct StrongLog {
    pub(crate) subtree: Ino,
    open: Mutex<Open>,
    observed: Observed,
}

#[derive(Debug)]
struct Open {
    file: LogFile,
    state: LogState,
}

impl StrongLogs {
    /// The terms for operations in a directory.
    pub(crate) fn for_dir(&self, fs: &Fs, dir: Ino) -> Result<Terms> {
        let (policy, effective) = fs.policy_at(dir)?;
        let inline_bytes = policy.inline_bytes;
        let lazy = policy.sharing == Sharing::Lazy;
        let checksums = policy.checksums == Checksums::On;
        if !policy.contains(Mechanism::Rpcs) || !policy.contains(Mechanism::LocalPersist) {
            return Ok(Terms { log: None, inline_bytes, lazy, checksums });
        }
        let subtree = effective.source;
        let writer = Writer::Client { client: fs.client(), subtree };
        let header = SegmentHeader { writer, epoch: fs.terms().0, first_seq: Seq(1) };
        // No request is made under this lock: the requesting thread may have to replay.
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = logs.get(&subtree) {
            return Ok(Terms { log: Some(log.clone()), inline_bytes, lazy, checksums });
        }
        let log = Arc::new(StrongLog::create(fs, subtree, header)?);
        logs.insert(subtree, log.clone());
        Ok(Terms { log: Some(log), inline_bytes, lazy, checksums })
    }

    /// The same for a process that works in many directories for long: it asks only now and then,
    /// so a policy that another client sets takes effect that much later.
    pub(crate) fn known_for_dir(&self, fs: &Fs, dir: Ino) -> Result<Terms> {
        if let Some(known) = self.known().get(&dir)
            && known.at.elapsed() < KNOWN_FOR
        {
            return Ok(known.terms.clone());
        }
        let terms = self.for_dir(fs, dir)?;
        self.note(dir, KnownTerms { terms: terms.clone(), at: Instant::now() });
        Ok(terms)
    }

    /// A directory was just made: the policy of its parent holds in it, without a question for each
    /// directory of a new tree.
    pub(crate) fn inherit_terms(&self, parent: Ino, made: Ino) {
        let inherited = self.known().get(&parent).cloned();
        if let Some(known) = inherited {
            self.note(made, known);
        }
    }

    fn note(&self, dir: Ino, terms: KnownTerms) {
        let mut known = self.known();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(dir, terms);
    }

    /// Drops all cached terms.
    pub(crate) fn forget_terms(&self) {
        self.known().clear();
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Ino, KnownTerms>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<StrongLog>> {
        let logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        logs.values().cloned().collect()
    }
}

impl StrongLog {
    fn create(fs: &Fs, subtree: Ino, header: SegmentHeader) -> Result<Self> {
        let Writer::Client { client, .. } = header.writer else {
            return Err(Error::of(Errno::Invalid, "log"));
        };
        let name = file::name(client, crate::now());
        let path = StateDir::of(fs.cluster_id(), subtree)?.path().join(name);
        let file = LogFile::start(&path, header, &[]).map_err(|error| io_error(&path, &error))?;
        let open = Open { file, state: LogState::default() };
        Ok(Self { subtree, open: Mutex::new(open), observed: fs.observed().clone() })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The events that a server needs, and the position behind them; `None` if the server or the
    /// store has all.
    pub(crate) fn wanted(&self, epoch: Epoch, crashed: Epoch) -> Result<Option<(Vec<u8>, Seq)>> {
        let mut open = self.lock();
        let next = open.file.next();
        let need = LogNeed::of(open.file.header().epoch, epoch, crashed);
        let result = match open.state.step(need, epoch, open.file.events()) {
            LogStep::Keep | LogStep::Remove => Ok(None),
            LogStep::BeginAgain => open.restart(epoch, next).map(|()| None),
            LogStep::NoteTerm => open.file.set_epoch(epoch).map(|()| None),
            LogStep::Replay => open.file.intact().map(Some),
        };
        result.map_err(|error| io_error(open.file.path(), &error))
    }

    /// The server of this term has everything before a position.
    pub(crate) fn replayed(&self, epoch: Epoch, next: Seq) -> Result<()> {
        let mut open = self.lock();
        // Another thread may have logged events of the term before.
        if open.file.next() > next {
            return Ok(());
        }
        open.file.set_epoch(epoch).map_err(|error| io_error(open.file.path(), &error))
    }

    /// The server of this term is not asked again.
    pub(crate) fn refused(&self, epoch: Epoch, error: Error) -> Error {
        let mut open = self.lock();
        open.state.refused_in = Some(epoch);
        error.about(open.file.path().display().to_string())
    }

    /// Makes a long log begin again.
    pub(crate) fn shorten(&self, fs: &Fs) {
        let from = {
            let mut open = self.lock();
            let events = open.file.events();
            if !open.state.is_long(events) {
                return;
            }
            open.file.next()
        };
        let (epoch, _) = fs.terms();
        // It is only longer than it could be if this fails.
        if fs.checkpoint().is_ok() && fs.terms().0 == epoch {
            let mut open = self.lock();
            if open.file.header().epoch == epoch && !open.state.failed {
                let _ = open.restart(epoch, from);
            }
        }
    }

    /// Logs an event durably.
    fn append(&self, event: &Event<'_>) -> Result<()> {
        let mut open = self.lock();
        if open.state.failed {
            let path = open.file.path().display().to_string();
            return Err(Error::new(Errno::Io, path, "an earlier write failed").remedy(
                "the operation is applied but not logged; free space and open the directory again",
            ));
        }
        let note = |stage| self.observed.note(Mechanism::LocalPersist, stage);
        note(Stage::Begun);
        if let Err(error) = open.file.append(event, || note(Stage::Written)) {
            open.state.failed = true;
            return Err(io_error(open.file.path(), &error));
        }
        note(Stage::Ended);
        Ok(())
    }

    pub(crate) fn created(&self, parent: Ino, name: &[u8], attr: &Attr, data: &[u8]) -> Result<()> {
        let inode = InodeSnapshot { attr: *attr, data, extra: &[] };
        self.append(&Event::Create(Create::of(EntryName::new(parent, name), inode)))
    }

    pub(crate) fn linked(&self, parent: Ino, name: &[u8], attr: &Attr) -> Result<()> {
        let inode = InodeSnapshot { attr: *attr, data: &[], extra: &[] };
        let home = Ino::LINKS;
        self.append(&Event::Link { parent, name, ino: attr.ino, home, inode, time: attr.ctime })
    }

    pub(crate) fn removed(&self, parent: Ino, name: &[u8], directory: bool) -> Result<()> {
        // The server knows which inode it was; here it was never asked for.
        let (ino, time) = (Ino(0), crate::now());
        self.append(&if directory {
            Event::Rmdir { parent, name, ino, time }
        } else {
            Event::Unlink { parent, name, ino, time }
        })
    }

    pub(crate) fn renamed(
        &self,
        from: EntryName<'_>,
        to: EntryName<'_>,
        moved: &Attr,
        back: Option<&Attr>,
    ) -> Result<()> {
        let moved = InodeSnapshot { attr: *moved, data: &[], extra: &[] };
        let exchanged = back.map(|attr| InodeSnapshot { attr: *attr, data: &[], extra: &[] });
        let time = crate::now();
        self.append(&Event::Rename {
            parent: from.dir,
            name: from.name,
            new_parent: to.dir,
            new_name: to.name,
            moved,
            exchanged,
            replaced: Ino(0),
            time,
        })
    }

    pub(crate) fn set_attr(&self, home: Ino, ino: Ino, change: &AttrChange) -> Result<()> {
        self.append(&Event::SetAttr { ino, home, change: *change, time: crate::now() })
    }

    /// `at` has the directory that stores the inode, and the name of the attribute.
    pub(crate) fn set_xattr(
        &self,
        at: EntryName<'_>,
        ino: Ino,
        value: Option<&[u8]>,
    ) -> Result<()> {
        let (home, name, time) = (at.dir, at.name, crate::now());
        self.append(&Event::SetXattr { ino, home, name, value, time })
    }

    pub(crate) fn set_data(&self, home: Ino, ino: Ino, data: &[u8], size: u64) -> Result<()> {
        self.append(&Event::SetData { ino, home, data, size, time: crate::now() })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // A process that made no change leaves no log. If the file stays, the next process removes
        // it.
        if self.file.events() == 0 {
            let _ = self.file.remove();
        }
    }
}

impl Open {
    fn restart(&mut self, epoch: Epoch, from: Seq) -> std::io::Result<()> {
        self.file.restart(epoch, from)?;
        self.state.begin_again();
        Ok(())
    }
}
