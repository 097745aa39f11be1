//! The map, and how its changes come to last.
//!
//! Every change makes a new epoch. One put is under way at a time; changes during a put share the
//! next one. The object is replaced only if no other monitor replaced it, so the later of two
//! writers notices the second monitor. Not here: the meaning of the changes.
//!
//! A put with an unknown outcome is not simply repeated, because it may have been executed and
//! would then look like another monitor's: the object is read again first.
//!
//! Invariant: `stored` is exactly the content of the object, as far as it can be known, and a reply
//! is sent once its epoch is stored.

use metastore::request::{Condition, MAP_NAME, StoreFailure, StoreOp, StoreResult, Token};
use types::{ClientId, ConnId, Epoch, Errno, Error, Moment, Span};
use wire::{ClusterMap, Failure, MonAnswer};

use crate::effects::Asker;
use crate::{MonEffects, MonSettings, explain, failure, format};

/// How long to wait before the store is tried again.
const RETRY: Span = Span::from_millis(100);

/// The meaning of a finished store operation for the monitor.
#[derive(Debug)]
pub(crate) enum StoreOutcome {
    Nothing,
    /// The map was read, or there is none.
    Loaded,
    /// There is an object, but no map in it.
    Unreadable(Error),
    /// Another monitor changed the object.
    TakenOver,
}

/// The pending requests to the store.
#[derive(Debug, Default)]
enum Step {
    #[default]
    Idle,
    Loading,
    Putting(Box<ClusterMap>),
    /// The outcome of the put of this map is unknown: the object is read.
    Checking(Box<ClusterMap>),
    /// The store failed; without a map, while loading.
    Failed {
        since: Moment,
        put: Option<Box<ClusterMap>>,
    },
}

/// A reply that waits for an epoch.
#[derive(Debug)]
struct Waiter {
    epoch: Epoch,
    asker: Asker,
    answer: MonAnswer,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// With all changes.
    map: ClusterMap,
    /// As the object is.
    stored: ClusterMap,
    /// The version of the object; `None` if there is none.
    version: Option<u64>,
    /// Whether there are changes that no put has taken along.
    dirty: bool,
    step: Step,
    /// Of the operation under way, or of the last one.
    token: Token,
    waiters: Vec<Waiter>,
}

impl Ledger {
    /// The map with all changes.
    pub(crate) fn map(&self) -> &ClusterMap {
        &self.map
    }

    /// The map as the store has it; of epoch 0 if it has none.
    pub(crate) fn stored(&self) -> &ClusterMap {
        &self.stored
    }

