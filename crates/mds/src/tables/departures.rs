//! Subtrees that went to another rank while this rank's journal still speaks of them (B-03).
//!
//! A subtree leaves when the metadata store has all of it, which takes as long as writing the
//! changes in *that subtree*. Earlier events about it stay in the journal until that is trimmed,
//! for other reasons, and a recovery must not replay them on directories that another rank has
//! changed since. So before the list of subtrees is replaced the table notes which directories
//! leave, and up to where the journal may name them; a recovery skips these events
//! (`recover::behind`).
//!
//! The list of subtrees tells whether a subtree left: by the number of its moves. The list may drop
//! that number when the subtree is no subtree any more; before it can, the table notes that the
//! subtree left.

use types::bytes::{Malformed, Put, Reader};
use types::{Ino, Seq};

use super::Tables;

/// So many directories are noted. A subtree with more leaves when the journal is trimmed.
pub(crate) const GONE_MAX: usize = 4096;
/// So many inodes with several names leave with a subtree. A subtree with more stays: the list of
/// subtrees carries all of them.
pub(crate) const LINKED_MAX: usize = 16_384;

/// See the module documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) root: Ino,
    /// How often it has moved when it is gone.
    pub(crate) moves: u64,
    /// The journal may name it up to here.
    pub(crate) last: Seq,
    pub(crate) dirs: Vec<Ino>,
    /// The inodes with several names that leave with it: they are not in its directories, but in
    /// that of the rank. Events about them up to `last` are replayed, and then they are forgotten.
    pub(crate) linked: Vec<Ino>,
    /// It is known that it went.
    pub(crate) went: bool,
}

/// All of them, and the store's knowledge of them.
#[derive(Debug, Default)]
pub(crate) struct GoneList {
    pub(super) all: Vec<Gone>,
    /// The departure of one is not in the store, or only in the put under way.
    unstored: bool,
    in_flight: bool,
}

impl GoneList {
    pub(super) fn put_begins(&mut self) {
        self.in_flight = std::mem::take(&mut self.unstored);
    }

    pub(super) fn put_ended(&mut self, stored: bool) {
        self.unstored |= std::mem::take(&mut self.in_flight) && !stored;
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.all.len() as u64);
        for Gone { root, moves, last, dirs, linked, went } in &self.all {
            [root.0, *moves, last.0].into_iter().for_each(|value| out.put_varint(value));
            out.put_u8(u8::from(*went));
            for inos in [dirs, linked] {
                out.put_varint(inos.len() as u64);
                inos.iter().for_each(|ino| out.put_varint(ino.0));
            }
        }
    }

    /// `has_linked`: tables of older versions say nothing of inodes with several names.
    pub(super) fn decode(reader: &mut Reader<'_>, has_linked: bool) -> Result<Self, Malformed> {
        let mut all = Vec::new();
        for _ in 0..reader.length()? {
            let (root, moves) = (Ino(reader.varint()?), reader.varint()?);
            let (last, went) = (Seq(reader.varint()?), reader.u8()? != 0);
            let dirs = read_inos(reader, GONE_MAX, "not too many directories")?;
            let linked = if has_linked {
                read_inos(reader, LINKED_MAX, "not too many inodes with several names")?
            } else {
                Vec::new()
            };
            all.push(Gone { root, moves, last, dirs, linked, went });
        }
        Ok(Self { all, ..Self::default() })
    }
}

fn read_inos(
    reader: &mut Reader<'_>,
    max: usize,
    expected: &'static str,
) -> Result<Vec<Ino>, Malformed> {
    let start = *reader;
    let count = reader.length()?;
    if count > max {
        return Err(start.malformed(expected));
    }
    (0..count).map(|_| Ok(Ino(reader.varint()?))).collect()
}

impl Tables {
    /// Notes a subtree that is about to leave, unless it is noted. Forgets subtrees that a journal
    /// from `first` on does not name, if the store has all changes before `unstored` in the
    /// directory of inodes with several names.
    pub(crate) fn note_gone(&mut self, gone: &Gone, first: Seq, unstored: Seq) {
        if self.gone.all.contains(gone) {
            return;
        }
        assert!(gone.dirs.len() <= GONE_MAX, "{}: noted directories are bounded", gone.root);
        assert!(gone.linked.len() <= LINKED_MAX, "{}: noted inodes are bounded", gone.root);
        let counts = |it: &Gone| match it.went {
            true => it.last >= first || (!it.linked.is_empty() && it.last >= unstored),
            false => it.root != gone.root,
        };
        self.gone.all.retain(counts);
        self.gone.all.push(gone.clone());
        self.dirty = true;
    }

    /// How many directories, and inodes with several names, of subtrees that left are named by a
    /// journal that begins at `first`.
    pub(crate) fn gone_dirs(&self, first: Seq) -> usize {
        let named = self.gone.all.iter().filter(|gone| gone.went && gone.last >= first);
        named.map(|gone| gone.dirs.len() + gone.linked.len()).sum()
    }

