//! The inodes in memory, each with the rare data that it may have.
//!
//! Invariant: rare data belongs to an inode in memory whose flags have [`HAS_EXTRA`].

use std::sync::Arc;

use journal::InodeSnapshot;
use types::acl::{self, AccessList};
use types::{Attr, Ino, Map, Timestamp};

use crate::apply::When;
use crate::inode::{HAS_EXTRA, HashedName, Inode, InodeTable};
use crate::{Extra, Mode};

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Inodes {
    table: InodeTable,
    extras: Map<Ino, Arc<Extra>>,
}

impl Inodes {
    #[inline]
    pub(crate) fn get(&self, ino: Ino) -> Option<&Inode> {
        self.table.get(ino)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, ino: Ino) -> Option<&mut Inode> {
        self.table.get_mut(ino)
    }

    #[inline]
    pub(crate) fn knows(&self, ino: Ino) -> bool {
        self.table.get(ino).is_some()
    }

    #[inline]
    pub(crate) fn is_dir(&self, ino: Ino) -> bool {
        self.table.get(ino).is_some_and(Inode::is_dir)
    }

    /// The directory that stores an inode.
    #[inline]
    pub(crate) fn home_of(&self, ino: Ino) -> Option<Ino> {
        self.table.get(ino).map(|inode| inode.home)
    }

    pub(crate) fn len(&self) -> u64 {
        self.table.len()
    }

