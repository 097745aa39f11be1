//! What others may want to know of a rank's table: those that check a store.

use types::bytes::Malformed;
use types::{ClientId, Ino, InoRange, Rank, Seq};

use super::Tables;

/// What a rank must never forget, as far as it is about inode numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankTable {
    /// Whose.
    pub rank: Rank,
    /// Numbers of the rank from here on were never given to anybody.
    pub next: u64,
    /// The decoupled subtrees: root, owner and the numbers that the owner may use.
    pub decoupled: Vec<(Ino, ClientId, Vec<InoRange>)>,
}

impl RankTable {
    /// The object of a rank that begins: its inodes have numbers from `next` on, and its journal goes on
    /// behind `last`.
    #[must_use]
    pub fn begin(rank: Rank, next: u64, last: Seq) -> Vec<u8> {
        let mut tables = Tables::new(rank);
        (tables.next, tables.end.last) = (next, last);
        tables.encode()
    }

    /// Reads the object that [`rank_name`](metastore::request::rank_name) names.
    ///
    /// # Errors
    /// If it is malformed, or of a version that is not known.
    pub fn decode(rank: Rank, bytes: &[u8]) -> Result<Self, Malformed> {
        let mut tables = Tables::new(rank);
        tables.decode(bytes)?;
        let decoupled = tables.decoupled.iter();
        let decoupled = decoupled.map(|(ino, it)| (*ino, it.client, it.ranges.clone())).collect();
        Ok(Self { rank, next: tables.next, decoupled })
    }
}
