//! The invariants of a metadata server: those of each part, and those between parts.
//!
//! A broken invariant is a bug, and the server panics: its successor recovers from the store and
//! the journal, which a wrong state has not reached yet.

use namespace::Namespace;
use types::Ino;

use crate::authority::Places;
use crate::checkpoint::CheckpointOps;
use crate::purge::Task;
use crate::session::Sessions;
use crate::store::StoreOps;
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

impl OpsUnderWay {
    fn of(store: &StoreOps) -> Self {
        let mut ops = Self::default();
        for waiting in store.waiting() {
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
}

/// Debug builds check after each input, or after some of them ([`ITEMS_PER_INPUT`]); `inputs` came
/// since the last check.
pub(crate) fn is_due(inputs: &mut u64, namespace: &Namespace, sessions: &Sessions) -> bool {
    *inputs += 1;
    let is_due = *inputs > (namespace.inodes() + sessions.len() as u64) / ITEMS_PER_INPUT;
    if is_due {
        *inputs = 0;
    }
    is_due
}

/// See [`Mds::validate`].
pub(crate) fn check(mds: &Mds) {
    mds.namespace.validate();
    mds.log.validate();
    mds.tables.validate(mds.settings.private.is_some());
    mds.sessions.validate();
    mds.opens.validate();
    mds.locks.validate();
    mds.caps.validate();
    mds.leases.validate();
    mds.early.validate();
    mds.purges.validate();
    mds.merges.validate();
    mds.watches.validate();
    mds.damage.validate();
    mds.identities.validate();
    mds.trash.validate();
    mds.snapshots.validate();
    mds.recovery.validate();
    let reconnecting = matches!(mds.phase, Phase::Reconnecting { .. } | Phase::Stopped);
    mds.resend.validate(reconnecting);
    mds.balance.validate(mds.rank);
    check_store_ops(mds);
    check_between(mds);
}

/// Each operation that a part waits for is one that the store executes.
fn check_store_ops(mds: &Mds) {
    let ops = OpsUnderWay::of(&mds.store);
    mds.checkpoint.validate(&ops.checkpoint, &mds.namespace, &mds.changes, mds.phase);
    mds.fetches.validate(&ops.fetching, &mds.namespace);
    Places::of(mds).validate(ops.list);
    mds.compaction.validate(&ops.compacting);
    let deleting = mds.purges.deleting();
    assert!(ops.purging == deleting, "{deleting} inodes are being purged, not {}", ops.purging);
    let writing = usize::from(mds.purges.is_writing());
    assert!(ops.removal_lists == writing, "{writing} lists of removals are being written");
    let put = usize::from(mds.tables.is_in_flight());
    assert!(ops.tables == put, "{put} puts of the table are under way");
    let writes = mds.log.writes();
    assert!(ops.log == writes, "{writes} writes of the journal are under way, not {}", ops.log);
}

/// Invariants of several parts.
fn check_between(mds: &Mds) {
    let (forwards, all) = (mds.counters.forwards, mds.counters.requests);
    assert!(forwards <= all, "{forwards} of {all} requests were forwarded");
    for (dir, owner) in mds.caps.exclusive() {
        let leased = mds.leases.is_leased(dir, mds.clock.now);
        assert!(!leased, "{dir}: {owner} has the directory alone, and others have leases");
    }
    let replays = matches!(mds.phase, Phase::Recovering | Phase::Reconnecting { .. });
    let granted = mds.caps.len();
    assert!(!replays || granted == 0, "{granted} capabilities were granted before the end");
    let stopped = mds.phase == Phase::Stopped;
    assert!(!stopped || !mds.resend.is_busy(), "a stopped server executes no request");
}
