//! `cudele balancer simulate`: where load would go.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use balancer::simulate::{
    CLIENTS_MAX, RANKS_SIMULATED_MAX, Report, SECONDS_MAX, Setup, Workload, simulate,
};
use balancer::{Expired, PRESETS, Policy};
use clap::Args as ClapArgs;
use cudele::{Errno, Error, Result};
use serde_json::{Value, json};

use crate::context::Context;

/// Runs policies on a cluster on paper: ranks that tick at different moments and hear of each other
/// late, clients that wait for their answers, migrations that cost. The numbers compare policies; they
/// are not what a cluster will do.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele balancer simulate cudele cephfs --workload hotspot --ranks 16
  cudele balancer simulate mine.lua --workload shared --svg shared.svg
  cudele balancer simulate --table --seeds 5

Workloads: private (directories of their own), shared (one directory), compile (source trees),
checkpoint (storms of creates into a new directory), hotspot (what is hot moves). The policy `static`
is simulated with the directories below the root pinned to the ranks in turn.")]
pub(super) struct Args {
    /// Policy files or shipped policies
    #[arg(value_name = "FILE|PRESET", required_unless_present = "table")]
    policies: Vec<OsString>,
    /// Compare on every workload; all shipped policies if none is named
    #[arg(long)]
    table: bool,
    /// private, shared, compile, checkpoint or hotspot
    #[arg(long, default_value = "private", conflicts_with = "table")]
    workload: String,
    /// Ranks
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=i64::from(RANKS_SIMULATED_MAX)))]
    ranks: u16,
    /// Clients; 4 for each rank unless given
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=i64::from(CLIENTS_MAX)))]
    clients: Option<u16>,
    /// Simulated seconds
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=i64::from(SECONDS_MAX)))]
    seconds: u32,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds; the median is shown, with the least and the most
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    seeds: u32,
    /// Draw requests of the ranks over time into this file (one policy, first seed)
    #[arg(long, value_name = "FILE", conflicts_with = "table")]
    svg: Option<PathBuf>,
    /// Print each decision that moved something
    #[arg(long, conflicts_with = "table")]
    log: bool,
}

/// The runs of one policy on one workload.
struct Row {
    policy: String,
    workload: Workload,
    /// Sorted by throughput, with their seeds.
    runs: Vec<(u64, Report)>,
    /// Median throughput of a single rank.
    one_rank: f64,
}

impl Row {
    fn median(&self) -> &Report {
        &self.runs[self.runs.len() / 2].1
    }

    fn rates(&self) -> (f64, f64, f64) {
        let rate = |at: usize| self.runs[at].1.per_second;
        (rate(0), self.median().per_second, rate(self.runs.len() - 1))
    }

    fn to_json(&self) -> Value {
        let report = self.median();
        let (least, median, most) = self.rates();
        json!({
            "policy": self.policy, "workload": self.workload.name(), "seeds": self.runs.len(),
            "per_second": median, "per_second_least": least, "per_second_most": most,
            "speedup": median / self.one_rank,
            "forwards_per_thousand": report.forwards_per_thousand,
            "migrations": report.migrations, "inodes_moved": report.inodes_moved,
            "sessions_flushed": report.sessions_flushed, "frozen_seconds": report.frozen_seconds,
            "unevenness": report.unevenness, "faults": report.faults,
            "fault": report.fault.as_ref().map(ToString::to_string),
        })
    }

    fn to_text(&self, text: &mut String) {
        let report = self.median();
        let (least, median, most) = self.rates();
        let spread =
            if self.runs.len() > 1 { format!(" ({least:.0}-{most:.0})") } else { String::new() };
        let _ = writeln!(
            text,
            "{:<10} {:<26} {:>22} {:>7.2} {:>8.1} {:>6} {:>7} {:>7.1} {:>6.2}",
            self.workload.name(),
            self.policy,
            format!("{median:.0}{spread}"),
            median / self.one_rank,
            report.forwards_per_thousand,
            report.migrations,
            report.sessions_flushed,
            report.frozen_seconds,
            report.unevenness,
        );
        if let Some(fault) = &report.fault {
            let _ = writeln!(text, "{:<10} {} faults, the first: {fault}", "", report.faults);
        }
    }
}

const HEADER: &str = "workload   policy                              requests/s \
                      speedup fwd/1000 moves flushed frozen s uneven";

