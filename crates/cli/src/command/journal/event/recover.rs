//! `cudele journal event recover`: the intact part of a journal, as a new one.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use cudele::Result;
use serde_json::json;
use terminal::context::Context;
use terminal::figures::count;

use super::super::archive;
use super::super::files::{self, Over};
use super::super::rework::{self, Surveys};
use super::super::source::{Access, Source};

/// Write the intact part of a damaged journal to a new one, and list the damage. Events keep their
/// positions; lost positions are empty. The damaged journal stays unchanged.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele journal event recover broken.journal whole.journal
  cudele journal event recover mds.0 mds.tar && cudele journal import --force mds.tar mds.0")]
pub(super) struct Args {
    /// mds.0, a journal file, a journal object, or the path of a decoupled subtree
    source: String,
    /// Where to write it; of a metadata server's journal, an export
    file: PathBuf,
    /// Replace a file that exists
    #[arg(long)]
    force: bool,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<()> {
    let source = Source::open(context, &args.source, Access::Read)?.some()?;
    let surveys = Surveys::of(&source);
    let damage = surveys.damage();
    let all = surveys.rewrite(&mut |_| true)?;
    let bytes = match (source.rank, all.as_slice()) {
        (None, [(_, one)]) => one.bytes.clone(),
        (_, all) => archive::pack(all.iter().map(|(name, new)| (*name, &*new.bytes)))?,
    };
    let over = if args.force { Over::Anything } else { Over::Nothing };
    files::write(&args.file, &bytes, over)?;
    let events: u64 = all.iter().map(|(_, new)| new.kept).sum();
    let value = json!({
        "source": source.name, "file": args.file, "events": events,
        "damage": rework::json(&damage),
    });
    context.print(&value, || {
        let (events, file) = (count(events), args.file.display());
        format!("{}: {events} events are in {file}\n{}", source.name, rework::text(&damage))
    })
}
