//! `cudele balancer simulate`: where load would go, a made one or one that was recorded.

mod recorded;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use balancer::simulate::{
    CLIENTS_MAX, RANKS_SIMULATED_MAX, Recording, SECONDS_MAX, Setup, SimulationReport, Workload,
    replay, simulate,
};
use balancer::{BalancerPolicy, Expired, PRESETS};
use clap::Args as ClapArgs;
use cudele::{Errno, Error, Result};
use serde_json::{Value, json};
use terminal::context::Context;

/// Runs policies on a simulated cluster: ranks that tick at different moments and learn of each
/// other late, clients that wait for their answers, migrations that cost. The numbers compare
/// policies; they do not predict a cluster.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele balancer simulate cudele cephfs --workload hotspot --ranks 16
  cudele balancer simulate mine.lua --workload shared --svg shared.svg
  cudele balancer simulate --table --seeds 5
  cudele --json balancer log > log.json
  cudele balancer simulate cudele greedy-spill --recorded log.json --times 4 --ranks 8

Workloads: private (directories of their own), shared (one directory), compile (source trees),
checkpoint (storms of creates into a new directory), hotspot (what is hot moves). The policy `static`
is simulated with the directories below the root pinned to the ranks in turn. A recorded load has the
directories, requests and costs that the ranks of a cluster have logged, pinned as they were; how many
clients there were is not in it.")]
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
    /// Replay the recorded load of a cluster: a file with the output of `cudele --json balancer
    /// log`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workload", "table"])]
    recorded: Option<PathBuf>,
    /// So many times the recorded load
    #[arg(long, default_value_t = 1.0, value_name = "N", requires = "recorded", value_parser = positive)]
    times: f64,
    /// Seconds in which the recorded servers' counters fade by half (their setting
    /// balance_half_life_ms)
    #[arg(long, default_value_t = 5.0, value_name = "SECONDS", requires = "recorded", value_parser = positive)]
    half_life: f64,
    /// Ranks
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=i64::from(RANKS_SIMULATED_MAX)))]
    ranks: u16,
    /// Clients; 4 for each rank unless given
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=i64::from(CLIENTS_MAX)))]
    clients: Option<u16>,
    /// Simulated seconds; 300, or as many as were recorded, unless given
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(SECONDS_MAX)))]
    seconds: Option<u32>,
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
    workload: &'static str,
    /// Sorted by throughput, with their seeds.
    runs: Vec<(u64, SimulationReport)>,
    /// Median throughput of a single rank.
    one_rank: f64,
}

impl Row {
    fn median(&self) -> &SimulationReport {
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
            "policy": self.policy, "workload": self.workload, "seeds": self.runs.len(),
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
            self.workload,
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
    let policies: Vec<BalancerPolicy> = if args.policies.is_empty() {
        PRESETS.iter().filter_map(|preset| balancer::preset(preset.name)).collect()
    } else {
        args.policies.iter().map(super::read).collect::<Result<_>>()?
    };
    let recording = args.recorded.as_deref().map(|file| recorded::read(file, args.half_life));
    let recording = recording.transpose()?;
    let loads = match &recording {
        Some(recording) => vec![Load::Recorded(recording)],
        None if args.table => Workload::ALL.map(Load::Made).to_vec(),
        None => vec![Load::Made(named(&args.workload)?)],
    };
    let mut rows = Vec::new();
    for load in loads.iter().copied() {
        let mut alone: Vec<f64> = seeds(args).map(|seed| one_rank(args, load, seed)).collect();
        alone.sort_by(f64::total_cmp);
        for policy in &policies {
            let mut runs: Vec<(u64, SimulationReport)> =
                seeds(args).map(|seed| (seed, report(args, policy, load, seed))).collect();
            runs.sort_by(|a, b| a.1.per_second.total_cmp(&b.1.per_second));
            let policy = policy.name().to_owned();
            let workload = load.name();
            rows.push(Row { policy, workload, runs, one_rank: alone[alone.len() / 2] });
        }
    }
    if let (Some(file), Some(row)) = (&args.svg, rows.first()) {
        draw(file, args, row)?;
    }
    let setup = setup(args, loads[0], args.seed);
    let facts = json!({
        "recorded": recording.as_ref().map(|recording| recorded::facts(recording, args.times)),
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

/// The work of the clients.
#[derive(Clone, Copy)]
enum Load<'a> {
    Made(Workload),
    Recorded(&'a Recording),
}

impl Load<'_> {
    fn name(self) -> &'static str {
        match self {
            Self::Made(workload) => workload.name(),
            Self::Recorded(_) => "recorded",
        }
    }

    fn run(self, args: &Args, policy: &BalancerPolicy, setup: &Setup) -> SimulationReport {
        // Steps bound every decision; a clock would make reports differ from run to run.
        let expired = Expired::never();
        match self {
            Self::Made(_) => simulate(policy, setup, &expired),
            Self::Recorded(recording) => replay(policy, setup, recording, args.times, &expired),
        }
    }
}

fn setup(args: &Args, load: Load<'_>, seed: u64) -> Setup {
    let (workload, usual) = match load {
        Load::Made(workload) => (workload, 300),
        Load::Recorded(recording) => (Workload::Private, recording.seconds()),
    };
    let setup = Setup::new(workload, args.ranks);
    let clients = args.clients.unwrap_or(setup.clients);
    Setup { clients, seconds: args.seconds.unwrap_or(usual), seed, ..setup }
}

fn report(args: &Args, policy: &BalancerPolicy, load: Load<'_>, seed: u64) -> SimulationReport {
    // A recorded load includes its pins.
    let pinned = policy.name() == "static" && matches!(load, Load::Made(_));
    load.run(args, policy, &Setup { pinned, ..setup(args, load, seed) })
}

/// The same clients on one rank.
fn one_rank(args: &Args, load: Load<'_>, seed: u64) -> f64 {
    let setup = Setup { ranks: 1, ..setup(args, load, seed) };
    load.run(args, &balancer::default_policy(), &setup).per_second.max(1e-9)
}

fn positive(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        Ok(_) | Err(_) => Err("not a number above zero".to_owned()),
    }
}

fn draw(file: &Path, args: &Args, row: &Row) -> Result<()> {
    let Some((seed, report)) = row.runs.iter().find(|(seed, _)| *seed == args.seed) else {
        return Ok(());
    };
    let title =
        format!("{} on {}: {} ranks, seed {seed}, simulated", row.policy, row.workload, args.ranks);
    std::fs::write(file, report.svg(&title)).map_err(|error| terminal::io(file, &error))
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
            let _ = writeln!(text, "{} on {}", row.policy, row.workload);
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
