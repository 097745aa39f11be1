//! The part of `merge` that has many clients: their journals arrive at once, spread in time, or one
//! after the other; in directories of their own or all in one; beside them the same number of
//! clients that create by RPC (S1 Fig 8, X-18, F-06).
//!
//! Creating is part of the measurement: every client is a process that appends, and merges as soon
//! as it has appended. Nothing waits unless a row says so.

use std::time::Duration;

use cudele::Result;

use crate::harness::cluster::TestCluster;
use crate::harness::crew::{Crew, Together};
use crate::harness::job::{Decoupled, Job, JobOutcome, Task};
use crate::harness::lab::{Lab, alone, measured, policy, together};
use crate::harness::row::Row;
use crate::harness::stats::{median, real, spread};

/// Also of the rows in `arriving`.
pub(crate) const BENCH: &str = "merge";
/// Creates and merges in a second, of all clients together.
const GOAL_CREATES: f64 = 500_000.0;
/// Against the same number of clients that create by RPC, streamed.
const GOAL_OF_RPCS: f64 = 5.0;
/// A request costs more than an append: so many times fewer files take some seconds, too.
const FEWER_BY_RPC: u64 = 5;

struct Rows {
    files: u64,
    at_once: Row,
    in_turn: Row,
    staggered: Row,
    one_directory: Row,
    rpcs: Row,
}

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let clients = lab.clients(20);
    let mut rows = Rows::new(lab.files(100_000, 1_000), clients);
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        lab.progress(BENCH, repetition, &format!("{clients} journals"));
        let at_once = rows.at_once(&lab.cluster(&[])?)?;
        let in_turn = rows.in_turn(&lab.cluster(&[])?)?;
        rows.staggered(&lab.cluster(&[])?, in_turn)?;
        rows.one_directory(&lab.cluster(&[])?)?;
        let cluster = lab.cluster(&[])?;
        let by_rpc = rows.rpcs(&cluster)?;
        let total = real(rows.files * u64::from(clients));
        rows.at_once.note("of_rpcs+stream", total / at_once / by_rpc);
        rows.at_once.note("of_one_after_another", in_turn / at_once);
        cluster.store().clone_into(&mut store);
    }
    lab.report(&store, rows.into_rows());
    Ok(())
}

impl Rows {
    fn new(files: u64, clients: u32) -> Self {
        let row = |name: &str| Row::new(BENCH, format!("{name}_{clients}"), files).clients(clients);
        let mut rows = Self {
            files,
            at_once: row("arriving_together"),
            in_turn: row("one_after_another"),
            staggered: row("arriving_staggered"),
            one_directory: row("one_directory"),
            rpcs: row("rpcs+stream"),
        };
        rows.rpcs.files = files.div_ceil(FEWER_BY_RPC);
        rows.at_once.goal("creates_per_second", GOAL_CREATES);
        rows.at_once.goal("of_rpcs+stream", GOAL_OF_RPCS);
        rows
    }

    fn into_rows(self) -> [Row; 5] {
        [self.at_once, self.in_turn, self.staggered, self.one_directory, self.rpcs]
    }

    fn crew(&self, cluster: &TestCluster, interval: Duration) -> Result<Crew> {
        let policy = policy("weak-none", self.files)?.to_yaml();
        let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        let mut jobs: Vec<Job> = Vec::new();
        for client in 0..u64::from(self.at_once.clients) {
            let (dir, policy) = (cluster.directory(None)?, policy.clone());
            let after_ns = client.saturating_mul(interval_ns);
            let files = self.files;
            let task = Decoupled { dir, policy, files, after_ns, ..Decoupled::default() };
            jobs.push(cluster.job(Task::Decoupled(task)));
        }
        Crew::ready(&jobs, &cluster.state())
    }

