//! The inode table: inode numbers to inodes.
//!
//! Inode numbers come out of ranges, so inodes that are created together are neighbours. The
//! table keeps them in blocks of 64 consecutive numbers, and the blocks in spans of 64: creating
//! a million files touches memory in order, and a hash look-up is needed once per span rather than
//! once per inode. The map of spans stays small (2,500 entries for ten million inodes), so that
//! no create has to wait long for it to grow.

use types::{
    Attr, AttrChange, FileType, Ino, MODE_PERMISSIONS, MODE_TYPE, Map, Seq, Stripe, Timestamp,
};

use crate::apply::When;

const BLOCK_BITS: u32 = 6;
const BLOCK_INODES: usize = 1 << BLOCK_BITS;
const SPAN_BITS: u32 = 6;
const SPAN_BLOCKS: usize = 1 << SPAN_BITS;
/// Spans whose place is cached; a power of two.
const RECENT: usize = 16;

/// The inode has an entry in the table of extras.
pub(crate) const HAS_EXTRA: u8 = 1;
/// A directory whose attributes changed since its dentry was last marked.
pub(crate) const ATTR_DIRTY: u8 = 2;
/// As [`ATTR_DIRTY`], for changes that no journal holds.
pub(crate) const ATTR_UNJOURNALLED: u8 = 4;
/// The last change was a replay: of the same version, the store's is at least as new.
pub(crate) const REPLAYED: u8 = 8;

/// An inode in memory: 88 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Inode {
    /// File type and permissions; 0 marks a vacant place in the table.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Number of names; not kept for directories.
    pub(crate) nlink: u32,
    pub(crate) rdev: u32,
    /// Hash of the name under which it is stored in `home`.
    pub(crate) home_hash: u32,
    /// The directory whose fragment stores it.
    pub(crate) home: Ino,
    pub(crate) size: u64,
    pub(crate) atime: Timestamp,
    pub(crate) mtime: Timestamp,
    pub(crate) ctime: Timestamp,
    pub(crate) btime: Timestamp,
    /// Position of the last journal event that changed it (J-11).
    pub(crate) version: Seq,
    pub(crate) flags: u8,
    /// How its content is striped if it is not inline.
    pub(crate) stripe: Stripe,
}

/// A directory and the hash of a name in it. An inode knows its home by it, and few other names of
/// the directory have the same hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashedName {
    pub(crate) dir: Ino,
    pub(crate) hash: u32,
}

const _: () = assert!(size_of::<Inode>() == 88, "many millions of them are in memory");

impl Inode {
    /// Notes a change.
    #[inline]
    pub(crate) fn stamp(&mut self, when: When) {
        self.version = self.version.max(when.seq);
        self.flags = self.flags & !REPLAYED | if when.repeats() { REPLAYED } else { 0 };
    }

    /// The name under which it is stored.
    #[inline]
    pub(crate) fn home_name(&self) -> HashedName {
        HashedName { dir: self.home, hash: self.home_hash }
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.mode & MODE_TYPE == FileType::Directory.mode_bits()
    }

    pub(crate) fn file_type(&self) -> FileType {
        FileType::from_mode(self.mode).unwrap_or_default()
    }

    /// The attributes, as far as the inode alone knows them.
    pub(crate) fn attr(&self, ino: Ino) -> Attr {
        Attr {
            ino,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            nlink: self.nlink,
            rdev: self.rdev,
            stripe: self.stripe,
            size: self.size,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
        }
    }

    /// Changes the attributes of `chmod`, `chown`, `truncate` and `utimes`.
    pub(crate) fn change(&mut self, change: &AttrChange, time: Timestamp) {
        let AttrChange { mode, uid, gid, size, atime, mtime } = *change;
        if let Some(mode) = mode {
            self.mode = (self.mode & !MODE_PERMISSIONS) | (mode & MODE_PERMISSIONS);
        }
        self.uid = uid.unwrap_or(self.uid);
        self.gid = gid.unwrap_or(self.gid);
        if let Some(size) = size {
            self.size = size;
            self.mtime = time;
        }
        self.atime = atime.unwrap_or(self.atime);
        self.mtime = mtime.unwrap_or(self.mtime);
        self.ctime = time;
    }

    pub(crate) fn set_attr(&mut self, attr: &Attr) {
        self.mode = attr.mode;
        self.uid = attr.uid;
        self.gid = attr.gid;
        self.nlink = attr.nlink;
        self.rdev = attr.rdev;
        self.stripe = attr.stripe;
        self.size = attr.size;
        self.atime = attr.atime;
        self.mtime = attr.mtime;
        self.ctime = attr.ctime;
        self.btime = attr.btime;
    }
}

