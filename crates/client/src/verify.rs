//! An auxiliary metadata server: it judges a client's work by the rules of live requests, in the
//! process of the caller (BF-05, BF-06).
//!
//! The events of a journal are judged one after the other, each against the result of the events
//! before it, as the metadata server does under `check: merge`. The result is the journal as a
//! server would have executed it. Not here: the source of directories that are older than the
//! journal.
//!
//! Invariant: a journal of which an event breaks a rule gives nothing.

mod proved;

use journal::{Event, JournalBuffer, JournalError};
use namespace::{Judge, Mode, Namespace, Refusal};
pub use proved::{ProvedJournal, of_last_decoupling};
use types::{Attr, Cred, Errno, INLINE_BYTES_MAX, Ino, Origin, Seq, Set, check_name};

/// The most characters of an event in an error message.
const EVENT_CHARS_MAX: usize = 300;

/// See the module documentation.
#[derive(Debug)]
pub struct Verifier {
    namespace: Namespace,
    cred: Cred,
    root: Attr,
    /// The server has no names in the root.
    is_empty: bool,
    /// Inodes that journals made which were verified here.
    made: Set<Ino>,
    /// The position behind the last event that was judged.
    next: Seq,
    accepted: JournalBuffer,
}

/// The reason why a journal cannot be verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerifyError {
    /// This directory has to be loaded into [`Verifier::namespace_mut`] first.
    Cold(Ino),
    /// An event breaks a rule.
    Illegal {
        /// Which.
        seq: Seq,
        /// The rule.
        errno: Errno,
        /// The event, in words.
        event: String,
    },
    /// A block is damaged: its place, and the expected value there.
    Damaged(JournalError),
}

impl Verifier {
    /// A verifier of journals about the subtree with this root, for a user. `is_empty` means that
    /// the subtree has no names yet.
    #[must_use]
    pub fn new(root: &Attr, is_empty: bool, cred: Cred) -> Self {
        let mut namespace = Namespace::new();
        namespace.store().adopt_root(root, is_empty);
        let accepted = JournalBuffer::new(Seq(0), false);
        let (root, made, next) = (*root, Set::default(), Seq(0));
        Self { namespace, cred, root, is_empty, made, next, accepted }
    }

    /// For loading directories.
    pub fn namespace_mut(&mut self) -> &mut Namespace {
        &mut self.namespace
    }

    /// A journal begins, at a position behind those that were verified before.
    pub fn begin(&mut self, first: Seq) {
        self.next = self.next.max(first);
        self.accepted = JournalBuffer::new(first, false);
    }

    /// The blocks of the journal as it would have been carried out.
    #[must_use]
    pub fn end(&mut self) -> Vec<Vec<u8>> {
        self.accepted.close_block();
        self.accepted.take_blocks()
    }

    /// Judges the events of a block. After [`VerifyError::Cold`] the same block is to be judged
    /// again.
    ///
    /// # Errors
    /// The reason why the journal cannot be judged, or is rejected.
    pub fn judge(&mut self, bytes: &[u8]) -> Result<(), VerifyError> {
        let (block, _) = journal::Block::read(bytes, 0).map_err(VerifyError::Damaged)?;
        let mut events = block.events();
        while let Some(record) = events.next_event().map_err(VerifyError::Damaged)? {
            if record.seq < self.next {
                continue;
            }
            self.judge_event(record.seq, &record.event)?;
            self.next = Seq(record.seq.0 + 1);
        }
        Ok(())
    }

    fn judge_event(&mut self, seq: Seq, event: &Event<'_>) -> Result<(), VerifyError> {
        if event.is_nothing() {
            return Ok(());
        }
        let illegal = |errno| {
            let event = format!("{event:?}").chars().take(EVENT_CHARS_MAX).collect();
            VerifyError::Illegal { seq, errno, event }
        };
        self.check_form(event).map_err(illegal)?;
        let own = event.inode().is_some_and(|ino| self.made.contains(&ino));
        let is_create = matches!(event, Event::Create(_));
        let judge = Judge { cred: &self.cred, subtree: self.root.ino };
        let judged = self.namespace.plan().judge(&judge, event, own || is_create);
        let planned = match judged {
            Ok(Some(planned)) => planned,
            // Both names are of one inode already.
            Ok(None) => return Ok(()),
            Err(Refusal::Cold(dir)) if self.namespace.is_complete(dir) => {
                return Err(illegal(Errno::NotFound));
            }
            Err(Refusal::Cold(dir)) => return Err(VerifyError::Cold(dir)),
            Err(Refusal::Errno(errno)) => return Err(illegal(errno)),
        };
        let planned = planned.event();
        if let Event::Create(create) = &planned {
            self.made.insert(create.ino);
        }
        self.namespace.apply(seq, Mode::Live, &planned);
        self.namespace.take_freed();
        self.accepted.append(Origin::default(), &planned);
        Ok(())
    }

    /// Rules that no request needs, because a request cannot break them: legal names, fresh inode
    /// numbers, content that fits.
    fn check_form(&self, event: &Event<'_>) -> Result<(), Errno> {
        if let Some((_, name)) = event.dentry() {
            check_name(name)?;
        }
        match *event {
            Event::Create(ref create) => {
                if self.made.contains(&create.ino) || self.namespace.knows(create.ino) {
                    return Err(Errno::Exists);
                }
                if create.data.len() > INLINE_BYTES_MAX { Err(Errno::TooBig) } else { Ok(()) }
            }
            Event::Rename { new_name, .. } => check_name(new_name),
            Event::SetData { data, .. } if data.len() > INLINE_BYTES_MAX => Err(Errno::TooBig),
            Event::SetData { .. }
            | Event::Link { .. }
            | Event::Unlink { .. }
            | Event::Rmdir { .. }
            | Event::SetAttr { .. }
            | Event::SetXattr { .. } => Ok(()),
            // Policies, sessions and merges are the server's business.
            Event::SetPolicy { .. }
            | Event::Session { .. }
            | Event::Merged { .. }
            | Event::Stored { .. } => Err(Errno::NotPermitted),
        }
    }
}

#[cfg(test)]
mod tests;
