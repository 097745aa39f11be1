//! `cudele sync`: shows all clients the present work in a decoupled subtree.

use clap::Args as ClapArgs;
use cudele::Result;
use serde_json::json;
use terminal::context::Context;
use terminal::figures::seconds;

use crate::{command, owned};

/// Merge the journals that this machine keeps for a decoupled subtree, and keep the subtree: all
/// clients see the work so far, and it continues. A process that is at work syncs on its own, as
/// the policy's `merge` demands.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele sync /scratch/job")]
pub(crate) struct Args {
    /// Directory in the namespace
    path: String,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let mut subtree = owned::attach(context, &args.path)?;
    let path = subtree.path().clone();
    let done = subtree.sync()?;
    let report = done.merge.unwrap_or_default();
    let mut value = command::merge::to_json(&report);
    value["path"] = json!(path.to_string());
    value["seconds"] = json!(done.seconds);
    context.print(&value, || {
        let path = path.quoted();
        let took = seconds(done.seconds);
        let text = command::merge::to_text(&report);
        format!("{path} is merged so far, and still this client's ({took})\n{text}")
    })
}
