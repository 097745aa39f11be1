//! The inode table: inode numbers to inodes.
//!
//! Inode numbers come out of ranges, so inodes that are created together are neighbours. The
//! table keeps them in blocks of 64 consecutive numbers: creating a million files touches memory
//! in order, and costs one hash look-up per block rather than one per inode.

use types::{Attr, FileType, Ino, MODE_TYPE, Map, Seq, Timestamp};

const BLOCK_BITS: u32 = 6;
const BLOCK_INODES: usize = 1 << BLOCK_BITS;

/// The inode has an entry in the table of extras.
pub(crate) const HAS_EXTRA: u8 = 1;
/// A directory whose attributes changed since its dentry was last marked.
pub(crate) const ATTR_DIRTY: u8 = 2;

/// An inode in memory: 96 bytes.
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
}

impl Inode {
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
            size: self.size,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
        }
    }

    pub(crate) fn set_attr(&mut self, attr: &Attr) {
        self.mode = attr.mode;
        self.uid = attr.uid;
        self.gid = attr.gid;
        self.nlink = attr.nlink;
        self.rdev = attr.rdev;
        self.size = attr.size;
        self.atime = attr.atime;
        self.mtime = attr.mtime;
        self.ctime = attr.ctime;
        self.btime = attr.btime;
    }
}

#[derive(Debug)]
struct Block {
    live: u32,
    inodes: Box<[Inode]>,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct InodeTable {
    index: Map<u64, u32>,
    blocks: Vec<Block>,
    vacant_blocks: Vec<u32>,
    live: u64,
    /// The block used last: creates come in runs.
    last: (u64, u32),
}

impl InodeTable {
    pub(crate) fn len(&self) -> u64 {
        self.live
    }

    #[inline]
    fn place(ino: Ino) -> (u64, usize) {
        // Keys start at 1 so that the default of `last` matches no block.
        ((ino.0 >> BLOCK_BITS) + 1, (ino.0 as usize) & (BLOCK_INODES - 1))
    }

    #[inline]
    fn block_of(&self, key: u64) -> Option<u32> {
        if self.last.0 == key { Some(self.last.1) } else { self.index.get(&key).copied() }
    }

    #[inline]
    pub(crate) fn get(&self, ino: Ino) -> Option<&Inode> {
        let (key, at) = Self::place(ino);
        let inode = &self.blocks[self.block_of(key)? as usize].inodes[at];
        (inode.mode != 0).then_some(inode)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, ino: Ino) -> Option<&mut Inode> {
        let (key, at) = Self::place(ino);
        let block = self.block_of(key)?;
        let inode = &mut self.blocks[block as usize].inodes[at];
        (inode.mode != 0).then_some(inode)
    }

    /// Puts an inode into the table, replacing one of the same number.
    #[inline]
    pub(crate) fn insert(&mut self, ino: Ino, inode: Inode) {
        debug_assert!(inode.mode != 0, "mode 0 marks a vacant place");
        let (key, at) = Self::place(ino);
        let number = match self.block_of(key) {
            Some(number) => number,
            None => self.add_block(key),
        };
        self.last = (key, number);
        let block = &mut self.blocks[number as usize];
        let fresh = u32::from(block.inodes[at].mode == 0);
        block.live += fresh;
        self.live += u64::from(fresh);
        block.inodes[at] = inode;
    }

    #[cold]
    fn add_block(&mut self, key: u64) -> u32 {
        let number = self.vacant_blocks.pop().unwrap_or_else(|| {
            self.blocks.push(Block { live: 0, inodes: Box::default() });
            (self.blocks.len() - 1) as u32
        });
        self.blocks[number as usize].inodes = vec![Inode::default(); BLOCK_INODES].into();
        self.index.insert(key, number);
        number
    }

    pub(crate) fn remove(&mut self, ino: Ino) -> Option<Inode> {
        let (key, at) = Self::place(ino);
        let number = self.block_of(key)?;
        let block = &mut self.blocks[number as usize];
        if block.inodes[at].mode == 0 {
            return None;
        }
        let inode = std::mem::take(&mut block.inodes[at]);
        block.live -= 1;
        self.live -= 1;
        if block.live == 0 {
            block.inodes = Box::default();
            self.index.remove(&key);
            self.vacant_blocks.push(number);
            self.last = (0, 0);
        }
        Some(inode)
    }

    /// Memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        let full = self.blocks.len() - self.vacant_blocks.len();
        full * BLOCK_INODES * size_of::<Inode>()
            + self.blocks.capacity() * size_of::<Block>()
            + self.index.capacity() * size_of::<(u64, u32)>()
    }
}
