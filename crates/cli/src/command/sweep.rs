//! `cudele sweep`: what crashes left behind in the object store.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args as ClapArgs;
use cudele::Result;
use serde_json::json;

use crate::context::Context;
use crate::figures::count;

/// Remove what crashes left behind in the object store that belongs to no object any more: on a Ceph cluster,
/// pieces of large objects whose writer died. It looks at the names of all pieces, which takes as long as
/// there are. Others may work meanwhile: what is younger than two hours stays, because somebody may
/// still be writing it.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele sweep --dry-run")]
pub(crate) struct Args {
    /// Say what would be removed, without doing it
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let store = objstore::open_existing(&context.cluster()?.status()?.store)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let swept = store.sweep(now.try_into().unwrap_or(i64::MAX), args.dry_run)?;
    let value = json!({
        "pieces": swept.pieces, "removed": swept.garbage, "bytes": swept.bytes, "young": swept.young,
        "dry_run": args.dry_run,
    });
    context.print(&value, || {
        let what = if args.dry_run { "would be removed" } else { "removed" };
        let mut text = format!(
            "{} of {} pieces {what}, {} bytes\n",
            count(swept.garbage),
            count(swept.pieces),
            count(swept.bytes)
        );
        if swept.young > 0 {
            let young = count(swept.young);
            text.push_str(&format!(
                "{young} more belong to nothing yet, and are too young to tell\n"
            ));
        }
        text
    })
}
