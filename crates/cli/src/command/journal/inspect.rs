//! `cudele journal inspect`: the content of a journal, and its damage.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};
use cudele::{Errno, Error, Result};
use journal::segment::{SegmentScan, scan};
use journal::{JournalError, SegmentHeader, Writer};
use serde_json::{Value, json};
use terminal::context::{Context, say};
use terminal::figures::{average, bytes, count};

use super::filter::{Filter, FilterArgs};
use super::rework::{self, Damage, Surveys};
use super::select::{self, SelectedJournal};
use crate::journals::{self, Names, Story};

/// Show the content of journals: files on this disk, objects in the store, the metadata servers'
/// segments. Works also while the cluster is down. Ends with 1 if a journal is damaged.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele journal inspect --mds --type create --name '*.c' --output list
  cudele journal inspect --subtree /scratch/job
  cudele journal inspect ~/.local/state/cudele/subtrees/*/*/journal.*")]
pub(crate) struct Args {
    /// Journal files, or names of journal objects
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The metadata servers' journals [default if nothing else is named]
    #[arg(long)]
    mds: bool,
    /// The journals of a decoupled subtree
    #[arg(long, value_name = "PATH")]
    subtree: Option<String>,
    #[command(flatten)]
    filter: FilterArgs,
    /// How to print
    #[arg(long, value_enum)]
    output: Option<Output>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Everything, for programs
    Json,
    /// A line per event
    List,
    /// Counts per journal
    Summary,
}

/// The output about one journal.
struct InspectedJournal {
    name: String,
    length: u64,
    /// The header and how far the bytes are intact, or why not even that.
    trust: std::result::Result<(SegmentHeader, SegmentScan), JournalError>,
    /// Events that do not decode although their checksums match.
    strange: Option<JournalError>,
    /// Everything that is damaged, also behind the first damage.
    all_damage: Vec<Damage>,
    /// The newest journal of a server that may still be writing it.
    growing: bool,
    matching: u64,
    kinds: BTreeMap<&'static str, u64>,
    inline_bytes: u64,
    lines: String,
    events: Vec<Value>,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let output = match args.output {
        Some(output) if !context.json => output,
        None if !context.json => Output::Summary,
        Some(_) | None => Output::Json,
    };
    let filter = args.filter.filter();
    let mut found = select::named(context, &args.files)?;
    if let Some(path) = &args.subtree {
        found.extend(select::of_subtree(context, path)?);
    }
    if args.mds || (args.files.is_empty() && args.subtree.is_none()) {
        found.extend(select::of_servers(context)?);
    }
    let mut names = Names::default();
    let last = found.len();
    let inspected: Vec<InspectedJournal> = found
        .into_iter()
        .enumerate()
        .map(|(at, found)| inspect(found, &filter, output, &mut names, at + 1 == last))
        .collect();
    let text = match output {
        Output::Json => format!("{:#}\n", json(&inspected)),
        Output::List => inspected.iter().map(list).collect(),
        Output::Summary => summary(&inspected),
    };
    say(&text)?;
    match inspected.iter().find_map(damage) {
        None => Ok(()),
        Some((name, cause)) => Err(Error::new(Errno::BadMessage, name, cause)
            .remedy("what stands before the damage is intact and was shown")),
    }
}

fn inspect(
    found: SelectedJournal,
    filter: &Filter,
    output: Output,
    names: &mut Names,
    last: bool,
) -> InspectedJournal {
    let SelectedJournal { name, bytes, root } = found;
    let header = SegmentHeader::decode(&bytes);
    let trust = header.and_then(|header| Ok((header, scan(&bytes)?)));
    let server = matches!(trust, Ok((SegmentHeader { writer: Writer::Mds { .. }, .. }, _)));
    let mut inspected = InspectedJournal {
        name: name.clone(),
        length: bytes.len() as u64,
        trust,
        strange: None,
        all_damage: Surveys::of_pieces(std::iter::once((name.as_str(), &*bytes)), false).damage(),
        growing: server && last,
        matching: 0,
        kinds: BTreeMap::new(),
        inline_bytes: 0,
        lines: String::new(),
        events: Vec::new(),
    };
    let Ok((_, scan)) = &inspected.trust else { return inspected };
    if let Some((ino, path)) = &root {
        names.know_root(*ino, path);
    }
    let mut show = |story: &Story<'_>| {
        if !filter.admits(story) {
            return;
        }
        inspected.matching += 1;
        *inspected.kinds.entry(story.word()).or_default() += 1;
        inspected.inline_bytes += story.inline_bytes();
        match output {
            Output::Json => inspected.events.push(story.to_json()),
            Output::List => {
                let _ = writeln!(inspected.lines, "{}", story.line());
            }
            Output::Summary => {}
        }
    };
    inspected.strange = journals::each_event(&bytes[..scan.intact], names, &mut show).err();
    inspected
}

