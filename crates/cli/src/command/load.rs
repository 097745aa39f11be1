//! `cudele load`: a dump back into a namespace.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use cudele::Result;
use ingest::intake::IntakeReport;
use ingest::source::Source;
use terminal::context::Context;

use crate::command::ingest::{Wish, bring_in, show};
use crate::owned;

/// Bring the names and attributes of a dump in, below a directory: types, modes, owners (as root),
/// sizes, times, link targets, hard links, attributes, devices (as root), policies of directories,
/// and the content of small files. Inodes get new numbers. A dump that is not complete is refused
/// before anything is visible.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele load proj.dump /copy
  cudele load --hollow proj.dump /shape      files get their sizes, and holes instead of content
  cudele load --dry-run proj.dump /copy      read and check all of it")]
pub(crate) struct Args {
    /// The file that `cudele dump` wrote, or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Directory in the namespace, made if it is missing
    #[arg(value_name = "PATH")]
    path: String,
    /// Decouple PATH under this policy: the name of a preset, or a policy file
    #[arg(long, value_name = "POLICY", default_value = "batchfs")]
    policy: String,
    /// Make files whose content is not in the dump, with their sizes and a hole that reads as zeros
    #[arg(long)]
    hollow: bool,
    /// Read and check everything, but bring nothing in
    #[arg(long)]
    dry_run: bool,
    /// Continue an interrupted load, or bring in the changes since an earlier dump: entries with
    /// the same type, size and modification time stay, changed ones are replaced, none are removed
    #[arg(long, conflicts_with = "dry_run")]
    resume: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let wish = Wish {
        source: Source::open_dump(&args.file)?,
        destination: cudele::parse_path(&args.path)?.to_string(),
        policy: Some(owned::policy(&args.policy)?),
        dry_run: args.dry_run,
        resume: args.resume,
        hollow: args.hollow,
    };
    let report = bring_in(context, &wish)?;
    if report.visible && !args.dry_run {
        set_policies(context, &wish, &report)?;
    }
    show(context, &report, &wish)
}

/// Gives the directories their policies: a journal has none, because each needs a right of its own.
fn set_policies(context: &Context, wish: &Wish, report: &IntakeReport) -> Result<()> {
    let policies = &report.tally.policies;
    if policies.is_empty() {
        return Ok(());
    }
    let cluster = context.cluster()?;
    let root = cudele::parse_path(&wish.destination)?;
    for (path, text) in policies {
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        let path = names.fold(root.clone(), |path, name| path.join(name));
        cluster.set_policy(&path.to_bytes(), Some(text)).map_err(|error| {
            let cause = format!("{} (all names are loaded, this policy is not set)", error.cause);
            cudele::Error { cause, ..error }
        })?;
    }
    Ok(())
}