    /// All clients begin together: their journals arrive together. Each has its own directory.
    fn at_once(&mut self, cluster: &TestCluster) -> Result<f64> {
        let crew = self.crew(cluster, Duration::ZERO)?;
        let result = measured(cluster, || crew.go())?;
        note(&mut self.at_once, &result);
        Ok(result.seconds)
    }

    /// The same, but every client waits until the one before has merged.
    fn in_turn(&mut self, cluster: &TestCluster) -> Result<f64> {
        let crew = self.crew(cluster, Duration::ZERO)?;
        let result = measured(cluster, || crew.go_in_turn())?;
        note(&mut self.in_turn, &result);
        Ok(result.seconds)
    }

    /// The same, with starts spread in time so that the server is at work for about four fifths of
    /// it, by the time that a client took when they went in turn (F-06).
    fn staggered(&mut self, cluster: &TestCluster, in_turn: f64) -> Result<()> {
        let interval = Duration::from_secs_f64(in_turn * 1.25 / f64::from(self.staggered.clients));
        let crew = self.crew(cluster, interval)?;
        let result = measured(cluster, || crew.go())?;
        note(&mut self.staggered, &result);
        self.staggered.note("interval_ms", interval.as_secs_f64() * 1e3);
        Ok(())
    }

    /// All in one directory. A subtree has one owner at a time, so that this goes in turn: the
    /// next client takes the directory when the one before has given it up.
    fn one_directory(&mut self, cluster: &TestCluster) -> Result<()> {
        let dir = cluster.directory(None)?;
        let policy = policy("weak-none", self.files)?.to_yaml();
        let mut outcomes = Vec::new();
        for client in 0..u64::from(self.one_directory.clients) {
            let task = Decoupled {
                dir: dir.clone(),
                policy: policy.clone(),
                first: client * self.files,
                files: self.files,
                merge: true,
                ..Decoupled::default()
            };
            outcomes.push(alone(cluster, Task::Decoupled(task))?);
        }
        // Without the time in which the processes start and take the directory.
        let seconds = outcomes.iter().map(JobOutcome::seconds).sum();
        note(&mut self.one_directory, &Together { outcomes, seconds });
        Ok(())
    }

    /// The same number of clients, each in its own directory, by request, until all is durable.
    /// Returns the creates in a second of all of them.
    fn rpcs(&mut self, cluster: &TestCluster) -> Result<f64> {
        let (files, policy) = (self.rpcs.files, policy("posix", self.files)?);
        let mut tasks = Vec::new();
        for _ in 0..self.rpcs.clients {
            let dir = cluster.directory(Some(&policy))?;
            tasks.push(Task::Create {
                dir,
                first: 0,
                files,
                sync: true,
                latencies: false,
                alone: false,
            });
        }
        let result = together(cluster, tasks)?;
        self.rpcs.push(result.seconds);
        self.rpcs.cpu(&result.outcomes);
        let rate = real(files * u64::from(self.rpcs.clients)) / result.seconds;
        self.rpcs.note("creates_per_second", rate);
        Ok(rate)
    }
}

fn note(row: &mut Row, result: &Together) {
    let outcomes = &result.outcomes;
    row.push(result.seconds);
    row.cpu(outcomes);
    let events: u64 = outcomes.iter().map(|outcome| outcome.events).sum();
    let bytes: u64 = outcomes.iter().map(|outcome| outcome.bytes).sum();
    row.bytes_per_event = Some(real(bytes) / real(events.max(1)));
    row.note("creates_per_second", real(events) / result.seconds);
    let each = |seconds: fn(&JobOutcome) -> f64| outcomes.iter().map(seconds).collect::<Vec<_>>();
    // The view of one client: from its own start to the end of its own merge.
    let own = each(JobOutcome::seconds);
    row.note("client_seconds", median(&own));
    row.note("client_seconds_max", spread(&own).1);
    row.note("append_seconds", median(&each(|outcome| outcome.part("append_client_journal"))));
    row.note("merge_seconds", median(&each(|outcome| outcome.part("volatile_apply"))));
}
