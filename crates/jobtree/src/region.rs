//! The layout of the region, and access to its words.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::Note;

/// An error number of the system.
pub type ErrorNumber = i32;

pub(crate) const EPERM: ErrorNumber = 1;
pub(crate) const ENOENT: ErrorNumber = 2;
pub(crate) const EACCES: ErrorNumber = 13;
pub(crate) const EEXIST: ErrorNumber = 17;
pub(crate) const ENOTDIR: ErrorNumber = 20;
pub(crate) const EISDIR: ErrorNumber = 21;
pub(crate) const EINVAL: ErrorNumber = 22;
pub(crate) const ENAMETOOLONG: ErrorNumber = 36;
pub(crate) const ENOTEMPTY: ErrorNumber = 39;
pub(crate) const ELOOP: ErrorNumber = 40;

/// Why a call was not answered from the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The answer is an error.
    Errno(ErrorNumber),
    /// The region is closed: the file system has the tree now.
    Closed,
    /// No inode number is left: the keeper has more.
    Numbers,
    /// The region has no room, or does not support the call: the region is to be closed,
    /// and the call repeated there.
    Unable,
}

impl From<ErrorNumber> for Denied {
    fn from(errno: ErrorNumber) -> Self {
        Self::Errno(errno)
    }
}

/// The services that a session needs of the machine.
pub trait Host: Sync {
    /// Whether a thread of a process still runs.
    fn is_alive(&self, pid: u32, tid: u32) -> bool;

    /// Waits a moment, longer with each round.
    fn pause(&self, round: u32);

    /// These bytes of the region are about to be written for the first time.
    fn prepare(&self, start: *mut u8, bytes: u64) {
        let _ = (start, bytes);
    }
}

/// The settings of a new region.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Process that keeps the region.
    pub keeper: u32,
    /// The root directory: number, mode, owner, group, and its times in nanoseconds.
    pub root: crate::JobStat,
    /// Inode numbers that may be given: the first, and the one after the last.
    pub numbers: (u64, u64),
}

/// Memory that several processes share.
#[derive(Debug)]
pub struct JobRegion {
    base: *mut u8,
    len: u64,
}

// SAFETY: the memory is reached through atomics, or copied in the way that `content` describes.
unsafe impl Send for JobRegion {}
// SAFETY: as above.
unsafe impl Sync for JobRegion {}

const MAGIC: u64 = u64::from_le_bytes(*b"cudele\0\x01");
const VERSION: u64 = 1;

/// Words of the header.
pub(crate) const HEAD_MAGIC: u64 = 0;
pub(crate) const HEAD_VERSION: u64 = 8;
pub(crate) const HEAD_BUCKETS: u64 = 16;
pub(crate) const HEAD_ROOT: u64 = 24;
pub(crate) const HEAD_KEEPER: u64 = 32;
/// Values of the keeper that every process may read: see [`JobRegion::note`].
const HEAD_NOTES: u64 = 64;
/// Changes seldom.
pub(crate) const HEAD_GATE: u64 = 192;
pub(crate) const HEAD_EPOCH: u64 = 256;
pub(crate) const HEAD_SLOTS_HIGH: u64 = 264;
pub(crate) const HEAD_SLOT_HINT: u64 = 272;
pub(crate) const HEAD_INTENT: u64 = 320;
pub(crate) const HEAD_BUMP: u64 = 448;
pub(crate) const HEAD_INO_NEXT: u64 = 512;
pub(crate) const HEAD_INO_END: u64 = 520;
/// Reached by offsets that no record has.
const SCRATCH: u64 = 640;
/// Text of the keeper: paths under which the programs name the root.
const HEAD_TEXT: u64 = 1024;
const TEXT_BYTES: u64 = 4096 * 5;

pub(crate) const SLOTS: u64 = 1024;
pub(crate) const SLOT_BYTES: u64 = 512;
pub(crate) const SLOTS_AT: u64 = 32 << 10;
pub(crate) const LIMBO_ENTRIES: u64 = 1024;
pub(crate) const LIMBO_AT: u64 = SLOTS_AT + SLOTS * SLOT_BYTES;
pub(crate) const DIRS_BUCKETS: u64 = 1 << 14;
pub(crate) const DIRS_AT: u64 = LIMBO_AT + SLOTS * LIMBO_ENTRIES * 16;
pub(crate) const BUCKETS_AT: u64 = DIRS_AT + DIRS_BUCKETS * 8;
pub(crate) const BUCKET_BYTES: u64 = 16;
/// The smallest region.
const LEN_MIN: u64 = 64 << 20;

impl JobRegion {
    /// Works in this memory.
    ///
    /// # Safety
    /// `base` is the start of `len` readable and writable bytes, aligned to a page, which stay
    /// mapped for the rest of the process. New memory is zero.
    #[must_use]
    pub unsafe fn new(base: *mut u8, len: u64) -> Self {
        assert!(len >= LEN_MIN, "a region has room for its tables");
        Self { base, len }
    }

