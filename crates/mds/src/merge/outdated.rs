//! Events of a log of requests that are older than what the rank's own journal knows.
//!
//! The journal has each change of a file with several names, whatever the policy says, because the
//! inode is stored apart from its names. So after a crash the server knows such files, their names
//! and their attributes as they were, and an older event of a client's log must not undo that. A
//! change of anything else is in the log only.

use journal::{Event, InodeSnapshot};
use namespace::Namespace;
use types::{EntryName, Ino, Timestamp};

/// How far an event of a log is to be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent<'a> {
    Whole,
    /// The inode leaves the old name, and the new name stays with the file that took it later.
    Leaves(EntryName<'a>, Timestamp),
    Nothing,
}

/// How far an event of a log is newer than the rank's journal.
pub(super) fn extent_of<'a>(namespace: &Namespace, event: &Event<'a>) -> Extent<'a> {
    let is_newer = |ino: Ino, time: Timestamp| {
        namespace.home_of(ino) == Some(Ino::LINKS)
            && namespace.getattr(ino).is_ok_and(|attr| attr.ctime >= time)
    };
    let holder = |dir, name| namespace.peek(dir, name).ok().flatten();
    // The name went to another file since.
    let is_taken = |dir, name, ino: Ino, time| {
        holder(dir, name).is_some_and(|holder| holder != ino && is_newer(holder, time))
    };
    let is_old = match *event {
        Event::Create(ref create) => {
            let (ino, time) = (create.ino, create.time);
            is_newer(ino, time) || is_taken(create.parent, create.name, ino, time)
        }
        Event::Link { parent, name, ino, time, .. } => {
            is_newer(ino, time) || is_taken(parent, name, ino, time)
        }
        Event::SetAttr { ino, time, .. }
        | Event::SetXattr { ino, time, .. }
        | Event::SetData { ino, time, .. } => is_newer(ino, time),
        Event::Unlink { parent, name, time, .. } => is_taken(parent, name, Ino(0), time),
        Event::Rename {
            parent, name, new_parent, new_name, moved, exchanged: None, time, ..
        } => {
            let InodeSnapshot { attr: types::Attr { ino, .. }, .. } = moved;
            let leaves = is_taken(new_parent, new_name, ino, time) && !is_newer(ino, time);
            if leaves && holder(parent, name) == Some(ino) {
                return Extent::Leaves(EntryName::new(parent, name), time);
            }
            leaves || is_newer(ino, time)
        }
        Event::Rename { .. }
        | Event::Rmdir { .. }
        | Event::SetPolicy { .. }
        | Event::Session { .. }
        | Event::Merged { .. }
        | Event::Stored { .. } => false,
    };
    if is_old { Extent::Nothing } else { Extent::Whole }
}