pub(super) fn run(context: &Context, args: &Args) -> Result<()> {
    if args.svg.is_some() && args.policies.len() != 1 {
        return Err(Error::new(Errno::Invalid, "--svg", "draws one policy")
            .remedy("name one policy, or draw them one by one"));
    }
    let policies: Vec<Policy> = if args.policies.is_empty() {
        PRESETS.iter().filter_map(|preset| balancer::preset(preset.name)).collect()
    } else {
        args.policies.iter().map(super::read).collect::<Result<_>>()?
    };
    let workloads = if args.table { Workload::ALL.to_vec() } else { vec![named(&args.workload)?] };
    let mut rows = Vec::new();
    for workload in workloads {
        let mut alone: Vec<f64> = seeds(args).map(|seed| one_rank(args, workload, seed)).collect();
        alone.sort_by(f64::total_cmp);
        for policy in &policies {
            let mut runs: Vec<(u64, Report)> =
                seeds(args).map(|seed| (seed, report(args, policy, workload, seed))).collect();
            runs.sort_by(|a, b| a.1.per_second.total_cmp(&b.1.per_second));
            let policy = policy.name().to_owned();
            rows.push(Row { policy, workload, runs, one_rank: alone[alone.len() / 2] });
        }
    }
    if let (Some(file), Some(row)) = (&args.svg, rows.first()) {
        draw(file, args, row)?;
    }
    let setup = setup(args, Workload::Private, args.seed);
    let facts = json!({
        "ranks": setup.ranks, "clients": setup.clients, "seconds": setup.seconds,
        "first_seed": args.seed, "simulated": true,
        "rows": rows.iter().map(Row::to_json).collect::<Vec<_>>(),
    });
    context.print(&facts, || text(args, &setup, &rows))
}

fn seeds(args: &Args) -> impl Iterator<Item = u64> + use<> {
    let first = args.seed;
    (0..u64::from(args.seeds)).map(move |number| first.wrapping_add(number))
}

fn named(name: &str) -> Result<Workload> {
    Workload::named(name).ok_or_else(|| {
        let names: Vec<&str> = Workload::ALL.into_iter().map(Workload::name).collect();
        Error::new(Errno::Invalid, name, "no such workload").remedy(names.join(", "))
    })
}

fn setup(args: &Args, workload: Workload, seed: u64) -> Setup {
    let setup = Setup::new(workload, args.ranks);
    let clients = args.clients.unwrap_or(setup.clients);
    Setup { clients, seconds: args.seconds, seed, ..setup }
}

fn report(args: &Args, policy: &Policy, workload: Workload, seed: u64) -> Report {
    let setup = Setup { pinned: policy.name() == "static", ..setup(args, workload, seed) };
    // Steps bound every decision; a clock would make reports differ from run to run.
    simulate(policy, &setup, &Expired::never())
}

/// The same clients on one rank.
fn one_rank(args: &Args, workload: Workload, seed: u64) -> f64 {
    let setup = Setup { ranks: 1, ..setup(args, workload, seed) };
    simulate(&balancer::default_policy(), &setup, &Expired::never()).per_second.max(1e-9)
}

fn draw(file: &Path, args: &Args, row: &Row) -> Result<()> {
    let Some((seed, report)) = row.runs.iter().find(|(seed, _)| *seed == args.seed) else {
        return Ok(());
    };
    let title = format!(
        "{} on {}: {} ranks, seed {seed}, simulated",
        row.policy,
        row.workload.name(),
        args.ranks
    );
    std::fs::write(file, report.svg(&title)).map_err(|error| super::super::up::io(file, &error))
}

fn text(args: &Args, setup: &Setup, rows: &[Row]) -> String {
    let mut text = format!(
        "Simulated: {} ranks, {} clients, {} seconds, {} seeds from {}. Compares policies; no \
         measurement.\n\n",
        setup.ranks, setup.clients, setup.seconds, args.seeds, args.seed
    );
    if !args.table {
        for row in rows {
            let Some((_, report)) = row.runs.iter().find(|(seed, _)| *seed == args.seed) else {
                continue;
            };
            let _ = writeln!(text, "{} on {}", row.policy, row.workload.name());
            text += &report.bars(60);
            if args.log {
                for event in &report.events {
                    let _ = writeln!(
                        text,
                        "{:>5} s  rank {:>3}  {}",
                        event.second, event.rank, event.why
                    );
                }
            }
            text.push('\n');
        }
    }
    let _ = writeln!(text, "{HEADER}");
    for row in rows {
        row.to_text(&mut text);
    }
    text
}
