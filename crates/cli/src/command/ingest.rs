//! `cudele ingest`: real trees and archives into the namespace.

mod resume;

use std::path::PathBuf;

use clap::Args as ClapArgs;
use cudele::{Mechanism, Policy, Result};
use serde_json::{Value, json};
use terminal::context::Context;
use types::quote::quoted;

use crate::owned;
use ingest::intake::{self, IntakeOptions, IntakeReport};
use ingest::source::Source;

/// Bring a directory tree or a tar archive into the namespace: names, types, modes, owners (as
/// root), sizes, times, link targets, hard links, user attributes, devices (as root) and content.
///
/// Without --policy there is one request per entry, under the policy in force at DST. With it, DST
/// is decoupled, everything is appended to a journal, and the policy's mechanisms are carried out.
/// Symbolic links in SRC are copied and never followed.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele ingest /usr/share /share
  cudele ingest --policy batchfs linux.tar.xz /linux
  ssh host tar c /srv | cudele ingest --policy hdfs - /srv
  cudele ingest --resume /usr/share /share      continue after an interruption, or bring changes in")]
pub(crate) struct Args {
    /// A directory, a tar archive (plain, .gz, .xz or .zst), or - for standard input
    #[arg(value_name = "SRC")]
    source: PathBuf,
    /// Directory in the namespace, made if it is missing
    #[arg(value_name = "DST")]
    destination: String,
    /// Decouple DST under this policy: the name of a preset, or a policy file
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Read and check everything, but bring nothing in
    #[arg(long)]
    dry_run: bool,
    /// Continue an interrupted ingest, or bring in the changes of SRC since the last one: entries
    /// with the same type, size and modification time stay, changed ones are replaced, none are
    /// removed. The remains of a killed ingest are discarded first. A power failure can keep the
    /// size of a file and lose its content: remove DST then, and ingest all of it
    #[arg(long, conflicts_with = "dry_run")]
    resume: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let wish = Wish {
        source: Source::open(&args.source)?,
        destination: cudele::parse_path(&args.destination)?.to_string(),
        policy: args.policy.as_deref().map(owned::policy).transpose()?,
        dry_run: args.dry_run,
        resume: args.resume,
        hollow: false,
    };
    let report = bring_in(context, &wish)?;
    show(context, &report, &wish)
}

/// A source, its destination, and how to bring it in.
pub(crate) struct Wish {
    pub(crate) source: Source,
    pub(crate) destination: String,
    pub(crate) policy: Option<Policy>,
    pub(crate) dry_run: bool,
    pub(crate) resume: bool,
    /// Make holes in the place of content that the source does not have.
    pub(crate) hollow: bool,
}

/// Brings a source in, by requests or as a job.
pub(crate) fn bring_in(context: &Context, wish: &Wish) -> Result<IntakeReport> {
    let Wish { source, destination, policy, .. } = wish;
    let without = context.locator().find()?.dir;
    let (resume, hollow) = (wish.resume, wish.hollow);
    let options = IntakeOptions { without, resume, hollow, ..IntakeOptions::default() };
    if wish.dry_run {
        return intake::nowhere(source, &options);
    }
    if wish.resume {
        resume::give_up_remains(context, destination)?;
    }
    let fs = context.mount()?;
    // An update is small: a decoupled job would have to read all names of the destination first.
    let updates = wish.resume && !resume::is_empty(&fs, destination)?;
    match policy {
        Some(policy) if policy.is_decoupled() && !updates => {
            intake::decoupled(&fs, destination, policy, source, &options)
        }
        Some(policy) if !policy.is_decoupled() => {
            fs.make_dir(destination, 0o755)?;
            fs.cluster().set_policy(destination.as_bytes(), Some(&policy.to_yaml()))?;
            intake::strong(&fs, destination, source, &options)
        }
        Some(_) | None => intake::strong(&fs, destination, source, &options),
    }
}

/// Prints the report.
pub(crate) fn show(context: &Context, report: &IntakeReport, wish: &Wish) -> Result<()> {
    let Wish { source, destination, dry_run, .. } = wish;
    let policy = report.policy.as_ref().map(Policy::to_json);
    let mut value = json!({
        "source": source.name(), "destination": destination, "dry_run": dry_run, "policy": policy,
    });
    if let (Value::Object(value), Value::Object(facts)) = (&mut value, report.to_json()) {
        value.extend(facts);
    }
    context.print(&value, || {
        let what = if *dry_run { "would come in at" } else { "is in at" };
        let (source, destination) = (source.name(), quoted(destination.as_bytes()));
        let mut text =
            format!("{} {what} {destination}\n{}", quoted(source.as_bytes()), report.to_text());
        if !*dry_run {
            text.push_str(&ending(report, &destination));
        }
        text
    })
}

/// The fate of the subtree.
fn ending(report: &IntakeReport, destination: &str) -> String {
    let Some(policy) = report.policy.as_ref().filter(|policy| policy.is_decoupled()) else {
        return String::new();
    };
    if report.gone {
        return format!(
            "  The policy keeps nothing: all of it was in the memory of this process and is gone \
             now. {destination} is released.\n"
        );
    }
    if report.visible {
        let replaced = report.merge.as_ref().map_or(0, |merge| merge.replaced);
        let rejected = report.merge.as_ref().map_or(0, |merge| merge.rejected);
        let conflicts = if replaced + rejected == 0 {
            String::new()
        } else {
            format!(" {replaced} names of others were replaced, {rejected} events rejected.")
        };
        return format!("  Merged and released: everybody sees it.{conflicts}\n");
    }
    let place = if policy.contains(Mechanism::GlobalPersist) {
        "in the object store"
    } else {
        "on this machine's disk"
    };
    format!(
        "  Nobody else sees it: the journal is {place}, and {destination} stays decoupled. \
         `cudele merge {destination}` shows it to everybody, `cudele discard {destination}` gives \
         it up.\n"
    )
}
