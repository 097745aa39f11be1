//! Numbers for parties that do not speak for every user.
//!
//! After a crash a client repeats its creates with the numbers that it was answered, and a log of
//! requests has such numbers. The inode of a number may be in the store alone, where it is found by
//! name only, so a rank cannot ask whether another user's inode has the number. Therefore each such
//! party gets numbers of ranges of its own, and may claim no others. The ranges are in the table of
//! the rank before the first of their numbers is used.
//!
//! The ranges of a term that stopped cleanly are forgotten: the store has its inodes, and no client
//! repeats anything. Those of a crashed term are kept, because a log waits on its disk for the next
//! process of its user.

use std::collections::BTreeMap;

use types::bytes::{Malformed, Put, Reader};
use types::{ClientId, ConnId, Epoch, Ino, InoRange};
use wire::{Identities, SpeaksFor};

use super::stock::Stock;

/// Most ranges of one holder; the oldest are forgotten, and their numbers cannot be claimed.
const RANGES_MAX: usize = 64;
/// Most ranges of all holders.
const ALL_MAX: usize = 16 << 10;

/// A party that gets numbers of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NumberHolder {
    /// The processes of a user.
    User(u32),
    /// A client that speaks for several users, but not for all, or with limited rights.
    Client(ClientId),
}

impl NumberHolder {
    /// The holder of the numbers of a client's files; `None` if the client speaks for every user.
    pub(crate) fn of(identities: &Identities, conn: ConnId, client: ClientId) -> Option<Self> {
        match identities.speaks_for(conn) {
            SpeaksFor::All => None,
            SpeaksFor::User(uid) => Some(Self::User(uid)),
            SpeaksFor::Several => Some(Self::Client(client)),
        }
    }
}

/// A range of numbers, and the term in which it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Given {
    term: Epoch,
    holder: NumberHolder,
    range: InoRange,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Holders {
    /// In the order in which they were given.
    given: Vec<Given>,
    stocks: BTreeMap<NumberHolder, Stock>,
}

impl Holders {
    /// The numbers that wait to be used by a holder.
    pub(super) fn stock(&mut self, holder: NumberHolder) -> &mut Stock {
        self.stocks.entry(holder).or_default()
    }

    /// All numbers that wait to be used.
    pub(super) fn stocks(&self) -> impl Iterator<Item = &Stock> {
        self.stocks.values()
    }

    pub(super) fn stocks_mut(&mut self) -> impl Iterator<Item = &mut Stock> {
        self.stocks.values_mut()
    }

    /// A range is a holder's.
    pub(super) fn give(&mut self, term: Epoch, holder: NumberHolder, range: InoRange) {
        let is_next = |last: &Given| (last.term, last.range.end) == (term, range.start);
        let last = self.given.iter_mut().rev().find(|given| given.holder == holder);
        if let Some(last) = last.filter(|last| is_next(last)) {
            last.range.end = range.end;
            return;
        }
        let of_holder = |given: &Given| given.holder == holder;
        let is_full = self.given.iter().filter(|given| of_holder(given)).count() >= RANGES_MAX;
        if is_full && let Some(oldest) = self.given.iter().position(of_holder) {
            self.given.remove(oldest);
        } else if self.given.len() >= ALL_MAX {
            self.given.remove(0);
        }
        self.given.push(Given { term, holder, range });
    }

    /// Whether a holder was given a number.
    pub(super) fn has(&self, holder: NumberHolder, ino: Ino) -> bool {
        self.given.iter().any(|given| given.holder == holder && given.range.contains(ino))
    }

