//! The namespace: inodes, dentries and directories in memory, and the only function that changes
//! them.
//!
//! * [`Namespace::apply`] executes a journal [`Event`](journal::Event). It is *total*: it checks
//!   nothing, cannot fail and reports the names that it displaced. Live requests, recovery, merges
//!   and the client's own view of a decoupled subtree all go through it (design idea 1).
//! * The `plan_*` functions (module [`plan`]) check every rule of POSIX, change nothing and return
//!   the event that would do it.
//! * [`flush`] and [`load`] move directories to and from the metadata store, as rows.
//!
//! The limits of this crate: it performs no I/O, reads no clock, knows no client and no message.
//! Where it lacks a directory it returns [`Refusal::Cold`], and the caller fetches the directory.
//!
//! Invariants:
//! * every dentry that is not remote names an inode whose `home` is that directory;
//! * an inode with several names lives in the hidden directory [`Ino::LINKS`], and all its names
//!   are remote;
//! * a directory that is not [complete](Namespace::is_complete) only ever adds to the store's rows:
//!   newer names, and tombstones for removed ones.

#![allow(
    clippy::cast_possible_truncation,
    reason = "hash positions and name lengths are bounded by construction"
)]

mod apply;
mod attach;
mod batch;
mod dir;
mod dirty;
mod extra;
pub mod flush;
mod fragments;
mod handover;
mod hits;
mod inode;
mod linked;
pub mod load;
mod names;
mod page;
mod partial;
pub mod plan;
mod read;
mod recorded_merge;
mod replay;
mod slots;
mod subtree;
mod times;
mod trial;
mod validate;
mod view;

use std::sync::Arc;

use journal::Loss;
use policy::Policy;
use types::{Attr, Errno, FileType, Ino, Map, Seq, Set, Stripe, Timestamp, name_hash};

pub use apply::{ApplyOutcome, Mode};
pub use batch::CreateBatch;
pub use extra::Extra;
pub use flush::Capture;
pub use handover::DetachedSubtree;
pub use hits::{Hit, Hits};
pub use linked::{NamedElsewhere, name_in_links};
pub use partial::StoredCounts;
pub use plan::{Judge, Planned, PlannedInode};
pub use read::{ListedEntry, Walked};
pub use subtree::ActivePolicy;
pub use trial::TrialNamespace;
pub use types::{Cred, EntryName, RenameFlags, XattrChange, XattrFlags};

use dir::Dir;
use dirty::Dirty;
use inode::{Inode, InodeTable};
use page::Dentry;

/// Why a request cannot be planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It breaks a rule.
    Errno(Errno),
    /// The answer depends on a directory that must be fetched from the metadata store first.
    Cold(Ino),
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// An inode that lost its last name: its stored content can be purged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreedInode {
    /// Which.
    pub ino: Ino,
    /// Whether it was a directory (with fragments in the metadata store) or a file (with data).
    pub is_dir: bool,
    /// Its length in bytes.
    pub size: u64,
    /// How its data is striped.
    pub stripe: Stripe,
    /// Whether the store holds content of it, as far as the namespace knows: a client that has the
    /// file open may write there before it reports the length.
    pub is_stored: bool,
}

/// See the crate documentation.
#[derive(Debug)]
pub struct Namespace {
    inodes: InodeTable,
    dirs: Map<Ino, Box<Dir>>,
    extras: Map<Ino, Arc<Extra>>,
    /// Policies stored in directory inodes.
    policies: Map<Ino, Arc<ActivePolicy>>,
    default_policy: Arc<ActivePolicy>,
    /// Incremented whenever the effective policy of some directory may have changed.
    policy_generation: u64,
    dirty: Dirty,
    freed: Vec<FreedInode>,
    losses: Vec<Loss>,
    /// The paths of subtrees that have their names on other ranks, by the directories above their
    /// roots.
    tops: Map<Ino, types::Path>,
    /// A journal is being replayed.
    replays: bool,
    /// Inodes that lost their names to other ones in the journal that is replayed.
    replaced: Vec<Ino>,
    /// Directories of the replayed journal that the store's version of their parent does not name:
    /// a merge that no journal has replaced them. If no event names them again, they are forgotten.
    overtaken: Vec<Ino>,
    /// Directories that are split: all their names are in hidden directories.
    split: Set<Ino>,
}

impl Default for Namespace {
    fn default() -> Self {
        Self::new()
    }
}

impl Namespace {
    /// A namespace that knows nothing: everything is in the metadata store, if anywhere.
    #[must_use]
    pub fn new() -> Self {
        Self {
            inodes: InodeTable::default(),
            dirs: Map::default(),
            extras: Map::default(),
            policies: Map::default(),
            default_policy: Arc::new(ActivePolicy::new(Policy::default())),
            policy_generation: 1,
            dirty: Dirty::new(),
            losses: Vec::new(),
            tops: Map::default(),
            replays: false,
            replaced: Vec::new(),
            overtaken: Vec::new(),
            split: Set::default(),
            freed: Vec::new(),
        }
    }

