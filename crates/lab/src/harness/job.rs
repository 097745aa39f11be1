//! The orders to a client process, and its reports: lines of JSON over its pipes.
//!
//! The dialogue: a [`Job`] on standard input; `ready` when everything that is not measured is
//! done; a line when all clients are to start, with a time of the machine's monotonic clock where
//! they must agree on one; an [`JobOutcome`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::files::At;
use super::soak::SoakJob;

/// The time for which a [`Hammer`] works behind its window, so that the measured clients have its
/// load until they stop.
pub(crate) const TAIL: Duration = Duration::from_millis(100);

/// The line that a client writes before it waits for the start.
pub(crate) const READY: &str = "ready";

/// The line that a client writes before it waits in the middle of its work.
pub(crate) const MIDDLE: &str = "middle";

/// A piece of work for one client process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The monitor's address; empty if the work needs no cluster.
    pub(crate) mon: String,
    /// The file with the key of the client, instead of the one of the cluster.
    pub(crate) key: Option<PathBuf>,
    /// The user and the group of the process, if not those of this one.
    pub(crate) user: Option<u32>,
    /// What to do.
    pub(crate) task: Task,
}

/// See [`Job`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Create files by RPC, one after the other, and wait until all are durable if that is asked.
    Create { dir: String, first: u64, files: u64, sync: bool, latencies: bool, alone: bool },
    /// Create files in a CephFS, by its own library.
    CephCreate { conf: PathBuf, dir: String, files: u64, sync: bool },
    /// Look for every name before it is created, as programs do; half of the files, then the rest
    /// at the parent's word.
    LookAndCreate { dir: String, first: u64, files: u64 },
    /// Create files in a directory until the parent reports the end of the rest.
    Intrude { dir: String, first: u64 },
    /// The same as `LookAndCreate`, in a CephFS, by its own library.
    CephLookAndCreate { conf: PathBuf, dir: String, first: u64, files: u64 },
    /// The same as `Intrude`, in a CephFS.
    CephIntrude { conf: PathBuf, dir: String, first: u64 },
    /// Create files, and look them all up so many times: out of memory, or asking every time.
    Stat { dir: String, files: u64, passes: u64, remember: bool },
    /// Decouple a directory, append creates to the client's journal, complete the mechanisms.
    Decoupled(Decoupled),
    /// Decouple a directory and create files in random order in some directories below it.
    Insert(Insert),
    /// Look this many of the files up one after the other, in random order; or create as many new
    /// ones.
    Find { dir: String, entries: Entries, count: u64, create: bool },
    /// Put the rows of the same files into a RocksDB at a place: in batches, or as sorted tables
    /// that it takes in.
    RocksInsert { place: PathBuf, entries: Entries, tables: bool },
    /// Decouple a directory and append the entries of a directory tree: real names and attributes.
    Walk { dir: String, policy: String, source: PathBuf, limit: u64 },
    /// Look one name up.
    LookUp { path: String },
    /// List a directory straight from the object store.
    Scan { dir: String },
    /// List a directory in a CephFS, by its own library: names and types.
    CephList { conf: PathBuf, dir: String },
    /// List a directory by RPC.
    List { dir: String },
    /// List a directory in the view of a decoupled client, twice.
    View { dir: String, policy: String },
    /// Write a file sequentially and sync it: the speed of the disk without us.
    Write { file: PathBuf, bytes: u64 },
    /// Decouple a directory and append creates to the client's journal for so long.
    AppendFor { dir: String, policy: String, window_ns: u64 },
    /// Decouple a directory, create files and compute, with merges during the work.
    Synced(Synced),
    /// Apply creates to a new store at a place, event by event.
    PerEvent { place: PathBuf, files: u64 },
    /// Send creates, several at a time, for so long.
    Hammer(Hammer),
    /// Answer every message on a socket with itself.
    Echo { socket: PathBuf },
    /// Send 64 bytes and wait for them to come back, again and again.
    Ping { socket: PathBuf, rounds: u64 },
    /// Be behind a mount until the start is given, and unmount then.
    Serve { at: PathBuf, what: Served },
    /// Work in a directory with ordinary system calls.
    Calls { dir: PathBuf, work: Calls },
    /// Write or read this many bytes in the object store, without a file system. Read objects are
    /// removed unless they are kept.
    Store { url: String, bytes: u64, write: bool, keep: bool },
    /// Run a program to its end.
    Program { arguments: Vec<OsString> },
    /// Write checkpoints as some ranks of a parallel program.
    Checkpoint(Checkpoint),
    /// Verify the files of all ranks.
    WalkCheckpoint(Checkpoint),
    /// Be a job that commits its output by renaming it into place.
    Workflow(Workflow),
    /// Watch that job's output until it is done.
    Observe(Workflow),
    /// Change the policy of a subtree in which another client works.
    Change(Change),
    /// Make a data set of small files.
    MakeDataset(Dataset),
    /// Read it in random order.
    ReadDataset(Dataset),
    /// Send the requests of a job that compiles a source tree.
    Compile(Compile),
    /// Be a client of `soak` until the parent ends this process.
    Soak(SoakJob),
}