    /// Makes an empty tree in new memory.
    pub fn format(&self, format: &Format) {
        let buckets = (self.len / 2048).next_power_of_two().clamp(1 << 12, 1 << 22);
        self.word(HEAD_BUCKETS).store(buckets, Ordering::Relaxed);
        let data = (BUCKETS_AT + buckets * BUCKET_BYTES).next_multiple_of(4096);
        assert!(data + (1 << 20) < self.len, "a region has room behind its tables");
        self.word(HEAD_EPOCH).store(2, Ordering::Relaxed);
        self.word(HEAD_KEEPER).store(u64::from(format.keeper), Ordering::Relaxed);
        self.word(HEAD_INO_NEXT).store(format.numbers.0, Ordering::Relaxed);
        self.word(HEAD_INO_END).store(format.numbers.1, Ordering::Relaxed);
        self.word(HEAD_BUMP).store(data + 4096, Ordering::Relaxed);
        let root = crate::Inode(data);
        self.fill_inode(root, &format.root);
        self.word(root.0 + crate::inode::PARENT).store(root.0, Ordering::Relaxed);
        self.word(HEAD_ROOT).store(root.0, Ordering::Relaxed);
        self.add_dir(root);
        self.word(HEAD_VERSION).store(VERSION, Ordering::Relaxed);
        self.word(HEAD_MAGIC).store(MAGIC, Ordering::Release);
    }

    /// Whether the memory contains a tree that this version understands.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.word(HEAD_MAGIC).load(Ordering::Acquire) == MAGIC
            && self.word(HEAD_VERSION).load(Ordering::Relaxed) == VERSION
    }

    /// The process that keeps the region.
    #[must_use]
    pub fn keeper(&self) -> u32 {
        self.word(HEAD_KEEPER).load(Ordering::Relaxed) as u32
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> crate::Inode {
        crate::Inode(self.word(HEAD_ROOT).load(Ordering::Relaxed))
    }

    /// A value that the keeper tells the processes.
    #[must_use]
    pub fn note(&self, note: Note) -> &AtomicU64 {
        self.word(HEAD_NOTES + note as u64 * 8)
    }

    /// Writes a list of texts for the processes, before the first one starts. Texts that do not
    /// fit are left out.
    pub fn set_texts(&self, texts: &[&[u8]]) {
        let mut at = HEAD_TEXT;
        for text in texts {
            let needed = 8 + (text.len() as u64).next_multiple_of(8);
            if at + needed + 8 > HEAD_TEXT + TEXT_BYTES {
                break;
            }
            self.copy_in(at + 8, text);
            self.word(at).store(text.len() as u64 + 1, Ordering::Release);
            at += needed;
        }
    }

    /// The texts of the keeper.
    pub fn texts(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = HEAD_TEXT;
        std::iter::from_fn(move || {
            let len = self.word(at).load(Ordering::Acquire).checked_sub(1)?;
            if len > TEXT_BYTES || at + 8 + len > HEAD_TEXT + TEXT_BYTES {
                return None;
            }
            let start = self.pointer(at + 8, len)?;
            at += 8 + len.next_multiple_of(8);
            // SAFETY: in the region, and written before the process that reads was started.
            Some(unsafe { std::slice::from_raw_parts(start, len as usize) })
        })
    }

    /// More inode numbers, in place of the ones that are used up.
    pub fn grant_numbers(&self, start: u64, end: u64) {
        // In between, no number can be taken: the end is not above the start.
        self.word(HEAD_INO_END).store(0, Ordering::SeqCst);
        self.word(HEAD_INO_NEXT).store(start, Ordering::SeqCst);
        self.word(HEAD_INO_END).store(end, Ordering::SeqCst);
    }

    /// The inode numbers that no block was taken of.
    #[must_use]
    pub fn numbers_left(&self) -> (u64, u64) {
        let end = self.word(HEAD_INO_END).load(Ordering::SeqCst);
        (self.word(HEAD_INO_NEXT).load(Ordering::SeqCst).min(end), end)
    }

    /// Bytes that were taken so far.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.word(HEAD_BUMP).load(Ordering::Relaxed).min(self.len)
    }

    /// Bytes of the region.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// No region is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    #[inline]
    pub(crate) fn word(&self, offset: u64) -> &AtomicU64 {
        let offset = if offset & 7 == 0 && offset <= self.len - 8 { offset } else { SCRATCH };
        // SAFETY: in the region and aligned, by the line above; only atomics reach words.
        unsafe { &*self.base.add(offset as usize).cast::<AtomicU64>() }
    }

    #[inline]
    pub(crate) fn half(&self, offset: u64) -> &AtomicU32 {
        let offset = if offset & 3 == 0 && offset <= self.len - 4 { offset } else { SCRATCH };
        // SAFETY: as in `word`.
        unsafe { &*self.base.add(offset as usize).cast::<AtomicU32>() }
    }

    /// The address of a range, if it is in the region.
    #[inline]
    pub(crate) fn pointer(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        // SAFETY: the offset is in the region.
        (end <= self.len).then(|| unsafe { self.base.add(offset as usize) })
    }

    /// Copies bytes into the region.
    #[inline]
    pub(crate) fn copy_in(&self, offset: u64, bytes: &[u8]) {
        if let Some(to) = self.pointer(offset, bytes.len() as u64) {
            // SAFETY: the range is in the region, and `bytes` is memory of this process.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
        }
    }

    /// Copies bytes out of the region.
    #[inline]
    pub(crate) fn copy_out(&self, offset: u64, bytes: &mut [u8]) {
        match self.pointer(offset, bytes.len() as u64) {
            // SAFETY: the range is in the region, and `bytes` is memory of this process.
            Some(from) => unsafe {
                std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
            },
            None => bytes.fill(0),
        }
    }

    pub(crate) fn zero(&self, offset: u64, len: u64) {
        if let Some(to) = self.pointer(offset, len) {
            // SAFETY: the range is in the region.
            unsafe { std::ptr::write_bytes(to, 0, len as usize) }
        }
    }
}
