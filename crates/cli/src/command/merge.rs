//! `cudele merge`: a decoupled subtree becomes part of the global namespace.

use std::fmt::Write as _;

use clap::Args as ClapArgs;
use cudele::{Errno, MergeReport, MergeSample, MergedBy, Result, SampleKind};
use serde_json::{Value, json};
use terminal::context::Context;
use terminal::figures::{bytes, count, per_second, seconds};
use types::quote::quoted;

use super::quota;
use crate::owned;
use ingest::source::shown;

/// Merge the journals that this machine keeps for a decoupled subtree, and release the subtree to
/// all clients. A damaged journal is refused before anything is applied (J-09).
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Example:\n  cudele merge --dry-run /scratch/job && cudele merge /scratch/job"
)]
pub(crate) struct Args {
    /// Directory in the namespace
    path: String,
    /// Show the effects of the merge, without merging
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let mut subtree = owned::attach(context, &args.path)?;
    let path = subtree.path().to_string();
    if args.dry_run {
        let report = subtree.dry_run()?;
        let mut value = to_json(&report);
        value["path"] = json!(path);
        value["dry_run"] = json!(true);
        return context.print(&value, || {
            format!("{} would be merged\n{}", quoted(path.as_bytes()), to_text(&report))
        });
    }
    let done = subtree.merge()?;
    let exceeded = quota::exceeded(subtree.fs(), subtree.path());
    subtree.forget()?;
    let report = done.merge.clone().unwrap_or_default();
    let mut value = to_json(&report);
    value["path"] = json!(path);
    value["dry_run"] = json!(false);
    value["bytes"] = json!(done.bytes);
    value["seconds"] = json!(done.seconds);
    value["exceeded_quotas"] = exceeded.iter().map(quota::to_json).collect();
    value["by_reference"] = reference_json(&done.merged_by);
    value["steps"] = done
        .steps
        .iter()
        .map(|step| {
            json!({
                "name": step.mechanism.name(), "seconds": step.seconds, "bytes": step.bytes,
            })
        })
        .collect();
    context.print(&value, || {
        let (path, merged) = (quoted(path.as_bytes()), to_text(&report));
        let mut text = format!("{path} is merged and everybody's again\n{merged}");
        text.push_str(&reference_text(&done.merged_by));
        text.extend(exceeded.iter().map(|quota| format!("  quota of {}", quota::to_text(quota))));
        for step in &done.steps {
            let _ = writeln!(
                text,
                "  {:<24} {:>10}   {}, {} events/s",
                step.mechanism.name(),
                seconds(step.seconds),
                bytes(step.bytes),
                per_second(report.events, step.seconds)
            );
        }
        text
    })
}

/// How much was merged by reference, and why not more.
pub(crate) fn reference_json(by: &MergedBy) -> Value {
    json!({ "runs": by.runs, "events": by.events, "seconds": by.seconds, "not_because": by.because })
}

/// The same as text; empty if the user did not ask for it.
pub(crate) fn reference_text(by: &MergedBy) -> String {
    let mut text = String::new();
    if by.runs > 0 {
        let (events, runs) = (count(by.events), count(by.runs));
        let _ = writeln!(text, "  by reference: {events} events, as {runs} directories");
    }
    if let Some(because) = by.because {
        let _ = writeln!(text, "  by value, although the policy asks for runs: {because}");
    }
    text
}

/// The facts of a merge.
pub(crate) fn to_json(report: &MergeReport) -> Value {
    json!({
        "events": report.events, "created": report.created, "replaced": report.replaced,
        "rejected": report.rejected,
        "conflicts": report.samples.iter().map(|sample| json!({
            "kind": word(sample.kind), "errno": sample.errno.map(Errno::symbol),
            "path": (!sample.path.is_empty()).then(|| String::from_utf8_lossy(&sample.path)),
            "parent": sample.parent.0, "name": shown(&sample.name),
        })).collect::<Vec<_>>(),
    })
}

fn place(sample: &MergeSample) -> String {
    if !sample.path.is_empty() {
        shown(&sample.path)
    } else if sample.name.is_empty() {
        format!("inode {}", sample.parent)
    } else {
        format!("{} in directory {}", shown(&sample.name), sample.parent)
    }
}

fn word(kind: SampleKind) -> &'static str {
    match kind {
        SampleKind::Replaced => "replaced",
        SampleKind::Rejected => "rejected",
    }
}

/// The same as text.
pub(crate) fn to_text(report: &MergeReport) -> String {
    let mut text = format!(
        "  {} events: {} inodes created, {} names of others replaced, {} events rejected\n",
        count(report.events),
        count(report.created),
        count(report.replaced),
        count(report.rejected)
    );
    for sample in &report.samples {
        let _ = write!(text, "    {} {}", word(sample.kind), place(sample));
        let _ = match sample.errno {
            Some(errno) => writeln!(text, ": {errno}"),
            None => writeln!(text),
        };
    }
    text
}