#[derive(Debug)]
struct Span {
    /// Each as long as its last inode in use requires, with room for all of them: numbers are
    /// given out in order, so that an inode is mostly appended and memory is written only once.
    blocks: [Vec<Inode>; SPAN_BLOCKS],
    /// Inodes in use, by block.
    live: [u8; SPAN_BLOCKS],
    /// Blocks in use.
    used: u32,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct InodeTable {
    index: Map<u64, u32>,
    spans: Vec<Option<Box<Span>>>,
    vacant: Vec<u32>,
    blocks: usize,
    live: u64,
    /// The spans used last, by a few bits of their keys. A create asks for its own inode twice
    /// and for its directory's once; without this they were three look-ups in `index`.
    recent: [(u64, u32); RECENT],
}

/// The place of an inode in the table.
#[derive(Clone, Copy)]
struct InodePlace {
    /// The key of its span.
    key: u64,
    /// Its block in the span.
    block: usize,
    /// Its place in the block.
    at: usize,
}

impl InodePlace {
    #[inline]
    fn of(ino: Ino) -> Self {
        Self {
            // Keys start at 1 so that the default of `recent` matches no span.
            key: (ino.0 >> (BLOCK_BITS + SPAN_BITS)) + 1,
            block: (ino.0 >> BLOCK_BITS) as usize % SPAN_BLOCKS,
            at: ino.0 as usize % BLOCK_INODES,
        }
    }
}

/// Where a span is remembered. Ranges of numbers start at round ones: multiply to tell them apart.
#[inline]
fn recent_at(key: u64) -> usize {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - RECENT.trailing_zeros())) as usize
}

impl InodeTable {
    pub(crate) fn len(&self) -> u64 {
        self.live
    }

    #[inline]
    fn span_of(&self, key: u64) -> Option<u32> {
        let (known, number) = self.recent[recent_at(key)];
        if known == key { Some(number) } else { self.index.get(&key).copied() }
    }

    #[inline]
    fn recall_span(&mut self, key: u64) -> Option<u32> {
        let recent = &mut self.recent[recent_at(key)];
        if recent.0 != key {
            *recent = (key, *self.index.get(&key)?);
        }
        Some(recent.1)
    }

    #[inline]
    pub(crate) fn get(&self, ino: Ino) -> Option<&Inode> {
        let InodePlace { key, block, at } = InodePlace::of(ino);
        let span = self.spans[self.span_of(key)? as usize].as_ref()?;
        span.blocks[block].get(at).filter(|inode| inode.mode != 0)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, ino: Ino) -> Option<&mut Inode> {
        let InodePlace { key, block, at } = InodePlace::of(ino);
        let number = self.recall_span(key)?;
        let span = self.spans[number as usize].as_mut()?;
        span.blocks[block].get_mut(at).filter(|inode| inode.mode != 0)
    }

    /// Puts an inode into the table, replacing one of the same number.
    #[allow(clippy::inline_always, reason = "a create makes the inode where it stays: 88 bytes")]
    #[inline(always)]
    pub(crate) fn insert(&mut self, ino: Ino, inode: Inode) {
        debug_assert!(inode.mode != 0, "mode 0 marks a vacant place");
        let InodePlace { key, block, at } = InodePlace::of(ino);
        // Nearly every create brings the next number of a block in use.
        if let Some(number) = self.recall_span(key)
            && let Some(span) = self.spans[number as usize].as_mut()
            && span.blocks[block].len() == at
            && at > 0
        {
            span.blocks[block].push(inode);
            span.live[block] += 1;
            self.live += 1;
        } else {
            self.insert_anywhere(InodePlace { key, block, at }, &inode);
        }
    }

    #[inline(never)]
    fn insert_anywhere(&mut self, place: InodePlace, inode: &Inode) {
        let InodePlace { key, block, at } = place;
        let number = match self.recall_span(key) {
            Some(number) => number,
            None => self.add_span(key),
        };
        let span = self.spans[number as usize].get_or_insert_with(Span::new);
        let inodes = &mut span.blocks[block];
        if inodes.capacity() == 0 {
            inodes.reserve_exact(BLOCK_INODES);
            span.used += 1;
            self.blocks += 1;
        }
        if at >= inodes.len() {
            inodes.resize(at + 1, Inode::default());
        }
        let before = std::mem::replace(&mut inodes[at], *inode);
        if before.mode == 0 {
            span.live[block] += 1;
            self.live += 1;
        }
    }

    #[cold]
    fn add_span(&mut self, key: u64) -> u32 {
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.spans.push(None);
            (self.spans.len() - 1) as u32
        });
        self.index.insert(key, number);
        self.recent[recent_at(key)] = (key, number);
        number
    }

    pub(crate) fn remove(&mut self, ino: Ino) -> Option<Inode> {
        let InodePlace { key, block, at } = InodePlace::of(ino);
        let number = self.recall_span(key)?;
        let span = self.spans[number as usize].as_mut()?;
        let inode = span.blocks[block].get_mut(at).filter(|inode| inode.mode != 0)?;
        let inode = std::mem::take(inode);
        debug_assert!(self.live > 0 && span.live[block] > 0, "an inode in use is counted");
        self.live -= 1;
        span.live[block] -= 1;
        if span.live[block] == 0 {
            span.blocks[block] = Vec::new();
            span.used -= 1;
            self.blocks -= 1;
        }
        if span.used == 0 {
            self.spans[number as usize] = None;
            self.index.remove(&key);
            self.vacant.push(number);
            self.recent[recent_at(key)] = (0, 0);
        }
        Some(inode)
    }

    /// Memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.blocks * BLOCK_INODES * size_of::<Inode>()
            + (self.spans.len() - self.vacant.len()) * size_of::<Span>()
            + self.spans.capacity() * size_of::<Option<Box<Span>>>()
            + self.index.capacity() * size_of::<(u64, u32)>()
    }
}

impl Span {
    #[cold]
    fn new() -> Box<Self> {
        Box::new(Self {
            blocks: [const { Vec::new() }; SPAN_BLOCKS],
            live: [0; SPAN_BLOCKS],
            used: 0,
        })
    }
}

mod validate;
