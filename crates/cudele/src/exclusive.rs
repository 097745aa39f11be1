//! Directories that a client has to itself, and its changes there that the server does not know
//! yet.

use types::{Error, Ino, Result};
use wire::WantsExclusive;

use crate::{Fs, ranks};

impl Fs {
    /// Takes directories in which it makes changes for itself from now on, if no other client uses
    /// them: the client answers changes there at once, and sends them to the server some
    /// milliseconds later, or when another client looks (as a mount without `wsync` does). Changes
    /// that the server does not know yet are lost with this process; [`Fs::sync`] waits for them,
    /// and returns the error of a rejected one.
    ///
    /// Without effect before [`Fs::listen`]: a client that receives no recalls cannot have a
    /// directory to itself.
    ///
    /// # Errors
    /// `EAGAIN` if there can be no more threads.
    pub fn take_exclusive(&self, wants: WantsExclusive) -> Result<()> {
        self.ranks.want_exclusive(wants);
        for link in self.ranks.others() {
            ranks::send_async_on(&link, wants)?;
        }
        ranks::send_async_on(&self.shared_link(), wants)
    }

    /// Directories that this client has alone.
    #[must_use]
    pub fn exclusive_dirs(&self) -> usize {
        let others = self.ranks.others();
        let others: usize = others.iter().map(|link| link.lock().session.exclusive_count()).sum();
        self.link().lock().session.exclusive_count() + others
    }

    /// Waits until the server has everything that was answered here.
    ///
    /// # Errors
    /// That of a change that it did not accept.
    pub fn drain(&self) -> Result<()> {
        self.link().drain()?;
        self.ranks.others().iter().try_for_each(|link| link.drain())?;
        self.check_lost()
    }

    /// The error of a change that was answered and is lost, once.
    ///
    /// # Errors
    /// That one.
    pub fn check_lost(&self) -> Result<()> {
        let others = self.ranks.others();
        let links = std::iter::once(self.link()).chain(others.iter().map(|link| &**link));
        match links.into_iter().find_map(|link| link.lock().session.take_lost()) {
            None => Ok(()),
            Some(lost) => Err(Error::from(lost).remedy("repeat the change")),
        }
    }

    /// Returns the error of a lost change of this file until [`Fs::repeated`].
    ///
    /// # Errors
    /// The error of the lost change.
    pub fn check_lost_of(&self, ino: Ino) -> Result<()> {
        let others = self.ranks.others();
        let links = std::iter::once(self.link()).chain(others.iter().map(|link| &**link));
        let lost = |link: &crate::link::Link| link.lock().session.lost_of(ino).cloned();
        match links.into_iter().find_map(lost) {
            None => Ok(()),
            Some(lost) => Err(Error::from(lost).remedy("repeat the change")),
        }
    }

    /// Forgets the lost changes of a file, after the client has sent its state again.
    pub fn repeated(&self, ino: Ino) {
        self.link().lock().session.forget_lost(ino);
        self.ranks.others().iter().for_each(|link| link.lock().session.forget_lost(ino));
    }
}
