//! `overload`: more requests than the server can answer, and the waiting time of a client beside
//! them (S-04).
//!
//! Clients keep many requests under way each. At twice the requests that saturate it the server
//! should answer as many in a second as before, each after about twice the time. Beside them works
//! a client that waits for every answer before its next request: it must get its turn, however many
//! requests the loading clients have sent ahead.

use std::time::Duration;

use cudele::Result;

use crate::harness::cluster::TestCluster;
use crate::harness::crew::Crew;
use crate::harness::job::{Hammer, Job, JobOutcome, Task};
use crate::harness::lab::{Lab, measured};
use crate::harness::row::Row;
use crate::harness::stats::{median, real};

const BENCH: &str = "overload";
/// The loading clients are at work before the window begins.
const LEAD: Duration = Duration::from_millis(300);
/// Requests under way of each client, all clients together saturate the server.
const SATURATED: usize = 32;
/// As many as fill every receive of the server.
const DEEP: usize = 2_048;
/// Clients with several requests under way each: a load that a server should carry well, and its
/// answers in a second then.
const PIPELINED: (u32, usize) = (8, 16);
const GOAL_PIPELINED: f64 = 400_000.0;
/// The share of the saturated rate that must remain at twice the load.
const GOAL_KEPT: f64 = 0.9;

struct Case {
    row: Row,
    /// Clients beside the one that waits, and the requests under way of each.
    others: u32,
    in_flight: usize,
}

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let clients = lab.clients(4);
    let window = Duration::from_millis(if lab.quick { 200 } else { 2_000 });
    let mut cases = cases(clients);
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        let (mut alone, mut saturated) = (0.0, 0.0);
        for case in &mut cases {
            lab.progress(BENCH, repetition, &case.row.name);
            let cluster = lab.cluster(&[])?;
            let (waiting, served) = case.measure(&cluster, window)?;
            if case.others == 0 {
                alone = waiting;
                continue;
            }
            case.row.note("waiting_of_alone", waiting / alone);
            if saturated == 0.0 {
                saturated = served;
            } else {
                case.row.note("of_saturated", served / saturated);
            }
            cluster.store().clone_into(&mut store);
        }
    }
    lab.report(&store, cases.into_iter().map(|case| case.row));
    Ok(())
}

/// In the order of measurement: the base of a comparison comes first.
fn cases(clients: u32) -> Vec<Case> {
    let case = |name: String, others, in_flight| {
        let mut row = Row::new(BENCH, name, 0).clients(others + 1);
        row.note("in_flight", f64::from(others) * real(in_flight as u64));
        Case { row, others, in_flight }
    };
    let mut cases = vec![
        case("waiting_alone".into(), 0, 0),
        case(format!("saturated_{clients}"), clients, SATURATED),
        case(format!("twice_{clients}"), clients, 2 * SATURATED),
        case(format!("saturated_{}", 2 * clients), 2 * clients, SATURATED),
        case(format!("deep_{clients}"), clients, DEEP),
    ];
    cases[2].row.goal("of_saturated", GOAL_KEPT);
    let (clients, in_flight) = PIPELINED;
    let mut pipelined = case(format!("pipelined_{clients}"), clients, in_flight);
    pipelined.row.goal("served_per_second", GOAL_PIPELINED);
    cases.push(pipelined);
    cases
}

impl Case {
    /// A repetition; returns the answers in a second to the client that waits for each, and to the
    /// loading clients together.
    fn measure(&mut self, cluster: &TestCluster, window: Duration) -> Result<(f64, f64)> {
        let window_ns = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        let mut jobs: Vec<Job> = Vec::new();
        for client in 0..=self.others {
            let dir = cluster.directory(None)?;
            let in_flight = if client == 0 { 1 } else { self.in_flight };
            jobs.push(cluster.job(Task::Hammer(Hammer {
                dir_ino: cluster.ino(&dir)?.0,
                first: 0,
                in_flight,
                interval_ns: 0,
                refused: false,
                window_ns,
            })));
        }
        let crew = Crew::ready(&jobs, &cluster.state())?;
        let result = measured(cluster, || crew.go_at(LEAD))?;
        let waiting = result.first()?;
        let others = &result.outcomes[1..];
        self.row.push(result.seconds);
        self.row.note("waiting_per_second", rate(waiting));
        if let Some(latencies) = waiting.latencies_us {
            self.row.note("waiting_p50_us", latencies[0]);
            self.row.note("waiting_p99_us", latencies[1]);
        }
        let served: f64 = others.iter().map(rate).sum();
        if !others.is_empty() {
            self.row.note("served_per_second", served);
            let quantile = |at: usize| {
                let all = others.iter().filter_map(|other| other.latencies_us);
                median(&all.map(|latencies| latencies[at]).collect::<Vec<_>>())
            };
            self.row.note("served_p50_us", quantile(0));
            self.row.note("served_p99_us", quantile(1));
        }
        Ok((rate(waiting), served))
    }
}

fn rate(outcome: &JobOutcome) -> f64 {
    real(outcome.events) / outcome.seconds().max(1e-9)
}
