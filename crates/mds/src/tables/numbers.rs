//! Inode numbers: which the server uses itself, which clients were given, which came back.
//!
//! Invariant: a number that any client used, or may have used, is never granted again.

use types::{ClientId, Errno, Ino, InoRange};

use super::stock::Stock;
use super::{NumberHolder, Tables};

/// Numbers reserved at a time for inodes that the server creates itself.
pub(super) const RESERVE: u64 = 1 << 20;
/// The first reservation for a holder.
const FIRST: u64 = 1 << 12;

/// The end of a range that its client has not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GivenBack {
    /// The range as it was given.
    of: InoRange,
    /// The first number that comes back.
    start: u64,
}

impl GivenBack {
    /// The part of a range that its client keeps.
    pub(crate) fn rest_of(&self, range: InoRange) -> InoRange {
        if self.of == range { InoRange { end: self.start, ..range } } else { range }
    }
}

impl Tables {
    /// A number for an inode that the server creates, or `None` until more are reserved.
    #[inline]
    pub(crate) fn take_ino(&mut self) -> Option<Ino> {
        if let Some(count) = self.own.wanted(RESERVE, RESERVE) {
            let range = self.reserve(count);
            self.own.reserve(range);
        }
        self.own.ready.take()
    }

    /// The same for a request of a holder.
    pub(crate) fn take_ino_of(&mut self, holder: NumberHolder) -> Option<Ino> {
        if let Some(count) = self.holders.stock(holder).wanted(FIRST, RESERVE) {
            let range = self.reserve(count);
            self.holders.stock(holder).reserve(range);
            self.holders.give(self.epoch, holder, range);
        }
        self.holders.stock(holder).ready.take()
    }

    fn reserve(&mut self, count: u64) -> InoRange {
        let range = InoRange { start: self.next, end: self.next + count };
        (self.next, self.dirty) = (range.end, true);
        range
    }

    /// All numbers that wait to be used.
    pub(super) fn stocks(&mut self) -> impl Iterator<Item = &mut Stock> {
        self.holders.stocks_mut().chain([&mut self.own])
    }

    /// The holder of this client may claim the numbers of a range, also after a restart.
    pub(crate) fn give(&mut self, holder: Option<NumberHolder>, range: InoRange) {
        if let Some(holder) = holder {
            self.holders.give(self.epoch, holder, range);
            self.dirty = true;
        }
    }

    /// Whether a holder was given a number, in this term or in one that crashed.
    pub(crate) fn gave(&self, holder: NumberHolder, ino: Ino) -> bool {
        self.holders.has(holder, ino)
    }

    /// Numbers for a client. They may be handed out once the tables are stored.
    pub(crate) fn grant(&mut self, count: u64) -> Result<InoRange, Errno> {
        self.dirty = true;
        if let Some(range) = self.free.take(count) {
            return Ok(range);
        }
        let space = Ino::space_of(self.rank);
        let end = self.next.checked_add(count).filter(|end| *end <= space.end);
        let range = InoRange { start: self.next, end: end.ok_or(Errno::NoSpace)? };
        assert!(!self.free.contains(Ino(range.start)), "{range:?} was never granted");
        self.next = range.end;
        Ok(range)
    }

    /// Whether a number was granted, and no other client has it for a subtree of its own: a client
    /// that resends a create may claim that an earlier answer, even of an earlier server, had it. A
    /// holder may claim its own numbers only.
    pub(crate) fn may_be_of(
        &self,
        client: ClientId,
        holder: Option<NumberHolder>,
        ino: Ino,
    ) -> bool {
        let start = Ino::space_of(self.rank).start;
        let given = InoRange { start, end: self.next };
        let mut others = self.decoupled.values().filter(|known| known.client != client);
        given.contains(ino)
            && !self.own.has(ino)
            && !self.holders.stocks().any(|stock| stock.has(ino))
            && holder.is_none_or(|holder| self.gave(holder, ino))
            && !self.free.contains(ino)
            && !self.departed.contains(ino)
            && !others.any(|known| known.ranges.iter().any(|range| range.contains(ino)))
    }

    /// Which of the numbers that a client reports as unused are the ends of ranges that it was
    /// granted for a subtree: each range, and the rest of it. The first number of a range never
    /// comes back, because journal objects have it in their names.
    pub(crate) fn unused(
        &self,
        subtree: Ino,
        client: ClientId,
        said: impl Iterator<Item = InoRange>,
    ) -> Vec<GivenBack> {
        // Files of the previous client, unknown to all other parties, may still turn up.
        let known = self.owner(subtree).filter(|known| known.client == client && !known.taken_over);
        let Some(known) = known else { return Vec::new() };
        let tail = |said: InoRange| {
            let of = known.ranges.iter().find(|range| {
                range.start <= said.start && said.start < said.end && said.end == range.end
            });
            let of = *of?;
            let start = said.start.max(of.start + 1);
            (start < of.end).then_some(GivenBack { of, start })
        };
        said.filter_map(tail).collect()
    }

    /// Takes back the unused numbers of a client's subtree. Other clients may get them from now on:
    /// the object that makes them free for a later server also takes them from this client.
    pub(crate) fn give_back(&mut self, subtree: Ino, unused: &[GivenBack]) {
        let Some(known) = self.decoupled.get_mut(&subtree) else { return };
        for GivenBack { of, start } in unused {
            // Asked for again, it is not there any more.
            let Some(range) = known.ranges.iter_mut().find(|range| *range == of) else { continue };
            let keeps = range.start < *start && *start < range.end;
            assert!(keeps, "the first number of {of:?} does not come back");
            range.end = *start;
            self.free.put(InoRange { start: *start, end: of.end });
            self.dirty = true;
        }
        // The numbers granted last need not be remembered as free.
        if let Some(start) = self.free.take_before(self.next) {
            self.next = start;
        }
    }
}

