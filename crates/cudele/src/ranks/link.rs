//! Requests for which one rank must serve two directories: a file gets a name in a directory of
//! another rank, two names are exchanged, or a file is renamed that cannot move alone. All names of
//! a file are on one rank, so one directory moves to the rank of the other (B-02, F-13).

use std::time::{Duration, Instant};

use types::{Cred, Errno, Error, Ino, Rank, Result};
use wire::{Answer, Op};

use super::across::{RETRY, WITHIN, is_passing};
use crate::Fs;

/// The time for servers to agree on the rank of an inode.
const AGREE_WITHIN: Duration = Duration::from_secs(1);

impl Fs {
    /// Executes a link that one server rejected with `refused`, because another server has the
    /// file.
    pub(super) fn link_across(&self, cred: &Cred, op: &Op<'_>, refused: Error) -> Result<Answer> {
        let Op::Link { ino, parent, name } = *op else { return Err(refused) };
        let check = || self.check_link(cred, ino, (parent, name));
        self.request_together(cred, op, (parent, ino), check)
    }

    /// Exchanges two names that different ranks have.
    pub(super) fn exchange_across(
        &self,
        cred: &Cred,
        op: &Op<'_>,
        refused: Error,
    ) -> Result<Answer> {
        let Op::Rename { parent, name, new_parent, new_name, .. } = *op else {
            return Err(refused);
        };
        // A link to a missing file moves no directory.
        let check = || {
            let names = [(parent, name), (new_parent, new_name)];
            names.into_iter().try_for_each(|(parent, name)| {
                self.request_ranked(cred, Op::Lookup { parent, name }, &[], None).map(drop)
            })
        };
        self.request_together(cred, op, (new_parent, parent), check)
    }

    /// Brings a directory and a file, or another directory, to one rank, and sends the request
    /// there. `check` first returns the errors that no move mends.
    fn request_together(
        &self,
        cred: &Cred,
        op: &Op<'_>,
        (dir, ino): (Ino, Ino),
        check: impl FnOnce() -> Result<()>,
    ) -> Result<Answer> {
        let operation = if matches!(op, Op::Link { .. }) { "link" } else { "rename" };
        let start = Instant::now();
        let mut check = Some(check);
        loop {
            self.locate(cred, [dir, ino])?;
            let (at, other_at) = (self.place(dir), self.place(ino));
            let is_together = at == other_at;
            if !is_together {
                check.take().map_or(Ok(()), |check| check())?;
                self.bring_together(cred, operation, (dir, at), (ino, other_at), start)?;
            }
            match self.request_ranked(cred, *op, &[], None) {
                // The two may have parted again.
                Err(error) if error.errno == Errno::CrossDevice && start.elapsed() < WITHIN => {
                    if is_together && self.place(dir) == self.place(ino) {
                        std::thread::sleep(RETRY);
                    }
                }
                answer => return answer,
            }
        }
    }

    /// Nothing moves for a name that cannot be.
    fn check_link(&self, cred: &Cred, ino: Ino, (parent, name): (Ino, &[u8])) -> Result<()> {
        let answer = self.request_ranked(cred, Op::GetAttr { ino }, &[], None)?;
        if matches!(&answer, Answer::Attr(attr) if attr.is_dir()) {
            return Err(Error::of(Errno::NotPermitted, "link"));
        }
        match self.request_ranked(cred, Op::Lookup { parent, name }, &[], None) {
            Ok(Answer::Attr(_) | Answer::Elsewhere(_)) => Err(Error::of(Errno::Exists, "link")),
            Err(error) if error.errno == Errno::NotFound => Ok(()),
            Err(error) => Err(error),
            // The directory was split: the request returns that.
            Ok(_) => Ok(()),
        }
    }

