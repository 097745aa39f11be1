//! `cudele journal header`: the writer of a journal, and its first and last position.

mod set;

use std::fmt::Write as _;

use clap::{Args as ClapArgs, Subcommand};
use cudele::Result;
use journal::{JournalError, SegmentHeader, Survey, Writer};
use serde_json::{Value, json};
use terminal::context::Context;

use super::rework::{self, Surveys};
use super::source::{Access, Source};

/// Show and repair the header of a journal.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele journal header get mds.0")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the writer, the term and the positions of a journal
    Get(GetArgs),
    /// Change them where that can be right
    Set(set::Args),
}

/// Show the writer of a journal, its term, and the positions: `first` is that of the first event of
/// a segment. Of the whole journal, events before `trimmed_pos` are gone, those from `expire_pos`
/// on are replayed by recovery (a server removes a segment as soon as nothing in it is needed, so
/// the two are equal), and `write_pos` is that of the next event.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele journal header get mds.0")]
pub(super) struct GetArgs {
    /// mds.0, a journal file, a journal object, or the path of a decoupled subtree
    source: String,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<()> {
    match &args.command {
        Command::Get(args) => get(context, args),
        Command::Set(args) => set::run(context, args),
    }
}

fn get(context: &Context, args: &GetArgs) -> Result<()> {
    let source = Source::open(context, &args.source, Access::Read)?.some()?;
    let surveys = Surveys::of(&source);
    let damage = surveys.damage();
    let (first, next) = (surveys.first_seq().0, surveys.next_seq().0);
    let mut segments = Vec::new();
    let mut text = format!(
        "{}\n  trimmed_pos {first}\n  expire_pos  {first}\n  write_pos   {next}\n",
        source.name
    );
    for piece in &source.pieces {
        let survey = Survey::of(&piece.bytes);
        let header = match &survey {
            Ok(survey) => Ok(survey.header),
            Err(error) => Err((error.clone(), SegmentHeader::claimed(&piece.bytes))),
        };
        let next = survey.as_ref().ok().map(|survey| survey.next_seq.0);
        let _ = writeln!(text, "{}\n{}", piece.name, lines(&header, next));
        let mut value = facts(&header);
        value["name"] = json!(piece.name);
        value["next"] = json!(next);
        segments.push(value);
    }
    let value = json!({
        "source": source.name, "trimmed_pos": first, "expire_pos": first, "write_pos": next,
        "segments": segments, "damage": rework::json(&damage),
    });
    context.print(&value, || text + &rework::text(&damage))?;
    let remedy = "write it anew with `cudele journal header set`";
    let headers: Vec<_> =
        damage.into_iter().filter(|d| matches!(d.kind, rework::Kind::Header(_))).collect();
    rework::error(&headers, remedy).map_or(Ok(()), Err)
}

/// A header, or its fault and its unverified fields.
type ReadHeader = std::result::Result<
    SegmentHeader,
    (JournalError, std::result::Result<SegmentHeader, JournalError>),
>;

fn line(header: &SegmentHeader) -> String {
    let SegmentHeader { writer, epoch, first_seq } = header;
    let writer = match writer {
        Writer::Mds { rank } => format!("rank {}", rank.0),
        Writer::Client { client, subtree } => {
            format!("client {}, subtree {}", client.0, subtree.0)
        }
    };
    format!("{writer}, epoch {}, first {}", epoch.0, first_seq.0)
}

fn lines(header_read: &ReadHeader, next: Option<u64>) -> String {
    match header_read {
        Ok(header) => {
            let next = next.map_or(String::new(), |next| format!(", next {next}"));
            format!("  {}{next}", line(header))
        }
        Err((_, Ok(claimed))) => format!("  damaged; it claims: {}", line(claimed)),
        Err((_, Err(_))) => "  damaged; nothing can be read".to_owned(),
    }
}

fn facts(header_read: &ReadHeader) -> Value {
    let of = |header: &SegmentHeader| {
        let SegmentHeader { writer, epoch, first_seq } = header;
        match writer {
            Writer::Mds { rank } => {
                json!({ "rank": rank.0, "epoch": epoch.0, "first": first_seq.0 })
            }
            Writer::Client { client, subtree } => json!({
                "client": client.0, "subtree": subtree.0, "epoch": epoch.0, "first": first_seq.0,
            }),
        }
    };
    match header_read {
        Ok(header) => of(header),
        Err((error, claimed)) => json!({
            "damaged": error.cause, "offset": error.offset,
            "claimed": claimed.as_ref().ok().map(of),
        }),
    }
}
