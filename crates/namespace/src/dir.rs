//! A directory in memory: pages of dentries, and what is known about the metadata store's copy.

use metastore::DirTouch;
use types::{FileType, Ino, Seq, name_hash};

use crate::page::{Dentry, PAGE_DENTRIES_MAX, Page, Target};
use crate::partial::StoredCounts;

/// Most leading hash bits by which pages are told apart.
const DEPTH_MAX: u8 = 24;
/// Fewer names than this are not worth announcing.
const ANNOUNCED_MIN: usize = 1024;

/// How exactly the number of names of an incomplete directory is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Nothing yet.
    No,
    /// The store was asked, and could not say: it has to be read.
    InVain,
    /// About how many: it is large, and names were given without looking whether they were there.
    About,
    /// Exactly.
    Exactly,
}

/// A directory. It may be *incomplete*: then further names may still be in the metadata store, and
/// the names here lie on top of it, tombstones included.
#[derive(Debug)]
pub(crate) struct Dir {
    pages: Vec<Page>,
    /// Leading `index_bits` of a hash to its page.
    index: Vec<u32>,
    index_bits: u8,
    /// Whether every name of the directory is here.
    pub(crate) complete: bool,
    /// Whether the store may hold a copy: removing a name then needs a tombstone.
    pub(crate) stored: bool,
    /// Names that exist, as far as they are here.
    pub(crate) entries: u64,
    /// How many of them are directories.
    pub(crate) subdirs: u64,
    /// How exactly the other names are known, their number, and that of directories among them.
    pub(crate) counted: Counted,
    pub(crate) hidden: (u64, u64),
    /// Names that are here because the store does not have them.
    pub(crate) absent: u64,
    /// Position of the oldest journal event whose effect the store does not have.
    pub(crate) dirty_since: Option<Seq>,
    /// Whether it changed since its last checkpoint in ways that no journal holds.
    pub(crate) unjournalled: bool,
    /// Whether such changes are being stored.
    pub(crate) overtaking: bool,
    /// Position of the newest journalled event that may have changed it.
    pub(crate) journalled: Seq,
    /// While a checkpoint of this directory is under way: since when it was dirty before.
    pub(crate) flushing: Option<Seq>,
    /// The metadata store's copy is damaged: it is not written, nor forgotten.
    pub(crate) withheld: bool,
    /// A change of mtime that arrived before the directory's own inode was in memory.
    pub(crate) touched: Option<DirTouch>,
    /// Its hits since the last call of `take_hits`, and whether it is noted for the next one.
    pub(crate) hits: crate::Hits,
    pub(crate) noted: bool,
    /// Effective policy and the generation of policies in which it was worked out.
    pub(crate) policy: (u64, Ino),
}

impl Dir {
    pub(crate) fn new(complete: bool) -> Self {
        Self {
            pages: Vec::new(),
            index: Vec::new(),
            index_bits: 0,
            complete,
            stored: !complete,
            entries: 0,
            subdirs: 0,
            counted: Counted::No,
            hidden: (0, 0),
            absent: 0,
            dirty_since: None,
            unjournalled: false,
            overtaking: false,
            journalled: Seq(0),
            flushing: None,
            withheld: false,
            touched: None,
            hits: crate::Hits::default(),
            noted: false,
            policy: (0, Ino(0)),
        }
    }

    #[inline]
    fn page_of(&self, hash: u32) -> Option<usize> {
        let at = u64::from(hash) >> (32 - u32::from(self.index_bits));
        self.index.get(at as usize).map(|page| *page as usize)
    }

    /// The page that has or will have the names of this hash.
    #[inline]
    pub(crate) fn page(&self, hash: u32) -> Option<&Page> {
        self.page_of(hash).and_then(|page| self.pages.get(page))
    }

    /// The dentry of a name, tombstones included.
    #[inline]
    pub(crate) fn find_any(&self, hash: u32, name: &[u8]) -> Option<Dentry> {
        self.pages[self.page_of(hash)?].find(hash, name)
    }

