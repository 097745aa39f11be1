//! The directories in memory: their names, and which of them the metadata store lacks.
//!
//! Invariant: a dirty directory is in the queue of those, unless it is withheld.

use metastore::DirTouch;
use types::{EntryName, FileType, Ino, Map, Seq, Set, name_hash};

use crate::dir::{Counted, Dir};
use crate::dirty::Dirty;
use crate::inode::HashedName;
use crate::page::{Dentry, Target};

/// The entry that a merged file displaces when it takes a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Displaces {
    /// Nothing, or a file with one name.
    AtMostFile,
    /// A directory, or one name of several.
    More,
    /// The metadata store must be asked.
    Unknown,
}

/// See the module documentation.
#[derive(Debug)]
pub struct DirTable {
    pub(crate) all: Map<Ino, Box<Dir>>,
    pub(crate) dirty: Dirty,
    /// Directories that are split: all their names are in hidden directories.
    pub(crate) split: Set<Ino>,
    /// At least as many names as are in memory because they do not exist. A change that replaces
    /// such a name is not counted: it would cost each create a look, and
    /// [`DirTable::count_absent`] counts again when the number is large.
    absent_at_most: u64,
}

impl DirTable {
    pub(crate) fn new() -> Self {
        Self { all: Map::default(), dirty: Dirty::new(), split: Set::default(), absent_at_most: 0 }
    }

    #[inline]
    pub(crate) fn get(&self, ino: Ino) -> Option<&Dir> {
        self.all.get(&ino).map(|dir| &**dir)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, ino: Ino) -> Option<&mut Dir> {
        self.all.get_mut(&ino).map(|dir| &mut **dir)
    }

    #[inline]
    pub(crate) fn contains(&self, ino: Ino) -> bool {
        self.all.contains_key(&ino)
    }

    pub(crate) fn insert(&mut self, ino: Ino, dir: Box<Dir>) {
        self.absent_at_most += dir.absent;
        if let Some(replaced) = self.all.insert(ino, dir) {
            self.absent_at_most -= replaced.absent;
        }
    }

    pub(crate) fn remove(&mut self, ino: Ino) -> Option<Box<Dir>> {
        let removed = self.all.remove(&ino)?;
        self.absent_at_most -= removed.absent;
        Some(removed)
    }

