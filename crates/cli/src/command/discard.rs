//! `cudele discard`: a decoupled subtree is given up without a merge.

use clap::Args as ClapArgs;
use cudele::{Errno, Error, Result, StateDir};
use serde_json::json;
use terminal::context::Context;
use terminal::figures::count;

use crate::owned;

/// Give a decoupled subtree up without merging it: the work in its journals is lost.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele discard --dry-run /scratch/job")]
pub(crate) struct Args {
    /// Directory in the namespace
    path: String,
    /// Also if its journals are damaged, or (as root) if another client has it
    #[arg(long)]
    force: bool,
    /// Show the work that would be lost, without losing it
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let path = cudele::parse_path(&args.path)?;
    let attached = owned::attach(context, &args.path);
    let mut subtree = match attached {
        Ok(subtree) => subtree,
        Err(error) if args.force && !args.dry_run => return force(context, args, error),
        Err(error) if error.errno == Errno::BadMessage => {
            return Err(error.remedy("--force gives it up all the same"));
        }
        Err(error) => return Err(error),
    };
    let mut events = 0;
    for journal in subtree.journals() {
        events += journal::segment::scan(&journal).map_or(0, |scan| scan.events);
    }
    if !args.dry_run {
        subtree.discard()?;
    }
    let value = json!({ "path": path.to_string(), "events": events, "dry_run": args.dry_run });
    context.print(&value, || {
        let (path, events) = (path.quoted(), count(events));
        if args.dry_run {
            format!("{path} would be given up, and {events} events with it\n")
        } else {
            format!("{path} is everybody's again; {events} events are gone\n")
        }
    })
}

/// Releases a subtree of which nothing can be read here.
fn force(context: &Context, args: &Args, why: Error) -> Result<()> {
    let path = cudele::parse_path(&args.path)?;
    let cluster = context.cluster()?;
    let Some(known) = owned::holder(&cluster, &path)? else { return Err(why) };
    let owner = owned::owner(&cluster, &path).ok().flatten();
    let fs = match &owner {
        Some(owner) => cluster.mount_as(owner.client())?,
        None => cluster.mount()?,
    };
    fs.release(known.ino).map_err(|error| {
        error.about(path.to_string()).remedy("only root gives up what another client has")
    })?;
    if owner.is_none() {
        // The metadata server rejects its requests from now on, and the store its writes.
        fs.store().shut_out(known.client)?;
    }
    for object in owner.iter().flat_map(|owner| &owner.objects) {
        fs.store().delete(object)?;
    }
    StateDir::of(fs.cluster_id(), known.ino)?.remove()?;
    let value = json!({ "path": path.to_string(), "client": known.client.0, "forced": true });
    context.print(&value, || {
        format!("{} was taken from {} and is everybody's\n", path.quoted(), known.client)
    })
}
