//! The namespace: inodes, dentries and directories in memory, and the only function that changes
//! them.
//!
//! * [`Namespace::apply`] executes a journal [`Event`](journal::Event). It is *total*: it checks
//!   nothing, cannot fail and reports the names that it displaced. Live requests, recovery, merges
//!   and the client's own view of a decoupled subtree all go through it (design idea 1).
//! * A [`Planner`] checks every rule of POSIX, changes nothing and returns the event that would do
//!   it.
//! * [`flush`] and [`load`] move directories to and from the metadata store, as rows.
//!
//! The limits of this crate: it performs no I/O, reads no clock, knows no client and no message.
//! Where it lacks a directory it returns [`Refusal::Cold`], and the caller fetches the directory.
//!
//! Invariants:
//! * every dentry that is not remote names an inode whose `home` is that directory;
//! * an inode with several names lives in the hidden directory [`Ino::LINKS`], and all its names
//!   are remote;
//! * a tree that was removed as a whole is below the hidden directory [`Ino::TRASH`], and no other
//!   directory leads to it;
//! * a directory that is not [complete](Namespace::is_complete) only ever adds to the store's rows:
//!   newer names, and tombstones for removed ones.

#![allow(
    clippy::cast_possible_truncation,
    reason = "hash positions and name lengths are bounded by construction"
)]

mod access;
mod apply;
mod attach;
mod batch;
mod dir;
mod dir_table;
mod dirty;
mod extra;
pub mod flush;
mod fragments;
mod handover;
mod hits;
mod inode;
mod inodes;
mod linked;
pub mod load;
mod needs;
mod page;
mod partial;
pub mod plan;
mod policies;
mod questions;
mod quotas;
mod read;
mod recorded_merge;
mod replay;
mod slots;
mod store;
mod subtree;
mod tree;
mod trial;
mod validate;
mod view;

use journal::Loss;
use types::{Errno, FileType, Ino, Seq, Stripe, Timestamp, name_hash};

pub use apply::{ApplyOutcome, Mode};
pub use batch::CreateBatch;
pub use dir_table::{DirTable, Displaces};
pub use extra::Extra;
pub use flush::Capture;
pub use handover::{DetachedSubtree, Handover};
pub use hits::{Hit, Hits};
pub use linked::{NamedElsewhere, name_in_links};
pub use needs::Needs;
pub use partial::StoredCounts;
pub use plan::{Judge, Planned, PlannedInode, Planner};
pub use policies::ActivePolicy;
pub use questions::Permissions;
pub use read::{ListedEntry, Walked};
pub use store::StoreExchange;
pub use trial::TrialNamespace;
pub use types::{Cred, EntryName, RenameFlags, XattrChange, XattrFlags};

use dir::Dir;
use replay::ReplayState;
use tree::InodeTree;

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

/// Inodes and events that applied events displaced, until the caller takes them.
#[derive(Debug, Default)]
pub(crate) struct Displaced {
    freed: Vec<FreedInode>,
    losses: Vec<Loss>,
}

/// See the crate documentation.
#[derive(Debug)]
pub struct Namespace {
    tree: InodeTree,
    displaced: Displaced,
    replay: ReplayState,
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
            tree: InodeTree::new(),
            displaced: Displaced::default(),
            replay: ReplayState::default(),
        }
    }

    /// A new, empty namespace: only the root exists, owned by root, mode 755.
    #[must_use]
    pub fn with_root(time: Timestamp) -> Self {
        let mut namespace = Self::new();
        for dir in [Ino::ANCHOR, Ino::LINKS, Ino::TRASH, Ino::ROOT] {
            namespace.tree.dirs.insert(dir, Box::new(Dir::new(true)));
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

    /// Plans changes.
    #[inline]
    #[must_use]
    pub fn plan(&self) -> Planner<'_> {
        Planner { tree: &self.tree }
    }

    /// Says which directories must be fetched before events can be applied.
    #[inline]
    #[must_use]
    pub fn needs(&self) -> Needs<'_> {
        Needs { tree: &self.tree, replays: self.replay.active }
    }

    /// Takes rows from the metadata store, and gives it rows.
    #[inline]
    #[must_use]
    pub fn store(&mut self) -> StoreExchange<'_> {
        StoreExchange { tree: &mut self.tree, replay: &mut self.replay }
    }

    /// Hands subtrees over to other ranks.
    #[inline]
    #[must_use]
    pub fn handover(&mut self) -> Handover<'_> {
        Handover { tree: &mut self.tree }
    }

    /// The directories, as far as the namespace knows them.
    #[inline]
    #[must_use]
    pub fn dirs(&self) -> &DirTable {
        &self.tree.dirs
    }

    /// Number of inodes in memory.
    #[must_use]
    pub fn inodes(&self) -> u64 {
        self.tree.inodes.len()
    }

    /// Memory held, in bytes, within a few percent.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.tree.inodes.memory() + self.tree.dirs.memory()
    }

    /// Inodes that lost their last name since the last call, but for those that are back: a merge
    /// may replace an inode and put it under another name later.
    pub fn take_freed(&mut self) -> Vec<FreedInode> {
        let mut freed = std::mem::take(&mut self.displaced.freed);
        freed.retain(|freed| !self.tree.inodes.knows(freed.ino));
        freed
    }

    /// Whether [`Namespace::take_losses`] would return something.
    #[must_use]
    pub fn has_losses(&self) -> bool {
        !self.displaced.losses.is_empty()
    }

    /// The names of other clients that merges displaced since the last call.
    pub fn take_losses(&mut self) -> Vec<Loss> {
        std::mem::take(&mut self.displaced.losses)
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
