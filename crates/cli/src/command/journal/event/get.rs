//! `cudele journal event get`: events shown, or written to a journal of their own.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};
use cudele::{Errno, Error, Result};
use journal::rewrite;
use serde_json::{Value, json};
use terminal::context::{Context, say};
use terminal::figures::count;
use types::Seq;

use super::super::archive;
use super::super::files::{self, Over};
use super::super::filter::FilterArgs;
use super::super::rework::{self, Surveys};
use super::super::source::{Access, Source};
use crate::journals::Story;

/// Show events of a journal, those behind damage too. As `binary` they become a journal in which
/// they keep their positions, and the remaining positions are empty. Ends with 1 if a part is
/// damaged.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele journal event get mds.0 --type unlink --path /home
  cudele journal event get job.journal --frag 1099511627776 --dname a --output json
  cudele journal event get job.journal --range 100..200 --output binary --to part.journal")]
pub(super) struct Args {
    /// mds.0, a journal file, a journal object, or the path of a decoupled subtree
    source: String,
    #[command(flatten)]
    filter: FilterArgs,
    /// The form of the output [default: list]
    #[arg(long, value_enum)]
    output: Option<Output>,
    /// Write it to a file
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Replace a file that exists
    #[arg(long, requires = "to")]
    force: bool,
    /// Skip damaged parts, and end with 0
    #[arg(long)]
    skip_damaged: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A journal
    Binary,
    /// Everything, for programs
    Json,
    /// A line per event
    List,
    /// Counts
    Summary,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<()> {
    let mut source = Source::open(context, &args.source, Access::Read)?.some()?;
    if args.filter.asks_for_path() {
        source.learn_root(context);
    }
    let output = args.output.unwrap_or(if context.json { Output::Json } else { Output::List });
    let surveys = Surveys::of(&source);
    let damage = surveys.damage();
    let remedy = "what could be read was shown; `cudele journal event recover` writes it to a new \
                  journal, and --skip-damaged passes over the rest";
    // A server may be writing, or have been interrupted: both leave a torn end.
    let error = rework::error(&surveys.serious(), remedy).filter(|_| !args.skip_damaged);
    if output == Output::Binary {
        let Some(file) = &args.to else {
            return Err(Error::new(Errno::Invalid, "--output binary", "a journal is no text")
                .remedy("name a file with --to"));
        };
        if let Some(error) = error {
            return Err(error.remedy("pass over what is damaged with --skip-damaged"));
        }
        let (bytes, kept) = binary(&source, &surveys, args)?;
        let over = if args.force { Over::Anything } else { Over::Nothing };
        files::write(file, &bytes, over)?;
        let value = json!({ "source": source.name, "file": file, "events": kept });
        return context.print(&value, || format!("{} events in {}\n", count(kept), file.display()));
    }
    let text = text(&source, &surveys, args, output, &damage);
    match &args.to {
        Some(file) => {
            let over = if args.force { Over::Anything } else { Over::Nothing };
            files::write(file, text.as_bytes(), over)?;
        }
        None => say(&text)?,
    }
    error.map_or(Ok(()), Err)
}

/// What is shown.
fn text(
    source: &Source,
    surveys: &Surveys<'_>,
    args: &Args,
    output: Output,
    damage: &[rework::Damage],
) -> String {
    let filter = args.filter.filter();
    let mut names = source.names();
    let (mut lines, mut events) = (String::new(), Vec::<Value>::new());
    let (mut matching, mut kinds) = (0_u64, BTreeMap::<&str, u64>::new());
    let mut show = |story: &Story<'_>| {
        if !filter.admits(story) {
            return;
        }
        matching += 1;
        *kinds.entry(story.word()).or_default() += 1;
        match output {
            Output::Json => events.push(story.to_json()),
            Output::List => {
                let _ = writeln!(lines, "{}", story.line());
            }
            Output::Binary | Output::Summary => {}
        }
    };
    surveys.each(&mut |record| show(&names.story(record)));
    match output {
        Output::Json => {
            let value = json!({
                "source": source.name, "matching": matching, "types": kinds, "events": events,
                "damage": rework::json(damage),
            });
            format!("{value:#}\n")
        }
        Output::List => lines + &rework::text(damage),
        Output::Binary | Output::Summary => {
            let mut text = format!("{}\n", source.name);
            for (kind, number) in &kinds {
                let _ = writeln!(text, "  {:>10} {kind}", count(*number));
            }
            let _ = writeln!(text, "  {:>10} matching events", count(matching));
            text + &rework::text(damage)
        }
    }
}

/// The events as a journal: of one segment from the first to the last of them, of a server's
/// journal an archive that can be imported.
fn binary(source: &Source, surveys: &Surveys<'_>, args: &Args) -> Result<(Vec<u8>, u64)> {
    let filter = args.filter.filter();
    let mut names = source.names();
    if source.rank.is_some() {
        let all = surveys.rewrite(&mut |record| filter.admits(&names.story(record)))?;
        let kept = all.iter().map(|(_, segment)| segment.kept).sum();
        let bytes = archive::pack(all.iter().map(|(name, new)| (*name, &*new.bytes)))?;
        return Ok((bytes, kept));
    }
    let readable = surveys.readable()?;
    let Some((_, survey)) = readable.first() else { return Ok((Vec::new(), 0)) };
    let (mut first, mut end) = (None, survey.header.first_seq);
    survey.each(&mut |record| {
        if filter.admits(&names.story(record)) {
            first.get_or_insert(record.seq);
            end = Seq(record.seq.0 + 1);
        }
    });
    let mut names = source.names();
    let range = first.unwrap_or(end)..end;
    let part = rewrite(survey, &range, &mut |record| filter.admits(&names.story(record)));
    Ok((part.bytes, part.kept))
}
