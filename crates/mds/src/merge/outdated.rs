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
#[derive(Debug)]
pub(super) enum Extent<'a> {
    Whole,
    Nothing,
    /// These events are carried out instead.
    Instead(Box<[Option<Event<'a>>; 2]>),
}

/// How far a move of one inode is to be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MoveExtent {
    Whole,
    Nothing,
    /// The inode leaves the old name. The new name stays with the file that took it later.
    Leaves,
}

/// A move of one inode, at a time.
#[derive(Clone, Copy, Debug)]
struct Move<'a> {
    from: EntryName<'a>,
    to: EntryName<'a>,
    moved: InodeSnapshot<'a>,
    time: Timestamp,
}

impl<'a> Move<'a> {
    /// The event that carries the move out so far.
    fn event(self, extent: MoveExtent) -> Option<Event<'a>> {
        let Self { from, to, moved, time } = self;
        let EntryName { dir: parent, name } = from;
        let (new_parent, new_name, exchanged, replaced) = (to.dir, to.name, None, Ino(0));
        match extent {
            MoveExtent::Nothing => None,
            MoveExtent::Leaves => Some(Event::Unlink { parent, name, ino: Ino(0), time }),
            MoveExtent::Whole => Some(Event::Rename {
                parent,
                name,
                new_parent,
                new_name,
                moved,
                exchanged,
                replaced,
                time,
            }),
        }
    }
}

/// The namespace with all that the rank's journal brought back.
#[derive(Clone, Copy, Debug)]
struct Known<'a>(&'a Namespace);

impl Known<'_> {
    /// Whether a file with several names changed at this time or later.
    fn is_newer(self, ino: Ino, time: Timestamp) -> bool {
        self.0.home_of(ino) == Some(Ino::LINKS)
            && self.0.getattr(ino).is_ok_and(|attr| attr.ctime >= time)
    }

    fn holder(self, entry: EntryName<'_>) -> Option<Ino> {
        self.0.peek(entry.dir, entry.name).ok().flatten()
    }

    /// Whether a name went to a file other than this one since.
    fn is_taken(self, entry: EntryName<'_>, ino: Ino, time: Timestamp) -> bool {
        self.holder(entry).is_some_and(|holder| holder != ino && self.is_newer(holder, time))
    }

    fn extent_of_move(self, it: &Move<'_>) -> MoveExtent {
        let ino = it.moved.attr.ino;
        if self.is_newer(ino, it.time) {
            MoveExtent::Nothing
        } else if !self.is_taken(it.to, ino, it.time) {
            MoveExtent::Whole
        } else if self.holder(it.from) == Some(ino) {
            MoveExtent::Leaves
        } else {
            MoveExtent::Nothing
        }
    }
}

/// How far an event of a log is newer than the rank's journal.
pub(super) fn extent_of<'a>(namespace: &Namespace, event: &Event<'a>) -> Extent<'a> {
    let known = Known(namespace);
    let is_old = match *event {
        Event::Create(ref create) => {
            let (ino, time) = (create.ino, create.time);
            let entry = EntryName::new(create.parent, create.name);
            known.is_newer(ino, time) || known.is_taken(entry, ino, time)
        }
        Event::Link { parent, name, ino, time, .. } => {
            known.is_newer(ino, time) || known.is_taken(EntryName::new(parent, name), ino, time)
        }
        Event::SetAttr { ino, time, .. }
        | Event::SetXattr { ino, time, .. }
        | Event::SetData { ino, time, .. } => known.is_newer(ino, time),
        Event::Unlink { parent, name, time, .. } => {
            known.is_taken(EntryName::new(parent, name), Ino(0), time)
        }
        Event::Rename { parent, name, new_parent, new_name, moved, exchanged, time, .. } => {
            let (from, to) = (EntryName::new(parent, name), EntryName::new(new_parent, new_name));
            let forth = Move { from, to, moved, time };
            let back = exchanged.map(|moved| Move { from: to, to: from, moved, time });
            return extent_of_moves(known, forth, back);
        }
        Event::Rmdir { .. }
        | Event::SetPolicy { .. }
        | Event::Session { .. }
        | Event::Merged { .. }
        | Event::Stored { .. } => false,
    };
    if is_old { Extent::Nothing } else { Extent::Whole }
}

fn extent_of_moves<'a>(known: Known<'_>, forth: Move<'a>, back: Option<Move<'a>>) -> Extent<'a> {
    let first = known.extent_of_move(&forth);
    let second = back.map(|back| (back, known.extent_of_move(&back)));
    if first == MoveExtent::Whole && second.is_none_or(|(_, extent)| extent == MoveExtent::Whole) {
        return Extent::Whole;
    }
    let mut instead = [forth.event(first), second.and_then(|(back, extent)| back.event(extent))];
    // A name is free before another inode takes it.
    if second.is_some_and(|(_, extent)| extent == MoveExtent::Leaves) {
        instead.reverse();
    }
    Extent::Instead(Box::new(instead))
}
