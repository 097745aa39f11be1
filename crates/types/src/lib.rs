//! The names of things: identifiers, attributes, errors and the few rules about them that every
//! other crate relies on.
//!
//! This crate performs no I/O and holds no state. It knows nothing about journals, messages or
//! stores; those crates know about it.
//!
//! Invariant: every identifier is a distinct type, so that an inode number can never be passed
//! where a request id is meant.

pub mod acl;
mod attr;
pub mod bytes;
mod cred;
mod error;
pub mod hex;
mod id;
mod ids;
mod lock;
mod log_event;
mod name;
mod peer;
pub mod quota;
pub mod quote;
mod rights;
pub mod rng;
mod space;
mod stripe;
mod time;
mod trash;

pub use attr::{
    Attr, AttrChange, FileType, MODE_PERMISSIONS, MODE_TYPE, device_and_stripe, device_or_stripe,
};
pub use cred::{Cred, RenameFlags, XattrChange, XattrFlags};
pub use error::{Errno, Error, Result};
pub use id::{ClientId, ConnId, DirFragId, Epoch, Frag, Ino, InoRange, Origin, Rank, Seq, Tid};
pub use ids::IdRanges;
pub use lock::{Lock, LockKind, LockMode, LockRanges};
pub use log_event::{LogEvent, LogLevel, LogValue};
pub use name::{
    EntryName, NAME_BYTES_MAX, PATH_BYTES_MAX, Path, SYMLINK_BYTES_MAX, check_name, name_hash,
};
pub use peer::{NOBODY, Peer};
pub use rights::{KeyRule, KeyRules, Rights};
pub use space::Space;
pub use stripe::{Pool, STRIPE_BYTES, Stripe, StripedFile};
pub use time::{Civil, Clock, Moment, Span, Timestamp};
pub use trash::TrashEntry;

/// Files of at most this many bytes are stored inline with their metadata, unless their directory
/// says otherwise.
pub const INLINE_BYTES: u32 = 4096;

/// A larger file is never stored inline. A smaller file may be: its writer decided, so a reader
/// must ask. Not more than the smallest [`Stripe`].
pub const INLINE_BYTES_MAX: usize = 65_536;

/// The longest a file may be: 1 EiB.
pub const FILE_BYTES_MAX: u64 = 1 << 60;

/// A hash map with a fixed hasher: the same inputs iterate in the same order in every process,
/// which replayable simulations need. Anything that leaves the core is sorted all the same.
pub type Map<K, V> = hashbrown::HashMap<K, V, FixedState>;

/// A hash set with a fixed hasher. See [`Map`].
pub type Set<K> = hashbrown::HashSet<K, FixedState>;

/// Builds [`FixedHasher`]s.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedState;

impl std::hash::BuildHasher for FixedState {
    type Hasher = FixedHasher;
    fn build_hasher(&self) -> FixedHasher {
        FixedHasher(0)
    }
}

/// A fast multiplicative hasher for integer-like keys that the system itself hands out.
/// Names chosen by users are hashed by [`name_hash`] instead.
#[derive(Clone, Copy, Debug)]
pub struct FixedHasher(u64);

impl std::hash::Hasher for FixedHasher {
    fn finish(&self) -> u64 {
        // hashbrown takes its control byte from the top bits and the bucket from the low ones:
        // fold them together so that sequential keys spread over both.
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        self.write_u64(xxhash_rust::xxh3::xxh3_64(bytes));
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

#[cfg(test)]
mod tests;
