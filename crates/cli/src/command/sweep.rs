//! `cudele sweep`: leftovers of crashes in the object store.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args as ClapArgs;
use cudele::Result;
use serde_json::json;
use terminal::context::Context;
use terminal::figures::count;

/// Remove leftovers of crashes in the object store that no object refers to any more: runs that
/// jobs wrote for a merge by reference and did not live to merge, or that were rejected; proofs of
/// journals that are gone; on a Ceph cluster, pieces of large objects with a dead writer. It looks
/// at the names of all directories and pieces, and takes time in proportion. Clients may work at
/// the same time: runs stay as long as a client has the subtree that they may be of, and pieces
/// that are younger than two hours, because a client may still be writing them.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele sweep --dry-run")]
pub(crate) struct Args {
    /// Print the leftovers, without removing them
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let fs = context.mount()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let now = now.try_into().unwrap_or(i64::MAX);
    let swept = fs.store().sweep(now, args.dry_run)?;
    let runs = fs.sweep_runs(args.dry_run)?;
    let value = json!({
        "pieces": swept.pieces, "removed": swept.garbage, "bytes": swept.bytes, "young": swept.young,
        "runs": {
            "found": runs.runs, "removed": runs.garbage, "bytes": runs.bytes, "held": runs.held,
        },
        "proofs": runs.proofs, "dry_run": args.dry_run,
    });
    context.print(&value, || {
        let what = if args.dry_run { "would be removed" } else { "removed" };
        let mut text = format!(
            "{} of {} pieces {what}, {} bytes\n{} of {} runs that clients wrote {what}, {} bytes\n",
            count(swept.garbage),
            count(swept.pieces),
            count(swept.bytes),
            count(runs.garbage),
            count(runs.runs),
            count(runs.bytes)
        );
        if runs.proofs > 0 {
            text.push_str(&format!("{} proofs {what}\n", count(runs.proofs)));
        }
        if swept.young > 0 {
            let young = count(swept.young);
            text.push_str(&format!(
                "{young} more pieces belong to nothing yet, and are too young to tell\n"
            ));
        }
        if runs.held > 0 {
            let held = count(runs.held);
            text.push_str(&format!(
                "{held} more runs are in no directory yet; clients that have their subtrees may merge \
                 them\n"
            ));
        }
        text
    })
}
