//! `cudele recover`: the work of a client that is gone.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use cudele::Result;
use serde_json::json;
use terminal::context::Context;
use terminal::figures::count;

use crate::owned;

/// Take over a decoupled subtree whose client is gone, with the journals that it left on this
/// machine, on its disk (--from), or in the object store. The client is fenced: if it comes back,
/// its requests are rejected. Afterwards this machine has the subtree: merge or discard it.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  cudele recover --dry-run /scratch/job\n  \
                  cudele recover --from /mnt/dead/state/cudele /scratch/job && cudele merge /scratch/job")]
pub(crate) struct Args {
    /// Directory in the namespace
    path: String,
    /// The state directory of the client that is gone
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// Show the journals that would be taken over, without doing it
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let path = cudele::parse_path(&args.path)?;
    let cluster = context.cluster()?;
    let known = owned::await_holder(&cluster, &path)?;
    let done = cluster.recover(&path, &known, args.from.as_deref(), args.dry_run)?;
    let events: u64 = done.journals.iter().map(|journal| journal.events).sum();
    let value = json!({
        "path": path.to_string(), "from": done.from.0, "events": events, "dry_run": args.dry_run,
        "client": done.subtree.as_ref().map(|subtree| subtree.fs().client().0),
        "journals": done.journals.iter().map(|journal| json!({
            "name": journal.name, "stored": journal.stored, "events": journal.events,
            "first": journal.first,
        })).collect::<Vec<_>>(),
    });
    context.print(&value, || {
        let what = if args.dry_run { "would be" } else { "is" };
        let path = path.quoted();
        let mut text = format!("{path} {what} taken over from {}, which is fenced\n", done.from);
        for journal in &done.journals {
            let _ = writeln!(text, "  {:>12} events  {}", count(journal.events), journal.name);
        }
        if !args.dry_run {
            let _ = writeln!(
                text,
                "Go on with `cudele merge {path}`, or give it up with `cudele discard {path}`."
            );
        }
        text
    })
}
