//! The object that says which snapshots of the namespace there are (BF-03, E-04).
//!
//! A snapshot is a number. It is taken by replacing this one object, at a moment in which the
//! metadata store has all of the subtree. A later writer that replaces or deletes a manifest first
//! keeps it under the newest number ([`retained_name`]), so that a reader of snapshot `n` finds a
//! directory as it was in the kept manifest with the smallest number from `n` on, and else in the
//! manifest itself. Taking a snapshot copies nothing, for a subtree of any size.
//!
//! ```text
//! object   := "CUDLSNAP" format:u16 taken:varint changes:varint next_ino:varint count:varint
//!             snapshot* crc:u32
//! snapshot := number:varint id:u64 time:signed path:bytes policy:bytes root
//! root     := ino mode uid gid nlink size:varint* atime mtime ctime btime:signed*
//! ```
//!
//! `docs/formats/branches.md` says it in words.
//!
//! Invariant: for any bytes, decoding returns snapshots in the order of their numbers, each once,
//! or an error that names the byte.

use types::bytes::{Malformed, Put, Reader};
use types::{Attr, DirFragId, Ino, InoRange, Pool, Timestamp, hex};

use crate::error::FormatError;
use crate::frame::{Frame, sealed};
use crate::object::prefix;

/// Name of the object.
pub const SNAPSHOTS_NAME: &str = "branches/table";
/// The prefix of the notes about content that is to be deleted later.
pub const PURGE_PREFIX: &str = "branches/purge/";
/// The most snapshots: every writer of a directory reads the object.
pub const SNAPSHOTS_MAX: usize = 4096;

const FRAME: Frame =
    Frame { magic: b"CUDLSNAP", versions: 1..=1, is_magic: "the magic of a list of snapshots" };
/// Inode numbers of branches: no rank has as large ones, and hidden directories have larger ones.
const NUMBERS: InoRange = InoRange { start: 1 << 60, end: 1 << 61 };

/// A snapshot that is needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Its number. 1 is the first.
    pub number: u64,
    /// Chosen by the requester alone, so that a repetition takes no second snapshot.
    pub id: u64,
    /// When it was taken.
    pub time: Timestamp,
    /// The path of its root at that time.
    pub path: Vec<u8>,
    /// The policy in force in its root, canonical text; empty for the default.
    pub policy: String,
    /// The root directory as it was.
    pub root: Attr,
}

/// See the module documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshots {
    /// How many were ever taken: the number of the newest, whether it is still of use or not.
    pub taken: u64,
    /// Grows with every replacement, so that no two contents are equal.
    pub changes: u64,
    /// The first inode number that was never given to a branch.
    next_ino: u64,
    /// The needed ones, by number.
    live: Vec<Snapshot>,
}

impl Default for Snapshots {
    fn default() -> Self {
        Self { taken: 0, changes: 0, next_ino: NUMBERS.start, live: Vec::new() }
    }
}

impl Snapshots {
    /// The needed ones, by number.
    pub fn live(&self) -> impl ExactSizeIterator<Item = &Snapshot> {
        self.live.iter()
    }

    /// The snapshot with this id.
    #[must_use]
    pub fn get(&self, id: u64) -> Option<&Snapshot> {
        self.live.iter().find(|snapshot| snapshot.id == id)
    }

    /// The number under which a manifest is kept before it is replaced; `None` without a snapshot.
    #[must_use]
    pub fn keep_as(&self) -> Option<u64> {
        (!self.live.is_empty()).then_some(self.taken)
    }

    /// Whether a snapshot may need a state that existed when number `until` was the newest and, if
    /// there is a `since`, did not exist when that one was.
    #[must_use]
    pub fn needs(&self, since: Option<u64>, until: u64) -> bool {
        let mut numbers = self.live.iter().map(|snapshot| snapshot.number);
        numbers.any(|number| number <= until && since.is_none_or(|since| number > since))
    }

    /// Takes a snapshot with the next number. `None` if there are [`SNAPSHOTS_MAX`].
    pub fn take(&mut self, snapshot: Snapshot) -> Option<u64> {
        if self.live.len() >= SNAPSHOTS_MAX {
            return None;
        }
        self.taken += 1;
        self.live.push(Snapshot { number: self.taken, ..snapshot });
        Some(self.taken)
    }

    /// Drops unneeded snapshots.
    pub fn retain(&mut self, is_needed: impl FnMut(&Snapshot) -> bool) {
        self.live.retain(is_needed);
    }

    /// Gives inode numbers to a branch. `None` if there are not so many.
    pub fn grant(&mut self, count: u64) -> Option<InoRange> {
        let end = self.next_ino.checked_add(count).filter(|end| *end <= NUMBERS.end)?;
        Some(InoRange { start: std::mem::replace(&mut self.next_ino, end), end })
    }

