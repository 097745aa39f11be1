//! Verifying a journal before anything of it is applied, in slices: that it is intact as a whole,
//! and that it stays inside the subtree and the inode numbers that were given to the client.
//!
//! A journal that claims numbers or directories that it was not granted is refused as a whole. An
//! event about an inode that is not in the subtree (any more) is left out, and reported: another
//! client may have moved or removed it since, and the rest of the journal must not be lost for
//! that.
//!
//! A user other than root also needs the right to what gives power elsewhere (`rights`).
//!
//! Every check takes constant time, independent of the size of the namespace.

use journal::{Create, Event, JournalError};
use namespace::Refusal;
use types::{Cred, Errno, INLINE_BYTES_MAX, Ino, check_name};
use wire::Failure;

use super::rights::Rights;
use super::{Merge, MergeCx};

/// Longest description of a refused event; the rest is cut off.
const CAUSE_CHARS_MAX: usize = 500;

/// How far the verification got.
pub(super) enum Verified {
    More,
    Done,
    /// It depends on an inode that is not in memory.
    Unknown(Ino),
}

/// Why an event is not accepted, for now or for good.
pub(super) enum VerifyError {
    Refused(Errno),
    /// Its inode is not in the subtree.
    Gone,
    Unknown(Ino),
}

impl From<Errno> for VerifyError {
    fn from(errno: Errno) -> Self {
        Self::Refused(errno)
    }
}

impl Merge {
    /// Whether an inode is of a number that the journal's client may give, or was made by it.
    fn has_made(&self, ino: Ino) -> bool {
        let own = self.ranges.iter().any(|range| range.contains(ino));
        (own && !self.absent.contains_key(&ino)) || self.new_dirs.contains(&ino)
    }
}

