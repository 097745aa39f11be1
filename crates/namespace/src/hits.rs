//! The use of directories since the last report: the input of balancing.
//!
//! Counted where a directory is at hand anyway: a change costs an addition and a comparison, and no
//! count fades here. The balancer asks regularly, adds the counts to the directories above, and
//! lets them fade.
//!
//! Invariant: a directory is in the list of those to be asked for once, or not at all.

use types::Ino;

use crate::dir::Dir;
use crate::dir_table::DirTable;

/// The most directories in the list of used ones. The list must not grow where no balancer asks, as
/// in the view of a client; if more are used than this, some of their hits are counted late, or
/// not.
const NOTED_MAX: usize = 1 << 16;

/// The hits in a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Inodes that were read.
    pub inode_reads: u32,
    /// Inodes that were written, made or removed.
    pub inode_writes: u32,
    /// Listings.
    pub readdirs: u32,
    /// Times that something of it was fetched from the store.
    pub fetches: u32,
    /// Times that it was written to the store.
    pub stores: u32,
}

/// The kinds of hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    /// An inode was read.
    Read,
    /// The directory was listed.
    List,
    /// It was fetched from the store.
    Fetch,
    /// It was written to the store.
    Store,
}

/// Directories that were used since the last report.
#[derive(Debug, Default)]
pub(crate) struct Noted(Vec<Ino>);

impl Noted {
    /// The noted directories.
    pub(crate) fn directories(&self) -> impl Iterator<Item = Ino> {
        self.0.iter().copied()
    }

    /// A directory was used.
    #[inline]
    pub(crate) fn note(&mut self, dir: &mut Dir, ino: Ino) {
        if !dir.noted && self.0.len() < NOTED_MAX {
            dir.noted = true;
            self.0.push(ino);
        }
    }
}

impl DirTable {
    /// Counts a use of a directory that does not change it; changes are counted as they are
    /// applied. A directory that is not in memory has no counter.
    #[inline]
    pub(crate) fn note_hit(&mut self, ino: Ino, hit: Hit) {
        let Some(dir) = self.all.get_mut(&ino) else { return };
        let hits = &mut dir.hits;
        let count = match hit {
            Hit::Read => &mut hits.inode_reads,
            Hit::List => &mut hits.readdirs,
            Hit::Fetch => &mut hits.fetches,
            Hit::Store => &mut hits.stores,
        };
        *count = count.wrapping_add(1);
        self.dirty.noted.note(dir, ino);
    }

    /// Up to `limit` directories that were used since their last report, with their hits. Fewer
    /// only if there are no more; directories that have left the memory are left out.
    pub(crate) fn take_hits(&mut self, limit: usize) -> Vec<(Ino, Hits)> {
        let noted = &mut self.dirty.noted.0;
        let first = noted.len().saturating_sub(limit);
        let mut taken = Vec::with_capacity(noted.len() - first);
        for ino in noted.drain(first..) {
            if let Some(dir) = self.all.get_mut(&ino) {
                dir.noted = false;
                taken.push((ino, std::mem::take(&mut dir.hits)));
            }
        }
        taken
    }

    /// Drops the hits of a directory since the last report.
    pub(crate) fn forget_hits(&mut self, ino: Ino) {
        if let Some(dir) = self.all.get_mut(&ino) {
            dir.hits = Hits::default();
        }
    }

    /// Whether [`Namespace::take_hits`] would return something.
    pub(crate) fn has_hits(&self) -> bool {
        !self.dirty.noted.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use journal::{Create, Event};
    use types::{FileType, Seq, Timestamp};

    use super::*;
    use crate::{Mode, Namespace};

    #[test]
    fn uses_are_counted_once_and_where_they_were() {
        let mut namespace = Namespace::with_root(Timestamp(1));
        namespace.take_hits(usize::MAX);
        let make = |parent, name: &'static [u8], ino, file_type: FileType| {
            let mode = file_type.mode_bits() | 0o755;
            Event::Create(Create { parent, name, ino: Ino(ino), mode, ..Create::default() })
        };
        let events = [
            make(Ino::ROOT, b"d", 10, FileType::Directory),
            make(Ino(10), b"a", 11, FileType::Regular),
            make(Ino(10), b"b", 12, FileType::Regular),
        ];
        for (seq, event) in (1..).zip(&events) {
            namespace.apply(Seq(seq), Mode::Live, event);
        }
        namespace.note_hit(Ino(10), Hit::Read);
        namespace.note_hit(Ino(10), Hit::List);
        namespace.note_hit(Ino(99), Hit::Read);
        // A part at a time, and nothing twice.
        let mut taken = namespace.take_hits(1);
        assert_eq!(taken.len(), 1);
        taken.extend(namespace.take_hits(usize::MAX));
        let of = |ino| taken.iter().find(|(known, _)| *known == ino).map(|(_, hits)| *hits);
        let dir = of(Ino(10)).unwrap();
        assert_eq!((dir.inode_writes, dir.inode_reads, dir.readdirs), (2, 1, 1));
        assert!(of(Ino::ROOT).unwrap().inode_writes >= 1);
        assert!(!namespace.has_hits() && namespace.take_hits(9).is_empty());
        namespace.note_hit(Ino(10), Hit::Store);
        assert_eq!(namespace.take_hits(9), [(Ino(10), Hits { stores: 1, ..Hits::default() })]);
    }

    #[test]
    fn hits_that_no_balancer_collects_are_bounded() {
        let mut namespace = Namespace::with_root(Timestamp(1));
        for number in 0..NOTED_MAX as u64 + 100 {
            let name = number.to_string().into_bytes();
            let mode = FileType::Directory.mode_bits() | 0o755;
            let (parent, ino) = (Ino::ROOT, Ino(1000 + number));
            let event =
                Event::Create(Create { parent, name: &name, ino, mode, ..Create::default() });
            namespace.apply(Seq(number + 1), Mode::Live, &event);
            namespace.note_hit(ino, Hit::Read);
        }
        assert_eq!(namespace.take_hits(usize::MAX).len(), NOTED_MAX);
    }
}
