//! `cudele journal event apply`: events of a client's journal carried out.
//!
//! This goes through the metadata server that has the subtree, as a merge does. A way that needs no
//! server is another function like [`through_server`].

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::Args as ClapArgs;
use cudele::{Errno, Error, MergeReport, Result};
use journal::{Survey, Writer, extract};
use serde_json::json;
use terminal::context::Context;
use terminal::figures::count;

use super::super::filter::FilterArgs;
use super::super::rework::{self, Surveys};
use super::super::source::{Access, Source};
use crate::command::merge;

/// Apply the matching events of a client's journal to the namespace, as a merge would, and write
/// the result to the metadata store. The subtree must be decoupled by that client, and stays so;
/// the journal stays, too, so that a later merge applies all of it.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:
  cudele journal event apply --dry-run job.journal --path /scratch/job/results")]
pub(super) struct Args {
    /// A client's journal: a file, a journal object, or the path of a decoupled subtree
    source: String,
    #[command(flatten)]
    filter: FilterArgs,
    /// Skip damaged parts
    #[arg(long)]
    skip_damaged: bool,
    /// Print the events, without applying them
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<()> {
    let mut source = Source::open(context, &args.source, Access::Read)?.some()?;
    if args.filter.asks_for_path() {
        source.learn_root(context);
    }
    let surveys = Surveys::of(&source);
    let damage = surveys.damage();
    let remedy = "pass over what is damaged with --skip-damaged; nothing was applied";
    if let Some(error) = rework::error(&damage, remedy).filter(|_| !args.skip_damaged) {
        return Err(error);
    }
    let readable = surveys.readable()?;
    let [(_, survey)] = readable.as_slice() else { return Err(not_of_client(&source)) };
    let (filter, mut names) = (args.filter.filter(), source.names());
    let mut kinds = BTreeMap::<&str, u64>::new();
    let events = extract(survey, &mut |record| {
        let story = names.story(record);
        let wanted = filter.admits(&story) && !record.event.is_nothing();
        *kinds.entry(story.word()).or_default() += u64::from(wanted);
        wanted
    });
    kinds.retain(|_, number| *number > 0);
    let matching: u64 = kinds.values().sum();
    let mut report = through_server(context, &source, survey, &events, args.dry_run)?;
    report.events = matching;
    let mut value = merge::to_json(&report);
    value["source"] = json!(source.name);
    value["dry_run"] = json!(args.dry_run);
    value["types"] = json!(kinds);
    value["damage"] = rework::json(&damage);
    context.print(&value, || {
        let would = if args.dry_run { "would be applied" } else { "applied and stored" };
        let mut text = format!("{}: {} events {would}", source.name, count(matching));
        for (kind, number) in &kinds {
            let _ = write!(text, ", {} {kind}", count(*number));
        }
        text + "\n" + &merge::to_text(&report) + &rework::text(&damage)
    })
}

/// Hands the events to the metadata server, in the name of the client that wrote them.
fn through_server(
    context: &Context,
    source: &Source,
    survey: &Survey<'_>,
    events: &[u8],
    dry_run: bool,
) -> Result<MergeReport> {
    let Writer::Client { client, subtree } = survey.header.writer else {
        return Err(not_of_client(source));
    };
    let fs = context.cluster()?.mount_as(client)?;
    let report = fs.apply_journal(subtree, events, dry_run).map_err(|error| {
        let mine = matches!(error.errno, Errno::Stale | Errno::Busy | Errno::NotPermitted);
        if !mine {
            return error.about(source.name.clone());
        }
        let cause =
            format!("{client} has not decoupled the subtree {}: {}", subtree.0, error.cause);
        Error::new(error.errno, source.name.clone(), cause)
            .remedy("`cudele status` shows who has which subtree")
    })?;
    if !dry_run {
        fs.checkpoint()?;
    }
    Ok(report)
}

fn not_of_client(source: &Source) -> Error {
    let cause = "this is a metadata server's journal, which the server applies when it starts";
    Error::new(Errno::Invalid, source.name.clone(), cause).remedy("name a client's journal")
}
