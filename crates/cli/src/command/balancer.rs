//! `cudele balancer`: policies that decide which rank serves which subtree, tried before they are
//! used, and used.

mod log;
mod running;
mod simulate;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use balancer::check::SceneResult;
use balancer::{BalancerPolicy, Expired, PRESETS, SOURCE_BYTES_MAX};
use clap::{Args as ClapArgs, Subcommand};
use cudele::{Errno, Error, Result};
use serde_json::{Value, json};
use terminal::context::Context;
use terminal::format;

/// Check balancer policies, see their decisions in a trial, put one in force on all ranks, and see
/// its decisions there. A policy is a script in the dialect of Mantle or of Ceph, or the name of a
/// shipped one.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele balancer presets
  cudele balancer show greedy-spill > mine.lua
  cudele balancer check mine.lua
  cudele balancer simulate mine.lua --workload shared --ranks 8
  cudele balancer simulate --table            every shipped policy on every workload
  cudele balancer set mine.lua
  cudele balancer log --moves
  cudele balancer revert")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compile a policy, then let it decide on made-up clusters of 1 to 128 ranks
    #[command(after_help = "Example:\n  cudele balancer check mine.lua")]
    Check(Check),
    /// Show where load would go over time, on a cluster on paper
    Simulate(simulate::Args),
    /// List the shipped policies
    #[command(after_help = "Example:\n  cudele balancer presets")]
    Presets,
    /// Print a shipped policy
    #[command(after_help = "Example:\n  cudele balancer show greedy-spill > mine.lua")]
    Show(Show),
    /// Try a policy, and put it in force on all ranks, now and after every restart
    Set(running::Set),
    /// Print the policy in force
    #[command(after_help = "Example:\n  cudele balancer get > now.lua")]
    Get,
    /// List the policies that were in force lately
    #[command(after_help = "Example:\n  cudele balancer ls --json")]
    Ls,
    /// Show the ranks' decisions, with their inputs, reasons and results
    Log(log::Args),
    /// Put the policy before the one in force in force again
    #[command(after_help = "Example:\n  cudele balancer revert")]
    Revert,
}

#[derive(Debug, ClapArgs)]
struct Check {
    /// A policy file, `-` for standard input, or a shipped policy
    #[arg(value_name = "FILE|PRESET")]
    policy: OsString,
}

#[derive(Debug, ClapArgs)]
struct Show {
    /// A shipped policy
    #[arg(value_name = "PRESET")]
    name: String,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    match &args.command {
        Command::Check(args) => check(context, args),
        Command::Simulate(args) => simulate::run(context, args),
        Command::Presets => presets(context),
        Command::Show(args) => show(context, args),
        Command::Set(args) => running::set(context, args),
        Command::Get => running::get(context),
        Command::Ls => running::ls(context),
        Command::Log(args) => log::run(context, args),
        Command::Revert => running::revert(context),
    }
}

/// One decision may take this long: steps, which are the same on every machine, end it first unless
/// single steps are very slow.
const DECISION: Duration = Duration::from_secs(5);

/// Ends a decision that takes longer than [`DECISION`] from now on.
fn patience() -> Expired {
    let begun = Instant::now();
    Expired::when(move || begun.elapsed() > DECISION)
}

/// Reads the policy that an argument means.
///
/// # Errors
/// `EINVAL` with file and line; `ENOENT` if it is neither a file nor a name.
fn read(argument: &OsString) -> Result<BalancerPolicy> {
    if let Some(policy) = argument.to_str().and_then(balancer::preset) {
        return Ok(policy);
    }
    let name = if argument == "-" {
        "standard input".to_owned()
    } else {
        format::quoted(argument.as_bytes()).into_owned()
    };
    let mut bytes = Vec::new();
    // One byte more than a policy may have: then its reader says that it is too long.
    let most = SOURCE_BYTES_MAX as u64 + 1;
    let done = if argument == "-" {
        std::io::stdin().lock().take(most).read_to_end(&mut bytes)
    } else {
        match std::fs::File::open(Path::new(argument)) {
            Ok(file) => file.take(most).read_to_end(&mut bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let cause = "neither a file nor a shipped policy";
                return Err(Error::new(Errno::NotFound, name, cause)
                    .remedy("name a file; `cudele balancer presets` lists the shipped ones"));
            }
            Err(error) => Err(error),
        }
    };
    done.map_err(|error| terminal::io(Path::new(argument), &error))?;
    BalancerPolicy::parse_bytes(&name, &bytes).map_err(|fault| fault.to_error(&name))
}

/// Has a policy decide on made-up clusters.
///
/// # Errors
/// The policy's fault in a trial.
fn try_out(policy: &BalancerPolicy) -> Result<Vec<SceneResult>> {
    let tried = balancer::check::try_out_with(policy, patience);
    if let Some((tried, (rank, tick, fault))) =
        tried.iter().find_map(|tried| tried.fault.as_ref().map(|fault| (tried, fault)))
    {
        let mut error = fault.to_error(policy.name());
        let _ = write!(
            error.cause,
            " ({} of {} ranks, {}, tick {tick})",
            rank,
            tried.ranks,
            tried.scene.name()
        );
        return Err(error);
    }
    Ok(tried)
}

fn check(context: &Context, args: &Check) -> Result<()> {
    let policy = read(&args.policy)?;
    let tried = try_out(&policy)?;
    let value = json!({
        "policy": policy.name(), "dialect": policy.dialect().name(),
        "settings": {
            "need_min": policy.settings().need_min, "need_max": policy.settings().need_max,
            "min_offload": policy.settings().min_offload, "state": policy.settings().state,
        },
        "scenes": tried.iter().map(scene).collect::<Vec<_>>(),
    });
    context.print(&value, || {
        let mut text = format!("{}: {} dialect\n", policy.name(), policy.dialect().name());
        let _ = writeln!(
            text,
            "{:>5}  {:<28} {:>12} {:>9}",
            "RANKS", "LOAD", "WANTS MOVED", "SUBTREES"
        );
        for tried in &tried {
            let (ranks, name) = (tried.ranks, tried.scene.name());
            let _ = writeln!(
                text,
                "{ranks:>5}  {name:<28} {:>12.2} {:>9}",
                tried.wanted, tried.exports
            );
        }
        let steps = tried.iter().map(|tried| tried.steps).max().unwrap_or_default();
        let _ = writeln!(text, "no faults; at most {steps} steps for a decision");
        text
    })
}

fn scene(tried: &SceneResult) -> Value {
    json!({
        "ranks": tried.ranks, "load": tried.scene.name(), "wanted": tried.wanted,
        "subtrees": tried.exports, "steps": tried.steps,
    })
}

fn presets(context: &Context) -> Result<()> {
    let rows = PRESETS.iter().map(|preset| json!({ "name": preset.name, "about": preset.about }));
    context.print(&Value::Array(rows.collect()), || {
        let mut text = String::new();
        for preset in PRESETS {
            let _ = writeln!(text, "{:<26} {}", preset.name, preset.about);
        }
        text
    })
}

fn show(context: &Context, args: &Show) -> Result<()> {
    let Some(preset) = PRESETS.iter().find(|preset| preset.name == args.name) else {
        return Err(Error::new(
            Errno::Invalid,
            args.name.as_str(),
            "no shipped policy is called so",
        )
        .remedy("`cudele balancer presets` lists them"));
    };
    let value = json!({ "name": preset.name, "about": preset.about, "text": preset.text });
    context.print(&value, || preset.text.to_owned())
}
