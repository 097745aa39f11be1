//! `cudele umount`: the end of a mount.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use cudele::Result;
use serde_json::json;
use terminal::context::Context;
use terminal::io;
use types::quote::quoted;

/// Unmount a directory.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele umount /mnt/cudele")]
pub(crate) struct Args {
    /// Directory it is mounted on
    at: PathBuf,
    /// Detach it at once, also if files are open in it
    #[arg(long, short)]
    lazy: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let at = std::path::absolute(&args.at).map_err(|error| io(&args.at, &error))?;
    mount::unmount(&at, args.lazy)?;
    context.print(&json!({ "unmounted": at }), || {
        format!("{} is unmounted.\n", quoted(at.as_os_str().as_bytes()))
    })
}