/// The journal that is damaged and how, if it is.
fn damage(inspected: &InspectedJournal) -> Option<(String, String)> {
    let cause = match (&inspected.trust, &inspected.strange) {
        (Err(error), _) | (Ok(_), Some(error)) => error.to_string(),
        (Ok((_, scan)), None) => {
            let damage = scan.damage.as_ref()?;
            if damage.resumes.is_none() && inspected.growing {
                return None;
            }
            damage_text(damage)
        }
    };
    Some((inspected.name.clone(), cause))
}

fn damage_text(damage: &journal::segment::Damage) -> String {
    match damage.resumes {
        Some(at) => format!("{}; a hole: intact blocks follow at byte {at}", damage.error),
        None => format!("{}; a torn end: nothing intact follows", damage.error),
    }
}

fn writer_text(writer: Writer) -> String {
    match writer {
        Writer::Mds { rank } => rank.to_string(),
        Writer::Client { client, subtree } => format!("{client}, subtree {}", subtree.0),
    }
}

fn summary(inspected: &[InspectedJournal]) -> String {
    let mut text = String::new();
    let (mut events, mut length) = (0, 0);
    for one in inspected {
        let _ = writeln!(text, "{}", one.name);
        length += one.length;
        events += one.matching;
        if let Ok((header, scan)) = &one.trust {
            let _ = writeln!(
                text,
                "  {}, epoch {}, events {}..{}, {} of {} intact",
                writer_text(header.writer),
                header.epoch.0,
                header.first_seq.0,
                scan.next_seq.0,
                bytes(scan.intact as u64),
                bytes(one.length)
            );
            let kinds: Vec<String> =
                one.kinds.iter().map(|(kind, number)| format!("{number} {kind}")).collect();
            let kinds = if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") };
            let bare = (scan.intact as u64).saturating_sub(one.inline_bytes);
            let _ = writeln!(
                text,
                "  matching: {kinds}; {:.1} bytes per event, {:.1} without inline content",
                average(scan.intact as u64, scan.events),
                average(bare, scan.events)
            );
        }
        if let Some((_, cause)) = damage(one) {
            let _ = writeln!(text, "  DAMAGED {cause}");
            if one.all_damage.len() > 1 {
                text.push_str(&rework::text(&one.all_damage));
            }
        } else if let Ok((_, SegmentScan { damage: Some(damage), .. })) = &one.trust {
            let _ = writeln!(text, "  being written: {}", damage.error);
        }
    }
    let _ = writeln!(
        text,
        "{} journals, {}, {} matching events",
        inspected.len(),
        bytes(length),
        count(events)
    );
    text
}

fn list(inspected: &InspectedJournal) -> String {
    let mut text = format!("# {}\n{}", inspected.name, inspected.lines);
    if let Some((_, cause)) = damage(inspected) {
        let _ = writeln!(text, "# DAMAGED {cause}");
    }
    text
}

fn json(inspected: &[InspectedJournal]) -> Value {
    inspected
        .iter()
        .map(|one| {
            let mut value = json!({
                "name": one.name, "bytes": one.length, "matching": one.matching,
                "types": one.kinds, "inline_bytes": one.inline_bytes, "events": one.events,
                "damaged": damage(one).is_some(),
                "damage": damage(one).map(|(_, cause)| cause),
                "regions": rework::json(&one.all_damage),
            });
            if let Ok((header, scan)) = &one.trust {
                let SegmentHeader { writer, epoch, first_seq } = header;
                value["writer"] = match writer {
                    Writer::Mds { rank } => json!({ "mds": rank.0 }),
                    Writer::Client { client, subtree } => {
                        json!({ "client": client.0, "subtree": subtree.0 })
                    }
                };
                value["epoch"] = json!(epoch.0);
                value["first"] = json!(first_seq.0);
                value["next"] = json!(scan.next_seq.0);
                value["events_intact"] = json!(scan.events);
                value["bytes_intact"] = json!(scan.intact);
                if let Some(damage) = &scan.damage {
                    value["damage_offset"] = json!(damage.error.offset);
                    value["resumes"] = json!(damage.resumes);
                }
            }
            value
        })
        .collect()
}
