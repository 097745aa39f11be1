//! `block-allow`: the owner of a decoupled subtree beside clients that send requests (Fig 8, U-02).
//!
//! The owner appends without requests, so it can lose only processor time. Whether `block` protects
//! it is therefore seen beside clients that are as busy in another directory: they send the same
//! requests in the same way, and are served: as many as they can, as many in a second, or one at a
//! time. All clients work during the same second, and cases that are compared follow each other,
//! because the machine's other load changes from one second to the next.

use std::time::Duration;

use cudele::{Policy, Result};
use policy::InterferePolicy;

use crate::harness::cluster::TestCluster;
use crate::harness::crew::{Crew, Together};
use crate::harness::job::{Hammer, Job, TAIL, Task};
use crate::harness::lab::{Lab, measured, policy};
use crate::harness::row::Row;
use crate::harness::stats::{median, real};

const BENCH: &str = "block-allow";
/// The interfering clients are at work before the window begins.
const LEAD: Duration = Duration::from_millis(300);
/// Enough for the fastest owner, so that it never asks for more.
const INODES: u64 = 1 << 32;
/// Names of the interfering clients begin behind those of the owner, so that a merge would displace
/// nothing.
const FIRST_OF_OTHERS: u64 = 1_000_000_000;
/// Short windows, but so many of each in a repetition.
const ROUNDS: u32 = 4;
/// Requests in a second of all clients at a pace: some more than the goal.
const PACE: u64 = 72_000;

/// `EBUSY` answers in a second, to all clients together.
const GOAL_REFUSED: f64 = 60_000.0;
/// The share of the rate beside clients that are as busy in another directory.
const GOAL_KEPT: f64 = 0.9;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    Absent,
    /// In a directory of their own.
    Elsewhere,
    /// In the owner's subtree, which its policy lets them do or not.
    Inside(InterferePolicy),
}

/// The way in which the interfering clients send requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    /// Each keeps so many under way.
    InFlight(usize),
    /// All together [`PACE`], each so many at a time.
    Paced(usize),
}

struct Case {
    name: String,
    others: Others,
    load: Load,
    row: Row,
    /// The owner's creates, each repetition.
    creates: Vec<f64>,
}

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let clients = lab.clients(8);
    let (window_ms, rounds) = if lab.quick { (200, 1) } else { (1_000, ROUNDS) };
    let window = Duration::from_millis(window_ms);
    let mut cases = cases(clients);
    let mut store = String::new();
    for round in 0..lab.repeat.saturating_mul(rounds) {
        let mut beside = 0.0;
        for case in &mut cases {
            lab.progress(BENCH, round / rounds, &case.name);
            let cluster = lab.cluster(&[])?;
            let rate = case.measure(&cluster, clients, window)?;
            match case.others {
                Others::Elsewhere => beside = rate,
                // The case with the same load in another place came before.
                Others::Inside(_) => case.row.note("of_beside", rate / beside),
                Others::Absent => {}
            }
            cluster.store().clone_into(&mut store);
        }
    }
    lab.report(&store, cases.into_iter().map(Case::into_row));
    Ok(())
}

/// Cases in the order in which they are measured; those that are compared are neighbours.
fn cases(clients: u32) -> Vec<Case> {
    let case = |name: String, others, load| {
        let count = if others == Others::Absent { 0 } else { clients };
        let mut row = Row::new(BENCH, &name, 0);
        row.note("others", f64::from(count));
        Case { name, others, load, row, creates: Vec::new() }
    };
    let block = Others::Inside(InterferePolicy::Block);
    let allow = Others::Inside(InterferePolicy::Allow);
    let (full, paced, single) = (Load::InFlight(32), Load::Paced(16), Load::InFlight(1));
    let mut cases = vec![
        case("owner_alone".into(), Others::Absent, full),
        case(format!("beside_{clients}"), Others::Elsewhere, full),
        case(format!("block_{clients}"), block, full),
        case(format!("allow_{clients}"), allow, full),
        case(format!("beside_{clients}_paced"), Others::Elsewhere, paced),
        case(format!("block_{clients}_paced"), block, paced),
        case(format!("beside_{clients}_one_in_flight"), Others::Elsewhere, single),
        case(format!("block_{clients}_one_in_flight"), block, single),
    ];
    for case in cases.iter_mut().filter(|case| case.others == block && case.load != single) {
        case.row.goal("refused_per_second", GOAL_REFUSED);
        case.row.goal("of_beside", GOAL_KEPT);
    }
    cases
}

