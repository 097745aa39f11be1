//! The object store of a simulated cluster: operations are submitted, take effect some time later,
//! and are reported later still. A crash may come at any point in between.
//!
//! Invariant: a reported operation is durable; an unreported one may be complete, missing, or
//! partial.

use std::collections::{BTreeMap, BTreeSet};

use engine::{Executor, Tuning};
use metastore::Tiers;
use metastore::request::{StoreFailure, StoreOp, StoreResult, Token};
use objstore::{Action, FaultRules, Faulty, Memory, ObjectStore, Rule, SyncScope};
use types::{Errno, Error, Ino};

use types::rng::Rng;

/// The result of an operation, as the server receives it.
pub(crate) type Ended = Result<StoreResult, Box<StoreFailure>>;

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Disk {
    /// The objects.
    pub memory: Memory,
    /// Operations in a hundred that fail; they may take effect all the same.
    pub errors_percent: u64,
    executor: Small,
    submitted: BTreeMap<Token, StoreOp>,
    executed: BTreeMap<Token, Ended>,
    /// Appends that took effect but may still be torn, by the object.
    unsynced: BTreeMap<Token, String>,
    /// Inodes that servers have begun to purge.
    pub deleting: BTreeSet<Ino>,
    /// Inodes that are purged.
    pub deleted: BTreeSet<Ino>,
}

/// Carries operations out as if directories were large: the few names of a simulation are many.
#[derive(Debug)]
struct Small(Executor);

impl Default for Small {
    fn default() -> Self {
        let tiers = Tiers { small_bytes: 300, at_once_bytes: 600, run_bytes_max: 1 << 20 };
        let segment_bytes_min = 1;
        Self(Executor::new(Tuning {
            tiers,
            whole_bytes: 500,
            cache_bytes: 4096,
            segment_bytes_min,
        }))
    }
}

impl Disk {
    /// A server's access to objects that other servers see, too.
    pub(crate) fn on(memory: Memory) -> Self {
        Self { memory, ..Self::default() }
    }

    /// Takes an operation in.
    pub fn submit(&mut self, token: Token, op: StoreOp) {
        self.deleting.extend(purged(&op));
        self.submitted.insert(token, op);
    }

    /// An operation that has not taken effect yet.
    pub(crate) fn submitted(&self, token: Token) -> Option<&StoreOp> {
        self.submitted.get(&token)
    }

    /// The operation takes effect.
    pub fn execute(&mut self, token: Token, rng: &mut Rng) {
        let Some(op) = self.submitted.remove(&token) else { return };
        let gone = purged(&op);
        let ended = if self.errors_percent > 0 && rng.percent(self.errors_percent) {
            self.fail(op, rng)
        } else if let StoreOp::Append { object, data } = &op {
            let appended = self.memory.append(object, data);
            self.unsynced.insert(token, object.clone());
            match appended {
                Ok(_) => Ok(StoreResult::Done),
                Err(error) => Err(Box::new(StoreFailure { error, op })),
            }
        } else {
            self.executor.0.execute(&self.memory, op)
        };
        self.deleted.extend(gone.filter(|_| ended.is_ok()));
        self.executed.insert(token, ended);
    }

    /// The operation fails: before it had any effect, after a part of it, or after all of it.
    fn fail(&mut self, op: StoreOp, rng: &mut Rng) -> Ended {
        let errno = rng.pick(&[Errno::NoSpace, Errno::Io, Errno::Io]);
        let error = Error::new(errno, "store", "injected");
        if errno == Errno::NoSpace {
            return Err(Box::new(StoreFailure { error, op }));
        }
        if let StoreOp::Append { object, data } = &op {
            // Part of it may be on the medium, or all of it. No later write to the object is sure
            // to follow it.
            let part = rng.index(data.len() + 1);
            let kept = rng.pick(&[0, part, data.len()]);
            let _ = self.memory.append(object, &data[..kept]);
            let _ = self.memory.sync(SyncScope::Object(object));
            return Err(Box::new(StoreFailure { error, op }));
        }
        let calls = rng.below(4);
        match self.execute_in_part(op, calls) {
            Err(failure) => Err(failure),
            Ok((op, _)) => Err(Box::new(StoreFailure { error, op })),
        }
    }

    /// Lets only the first `calls` accesses of an operation through.
    fn execute_in_part(
        &self,
        op: StoreOp,
        calls: u64,
    ) -> Result<(StoreOp, StoreResult), Box<StoreFailure>> {
        let faults = FaultRules::default();
        faults.add(Rule::new(Action::Fail(Errno::Io)).after(calls));
        let store = Faulty::new(self.memory.clone(), faults);
        let copy = op.clone();
        self.executor.0.execute(&store, op).map(|result| (copy, result))
    }

    /// How the operation ended. Appends are durable from here on.
    pub fn end(&mut self, token: Token) -> Option<Ended> {
        let ended = self.executed.remove(&token)?;
        if let Some(object) = self.unsynced.remove(&token) {
            let _ = self.memory.sync(SyncScope::Object(&object));
        }
        Some(ended)
    }

    /// Everything that is under way takes effect: its server ended, but not by a crash.
    pub fn finish(&mut self, rng: &mut Rng) {
        self.errors_percent = 0;
        while let Some(token) = self.submitted.keys().next().copied() {
            self.execute(token, rng);
        }
        self.executed.clear();
        self.unsynced.clear();
        let _ = self.memory.sync(SyncScope::All);
    }

    /// Appended data is durable: its server is not the one that dies.
    pub(crate) fn sync_appends(&self) {
        for object in self.unsynced.values() {
            let _ = self.memory.sync(SyncScope::Object(object));
        }
    }

    /// The server dies: pending operations take effect, in part or not at all, and unsynced writes
    /// are torn.
    pub fn crash(&mut self, rng: &mut Rng) {
        for (_, op) in std::mem::take(&mut self.submitted) {
            match (rng.below(3), &op) {
                (0, _) => {}
                (1, StoreOp::Append { object, data }) => {
                    let _ = self.memory.append(object, data);
                }
                (_, StoreOp::Append { .. }) => {}
                (_, _) => {
                    let calls = rng.below(8);
                    let _ = self.execute_in_part(op, calls);
                }
            }
        }
        self.executed.clear();
        self.unsynced.clear();
        let mode = rng.below(3);
        self.memory.crash(|_, length| match mode {
            0 => 0,
            1 => length,
            _ => rng.index(length + 1),
        });
    }
}

/// The inode that an operation purges.
fn purged(op: &StoreOp) -> Option<Ino> {
    if let StoreOp::PurgeData { ino, .. } | StoreOp::PurgeDir { ino } = *op {
        Some(ino)
    } else {
        None
    }
}