    /// Notes that the store does not have a name, unless memory has something newer.
    pub(crate) fn add_absent(&mut self, entry: EntryName<'_>) {
        if self.make(entry.dir).add_absent(entry.name) {
            self.absent_at_most += 1;
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Ino, &Dir)> {
        self.all.iter().map(|(ino, dir)| (*ino, &**dir))
    }

    /// The directory, created as one of which nothing is known if it is not in memory.
    #[inline]
    pub(crate) fn make(&mut self, ino: Ino) -> &mut Dir {
        self.make_as(ino, false)
    }

    /// The directory, created if it is not in memory: without names, or as one of which nothing is
    /// known.
    #[inline]
    pub(crate) fn make_as(&mut self, ino: Ino, complete: bool) -> &mut Dir {
        self.all.entry(ino).or_insert_with(|| Box::new(Dir::new(complete)))
    }

    /// Points a name to a target and queues its directory, with one look-up.
    #[inline]
    pub(crate) fn set_noted(
        &mut self,
        seq: Seq,
        place: HashedName,
        name: &[u8],
        target: Target,
    ) -> Option<Dentry> {
        let HashedName { dir: ino, hash } = place;
        let dir = self.all.entry(ino).or_insert_with(|| Box::new(Dir::new(false)));
        let before = dir.set(hash, name, target);
        self.dirty.note(dir, seq, ino);
        before
    }

    /// Queues a directory for the next checkpoint.
    #[inline]
    pub(crate) fn note_dirty(&mut self, seq: Seq, ino: Ino) {
        let dir = self.all.entry(ino).or_insert_with(|| Box::new(Dir::new(false)));
        self.dirty.note(dir, seq, ino);
    }

    /// The inode under a name must be stored again with its dentry.
    pub(crate) fn mark(&mut self, seq: Seq, home: HashedName, ino: Ino) {
        if let Some(dir) = self.all.get_mut(&home.dir) {
            dir.mark_dirty(home.hash, ino);
            self.dirty.note(dir, seq, home.dir);
        }
    }

    /// Names that are in memory because they do not exist: at least as many as there are.
    #[must_use]
    pub fn absent_at_most(&self) -> u64 {
        self.absent_at_most
    }

    /// Counts the names that are in memory because they do not exist. The time grows with the
    /// number of directories.
    pub(crate) fn count_absent(&mut self) {
        self.absent_at_most = self.all.values().map(|dir| dir.absent).sum();
    }

    /// Number of directories in memory.
    #[must_use]
    pub fn directories(&self) -> usize {
        self.all.len()
    }

    /// Whether every name of a directory is in memory.
    #[must_use]
    pub fn is_complete(&self, dir: Ino) -> bool {
        self.all.get(&dir).is_some_and(|dir| dir.complete)
    }

    /// The dentry of a name that is in memory.
    pub(crate) fn dentry(&self, entry: EntryName<'_>) -> Option<Dentry> {
        self.all.get(&entry.dir)?.find(entry.name)
    }

    /// Announces so many new names, of so many bytes in all, in a directory: where they are the
    /// first, memory for them is taken once and nothing moves while they come.
    pub(crate) fn expect(&mut self, dir: Ino, names: usize, bytes: usize) {
        if let Some(dir) = self.all.get_mut(&dir) {
            dir.expect(names, bytes);
        }
    }

    /// Whether changes from now on are in the journal. After a crash those that are not are lost
    /// unless they were stored, and replay must not undo the stored ones.
    pub(crate) fn set_journalled(&mut self, journalled: bool) {
        self.dirty.journalled = journalled;
    }

    /// Whether a name is in memory, or that it does not exist is.
    #[must_use]
    pub fn knows_name(&self, dir: Ino, name: &[u8]) -> bool {
        let hash = name_hash(name);
        self.all.get(&dir).is_some_and(|dir| dir.complete || dir.find_any(hash, name).is_some())
    }

    /// Whether the store may know the number of names of a directory and was not asked for it.
    #[must_use]
    pub fn may_be_counted(&self, dir: Ino) -> bool {
        self.all.get(&dir).is_none_or(|dir| !dir.complete && dir.counted == Counted::No)
    }

    /// The directory that has been dirty longest, and since which event.
    pub(crate) fn dirtiest(&mut self) -> Option<(Seq, Ino)> {
        let dirs = &self.all;
        let is_due = |dir: &Dir, seq| dir.dirty_since == Some(seq) && !dir.withheld;
        self.dirty.first(|seq, ino| dirs.get(&ino).is_some_and(|dir| is_due(dir, seq)))
    }

    /// How many directories wait for a checkpoint, at most.
    #[must_use]
    pub fn dirty_directories(&self) -> usize {
        self.dirty.len()
    }

    /// When the directory changed last, and by which event, if its inode is not here to tell.
    /// Zeros for no such change.
    #[must_use]
    pub fn unstored_change(&self, ino: Ino) -> DirTouch {
        self.all.get(&ino).and_then(|dir| dir.touched).unwrap_or_default()
    }

    /// Whether a directory has changes that the store may not have and that are in no journal.
    #[must_use]
    pub fn is_any_unjournalled(&self) -> bool {
        self.all.values().any(|dir| dir.unjournalled || dir.overtaking)
    }

    /// Whether the directory has changes that the store does not have, and whether some of them are
    /// in no journal.
    #[must_use]
    pub fn unstored(&self, ino: Ino) -> (bool, bool) {
        let dir = self.all.get(&ino);
        let unstored = |dir: &Dir| dir.dirty_since.is_some() || dir.flushing.is_some();
        dir.map_or((false, false), |dir| (unstored(dir), dir.unjournalled || dir.overtaking))
    }

    /// Whether a checkpoint of the directory is under way.
    #[must_use]
    pub fn is_flushing(&self, ino: Ino) -> bool {
        self.all.get(&ino).is_some_and(|dir| dir.flushing.is_some())
    }

    /// Number of entries and sub-directories, and whether the store will have exactly these when
    /// the captured rows are stored.
    #[must_use]
    pub fn counts(&self, ino: Ino) -> (u64, u64, bool) {
        self.all.get(&ino).map_or((0, 0, false), |dir| {
            let (entries, subdirs) = dir.count().unwrap_or((dir.entries, dir.subdirs));
            let known = dir.complete || dir.counted == Counted::Exactly;
            // A change after the capture began is counted, and not written.
            (entries, subdirs, known && dir.dirty_since.is_none())
        })
    }

    /// Names of a directory that are not in the store yet.
    #[must_use]
    pub fn dirty_entries(&self, ino: Ino) -> u64 {
        self.all.get(&ino).map_or(0, |dir| dir.dirty())
    }

    /// The directories in memory, sorted.
    #[must_use]
    pub fn directory_list(&self) -> Vec<Ino> {
        let mut all: Vec<_> = self.all.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// The directories that the metadata store does not have as they are in memory, sorted.
    #[must_use]
    pub fn unstored_directories(&self) -> Vec<Ino> {
        let unstored = |dir: &Dir| dir.dirty_since.is_some() || dir.flushing.is_some();
        let dirs = self.all.iter().filter(|(_, dir)| unstored(dir));
        let mut all: Vec<_> = dirs.map(|(ino, _)| *ino).collect();
        all.sort_unstable();
        all
    }

    /// Events behind this position are not about a directory that is in memory.
    #[must_use]
    pub fn journalled_up_to(&self, ino: Ino) -> Seq {
        self.all.get(&ino).map_or(Seq(0), |dir| dir.journalled)
    }

    /// The event position since which a directory is dirty, if it is.
    #[must_use]
    pub fn dirty_since(&self, ino: Ino) -> Option<Seq> {
        self.all.get(&ino).and_then(|dir| dir.dirty_since)
    }

    /// Whether an inode has several names, or may have.
    #[must_use]
    pub fn has_links(&self) -> bool {
        self.all.get(&Ino::LINKS).is_none_or(|links| !links.complete || links.entries > 0)
    }

    /// [`Ino::LINKS`], if its objects in the store are damaged. No inode may be put there.
    pub(crate) fn withheld_links(&self) -> Option<Ino> {
        let links = self.all.get(&Ino::LINKS);
        links.is_some_and(|links| links.withheld && !links.complete).then_some(Ino::LINKS)
    }

    /// The entry that a merged file displaces when it takes a name. `is_new` as for
    /// [`Needs::in_merge`](crate::Needs::in_merge).
    #[must_use]
    pub fn displaced_by_file(
        &self,
        entry: EntryName<'_>,
        is_new: impl Fn(Ino) -> bool,
    ) -> Displaces {
        let EntryName { dir, name } = entry;
        let known = self.all.get(&dir);
        match known.and_then(|dir| dir.find_any(name_hash(name), name)) {
            Some(dentry) if dentry.is_tombstone() => Displaces::AtMostFile,
            Some(dentry) if dentry.is_remote() || dentry.file_type() == FileType::Directory => {
                Displaces::More
            }
            Some(_) => Displaces::AtMostFile,
            None if is_new(dir) || known.is_some_and(|dir| dir.complete) => Displaces::AtMostFile,
            None => Displaces::Unknown,
        }
    }

    /// Whether a merged file displaces at most a file with one name, whatever its name in this
    /// directory. May be false where that holds.
    #[must_use]
    pub fn has_plain_files_only(&self, dir: Ino, is_new: impl Fn(Ino) -> bool) -> bool {
        let known = self.all.get(&dir);
        let is_whole = is_new(dir) || known.is_some_and(|dir| dir.complete);
        is_whole && known.is_none_or(|dir| dir.subdirs == 0) && !self.has_links()
    }

    /// The directories of a subtree that are in memory, its root first.
    #[must_use]
    pub fn below(&self, root: Ino) -> Vec<Ino> {
        let mut all = Vec::new();
        let mut next = vec![root];
        while let Some(at) = next.pop() {
            let Some(dir) = self.all.get(&at) else { continue };
            all.push(at);
            let dirs = dir.list(None).map(|(_, dentry)| dentry.ino);
            next.extend(dirs.filter(|ino| *ino != at && self.all.contains_key(ino)));
        }
        all
    }

    /// How many names of a directory are in memory.
    #[must_use]
    pub fn entries_of(&self, dir: Ino) -> u64 {
        self.all.get(&dir).map_or(0, |dir| dir.entries)
    }

    /// Memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.all.values().map(|dir| dir.memory()).sum::<usize>()
            + self.all.capacity() * size_of::<(Ino, Box<Dir>)>()
    }
}