/// See [`Task::Compile`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Compile {
    /// The directory of the tree.
    pub(crate) dir: String,
    /// The client's number: each has other files that are hot.
    pub(crate) client: u64,
    /// Directories of the tree.
    pub(crate) directories: u64,
    /// Files of each.
    pub(crate) files: u64,
    /// The compiler's time for a file.
    pub(crate) think_micros: u64,
}

impl Compile {
    /// The name of a directory of the tree.
    pub(crate) fn part(number: u64) -> String {
        format!("part.{number:02}")
    }
}

/// See [`Task::Checkpoint`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    /// Where.
    pub(crate) at: At,
    /// The directory of the checkpoints.
    pub(crate) dir: String,
    /// Decouple it under this policy, or the rank's directory where each has its own files.
    pub(crate) policy: Option<String>,
    /// All ranks write into one file, in turn.
    pub(crate) shared: bool,
    /// The ranks that this process is, a thread for each.
    pub(crate) own: Range<u64>,
    /// How many ranks there are.
    pub(crate) ranks: u64,
    /// Files, or blocks of the shared file, that a rank writes in a step.
    pub(crate) files: u64,
    /// Bytes of each.
    pub(crate) bytes: u64,
    /// Checkpoints, one after the other.
    pub(crate) steps: u64,
    /// How files become durable that are not decoupled.
    pub(crate) sync: Syncing,
}

/// See [`Task::Workflow`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Workflow {
    /// Where.
    pub(crate) at: At,
    /// The directory of its output.
    pub(crate) dir: String,
    /// Decouple it under this policy.
    pub(crate) policy: Option<String>,
    /// Parts that it makes.
    pub(crate) tasks: u64,
    /// Bytes of each.
    pub(crate) bytes: u64,
    /// Tasks that are under way at the same time.
    pub(crate) executors: u64,
}

/// See [`Task::Change`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Change {
    /// The subtree, under the strong policy.
    pub(crate) dir: String,
    /// The directory in it in which the other client works.
    pub(crate) live_dir: String,
    /// Names that are in the subtree.
    pub(crate) files: u64,
    /// Names that are made, and neither merged nor written down when the policy changes.
    pub(crate) held: u64,
    /// The policies' texts.
    pub(crate) strong: String,
    /// See `strong`.
    pub(crate) weak: String,
    /// See `strong`.
    pub(crate) volatile: String,
    /// The directory of the object store.
    pub(crate) store: PathBuf,
    /// The process of the metadata server.
    pub(crate) server: u32,
}

/// See [`Task::MakeDataset`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Dataset {
    /// Where.
    pub(crate) at: At,
    /// The directory, in the namespace.
    pub(crate) dir: String,
    /// Decouple it under this policy.
    pub(crate) policy: Option<String>,
    /// How many there are.
    pub(crate) files: u64,
    /// How they are read in the namespace.
    pub(crate) reading: Reading,
    /// This reader's number; it reads every file with a place in the order that is its turn.
    pub(crate) reader: u64,
    /// How many readers there are.
    pub(crate) readers: u64,
}

/// See [`Dataset::reading`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reading {
    /// By requests.
    Requests,
    /// In a view of the subtree that this client has for itself.
    View,
}

/// See [`Checkpoint::sync`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Syncing {
    /// All that was written, with one call.
    All,
    /// One by one, where no call does that for all of them.
    Each,
    /// The policy makes them durable.
    Not,
}