    /// Memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.table.memory() + self.extras.values().map(|extra| extra.memory()).sum::<usize>()
    }

    /// The rare data of an inode, if it has some.
    pub(crate) fn extra(&self, ino: Ino, inode: &Inode) -> Option<&Arc<Extra>> {
        if inode.flags & HAS_EXTRA == 0 {
            return None;
        }
        self.extras.get(&ino)
    }

    /// The rare data of a number, whether its inode is in memory or not.
    pub(crate) fn extra_of(&self, ino: Ino) -> Option<&Arc<Extra>> {
        self.extras.get(&ino)
    }

    pub(crate) fn extra_bytes(&self, ino: Ino) -> usize {
        self.extras.get(&ino).map_or(0, |extra| extra.data.len() + extra.encoded().len())
    }

    /// An inode as an event carries it, with this ctime.
    pub(crate) fn snapshot(
        &self,
        ino: Ino,
        inode: &Inode,
        time: Timestamp,
    ) -> (InodeSnapshot<'static>, Option<Arc<Extra>>) {
        let attr = Attr { ctime: time, ..inode.attr(ino) };
        (InodeSnapshot { attr, data: &[], extra: &[] }, self.extra(ino, inode).cloned())
    }

    /// Lends an inode as it is.
    pub(crate) fn with_snapshot(&self, ino: Ino, then: impl FnOnce(InodeSnapshot<'_>)) {
        let Some(inode) = self.get(ino) else { return };
        let extra = self.extra(ino, inode);
        let data = extra.map_or(&[][..], |extra| &extra.data);
        let encoded = extra.map_or(&[][..], |extra| Extra::encoded(extra));
        then(InodeSnapshot { attr: inode.attr(ino), data, extra: encoded });
    }

    /// Stores an inode without rare data of its own: data of its number stays.
    #[inline]
    pub(crate) fn insert(&mut self, ino: Ino, inode: Inode) {
        self.table.insert(ino, inode);
    }

    /// Stores an inode together with its rare data, which it must have.
    #[inline(never)]
    pub(crate) fn insert_with(&mut self, ino: Ino, mut inode: Inode, extra: Arc<Extra>) {
        debug_assert!(!extra.is_empty(), "{ino}: an inode without rare data has no entry");
        inode.flags |= HAS_EXTRA;
        self.table.insert(ino, inode);
        self.extras.insert(ino, extra);
    }

    /// Stores an inode together with its rare data.
    pub(crate) fn put(&mut self, ino: Ino, mut inode: Inode, extra: Extra) {
        if extra.is_empty() {
            self.extras.remove(&ino);
        } else {
            inode.flags |= HAS_EXTRA;
            self.extras.insert(ino, Arc::new(extra));
        }
        self.table.insert(ino, inode);
    }

    /// Stores the inode of an event, at home under a name, with this number of names.
    pub(crate) fn put_snapshot(
        &mut self,
        when: When,
        home: HashedName,
        snapshot: &InodeSnapshot<'_>,
        nlink: u32,
    ) {
        let ino = snapshot.attr.ino;
        debug_assert!(ino.0 != 0, "an inode has a number");
        let mut inode = Inode { home: home.dir, home_hash: home.hash, ..Inode::default() };
        inode.stamp(when);
        inode.set_attr(&snapshot.attr);
        inode.nlink = nlink;
        self.put(ino, inode, Extra::from_parts(snapshot.data, snapshot.extra));
    }

    /// An inode that is in memory changes with an event that carries it. In a merge it keeps its
    /// attributes, because the journal knows less about it than the namespace does.
    pub(crate) fn refresh(&mut self, when: When, snapshot: &InodeSnapshot<'_>) {
        let ino = snapshot.attr.ino;
        let Some(known) = self.get_mut(ino) else { return };
        if when.is_in(known.version) {
            return;
        }
        if when.mode != Mode::Replay {
            // A merge that is repeated must not undo the time of a later change.
            let is_later = when.merges() && known.ctime > when.time;
            known.ctime = if is_later { known.ctime } else { when.time };
            known.stamp(when);
        } else {
            let home = known.home_name();
            self.put_snapshot(when, home, snapshot, snapshot.attr.nlink);
        }
    }

    /// An inode with several names has one more or less. In a replay the events say how many.
    pub(crate) fn count_name(&mut self, when: When, ino: Ino, change: i32) {
        if when.mode != Mode::Replay
            && let Some(inode) = self.get_mut(ino)
            && !when.is_in(inode.version)
        {
            inode.nlink = inode.nlink.saturating_add_signed(change);
        }
    }

    /// Changes an inode and its rare data, unless it has the change already. Returns whether it
    /// changed, or `None` for an inode that is not in memory.
    pub(crate) fn change(
        &mut self,
        when: When,
        ino: Ino,
        change: impl FnOnce(&mut Inode, &mut Extra),
    ) -> Option<bool> {
        let inode = self.table.get_mut(ino)?;
        if when.is_in(inode.version) {
            return Some(false);
        }
        let mut extra = if inode.flags & HAS_EXTRA == 0 {
            Arc::default()
        } else {
            self.extras.remove(&ino).unwrap_or_default()
        };
        change(inode, Arc::make_mut(&mut extra));
        inode.stamp(when);
        if extra.is_empty() {
            inode.flags &= !HAS_EXTRA;
        } else {
            inode.flags |= HAS_EXTRA;
            self.extras.insert(ino, extra);
        }
        Some(true)
    }

    /// Adds content and extended attributes to those that an inode has. Lists are in the form of
    /// Linux; bytes that are no list are left out.
    pub(crate) fn fill(&mut self, ino: Ino, data: &[u8], xattrs: &[(Vec<u8>, Vec<u8>)]) {
        let Some(inode) = self.table.get_mut(ino) else { return };
        let mut extra = self.extras.remove(&ino).unwrap_or_default();
        let filled = Arc::make_mut(&mut extra);
        if !data.is_empty() {
            filled.data = data.to_vec();
        }
        for (name, value) in xattrs {
            if !acl::is_list(name) {
                filled.set_xattr(name, Some(value));
            } else if let Ok(list) = AccessList::from_linux(value) {
                filled.set_xattr(name, Some(&list.encode()));
            }
        }
        if !extra.is_empty() {
            inode.flags |= HAS_EXTRA;
            self.extras.insert(ino, extra);
        }
    }

    /// Forgets an inode and its rare data, and returns them.
    pub(crate) fn remove(&mut self, ino: Ino) -> (Option<Inode>, Option<Arc<Extra>>) {
        (self.table.remove(ino), self.extras.remove(&ino))
    }

    /// Checks the invariants of the table and of the rare data.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(&self) {
        self.table.validate();
        for (ino, inode) in self.table.iter() {
            let known = self.extras.contains_key(&ino);
            let says = inode.flags & HAS_EXTRA != 0;
            assert!(says || !known, "{ino}: the inode says that it has rare data");
        }
        let lost = self.extras.keys().find(|ino| !self.knows(**ino));
        assert!(lost.is_none(), "{lost:?} has rare data, and is not in memory");
    }
}