    /// All that was answered in a term is stored.
    pub(super) fn forget(&mut self, term: Epoch) {
        self.given.retain(|given| given.term != term);
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.given.len() as u64);
        for Given { term, holder, range } in &self.given {
            let (kind, number) = match holder {
                NumberHolder::User(uid) => (1, u64::from(*uid)),
                NumberHolder::Client(client) => (2, client.0),
            };
            out.put_u8(kind);
            [number, term.0, range.start, range.end].into_iter().for_each(|it| out.put_varint(it));
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut given = Vec::new();
        for _ in 0..reader.length()? {
            let offset = reader.offset();
            let (kind, number) = (reader.u8()?, reader.varint()?);
            let holder = match (kind, u32::try_from(number)) {
                (1, Ok(uid)) => NumberHolder::User(uid),
                (2, _) => NumberHolder::Client(ClientId(number)),
                _ => return Err(Malformed { offset, expected: "a user or a client" }),
            };
            let term = Epoch(reader.varint()?);
            let range = InoRange { start: reader.varint()?, end: reader.varint()? };
            given.push(Given { term, holder, range });
        }
        Ok(Self { given, stocks: BTreeMap::new() })
    }

    /// Checks the bounds of the list, and that the ranges have numbers.
    ///
    /// # Panics
    /// If that does not hold.
    pub(super) fn validate(&self, term: Epoch) {
        assert!(self.given.len() <= ALL_MAX, "the ranges of all holders are bounded");
        for given in &self.given {
            assert!(!given.range.is_empty(), "{given:?} has a number");
            assert!(given.term <= term, "{given:?} was given in a term");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: NumberHolder = NumberHolder::User(1);
    const TWO: NumberHolder = NumberHolder::Client(ClientId(2));

    fn range(start: u64, end: u64) -> InoRange {
        InoRange { start, end }
    }

    #[test]
    fn each_holder_has_its_own_numbers_also_after_a_restart() {
        let mut holders = Holders::default();
        holders.give(Epoch(1), ONE, range(10, 20));
        holders.give(Epoch(1), TWO, range(20, 30));
        holders.give(Epoch(2), ONE, range(30, 40));
        let mut bytes = Vec::new();
        holders.encode(&mut bytes);
        let read = Holders::decode(&mut Reader::new(&bytes)).unwrap();
        for holders in [&holders, &read] {
            assert!([10, 19, 30].iter().all(|ino| holders.has(ONE, Ino(*ino))));
            assert!([9, 20, 29, 40].iter().all(|ino| !holders.has(ONE, Ino(*ino))));
            assert!(holders.has(TWO, Ino(29)) && !holders.has(NumberHolder::User(2), Ino(29)));
        }
    }

    #[test]
    fn the_ranges_of_a_term_that_stopped_are_forgotten() {
        let mut holders = Holders::default();
        holders.give(Epoch(1), ONE, range(10, 20));
        holders.give(Epoch(2), ONE, range(20, 30));
        holders.forget(Epoch(2));
        assert!(holders.has(ONE, Ino(10)) && !holders.has(ONE, Ino(20)));
    }

    #[test]
    fn one_holder_does_not_take_the_places_of_others() {
        let mut holders = Holders::default();
        holders.give(Epoch(1), TWO, range(0, 5));
        (1..1_000).for_each(|at| holders.give(Epoch(1), ONE, range(at * 10, at * 10 + 5)));
        assert_eq!(holders.given.len(), RANGES_MAX + 1);
        assert!(holders.has(TWO, Ino(0)) && holders.has(ONE, Ino(9_990)));
        assert!(!holders.has(ONE, Ino(10)), "the oldest is forgotten");
    }

    #[test]
    fn a_range_that_continues_the_last_one_takes_no_place() {
        let mut holders = Holders::default();
        (0..9).for_each(|at| holders.give(Epoch(1), ONE, range(at * 10, at * 10 + 10)));
        assert_eq!(holders.given, [Given { term: Epoch(1), holder: ONE, range: range(0, 90) }]);
    }

    #[test]
    fn an_unknown_kind_of_holder_is_refused() {
        let bytes = [1, 3, 0, 0, 0, 0];
        assert!(Holders::decode(&mut Reader::new(&bytes)).is_err());
    }
}
