//! Decoupled subtrees move to another rank with the subtree around them (F-13).
//!
//! Before the list of subtrees is replaced the table notes the entries that leave (`leaving`), and
//! the list carries a copy. From the replacement on the copy is valid: a later reader of the note,
//! in this term or the next one, compares how often the subtree has moved and drops the entries
//! that left. The other rank stores the copy in its own table before it reports that the subtree is
//! taken in. So after any crash the table of exactly one rank has the owner of a decoupled subtree.
//!
//! Invariant: numbers that left are never granted again, here or there. Numbers that a client does
//! not use are lost: only the table that granted a range could take it back, and there it has no
//! owner any more.

use namespace::Namespace;
use types::bytes::{Malformed, Put, Reader};
use types::{Ino, Seq};

use super::codec::{put_decoupling, read_decoupling};
use super::{Decoupling, Tables};
use crate::merge::JournalId;

/// Directories on the way from the root of the moving subtree to a decoupled one in it.
const WAY_MAX: usize = 4096;

/// A decoupled subtree that comes from another rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) root: Ino,
    pub(crate) known: Decoupling,
    /// The directories above it, down from the root of the subtree that moves.
    pub(crate) way: Vec<Ino>,
    /// Which journal of it was merged last, and up to where.
    pub(crate) done: Option<(JournalId, Seq)>,
}

impl Moved {
    /// The bytes in the list of subtrees; empty for none.
    pub(crate) fn encode(all: &[Self]) -> Vec<u8> {
        let mut out = Vec::new();
        if all.is_empty() {
            return out;
        }
        out.put_varint(all.len() as u64);
        for Self { root, known, way, done } in all {
            put_decoupling(&mut out, *root, known);
            out.put_varint(way.len() as u64);
            way.iter().for_each(|dir| out.put_varint(dir.0));
            out.put_u8(u8::from(done.is_some()));
            if let Some((journal, seq)) = done {
                out.put_u32(journal.0);
                out.put_varint(seq.0);
            }
        }
        out
    }

    /// The same read.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<Self>, Malformed> {
        let mut all = Vec::new();
        if bytes.is_empty() {
            return Ok(all);
        }
        let mut reader = Reader::new(bytes);
        for _ in 0..reader.length()? {
            let (root, known) = read_decoupling(&mut reader)?;
            let start = reader;
            let length = reader.length()?;
            if length > WAY_MAX {
                return Err(start.malformed("a way that is not too long"));
            }
            let way = (0..length).map(|_| Ok(Ino(reader.varint()?))).collect::<Result<_, _>>()?;
            let done = match reader.u8()? {
                0 => None,
                _ => Some((JournalId(reader.u32()?), Seq(reader.varint()?))),
            };
            all.push(Self { root, known, way, done });
        }
        reader.end()?;
        Ok(all)
    }
}

impl Tables {
    /// The subtrees that clients have decoupled in a subtree, or at its root.
    pub(crate) fn decoupled_below(&self, namespace: &Namespace, root: Ino) -> Vec<Ino> {
        let all = self.decoupled.keys().copied();
        all.filter(|it| namespace.is_within(*it, root)).collect()
    }

    /// Notes that these, and only these, leave with a subtree when that has moved so often. Returns
    /// whether the store has the note.
    pub(crate) fn leave(&mut self, root: Ino, moves: u64, roots: &[Ino]) -> bool {
        for (below, known) in &mut self.decoupled {
            let goes = roots.contains(below);
            let noted = known.leaving.is_some_and(|(with, _)| with == root);
            if goes && known.leaving != Some((root, moves)) || !goes && noted {
                known.leaving = goes.then_some((root, moves));
                self.dirty = true;
            }
        }
        self.is_idle()
    }

    /// The decoupled subtrees that were to leave with a subtree stay, as that one does.
    pub(crate) fn stay(&mut self, subtree: Ino) {
        for known in self.decoupled.values_mut() {
            if known.leaving.is_some_and(|(with, _)| with == subtree) {
                known.leaving = None;
                self.dirty = true;
            }
        }
        self.gone_stays(subtree);
    }

    /// The entry of a decoupled subtree for the rank that takes it over. A released one with all
    /// merges in the store is not needed there.
    pub(crate) fn to_move(&self, root: Ino) -> Option<Decoupling> {
        let known = self.decoupled.get(&root)?;
        let done = known.released && self.given_back.contains_key(&root);
        // Unused numbers of it do not come back: that rank did not grant them.
        (!done).then(|| Decoupling { taken_over: true, leaving: None, ..known.clone() })
    }

