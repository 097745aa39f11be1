//! Fetching: a directory's rows from the metadata store go below its entries in memory.

use journal::{Create, Event, InodeSnapshot, Loss};
use metastore::{DirTouch, InodeRecord, Row, RowValue};
use types::{EntryName, FileType, Ino, Seq, name_hash};

use crate::dir::{Counted, Dir};
use crate::inode::{HashedName, Inode, REPLAYED};
use crate::page::Target;
use crate::{Extra, Namespace, link_name};

impl Namespace {
    /// Adds rows of a directory. Entries in memory are newer and win. Call
    /// [`Namespace::finish_load`] after the last row.
    pub fn load<'a>(&mut self, dir: Ino, rows: impl Iterator<Item = Row<'a>>) {
        for row in rows {
            self.load_row(dir, &row, Newer::Memory);
        }
    }

    /// Drops the effect of replayed events on a directory and takes the stored directory, which has
    /// all of them and more.
    pub fn replace<'a>(
        &mut self,
        ino: Ino,
        rows: impl Iterator<Item = Row<'a>>,
        position: Seq,
        touched: DirTouch,
    ) {
        let old = self.dir_mut(ino);
        let mut new = Dir::new(false);
        (new.touched, new.policy) = (old.touched, old.policy);
        let old = std::mem::replace(old, new);
        for (_, dentry) in old.list(None) {
            if !dentry.is_remote() && self.home_of(dentry.ino) == Some(ino) {
                if self.replays && dentry.file_type() == FileType::Directory {
                    self.overtaken.push(dentry.ino);
                }
                self.inodes.remove(dentry.ino);
                self.extras.remove(&dentry.ino);
            }
        }
        for row in rows {
            self.load_row(ino, &row, Newer::Store);
        }
        self.finish_load(ino, position, touched);
    }

    pub(crate) fn load_row(&mut self, dir: Ino, row: &Row<'_>, ties: Newer) {
        match row.value {
            RowValue::Removed => {}
            RowValue::Remote { ino, file_type } => {
                let target = Target { ino, file_type, remote: true };
                self.dir_mut(dir).add_stored(row.name, target);
            }
            RowValue::Inode(record) => self.load_inode(dir, row.name, &record, ties),
        }
    }

    /// In a replay, rows of one inode may be found in several directories: it moved, and not all
    /// of them were checkpointed since. The newest counts.
    fn load_inode(&mut self, dir: Ino, name: &[u8], record: &InodeRecord<'_>, ties: Newer) {
        let ino = record.attr.ino;
        let hash = name_hash(name);
        if self.dir_mut(dir).find_any(hash, name).is_some() {
            return;
        }
        let file_type = record.attr.file_type();
        if let Some(known) = self.inodes.get(ino)
            && known.home_name() != (HashedName { dir, hash })
        {
            let newer = ties.is_memory(known, record.version);
            if newer && known.home == Ino::LINKS {
                self.dir_mut(dir).set(hash, name, Target { ino, file_type, remote: true });
                return self.note_stale(dir);
            }
            if newer {
                self.dir_mut(dir).unset(hash, name);
                return self.note_stale(dir);
            }
            let old = known.home;
            if dir == Ino::LINKS {
                self.make_remote(ino);
            } else {
                self.hide_home(ino);
            }
            self.note_stale(old);
        }
        self.dir_mut(dir).add_stored(name, Target { ino, file_type, remote: false });
        let known = self.inodes.get(ino);
        if known.is_some_and(|known| ties.is_memory(known, record.version)) {
            return;
        }
        let version = record.version;
        let mut inode = Inode { home: dir, home_hash: hash, version, ..Inode::default() };
        inode.set_attr(&record.attr);
        self.put_inode(ino, inode, Extra::from_parts(record.data, record.extra));
        if file_type == FileType::Directory {
            self.note_policy(ino);
        }
        self.resolve_touch(ino);
    }

    /// A directory's rows in the store were out of date. The event that changed them is unknown, so
    /// no event may be dropped until the directory is stored again.
    fn note_stale(&mut self, ino: Ino) {
        self.note_dirty(Seq(0), ino);
    }

    /// Adds an entry that a server listed: its attributes and, for small files and links, its
    /// content. Like in the server, an inode with several names lives in [`Ino::LINKS`].
    pub fn load_entry(&mut self, dir: Ino, name: &[u8], attr: &types::Attr, data: &[u8]) {
        let record = InodeRecord { attr: *attr, data, ..InodeRecord::default() };
        if attr.is_dir() || attr.nlink < 2 {
            return self.load_inode(dir, name, &record, Newer::Memory);
        }
        let (ino, file_type) = (attr.ino, attr.file_type());
        self.load_inode(Ino::LINKS, &link_name(ino), &record, Newer::Memory);
        self.dir_mut(dir).add_stored(name, Target { ino, file_type, remote: true });
    }

    /// Adds the content and extended attributes of an entry from a server's listing
    /// ([`Namespace::load_entry`]). No change may have touched them since.
    pub fn load_extra(&mut self, ino: Ino, data: &[u8], xattrs: &[(Vec<u8>, Vec<u8>)]) {
        let Some(inode) = self.inodes.get_mut(ino) else { return };
        let mut extra = self.extras.remove(&ino).unwrap_or_default();
        let filled = std::sync::Arc::make_mut(&mut extra);
        if !data.is_empty() {
            filled.data = data.to_vec();
        }
        for (name, value) in xattrs {
            filled.set_xattr(name, Some(value));
        }
        if !extra.is_empty() {
            inode.flags |= crate::inode::HAS_EXTRA;
            self.extras.insert(ino, extra);
        }
    }

    /// Every row of the directory has been added: from now on a missing name does not exist.
    /// `position` is the one up to which the store has everything, and `touched` a change that its
    /// inode may not show.
    pub fn finish_load(&mut self, ino: Ino, position: Seq, touched: DirTouch) {
        let dir = self.dir_mut(ino);
        debug_assert!(dir.stored || dir.complete, "{ino}: a fetched directory is in the store");
        dir.complete = true;
        (dir.counted, dir.hidden) = (Counted::No, (0, 0));
        self.note_loaded(ino, position, touched);
    }

    pub(crate) fn note_loaded(&mut self, ino: Ino, position: Seq, touched: DirTouch) {
        let dir = self.dir_mut(ino);
        dir.stored = true;
        // Which of the events up to there were about this directory is not known.
        dir.journalled = dir.journalled.max(position);
        if dir.touched.is_none_or(|known| known.seq < touched.seq) && touched.seq != Seq(0) {
            dir.touched = Some(touched);
        }
        self.resolve_touch(ino);
    }

    /// The directory that must be fetched before an event can be applied exactly, if any. Live
    /// events need none, because planning them already fetched their directories.
    #[must_use]
    pub fn needs(&self, event: &Event<'_>) -> Option<Ino> {
        self.needs_again(Seq(u64::MAX), event)
    }

    /// As [`Namespace::needs`], for an event of this rank's journal at this position that is
    /// repeated: the namespace may be ahead of it. A directory that got its name later is not the
    /// one that the event replaced, and may be another rank's.
    #[must_use]
    pub fn needs_again(&self, seq: Seq, event: &Event<'_>) -> Option<Ino> {
        match *event {
            Event::Create(ref create) if is_dir(create) => {
                let place = EntryName::new(create.parent, create.name);
                self.takeover_needed(seq, place, create.ino)
            }
            Event::Create(_)
            | Event::Session { .. }
            | Event::Merged { .. }
            | Event::Stored { .. } => None,
            Event::Link { ino, home, parent, name, .. } => self
                .old_name_needed(ino, home)
                .or_else(|| self.home_needed(ino, Ino::LINKS))
                .or_else(|| self.withheld_links())
                .or_else(|| self.name_needed(parent, name)),
            Event::Unlink { parent, name, ino, .. } => self
                .name_needed(parent, name)
                .or_else(|| self.lost_name_needed(EntryName::new(parent, name), ino)),
            Event::Rmdir { parent, name, .. } => self.name_needed(parent, name),
            Event::Rename {
                parent,
                name,
                new_parent,
                new_name,
                moved,
                exchanged,
                replaced,
                ..
            } => self
                .name_needed(parent, name)
                .or_else(|| self.name_needed(new_parent, new_name))
                .or_else(|| self.lost_name_needed(EntryName::new(new_parent, new_name), replaced))
                .or_else(|| self.links_needed(&moved))
                .or_else(|| exchanged.and_then(|back| self.links_needed(&back)))
                .or_else(|| {
                    let to = EntryName::new(new_parent, new_name);
                    self.takeover_needed(seq, to, moved.attr.ino)
                        .filter(|_| moved.attr.is_dir() && exchanged.is_none())
                }),
            Event::SetAttr { ino, home, .. }
            | Event::SetXattr { ino, home, .. }
            | Event::SetData { ino, home, .. }
            | Event::SetPolicy { ino, home, .. } => self
                .home_needed(ino, home)
                .or_else(|| self.moved_home_needed(ino, home))
                .or_else(|| self.times_needed(ino)),
        }
    }

    /// The inode is a directory's, as the store has it. The directory's rows may have newer times,
    /// and must be fetched before a change makes the inode look newer than they are.
    fn times_needed(&self, ino: Ino) -> Option<Ino> {
        let inode = self.inodes.get(ino)?;
        let as_stored = inode.is_dir() && inode.flags & REPLAYED == 0;
        (as_stored && !self.is_complete(ino)).then_some(ino)
    }

    /// Whether an event of another journal gives or takes a name in a directory that does not
    /// exist: existing ones were fetched when the journal was verified. The event is rejected.
    #[must_use]
    pub fn lacks_place(&self, event: &Event<'_>) -> bool {
        let lacks = |dir| !self.knows(dir);
        let other = matches!(*event, Event::Rename { new_parent, .. } if lacks(new_parent));
        event.dentry().is_some_and(|(dir, _)| lacks(dir)) || other
    }

    /// As [`Namespace::needs`], for an event of another journal. If the event replaces a directory
    /// by a directory, the names of the old one must be in memory to be taken over; if it removes
    /// one, to prove that there are none; and if names are lost with a directory while inodes have
    /// several, all names must be in memory to be counted off. `is_new` is true for directories
    /// that the journal made itself: all their names come from it.
    #[must_use]
    pub fn needs_in_merge(&self, event: &Event<'_>, is_new: impl Fn(Ino) -> bool) -> Option<Ino> {
        let (parent, name, winner, takes_over) = match *event {
            Event::Create(ref create) if is_dir(create) && is_new(create.parent) => return None,
            Event::Create(ref create) => (create.parent, create.name, create.ino, is_dir(create)),
            Event::Rename { new_parent, new_name, ref moved, .. } => {
                (new_parent, new_name, moved.attr.ino, moved.attr.is_dir())
            }
            Event::Rmdir { parent, name, .. } => (parent, name, Ino(0), false),
            Event::Link { parent, name, ino, home, .. } if self.is_gone(ino, home) => {
                let links = self.home_needed(ino, Ino::LINKS);
                return links.or_else(|| self.name_needed(parent, name));
            }
            Event::SetAttr { ino, home, .. }
            | Event::SetXattr { ino, home, .. }
            | Event::SetData { ino, home, .. }
                if self.is_gone(ino, home) =>
            {
                return None;
            }
            Event::Link { .. }
            | Event::Unlink { .. }
            | Event::SetData { .. }
            | Event::SetPolicy { .. }
            | Event::Session { .. }
            | Event::Merged { .. }
            | Event::Stored { .. } => return self.needs(event),
            Event::SetAttr { ino, .. } | Event::SetXattr { ino, .. } => {
                return self.needs(event).filter(|_| !is_new(ino));
            }
        };
        let loser = self.dirs.get(&parent).and_then(|dir| dir.find(name));
        if loser.is_some_and(|loser| is_new(loser.ino)) {
            return if takes_over { None } else { self.needs(event) };
        }
        let name_needed = || self.name_needed(parent, name).filter(|_| !is_new(parent));
        self.needs(event).or_else(name_needed).or_else(|| {
            let loser = loser.filter(|loser| loser.ino != winner && self.is_dir(loser.ino))?.ino;
            let removed = winner == Ino(0) && !self.is_complete(loser);
            (if takes_over { self.adoption_needed(loser, winner) } else { None })
                .or(removed.then_some(loser))
                .or_else(|| self.tree_needed(loser, &is_new).filter(|_| self.has_links()))
        })
    }

    /// Whether an inode is not here, and nor is the directory that another journal says it is in:
    /// that one does not exist any more, because those that do were brought here when the journal
    /// was verified. The store may still have it until it is purged, and everything in it would
    /// come back if it were fetched.
    fn is_gone(&self, ino: Ino, home: Ino) -> bool {
        !self.knows(ino) && !self.knows(home) && !is_hidden(home)
    }

    /// Whether an inode has several names, or may have.
    #[must_use]
    pub fn has_links(&self) -> bool {
        self.dirs.get(&Ino::LINKS).is_none_or(|links| !links.complete || links.entries > 0)
    }

    /// [`Ino::LINKS`], if its objects in the store are damaged. No inode may be put there.
    pub(crate) fn withheld_links(&self) -> Option<Ino> {
        let links = self.dirs.get(&Ino::LINKS);
        links.is_some_and(|links| links.withheld && !links.complete).then_some(Ino::LINKS)
    }

    /// Whether it is known that a directory does not have a name. `is_new` as for
    /// [`Namespace::needs_in_merge`].
    #[must_use]
    pub fn is_vacant(&self, entry: EntryName<'_>, is_new: impl Fn(Ino) -> bool) -> bool {
        let EntryName { dir, name } = entry;
        let known = self.dirs.get(&dir);
        let all_known = is_new(dir) || known.is_some_and(|dir| dir.complete);
        all_known && known.is_none_or(|dir| dir.find(name).is_none())
    }

    /// A directory of a tree that is incomplete in memory.
    fn tree_needed(&self, root: Ino, is_new: impl Fn(Ino) -> bool) -> Option<Ino> {
        let mut todo = vec![root];
        while let Some(ino) = todo.pop() {
            let dir = self.dirs.get(&ino);
            if !is_new(ino) && dir.is_none_or(|dir| !dir.complete) {
                return Some(ino);
            }
            let names = dir.into_iter().flat_map(|dir| dir.list(None));
            let dirs = names.filter(|(_, it)| it.file_type() == FileType::Directory);
            todo.extend(dirs.map(|(_, dentry)| dentry.ino));
        }
        None
    }

    /// A directory that must be fetched before another directory replaces it.
    fn takeover_needed(&self, seq: Seq, entry: EntryName<'_>, winner: Ino) -> Option<Ino> {
        let loser = self.dentry(entry)?.ino;
        let known = self.inodes.get(loser).filter(|known| known.is_dir())?;
        (loser != winner && known.version <= seq && !self.is_complete(loser)).then_some(loser)
    }

    /// A directory that must be here before [`Namespace::lose_again`].
    #[must_use]
    pub fn needs_to_lose(&self, loss: &Loss) -> Option<Ino> {
        let Loss { winner, loser, .. } = *loss;
        if loss.create().is_some() || loss.removed().is_some() {
            None
        } else if winner.0 == 0 {
            self.home_needed(loser, Ino::LINKS)
        } else {
            [loser, winner].into_iter().find(|dir| !self.is_complete(*dir))
        }
    }

    /// A directory that must be here before one takes over the names of another.
    fn adoption_needed(&self, loser: Ino, winner: Ino) -> Option<Ino> {
        let mut pairs = vec![(loser, winner)];
        while let Some((loser, winner)) = pairs.pop() {
            if !self.is_dir(loser) {
                continue;
            }
            let Some(content) = self.dirs.get(&loser).filter(|dir| dir.complete) else {
                return Some(loser);
            };
            let Some(own) = self.dirs.get(&winner).filter(|dir| dir.complete) else {
                return Some(winner);
            };
            let both = content
                .list(None)
                .filter_map(|(name, dentry)| Some((dentry.ino, own.find(name)?.ino)));
            pairs.extend(both.filter(|(loser, winner)| loser != winner));
        }
        None
    }

    /// The inode is not here, and its home has not been fetched.
    fn home_needed(&self, ino: Ino, home: Ino) -> Option<Ino> {
        (!self.knows(ino) && !self.is_complete(home)).then_some(home)
    }

    /// The name that becomes one of several must be here to be marked as such.
    fn old_name_needed(&self, ino: Ino, home: Ino) -> Option<Ino> {
        let elsewhere = self.home_of(ino).is_some_and(|known| known != Ino::LINKS);
        (!elsewhere && home != Ino::LINKS && !self.is_complete(home)).then_some(home)
    }

    /// An inode that is not here may be one with several names.
    fn links_needed(&self, snapshot: &InodeSnapshot<'_>) -> Option<Ino> {
        if snapshot.attr.is_dir() { None } else { self.home_needed(snapshot.attr.ino, Ino::LINKS) }
    }

    /// The lost name of an inode is gone already: an inode with further names must be in memory to
    /// count it off.
    fn lost_name_needed(&self, entry: EntryName<'_>, ino: Ino) -> Option<Ino> {
        let gone = self.dentry(entry).is_none_or(|dentry| dentry.ino != ino);
        (gone && ino.0 != 0).then(|| self.home_needed(ino, Ino::LINKS)).flatten()
    }

    /// The object of a name is unknown, or is a hard link to an inode that is not in memory.
    fn name_needed(&self, parent: Ino, name: &[u8]) -> Option<Ino> {
        let dir = self.dirs.get(&parent);
        match dir.and_then(|dir| dir.find_any(name_hash(name), name)) {
            Some(dentry) if dentry.is_remote() && !self.knows(dentry.ino) => {
                (!self.is_complete(Ino::LINKS)).then_some(Ino::LINKS)
            }
            Some(_) => None,
            None => (!self.is_complete(parent)).then_some(parent),
        }
    }

    /// The directories in memory, sorted.
    #[must_use]
    pub fn directory_list(&self) -> Vec<Ino> {
        let mut all: Vec<_> = self.dirs.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// The directories that the metadata store does not have as they are in memory, sorted.
    #[must_use]
    pub fn unstored_directories(&self) -> Vec<Ino> {
        let unstored = |dir: &Dir| dir.dirty_since.is_some() || dir.flushing.is_some();
        let dirs = self.dirs.iter().filter(|(_, dir)| unstored(dir));
        let mut all: Vec<_> = dirs.map(|(ino, _)| *ino).collect();
        all.sort_unstable();
        all
    }

    /// Events behind this position are not about a directory that is in memory.
    #[must_use]
    pub fn journalled_up_to(&self, ino: Ino) -> Seq {
        self.dirs.get(&ino).map_or(Seq(0), |dir| dir.journalled)
    }

    /// The event position since which a directory is dirty, if it is.
    #[must_use]
    pub fn dirty_since(&self, ino: Ino) -> Option<Seq> {
        self.dirs.get(&ino).and_then(|dir| dir.dirty_since)
    }
}

/// Decides between two inodes of one version in memory and in the store: changes without a journal
/// have the version of the newest event before them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Newer {
    Memory,
    Store,
}

impl Newer {
    fn is_memory(self, known: &Inode, stored: Seq) -> bool {
        match self {
            Self::Memory if known.flags & REPLAYED == 0 => known.version >= stored,
            Self::Memory | Self::Store => known.version > stored,
        }
    }
}

/// Whether a directory is one of those without a name: no inode has this flag.
pub(crate) fn is_hidden(dir: Ino) -> bool {
    dir.0 < 16 || dir.is_mount_stub()
}

fn is_dir(create: &Create<'_>) -> bool {
    create.file_type() == FileType::Directory
}
