//! The journals of a decoupled subtree that earlier processes of this client left, on this disk and
//! in the object store.
//!
//! A process may have ended at any moment. Invariant: all events of a completed persist are found,
//! and the remains of an interrupted one do no harm.

use client::{ClientSubtree, IntactJournal};
use journal::SegmentHeader;
use metastore::request::client_journal_prefix;
use objstore::{Expect, SyncScope};
use policy::Durability;
use types::{Errno, Error, Ino, Result, Seq};
use wire::{MergeFlags, MergeReport, UnusedNumbers};

use super::Subtree;
use super::sealed::Sealed;
use crate::Fs;
use crate::mechanism::{MergedBy, Whole, merge_by_reference, merge_proved};

/// A journal of an earlier process, or a part of this one's that was not merged.
#[derive(Debug)]
pub(crate) struct Earlier {
    /// Where it is, for people.
    name: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) first: Seq,
    pub(super) next: Seq,
    /// The journal object, if it is in the store: then the server reads it from there, and again
    /// after a crash.
    object: Option<String>,
    /// Whether it ended with something that was not written completely.
    torn: bool,
    /// If it is of this process.
    pub(super) sealed: Option<Sealed>,
}

impl Earlier {
    /// As far as the journal is intact.
    pub(crate) fn read(name: String, bytes: Vec<u8>, object: Option<String>) -> Result<Self> {
        let left = IntactJournal::read(bytes).map_err(|error| error.in_journal(&name))?;
        let IntactJournal { bytes, first, next, torn } = left;
        Ok(Self { name, bytes, first, next, object, torn, sealed: None })
    }

    /// A part of this process; in the store, if all of it is.
    pub(super) fn sealed(
        (name, bytes): (String, Vec<u8>),
        (first, next): (Seq, Seq),
        object: Option<String>,
        sealed: Sealed,
    ) -> Self {
        Self { name, bytes, first, next, object, torn: false, sealed: Some(sealed) }
    }

    /// An object of which nothing can be used: it was being written for the first time.
    fn unfinished(object: String, part: Seq) -> Self {
        let (name, object) = (object.clone(), Some(object));
        let (bytes, sealed) = (Vec::new(), None);
        Self { name, bytes, first: part, next: part, object, torn: true, sealed }
    }

    /// Puts the journal into the store under a name, unless it is in the store. Returns whether it
    /// was not.
    ///
    /// An object of that name may be of a merge that the server would repeat, and hold more: this
    /// disk keeps a journal as it was when it was written here last.
    pub(super) fn put(&mut self, fs: &Fs, name: &str) -> Result<bool> {
        if self.object.is_some() {
            return Ok(false);
        }
        let there = match fs.store().get(name) {
            Ok((bytes, _)) => IntactJournal::read(bytes).ok(),
            Err(error) if error.errno == Errno::NotFound => None,
            Err(error) => return Err(error),
        };
        if there.is_none_or(|there| there.next < self.next) {
            // An existing object of this name is replaced, so no conflict is possible.
            let _ = fs.store().put(name, &self.bytes, Expect::Any)?;
        }
        self.object = Some(name.to_owned());
        Ok(true)
    }

    pub(crate) fn events(&self) -> u64 {
        self.next.0 - self.first.0
    }

    /// The failures that the part survives.
    pub(super) fn durability(&self) -> Durability {
        match (&self.object, self.sealed) {
            (Some(_), _) => Durability::Global,
            (None, Some(sealed)) if !sealed.on_disk => Durability::None,
            (None, _) => Durability::Local,
        }
    }

    /// The object from which the server merges it.
    pub(super) fn object(&self) -> Option<&str> {
        self.object.as_deref()
    }

    /// Applies it to the client's view.
    fn replay(&self, inner: &mut ClientSubtree) -> Result<()> {
        inner.replay(&self.bytes).map_err(|error| error.in_journal(&self.name))
    }

    /// Merges the journal, by reference if that is wanted, possible, and was not tried before: an
    /// earlier attempt may have applied it.
    pub(super) fn merge_as(
        &self,
        fs: &Fs,
        root: Ino,
        flags: MergeFlags,
        by_reference: bool,
    ) -> Result<(MergeReport, MergedBy)> {
        let asked = self.sealed.is_some_and(|sealed| sealed.asked);
        if flags.check
            && !asked
            && !flags.dry_run
            && self.events() > 0
            && let Some(object) = self.object()
            && let last = Seq(self.next.0 - 1)
            && let Some(merged) =
                merge_proved(fs, (root, object, last), (flags, UnusedNumbers::default()), || ())?
        {
            return Ok(merged);
        }
        if !by_reference || asked || flags.dry_run || self.events() == 0 {
            return Ok((self.merge(fs, root, flags)?, MergedBy::default()));
        }
        let damaged = |error: journal::JournalError| error.in_journal(&self.name);
        let header = SegmentHeader::decode(&self.bytes).map_err(damaged)?;
        let (mut blocks, mut at) = (Vec::new(), journal::segment::HEADER_BYTES);
        while at < self.bytes.len() {
            let (_, next) = journal::Block::read(&self.bytes, at).map_err(damaged)?;
            blocks.push(&self.bytes[at..next]);
            at = next;
        }
        let (object, unused) = (self.object(), UnusedNumbers::default());
        let whole =
            Whole { subtree: root, header: &header, blocks: &blocks, object, flags, unused };
        match merge_by_reference(fs, &whole, None, || ())? {
            Ok(merged) => Ok(merged),
            Err(because) => Ok((self.merge(fs, root, flags)?, MergedBy::value(because))),
        }
    }

