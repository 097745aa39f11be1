//! `cudele journal event splice`: events erased where they are.

use clap::Args as ClapArgs;
use cudele::{Errno, Error, Result};
use serde_json::json;
use terminal::context::Context;
use terminal::figures::count;

use super::super::backup::{self, BackupArgs};
use super::super::filter::FilterArgs;
use super::super::rework::{self, Surveys};
use super::super::source::{Access, Source};

/// Erase the events that match, and with --damaged the damaged parts, from a journal in place.
/// Their positions are empty, and all remaining events keep their positions. The journal of a
/// metadata server can be changed while the server is stopped.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele journal event splice --dry-run job.journal --path /scratch/job/tmp
  cudele journal event splice --damaged mds.0 --backup mds.tar")]
pub(super) struct Args {
    /// mds.0, a journal file, a journal object, or the path of a decoupled subtree
    source: String,
    #[command(flatten)]
    filter: FilterArgs,
    /// Erase damaged parts; without a filter, only those
    #[arg(long)]
    damaged: bool,
    /// Print the events, without erasing them
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    backup: BackupArgs,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<()> {
    if args.filter.is_empty() && !args.damaged {
        let cause = "this would erase everything";
        return Err(Error::new(Errno::Invalid, args.source.clone(), cause)
            .remedy("say which events, or --damaged; `cudele journal reset` empties a journal"));
    }
    let access = if args.dry_run { Access::Read } else { Access::Change };
    let mut source = Source::open(context, &args.source, access)?.some()?;
    if args.filter.asks_for_path() {
        source.learn_root(context);
    }
    let surveys = Surveys::of(&source);
    // A torn end of a server's segment is no damage to recovery, and not in the way here.
    let (damage, serious) = (surveys.damage(), surveys.serious());
    if !args.damaged {
        let remedy = "erase what is damaged, too, with --damaged";
        if let Some(error) = rework::error(&serious, remedy) {
            return Err(error);
        }
    }
    let (filter, mut names) = (args.filter.filter(), source.names());
    let all = surveys.rewrite(&mut |record| {
        let story = names.story(record);
        args.filter.is_empty() || !filter.admits(&story)
    })?;
    let erased: u64 = all.iter().map(|(_, new)| new.erased).sum();
    let pieces = source.pieces.iter().filter_map(|piece| {
        let (_, new) = all.iter().find(|(name, _)| *name == piece.name)?;
        (piece.bytes != new.bytes).then_some((piece, new))
    });
    let changed: Vec<_> = pieces.collect();
    let mut kept = None;
    if !args.dry_run && !changed.is_empty() {
        kept = args.backup.keep(&source)?;
        for (piece, new) in &changed {
            source.replace(piece, &new.bytes)?;
        }
    }
    let value = json!({
        "source": source.name, "dry_run": args.dry_run, "erased": erased, "backup": kept,
        "changed": changed.iter().map(|(piece, _)| &piece.name).collect::<Vec<_>>(),
        "damage": rework::json(&damage),
    });
    context.print(&value, || {
        let would = if args.dry_run { " would be" } else { "" };
        let damage: String =
            rework::text(&damage).lines().map(|line| format!("{line}: erased{would}\n")).collect();
        format!(
            "{}: {} events{would} erased\n{}{damage}",
            source.name,
            count(erased),
            backup::line(kept.as_ref())
        )
    })
}