    /// A new, empty namespace: only the root exists, owned by root, mode 755.
    #[must_use]
    pub fn with_root(time: Timestamp) -> Self {
        let mut namespace = Self::new();
        for dir in [Ino::ANCHOR, Ino::LINKS, Ino::ROOT] {
            namespace.dirs.insert(dir, Box::new(Dir::new(true)));
        }
        namespace.make_root(&Cred::root(), time);
        namespace
    }

    /// Makes the root directory of this user and group, mode 755. For a cluster that has none yet.
    pub fn make_root(&mut self, owner: &Cred, time: Timestamp) {
        let root = journal::Create {
            parent: Ino::ANCHOR,
            name: ROOT_NAME,
            ino: Ino::ROOT,
            mode: FileType::Directory.mode_bits() | 0o755,
            uid: owner.uid,
            gid: owner.gid,
            time,
            mtime: time,
            atime: time,
            ..journal::Create::default()
        };
        self.apply(Seq(0), Mode::Live, &journal::Event::Create(root));
    }

    /// Number of inodes in memory.
    #[must_use]
    pub fn inodes(&self) -> u64 {
        self.inodes.len()
    }

    /// Names that are in memory because they do not exist.
    #[must_use]
    pub fn absent_names(&self) -> u64 {
        self.dirs.values().map(|dir| dir.absent).sum()
    }

    /// Number of directories in memory.
    #[must_use]
    pub fn directories(&self) -> usize {
        self.dirs.len()
    }

    /// Memory held, in bytes, within a few percent.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.inodes.memory()
            + self.dirs.values().map(|dir| dir.memory()).sum::<usize>()
            + self.dirs.capacity() * size_of::<(Ino, Box<Dir>)>()
            + self.extras.values().map(|extra| extra.memory()).sum::<usize>()
    }

    /// Whether every name of a directory is in memory.
    #[must_use]
    pub fn is_complete(&self, dir: Ino) -> bool {
        self.dirs.get(&dir).is_some_and(|dir| dir.complete)
    }

    /// The dentry of a name that is in memory.
    fn dentry(&self, entry: EntryName<'_>) -> Option<Dentry> {
        self.dirs.get(&entry.dir)?.find(entry.name)
    }

    /// Whether an inode is in memory.
    #[must_use]
    pub fn knows(&self, ino: Ino) -> bool {
        self.inodes.get(ino).is_some()
    }

    /// Announces so many new names, of so many bytes in all, in a directory: where they are the
    /// first, memory for them is taken once and nothing moves while they come.
    pub fn expect(&mut self, dir: Ino, names: usize, bytes: usize) {
        if let Some(dir) = self.dirs.get_mut(&dir) {
            dir.expect(names, bytes);
        }
    }

    /// The directory that stores an inode, if the inode is in memory.
    #[must_use]
    pub fn home_of(&self, ino: Ino) -> Option<Ino> {
        self.inodes.get(ino).map(|inode| inode.home)
    }

    /// Inodes that lost their last name since the last call, but for those that are back: a merge
    /// may replace an inode and put it under another name later.
    pub fn take_freed(&mut self) -> Vec<FreedInode> {
        let mut freed = std::mem::take(&mut self.freed);
        freed.retain(|freed| !self.knows(freed.ino));
        freed
    }

    /// Whether changes from now on are in the journal. After a crash those that are not are lost
    /// unless they were stored, and replay must not undo the stored ones.
    pub fn set_journalled(&mut self, journalled: bool) {
        self.dirty.journalled = journalled;
    }

    /// Whether [`Namespace::take_losses`] would return something.
    #[must_use]
    pub fn has_losses(&self) -> bool {
        !self.losses.is_empty()
    }

    /// The names of other clients that merges displaced since the last call.
    pub fn take_losses(&mut self) -> Vec<Loss> {
        std::mem::take(&mut self.losses)
    }

    fn attr_of(&self, ino: Ino, inode: &Inode) -> Attr {
        let mut attr = inode.attr(ino);
        if inode.is_dir() {
            let dir = self.dirs.get(&ino);
            let count = dir.and_then(|dir| dir.count());
            attr.size = count.map_or_else(|| dir.map_or(0, |dir| dir.entries), |count| count.0);
            // A link count of one means that sub-directories are not counted: the store may have
            // more.
            let links = count.map_or(1, |(_, subdirs)| subdirs + 2);
            attr.nlink = u32::try_from(links).unwrap_or(u32::MAX);
            if self.is_split(ino) {
                // Neither is known here: a client that needs them asks the fragments.
                attr.nlink = 0;
            }
        }
        attr
    }

    fn extra(&self, ino: Ino, inode: &Inode) -> Option<&Arc<Extra>> {
        if inode.flags & inode::HAS_EXTRA == 0 {
            return None;
        }
        self.extras.get(&ino)
    }
}

/// The name of the root in [`Ino::ANCHOR`].
const ROOT_NAME: &[u8] = b"root";

/// The name of an inode in [`Ino::LINKS`].
fn link_name(ino: Ino) -> [u8; 16] {
    let mut name = [b'0'; 16];
    for (at, digit) in name.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(ino.0 >> (60 - 4 * at)) as usize & 15];
    }
    name
}

fn link_hash(ino: Ino) -> u32 {
    name_hash(&link_name(ino))
}

#[cfg(test)]
mod tests;
