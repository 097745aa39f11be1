//! Pieces of directories: rows that are to be stored as a run, and the summary of a stored piece.
//!
//! Invariant: two parts of which each has a name that the other has are found to meet.

use metastore::{RowValue, Rows, RunInfo, RunReader, encode_clients_run, run_name};
use types::{DirFragId, Frag, Ino};

use super::{ByValue, OBJECT_BYTES_MAX};

/// Rows of a part that is worth a thread.
const HALF_MIN: usize = 1 << 15;

/// Rows of a directory that are to be stored as a run.
#[derive(Debug)]
pub struct Piece {
    pub(super) dir: Ino,
    pub(super) first: Ino,
    pub(super) rows: Rows,
}

/// A run that is stored.
#[derive(Debug)]
pub struct StoredRun {
    pub(super) dir: Ino,
    pub(super) info: RunInfo,
    /// Its first name and its last one.
    ends: (Vec<u8>, Vec<u8>),
    /// Two hashes of each name, in order.
    hashes: Vec<u64>,
}

impl Piece {
    /// A caller waits for the piece: two threads sort two large halves sooner than one sorts the
    /// whole.
    pub(super) fn halves(mut self) -> impl Iterator<Item = Self> {
        let middle = self.rows.len() / 2;
        let other = (middle >= HALF_MIN).then(|| {
            let rows = self.rows.split_off(middle);
            let first = match rows.iter().next().map(|row| row.value) {
                Some(RowValue::Inode(record)) => record.attr.ino,
                Some(RowValue::Remote { .. } | RowValue::Removed) | None => self.first,
            };
            Self { dir: self.dir, first, rows }
        });
        std::iter::once(self).chain(other)
    }

    /// Sorts and encodes it. This is most of the work, and needs nothing but the piece.
    ///
    /// # Errors
    /// If a name is in it twice, or it is too large for an object.
    pub fn encode(self) -> Result<((String, Vec<u8>), StoredRun), ByValue> {
        let Self { dir, first, rows } = self;
        let dirfrag = DirFragId { ino: dir, frag: Frag::WHOLE };
        let (id, bytes) = encode_clients_run(dirfrag, first, &rows);
        if bytes.len() as u64 > OBJECT_BYTES_MAX {
            return Err(ByValue::TooLarge);
        }
        let run = RunReader::open(&bytes).map_err(|_| ByValue::Senseless)?;
        if run.rows() != rows.len() as u64 {
            return Err(ByValue::TakenTwice);
        }
        let mut hashes: Vec<u64> = rows.names().map(hash).collect();
        hashes.sort_unstable();
        let (min, max) = (rows.names().min(), rows.names().max());
        let ends = (min.unwrap_or_default().to_vec(), max.unwrap_or_default().to_vec());
        let part = StoredRun { dir, info: RunInfo::of(&run), ends, hashes };
        Ok(((run_name(dirfrag, id), bytes), part))
    }
}

/// Two hashes of 32 bits: that of directories, and another.
fn hash(name: &[u8]) -> u64 {
    u64::from(types::name_hash(name)) << 32 | u64::from(journal::checksum(name))
}

impl StoredRun {
    /// The object that it is stored in.
    #[must_use]
    pub fn object(&self) -> String {
        run_name(DirFragId { ino: self.dir, frag: Frag::WHOLE }, self.info.id)
    }

    /// Whether a name may be in both.
    pub(super) fn meets(&self, other: &Self) -> bool {
        if self.ends.1 < other.ends.0 || other.ends.1 < self.ends.0 {
            return false;
        }
        let (mut left, mut right) = (self.hashes.iter().peekable(), other.hashes.iter().peekable());
        while let (Some(one), Some(two)) = (left.peek(), right.peek()) {
            match one.cmp(two) {
                std::cmp::Ordering::Less => left.next(),
                std::cmp::Ordering::Greater => right.next(),
                std::cmp::Ordering::Equal => return true,
            };
        }
        false
    }
}
