//! Directories that a client has alone, and what it has done there that the server has not heard of yet.

use types::{Errno, Error, Result};
use wire::WantsAlone;

use crate::Fs;

impl Fs {
    /// Takes directories in which it makes changes for itself from now on, when it can have them alone:
    /// changes in them are answered at once, and the server hears of them some milliseconds later, or
    /// when somebody else looks (`ack: async`, `nowsync`). What the server has not heard of is lost
    /// with this process; [`Fs::sync`] waits for it, and reports what the server did not accept.
    ///
    /// Nothing happens before [`Fs::listen`]: who cannot hear others cannot have anything alone.
    ///
    /// # Errors
    /// `EAGAIN` if there can be no more threads.
    pub fn take_alone(&self, wants: WantsAlone) -> Result<()> {
        if !self.link().begin_telling(wants) {
            return Ok(());
        }
        let link = self.shared_link();
        let thread = std::thread::Builder::new().name("cudele-tell".into());
        let started = thread.spawn(move || link.tell_regularly());
        started.map(drop).map_err(|error| Error::new(Errno::Again, "thread", error.to_string()))
    }

    /// Directories that this client has alone.
    #[must_use]
    pub fn alone(&self) -> usize {
        self.link().lock().session.alone_count()
    }

    /// Waits until the server has everything that was answered here.
    ///
    /// # Errors
    /// That of a change that it did not accept.
    pub fn settle(&self) -> Result<()> {
        self.link().settle()?;
        self.check_lost()
    }

    /// The error of a change that was answered and is lost, once.
    ///
    /// # Errors
    /// That one.
    pub fn check_lost(&self) -> Result<()> {
        match self.link().lock().session.take_lost() {
            None => Ok(()),
            Some(lost) => Err(Error::from(lost).remedy("repeat the change")),
        }
    }
}
