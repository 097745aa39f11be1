//! Tunable settings.

use types::Span;

/// With this begins the name of a counter that reports a setting ([`Settings::chosen`]).
pub const CHOSEN: &str = "set_";

/// Settings of a metadata server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it listens, for the cluster map.
    pub address: String,
    /// Its process id, for the cluster map.
    pub pid: u32,
    /// User and group that own the root directory of a new cluster.
    pub root_owner: (u32, u32),
    /// The settings that the command line names, with their values, for the report with the
    /// counters.
    pub chosen: Vec<(String, u64)>,
    /// The size at which a journal segment is closed, in bytes (J-03).
    pub segment_bytes_max: u64,
    /// How many segments are written at the same time at most (J-03, "dispatch").
    pub dispatch: usize,
    /// How long an event may wait for later ones to be made durable with it.
    pub commit_interval: Span,
    /// Bytes of events that are made durable without waiting.
    pub commit_bytes: u64,
    /// How many journal segments are kept before the oldest are trimmed (J-04).
    pub segments_max: usize,
    /// Rows of a directory taken in one slice of a checkpoint.
    pub capture_rows: usize,
    /// Events of a merge verified or applied in one slice.
    pub merge_events: usize,
    /// The largest client journal a merge may transfer, in bytes.
    pub merge_bytes_max: u64,
    /// Inodes kept in memory; more are forgotten when the metadata store has them.
    pub inodes_max: u64,
    /// For a directory with more bytes than this in the metadata store the number of names may be
    /// reported as an estimate, where it is not known exactly.
    pub about_bytes: u64,
    /// With more names than this a directory, or a fragment of one, is split, if there are several
    /// ranks, and with less than a quarter of it joined again (B-04); 0 for never, because requests
    /// about a whole directory are refused while it is split.
    pub split_entries: u64,
    /// Whether directories are renamed from one rank to another (F-13), or refused (`EXDEV`).
    pub pass_directories: bool,
    /// How long clients of the previous term have for sending unsafe requests again.
    pub reconnect: Span,
    /// How long a client has for giving up its cache of a file that another client opens.
    pub recall: Span,
    /// How long a request waits for the owner of the subtree to merge (`merge: on_demand`).
    pub merge_request_wait: Span,
    /// How long after such a merge requests are answered without another one.
    pub merge_request_pause: Span,
    /// How long after its last request a client may use its cache, and a bit more.
    pub lease: Span,
    /// How long clients may cache a directory under `cache: lease`.
    pub dir_lease: Span,
    /// How much longer the server waits: a client's clock may lose so much against its own in that
    /// time.
    pub dir_lease_slack: Span,
    /// How long a client has for returning a directory that it has alone, with its changes there.
    pub evict: Span,
    /// How long no client gets a directory that was revoked: clients that change it in turn would
    /// only take it from each other.
    pub quiet: Span,
    /// Whether changes are reported when they are executed: for simulators and traces.
    pub observe: bool,
    /// The key of trusted verifiers, if there are any.
    pub proof_key: Option<metastore::ProofKey>,
    /// Reject changes: the store is damaged, perhaps.
    pub read_only: bool,
    /// A private server, for one job.
    pub private: Option<crate::Private>,
    /// How often the rank decides whether load should move, and reports its load to the other
    /// ranks.
    pub balance_interval: Span,
    /// How long it takes until a use of a directory counts half.
    pub balance_half_life: Span,
    /// Bytes of the reserve for removals, checkpoints and stopping; at most a sixteenth of the
    /// store.
    pub reserve_bytes: u64,
    /// Bytes of changes that are kept for watchers.
    pub watch_bytes: usize,
    /// How long after its last request changes are kept for a watcher.
    pub watch: Span,
    /// How often the monitor hears of the server.
    pub beacon_interval: Span,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            address: String::new(),
            pid: 0,
            root_owner: (0, 0),
            chosen: Vec::new(),
            segment_bytes_max: 4 << 20,
            dispatch: 1,
            commit_interval: Span::from_millis(5),
            commit_bytes: 256 << 10,
            segments_max: 16,
            capture_rows: 4096,
            merge_events: 8192,
            merge_bytes_max: 8 << 30,
            proof_key: None,
            inodes_max: 64 << 20,
            about_bytes: 16 << 20,
            split_entries: 0,
            pass_directories: true,
            reconnect: Span::from_millis(2000),
            recall: Span::from_millis(30_000),
            merge_request_wait: Span::from_millis(10_000),
            merge_request_pause: Span::from_millis(1000),
            quiet: Span::from_millis(500),
            lease: Span::from_millis(1500),
            dir_lease: Span::from_millis(1000),
            dir_lease_slack: Span::from_millis(10),
            evict: Span::from_millis(10_000),
            observe: false,
            read_only: false,
            private: None,
            balance_interval: Span::from_millis(10_000),
            balance_half_life: balancer::LoadTable::HALF_LIFE,
            reserve_bytes: 32 << 20,
            watch_bytes: 16 << 20,
            watch: Span::from_millis(600_000),
            beacon_interval: Span::from_millis(500),
        }
    }
}