/// See [`Task::Serve`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Served {
    /// A file system that does nothing, in memory.
    Nothing,
    /// The namespace, as `cudele mount` shows it.
    Namespace,
    /// The same with `wsync`.
    Synchronously,
    /// The namespace with `latency=0`.
    Awake,
    /// The namespace, with requests over io_uring.
    OverIoUring,
    /// The namespace, with a directory decoupled; at the end it is merged, or thrown away.
    Decoupled { dir: String, policy: String, merge: bool },
}

/// See [`Task::Calls`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Calls {
    /// Create and close so many files.
    Create { files: u64 },
    /// Read the attributes of this many files this many times; one extra pass before the start.
    Stat { files: u64, passes: u64 },
    /// List the directory.
    List,
    /// Write a file from beginning to end, then make it durable.
    Write { bytes: u64 },
    /// Read it, after the kernel has dropped its content. Unless it is kept, it is removed after
    /// the end.
    Read { bytes: u64, keep: bool },
}

/// See [`Task::Decoupled`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Decoupled {
    /// The directory.
    pub(crate) dir: String,
    /// The policy's text.
    pub(crate) policy: String,
    /// Number of the first file's name.
    pub(crate) first: u64,
    /// How many.
    pub(crate) files: u64,
    /// Start this long after the rest.
    pub(crate) after_ns: u64,
    /// Append before the start, so that only the completion is measured.
    pub(crate) append_first: bool,
    /// Merge and give the subtree up at the end, under any policy.
    pub(crate) merge: bool,
}

/// See [`Task::Insert`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Insert {
    /// The directory.
    pub(crate) dir: String,
    /// The policy's text.
    pub(crate) policy: String,
    /// What is created.
    pub(crate) entries: Entries,
    /// Merge after so many; 0 for once, at the end.
    pub(crate) batch: u64,
    /// Files have content: from so many bytes to so many.
    #[serde(default)]
    pub(crate) content: Option<[u32; 2]>,
}

/// Files that are created in random order.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Entries {
    /// How many.
    pub(crate) files: u64,
    /// In how many directories.
    pub(crate) directories: u64,
}

/// See [`Task::Synced`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Synced {
    /// The directory.
    pub(crate) dir: String,
    /// The policy's text.
    pub(crate) policy: String,
    /// How many.
    pub(crate) files: u64,
    /// Time between two syncs; 0 for none.
    pub(crate) every_ns: u64,
    /// The work between two creates: a checksum of this many bytes.
    pub(crate) work_bytes: usize,
}

/// See [`Task::Hammer`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hammer {
    /// Number of the directory's inode: its path may lead nowhere for this client.
    pub(crate) dir_ino: u64,
    /// Number of the first file's name.
    pub(crate) first: u64,
    /// Requests under way at the same time.
    pub(crate) in_flight: usize,
    /// Time between two such lots of requests; 0 to send as soon as there are answers.
    pub(crate) interval_ns: u64,
    /// Every request must be answered with `EBUSY`; otherwise none may fail.
    pub(crate) refused: bool,
    /// From the common start; requests are sent before and behind it, too, and not counted.
    pub(crate) window_ns: u64,
}

/// The report of a client process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct JobOutcome {
    /// Start and end of the measured part on the machine's monotonic clock, in nanoseconds.
    pub(crate) start_ns: u64,
    /// See `start_ns`.
    pub(crate) end_ns: u64,
    /// Seconds of the parts that were measured alone, by name; mechanisms under their names.
    pub(crate) parts: BTreeMap<String, f64>,
    /// Events appended, files created or entries listed.
    pub(crate) events: u64,
    /// Bytes of the journal.
    pub(crate) bytes: u64,
    /// Processor time of the client in the measured part.
    pub(crate) cpu_seconds: f64,
    /// Processor time of the metadata server in that time; filled in by the parent.
    #[serde(default)]
    pub(crate) server_cpu_seconds: f64,
    /// Requests to the metadata server in the measured part.
    pub(crate) requests: u64,
    /// Latencies in microseconds: median, 99th percentile, 99.9th, largest.
    pub(crate) latencies_us: Option<[f64; 4]>,
}

impl JobOutcome {
    /// Seconds from start to end.
    pub(crate) fn seconds(&self) -> f64 {
        super::stats::seconds_between(self.start_ns, self.end_ns)
    }

    /// Seconds of a part; 0 if there was none.
    pub(crate) fn part(&self, name: &str) -> f64 {
        self.parts.get(name).copied().unwrap_or(0.0)
    }
}
