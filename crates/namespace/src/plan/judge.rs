//! Judging events of another journal by the rules of live requests (`check: merge`).
//!
//! The writer of a judged event need not be trusted: the rules are applied to the names and numbers
//! in the event, and the event planned here is applied, never the journal's claims about existing
//! inodes.

use journal::{Create, Event};
use types::{
    AttrChange, Cred, EntryName, Errno, FileType, Ino, RenameFlags, XattrChange, XattrFlags,
};

use super::{Plan, Planned, PlannedInode, Planner, SET_GID};
use crate::access::EXECUTE;
use crate::{Extra, Refusal};

/// The owner of the judged journal.
#[derive(Clone, Copy, Debug)]
pub struct Judge<'a> {
    /// The identity for which it is merged.
    pub cred: &'a Cred,
    /// The subtree it is about: the way from there to every directory must be open to the user.
    pub subtree: Ino,
}

impl Planner<'_> {
    /// The event that a request of the same user would be carried out as, or `None` if there is
    /// nothing to be done. `own` says whether the inode it names was numbered by this journal's
    /// client.
    ///
    /// An event may mean an inode under a name by its number: if the name is of another one by now,
    /// it is not carried out.
    ///
    /// # Errors
    /// As the planner's function of the same name; `ENOENT` for a removed object, `ESTALE` for a
    /// name that another inode has by now, `EEXIST` for a rename over a name that its writer did
    /// not know, `EACCES` also for a directory that the user could not reach, `EPERM` for an event
    /// that no request can cause; or [`Refusal::Cold`].
    pub fn judge<'a>(
        self,
        judge: &Judge<'_>,
        event: &Event<'a>,
        own: bool,
    ) -> Result<Option<Planned<'a>>, Refusal> {
        let planned = self.judge_event(judge, event, own);
        // A journal knows inodes by number only: there is no path that could be walked again.
        planned.map_err(|refusal| match refusal {
            Refusal::Errno(Errno::Stale) => Refusal::Errno(Errno::NotFound),
            Refusal::Errno(Errno::Remote) => Refusal::Errno(Errno::Stale),
            Refusal::Errno(_) | Refusal::Cold(_) => refusal,
        })
    }

    fn judge_event<'a>(
        self,
        judge: &Judge<'_>,
        event: &Event<'a>,
        own: bool,
    ) -> Result<Option<Planned<'a>>, Refusal> {
        let cred = judge.cred;
        if let Some((dir, _)) = event.dentry() {
            self.reach(judge, dir)?;
        }
        match *event {
            Event::Create(ref create) => self.judge_create(cred, create).map(Some),
            Event::Link { parent, name, ino, time, .. } => {
                self.link(cred, ino, EntryName::new(parent, name), time).map(Some)
            }
            Event::Unlink { parent, name, ino, time } => {
                let planned = self.unlink(cred, parent, name, time)?;
                same(ino, planned.event.inode())?;
                Ok(Some(planned))
            }
            Event::Rmdir { parent, name, ino, time } => {
                let planned = self.rmdir(cred, parent, name, time)?;
                same(ino, planned.event.inode())?;
                Ok(Some(planned))
            }
            Event::Rename { new_parent, .. } => {
                self.reach(judge, new_parent)?;
                self.judge_rename(cred, event)
            }
            Event::SetAttr { ino, ref change, time, .. } => {
                let planned = match self.setattr(cred, ino, change, time) {
                    // The creator of a file may write it under any mode.
                    Err(Refusal::Errno(Errno::Access)) if self.is_written(judge, ino, change) => {
                        if !own {
                            return Err(Errno::Access.into());
                        }
                        self.setattr(&Cred::root(), ino, change, time)
                    }
                    planned => planned,
                };
                planned.map(Some)
            }
            Event::SetXattr { ino, name, value, time, .. } => {
                let change = XattrChange { name, value, flags: XattrFlags::default() };
                if types::acl::is_list(name) {
                    return self.judge_list(cred, ino, &change, time).map(Some);
                }
                self.setxattr(cred, ino, change, time).map(Some)
            }
            Event::SetData { ino, data, size, time, .. } => {
                let of_own = own && self.tree.inode(ino)?.uid == cred.uid;
                let root = Cred::root();
                let cred = if of_own { &root } else { cred };
                self.setdata(cred, ino, data, size, time).map(Some)
            }
            Event::SetPolicy { .. }
            | Event::Session { .. }
            | Event::Merged { .. }
            | Event::Stored { .. } => Err(Errno::NotPermitted.into()),
        }
    }

    /// The user could have walked from the subtree's root to the directory.
    fn reach(self, judge: &Judge<'_>, dir: Ino) -> Result<(), Refusal> {
        for above in self.tree.ancestors(dir) {
            self.tree.allow(judge.cred, above, self.tree.inode(above)?, EXECUTE)?;
            if above == judge.subtree {
                break;
            }
        }
        Ok(())
    }

    /// A change that writing a file makes, on a file of the user's.
    fn is_written(self, judge: &Judge<'_>, ino: Ino, change: &AttrChange) -> bool {
        let AttrChange { mode, uid, gid, .. } = change;
        let owner = self.tree.inode(ino).is_ok_and(|inode| inode.uid == judge.cred.uid);
        owner && mode.is_none() && uid.is_none() && gid.is_none()
    }

    fn judge_create<'a>(self, cred: &Cred, create: &Create<'a>) -> Plan<'a> {
        let event = Event::Create(*create);
        if self.tree.inodes.knows(create.ino) {
            // It was merged before: later changes of the inode stay.
            return Ok(Planned::plain(event));
        }
        let dir = self.tree.directory(create.parent)?;
        let mut gid = create.gid;
        if dir.mode & SET_GID != 0 && gid == dir.gid {
            // New inodes get the group of such a directory, and their owner may be no member of it.
            let program = FileType::from_mode(create.mode) != Some(FileType::Directory);
            if program && create.mode & SET_GID != 0 && !cred.is_root() && !cred.in_group(gid) {
                return Err(Errno::NotPermitted.into());
            }
            gid = cred.gid;
        }
        let new = PlannedInode {
            mode: create.mode,
            owner: Some((create.uid, gid)),
            rdev: create.rdev,
            stripe: create.stripe,
            size: create.size,
            time: create.time,
            mtime: Some(create.mtime),
            atime: Some(create.atime),
            data: create.data,
            umask: 0,
        };
        if !Extra::are_lists(create.extra, create.mode) {
            return Err(Errno::NotPermitted.into());
        }
        let entry = EntryName::new(create.parent, create.name);
        // The owner of an inode may give it any list, so those that it begins with are not compared
        // with the directory's, which other clients may have changed since.
        let planned =
            self.create_in(cred, entry, &new, create.ino, |_, mode| (mode, create.extra))?;
        let planned = Create { gid: create.gid, ..planned };
        let planned = Planned::from(planned);
        // Recovery reads the event again from the client's journal, so the two must be equal.
        if planned.event == event { Ok(planned) } else { Err(Errno::Invalid.into()) }
    }

    fn judge_rename<'a>(
        self,
        cred: &Cred,
        event: &Event<'a>,
    ) -> Result<Option<Planned<'a>>, Refusal> {
        let Event::Rename {
            parent,
            name,
            new_parent,
            new_name,
            ref moved,
            ref exchanged,
            replaced,
            time,
        } = *event
        else {
            return Ok(None);
        };
        let flags = RenameFlags { exchange: exchanged.is_some(), ..RenameFlags::default() };
        let (from, to) = (EntryName::new(parent, name), EntryName::new(new_parent, new_name));
        let Some(planned) = self.rename(cred, from, to, flags, time)? else {
            return Ok(None);
        };
        if let Event::Rename { moved: ref found, exchanged: ref back, replaced: over, .. } =
            planned.event
        {
            same(moved.attr.ino, Some(found.attr.ino))?;
            if let (Some(exchanged), Some(back)) = (exchanged, back) {
                same(exchanged.attr.ino, Some(back.attr.ino))?;
            }
            if over.0 != 0 && over != replaced {
                return Err(Errno::Exists.into());
            }
        }
        Ok(Some(planned))
    }
}

/// A name is still that of the inode that the journal means, if it says which.
fn same(meant: Ino, found: Option<Ino>) -> Result<(), Refusal> {
    let other = meant.0 != 0 && found.is_some_and(|found| found != meant);
    // Turned into `ESTALE` by the caller, which keeps that word for this.
    if other { Err(Errno::Remote.into()) } else { Ok(()) }
}
