//! Answers that a kernel keeps and uses without asking this client.

use types::{Attr, Ino, Result, Span};

use crate::{Fs, ranks};

impl Fs {
    /// From now on answers may be passed on to a kernel ([`Fs::lend_name`], [`Fs::lend_attr`]).
    /// The client returns a directory to the server only when the kernel does not use any answer
    /// about the directory any more, up to 0.3 s later.
    ///
    /// Without effect before [`Fs::listen`]: a client that receives no revocations caches nothing.
    ///
    /// # Errors
    /// `EAGAIN` if there can be no more threads.
    pub fn lend_to_kernel(&self) -> Result<()> {
        self.ranks.lend();
        self.ranks.others().iter().try_for_each(ranks::lend_on)?;
        ranks::lend_on(&self.shared_link())
    }

    /// For how long a kernel may use the answer that a name leads to an inode, or to none, without
    /// asking; zero if another client may change that.
    #[must_use]
    pub fn lend_name(&self, dir: Ino, name: &[u8], named: Option<Ino>) -> Span {
        let Some(link) = self.ranks.present_link(&self.link, dir) else { return Span(0) };
        let mut state = link.lock();
        state.session.lend_name(crate::moment(), dir, name, named)
    }

    /// The same of the attributes of an inode with a name in a directory.
    #[must_use]
    pub fn lend_attr(&self, dir: Ino, attr: &Attr) -> Span {
        let Some(link) = self.ranks.present_link(&self.link, dir) else { return Span(0) };
        let mut state = link.lock();
        state.session.lend_attr(crate::moment(), attr)
    }
}
