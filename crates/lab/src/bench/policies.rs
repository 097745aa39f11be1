//! `policies`: the effect of shipped balancer policies on four ranks with a small share of a
//! processor each (`rationed`; Mantle, figures 4, 7 and 8).
//!
//! Everything begins on one rank, and four clients for each rank create files: in directories of
//! their own (`private_…`), or all in one (`shared_…`), which is split when it has 14,000 names. A
//! policy moves load from there while the clients work, so the cost of moving is included.
//! `speedup` is that of the whole job against `static`, which leaves everything there;
//! `settled_speedup` that of the ranks in its last half, and `simulated_settled_speedup` the
//! simulated one of the same (`on_paper`). Rows `…_second_N` have the answers of each rank in each
//! second of the first repetition.

use balancer::simulate::Workload;
use cudele::{Errno, Error, Result};

use super::balancers::creates;
use super::on_paper::{self, Costs};
use crate::harness::lab::Lab;
use crate::harness::rationed::{Measured, Rationed};
use crate::harness::row::Row;
use crate::harness::stats::{median, real, spread};

const BENCH: &str = "policies";
const RANKS: u16 = 4;
const CLIENTS: u32 = 4;
/// Nothing moves under the first.
const POLICIES: [&str; 8] = [
    "static",
    "greedy-spill",
    "greedy-spill-even",
    "fill-and-spill",
    "fill-and-spill-10",
    "adaptable",
    "cephfs",
    "cudele",
];
/// A directory with more names than this is split, and none of its fragments: every policy has the
/// same eight to give away.
const SPLIT: &str = "split_entries=14000";
const SPLIT_AT: f64 = 14_000.0;
/// The policy in force where several ranks are, and how often the same job is done under it.
const OURS: &str = "cudele";
const JOBS: u32 = 10;
/// No policy: directories are given to the ranks in turn.
const PLACED: &str = "placed";
/// Files of each client then: moving everything to its place takes seconds, and should not be most
/// of the job.
const JOB_FILES: u64 = 60_000;
const SPREAD: f64 = 10.0;

/// Where clients work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    Private,
    Shared,
}

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let files = lab.files(6_000, 40);
    let mut rows = Vec::new();
    for (place, word) in [(Where::Private, "private"), (Where::Shared, "shared")] {
        for policy in POLICIES {
            let row = Row::new(BENCH, format!("{word}_{policy}"), files);
            rows.push((place, policy, row.clients(u32::from(RANKS) * lab.clients(CLIENTS))));
        }
    }
    let mut seconds = Vec::new();
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        let mut one = 0.0;
        let mut client_seconds = 0.0;
        for (place, policy, row) in &mut rows {
            lab.progress(BENCH, repetition, &row.name);
            let rationed = started(lab, *place)?;
            let took = job(&rationed, *place, policy, row)?;
            if *policy == POLICIES[0] {
                one = rate(row, &took);
                client_seconds = took.client_seconds_per_event();
            }
            row.note("speedup", rate(row, &took) / one.max(1e-9));
            row.note("settled_speedup", took.settled_per_second() / one.max(1e-9));
            let costs = Costs { one_rank_per_second: one, client_seconds, split_entries: SPLIT_AT };
            row.note("simulated_settled_speedup", simulated(policy, *place, row.clients, costs)?);
            if repetition == 0 {
                seconds.extend(took.rows(BENCH, &row.name, row.clients));
            }
            rationed.cluster.store().clone_into(&mut store);
        }
    }
    lab.report(&store, rows.into_iter().map(|(_, _, row)| row).chain(seconds));
    Ok(())
}

/// `job-spread`: the same job ten times under our own policy, each time with everything on one rank
/// first, after one that does not count; and in turn with it, the same with directories placed by
/// hand and no policy: the spread there has causes other than the balancer.
pub(crate) fn run_spread(lab: &mut Lab) -> Result<()> {
    let jobs = if lab.quick { lab.repeat } else { JOBS };
    let files = lab.files(JOB_FILES, 40);
    let clients = u32::from(RANKS) * lab.clients(CLIENTS);
    let row = |name: &str| Row::new("job-spread", name.to_owned(), files).clients(clients);
    let mut rows = [(OURS, row("private_cudele")), (PLACED, row("private_placed"))];
    rows[0].1.limit("spread_percent", SPREAD);
    let mut store = String::new();
    if !lab.quick {
        // The first job on a machine that did something else before is slower than any other.
        lab.progress("job-spread", 0, "one that does not count");
        job(&started(lab, Where::Private)?, Where::Private, OURS, &mut row("first"))?;
    }
    for repetition in 0..jobs {
        for (policy, row) in &mut rows {
            lab.progress("job-spread", repetition, policy);
            let rationed = started(lab, Where::Private)?;
            job(&rationed, Where::Private, policy, row)?;
            rationed.cluster.store().clone_into(&mut store);
        }
    }
    for (_, row) in &mut rows {
        let (least, most) = spread(&row.seconds);
        row.note("spread_percent", (most - least) / median(&row.seconds).max(1e-9) * 100.0);
    }
    lab.report(&store, rows.map(|(_, row)| row));
    Ok(())
}

/// The simulated result of such a job.
fn simulated(name: &str, place: Where, clients: u32, costs: Costs) -> Result<f64> {
    let policy = balancer::preset(name)
        .ok_or_else(|| Error::new(Errno::NotFound, name, "no shipped policy"))?;
    let workload = match place {
        Where::Private => Workload::Private,
        Where::Shared => Workload::Shared,
    };
    let clients = u16::try_from(clients).unwrap_or(u16::MAX);
    Ok(on_paper::settled_speedup(&policy, workload, RANKS, clients, costs))
}

/// A cluster for it.
fn started(lab: &Lab, place: Where) -> Result<Rationed> {
    let split: &[&str] = if place == Where::Shared { &[SPLIT] } else { &[] };
    Rationed::new(lab, RANKS, split)
}

/// A repetition.
fn job(rationed: &Rationed, place: Where, policy: &str, row: &mut Row) -> Result<Measured> {
    let dirs = match place {
        Where::Private => rationed.directories(row.clients)?,
        Where::Shared => {
            let dir = rationed.directories(1)?;
            dir.iter().cycle().take(usize::try_from(row.clients).unwrap_or(1)).cloned().collect()
        }
    };
    if policy == PLACED {
        rationed.spread(&dirs, RANKS)?;
    }
    rationed.policy(if policy == PLACED { POLICIES[0] } else { policy })?;
    let took = rationed.work(creates(&dirs, 0, row.files))?;
    took.note(row, RANKS);
    row.note("unevenness", took.unevenness());
    Ok(took)
}

/// Creates of all clients in a second.
fn rate(row: &Row, took: &Measured) -> f64 {
    real(row.files * u64::from(row.clients)) / took.together.seconds.max(1e-9)
}
