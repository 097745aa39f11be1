//! `cudele journal reset`: the journal of a stopped metadata server emptied.
//!
//! Positions continue from the last one, because directories may be stored in their state at any of
//! them. So the journal is not removed but replaced by a segment that begins there and is empty. It
//! is written before anything is removed, and segments go oldest first: an interruption at any
//! point leaves a journal that a server accepts.

use clap::Args as ClapArgs;
use cudele::{Errno, Error, Result};
use journal::{Rewritten, SegmentHeader, Writer};
use metastore::removals_prefix;
use objstore::Expect;
use serde_json::json;
use terminal::context::Context;
use terminal::figures::count;

use super::backup::{self, BackupArgs};
use super::rework::{self, Surveys};
use super::source::{self, Access, Source};
use crate::stores;

/// Empty the journal of a metadata server that is stopped. Changes that were not yet written to the
/// metadata store are lost, also acknowledged ones, and a rename or link that was halfway stays
/// halfway: this is for journals that can be neither replayed nor repaired.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:
  cudele down
  cudele journal reset mds.0 --dry-run
  cudele journal reset mds.0 --backup mds.tar --yes-i-really-mean-it")]
pub(super) struct Args {
    /// The server's rank, such as mds.0
    source: String,
    /// The changes in the journal may be lost
    #[arg(long)]
    yes_i_really_mean_it: bool,
    /// Show the changes that would be lost, without losing them
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    backup: BackupArgs,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<()> {
    let Some(rank) = source::server(&args.source) else {
        let cause = "only the journal of a metadata server can be reset";
        return Err(Error::new(Errno::Invalid, args.source.clone(), cause)
            .remedy("name it, such as mds.0; `cudele discard` gives up a client's journal"));
    };
    let access = if args.dry_run { Access::Read } else { Access::Change };
    let source = Source::open(context, &args.source, access)?.some()?;
    let surveys = Surveys::of(&source);
    let (damage, next) = (surveys.damage(), surveys.free_seq());
    let events = surveys.events();
    if !args.dry_run && !args.yes_i_really_mean_it {
        let cause = format!("{} events would be lost as far as they are not stored", count(events));
        return Err(Error::new(Errno::Invalid, source.name.clone(), cause)
            .remedy("see them with --dry-run; then say --yes-i-really-mean-it"));
    }
    let mut kept = None;
    if !args.dry_run {
        kept = args.backup.keep(&source)?;
        let writer = Writer::Mds { rank };
        let header = SegmentHeader { writer, epoch: surveys.epoch(), first_seq: next };
        source.put(&source.next_name(), &Rewritten::empty(&header).bytes, Expect::Absent)?;
        // Files on a list were removed by events of the journal, and without it may have their
        // names back.
        let lists = stores::of_cluster(context)?.list(&removals_prefix(rank))?;
        source.remove(lists.iter().map(String::as_str))?;
        source.remove(source.pieces.iter().map(|piece| piece.name.as_str()))?;
    }
    let value = json!({
        "source": source.name, "dry_run": args.dry_run, "events": events,
        "segments": source.pieces.len(), "next": next.0, "backup": kept,
        "damage": rework::json(&damage),
    });
    context.print(&value, || {
        let (events, segments) = (count(events), source.pieces.len());
        let what = if args.dry_run { "would be gone" } else { "are gone" };
        format!(
            "{}: {events} events in {segments} segments {what}; the next one is event {}\n{}{}",
            source.name,
            next.0,
            backup::line(kept.as_ref()),
            rework::text(&damage)
        )
    })
}
