//! Renames between directories of different ranks (F-13): this client takes the offer of the one
//! rank to the other.

use std::time::{Duration, Instant};

use types::{Cred, Errno, Error, Ino, Result};
use wire::{Answer, Op};

use crate::Fs;

/// The time for attempts while subtrees move or servers start.
pub(super) const WITHIN: Duration = Duration::from_secs(20);
pub(super) const RETRY: Duration = Duration::from_millis(5);

impl Fs {
    /// Executes a request that one server rejected with `refused`, because another server has a
    /// part of it.
    pub(super) fn across(&self, cred: &Cred, op: &Op<'_>, refused: Error) -> Result<Answer> {
        match (op, refused.errno) {
            (Op::Link { .. }, Errno::CrossDevice) => self.link_across(cred, op, refused),
            (Op::Rename { .. }, Errno::CrossDevice) => self.rename_across(cred, op, refused),
            (Op::Rmdir { .. } | Op::Rename { .. }, Errno::Busy) => {
                match self.change_at_home(cred, op, refused) {
                    Err(error) if error.errno == Errno::CrossDevice => {
                        self.rename_across(cred, op, error)
                    }
                    answer => answer,
                }
            }
            _ => Err(refused),
        }
    }

    /// Carries a rename out that one server refused because another one has the other directory.
    /// `refused` is how it said so.
    fn rename_across(&self, cred: &Cred, op: &Op<'_>, refused: Error) -> Result<Answer> {
        let Op::Rename { parent, name, new_parent, new_name, flags } = *op else {
            return Err(refused);
        };
        if flags.exchange {
            return self.exchange_across(cred, op, refused);
        }
        let start = Instant::now();
        let mut is_gathered = false;
        loop {
            let (from, to) = (self.place(parent), self.place(new_parent));
            if from == to {
                // One rank has both by now.
                match self.request_ranked(cred, *op, &[], None) {
                    Err(error) if error.errno == Errno::CrossDevice && start.elapsed() < WITHIN => {
                        self.locate(cred, [parent, new_parent])?;
                    }
                    answer => return answer,
                }
                if self.place(parent) == self.place(new_parent) {
                    return Err(refused);
                }
                continue;
            }
            let no_replace = flags.no_replace;
            let departs = Op::Depart { parent, name, new_parent, new_name, no_replace, to };
            match self.request_ranked(cred, departs, &[], None) {
                Ok(Answer::CrossRename(cross_rename, ino)) => {
                    // It may have been carried out by another rank, if the directory has moved.
                    let from = self.place(parent);
                    let arrives = Op::Arrive { dir: new_parent, from, cross_rename };
                    let arrived = self.request_ranked(cred, arrives, &[], None);
                    let decides = Op::Passed { dir: parent, cross_rename };
                    // Only the rank that made the offer: another rank may have an offer with the
                    // same number.
                    let link = self.link_to(from);
                    let decided = link.and_then(|link| link.request(cred, decides, &[]));
                    match (arrived, decided) {
                        (Ok(_), _) | (_, Ok(_)) => return Ok(Answer::Done),
                        (Err(error), _) if !is_passing(&error) => return Err(error),
                        (Err(error), Err(_)) => {
                            if self.is_named(cred, (new_parent, new_name), ino) {
                                return Ok(Answer::Done);
                            }
                            self.wait_or(start, error)?;
                        }
                    }
                }
                Ok(answer) => return Err(crate::fs::unexpected(&answer)),
                Err(error) if is_passing(&error) => self.wait_or(start, error)?,
                Err(error) if error.errno == Errno::CrossDevice && !is_gathered => {
                    self.bring_for_rename((cred, start), (parent, name), new_parent, error)?;
                    is_gathered = true;
                }
                Err(error) => return Err(error),
            }
            self.locate(cred, [parent, new_parent])?;
        }
    }

    /// Finds the ranks that serve two directories.
    pub(super) fn locate(&self, cred: &Cred, dirs: [Ino; 2]) -> Result<()> {
        for ino in dirs {
            self.request_ranked(cred, Op::GetAttr { ino }, &[], None)?;
        }
        Ok(())
    }

    /// Whether a name leads to an inode: then the unanswered request was executed.
    fn is_named(&self, cred: &Cred, (parent, name): (Ino, &[u8]), ino: Ino) -> bool {
        let found = self.request_ranked(cred, Op::Lookup { parent, name }, &[], None);
        matches!(found, Ok(Answer::Attr(attr)) if attr.ino == ino)
    }

    fn wait_or(&self, start: Instant, error: Error) -> Result<()> {
        if start.elapsed() >= WITHIN {
            return Err(error);
        }
        std::thread::sleep(RETRY);
        Ok(())
    }
}

/// Whether something is another way in a moment.
pub(super) fn is_passing(error: &Error) -> bool {
    matches!(error.errno, Errno::Again | Errno::Stale)
}
