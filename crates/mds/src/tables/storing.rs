//! Storing the table of a rank: one put at a time, each on top of the version before.

use metastore::request::{Condition, StoreFailure, StoreOp, StoreResult, rank_name};
use types::{Errno, Error, Ino, Moment, Rank, Span, Timestamp};

use super::stock::Stock;
use super::{Held, Tables};
use crate::fetch::{Fetches, TABLE_PUT};
use crate::log::Log;
use crate::store::StoreOps;
use crate::{MdsEffects, Waiting};

/// How long after a failure the table is stored again.
const RETRY: Span = Span::from_millis(500);

/// The table of the rank, with all that storing it may touch.
pub(crate) struct TablesCx<'a> {
    pub(crate) tables: &'a mut Tables,
    pub(crate) log: &'a mut Log,
    pub(crate) store: &'a mut StoreOps,
    pub(crate) fetches: &'a mut Fetches,
    pub(crate) rank: Rank,
    pub(crate) now: Moment,
}

impl TablesCx<'_> {
    /// The store's version of the rank's table. If this term has stored it, the table is stored
    /// again on top of that; if another term has, the rank is that one's now.
    fn seen(&mut self, result: Result<StoreResult, Box<StoreFailure>>, effects: &mut MdsEffects) {
        self.tables.in_flight = false;
        self.tables.gone.put_ended(false);
        self.tables.lapsed.put_ended(false);
        match result {
            Ok(StoreResult::Bytes(bytes, version)) => {
                let mut seen = Tables::new(self.rank);
                if seen.decode(&bytes).is_err() || seen.epoch != self.tables.epoch {
                    return self.replaced(effects);
                }
                self.tables.version = Some(version);
            }
            Ok(_) => return self.replaced(effects),
            Err(_) => self.tables.failed = Some(self.now),
        }
        let waiting = std::mem::take(&mut self.tables.held_in_flight);
        self.tables.held.splice(0..0, waiting);
        self.tables.dirty = true;
        self.tick(effects);
    }

    fn replaced(&self, effects: &mut MdsEffects) {
        let cause = "another server took over this rank";
        let error = Error::new(Errno::Stale, self.rank.to_string(), cause);
        effects.fatal = Some(error.remedy("nothing to do: clients reconnect to the new one"));
    }

    /// Stores the tables if they changed and no put is under way. Called after every request
    /// that may have changed them, and regularly.
    pub(crate) fn tick(&mut self, effects: &mut MdsEffects) {
        let now = self.now;
        if self.tables.in_flight || !self.tables.dirty || self.log.safe() < self.tables.after {
            return;
        }
        if self.tables.failed.is_some_and(|at| now.since(at) < RETRY) {
            return;
        }
        let Some(version) = self.tables.version else { return };
        self.tables.dirty = false;
        self.tables.in_flight = true;
        self.tables.gone.put_begins();
        self.tables.lapsed.put_begins();
        assert!(self.tables.held_in_flight.is_empty(), "one put of the table at a time");
        self.tables.held_in_flight = std::mem::take(&mut self.tables.held);
        self.tables.stocks().for_each(Stock::put_begins);
        self.tables.unsure_in_flight = self.tables.unsure.clone();
        self.tables.expected_in_flight = self.tables.expected.clone();
        let op = StoreOp::Put {
            object: rank_name(self.rank),
            data: self.tables.encode(),
            condition: Condition::Version(version),
        };
        self.store.begin(Waiting::Tables, op, effects);
    }

    /// The table was stored, or read.
    pub(crate) fn stored(
        &mut self,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) {
        assert!(self.tables.in_flight, "the table was being stored");
        if std::mem::take(&mut self.tables.looking) {
            return self.seen(result, effects);
        }
        if matches!(result, Ok(StoreResult::Conflict)) {
            // A put that failed may have happened all the same.
            self.tables.looking = true;
            let object = rank_name(self.rank);
            self.store.begin(Waiting::Tables, StoreOp::Get { object }, effects);
            return;
        }
        self.tables.in_flight = false;
        let is_stored = matches!(result, Ok(StoreResult::Stored(_)));
        self.tables.gone.put_ended(is_stored);
        self.tables.lapsed.put_ended(is_stored);
        let held = std::mem::take(&mut self.tables.held_in_flight);
        match result {
            Ok(StoreResult::Stored(version)) => {
                self.tables.version = Some(version);
                self.tables.failed = None;
                let stored = std::mem::take(&mut self.tables.expected_in_flight);
                let known = std::mem::take(&mut self.tables.unsure_in_flight);
                self.tables.unsure.retain(|subtree| !known.contains(subtree));
                let now = &self.tables.expected;
                self.tables.expected_stored = stored.intersection(now).copied().collect();
                self.tables.stocks().for_each(Stock::stored);
                for Held { at, answer, seq, .. } in held {
                    match answer {
                        Ok(answer) => {
                            self.log.answer_when_safe(seq, Timestamp(0), at, answer, effects);
                        }
                        Err(failure) => effects.reply_error(at, failure),
                    }
                }
                self.fetches.wake(TABLE_PUT);
                self.fetches.wake_returned(TABLE_PUT);
                self.tick(effects);
            }
            Ok(_) => self.replaced(effects),
            Err(failure) => {
                // The numbers stay unused and the subtree stays as it was; the clients get an
                // error, and asking again is harmless.
                self.tables.failed = Some(self.now);
                self.tables.dirty = true;
                self.fetches.wake_returned(TABLE_PUT);
                let undone: Vec<Ino> = held.iter().filter_map(|held| held.begins).collect();
                // Later requests about a subtree that is not the client's now were not executed,
                // either.
                let later = if undone.is_empty() { Vec::new() } else { self.tables.take_held() };
                for subtree in undone {
                    // The store may have it all the same.
                    self.tables.remove(subtree);
                }
                for Held { at, .. } in held.into_iter().chain(later) {
                    effects.reply_error(at, failure.error.errno.into());
                }
            }
        }
    }
}
