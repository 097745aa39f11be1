//! The names of objects, and back.
//!
//! Not the objects themselves. Listings of the store and `fsck` see only names, so parsing is
//! strict: a name that this module would not have written is foreign.
//!
//! Invariant: `ObjectName::parse(&name.to_string())` is `name`, and no other string parses to it.

use std::fmt;

use types::bytes::{Malformed, Put, Reader};
use types::{DirFragId, Frag, Ino, Pool, hex};

/// The number of a run within its directory fragment. Never reused: see `Manifest::next_run`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u64);

impl RunId {
    /// The numbers of runs that clients write have this bit: a client cannot know which number a
    /// server will take next.
    const CLIENTS: u64 = 1 << 63;

    /// The number of a run that a client writes, of an inode number in it and a checksum of its
    /// rows. An inode number is given once, so no other journal has a run of that number; and of
    /// the same journal, sent in another way, only an equal run.
    #[must_use]
    pub fn of_client(first: Ino, rows: u32) -> Self {
        Self((first.0 ^ u64::from(rows) << 31) | Self::CLIENTS)
    }

    /// Whether a client wrote it: its rows are checked whenever they are read.
    #[must_use]
    pub fn is_clients(self) -> bool {
        self.0 & Self::CLIENTS != 0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run.{:016x}", self.0)
    }
}

/// The content of an object of the store, according to its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectName {
    /// The manifest of a directory fragment.
    Manifest(DirFragId),
    /// A sorted run of a directory fragment.
    Run(DirFragId, RunId),
    /// A value segment of a directory fragment.
    Values(DirFragId, RunId),
    /// A stripe of a file's content, in a pool.
    Data(Ino, Pool, u64),
    /// Checksums of a file's content, in the pool of the content.
    Sums(Ino, Pool, u64),
}

impl ObjectName {
    /// Parses an object name; `None` if it is foreign.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        if let Some(rest) = name.strip_prefix("data/") {
            return parse_data(rest);
        }
        let (fragment, object) = name.strip_prefix("dirs/")?.split_once('/')?;
        let dirfrag = parse_dirfrag(fragment)?;
        if object == "manifest" {
            return Some(Self::Manifest(dirfrag));
        }
        if let Some(id) = object.strip_prefix(VALUES) {
            return Some(Self::Values(dirfrag, RunId(hex::padded(id, 16)?)));
        }
        let id = hex::padded(object.strip_prefix("run.")?, 16)?;
        Some(Self::Run(dirfrag, RunId(id)))
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manifest(dirfrag) => write!(f, "{}manifest", prefix(*dirfrag)),
            Self::Run(dirfrag, id) => write!(f, "{}{id}", prefix(*dirfrag)),
            Self::Values(dirfrag, id) => write!(f, "{}{VALUES}{:016x}", prefix(*dirfrag), id.0),
            Self::Data(ino, pool, stripe) => {
                write!(f, "{}{stripe:08x}", data_prefix(*ino, *pool))
            }
            Self::Sums(ino, pool, number) => {
                write!(f, "{}{SUMS}{number:08x}", data_prefix(*ino, *pool))
            }
        }
    }
}

/// The prefix of the names of all objects of a directory fragment.
#[must_use]
pub fn prefix(dirfrag: DirFragId) -> String {
    let Frag { bits, value } = dirfrag.frag;
    format!("dirs/{:016x}.{value:08x}.{bits}/", dirfrag.ino.0)
}

/// The name of a directory fragment's manifest.
#[must_use]
pub fn manifest_name(dirfrag: DirFragId) -> String {
    ObjectName::Manifest(dirfrag).to_string()
}

/// The name of a run.
#[must_use]
pub fn run_name(dirfrag: DirFragId, id: RunId) -> String {
    ObjectName::Run(dirfrag, id).to_string()
}

/// The name of a value segment.
#[must_use]
pub fn values_name(dirfrag: DirFragId, id: RunId) -> String {
    ObjectName::Values(dirfrag, id).to_string()
}

/// The name of one stripe of a file's content. The directory level is the low byte of the inode
/// number because numbers are handed out in sequence: a job's files spread over all 256.
#[must_use]
pub fn data_name(ino: Ino, pool: Pool, stripe: u64) -> String {
    ObjectName::Data(ino, pool, stripe).to_string()
}

/// The name of an object with checksums of one file's content. Each has those of
/// [`SUMS_PER_OBJECT`](crate::SUMS_PER_OBJECT) blocks.
#[must_use]
pub fn sums_name(ino: Ino, pool: Pool, number: u64) -> String {
    ObjectName::Sums(ino, pool, number).to_string()
}

/// The prefix of the names of all stripes of one file's content, and of its checksums.
#[must_use]
pub fn data_prefix(ino: Ino, pool: Pool) -> String {
    let shard = ino.0 & 0xff;
    match pool {
        Pool::USUAL => format!("data/{shard:02x}/{:016x}.", ino.0),
        Pool(number) => format!("data/{}{number:02x}/{shard:02x}/{:016x}.", Pool::WORD, ino.0),
    }
}

/// The number of a value segment follows.
const VALUES: &str = "values.";

/// The number of an object of checksums follows.
const SUMS: &str = "sums.";

/// Appends the 16 bytes of a directory fragment's identity.
pub(crate) fn put_dirfrag(out: &mut Vec<u8>, dirfrag: DirFragId) {
    out.put_u64(dirfrag.ino.0);
    out.put_u32(dirfrag.frag.value);
    out.put_u32(u32::from(dirfrag.frag.bits));
}

/// Reads the bytes of [`put_dirfrag`].
pub(crate) fn read_dirfrag(reader: &mut Reader<'_>) -> Result<DirFragId, Malformed> {
    let ino = Ino(reader.u64()?);
    let start = *reader;
    let value = reader.u32()?;
    let frag = u8::try_from(reader.u32()?).ok().map(|bits| Frag { bits, value });
    match frag.filter(|frag| frag.is_legal()) {
        Some(frag) => Ok(DirFragId { ino, frag }),
        None => Err(start.malformed("a directory fragment")),
    }
}

fn parse_dirfrag(text: &str) -> Option<DirFragId> {
    let mut parts = text.split('.');
    let ino = Ino(hex::padded(parts.next()?, 16)?);
    let value = u32::try_from(hex::padded(parts.next()?, 8)?).ok()?;
    let digits = parts.next()?;
    let bits = digits.parse::<u8>().ok().filter(|bits| bits.to_string() == digits)?;
    let frag = Frag { bits, value };
    (parts.next().is_none() && frag.is_legal()).then_some(DirFragId { ino, frag })
}

fn parse_data(rest: &str) -> Option<ObjectName> {
    let (pool, rest) = Pool::split_name(rest).unwrap_or((Pool::USUAL, rest));
    let (shard, object) = rest.split_once('/')?;
    let (ino, stripe) = object.split_once('.')?;
    let ino = hex::padded(ino, 16)?;
    let sums = stripe.strip_prefix(SUMS);
    // Stripes beyond 2^32 have more than eight digits, and then no leading zero.
    let number = hex::padded(sums.unwrap_or(stripe), 8)?;
    if hex::padded(shard, 2)? != ino & 0xff {
        return None;
    }
    Some(match sums {
        Some(_) => ObjectName::Sums(Ino(ino), pool, number),
        None => ObjectName::Data(Ino(ino), pool, number),
    })
}

#[cfg(test)]
mod tests;