    /// The dentry of a name that exists.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Option<Dentry> {
        self.find_any(name_hash(name), name).filter(|dentry| !dentry.is_tombstone())
    }

    /// Points a name to a target. Returns the dentry that existed under it.
    #[inline]
    pub(crate) fn set(&mut self, hash: u32, name: &[u8], target: Target) -> Option<Dentry> {
        let page = self.page_for_insert(hash);
        let before = self.pages[page].set(hash, name, Some(target), true);
        self.note_changed(before);
        let before = before.filter(|dentry| !dentry.is_tombstone());
        let is_dir = |file_type| u64::from(file_type == FileType::Directory);
        if let Some(before) = before {
            debug_assert!(self.entries > 0, "a name that existed was counted");
            self.subdirs -= is_dir(before.file_type());
        } else {
            self.entries += 1;
        }
        self.subdirs += is_dir(target.file_type);
        before
    }

    /// Takes a name away. Returns the dentry that existed under it.
    pub(crate) fn unset(&mut self, hash: u32, name: &[u8]) -> Option<Dentry> {
        let before = if self.stored {
            let page = self.page_for_insert(hash);
            let before = self.pages[page].set(hash, name, None, true);
            self.note_changed(before);
            before
        } else {
            let page = self.page_of(hash)?;
            let before = self.pages[page].remove(hash, name);
            self.absent -= u64::from(before.is_some_and(Dentry::is_absent));
            before
        };
        let before = before.filter(|dentry| !dentry.is_tombstone())?;
        debug_assert!(self.entries > 0, "a name that existed was counted");
        self.entries -= 1;
        self.subdirs -= u64::from(before.file_type() == FileType::Directory);
        Some(before)
    }

    /// A name was given or taken. If it was not here, whether the store has it is not known.
    #[inline]
    fn note_changed(&mut self, before: Option<Dentry>) {
        match before {
            None if self.counted == Counted::Exactly => self.counted = Counted::No,
            Some(before) if before.is_absent() => self.absent -= 1,
            None | Some(_) => {}
        }
    }

    /// Notes that the store does not have a name, unless something newer is here. Returns whether
    /// it was noted. Only [`crate::dir_table::DirTable::add_absent`] calls this, and counts.
    pub(crate) fn add_absent(&mut self, name: &[u8]) -> bool {
        let hash = name_hash(name);
        let is_new = self.find_any(hash, name).is_none();
        if is_new {
            let page = self.page_for_insert(hash);
            self.pages[page].set(hash, name, None, false);
            self.absent += 1;
        }
        is_new
    }

    /// How many names it has and how many of them are directories, with those that are not here;
    /// `None` if that is not known.
    pub(crate) fn count(&self) -> Option<(u64, u64)> {
        match self.counted {
            _ if self.complete => Some((self.entries, self.subdirs)),
            Counted::No | Counted::InVain => None,
            Counted::About | Counted::Exactly => {
                Some((self.entries + self.hidden.0, self.subdirs + self.hidden.1))
            }
        }
    }

    /// Adopts the store's number of names: exactly, if memory has nothing that the store lacks,
    /// else about, where an estimate will do.
    pub(crate) fn note_counts(&mut self, counts: StoredCounts) {
        let StoredCounts { entries, subdirs, exact, may_estimate } = counts;
        if self.complete || self.counted != Counted::No {
            return;
        }
        let is_plain = self.dirty() == 0;
        self.counted = match (exact && is_plain, may_estimate) {
            (true, _) => Counted::Exactly,
            (false, true) => Counted::About,
            (false, false) => Counted::InVain,
        };
        let (mut here, mut dirs_here) = (0, 0);
        for (_, dentry) in self.list(None).filter(|(_, dentry)| !dentry.is_dirty()) {
            here += 1;
            dirs_here += u64::from(dentry.file_type() == FileType::Directory);
        }
        self.hidden = (entries.saturating_sub(here), subdirs.saturating_sub(dirs_here));
    }

    /// Forgets the names that the store has, except those that `keeps` wants; `forget` is called
    /// for each of them. The store must have everything that is not dirty.
    pub(crate) fn thin(
        &mut self,
        keeps: impl Fn(&Dentry) -> bool,
        mut forget: impl FnMut(&Dentry),
    ) {
        if self.complete {
            (self.counted, self.hidden) = (Counted::Exactly, (0, 0));
        }
        (self.complete, self.stored, self.absent) = (false, true, 0);
        for page in &mut self.pages {
            page.thin(&keeps, |dentry| {
                if dentry.is_tombstone() {
                    return;
                }
                let is_dir = u64::from(dentry.file_type() == FileType::Directory);
                self.entries -= 1;
                self.subdirs -= is_dir;
                self.hidden = (self.hidden.0 + 1, self.hidden.1 + is_dir);
                forget(dentry);
            });
        }
    }

    /// Adds a name from the store unless something newer is here. Returns whether it was added.
    pub(crate) fn add_stored(&mut self, name: &[u8], target: Target) -> bool {
        let hash = name_hash(name);
        if self.find_any(hash, name).is_some() {
            return false;
        }
        let page = self.page_for_insert(hash);
        self.pages[page].set(hash, name, Some(target), false);
        let is_dir = u64::from(target.file_type == FileType::Directory);
        self.entries += 1;
        self.subdirs += is_dir;
        self.hidden = (self.hidden.0.saturating_sub(1), self.hidden.1.saturating_sub(is_dir));
        true
    }

    /// The name under which an inode is found, given the hash of that name.
    pub(crate) fn name_by_hash(&self, hash: u32, ino: Ino) -> Option<Vec<u8>> {
        let page = &self.pages[self.page_of(hash)?];
        page.same_hash(hash).find(|(_, dentry)| dentry.ino == ino).map(|(name, _)| name.to_vec())
    }

    /// Position of the oldest event whose effect is not sure to be in the store.
    pub(crate) fn unstored_since(&self) -> Option<Seq> {
        self.dirty_since.into_iter().chain(self.flushing).min()
    }

    pub(crate) fn mark_dirty(&mut self, hash: u32, ino: Ino) -> bool {
        self.page_of(hash).is_some_and(|page| self.pages[page].mark_dirty(hash, ino))
    }

    /// Announces so many new names of so many bytes in all: an empty directory gets the pages that
    /// they will need, so that none of them has to split on the way.
    pub(crate) fn expect(&mut self, names: usize, bytes: usize) {
        if !self.pages.is_empty() || names < ANNOUNCED_MIN {
            return;
        }
        // Hashes do not fall evenly: no page is planned to be quite full.
        let pages = names.div_ceil(PAGE_DENTRIES_MAX / 8 * 7).next_power_of_two();
        let depth = (pages.trailing_zeros() as u8).min(DEPTH_MAX);
        let share = |all: usize| (all >> depth) + (all >> (depth + 4));
        let page = |number: u32| {
            let prefix = if depth == 0 { 0 } else { number << (32 - u32::from(depth)) };
            Page::awaiting(depth, prefix, share(names), share(bytes))
        };
        self.pages = (0..1 << depth).map(page).collect();
        self.index = (0..1 << depth).collect();
        self.index_bits = depth;
    }

    #[inline]
    fn page_for_insert(&mut self, hash: u32) -> usize {
        loop {
            let Some(page) = self.page_of(hash) else {
                self.pages.push(Page::new(0, 0, 2));
                self.index.push(0);
                continue;
            };
            if !self.pages[page].is_full() || self.pages[page].depth() >= DEPTH_MAX {
                return page;
            }
            self.split(page);
        }
    }

    #[cold]
    fn split(&mut self, page: usize) {
        let high = self.pages[page].split();
        assert!(high.depth() <= DEPTH_MAX, "pages are told apart by so many bits");
        if high.depth() > self.index_bits {
            self.index = self.index.iter().flat_map(|page| [*page, *page]).collect();
            self.index_bits += 1;
        }
        assert!(high.depth() <= self.index_bits, "the index tells the halves of a page apart");
        let number = self.pages.len() as u32;
        let shift = 32 - u32::from(self.index_bits);
        let first = (u64::from(high.prefix) >> shift) as usize;
        let count = 1usize << (self.index_bits - high.depth());
        self.index[first..first + count].fill(number);
        self.pages.push(high);
    }

    /// Pages in hash order.
    fn pages_from(&self, hash: u32) -> impl Iterator<Item = &Page> {
        let start = (u64::from(hash) >> (32 - u32::from(self.index_bits))) as usize;
        let mut last = None;
        self.index.get(start..).unwrap_or_default().iter().filter_map(move |page| {
            if last == Some(*page) {
                return None;
            }
            last = Some(*page);
            Some(&self.pages[*page as usize])
        })
    }

    /// Names that exist, in the order of the directory, after a name or from the start.
    pub(crate) fn list<'a>(
        &'a self,
        after: Option<&'a [u8]>,
    ) -> impl Iterator<Item = (&'a [u8], Dentry)> {
        let mut cursor = after.map(|name| (name_hash(name), name));
        self.pages_from(cursor.map_or(0, |(hash, _)| hash))
            .flat_map(move |page| page.after(cursor.take()))
            .filter(|(_, _, dentry)| !dentry.is_tombstone())
            .map(|(_, name, dentry)| (name, dentry))
    }

    /// Forgets that there are no names, and tombstones: all that was captured.
    pub(crate) fn leave_to_store(&mut self) {
        (self.pages, self.index, self.index_bits) = (Vec::new(), Vec::new(), 0);
        (self.entries, self.subdirs) = (0, 0);
        (self.complete, self.stored) = (false, true);
        (self.counted, self.hidden, self.absent) = (Counted::No, (0, 0), 0);
    }

    /// Number of pages.
    pub(crate) fn page_count(&self) -> usize {
        self.pages.len()
    }

    pub(crate) fn page_mut(&mut self, page: usize) -> Option<&mut Page> {
        self.pages.get_mut(page)
    }

    /// Names not in the store yet, tombstones included.
    pub(crate) fn dirty(&self) -> u64 {
        self.pages.iter().map(|page| u64::from(page.dirty)).sum()
    }

    /// Names that are as the store has them, those among them that it does not have.
    pub(crate) fn clean(&self) -> u64 {
        self.pages.iter().map(|page| u64::from(page.clean_count())).sum()
    }

    /// Memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>()
            + self.index.capacity() * 4
            + self.pages.iter().map(Page::memory).sum::<usize>()
    }
}

mod validate;