    /// Merges the journal. The object of a journal is first replaced by one that the server can
    /// read.
    pub(super) fn merge(&self, fs: &Fs, root: Ino, flags: MergeFlags) -> Result<MergeReport> {
        let Some(object) = &self.object else {
            return fs.merge_journal(root, &self.bytes, flags, UnusedNumbers::default());
        };
        match (self.events(), flags.dry_run) {
            (0, true) => Ok(MergeReport::default()),
            (0, false) => fs.store().delete(object).map(|_| MergeReport::default()),
            (_, true) if self.torn => {
                fs.merge_journal(root, &self.bytes, flags, UnusedNumbers::default())
            }
            (_, false) if self.torn => {
                // An existing object of this name is replaced, so no conflict is possible.
                let _ = fs.store().put(object, &self.bytes, Expect::Any)?;
                self.merge_object(fs, object, root, flags)
            }
            _ => self.merge_object(fs, object, root, flags),
        }
    }

    /// Merges the journal from its object. The server deletes an object when the metadata store has
    /// its events: if the object is gone, an earlier attempt succeeded.
    fn merge_object(
        &self,
        fs: &Fs,
        object: &str,
        root: Ino,
        flags: MergeFlags,
    ) -> Result<MergeReport> {
        let gone = |error: &Error| {
            let stat = || fs.store().stat(object).map(drop).map_err(|error| error.errno);
            error.errno == Errno::NotFound && stat() == Err(Errno::NotFound)
        };
        match fs.merge_object(root, object, flags, UnusedNumbers::default()) {
            Err(error) if gone(&error) => {}
            answered => return answered,
        }
        if self.sealed.is_none_or(|sealed| sealed.whole || !sealed.asked) {
            return Ok(MergeReport::default());
        }
        // The server has read a shorter journal under this name. A merge without an object cannot
        // be repeated, so it is stored before the answer.
        let flags = MergeFlags { store: true, ..flags };
        fs.merge_journal(root, &self.bytes, flags, UnusedNumbers::default())
    }
}

impl Subtree {
    /// The journals that Local Persist left on this disk, as far as they are intact.
    pub(super) fn local_journals(&self) -> Result<Vec<Earlier>> {
        let mut journals = Vec::new();
        for path in self.state.journals()? {
            let bytes =
                std::fs::read(&path).map_err(|error| crate::state::io_error(&path, &error))?;
            journals.push(Earlier::read(path.display().to_string(), bytes, None)?);
        }
        Ok(journals)
    }

    /// The journals that Global Persist left in the object store. The list on this machine may lack
    /// the last one, because a process can end between the two writes. Objects from before the last
    /// merge belong to the server, which deletes them.
    fn stored_journals(&mut self) -> Result<Vec<Earlier>> {
        let store = self.fs.store();
        let mut objects: Vec<_> =
            self.owner.objects.iter().map(|name| (name.clone(), None)).collect();
        // Under any present policy: the last one may have been another.
        let grant = self.owner.ranges().next().unwrap_or_default();
        let prefix = client_journal_prefix(self.root(), self.owner.client(), grant);
        let names = store.list(&prefix).map_err(|error| {
            let cause = format!("cannot be listed: {}: {}", error.subject, error.cause);
            Error::new(error.errno, prefix.clone(), cause).remedy(error.remedy)
        })?;
        for name in names {
            let part = name.strip_prefix(&prefix).map(|part| u64::from_str_radix(part, 16));
            let Some(Ok(part)) = part else { continue };
            if part >= self.owner.next_seq && !self.owner.objects.contains(&name) {
                objects.push((name, Some(Seq(part))));
            }
        }
        let mut journals = Vec::new();
        for (name, unnoted) in objects {
            let bytes = match store.get(&name) {
                Ok((bytes, _)) => bytes,
                Err(error) if error.errno == Errno::NotFound => {
                    // The server deletes objects that are merged and stored.
                    self.owner.objects.retain(|known| *known != name);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let journal = Earlier::read(name.clone(), bytes, Some(name.clone()));
            // Its writer may have ended before the end of it was durable.
            store.sync(SyncScope::Object(&name))?;
            journals.push(match (journal, unnoted) {
                (Ok(journal), None) => journal,
                (Ok(journal), Some(_)) => {
                    self.owner.objects.push(name);
                    journal
                }
                // Nothing in it counts, and it is not noted as if something did.
                (Err(_), Some(part)) => Earlier::unfinished(name, part),
                (Err(error), None) => return Err(error),
            });
        }
        Ok(journals)
    }

    /// Takes up the journals of earlier processes: they are merged with this one's, and their
    /// inode numbers are used.
    pub(super) fn load_journals(&mut self) -> Result<()> {
        let mut next = Seq(self.owner.next_seq);
        let mut all = self.stored_journals()?;
        all.extend(self.local_journals()?.into_iter().filter(|journal| journal.events() > 0));
        // One may be in both places, and longer in the one or the other.
        let all = client::in_order(all, |journal| (journal.first, journal.next));
        for journal in all {
            if journal.events() > 0 {
                journal.replay(&mut self.inner)?;
                next = next.max(journal.next);
            } else {
                // Its name is not used again.
                next = next.max(Seq(journal.first.0 + 1));
            }
            self.earlier.push(journal);
        }
        // The server knows the names of merged journals, whose objects are gone: no new journal may
        // have such a name.
        self.inner.start_at(next.max(Seq(self.owner.reached)));
        Ok(())
    }
}
