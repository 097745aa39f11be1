//! `cudele journal header set`: rewrites a header, or moves positions of a server's journal.
//!
//! Nothing that this does makes an event change its position, or gives a position twice.

use clap::Args as ClapArgs;
use cudele::{ClientId, Errno, Error, Ino, Result};
use journal::{Block, GAP_EVENTS_MAX, Rewritten, SegmentHeader, Writer};
use objstore::Expect;
use serde_json::json;
use terminal::context::Context;
use types::{Epoch, Rank, Seq};

use super::super::backup::{self, BackupArgs};
use super::super::rework::Surveys;
use super::super::source::{Access, Source};

/// Change the header of a journal. One journal file or object: `epoch`, `first`, and `rank` or
/// `client` and `subtree`; a damaged header takes all of them. `first` must be the position of the
/// first event if there is one. The journal of a metadata server that is stopped: `trimmed_pos`
/// removes segments with only earlier events, `write_pos` moves the next position forward.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele journal header set broken.journal client=7 subtree=1099511627776 epoch=3 first=1
  cudele journal header set mds.0 write_pos=50000")]
pub(super) struct Args {
    /// mds.0, a journal file or a journal object
    source: String,
    /// What to change
    #[arg(required = true, value_name = "FIELD=VALUE", value_parser = field)]
    fields: Vec<(Field, u64)>,
    /// Events before trimmed_pos may be lost
    #[arg(long)]
    yes_i_really_mean_it: bool,
    /// Print the change, without making it
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    backup: BackupArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Epoch,
    First,
    Rank,
    Client,
    Subtree,
    TrimmedPos,
    WritePos,
}

const FIELDS: [(&str, Field); 7] = [
    ("epoch", Field::Epoch),
    ("first", Field::First),
    ("rank", Field::Rank),
    ("client", Field::Client),
    ("subtree", Field::Subtree),
    ("trimmed_pos", Field::TrimmedPos),
    ("write_pos", Field::WritePos),
];

/// Reads `FIELD=VALUE`.
fn field(text: &str) -> std::result::Result<(Field, u64), String> {
    let (name, value) = text.split_once('=').ok_or("write FIELD=VALUE")?;
    if name == "expire_pos" {
        return Err("expire_pos follows from trimmed_pos: set that".to_owned());
    }
    let field = FIELDS.iter().find(|(known, _)| *known == name).map(|(_, field)| *field);
    let field = field.ok_or_else(|| {
        let names: Vec<_> = FIELDS.iter().map(|(name, _)| *name).collect();
        format!("there is no field `{name}`; the fields are {}", names.join(", "))
    })?;
    let value = value.parse().map_err(|_| format!("`{value}` is no number"))?;
    Ok((field, value))
}

impl Args {
    fn get(&self, field: Field) -> Option<u64> {
        self.fields.iter().rev().find(|(known, _)| *known == field).map(|(_, value)| *value)
    }

    fn wrong(&self, cause: impl Into<String>, remedy: &str) -> Error {
        Error::new(Errno::Invalid, self.source.clone(), cause).remedy(remedy)
    }
}

pub(super) fn run(context: &Context, args: &Args) -> Result<()> {
    let access = if args.dry_run { Access::Read } else { Access::Change };
    let source = Source::open(context, &args.source, access)?;
    let journal = |field| matches!(field, Field::TrimmedPos | Field::WritePos);
    let whole = args.fields.iter().filter(|(field, _)| journal(*field)).count();
    let (done, kept) = match (source.rank, whole) {
        (Some(rank), whole) if whole == args.fields.len() => positions(args, &source, rank)?,
        (None, 0) => one(args, &source)?,
        (Some(_), _) => {
            return Err(args.wrong(
                "of a whole journal trimmed_pos and write_pos can be set",
                "name one of its segments for the other fields",
            ));
        }
        (None, _) => {
            return Err(args.wrong(
                "trimmed_pos and write_pos are of the whole journal of a metadata server",
                "name it, such as mds.0",
            ));
        }
    };
    let value = json!({
        "source": source.name, "dry_run": args.dry_run, "done": done, "backup": kept,
    });
    let would = if args.dry_run { "would be done: " } else { "" };
    context.print(&value, || {
        format!("{}: {would}{}\n{}", source.name, done.join("; "), backup::line(kept.as_ref()))
    })
}

type Done = (Vec<String>, Option<std::path::PathBuf>);

