//! The table of a rank as the store's checker reads and rebuilds it.

use types::bytes::Malformed;
use types::{ClientId, Epoch, Ino, InoRange, Rank, Seq};

use super::Tables;

/// The numbers in the table of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankTable {
    /// Whose.
    pub rank: Rank,
    /// Numbers of the rank from here on were never granted.
    pub next: u64,
    /// The decoupled subtrees: root, owner and the numbers that the owner may use.
    pub decoupled: Vec<(Ino, ClientId, Vec<InoRange>)>,
    /// The term that stored it.
    pub epoch: Epoch,
    /// The largest number of a client that it names; 0 for none.
    pub last_client: ClientId,
}

/// Where the numbers of a rank continue after the loss of its table: behind all numbers in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NextNumbers {
    /// Inode numbers begin here.
    pub next: u64,
    /// The next term is later than this one.
    pub epoch: Epoch,
    /// The journal continues behind this position.
    pub last: Seq,
    /// Its next segment has this index.
    pub next_index: u64,
}

impl RankTable {
    /// The object of a rank that begins: its inodes have numbers from `next` on, and its journal
    /// continues behind `last`.
    #[must_use]
    pub fn begin(rank: Rank, next: u64, last: Seq) -> Vec<u8> {
        let mut tables = Tables::new(rank);
        (tables.next, tables.end.last) = (next, last);
        tables.encode()
    }

    /// The new table of a rank whose table was lost: an older table, if one exists, with numbers
    /// that continue behind those in use. The last term counts as crashed.
    ///
    /// # Errors
    /// If the older one is malformed.
    pub fn begin_again(
        rank: Rank,
        older: Option<&[u8]>,
        from: NextNumbers,
    ) -> Result<Vec<u8>, Malformed> {
        let mut tables = Tables::new(rank);
        if let Some(older) = older {
            tables.decode(older)?;
        }
        tables.next = tables.next.max(from.next);
        // The rank may have allocated these numbers since.
        tables.free = super::Free::default();
        tables.epoch = tables.epoch.max(from.epoch);
        tables.stopped = Epoch(0);
        tables.crashed = tables.epoch;
        tables.end.last = tables.end.last.max(from.last);
        tables.end.next_index = tables.end.next_index.max(from.next_index);
        Ok(tables.encode())
    }

    /// Reads the object that [`rank_name`](metastore::request::rank_name) names.
    ///
    /// # Errors
    /// If it is malformed, or of a version that is not known.
    pub fn decode(rank: Rank, bytes: &[u8]) -> Result<Self, Malformed> {
        let mut tables = Tables::new(rank);
        tables.decode(bytes)?;
        let last_client = tables.last_client();
        let decoupled = tables.decoupled.iter();
        let decoupled = decoupled.map(|(ino, it)| (*ino, it.client, it.ranges.clone())).collect();
        let Tables { next, epoch, .. } = tables;
        Ok(Self { rank, next, decoupled, epoch, last_client })
    }
}

impl Tables {
    fn last_client(&self) -> ClientId {
        let decoupled = self.decoupled.values().map(|known| known.client);
        let sessions = self.end.sessions.iter().map(|left| left.client);
        let others = self.fenced.iter().chain(&self.expected).copied().chain(self.lapsed.clients());
        decoupled.chain(sessions).chain(others).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rebuilt_table_grants_no_number_twice() {
        let rank = Rank(1);
        let mut tables = Tables::new(rank);
        tables.take_over(None).unwrap();
        let given = tables.grant(100).unwrap();
        tables.fenced.insert(ClientId(77));
        let older = tables.encode();
        let from =
            NextNumbers { next: given.end + 5, epoch: Epoch(9), last: Seq(1 << 50), next_index: 3 };
        for older in [Some(&older[..]), None] {
            let table = RankTable::begin_again(rank, older, from).unwrap();
            let read = RankTable::decode(rank, &table).unwrap();
            assert_eq!((read.next, read.epoch), (from.next, from.epoch));
            assert_eq!(read.last_client, ClientId(if older.is_some() { 77 } else { 0 }));
            let mut next = Tables::new(rank);
            next.take_over(Some((&table, 1))).unwrap();
            assert_eq!((next.crashed, next.end.last), (Epoch(9), from.last));
            assert!(next.grant(1).unwrap().start >= from.next);
        }
        assert!(RankTable::begin_again(rank, Some(b"damaged"), from).is_err());
    }
}
