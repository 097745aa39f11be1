//! `cudele journal export`: a journal as a file.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use cudele::Result;
use serde_json::json;
use terminal::context::Context;
use terminal::figures::bytes as of_bytes;

use super::archive;
use super::files::{self, Over};
use super::rework::{self, Surveys};
use super::source::{Access, Source};

/// Write a journal to a file, damaged or not. The export of a client's journal is the journal, byte
/// by byte; that of a metadata server's journal is a tar archive of its segments. `cudele journal
/// import` puts either back.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele journal export mds.0 mds.tar
  cudele journal export /scratch/job job.journal")]
pub(super) struct Args {
    /// mds.0, a journal file, a journal object, or the path of a decoupled subtree
    source: String,
    /// Where to write it
    file: PathBuf,
    /// Replace a file that exists
    #[arg(long)]
    force: bool,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<()> {
    let source = Source::open(context, &args.source, Access::Read)?.some()?;
    let data = bytes(&source)?;
    let over = if args.force { Over::Anything } else { Over::Nothing };
    files::write(&args.file, &data, over)?;
    let damage = Surveys::of(&source).damage();
    let value = json!({
        "source": source.name, "file": args.file, "bytes": data.len(),
        "segments": source.pieces.iter().map(|piece| &piece.name).collect::<Vec<_>>(),
        "damage": rework::json(&damage),
    });
    context.print(&value, || {
        let (length, file) = (of_bytes(data.len() as u64), args.file.display());
        format!("{} is in {file}, {length}\n{}", source.name, rework::text(&damage))
    })
}

/// The export of a journal.
///
/// # Errors
/// If an archive cannot hold it.
pub(super) fn bytes(source: &Source) -> Result<Vec<u8>> {
    match (source.rank, source.pieces.as_slice()) {
        (None, [piece]) => Ok(piece.bytes.clone()),
        (_, pieces) => {
            archive::pack(pieces.iter().map(|piece| (piece.name.as_str(), piece.bytes.as_slice())))
        }
    }
}
