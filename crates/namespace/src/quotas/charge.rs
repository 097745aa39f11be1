//! The change of use that an event makes, worked out before the event is applied.
//!
//! A live event was planned, so all that it changes is in memory, and the change of use is exact.
//! A merged event may meet something that is not, or take the place of a whole directory: then the
//! use is doubted, and counted again.

use journal::{Create, Event, InodeSnapshot};
use types::quota::Usage;
use types::{EntryName, FileType, Ino};

use super::Charged;
use crate::Mode;
use crate::page::Dentry;
use crate::tree::InodeTree;

impl InodeTree {
    /// Whether an event of this kind may be charged for.
    #[inline]
    pub(crate) fn charges(&self, mode: Mode) -> bool {
        !self.quotas.is_empty() && matches!(mode, Mode::Live | Mode::Merge)
    }

    /// Charges for an event that is about to be applied.
    #[inline]
    pub(crate) fn charge(&mut self, mode: Mode, event: &Event<'_>) {
        if self.charges(mode) {
            self.charge_for(mode == Mode::Merge, event);
        }
    }

    /// Whether a merged event will not be carried out. Live events were planned.
    fn will_be_rejected(&self, event: &Event<'_>) -> bool {
        let dentry = |dir, name| self.dirs.dentry(EntryName::new(dir, name));
        let is_dir = |found: Option<Dentry>| {
            found.is_some_and(|dentry| dentry.file_type() == FileType::Directory)
        };
        let is_below = |dir, inode: &InodeSnapshot<'_>| {
            inode.attr.is_dir() && self.is_within(dir, inode.attr.ino)
        };
        match *event {
            Event::Link { ino, .. } => self.inodes.is_dir(ino),
            Event::Unlink { parent, name, .. } => is_dir(dentry(parent, name)),
            Event::Rmdir { parent, name, .. } => {
                let found = dentry(parent, name);
                let entries = |found: Dentry| self.dirs.get(found.ino).map_or(0, |it| it.entries);
                found.is_some_and(|found| !is_dir(Some(found)) || entries(found) > 0)
            }
            Event::Rename { parent, new_parent, ref moved, ref exchanged, .. } => {
                let departs = new_parent.is_mount_stub() && !moved.attr.is_dir();
                let back = exchanged.as_ref();
                departs
                    || is_below(new_parent, moved)
                    || back.is_some_and(|back| {
                        let dirs = [parent, new_parent];
                        dirs.iter().any(|dir| is_below(*dir, moved) || is_below(*dir, back))
                    })
            }
            Event::Create(_)
            | Event::SetAttr { .. }
            | Event::SetXattr { .. }
            | Event::SetData { .. }
            | Event::SetPolicy { .. }
            | Event::Session { .. }
            | Event::Merged { .. }
            | Event::Stored { .. } => false,
        }
    }

    #[cold]
    fn charge_for(&mut self, is_merge: bool, event: &Event<'_>) {
        if is_merge && self.will_be_rejected(event) {
            return;
        }
        match *event {
            Event::Create(ref create) => self.charge_create(is_merge, create),
            Event::Link { parent, name, ino, .. } => {
                self.charge_lost(EntryName::new(parent, name), ino);
                self.charge_second_name(ino, parent);
            }
            Event::Unlink { parent, name, .. } | Event::Rmdir { parent, name, .. } => {
                self.charge_lost(EntryName::new(parent, name), Ino(0));
            }
            Event::Rename { parent, name, new_parent, new_name, ref moved, exchanged, .. } => {
                let from = EntryName::new(parent, name);
                let to = EntryName::new(new_parent, new_name);
                match exchanged {
                    None => {
                        self.charge_lost(to, moved.attr.ino);
                        self.charge_move(from, to.dir, moved);
                    }
                    Some(ref back) => {
                        self.charge_move(from, to.dir, moved);
                        self.charge_move(to, from.dir, back);
                    }
                }
            }
            Event::SetAttr { ino, ref change, .. } => {
                if let Some(size) = change.size {
                    self.charge_size(ino, size);
                }
            }
            Event::SetData { ino, size, .. } => self.charge_size(ino, size),
            Event::SetXattr { .. }
            | Event::SetPolicy { .. }
            | Event::Session { .. }
            | Event::Merged { .. }
            | Event::Stored { .. } => {}
        }
    }

    /// The use of a place is not known any more.
    pub(crate) fn doubt_quotas(&mut self, dir: Ino) {
        let roots: Vec<Ino> = self.quota_roots(self.quota_root(dir)).collect();
        for root in roots {
            if let Some(quota) = self.quotas.roots.get_mut(&root) {
                quota.is_doubted = true;
                self.quotas.may_count = true;
            }
        }
    }

    fn charge_create(&mut self, is_merge: bool, create: &Create<'_>) {
        let Create { parent, name, ino, size, .. } = *create;
        let Some(root) = self.quota_root(parent) else { return };
        let is_dir = create.file_type() == FileType::Directory;
        if is_merge {
            // It was merged before and changes nothing, or its directory is gone.
            if self.inodes.knows(ino) || !self.inodes.knows(parent) {
                return;
            }
            // The store may have the name.
            if !self.dirs.is_complete(parent) && !self.is_new_to_quotas(parent) {
                self.doubt_quotas(parent);
            }
        }
        self.charge_lost(EntryName::new(parent, name), ino);
        let charged = Charged { root, by: parent };
        self.add(charged, Usage { inodes: 1, bytes: if is_dir { 0 } else { size } }, Change::More);
        if is_dir {
            self.visit_new(charged, ino);
            if is_merge {
                self.quotas.new_dirs.insert(ino);
            }
        }
    }

    /// Whether a merge made this directory, so that the store has no further names of it.
    fn is_new_to_quotas(&self, dir: Ino) -> bool {
        self.quotas.new_dirs.contains(&dir)
    }

    /// A name of an inode other than `winner` goes.
    fn charge_lost(&mut self, entry: EntryName<'_>, winner: Ino) {
        let Some(dentry) = self.dirs.dentry(entry).filter(|dentry| dentry.ino != winner) else {
            return;
        };
        let Dentry { ino, .. } = dentry;
        let Some(inode) = self.inodes.get(ino) else {
            return self.doubt_quotas(entry.dir);
        };
        let (is_last, is_dir, size) = (inode.nlink <= 1, inode.is_dir(), inode.size);
        if dentry.is_remote() {
            if is_last && let Some(charged) = self.charged(ino) {
                self.add(charged, Usage { inodes: 1, bytes: size }, Change::Less);
                self.quotas.linked.remove(&ino);
            }
            return;
        }
        if is_dir && self.dirs.get(ino).is_none_or(|dir| dir.entries > 0) {
            // A merge replaces a directory that has names.
            self.doubt_quotas(entry.dir);
        }
        self.add_entry(entry.dir, is_dir, size, Change::Less);
    }

    /// A file gets its second name: from now on it counts where it counted until now.
    fn charge_second_name(&mut self, ino: Ino, dir: Ino) {
        let Some(home) = self.inodes.home_of(ino) else { return };
        if home != Ino::LINKS
            && let Some(root) = self.quota_root(home)
        {
            self.quotas.linked.insert(ino, root);
            self.visit_new(Charged { root, by: home }, ino);
        }
        self.charge_name_of_linked(ino, dir);
    }

    /// A file with several names gets one in a directory. A count that has visited the directory,
    /// and none with another name of the file, would not find it. If it is not known where the file
    /// counts, the file counts here from now on.
    fn charge_name_of_linked(&mut self, ino: Ino, dir: Ino) {
        let Some(root) = self.quota_root(dir) else { return };
        let is_new = !self.quotas.linked.contains_key(&ino);
        self.quotas.linked.entry(ino).or_insert(root);
        let bytes = self.inodes.get(ino).map_or(0, |inode| inode.size);
        let file = Usage { inodes: 1, bytes };
        let roots: Vec<Ino> = self.quota_roots(Some(root)).collect();
        for root in roots {
            let Some(quota) = self.quotas.roots.get_mut(&root) else { continue };
            let Some(count) = &mut quota.count else {
                quota.used = quota.used.map(|used| if is_new { used.plus(file) } else { used });
                continue;
            };
            if count.visited.contains(&dir) && count.visited.insert(ino) {
                count.used = count.used.plus(file);
            }
        }
    }

    /// An inode goes from one name to another.
    fn charge_move(&mut self, from: EntryName<'_>, to: Ino, moved: &InodeSnapshot<'_>) {
        let ino = moved.attr.ino;
        let found = self.dirs.dentry(from).filter(|dentry| dentry.ino == ino);
        let known = self.inodes.get(ino).map(|inode| (inode.is_dir(), inode.size));
        let (is_dir, size) = known.unwrap_or((moved.attr.is_dir(), moved.attr.size));
        match found {
            // An inode with several names counts wherever they are.
            Some(dentry) if dentry.is_remote() => return self.charge_name_of_linked(ino, to),
            Some(_) => self.add_entry(from.dir, is_dir, size, Change::Less),
            // Another client moved it, and it stays there.
            None if known.is_some() => return,
            // It comes from another rank.
            None => {}
        }
        if !is_dir {
            return if to != Ino::LINKS {
                self.add_entry(to, false, size, Change::More)
            };
        }
        let (before, after) = (self.quota_root(from.dir), self.quota_root(to));
        if to == Ino::TRASH && from.dir != Ino::TRASH {
            // The inodes below count until their room is given back.
            self.quotas.trashed.extend(before.map(|root| (ino, root)));
            return self.visit_later(before, ino);
        }
        let trashed = self.quotas.trashed.get(&ino).copied();
        if from.dir == Ino::TRASH && to != Ino::TRASH {
            self.quotas.trashed.remove(&ino);
        }
        self.add_entry(to, true, 0, Change::More);
        self.visit_later(after, ino);
        if trashed.or(before) != after && to != Ino::TRASH {
            [from.dir, to].into_iter().for_each(|dir| self.doubt_quotas(dir));
            trashed.into_iter().for_each(|root| self.doubt_quotas(root));
        }
    }

    fn charge_size(&mut self, ino: Ino, size: u64) {
        let Some(inode) = self.inodes.get(ino).filter(|inode| !inode.is_dir()) else { return };
        let before = inode.size;
        let Some(charged) = self.charged(ino) else { return };
        let grown = Usage { inodes: 0, bytes: size.saturating_sub(before) };
        let shrunk = Usage { inodes: 0, bytes: before.saturating_sub(size) };
        self.add(charged, grown, Change::More);
        self.add(charged, shrunk, Change::Less);
    }

    fn add_entry(&mut self, dir: Ino, is_dir: bool, size: u64, change: Change) {
        if let Some(root) = self.quota_root(dir) {
            let used = Usage { inodes: 1, bytes: if is_dir { 0 } else { size } };
            self.add(Charged { root, by: dir }, used, change);
        }
    }

    fn add(&mut self, charged: Charged, used: Usage, change: Change) {
        let roots: Vec<Ino> = self.quota_roots(Some(charged.root)).collect();
        for root in roots {
            let Some(quota) = self.quotas.roots.get_mut(&root) else { continue };
            if let Some(before) = &mut quota.used {
                *before = change.apply(*before, used);
            }
            let visited = |count: &&mut super::Count| count.visited.contains(&charged.by);
            if let Some(count) = quota.count.as_mut().filter(visited) {
                count.used = change.apply(count.used, used);
            }
        }
    }

    /// An inode that a count need not visit: a new directory, or a file with a second name, where
    /// the count has visited the directory that lists it.
    fn visit_new(&mut self, charged: Charged, ino: Ino) {
        let roots: Vec<Ino> = self.quota_roots(Some(charged.root)).collect();
        for root in roots {
            let count = self.quotas.roots.get_mut(&root).and_then(|quota| quota.count.as_mut());
            if let Some(count) = count.filter(|count| count.visited.contains(&charged.by)) {
                count.visited.insert(ino);
            }
        }
    }

    /// A directory moved: a count that has not visited it may not find it any more.
    fn visit_later(&mut self, root: Option<Ino>, dir: Ino) {
        let roots: Vec<Ino> = self.quota_roots(root).collect();
        for root in roots {
            let count = self.quotas.roots.get_mut(&root).and_then(|quota| quota.count.as_mut());
            if let Some(count) = count {
                count.queue.push(dir);
            }
        }
    }
}

/// Whether something comes or goes.
#[derive(Clone, Copy, Debug)]
enum Change {
    More,
    Less,
}

impl Change {
    fn apply(self, used: Usage, change: Usage) -> Usage {
        match self {
            Self::More => used.plus(change),
            Self::Less => used.minus(change),
        }
    }
}
