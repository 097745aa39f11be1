//! The invariants of a metadata server: those of each part, and those between parts.
//!
//! A broken invariant is a bug, and the server panics: its successor recovers from the store and
//! the journal, which a wrong state has not reached yet.

use types::Ino;

use crate::checkpoint::CheckpointOps;
use crate::purge::Task;
use crate::{Mds, Phase, Waiting};

/// Debug builds check the state after an input if so many inputs per inode and session came since
/// the last check: after every input of a small server, and rarely on a large one, so that the
/// checks take a bounded part of the time.
const ITEMS_PER_INPUT: u64 = 8;

/// The operations that the store executes, by the part that waits for them.
#[derive(Debug, Default)]
struct OpsUnderWay {
    checkpoint: CheckpointOps,
    fetching: Vec<Ino>,
    compacting: Vec<Ino>,
    log: usize,
    list: usize,
    tables: usize,
    purging: usize,
    removal_lists: usize,
}

impl Mds {
    /// Checks the invariants of the server, between two inputs. The time that this takes grows
    /// with the state of the server.
    ///
    /// # Panics
    /// If one of them does not hold. The message names the invariant.
    pub fn validate(&self) {
        self.namespace.validate();
        self.log.validate();
        self.tables.validate(self.is_private());
        self.sessions.validate();
        self.opens.validate();
        self.locks.validate();
        self.caps.validate();
        self.leases.validate();
        self.early.validate();
        self.purges.validate();
        self.merges.validate();
        self.damage.validate();
        self.snapshots.validate();
        self.recovery.validate();
        let reconnecting = matches!(self.phase, Phase::Reconnecting { .. } | Phase::Stopped);
        self.resend.validate(reconnecting);
        self.balance.validate(self.rank);
        self.validate_store_ops();
        self.validate_between();
    }

    /// Debug builds check after each input, or after some of them ([`ITEMS_PER_INPUT`]).
    pub(crate) fn validate_sometimes(&mut self) {
        self.unvalidated += 1;
        let items = self.namespace.inodes() + self.sessions.len() as u64;
        if self.unvalidated > items / ITEMS_PER_INPUT {
            self.unvalidated = 0;
            self.validate();
        }
    }

    /// Each operation that a part waits for is one that the store executes.
    fn validate_store_ops(&self) {
        let ops = self.store_ops();
        self.validate_checkpoint(&ops.checkpoint);
        self.validate_fetches(&ops.fetching);
        self.places().validate(ops.list);
        self.compaction.validate(&ops.compacting);
        let deleting = self.purges.deleting();
        assert!(ops.purging == deleting, "{deleting} inodes are being purged, not {}", ops.purging);
        let writing = usize::from(self.purges.is_writing());
        assert!(ops.removal_lists == writing, "{writing} lists of removals are being written");
        let put = usize::from(self.tables.is_in_flight());
        assert!(ops.tables == put, "{put} puts of the table are under way");
        let writes = self.log.writes();
        assert!(ops.log == writes, "{writes} writes of the journal are under way, not {}", ops.log);
    }

    fn store_ops(&self) -> OpsUnderWay {
        let mut ops = OpsUnderWay::default();
        for waiting in self.store.waiting() {
            match waiting {
                Waiting::Log => ops.log += 1,
                Waiting::Tables => ops.tables += 1,
                Waiting::Fetch(dir) => ops.fetching.push(*dir),
                Waiting::Checkpoint(dir) => ops.checkpoint.writing.push(*dir),
                Waiting::Compact(dir) => ops.compacting.push(*dir),
                Waiting::Trim => ops.checkpoint.trimming += 1,
                Waiting::Forget => ops.checkpoint.forgetting += 1,
                Waiting::Purge(Task::Delete(_)) => ops.purging += 1,
                Waiting::Purge(Task::List(_)) => ops.removal_lists += 1,
                Waiting::Subtrees => ops.list += 1,
                Waiting::Recovery
                | Waiting::MergeObject(_)
                | Waiting::Attach(_)
                | Waiting::Purge(Task::ReadNames | Task::Read(_))
                | Waiting::Share(_)
                | Waiting::Snapshot(_)
                | Waiting::Balance(_)
                | Waiting::Adopt(_) => {}
            }
        }
        ops
    }

    /// Invariants of several parts.
    fn validate_between(&self) {
        let (forwards, all) = (self.counters.forwards, self.counters.requests);
        assert!(forwards <= all, "{forwards} of {all} requests were forwarded");
        for (dir, owner) in self.caps.exclusive() {
            let leased = self.leases.is_leased(dir, self.clock.now);
            assert!(!leased, "{dir}: {owner} has the directory alone, and others have leases");
        }
        let replays = matches!(self.phase, Phase::Recovering | Phase::Reconnecting { .. });
        let granted = self.caps.len();
        assert!(!replays || granted == 0, "{granted} capabilities were granted before the end");
        let stopped = self.phase == Phase::Stopped;
        assert!(!stopped || !self.resend.is_busy(), "a stopped server executes no request");
    }
}