#[cfg(test)]
mod tests {
    use policy::Policy;
    use types::{Cred, Epoch, Rank};

    use super::*;

    const SUBTREE: Ino = Ino(7);
    const CLIENT: ClientId = ClientId(3);

    fn range(start: u64, end: u64) -> InoRange {
        InoRange { start, end }
    }

    /// A rank that gave a subtree and so many numbers to a client.
    fn tables(counts: &[u64]) -> (Tables, Vec<InoRange>) {
        let mut tables = Tables::new(Rank(0));
        tables.take_over(None).unwrap();
        let ranges: Vec<_> = counts.iter().map(|count| tables.grant(*count).unwrap()).collect();
        let (policy, cred) = (Policy::default(), Cred::root());
        let mut known = Tables::decoupling(CLIENT, &policy, ranges[0], Epoch(1), &cred);
        known.ranges.clone_from(&ranges);
        tables.decoupled.insert(SUBTREE, known);
        (tables, ranges)
    }

    fn give_back(tables: &mut Tables, client: ClientId, said: &[InoRange]) {
        let unused = tables.unused(SUBTREE, client, said.iter().copied());
        tables.give_back(SUBTREE, &unused);
    }

    fn ranges(tables: &Tables) -> &[InoRange] {
        &tables.decoupled[&SUBTREE].ranges
    }

    #[test]
    fn only_returned_numbers_are_granted_again() {
        let (mut tables, given) = tables(&[100, 100]);
        let others = tables.grant(50).unwrap();
        let [first, second] = given[..] else { panic!("two ranges") };
        // All of the second, whose first number stays: journals are named by it.
        give_back(&mut tables, CLIENT, &[range(first.start + 30, first.end), second]);
        assert_eq!(
            *ranges(&tables),
            [range(first.start, first.start + 30), range(second.start, second.start + 1)]
        );
        assert_eq!(tables.grant(70), Ok(range(first.start + 30, first.end)));
        assert_eq!(tables.grant(100), Ok(range(others.end, others.end + 100)), "99 are too few");
        assert_eq!(tables.grant(99), Ok(range(second.start + 1, second.end)));
    }

    #[test]
    fn the_last_grant_returns_to_the_unused_rest() {
        let (mut tables, given) = tables(&[100]);
        give_back(&mut tables, CLIENT, &[range(given[0].start + 10, given[0].end)]);
        assert_eq!(tables.grant(500).unwrap().start, given[0].start + 10);
        assert_eq!(tables.free.ranges().count(), 0);
    }

    #[test]
    fn only_the_end_of_an_own_range_returns_and_only_once() {
        let (mut tables, given) = tables(&[100, 100]);
        let others = tables.grant(50).unwrap();
        let InoRange { start, end } = given[0];
        let wrong =
            [range(start + 10, end - 1), range(start + 10, end + 10), range(end, end), others];
        give_back(&mut tables, CLIENT, &wrong);
        give_back(&mut tables, ClientId(4), &[range(start + 10, end)]);
        assert_eq!(*ranges(&tables), given);
        // The same report again, after another client has the numbers.
        let said = [range(start + 10, end)];
        let unused = tables.unused(SUBTREE, CLIENT, said.into_iter());
        tables.give_back(SUBTREE, &unused);
        assert_eq!(tables.grant(90), Ok(said[0]));
        tables.give_back(SUBTREE, &unused);
        give_back(&mut tables, CLIENT, &said);
        assert_eq!(tables.free.ranges().count(), 0);
    }

    #[test]
    fn numbers_of_a_subtree_that_was_taken_over_do_not_return() {
        let (mut tables, given) = tables(&[100]);
        tables.decoupled.get_mut(&SUBTREE).unwrap().taken_over = true;
        give_back(&mut tables, CLIENT, &[range(given[0].start + 10, given[0].end)]);
        assert_eq!(*ranges(&tables), given);
    }

    #[test]
    fn the_next_server_knows_what_came_back() {
        let (mut tables, given) = tables(&[100, 100]);
        tables.grant(50).unwrap();
        give_back(&mut tables, CLIENT, &[range(given[0].start + 30, given[0].end)]);
        tables.decoupled.get_mut(&SUBTREE).unwrap().taken_over = true;
        let bytes = tables.encode();
        let mut next = Tables::new(Rank(0));
        next.decode(&bytes).unwrap();
        assert_eq!(
            (&next.decoupled, &next.free, next.next),
            (&tables.decoupled, &tables.free, tables.next)
        );
        assert_eq!(next.grant(70), Ok(range(given[0].start + 30, given[0].end)));
    }

    #[test]
    fn the_table_of_another_rank_is_refused() {
        let (tables, _) = tables(&[100]);
        let bytes = tables.encode();
        assert!(Tables::new(Rank(1)).decode(&bytes).is_err());
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Tables::new(Rank(0)).decode(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_table_of_version_1_has_nothing_free() {
        let (tables, _) = tables(&[100]);
        let mut bytes = tables.encode();
        // Without the number of free ranges, of clients with caches, of departed ranges, and the
        // checksum.
        bytes.truncate(bytes.len() - 7);
        bytes[8] = 1;
        let crc = journal::checksum(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        let mut next = Tables::new(Rank(0));
        next.decode(&bytes).unwrap();
        assert_eq!((&next.decoupled, next.next), (&tables.decoupled, tables.next));
        bytes[8] = 5;
        assert!(next.decode(&bytes).is_err());
    }
}