    /// A subtree that was about to go went.
    pub(crate) fn note_went(&mut self, root: Ino) {
        for gone in self.gone.all.iter_mut().filter(|gone| !gone.went && gone.root == root) {
            gone.went = true;
            self.gone.unstored = true;
            self.dirty = true;
        }
    }

    /// It stays after all.
    pub(super) fn gone_stays(&mut self, root: Ino) {
        let before = self.gone.all.len();
        self.gone.all.retain(|gone| gone.went || gone.root != root);
        self.dirty |= self.gone.all.len() != before;
    }

    /// Whether the store knows of every subtree that went that it did.
    pub(crate) fn is_gone_stored(&self) -> bool {
        !self.gone.unstored && !self.gone.in_flight
    }

    /// After a crash: the subtrees that left, by the number of moves in the list of subtrees. The
    /// other ones stayed.
    pub(crate) fn recover_gone(&mut self, moves: impl Fn(Ino) -> u64) -> &[Gone] {
        for gone in self.gone.all.iter_mut().filter(|gone| !gone.went) {
            gone.went = moves(gone.root) >= gone.moves;
            self.gone.unstored |= gone.went;
        }
        let before = self.gone.all.len();
        self.gone.all.retain(|gone| gone.went);
        self.dirty |= self.gone.unstored || self.gone.all.len() != before;
        &self.gone.all
    }
}

#[cfg(test)]
mod tests {
    use types::Rank;

    use super::*;

    const ROOT: Ino = Ino(60);

    fn gone(moves: u64, last: u64) -> Gone {
        let (dirs, linked) = (vec![ROOT, Ino(70)], Vec::new());
        Gone { root: ROOT, moves, last: Seq(last), dirs, linked, went: false }
    }

    fn begun() -> Tables {
        let mut tables = Tables::new(Rank(0));
        tables.take_over(None).unwrap();
        tables
    }

    fn next(tables: &Tables) -> Tables {
        let mut next = Tables::new(Rank(0));
        next.take_over(Some((&tables.encode(), 1))).unwrap();
        next
    }

    #[test]
    fn recovery_finds_a_departure_by_the_list_of_subtrees() {
        let mut tables = begun();
        tables.note_gone(&gone(3, 100), Seq(1), Seq(u64::MAX));
        for (moves, went) in [(2, false), (3, true), (4, true)] {
            let mut after = next(&tables);
            let found = after.recover_gone(|_| moves).to_vec();
            assert_eq!(found.len(), usize::from(went), "moved {moves} times");
            assert_eq!(after.is_gone_stored(), !went);
            // The list may forget the subtree when the store knows.
            after.gone.put_begins();
            assert!(!went || !after.is_gone_stored());
            after.gone.put_ended(true);
            assert!(after.is_gone_stored());
            assert_eq!(next(&after).recover_gone(|_| 0), found);
        }
    }

    #[test]
    fn recovery_does_not_skip_a_subtree_that_stays() {
        let mut tables = begun();
        tables.note_gone(&gone(1, 100), Seq(1), Seq(u64::MAX));
        tables.stay(ROOT);
        assert_eq!(next(&tables).recover_gone(|_| 1), []);
    }

    #[test]
    fn a_departure_without_events_in_the_journal_goes_with_the_next_one() {
        let mut tables = begun();
        tables.note_gone(&gone(1, 100), Seq(1), Seq(u64::MAX));
        tables.note_went(ROOT);
        tables.note_gone(&gone(3, 200), Seq(100), Seq(u64::MAX));
        tables.note_went(ROOT);
        assert_eq!(next(&tables).recover_gone(|_| 0).len(), 2);
        assert_eq!([1, 100, 101, 201].map(|first| tables.gone_dirs(Seq(first))), [4, 4, 2, 0]);
        tables.note_gone(&gone(5, 300), Seq(201), Seq(u64::MAX));
        assert_eq!(next(&tables).recover_gone(|_| 5), [Gone { went: true, ..gone(5, 300) }]);
    }

    #[test]
    fn linked_inodes_are_noted_until_the_store_has_their_departure() {
        let mut tables = begun();
        let linked = Gone { linked: vec![Ino(80), Ino(90)], dirs: Vec::new(), ..gone(1, 100) };
        tables.note_gone(&linked, Seq(1), Seq(u64::MAX));
        tables.note_went(ROOT);
        tables.note_gone(&Gone { root: Ino(61), ..gone(1, 200) }, Seq(150), Seq(100));
        let known = next(&tables).recover_gone(|_| 0).to_vec();
        assert_eq!(known, [Gone { went: true, ..linked }]);
        tables.note_gone(&Gone { root: Ino(62), ..gone(1, 300) }, Seq(150), Seq(101));
        assert_eq!(next(&tables).recover_gone(|_| 0), []);
    }

    #[test]
    fn a_failed_put_stores_no_departure() {
        let mut tables = begun();
        tables.note_gone(&gone(1, 100), Seq(1), Seq(u64::MAX));
        tables.note_went(ROOT);
        tables.gone.put_begins();
        tables.gone.put_ended(false);
        assert!(!tables.is_gone_stored());
    }
}