    /// Forgets the entries that left, by the list of subtrees: how often each was moved. Returns
    /// the roots.
    pub(crate) fn drop_left(&mut self, moves: impl Fn(Ino) -> u64) -> Vec<Ino> {
        let left = |known: &Decoupling| known.leaving.is_some_and(|(of, at)| moves(of) >= at);
        let gone: Vec<(Ino, Decoupling)> =
            self.decoupled.extract_if(.., |_, known| left(known)).collect();
        let space = Ino::space_of(self.rank);
        for (root, known) in &gone {
            self.given_back.remove(root);
            self.dirty = true;
            for range in &known.ranges {
                let own = space.start <= range.start && range.end <= space.end;
                if own && !self.departed.contains(Ino(range.start)) {
                    self.departed.put(*range);
                }
            }
        }
        gone.into_iter().map(|(root, _)| root).collect()
    }

    /// Takes in an entry from another rank.
    pub(crate) fn take_moved(&mut self, root: Ino, known: Decoupling) {
        debug_assert!(known.leaving.is_none(), "{root}: the subtree has arrived");
        self.given_back.remove(&root);
        self.decoupled.insert(root, known);
        self.dirty = true;
    }
}

#[cfg(test)]
mod tests {
    use policy::Policy;
    use types::{ClientId, Cred, Epoch, InoRange, Rank};

    use super::*;

    const SUBTREE: Ino = Ino(70);
    const OUTER: Ino = Ino(60);

    fn decoupled(rank: Rank) -> (Tables, InoRange) {
        let mut tables = Tables::new(rank);
        tables.take_over(None).unwrap();
        let range = tables.grant(100).unwrap();
        let cred = Cred { uid: 3, gid: 4, groups: vec![5] };
        let mut known = Tables::decoupling(ClientId(9), &Policy::default(), range, Epoch(1), &cred);
        known.next = Some("consistency: rpcs\n".into());
        tables.decoupled.insert(SUBTREE, known);
        (tables, range)
    }

    #[test]
    fn the_record_of_a_move_reads_back_and_truncation_is_detected() {
        let (tables, _) = decoupled(Rank(0));
        let known = tables.to_move(SUBTREE).unwrap();
        let done = Some((JournalId(7), Seq(300)));
        let moved = Moved { root: SUBTREE, known, way: vec![OUTER, Ino(65)], done };
        let all = [moved.clone(), Moved { root: Ino(80), done: None, ..moved }];
        let bytes = Moved::encode(&all);
        assert_eq!(Moved::decode(&bytes).unwrap(), all);
        assert_eq!(Moved::decode(&Moved::encode(&[])).unwrap(), []);
        for length in 1..bytes.len() {
            assert!(Moved::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn recovery_finds_a_moved_subtree_by_the_list_of_subtrees() {
        let (mut tables, range) = decoupled(Rank(0));
        assert!(!tables.leave(OUTER, 3, &[SUBTREE]));
        for (moves, here) in [(2, true), (3, false), (4, false)] {
            let mut next = Tables::new(Rank(0));
            next.take_over(Some((&tables.encode(), 1))).unwrap();
            let gone = next.drop_left(|_| moves);
            assert_eq!((gone.is_empty(), next.decoupled.len()), (here, usize::from(here)));
            // No client gets its numbers, and no claim to them is believed.
            assert!(next.grant(50).unwrap().start >= range.end);
            let (other, ino) = (ClientId(2), Ino(range.start + 7));
            assert!(!next.may_be_of(other, None, ino), "moved {moves} times");
            // The next one knows it, too.
            let mut last = Tables::new(Rank(0));
            last.take_over(Some((&next.encode(), 2))).unwrap();
            assert!(!last.may_be_of(other, None, ino));
        }
    }

    #[test]
    fn a_cancelled_move_does_not_leave_with_the_next_one() {
        let (mut tables, _) = decoupled(Rank(0));
        tables.leave(OUTER, 3, &[SUBTREE]);
        tables.stay(OUTER);
        tables.leave(OUTER, 3, &[]);
        assert_eq!(tables.drop_left(|_| 3), []);
    }

    #[test]
    fn numbers_of_another_rank_do_not_come_back() {
        let (from, range) = decoupled(Rank(0));
        let mut to = Tables::new(Rank(1));
        to.take_over(None).unwrap();
        to.take_moved(SUBTREE, from.to_move(SUBTREE).unwrap());
        let said = InoRange { start: range.start + 10, end: range.end };
        let unused = to.unused(SUBTREE, ClientId(9), [said].into_iter());
        assert_eq!(unused, []);
        assert_eq!(to.decoupled[&SUBTREE].ranges, [range]);
    }
}
