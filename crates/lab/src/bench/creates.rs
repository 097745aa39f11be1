//! `creates`: creates by RPC, by one client and by several at once (U-01). Every client is a
//! process; each works in a directory of its own unless the row says otherwise.
//!
//! Beside them, in the same repetition: a client that is alone with its journal, and CephFS where
//! `--cephfs` names one.

use std::path::PathBuf;

use cudele::Result;

use crate::harness::cluster::TestCluster;
use crate::harness::job::{JobOutcome, Task};
use crate::harness::lab::{Lab, decoupled, policy, together};
use crate::harness::row::{PER_SECOND, Row};
use crate::harness::stats::real;

const BENCH: &str = "creates";
/// The goals of a lone client that waits for every answer, and of one that does not; creates a
/// second.
const GOAL_SYNC: f64 = 25_000.0;
const GOAL_ASYNC: f64 = 1_000_000.0;
/// Eight of the first kind.
const GOAL_EIGHT: f64 = 90_000.0;
/// The remaining share of the rate of a client that only appends to its journal.
const GOAL_OF_DECOUPLED: f64 = 0.4;
/// The share of its lone rate that each of two clients in one directory keeps.
const GOAL_OF_LONE: f64 = 0.5;
/// Times the rate of CephFS.
const GOAL_OF_CEPHFS: f64 = 8.0;

enum How {
    /// By RPC, and each answer is waited for.
    Rpcs,
    /// The same, all in one directory.
    OneDirectory,
    /// In a directory that the client has alone, without waiting.
    Alone,
    /// To the client's journal, which is merged then.
    Decoupled,
    /// To a CephFS.
    Cephfs(PathBuf),
}

struct Case {
    preset: &'static str,
    how: How,
    row: Row,
    /// A figure: how many times as fast as an earlier case, by its name, each client is.
    against: Option<(&'static str, String)>,
}

impl Case {
    fn new(name: impl Into<String>, preset: &'static str, how: How, files: u64) -> Self {
        Self { preset, how, row: Row::new(BENCH, name, files), against: None }
    }

    fn clients(mut self, clients: u32) -> Self {
        self.row = self.row.clients(clients);
        self
    }

    fn goal(mut self, figure: &'static str, at_least: f64) -> Self {
        self.row.goal(figure, at_least);
        self
    }

    fn against(mut self, figure: &'static str, other: impl Into<String>) -> Self {
        self.against = Some((figure, other.into()));
        self
    }
}

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let mut cases = cases(lab);
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        let cluster = lab.cluster(&[])?;
        let mut measured: Vec<(String, f64)> = Vec::new();
        for case in &mut cases {
            lab.progress(BENCH, repetition, &case.row.name);
            let slowest = case.measure(&cluster, repetition)? / real(case.row.files);
            if let Some((figure, other)) = &case.against
                && let Some((_, seconds)) = measured.iter().find(|(name, _)| name == other)
            {
                case.row.note(figure, seconds / slowest);
            }
            measured.push((case.row.name.clone(), slowest));
        }
        cluster.store().clone_into(&mut store);
    }
    lab.report(&store, cases.into_iter().map(|case| case.row));
    Ok(())
}

/// In the order of measurement: the base of a comparison comes first.
fn cases(lab: &Lab) -> Vec<Case> {
    let files = lab.files(100_000, 1_000);
    let many = lab.clients(8);
    let case = |name: &str, preset, how| Case::new(name, preset, how, files);
    let several = |name: &str, preset, how| {
        Case::new(format!("{name}_{many}_clients"), preset, how, files).clients(many)
    };
    let mut cases = Vec::new();
    if let Some(conf) = &lab.cephfs {
        let cephfs = || How::Cephfs(conf.clone());
        // It takes a hundred times as long.
        let files = (files / 10).max(1);
        let case = |name: String| Case::new(name, "posix", cephfs(), files);
        cases.push(case("cephfs_1_client".into()));
        cases.push(case(format!("cephfs_{many}_clients")).clients(many));
    }
    let mut eight =
        several("sync", "posix", How::Rpcs).against("of_cephfs", format!("cephfs_{many}_clients"));
    if many >= 8 {
        eight = eight.goal(PER_SECOND, GOAL_EIGHT);
    }
    cases.extend([
        case("decoupled_1_client", "weak-none", How::Decoupled),
        case("rpcs_1_client", "posix-volatile", How::Rpcs),
        case("sync_1_client", "posix", How::Rpcs)
            .against("of_cephfs", "cephfs_1_client")
            .goal(PER_SECOND, GOAL_SYNC)
            .goal("of_cephfs", GOAL_OF_CEPHFS),
        several("rpcs", "posix-volatile", How::Rpcs),
        eight,
        case("two_clients_one_directory", "posix", How::OneDirectory)
            .clients(2)
            .against("each_of_lone", "sync_1_client")
            .goal("each_of_lone", GOAL_OF_LONE),
        case("async_1_client", "posix", How::Alone)
            .against("of_decoupled", "decoupled_1_client")
            .goal(PER_SECOND, GOAL_ASYNC)
            .goal("of_decoupled", GOAL_OF_DECOUPLED),
        case("async_rpcs_1_client", "posix-volatile", How::Alone),
    ]);
    cases
}

impl Case {
    /// A repetition; returns the seconds of the slowest client.
    fn measure(&mut self, cluster: &TestCluster, repetition: u32) -> Result<f64> {
        let (files, clients) = (self.row.files, self.row.clients);
        if let How::Decoupled = self.how {
            let seconds = decoupled(cluster, self.preset, files)?.seconds();
            self.row.push(seconds);
            return Ok(seconds);
        }
        let policy = policy(self.preset, files)?;
        let one = matches!(self.how, How::OneDirectory);
        let shared = one.then(|| cluster.directory(Some(&policy))).transpose()?;
        let sync = policy.streams();
        let mut tasks = Vec::new();
        for client in 0..u64::from(clients) {
            if let How::Cephfs(conf) = &self.how {
                let id = std::process::id();
                let dir = format!("/{}.{id}.{repetition}.{client}", self.row.name);
                tasks.push(Task::CephCreate { conf: conf.clone(), dir, files, sync });
                continue;
            }
            let (dir, first) = match &shared {
                Some(dir) => (dir.clone(), client * files),
                None => (cluster.directory(Some(&policy))?, 0),
            };
            let alone = matches!(self.how, How::Alone);
            tasks.push(Task::Create { dir, first, files, sync, latencies: false, alone });
        }
        let result = together(cluster, tasks)?;
        self.row.push(result.seconds);
        if !matches!(self.how, How::Cephfs(_)) {
            self.row.cpu(&result.outcomes);
            let requests: u64 = result.outcomes.iter().map(|outcome| outcome.requests).sum();
            let creates = real(files * u64::from(clients));
            self.row.note("requests_per_create", real(requests) / creates);
        }
        Ok(result.outcomes.iter().map(JobOutcome::seconds).fold(0.0, f64::max))
    }
}
