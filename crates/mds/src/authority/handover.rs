//! The part of the list of subtrees that one rank hands to another: the inode of a subtree's root,
//! the inodes with several names that are all in it, and the files that clients have open in it.

use journal::{Block, Event, JournalBuffer};
use metastore::MovedSubtree;
use namespace::{Mode, name_in_links};
use types::{ClientId, EntryName, Errno, Error, Ino, Origin, Seq, Tid, Timestamp};

use super::export::ROOT_NAME;
use super::import::ImportCx;
use super::view::Places;

/// Passes on the event of each inode that comes with a subtree, the root's first, and then those of
/// open files.
///
/// # Errors
/// `EBADMSG` if the bytes have another form.
fn each(
    subtree: &MovedSubtree,
    mut show: impl FnMut(&Event<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let malformed = |what: String| Error::new(Errno::BadMessage, metastore::SUBTREES_NAME, what);
    let mut offset = 0;
    while offset < subtree.inode.len() {
        let block = Block::read(&subtree.inode, offset);
        let (block, next) = block.map_err(|error| malformed(error.to_string()))?;
        let mut events = block.events();
        while let Some(record) =
            events.next_event().map_err(|error| malformed(error.to_string()))?
        {
            show(&record.event)?;
        }
        offset = next;
    }
    Ok(())
}

/// The inode with several names that an event hands over.
fn linked_of(event: &Event<'_>) -> Option<Ino> {
    let Event::Rename { parent, new_parent, ref moved, .. } = *event else { return None };
    let linked = (parent, new_parent) == (Ino::LINKS, Ino::LINKS) && !moved.attr.is_dir();
    linked.then_some(moved.attr.ino)
}

/// The open file of an event, and the client that has it open.
fn opened_of(event: &Event<'_>) -> Option<(ClientId, Ino)> {
    let Event::Session { client, tid } = *event else { return None };
    Some((client, Ino(tid.0)))
}

/// The events of one kind that come with a subtree. Unreadable bytes are reported when the subtree
/// is taken in.
fn all_of<T>(subtree: &MovedSubtree, of: impl Fn(&Event<'_>) -> Option<T>) -> Vec<T> {
    let mut all = Vec::new();
    let read = each(subtree, |event| {
        all.extend(of(event));
        Ok(())
    });
    if read.is_err() {
        all.clear();
    }
    all
}

/// The clients that have files open, or locked, in a subtree that comes, with these.
pub(super) fn opened(subtree: &MovedSubtree) -> Vec<(ClientId, Ino)> {
    all_of(subtree, opened_of)
}

/// The inodes with several names that come with a subtree, in order.
pub(super) fn linked(subtree: &MovedSubtree) -> Vec<Ino> {
    let mut linked = all_of(subtree, linked_of);
    linked.sort_unstable();
    linked
}

impl Places<'_> {
    /// The bytes in the list about the inodes that leave with a subtree, and about the clients that
    /// have files open in it. `None` if one of these inodes is not here.
    pub(super) fn hand_over(&self, root: Ino, linked: &[Ino]) -> Option<Vec<u8>> {
        let mut buffer = JournalBuffer::new(Seq(1), true);
        let planned =
            self.namespace.plan().offer(root, EntryName::new(Ino::mount_stub(root), ROOT_NAME))?;
        buffer.append(Origin::default(), &planned.event());
        for ino in linked {
            let name = name_in_links(*ino);
            let planned = self.namespace.plan().offer_linked(*ino, &name)?;
            buffer.append(Origin::default(), &planned.event());
        }
        for (client, ino) in self.holders_below(root, linked) {
            let event = Event::Session { client, tid: Tid(ino.0) };
            buffer.append(Origin::default(), &event);
        }
        buffer.close_block();
        Some(buffer.take_blocks().concat())
    }
}

impl ImportCx<'_> {
    /// Journals the inodes that come with a subtree, and puts them where they belong here: the root
    /// under the given name. Returns the position of the last event.
    pub(super) fn take_inodes(
        &mut self,
        subtree: &MovedSubtree,
        root_name: EntryName<'_>,
    ) -> Result<Seq, Error> {
        let EntryName { dir: home, name } = root_name;
        // The directory of the name does not change with it.
        let time = self.namespace.getattr(home).map_or(Timestamp(0), |attr| attr.mtime);
        let mut seq = None;
        each(subtree, |event| {
            let event = match (*event, seq) {
                (Event::Rename { moved, .. }, None) if moved.attr.is_dir() => Event::Rename {
                    parent: home,
                    name,
                    new_parent: home,
                    new_name: name,
                    moved,
                    exchanged: None,
                    replaced: Ino(0),
                    time,
                },
                (event, Some(_)) if linked_of(&event).is_some() => event,
                // Clients tell of it.
                (event, Some(_)) if opened_of(&event).is_some() => return Ok(()),
                (event, _) => {
                    let cause = format!("{:?} of no inode that changes hands", event.kind());
                    return Err(Error::new(Errno::BadMessage, metastore::SUBTREES_NAME, cause));
                }
            };
            let at = self.log.append(self.clock.now, Origin::default(), &event);
            self.namespace.apply(at, Mode::Replay, &event);
            seq = Some(at);
            Ok(())
        })?;
        seq.ok_or_else(|| {
            Error::new(
                Errno::BadMessage,
                metastore::SUBTREES_NAME,
                "a subtree without its root's inode",
            )
        })
    }
}