impl MergeCx<'_> {
    /// Whether a log of requests may have events about a subtree: its policy has clients keep one.
    /// When that changed, everything was stored. Directories outside of memory are not judged.
    pub(super) fn wants_log(&mut self, cred: &Cred, subtree: Ino) -> Result<bool, Refusal> {
        if !self.namespace.is_anchored(subtree) {
            return Ok(true);
        }
        self.namespace.access(cred, subtree, 2)?;
        Ok(self.namespace.effective_policy(subtree).1.policy.logs_requests())
    }

    /// Whether a log of requests is asked for, now that its subtree may be in memory.
    pub(super) fn is_still_wanted(&mut self, merge: &Merge) -> bool {
        !merge.flags.strong_log || self.wants_log(&merge.cred, merge.subtree).unwrap_or(true)
    }

    /// The inode that verification asked for was looked for.
    pub(crate) fn searched(&mut self, ino: Ino) {
        self.merges.waiting = false;
        if let Some(merge) = self.merges.queue.front_mut() {
            let found = self.namespace.is_anchored(ino);
            merge.searched = !found || !self.namespace.is_within(ino, merge.subtree);
        }
    }

    pub(super) fn verify_slice(&mut self, merge: &mut Merge) -> Result<Verified, Failure> {
        let bytes = std::mem::take(&mut merge.bytes);
        let result = self.verify_blocks(merge, &bytes);
        merge.bytes = bytes;
        result
    }

    fn verify_blocks(&mut self, merge: &mut Merge, bytes: &[u8]) -> Result<Verified, Failure> {
        let root = merge.subtree;
        if merge.flags.strong_log && !merge.searched && !self.namespace.is_anchored(root) {
            // The directory is not decoupled, so it need not be in memory after a restart.
            return Ok(Verified::Unknown(root));
        }
        let damaged = |error: JournalError| {
            let error = error.in_journal("client journal");
            Failure { errno: error.errno, text: error.to_string() }
        };
        let mut budget = self.settings.merge_events;
        if !merge.flags.check {
            // Otherwise every event is judged when its turn comes.
            merge.rights = Rights::of(&merge.cred, self.namespace.permissions_of(root));
        }
        let done = self.merges.done_of(merge);
        while merge.offset < bytes.len() {
            if budget == 0 {
                return Ok(Verified::More);
            }
            let (block, next) = journal::Block::read(bytes, merge.offset).map_err(damaged)?;
            let mut events = block.events();
            // A block that has to wait for something is verified from its start again.
            let (left_out, run) = (merge.left_out.len(), merge.run);
            loop {
                let (seq, event) =
                    if let Some((seq, _, create)) = events.next_create().map_err(damaged)? {
                        if seq > done && self.verify_create(merge, &create).is_ok() {
                            continue;
                        }
                        (seq, Event::Create(create))
                    } else if let Some(record) = events.next_event().map_err(damaged)? {
                        (record.seq, record.event)
                    } else {
                        break;
                    };
                // An applied event was verified then; its inode may be gone by now.
                let verified = if seq <= done {
                    merge.note_new(&event);
                    self.verify_known(merge, &event)
                } else {
                    self.verify(merge, &event)
                };
                match verified {
                    Ok(()) => {}
                    Err(VerifyError::Unknown(ino)) => {
                        merge.left_out.truncate(left_out);
                        merge.run = run;
                        return Ok(Verified::Unknown(ino));
                    }
                    Err(VerifyError::Gone) => merge.leave_out(seq, &event),
                    Err(VerifyError::Refused(errno)) => {
                        let text = format!("event {seq} of the journal is not allowed: {event:?}");
                        // There may be much content in it.
                        let text = text.chars().take(CAUSE_CHARS_MAX).collect();
                        return Err(Failure { errno, text });
                    }
                }
            }
            merge.report.events += u64::from(block.count);
            merge.offset = next;
            budget = budget.saturating_sub(block.count as usize);
        }
        Ok(Verified::Done)
    }

    /// As [`MergeCx::verify`], for the most frequent kind of event.
    #[inline]
    fn verify_create(&self, merge: &mut Merge, create: &Create<'_>) -> Result<(), VerifyError> {
        check_name(create.name)?;
        self.verify_dir(merge, create.parent)?;
        let own =
            merge.flags.strong_log || merge.ranges.iter().any(|range| range.contains(create.ino));
        if !own {
            return Err(Errno::NotPermitted.into());
        }
        if let Some(rights) = &merge.rights {
            rights.check_create(create)?;
        }
        check_inline(create.data)?;
        merge.note_created(create);
        merge.run = (merge.run.0 + 1, merge.run.1 + create.name.len());
        Ok(())
    }

    /// The checks of every merge: legal names, inside the subtree, own inode numbers, inline
    /// content of a length that readers ask for.
    fn verify(&self, merge: &mut Merge, event: &Event<'_>) -> Result<(), VerifyError> {
        if let Event::Create(create) = event {
            return self.verify_create(merge, create);
        }
        if let Some((parent, name)) = event.dentry() {
            check_name(name)?;
            self.verify_dir(merge, parent)?;
        }
        if let Some(rights) = &merge.rights {
            rights.check(self.namespace, event, |ino| merge.has_made(ino))?;
        }
        match *event {
            Event::Rename { new_parent, new_name, ref moved, ref exchanged, .. } => {
                check_name(new_name)?;
                self.verify_dir(merge, new_parent)?;
                self.verify_inode(merge, moved.attr.ino)?;
                exchanged.as_ref().map_or(Ok(()), |back| self.verify_inode(merge, back.attr.ino))
            }
            Event::SetData { ino, home, data, .. } => {
                check_inline(data)?;
                self.verify_inode(merge, ino)?;
                self.verify_home(merge, ino, home)
            }
            Event::Link { ino, home, .. }
            | Event::SetAttr { ino, home, .. }
            | Event::SetXattr { ino, home, .. } => {
                self.verify_inode(merge, ino)?;
                self.verify_home(merge, ino, home)
            }
            Event::Create(_) | Event::Unlink { .. } | Event::Rmdir { .. } => Ok(()),
            Event::Session { .. } if event.is_nothing() => Ok(()),
            // Policies, sessions and merges are the server's business.
            Event::SetPolicy { .. }
            | Event::Session { .. }
            | Event::Merged { .. }
            | Event::Stored { .. } => Err(Errno::NotPermitted.into()),
        }
    }

    /// A directory that this journal made in an earlier attempt must be in memory, like all
    /// directories in which the rest of the journal continues: it may have been stored and
    /// forgotten since.
    fn verify_known(&self, merge: &Merge, event: &Event<'_>) -> Result<(), VerifyError> {
        let Event::Create(create) = event else { return Ok(()) };
        let is_dir = create.file_type() == types::FileType::Directory;
        let found = !is_dir || merge.searched || self.namespace.knows(create.ino);
        if found { Ok(()) } else { Err(VerifyError::Unknown(create.ino)) }
    }

    #[inline]
    fn verify_dir(&self, merge: &mut Merge, dir: Ino) -> Result<(), VerifyError> {
        if dir == merge.last_dir {
            return Ok(());
        }
        let free = dir == merge.subtree || merge.new_dirs.contains(&dir);
        if !free {
            self.verify_place(merge, dir)?;
            if !self.namespace.is_dir(dir) {
                return Err(Errno::NotDirectory.into());
            }
        }
        merge.end_run();
        merge.last_dir = dir;
        Ok(())
    }

    fn verify_inode(&self, merge: &Merge, ino: Ino) -> Result<(), VerifyError> {
        if merge.has_made(ino) { Ok(()) } else { self.verify_place(merge, ino) }
    }

    /// An inode that is not in memory will be fetched with its directory. That directory is looked
    /// for now: one that is not found does not exist, and must not be fetched before it is purged.
    fn verify_home(&self, merge: &Merge, ino: Ino, home: Ino) -> Result<(), VerifyError> {
        let free = home == merge.subtree || merge.new_dirs.contains(&home) || home == Ino::LINKS;
        let found = free || self.namespace.knows(ino) || self.namespace.knows(home);
        if found || merge.searched { Ok(()) } else { Err(VerifyError::Unknown(home)) }
    }

    /// An inode that exists must be in the subtree. If it is not in memory, the subtree is searched
    /// for it; once that was in vain, everything that is in the subtree is in memory.
    fn verify_place(&self, merge: &Merge, ino: Ino) -> Result<(), VerifyError> {
        if self.namespace.is_within(ino, merge.subtree) {
            Ok(())
        } else if merge.searched
            || merge.absent.contains_key(&ino)
            || self.namespace.is_anchored(ino)
        {
            Err(VerifyError::Gone)
        } else {
            Err(VerifyError::Unknown(ino))
        }
    }
}

/// Readers do not ask for inline content of files that are longer.
#[inline]
fn check_inline(data: &[u8]) -> Result<(), VerifyError> {
    if data.len() > INLINE_BYTES_MAX { Err(Errno::TooBig.into()) } else { Ok(()) }
}