    /// The bytes of the object.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = FRAME.begin();
        for number in [self.taken, self.changes, self.next_ino, self.live.len() as u64] {
            out.put_varint(number);
        }
        for Snapshot { number, id, time, path, policy, root } in &self.live {
            out.put_varint(*number);
            out.put_u64(*id);
            out.put_signed(time.0);
            out.put_bytes(path);
            out.put_bytes(policy.as_bytes());
            put_root(&mut out, root);
        }
        sealed(out)
    }

    /// Reads the object.
    ///
    /// # Errors
    /// If [`Snapshots::encode`] cannot have written the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        read(bytes).map_err(|malformed| FormatError::new(SNAPSHOTS_NAME, malformed))
    }
}

/// Whether an inode number is from the range of branches.
#[must_use]
pub fn is_of_branch(ino: Ino) -> bool {
    NUMBERS.contains(ino)
}

/// The name under which the manifest of a directory fragment is kept that was replaced when
/// `number` was the newest snapshot.
#[must_use]
pub fn retained_name(dirfrag: DirFragId, number: u64) -> String {
    format!("{}{number:016x}", retained_prefix(dirfrag))
}

/// The prefix of all kept manifests of a directory fragment.
#[must_use]
pub fn retained_prefix(dirfrag: DirFragId) -> String {
    format!("{}at.", prefix(dirfrag))
}

/// The number in the name of a kept manifest, and its fragment (the part of the name before the
/// number).
#[must_use]
pub fn parse_retained(name: &str) -> Option<(&str, u64)> {
    let (dirfrag, number) = name.split_once("/at.").filter(|_| name.starts_with("dirs/"))?;
    Some((dirfrag, hex::fixed(number, 16)?))
}

/// Content that is deleted when no snapshot needs it: removed when `number` was the newest
/// snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purge {
    /// The newest snapshot at that time.
    pub number: u64,
    /// Whose content.
    pub ino: Ino,
    /// The pool that it is in.
    pub pool: Pool,
    /// How many stripes its length said it has.
    pub stripes: u64,
}

impl Purge {
    /// The name of its note.
    #[must_use]
    pub fn name(&self) -> String {
        let Self { number, ino, pool, stripes } = self;
        format!("{PURGE_PREFIX}{number:016x}.{:016x}.{:02x}.{stripes:016x}", ino.0, pool.0)
    }

    /// The content of a note with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PURGE_PREFIX)?.split('.');
        let number = hex::fixed(parts.next()?, 16)?;
        let ino = Ino(hex::fixed(parts.next()?, 16)?);
        let pool = Pool(u8::try_from(hex::fixed(parts.next()?, 2)?).ok()?);
        let stripes = hex::fixed(parts.next()?, 16)?;
        parts.next().is_none().then_some(Self { number, ino, pool, stripes })
    }
}

fn put_root(out: &mut Vec<u8>, root: &Attr) {
    let Attr { ino, mode, uid, gid, nlink, size, atime, mtime, ctime, btime, .. } = *root;
    out.put_varint(ino.0);
    for number in [mode, uid, gid, nlink] {
        out.put_varint(u64::from(number));
    }
    out.put_varint(size);
    for time in [atime, mtime, ctime, btime] {
        out.put_signed(time.0);
    }
}

fn read_root(reader: &mut Reader<'_>) -> Result<Attr, Malformed> {
    let ino = Ino(reader.varint()?);
    let (mode, uid) = (reader.varint_u32()?, reader.varint_u32()?);
    let (gid, nlink) = (reader.varint_u32()?, reader.varint_u32()?);
    let size = reader.varint()?;
    let mut time = || reader.signed().map(Timestamp);
    let (atime, mtime, ctime, btime) = (time()?, time()?, time()?, time()?);
    Ok(Attr { ino, mode, uid, gid, nlink, size, atime, mtime, ctime, btime, ..Attr::default() })
}

fn read(bytes: &[u8]) -> Result<Snapshots, Malformed> {
    let (_, mut reader) = FRAME.open(bytes)?;
    let before = reader;
    let (taken, changes, next_ino) = (reader.varint()?, reader.varint()?, reader.varint()?);
    let count = reader.varint()?;
    let mut live = Vec::new();
    for _ in 0..count {
        let (number, id) = (reader.varint()?, reader.u64()?);
        let (time, path) = (Timestamp(reader.signed()?), reader.bytes()?.to_vec());
        let start = reader;
        let policy = String::from_utf8(reader.bytes()?.to_vec());
        let policy = policy.map_err(|_| start.malformed("text"))?;
        live.push(Snapshot { number, id, time, path, policy, root: read_root(&mut reader)? });
    }
    reader.end()?;
    let in_order = live.is_sorted_by(|a: &Snapshot, b| a.number < b.number)
        && live.last().is_none_or(|last| last.number <= taken);
    if live.len() > SNAPSHOTS_MAX || !in_order || !(NUMBERS.start..=NUMBERS.end).contains(&next_ino)
    {
        return Err(before.malformed("snapshots in order, and not too many"));
    }
    Ok(Snapshots { taken, changes, next_ino, live })
}

#[cfg(test)]
mod tests;
