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

use std::collections::{BTreeMap, VecDeque};

use types::bytes::{Malformed, Put, Reader};
use types::{ClientId, ConnId, Epoch, Ino, InoRange};
use wire::{Identities, SpeaksFor};

use super::stock::Stock;

/// Most ranges of one holder; the oldest are forgotten, and their numbers cannot be claimed.
const RANGES_MAX: usize = 64;
/// Most holders that are users, and most that are clients. The one that got numbers least recently
/// is forgotten: a key with rules makes a client with each command, and the table is stored whole.
const USERS_MAX: usize = 4 << 10;
const CLIENTS_MAX: usize = 1 << 10;

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

    fn is_user(self) -> bool {
        matches!(self, Self::User(_))
    }
}

/// A range of numbers, and the term in which it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Given {
    term: Epoch,
    range: InoRange,
}

/// The numbers of one holder.
#[derive(Debug, Default)]
struct Holding {
    /// In the order in which they were given.
    given: VecDeque<Given>,
    stock: Stock,
    /// Grows with each range that any holder gets.
    newest: u64,
}

impl Holding {
    /// Greater for a holder that got numbers later.
    fn recency(&self) -> (Epoch, u64) {
        (self.given.back().map_or(Epoch(0), |given| given.term), self.newest)
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Holders {
    all: BTreeMap<NumberHolder, Holding>,
    /// How many ranges were given since the start.
    count: u64,
}

impl Holders {
    /// The numbers that wait to be used by a holder.
    pub(super) fn stock(&mut self, holder: NumberHolder) -> &mut Stock {
        &mut self.all.entry(holder).or_default().stock
    }

    /// All numbers that wait to be used.
    pub(super) fn stocks(&self) -> impl Iterator<Item = &Stock> {
        self.all.values().map(|holding| &holding.stock)
    }

    pub(super) fn stocks_mut(&mut self) -> impl Iterator<Item = &mut Stock> {
        self.all.values_mut().map(|holding| &mut holding.stock)
    }

    /// A range is a holder's.
    pub(super) fn give(&mut self, term: Epoch, holder: NumberHolder, range: InoRange) {
        self.count += 1;
        let holding = self.all.entry(holder).or_default();
        let is_new = holding.given.is_empty();
        holding.newest = self.count;
        match holding.given.back_mut() {
            Some(last) if (last.term, last.range.end) == (term, range.start) => {
                last.range.end = range.end;
            }
            Some(_) | None => holding.given.push_back(Given { term, range }),
        }
        if holding.given.len() > RANGES_MAX {
            holding.given.pop_front();
        }
        if is_new {
            self.bound(holder.is_user());
        }
    }

    /// Forgets the users, or the clients, beyond the bound.
    fn bound(&mut self, users: bool) {
        let most = if users { USERS_MAX } else { CLIENTS_MAX };
        let of_kind = || self.all.iter().filter(|(holder, _)| holder.is_user() == users);
        if of_kind().count() > most
            && let Some((oldest, _)) = of_kind().min_by_key(|(_, holding)| holding.recency())
        {
            let oldest = *oldest;
            self.all.remove(&oldest);
        }
    }

    /// Whether a holder was given a number.
    pub(super) fn has(&self, holder: NumberHolder, ino: Ino) -> bool {
        let holding = self.all.get(&holder);
        holding.is_some_and(|known| known.given.iter().any(|given| given.range.contains(ino)))
    }

    /// All that was answered in a term is stored.
    pub(super) fn forget(&mut self, term: Epoch) {
        for holding in self.all.values_mut() {
            holding.given.retain(|given| given.term != term);
        }
        self.all.retain(|_, holding| !holding.given.is_empty());
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let length: usize = self.all.values().map(|holding| holding.given.len()).sum();
        out.put_varint(length as u64);
        for (holder, holding) in &self.all {
            let (kind, number) = match holder {
                NumberHolder::User(uid) => (1, u64::from(*uid)),
                NumberHolder::Client(client) => (2, client.0),
            };
            for Given { term, range } in &holding.given {
                out.put_u8(kind);
                let parts = [number, term.0, range.start, range.end];
                parts.into_iter().for_each(|part| out.put_varint(part));
            }
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut holders = Self::default();
        for _ in 0..reader.length()? {
            let offset = reader.offset();
            let (kind, number) = (reader.u8()?, reader.varint()?);
            let holder = match (kind, u32::try_from(number)) {
                (1, Ok(uid)) => NumberHolder::User(uid),
                (2, _) => NumberHolder::Client(ClientId(number)),
                _ => return Err(Malformed { offset, expected: "a user or a client" }),
            };
            let term = Epoch(reader.varint()?);
            let offset = reader.offset();
            let range = InoRange { start: reader.varint()?, end: reader.varint()? };
            if range.is_empty() {
                return Err(Malformed { offset, expected: "a range with a number" });
            }
            holders.give(term, holder, range);
        }
        Ok(holders)
    }

    /// Checks the bounds of the lists, and that the ranges have numbers.
    ///
    /// # Panics
    /// If that does not hold.
    pub(super) fn validate(&self, term: Epoch) {
        let users = self.all.keys().filter(|holder| holder.is_user()).count();
        let clients = self.all.len() - users;
        // One holder more has only asked for numbers.
        assert!(users <= USERS_MAX + 1 && clients <= CLIENTS_MAX + 1, "the holders are bounded");
        for (holder, holding) in &self.all {
            assert!(holding.given.len() <= RANGES_MAX, "{holder:?}: its ranges are bounded");
            for given in &holding.given {
                assert!(!given.range.is_empty(), "{given:?} has a number");
                assert!(given.term <= term, "{given:?} was given in a term");
            }
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
        assert_eq!(holders.all[&ONE].given.len(), RANGES_MAX);
        assert!(holders.has(TWO, Ino(0)) && holders.has(ONE, Ino(9_990)));
        assert!(!holders.has(ONE, Ino(10)), "the oldest is forgotten");
    }

    #[test]
    fn a_range_that_continues_the_last_one_takes_no_place() {
        let mut holders = Holders::default();
        (0..9).for_each(|at| holders.give(Epoch(1), ONE, range(at * 10, at * 10 + 10)));
        assert_eq!(holders.all[&ONE].given, [Given { term: Epoch(1), range: range(0, 90) }]);
    }

    #[test]
    fn many_clients_push_out_the_idle_ones_and_no_user() {
        let client = |number| NumberHolder::Client(ClientId(number));
        let mut holders = Holders::default();
        holders.give(Epoch(1), ONE, range(0, 5));
        for number in 2..5_000 {
            holders.give(Epoch(1), client(number), range(number * 10, number * 10 + 5));
            // A mount that works all the time.
            holders.give(Epoch(1), client(1), range(number * 10 + 5, number * 10 + 6));
            holders.validate(Epoch(1));
        }
        assert_eq!(holders.all.len(), CLIENTS_MAX + 1);
        let has = |holder, ino| holders.has(holder, Ino(ino));
        assert!(has(ONE, 0) && has(client(1), 49_995) && has(client(4_999), 49_990));
        assert!(!has(client(2), 20), "a client of long ago is forgotten");
    }

    #[test]
    fn an_unknown_kind_of_holder_and_a_range_without_numbers_are_refused() {
        for bytes in [[1, 3, 0, 0, 0, 1], [1, 1, 9, 0, 4, 4]] {
            assert!(Holders::decode(&mut Reader::new(&bytes)).is_err(), "{bytes:?}");
        }
    }
}