    /// How many replies wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Whether the store has everything.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.dirty && matches!(self.step, Step::Idle)
    }

    /// The map, to be changed: a new epoch begins unless one is open already.
    pub(crate) fn change(&mut self) -> &mut ClusterMap {
        if !self.dirty {
            self.map.epoch.0 += 1;
            self.dirty = true;
        }
        &mut self.map
    }

    /// Takes ownership of the map that was read. The new epoch lets an earlier monitor notice.
    pub(crate) fn take_over(&mut self, settings: &MonSettings) {
        let map = self.change();
        map.store.clone_from(&settings.store);
        if map.cluster.is_empty() {
            map.cluster.clone_from(&settings.cluster);
        }
        // Zero is nobody.
        map.next_client = map.next_client.max(ClientId(1));
    }

    /// Answers once all changes made so far are stored.
    pub(crate) fn reply_when_stored(
        &mut self,
        asker: Asker,
        answer: MonAnswer,
        effects: &mut MonEffects,
    ) {
        if self.stored.epoch == self.map.epoch {
            effects.reply(asker, Ok(answer));
        } else {
            self.waiters.push(Waiter { epoch: self.map.epoch, asker, answer });
        }
    }

    /// Reads the object.
    pub(crate) fn load(&mut self, effects: &mut MonEffects) {
        debug_assert!(matches!(self.step, Step::Idle), "a monitor starts once");
        self.get(Step::Loading, effects);
    }

    /// Stores the changes, if there are any and nothing is under way.
    pub(crate) fn flush(&mut self, effects: &mut MonEffects) {
        if !self.dirty || !matches!(self.step, Step::Idle) {
            return;
        }
        self.dirty = false;
        let condition = self.version.map_or(Condition::Absent, Condition::Version);
        let data = format::encode(&self.map);
        self.step = Step::Putting(Box::new(self.map.clone()));
        self.emit(StoreOp::Put { object: MAP_NAME.into(), data, condition }, effects);
    }

    /// Tries a store that failed again.
    pub(crate) fn tick(&mut self, now: Moment, effects: &mut MonEffects) {
        if let Step::Failed { since, put } = &mut self.step
            && now.since(*since) >= RETRY
        {
            let next = put.take().map_or(Step::Loading, Step::Checking);
            self.get(next, effects);
        }
    }

    /// Takes the result of an operation in.
    pub(crate) fn stored_result(
        &mut self,
        now: Moment,
        token: Token,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MonEffects,
    ) -> StoreOutcome {
        if token != self.token {
            return StoreOutcome::Nothing;
        }
        match (std::mem::take(&mut self.step), result) {
            (Step::Loading, Ok(result)) => self.loaded(now, &result),
            (Step::Putting(map), Ok(result)) => self.put_done(now, map, &result, effects),
            (Step::Checking(map), Ok(result)) => self.checked(now, map, result, effects),
            (Step::Loading, Err(failure)) => self.failed(now, None, &failure.error, effects),
            (Step::Putting(map) | Step::Checking(map), Err(failure)) => {
                self.failed(now, Some(map), &failure.error, effects)
            }
            (step @ (Step::Idle | Step::Failed { .. }), _) => {
                self.step = step;
                StoreOutcome::Nothing
            }
        }
    }

    /// Answers all requesters with a failure.
    pub(crate) fn fail_waiting(&mut self, reply: &Failure, effects: &mut MonEffects) {
        for waiter in self.waiters.drain(..) {
            effects.reply(waiter.asker, Err(reply.clone()));
        }
    }

    /// Drops requesters at this connection.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        self.waiters.retain(|waiter| waiter.asker.conn != conn);
    }

    /// Checks the invariants between the fields.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.stored.epoch > self.map.epoch {
            return Err("the store has no epoch that never was");
        }
        if self.is_quiet() && self.stored != self.map {
            return Err("every change makes an epoch");
        }
        if self.waiters.iter().any(|waiter| waiter.epoch <= self.stored.epoch) {
            return Err("nobody waits for what is stored");
        }
        Ok(())
    }

    fn get(&mut self, next: Step, effects: &mut MonEffects) {
        self.step = next;
        self.emit(StoreOp::Get { object: MAP_NAME.into() }, effects);
    }

    fn emit(&mut self, op: StoreOp, effects: &mut MonEffects) {
        self.token.0 += 1;
        effects.store.push((self.token, op));
    }

    fn loaded(&mut self, now: Moment, result: &StoreResult) -> StoreOutcome {
        match result {
            StoreResult::Missing => StoreOutcome::Loaded,
            StoreResult::Bytes(bytes, version) => match format::decode(bytes) {
                Ok(map) => {
                    self.version = Some(*version);
                    self.map = map.clone();
                    self.stored = map;
                    StoreOutcome::Loaded
                }
                Err(error) => StoreOutcome::Unreadable(error),
            },
            StoreResult::Done
            | StoreResult::Stored(_)
            | StoreResult::Conflict
            | StoreResult::Names(_)
            | StoreResult::Dir(_)
            | StoreResult::Found(_)
            | StoreResult::Written { .. } => {
                debug_assert!(false, "a get returns bytes or nothing");
                self.step = Step::Failed { since: now, put: None };
                StoreOutcome::Nothing
            }
        }
    }

    fn put_done(
        &mut self,
        now: Moment,
        map: Box<ClusterMap>,
        result: &StoreResult,
        effects: &mut MonEffects,
    ) -> StoreOutcome {
        match result {
            StoreResult::Stored(version) => {
                self.confirm(*map, *version, effects);
                StoreOutcome::Nothing
            }
            StoreResult::Conflict => StoreOutcome::TakenOver,
            StoreResult::Done
            | StoreResult::Missing
            | StoreResult::Bytes(..)
            | StoreResult::Names(_)
            | StoreResult::Dir(_)
            | StoreResult::Found(_)
            | StoreResult::Written { .. } => {
                debug_assert!(false, "a put returns a version or a conflict");
                self.step = Step::Failed { since: now, put: Some(map) };
                StoreOutcome::Nothing
            }
        }
    }

    /// Whether the put with the unknown outcome was executed.
    fn checked(
        &mut self,
        now: Moment,
        map: Box<ClusterMap>,
        result: StoreResult,
        effects: &mut MonEffects,
    ) -> StoreOutcome {
        match result {
            StoreResult::Bytes(bytes, version) if bytes == format::encode(&map) => {
                self.confirm(*map, version, effects);
                StoreOutcome::Nothing
            }
            // As before: the changes go along with the next put.
            StoreResult::Bytes(_, version) if self.version == Some(version) => self.put_again(),
            StoreResult::Missing if self.version.is_none() => self.put_again(),
            StoreResult::Bytes(..) | StoreResult::Missing => StoreOutcome::TakenOver,
            StoreResult::Done
            | StoreResult::Stored(_)
            | StoreResult::Conflict
            | StoreResult::Names(_)
            | StoreResult::Dir(_)
            | StoreResult::Found(_)
            | StoreResult::Written { .. } => {
                debug_assert!(false, "a get returns bytes or nothing");
                self.step = Step::Failed { since: now, put: Some(map) };
                StoreOutcome::Nothing
            }
        }
    }

    fn put_again(&mut self) -> StoreOutcome {
        self.dirty = true;
        StoreOutcome::Nothing
    }

    fn confirm(&mut self, map: ClusterMap, version: u64, effects: &mut MonEffects) {
        self.version = Some(version);
        self.stored = map;
        let epoch = self.stored.epoch;
        for waiter in self.waiters.extract_if(.., |waiter| waiter.epoch <= epoch) {
            effects.reply(waiter.asker, Ok(waiter.answer));
        }
    }

    /// The store failed: waiting requesters get the failure at once, and the change is retried
    /// later.
    fn failed(
        &mut self,
        now: Moment,
        put: Option<Box<ClusterMap>>,
        error: &Error,
        effects: &mut MonEffects,
    ) -> StoreOutcome {
        self.step = Step::Failed { since: now, put };
        let text = format!(
            "the store did not take the cluster map ({}); the change may still be made later",
            explain(error).text
        );
        self.fail_waiting(&failure(Errno::Io, text), effects);
        StoreOutcome::Nothing
    }
}