impl Case {
    /// A repetition; returns the owner's creates in a second.
    fn measure(&mut self, cluster: &TestCluster, clients: u32, window: Duration) -> Result<f64> {
        let clients = if self.others == Others::Absent { 0 } else { clients };
        let result = self.together(cluster, clients, window)?;
        let owner = result.first()?;
        let (seconds, creates) = (owner.seconds(), real(owner.events));
        let rate = creates / seconds;
        self.row.push(seconds);
        self.creates.push(creates);
        self.row.note("creates_per_second", rate);
        self.row.note("owner_requests", real(owner.requests));
        self.row.note("owner_cpu_share", owner.cpu_seconds / seconds);
        self.row.note("server_cpu_share", owner.server_cpu_seconds / seconds);
        self.row.note("creates_per_cpu_second", creates / owner.cpu_seconds.max(1e-9));
        self.row.bytes_per_event = Some(real(owner.bytes) / creates.max(1.0));
        let others = result.outcomes.get(1..).unwrap_or_default();
        if others.is_empty() {
            return Ok(rate);
        }
        let answers: f64 =
            others.iter().map(|other| real(other.events) / other.seconds().max(1e-9)).sum();
        let cpu: f64 = others.iter().map(|other| other.cpu_seconds).sum();
        self.row.note("others_cpu_share", cpu / seconds);
        let names = if self.others == Others::Inside(InterferePolicy::Block) {
            let count: u64 = others.iter().map(|other| other.events).sum();
            self.row.note("refused", real(count));
            ["refused_per_second", "refused_p50_us", "refused_p99_us"]
        } else {
            ["served_per_second", "served_p50_us", "served_p99_us"]
        };
        // Of every client's quantiles the median: they do the same.
        let quantile = |at: usize| {
            let all = others.iter().filter_map(|other| other.latencies_us);
            median(&all.map(|latencies| latencies[at]).collect::<Vec<_>>())
        };
        for (name, value) in names.into_iter().zip([answers, quantile(0), quantile(1)]) {
            self.row.note(name, value);
        }
        Ok(rate)
    }

    /// The owner, and then the interfering clients.
    fn together(&self, cluster: &TestCluster, clients: u32, window: Duration) -> Result<Together> {
        let window_ns = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        let interfere = match self.others {
            Others::Inside(interfere) => interfere,
            Others::Absent | Others::Elsewhere => InterferePolicy::Block,
        };
        let policy = Policy { interfere, ..policy("invisible-none", INODES)? };
        let (dir, elsewhere) = (cluster.directory(None)?, cluster.directory(None)?);
        let inside = matches!(self.others, Others::Inside(_));
        let dir_ino = cluster.ino(if inside { &dir } else { &elsewhere })?.0;
        let append = Task::AppendFor { dir, policy: policy.to_yaml(), window_ns };
        let mut jobs: Vec<Job> = vec![cluster.job(append)];
        let (in_flight, interval_ns) = match self.load {
            Load::InFlight(count) => (count, 0),
            Load::Paced(count) => (count, count as u64 * u64::from(clients) * 1_000_000_000 / PACE),
        };
        for client in 1..=u64::from(clients) {
            let task = Hammer {
                dir_ino,
                first: client * FIRST_OF_OTHERS,
                in_flight,
                interval_ns,
                refused: self.others == Others::Inside(InterferePolicy::Block),
                window_ns,
            };
            jobs.push(cluster.job(Task::Hammer(task)));
        }
        let crew = Crew::ready(&jobs, &cluster.state())?;
        let mut result = measured(cluster, || crew.go_around(LEAD))?;
        if let Some(owner) = result.outcomes.first_mut() {
            // The interfering requests begin before the window and end behind it.
            owner.server_cpu_seconds *= owner.seconds() / (LEAD + window + TAIL).as_secs_f64();
        }
        Ok(result)
    }

    fn into_row(mut self) -> Row {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count of creates"
        )]
        let files = median(&self.creates) as u64;
        self.row.files = files;
        self.row
    }
}
