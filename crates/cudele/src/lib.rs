//! Cudele: one namespace in which every subtree chooses its own consistency and durability.
//!
//! ```no_run
//! use cudele::{Cluster, Locator, NewFile, Policy};
//!
//! # fn main() -> cudele::Result<()> {
//! let cluster = Cluster::find(&Locator::default())?;
//! let fs = cluster.mount()?;
//!
//! // Strong consistency, global durability: one request per file.
//! fs.make_dir("/home/alice", 0o755)?;
//! let home = fs.open_dir("/home/alice")?;
//! home.create("notes.txt", &NewFile::default())?;
//!
//! // A subtree of one's own: files at memory speed, everybody sees them after the merge.
//! fs.make_dir("/scratch/job", 0o755)?;
//! let mut job = fs.decouple("/scratch/job", &Policy::from_name_or_text("batchfs")?.policy)?;
//! let root = job.root();
//! for number in 0..1_000_000 {
//!     job.create(root, format!("file.{number:07}").as_bytes(), &NewFile::default())?;
//! }
//! let report = job.complete()?;
//! println!("{} events in {:?}", report.events, report.steps);
//! # Ok(())
//! # }
//! ```
//!
//! [`Cluster`] speaks to the monitor, [`Fs`] to the metadata server and the object store,
//! [`Subtree`] is a decoupled subtree (design section 5). The seven mechanisms are in `mechanism`.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "I/O edge: the client library carries out what the client state machines decide"
)]

mod balancers;
mod cached_answers;
mod cluster;
mod contact;
mod content_store;
mod damaged;
mod data;
mod dir;
mod ending;
mod evicted;
mod exclusive;
mod extents;
mod file;
mod fs;
mod identity;
mod lending;
mod link;
mod locate;
mod mechanism;
mod notice;
mod observe;
pub mod own_file;
mod policies;
mod pools;
mod ranks;
mod recover;
mod replace;
mod scan;
mod snapshot;
mod state;
mod stores;
mod strong_log;
mod subtree;
mod sums;
mod sweep;
mod threadless;
mod trace;
mod trash;
mod user;
mod verify;
mod waiting;
mod watch;

pub use balancers::BalancerLog;
pub use client::{WALKS_MAX, WatchLoss, WatchPosition};
pub use cluster::{Cluster, PolicySet};
pub use contact::ConnectionChange;
pub use content_store::ContentStore;
pub use damaged::{damaged_files, replace_damaged_files};
pub use data::{ContentStart, FileReader};
pub use dir::{Dir, DirEntry, NewFile};
pub use evicted::walked;
pub use fs::{Fs, parse as parse_path};
pub use locate::{FoundCluster, Locator};
pub use mechanism::{Completion, MergedBy, Step};
pub use metastore::ProofKey;
pub use notice::ServerNotice;
pub use objstore::Space;
pub use observe::{Observer, Progress, Stage};
pub use policy::{
    Checksums, Composition, Durability, Mechanism, MergeBy, MergeTrigger, Policy, Preset,
};
pub use ranks::PinnedSubtree;
pub use recover::{Recovered, RecoveredJournal};
pub use scan::Scanned;
pub use state::{StateDir, SubtreeOwner, io_error, write_durably};
pub use subtree::{Materialised, Placed, Subtree};
pub use sums::Seal;
pub use sweep::SweptRuns;
pub use threadless::{ThreadlessClient, ThreadlessSubtree};
pub use trace::{CourseStep, RequestHop};
pub use trash::RemovedTree;
pub use types::{
    Attr, AttrChange, ClientId, Cred, EntryName, Errno, Error, FILE_BYTES_MAX, FileType,
    INLINE_BYTES, INLINE_BYTES_MAX, Ino, InoRange, Lock, LockKind, LockMode, Path, Pool,
    RenameFlags, Result, STRIPE_BYTES, Stripe, StripedFile, Timestamp, TrashEntry, XattrChange,
    XattrFlags,
};
pub use user::{Page, User};
pub use verify::Verified;
pub use waiting::{ServerWait, longest_wait};
pub use watch::{Watch, WatchEvent};
pub use wire::{
    AdminOp, Answer, BalancerEntry, ChangeKind, ChangeOp, ChangedName, ClusterMap,
    DecoupledSubtree, EffectivePolicy, JobOp, MdsEntry, MdsState, MergeFlags, MergeReport,
    MergeSample, NewInode, Op, Opened, PolicyEntry, RankOp, ReadOp, SampleKind, SessionOp,
    StateStorage, WantsExclusive, Warning, WatchedChange,
};

/// The civil time now.
#[must_use]
pub fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = since.map_or(0, |since| since.as_nanos());
    Timestamp(i64::try_from(nanos).unwrap_or(i64::MAX))
}

/// The civil time at the last tick of the kernel, at most 1 to 4 ms ago, for decoupled creates.
/// Reading it takes a few nanoseconds instead of forty.
#[must_use]
pub fn now_coarse() -> Timestamp {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    Timestamp::from_parts(time.tv_sec, time.tv_nsec)
}

/// The time on a clock that never goes back, nor stands still while the machine sleeps.
pub(crate) fn moment() -> types::Moment {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    types::Moment(part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec))
}

/// Waits for so long.
pub(crate) fn pause(span: types::Span) {
    std::thread::sleep(std::time::Duration::from_nanos(span.0));
}

/// The caller of this process.
#[must_use]
pub fn own_cred() -> Cred {
    Cred {
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        groups: rustix::process::getgroups()
            .map(|groups| groups.into_iter().map(rustix::process::Gid::as_raw).collect())
            .unwrap_or_default(),
    }
}
