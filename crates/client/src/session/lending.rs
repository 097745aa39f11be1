//! Lending the caches to a kernel, which then uses them without asking ([`crate::lent`]).

use types::{Attr, Cred, Ino, Moment, Span};
use wire::{Op, SessionOp};

use super::{Session, SessionEffects};
use crate::lent::{LAPSE, LEND, Lent, Returned};

impl Session {
    /// From now on the caller passes answers on to a kernel, and returns directories in time
    /// ([`Session::lapse_due`]). Before it connects again, it waits until [`Session::lent_until`].
    pub fn lend_to_kernel(&mut self) {
        self.lent.get_or_insert_default();
    }

    /// For how long a kernel may use that a name leads to an inode, or to none.
    pub fn lend_name(&mut self, now: Moment, dir: Ino, name: &[u8], named: Option<Ino>) -> Span {
        if self.lent.is_none() || !self.is_fresh(now) {
            return Span(0);
        }
        let root = Cred::root();
        let exclusive = self.exclusive.as_ref().filter(|exclusive| exclusive.has(dir));
        let known = match exclusive {
            Some(exclusive) => exclusive.look(&root, dir, name),
            None => self.cache.as_ref().and_then(|cache| cache.look(&root, dir, name)),
        };
        if known == Some(Ok(named)) {
            return lend(&mut self.lent, dir, now);
        }
        // A lease ends by itself, and must not end before the kernel's.
        let leased = self.leases.look(now + LAPSE, &root, dir, name);
        if leased == Some(Ok(named)) { LEND } else { Span(0) }
    }

    /// The same of attributes.
    pub fn lend_attr(&mut self, now: Moment, attr: &Attr) -> Span {
        if self.lent.is_none() || !self.is_fresh(now) {
            return Span(0);
        }
        let of_exclusive = |it: &crate::exclusive::ExclusiveDirs| it.attr_and_home(attr.ino);
        let exclusive = self.exclusive.as_deref().and_then(of_exclusive);
        let known = exclusive.or_else(|| self.cache.as_ref()?.attr_and_home(attr.ino));
        if let Some((known, home)) = known {
            return if known == *attr { lend(&mut self.lent, home, now) } else { Span(0) };
        }
        let leased = self.leases.attr(now + LAPSE, attr.ino);
        if leased.is_some_and(|leased| leased == *attr) { LEND } else { Span(0) }
    }

    /// When [`Session::return_lapsed`] has something to return.
    #[must_use]
    pub fn lapse_due(&self) -> Option<Moment> {
        self.lent.as_ref()?.due()
    }

    /// When no kernel uses any answer so far. Greeting the server gives everything back, so the
    /// caller connects again after that.
    #[must_use]
    pub fn lent_until(&self) -> Option<Moment> {
        self.lent.as_deref().map(Lent::over)
    }

    /// Returns the directories that no kernel uses any more.
    pub fn return_lapsed(&mut self, now: Moment, effects: &mut SessionEffects) {
        let lapsed = self.lent.as_mut().map(|lent| lent.lapsed(now)).unwrap_or_default();
        return_announced(self, lapsed, effects);
    }

    /// There is no kernel any more.
    pub(super) fn end_lending(&mut self, effects: &mut SessionEffects) {
        let waiting = self.lent.take().map(|mut lent| lent.disconnected()).unwrap_or_default();
        return_announced(self, waiting, effects);
    }

    /// Returns the capability of a directory that has left the cache: now, or when no kernel uses
    /// it any more. `is_wanted` says that another client waits.
    pub(super) fn give_back(&mut self, dir: Ino, is_wanted: bool, effects: &mut SessionEffects) {
        let returned =
            self.lent.as_mut().map_or(Returned::AtOnce, |lent| lent.give_back(dir, is_wanted));
        match returned {
            Returned::AtOnce => {
                self.call(&Cred::root(), Op::Session(SessionOp::Return { dir }), effects);
            }
            Returned::Later => self.cache.iter_mut().for_each(|cache| cache.announce_return(dir)),
            Returned::Already => {}
        }
    }

    /// The connection is gone: directories that waited for their return are returned over the next
    /// one.
    pub(super) fn disconnect_lent(&mut self) {
        let waiting = self.lent.as_deref_mut().map(Lent::disconnected).unwrap_or_default();
        for dir in &waiting {
            self.cache.iter_mut().for_each(|cache| cache.end_announcement(*dir));
        }
        self.had_exclusive.extend(waiting);
    }
}

fn lend(lent: &mut Option<Box<Lent>>, dir: Ino, now: Moment) -> Span {
    lent.as_mut().map_or(Span(0), |lent| lent.lend(dir, now))
}

/// Sends the returns of directories that have left the cache before.
fn return_announced(session: &mut Session, dirs: Vec<Ino>, effects: &mut SessionEffects) {
    for dir in dirs {
        session.call(&Cred::root(), Op::Session(SessionOp::Return { dir }), effects);
        session.cache.iter_mut().for_each(|cache| cache.end_announcement(dir));
    }
}