    /// Brings a directory and a file, or another directory, to one rank: the first moves to the
    /// second, or else the second to the first.
    fn bring_together(
        &self,
        cred: &Cred,
        operation: &'static str,
        (dir, at): (Ino, Rank),
        (ino, other_at): (Ino, Rank),
        start: Instant,
    ) -> Result<()> {
        let Some(why) = self.colocate(cred, (dir, other_at), start)? else { return Ok(()) };
        let Some(other) = self.colocate(cred, (ino, at), start)? else { return Ok(()) };
        let cause = format!(
            "{other_at} serves the file, {at} the directory of the new name; that one does not go there: {why}; \
             nor does the directory of the file: {other}"
        );
        let error = Error::new(Errno::CrossDevice, operation, cause);
        Err(error.remedy("`cudele mds pin` brings both to one server, or copy the file"))
    }

    /// Brings the directory of a file and the directory of its new name to one rank, because the
    /// file cannot move alone: it has, or had, several names, or a client has it open. `refused` is
    /// the answer that said so.
    pub(super) fn bring_for_rename(
        &self,
        (cred, start): (&Cred, Instant),
        (parent, name): (Ino, &[u8]),
        new_parent: Ino,
        refused: Error,
    ) -> Result<()> {
        let found = self.request_ranked(cred, Op::Lookup { parent, name }, &[], None);
        let Ok(Answer::Attr(file)) = found else { return Err(refused) };
        if file.is_dir() {
            return Err(refused);
        }
        let (at, file_at) = (self.place(new_parent), self.place(parent));
        self.bring_together(cred, "rename", (new_parent, at), (parent, file_at), start)
    }

    /// Removes or renames a directory that another rank serves than the rank of its name. No user
    /// has pinned it there, so it returns: a client that linked a file into it must not leave a
    /// directory that stays for ever.
    pub(super) fn change_at_home(
        &self,
        cred: &Cred,
        op: &Op<'_>,
        refused: Error,
    ) -> Result<Answer> {
        let (Op::Rmdir { parent, name } | Op::Rename { parent, name, .. }) = *op else {
            return Err(refused);
        };
        let found = self.request_ranked(cred, Op::Lookup { parent, name }, &[], None);
        let Ok(Answer::Attr(dir)) = found else { return Err(refused) };
        let home = self.place(parent);
        if !dir.is_dir() {
            return Err(refused);
        }
        // The known rank may be that of its name: then the answer comes at once.
        match self.colocate(cred, (dir.ino, home), Instant::now())? {
            None => {
                let start = Instant::now();
                loop {
                    let result = self.request_ranked(cred, *op, &[], None);
                    // The rank of the name may not know yet that the directory has arrived.
                    let is_busy = matches!(&result, Err(error) if error.errno == Errno::Busy);
                    if !is_busy || start.elapsed() >= AGREE_WITHIN {
                        return result;
                    }
                    std::thread::sleep(RETRY);
                }
            }
            Some(why) => {
                let cause = format!("{}; it does not come by itself: {why}", refused.cause);
                Err(Error { cause, ..refused })
            }
        }
    }

    /// Moves a directory, or the directory of a file's name, to another rank. Returns the reason if
    /// that is rejected.
    fn colocate(
        &self,
        cred: &Cred,
        (ino, rank): (Ino, Rank),
        start: Instant,
    ) -> Result<Option<String>> {
        loop {
            match self.request_ranked(cred, Op::Gather { ino, rank }, &[], None) {
                Ok(Answer::Done) => {
                    self.set_place(ino, rank);
                    return Ok(None);
                }
                // The directory was split.
                Ok(_) => return Ok(Some("it is split".into())),
                Err(error) if is_passing(&error) && start.elapsed() < within(&error) => {
                    std::thread::sleep(RETRY);
                }
                Err(error) if is_refusal(&error) || error.errno == Errno::Again => {
                    return Ok(Some(error.cause));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// The time for further attempts. An inode that no server knows is gone, unless it is between two
/// servers.
fn within(error: &Error) -> Duration {
    if error.errno == Errno::Stale { AGREE_WITHIN } else { WITHIN }
}

/// Whether a server was asked and does not do it.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error.errno,
        Errno::Busy | Errno::Access | Errno::NotPermitted | Errno::NoSpace | Errno::CrossDevice
    )
}
