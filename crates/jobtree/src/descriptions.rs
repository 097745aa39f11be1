//! Open file descriptions: the position and flags that descriptors of several processes share.

use std::sync::atomic::Ordering;

use crate::inode::Inode;
use crate::region::{Host, JobRegion};
use crate::slots::Visit;

/// An open file description, by its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description(pub u64);

const INODE: u64 = 0;
const FLAGS: u64 = 8;
const POSITION: u64 = 16;
const SHARERS: u64 = 24;
/// Its number among the descriptions that the keeper holds, and 1; 0 for none.
const HELD: u64 = 32;
const CLASS: u32 = 0;
/// Other processes may have the description: it is never freed.
const SHARED: u64 = 1 << 32;

impl JobRegion {
    /// The inode that a description is of.
    #[inline]
    #[must_use]
    pub fn described(&self, description: Description) -> Inode {
        Inode(self.word(description.0 + INODE).load(Ordering::Relaxed))
    }

    /// The flags of `open`, those that can change among them.
    #[inline]
    #[must_use]
    pub fn flags(&self, description: Description) -> u32 {
        self.word(description.0 + FLAGS).load(Ordering::Relaxed) as u32
    }

    /// Changes the flags.
    pub fn set_flags(&self, description: Description, flags: u32) {
        self.word(description.0 + FLAGS).store(flags.into(), Ordering::Relaxed);
    }

    /// The position.
    #[inline]
    #[must_use]
    pub fn position(&self, description: Description) -> u64 {
        self.word(description.0 + POSITION).load(Ordering::Acquire)
    }

    /// Changes the position.
    #[inline]
    pub fn set_position(&self, description: Description, position: u64) {
        self.word(description.0 + POSITION).store(position, Ordering::Release);
    }

    /// Moves the position on from where it is, and returns where it was.
    #[inline]
    pub fn advance(&self, description: Description, by: u64) -> u64 {
        self.word(description.0 + POSITION).fetch_add(by, Ordering::AcqRel)
    }

    /// The number of the description that the keeper holds for it.
    #[must_use]
    pub fn held(&self, description: Description) -> Option<u32> {
        self.word(description.0 + HELD).load(Ordering::Acquire).checked_sub(1).map(|it| it as u32)
    }

    /// The keeper holds a description for it.
    pub fn set_held(&self, description: Description, number: u32) {
        self.word(description.0 + HELD).store(u64::from(number) + 1, Ordering::Release);
    }

    /// One more descriptor of this process has the description.
    #[inline]
    pub fn duplicate(&self, description: Description) {
        self.word(description.0 + SHARERS).fetch_add(1, Ordering::AcqRel);
    }

    /// From now on another process may have the description.
    pub fn share(&self, description: Description) {
        self.word(description.0 + SHARERS).fetch_or(SHARED, Ordering::AcqRel);
    }

    /// Whether an offset can be that of a description.
    #[must_use]
    pub fn is_description(&self, description: Description) -> bool {
        description.0 != 0 && description.0 & 63 == 0 && description.0 < self.used()
    }
}

impl<H: Host> Visit<'_, H> {
    /// Makes a description of an inode that was opened ([`Visit::open_inode`]).
    #[inline]
    pub fn describe(&self, inode: Inode, flags: u32) -> Option<Description> {
        let description = self.take(CLASS)?;
        let store = |field: u64, value| {
            self.region.word(description + field).store(value, Ordering::Relaxed);
        };
        store(INODE, inode.0);
        store(FLAGS, flags.into());
        store(POSITION, 0);
        store(SHARERS, 1);
        store(HELD, 0);
        Some(Description(description))
    }

    /// A descriptor is closed. With the last one that any process can have the description ends.
    #[inline]
    pub fn undescribe(&self, description: Description) {
        let inode = self.region.described(description);
        let before = self.region.word(description.0 + SHARERS).fetch_sub(1, Ordering::AcqRel);
        if before == 1 {
            // Another thread of the program may be using the descriptor at this moment.
            self.retire(description.0, CLASS);
            self.close_inode(inode);
        }
    }
}
