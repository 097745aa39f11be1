//! What a client that listens ([`Fs::listen`]) remembers of what the server told it, so that it need not
//! ask again.

use types::{Cred, Errno, Ino, Result};
use wire::{Answer, Op};

use crate::Fs;
use crate::fs::unexpected;

/// Names of a directory that are asked for at a time.
const LIST_PAGE: u32 = 4096;

impl Fs {
    /// Questions that were answered from what this client remembers, without a request.
    #[must_use]
    pub fn answered_here(&self) -> u64 {
        self.link().lock().known
    }

    pub(crate) fn request(&self, cred: &Cred, op: Op<'_>) -> Result<Answer> {
        let Op::Lookup { parent, .. } = op else { return self.link().request(cred, op, &[]) };
        let answer = self.link().request(cred, op, &[]);
        if answer.as_ref().is_err_and(|error| error.errno == Errno::NotFound)
            && self.link().lock().session.is_worth_listing(parent)
        {
            // If that is refused, names are asked for one by one as before.
            let _ = self.learn_names(cred, parent);
        }
        answer
    }

    /// Reads all names of a directory, for the session to remember.
    fn learn_names(&self, cred: &Cred, dir: Ino) -> Result<()> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let op = Op::List { dir, after: after.as_deref(), limit: LIST_PAGE, attrs: false };
            let answer = self.link().request(cred, op, &[])?;
            let Answer::Entries { entries, more } = answer else { return Err(unexpected(&answer)) };
            after = entries.into_iter().last().map(|(name, _)| name);
            if !more || after.is_none() {
                return Ok(());
            }
        }
    }
}
