//! The requests of the state machines to the object store, as values.
//!
//! The metadata server and the monitor do no I/O: they emit a [`StoreOp`] and are handed a
//! [`StoreResult`]. A driver carries the operation out on a worker thread, or a simulator against
//! a store in memory that may lose, tear or delay it.

use types::{ClientId, Error, Ino, InoRange, Pool, Rank, Seq};

use crate::{DirRun, DirTouch, Manifest, Rows, Snapshot};

/// Names one operation under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// The required state of an object for a put to replace it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    Any,
    /// It must not exist.
    Absent,
    /// It must be of this version, as [`StoreResult::Bytes`] reported it.
    Version(u64),
}

/// One operation on the object store.
#[derive(Clone, Debug)]
pub enum StoreOp {
    /// Appends to an object and makes it durable.
    Append {
        /// Its name.
        object: String,
        /// What to append.
        data: Vec<u8>,
    },
    /// Replaces an object, durably.
    Put {
        /// Its name.
        object: String,
        /// Its new content.
        data: Vec<u8>,
        /// When it may be replaced.
        condition: Condition,
    },
    /// Reads a whole object.
    Get {
        /// Its name.
        object: String,
    },
    /// Lists objects.
    List {
        /// The prefix of their names.
        prefix: String,
    },
    /// Deletes objects; those that do not exist are skipped.
    Delete {
        /// Their names.
        objects: Vec<String>,
    },
    /// Deletes the file data of an inode.
    PurgeData {
        /// The inode.
        ino: Ino,
        /// The pool that it is in.
        pool: Pool,
        /// How many stripes its length says it has.
        stripes: u64,
    },
    /// Deletes everything stored of a directory.
    PurgeDir {
        /// The directory.
        ino: Ino,
    },
    /// Reads a directory: its manifest and the merged rows of its runs.
    LoadDir {
        /// The directory.
        ino: Ino,
    },
    /// Looks names of a directory up: reads the needed parts of its runs, or all of it if that is
    /// not much.
    LookUp {
        /// The directory.
        ino: Ino,
        /// The names.
        names: Vec<Vec<u8>>,
    },
    /// Merges runs of a directory, if there are some that should be ([`Tiers`](crate::Tiers)).
    /// Takes its time; other operations on the directory need not wait for it, but only one server
    /// may do it.
    CompactDir {
        /// The directory.
        ino: Ino,
    },
    /// Makes directories that do not exist yet of runs that a client wrote. Each run's header,
    /// index and footer are read and must be those of the run that the list states; then a manifest
    /// is written where there is none. A directory that has one is left as it is: it was attached
    /// before.
    AttachDirs {
        /// The runs; those of one directory follow each other.
        dirs: Vec<DirRun>,
        /// See [`Attached::position`](crate::Attached::position).
        position: Seq,
        /// See [`Attached::ranges`](crate::Attached::ranges).
        ranges: Vec<InoRange>,
    },
    /// Reads header, index and footer of a client's runs, which must be as stated.
    ProveRuns {
        /// Which.
        runs: Vec<DirRun>,
    },
    /// Takes a snapshot (its number is given by the store), and answers with its number.
    TakeSnapshot {
        /// Of what; the number counts for nothing.
        snapshot: Box<Snapshot>,
    },
    /// Adds rows to a directory: writes a run, then replaces the manifest. Merges small runs when
    /// there are many.
    CommitDir {
        /// The directory.
        ino: Ino,
        /// Captured rows.
        rows: Rows,
        /// Number of entries and sub-directories afterwards, and whether that is exact.
        counts: (u64, u64, bool),
        /// See [`Manifest::position`].
        position: Seq,
        /// See [`Manifest::touched`].
        touched: DirTouch,
        /// A client's runs that go above the rows, newest first, and the inode numbers that are its
        /// client's.
        attach: Option<Box<(Vec<DirRun>, Vec<InoRange>)>>,
    },
}

