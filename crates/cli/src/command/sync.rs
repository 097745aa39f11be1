//! `cudele sync`: shows all clients the present work in a decoupled subtree, or brings a copy of a
//! directory up to date.

mod copy;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use cudele::Result;
use serde_json::json;
use terminal::context::Context;
use terminal::figures::seconds;

use crate::{command, owned};

/// Merge the journals that this machine keeps for a decoupled subtree, and keep the subtree: all
/// clients see the work so far, and it continues. A process that is at work syncs on its own, as
/// the policy's `merge` demands.
///
/// With COPY: make a directory of this machine or of another cluster equal to PATH, by copying the
/// differences only. A second run compares types, lengths, times, permissions and owners; with
/// --follow the copy is kept up to date, and each round looks only at the names that changed.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele sync /scratch/job
  cudele sync --delete /proj local:/backup/proj
  cudele sync --dry-run --delete /proj local:/backup/proj     print what would be done
  cudele sync --follow --delete /proj local:/backup/proj      and again after each change
  cudele sync /proj /proj --to-mon tcp:mon.example.org:6800 --to-key backup.key

A file of the copy has its old or its new content at any time. Several names of a file stay names of one
file. Root keeps owners; others do not, nor set-id bits. Extended attributes, access control lists and
times of access are not copied. Work of other clients in decoupled subtrees is copied after its merge.
`cudele ingest --resume` brings a directory of this machine in.")]
pub(crate) struct Args {
    /// Directory in the namespace
    path: OsString,
    /// The copy: local:DIR, or a directory of the namespace of --to-dir or --to-mon
    copy: Option<OsString>,
    /// Remove names of the copy that PATH does not have
    #[arg(long, requires = "copy")]
    delete: bool,
    /// Print what would be done, and change nothing
    #[arg(short = 'n', long, requires = "copy", conflicts_with = "follow")]
    dry_run: bool,
    /// Read files that have the length and the time of their copies, too
    #[arg(short, long, requires = "copy")]
    checksum: bool,
    /// Go on with the changes as they happen
    #[arg(long, requires = "copy")]
    follow: bool,
    /// Print a line for each name that is changed
    #[arg(short, long, requires = "copy")]
    verbose: bool,
    /// Directory of the cluster that has the copy
    #[arg(long, value_name = "DIR", requires = "copy", conflicts_with = "to_mon")]
    to_dir: Option<PathBuf>,
    /// Address of the monitor of the cluster that has the copy
    #[arg(long, value_name = "ADDR", requires = "copy")]
    to_mon: Option<String>,
    /// File with the key for that cluster
    #[arg(long, value_name = "FILE", requires = "to_mon")]
    to_key: Option<PathBuf>,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    if let Some(to) = &args.copy {
        return copy::run(context, args, to);
    }
    let mut subtree = owned::attach(context, args.path.as_bytes())?;
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
