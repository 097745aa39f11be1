//! A directory that moves to another rank so that a file has all its names there: inodes with
//! several names stay on their rank with all of them, so a second name on another rank needs the
//! one directory, or the other, to move first.
//!
//! The directory moves like any export, and returns like any other when the file has lost its other
//! names. Any user with write permission in a directory can trigger this, so it is stricter than an
//! administrator's request: a pinned subtree stays, whether it is around the directory or in it.

use types::{Cred, Errno, Ino, Rank};
use wire::Answer;

use super::between::WRITE_AND_SEARCH;
use super::export::ExportCx;
use super::place::{InodeAuthority, busy};
use super::view::Places;
use crate::ReplyTo;
use crate::op::{Performed, Performing, Refused};

impl ExportCx<'_> {
    /// Begins to give a directory, or the one that has a file's only name, to another rank.
    pub(crate) fn colocate(&mut self, at: ReplyTo, cred: &Cred, ino: Ino, to: Rank) -> Performing {
        let dir = self.places().colocated(ino)?;
        self.base.namespace.access(cred, dir, WRITE_AND_SEARCH)?;
        if self.base.authority.place(self.base.namespace, dir) != InodeAuthority::Here
            || self.base.authority.is_exporting()
        {
            return Err(Errno::Again.into());
        }
        // The directory has arrived since; and this request does not replace a pin.
        if to == self.base.rank {
            return Ok(Performed::Answer(Answer::Done));
        }
        // Not looked at further: everything is in it.
        if dir == Ino::ROOT {
            return Err(busy("the root of the namespace stays with mds.0"));
        }
        if self.base.authority.is_part(dir) {
            return Err(busy("it is a fragment of a directory that is split"));
        }
        self.places().check_pins(dir)?;
        let performed = self.begin(at, dir, to, false)?;
        if let Performed::Answer(Answer::Redirect(inner)) = &performed {
            let list = &self.base.authority.list;
            let path = list.get(inner.root).map(|it| String::from_utf8_lossy(&it.path));
            let path = path.unwrap_or_default();
            return Err(busy(format!(
                "{path} in it is served by {to}, and has to come back first"
            )));
        }
        Ok(performed)
    }
}

impl Places<'_> {
    /// The directory that is meant.
    fn colocated(&self, ino: Ino) -> Result<Ino, Refused> {
        if self.namespace.is_dir(ino) {
            return Ok(ino);
        }
        match self.namespace.home_of(ino) {
            None => Err(Errno::Stale.into()),
            Some(Ino::LINKS) => Err(busy("the file has several names already, which stay there")),
            Some(home) if self.namespace.is_dir(home) => Ok(home),
            Some(_) => Err(busy("the file has no name")),
        }
    }

    /// A pinned subtree stays, with everything in it and around it.
    pub(super) fn check_pins(&self, dir: Ino) -> Result<(), Refused> {
        let list = &self.authority.list;
        let pinned = |it: &Ino| list.get(*it).is_some_and(|subtree| subtree.pinned);
        if let Some(at) = self.namespace.ancestors(dir).find(pinned) {
            return Err(self.pinned(at));
        }
        // A subtree in it that another rank serves does not move; the rest would move along.
        let here =
            list.iter().filter(|it| it.pinned && (it.joined || it.rank == self.authority.rank));
        let here: Vec<Ino> = here.map(|it| it.root).collect();
        if here.iter().any(|it| !self.namespace.is_anchored(*it)) {
            self.check_known(dir)?;
        }
        match here.into_iter().find(|it| self.namespace.is_within(*it, dir)) {
            Some(at) => Err(self.pinned(at)),
            None => Ok(()),
        }
    }

    fn pinned(&self, at: Ino) -> Refused {
        let path = self.authority.list.get(at).map(|it| String::from_utf8_lossy(&it.path));
        let path = path.unwrap_or_default();
        busy(format!("{path} is pinned; `cudele mds unpin {path}` leaves it to the servers"))
    }
}