impl StoreOp {
    /// Renames the hidden directories that each rank has for itself to the store's names of them.
    pub fn seen_by(&mut self, rank: Rank) {
        match self {
            Self::PurgeDir { ino }
            | Self::LoadDir { ino }
            | Self::LookUp { ino, .. }
            | Self::CompactDir { ino }
            | Self::CommitDir { ino, .. } => *ino = ino.stored_by(rank),
            // A client's runs are of its own directories.
            Self::AttachDirs { .. } | Self::ProveRuns { .. } | Self::TakeSnapshot { .. } => {}
            Self::Append { .. }
            | Self::Put { .. }
            | Self::Get { .. }
            | Self::List { .. }
            | Self::Delete { .. }
            | Self::PurgeData { .. } => {}
        }
    }
}

/// How an operation ended.
#[derive(Debug)]
pub enum StoreResult {
    /// It is done and durable.
    Done,
    /// A put is done; the version of the object. Or a snapshot was taken; its number.
    Stored(u64),
    /// A put was refused, because its condition does not hold.
    Conflict,
    /// The object does not exist.
    Missing,
    /// The object, and its version.
    Bytes(Vec<u8>, u64),
    /// Names, sorted.
    Names(Vec<String>),
    /// A directory.
    Dir(Box<LoadedDir>),
    /// The requested names that a directory has; a missing one as a removal.
    Found(Box<LoadedDir>),
    /// A directory is written, or some of its runs were merged.
    Written {
        /// Whether runs of it should be merged.
        compact: bool,
        /// Bytes of runs that were written, and how many of them had been written before.
        bytes: (u64, u64),
    },
}

/// A directory as the store has it.
#[derive(Debug)]
pub struct LoadedDir {
    /// Its manifest.
    pub manifest: Manifest,
    /// Its live rows, by name.
    pub rows: Rows,
}

/// An operation that failed, handed back so that it can be tried again.
#[derive(Debug)]
pub struct StoreFailure {
    /// Why.
    pub error: Error,
    /// The failed operation.
    pub op: StoreOp,
}

/// Name of the object with the table of a rank.
#[must_use]
pub fn rank_name(rank: Rank) -> String {
    format!("rank/{:04x}", rank.0)
}

/// The rank whose [`rank_name`] this is.
#[must_use]
pub fn parse_rank_name(name: &str) -> Option<Rank> {
    let rank = u16::from_str_radix(name.strip_prefix("rank/")?, 16).ok().map(Rank)?;
    (rank_name(rank) == name).then_some(rank)
}

/// The prefix of the names of a rank's journal segments.
#[must_use]
pub fn journal_prefix(rank: Rank) -> String {
    format!("journal/mds.{:04x}/", rank.0)
}

/// Name of a segment of a rank's journal.
#[must_use]
pub fn segment_name(rank: types::Rank, index: u64) -> String {
    format!("journal/mds.{:04x}/{index:016x}", rank.0)
}

/// Name of the object that holds a client's journal of a decoupled subtree (Global Persist). The
/// numbers granted with the subtree tell it from those of other decouplings, which recovery may
/// still need: all of them begin at the same position.
#[must_use]
pub fn client_journal_name(subtree: Ino, client: ClientId, grant: InoRange, part: u64) -> String {
    format!("{}{part:08x}", client_journal_prefix(subtree, client, grant))
}

/// The prefix of the names of all journal objects of one decoupling; the part follows.
#[must_use]
pub fn client_journal_prefix(subtree: Ino, client: ClientId, grant: InoRange) -> String {
    format!("{}{:x}.", client_journals_prefix(subtree, client), grant.start)
}

/// The prefix of the names of all journal objects of a client's decouplings of a subtree.
#[must_use]
pub fn client_journals_prefix(subtree: Ino, client: ClientId) -> String {
    format!("journal/client/{:016x}.{:x}.", subtree.0, client.0)
}

/// Name of the object with the rest of such a journal that a merge by reference leaves. It is not
/// among the parts of the decoupling: those are whole.
#[must_use]
pub fn rest_name(journal: &str) -> String {
    format!("journal/rest/{}", journal.strip_prefix("journal/client/").unwrap_or(journal))
}

/// Name of the object with a verifier's proof of such a journal: a list of runs and the rest, as
/// they are sent.
#[must_use]
pub fn proof_name(journal: &str) -> String {
    format!("journal/proof/{}", journal.strip_prefix("journal/client/").unwrap_or(journal))
}

/// Name of the monitor's map.
pub const MAP_NAME: &str = "mon/map";