/// The header of one segment.
fn one(args: &Args, source: &Source) -> Result<Done> {
    let [piece] = source.pieces.as_slice() else {
        return Err(args.wrong("this is not one journal", "name one file or object"));
    };
    let old = SegmentHeader::decode(&piece.bytes);
    let damaged = |what: &str| {
        let cause = format!("the header is damaged, and {what} is not given");
        args.wrong(cause, "give epoch, first, and rank or client and subtree")
    };
    let known = old.as_ref().ok();
    let epoch = args.get(Field::Epoch).map(Epoch).or(known.map(|header| header.epoch));
    let first = args.get(Field::First).map(Seq).or(known.map(|header| header.first_seq));
    let rank = args.get(Field::Rank).map(u16::try_from).transpose();
    let rank = rank.map_err(|_| args.wrong("no rank is that large", "a rank is at most 65535"))?;
    let (client, subtree) = (args.get(Field::Client), args.get(Field::Subtree));
    let writer = match (rank, client, subtree, known.map(|header| header.writer)) {
        (Some(rank), None, None, _) => Writer::Mds { rank: Rank(rank) },
        (Some(_), _, _, _) => {
            return Err(args.wrong(
                "a journal is of a rank or of a client",
                "give rank, or client and subtree",
            ));
        }
        (None, Some(client), Some(subtree), _) => {
            Writer::Client { client: ClientId(client), subtree: Ino(subtree) }
        }
        (None, client, subtree, Some(Writer::Client { client: was, subtree: of })) => {
            let client = client.map_or(was, ClientId);
            Writer::Client { client, subtree: subtree.map_or(of, Ino) }
        }
        (None, None, None, Some(writer)) => writer,
        (None, _, _, _) => return Err(damaged("its writer")),
    };
    let header = SegmentHeader {
        writer,
        epoch: epoch.ok_or_else(|| damaged("epoch"))?,
        first_seq: first.ok_or_else(|| damaged("first"))?,
    };
    let bytes = header.put_on(&piece.bytes);
    SegmentHeader::decode(&bytes).map_err(|error| args.wrong(error.to_string(), "see --help"))?;
    if let Ok((block, _)) = Block::read(&bytes, journal::segment::HEADER_BYTES)
        && block.first_seq != header.first_seq
    {
        let cause = format!("the first event is event {}", block.first_seq.0);
        return Err(args.wrong(cause, "positions of events cannot be changed: set first to that"));
    }
    let mut done = vec![format!("header {}", super::line(&header))];
    if known == Some(&header) {
        done = vec!["the header is that already".to_owned()];
        return Ok((done, None));
    }
    if args.dry_run {
        return Ok((done, None));
    }
    let kept = args.backup.keep(source)?;
    source.replace(piece, &bytes)?;
    Ok((done, kept))
}

/// Positions of a server's journal.
fn positions(args: &Args, source: &Source, rank: Rank) -> Result<Done> {
    let surveys = Surveys::of(source);
    surveys.readable()?;
    let mut done = Vec::new();
    let mut gone = Vec::new();
    if let Some(trimmed) = args.get(Field::TrimmedPos) {
        let all = surveys.readable()?;
        // The last one stays: it says where positions go on.
        let (last, all) = all.split_last().map_or((None, &[][..]), |(l, all)| (Some(l), all));
        let before = all.iter().filter(|(_, survey)| survey.next_seq.0 <= trimmed);
        gone = before.map(|(name, _)| (*name).to_owned()).collect();
        done.push(format!("{} of {} segments removed", gone.len(), source.pieces.len()));
        if last.is_some() && !gone.is_empty() && !args.dry_run && !args.yes_i_really_mean_it {
            return Err(args.wrong(
                format!("events before {trimmed} would be lost as far as they are not stored"),
                "see how many with --dry-run; then say --yes-i-really-mean-it",
            ));
        }
    }
    let mut added = None;
    if let Some(position) = args.get(Field::WritePos).map(Seq) {
        let (next, free) = (surveys.next_seq(), surveys.free_seq());
        if position < free {
            return Err(args.wrong(
                format!("events before {} exist, or may", free.0),
                "positions are never given twice; `cudele journal event splice` erases events",
            ));
        }
        let first_seq = if source.pieces.is_empty() { position } else { next };
        if position.0 - first_seq.0 > GAP_EVENTS_MAX {
            let cause = format!("write_pos can be moved by at most {GAP_EVENTS_MAX}");
            return Err(args.wrong(cause, "reset the journal first; an empty one takes any"));
        }
        let header =
            SegmentHeader { writer: Writer::Mds { rank }, epoch: surveys.epoch(), first_seq };
        let mut segment = Rewritten::empty(&header);
        segment.fill(position);
        done.push(format!("the next event is event {}", position.0));
        added = Some(segment.bytes);
    }
    if args.dry_run {
        return Ok((done, None));
    }
    let kept = args.backup.keep(source)?;
    if let Some(bytes) = added {
        source.put(&source.next_name(), &bytes, Expect::Absent)?;
    }
    source.remove(gone.iter().map(String::as_str))?;
    Ok((done, kept))
}
