//! `cudele balancer log`: every decision with its inputs, its reason and its result.

mod heat;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use balancer::{
    Counts, DecisionRecord, Metrics, MoveRecord, RecordedDirectory, RecordedEvent, TickRecord,
};
use clap::Args as ClapArgs;
use cudele::{Errno, Error, Result};
use serde_json::{Map, Value, json};
use terminal::context::Context;
use terminal::format;
use types::Rank;

#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele balancer log
  cudele balancer log --rank 0 --moves
  cudele balancer log --heat hot.svg          which directories were hot, and when")]
pub(super) struct Args {
    /// Only decisions of this rank
    #[arg(long)]
    rank: Option<u16>,
    /// Only moves, done or planned
    #[arg(long)]
    moves: bool,
    /// Only the records after so many
    #[arg(long, default_value_t = 0, value_name = "N")]
    after: u64,
    /// Draw how hot directories were over time, instead of printing the log
    #[arg(long, value_name = "FILE.svg")]
    heat: Option<PathBuf>,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<()> {
    let log = context.cluster()?.balancer_log(args.after)?;
    let mut records = Vec::new();
    for (number, bytes) in (log.before + 1..).zip(&log.records) {
        let record = DecisionRecord::decode(bytes).map_err(|malformed| {
            Error::new(Errno::BadMessage, format!("record {number}"), malformed.to_string())
                .remedy("use the program of the cluster's release")
        })?;
        if is_wanted(args, &record) {
            records.push((number, record));
        }
    }
    if let Some(file) = &args.heat {
        return picture(context, file, heat::draw(records.iter().map(|(_, record)| record)));
    }
    let rows = records.iter().map(|(number, record)| to_json(*number, record)).collect();
    context.print(&Value::Array(rows), || {
        let mut text = String::new();
        if records.is_empty() {
            text.push_str("The balancers have said nothing yet.\n");
        }
        records.iter().for_each(|(_, record)| to_text(&mut text, record));
        text
    })
}

/// Writes the picture, in place of the log.
fn picture(context: &Context, file: &Path, drawn: heat::Picture) -> Result<()> {
    let heat::Picture { svg, directories, seconds } = drawn;
    std::fs::write(file, svg).map_err(|error| terminal::io(file, &error))?;
    let value = json!({ "picture": file, "directories": directories, "seconds": seconds });
    context.print(&value, || {
        let file = file.display();
        format!("{file} shows {directories} directories over {seconds:.0} s.\n")
    })
}

fn is_wanted(args: &Args, record: &DecisionRecord) -> bool {
    let moves = match &record.what {
        RecordedEvent::Tick(tick) => !tick.moves.is_empty(),
        RecordedEvent::Move(_) => true,
    };
    args.rank.is_none_or(|rank| record.rank == Rank(rank)) && (moves || !args.moves)
}

fn path(bytes: &[u8]) -> String {
    if bytes.is_empty() { "?".to_owned() } else { format::quoted(bytes).into_owned() }
}

fn named(named: &[(&str, f64)]) -> Value {
    Value::Object(named.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect())
}

fn metrics(metrics: &Metrics) -> Value {
    named(&metrics.named())
}

fn counts(counts: &Counts) -> Value {
    named(&counts.named())
}

fn to_json(number: u64, record: &DecisionRecord) -> Value {
    let mut object = Map::new();
    object.insert("number".into(), json!(number));
    object.insert("rank".into(), json!(record.rank.0));
    object.insert("time".into(), json!(record.time.0));
    match &record.what {
        RecordedEvent::Tick(tick) => tick_to_json(&mut object, tick),
        RecordedEvent::Move(done) => {
            let MoveRecord { tick, path: bytes, root, to, failure, frozen_micros, flushed } = done;
            object.insert("kind".into(), json!("move"));
            object.insert("tick".into(), json!(tick));
            format::put_bytes(&mut object, "path", bytes);
            object.insert("ino".into(), json!(root.0));
            object.insert("to".into(), json!(to.0));
            object.insert("moved".into(), json!(failure.is_empty()));
            object.insert("failure".into(), json!(failure));
            object.insert("frozen_micros".into(), json!(frozen_micros));
            object.insert("sessions_flushed".into(), json!(flushed));
        }
    }
    Value::Object(object)
}

fn tick_to_json(object: &mut Map<String, Value>, tick: &TickRecord) {
    let units = tick.units.iter().map(|RecordedDirectory { path, unit }| {
        let mut object = Map::new();
        format::put_bytes(&mut object, "path", path);
        object.insert("ino".into(), json!(unit.id.ino.0));
        object.insert("parent".into(), json!(unit.parent));
        object.insert("counts".into(), counts(&unit.counts));
        object.insert("inodes".into(), json!(unit.inodes));
        object.insert("movable".into(), json!(unit.movable));
        object.insert("pin".into(), json!(unit.pin.map(|rank| rank.0)));
        Value::Object(object)
    });
    let moves = tick.moves.iter().map(|wanted| {
        let mut object = Map::new();
        format::put_bytes(&mut object, "path", &wanted.path);
        object.insert("ino".into(), json!(wanted.id.ino.0));
        object.insert("to".into(), json!(wanted.to.0));
        object.insert("load".into(), json!(wanted.load));
        object.insert("selector".into(), json!(wanted.selector));
        Value::Object(object)
    });
    let facts = json!({
        "kind": "tick", "tick": tick.tick, "tick_seconds": tick.tick_seconds,
        "version": tick.version, "policy": tick.policy, "outcome": tick.ended.word(),
        "why": tick.why, "ranks": tick.ranks.iter().map(metrics).collect::<Vec<_>>(),
        "auth": counts(&tick.counts.0), "all": counts(&tick.counts.1),
        "units": units.collect::<Vec<_>>(), "loads": tick.loads, "targets": tick.targets,
        "moves": moves.collect::<Vec<_>>(), "log": tick.log, "steps": tick.cost.0,
        "micros": tick.cost.1,
    });
    if let Value::Object(facts) = facts {
        object.extend(facts);
    }
}

fn to_text(text: &mut String, record: &DecisionRecord) {
    // To the millisecond.
    let mut when = format::instant(record.time);
    when.truncate(23);
    let rank = record.rank;
    match &record.what {
        RecordedEvent::Move(done) if done.failure.is_empty() => {
            let (path, to, flushed) = (path(&done.path), done.to, done.flushed);
            let frozen = millis(done.frozen_micros);
            let _ = writeln!(
                text,
                "{when}  {rank}  {path} went to {to}: frozen {frozen:.1} ms, {flushed} sessions \
                 flushed"
            );
        }
        RecordedEvent::Move(done) => {
            let (path, to) = (path(&done.path), done.to);
            let _ = writeln!(text, "{when}  {rank}  {path} did not go to {to}: {}", done.failure);
        }
        RecordedEvent::Tick(tick) => {
            let TickRecord { tick: number, version, policy, ended, why, .. } = tick;
            let _ = writeln!(
                text,
                "{when}  {rank}  tick {number}, {policy} (version {version}): {}: {why}",
                ended.word()
            );
            for (number, rank) in tick.ranks.iter().enumerate() {
                let load = tick.loads.get(number).copied().unwrap_or_default();
                let _ = writeln!(
                    text,
                    "    mds.{number:<4} load {load:<10.2} all {:<10.2} {:>8.1} requests/s  CPU \
                     {:>3.0} %  queue {:.1}  heard {:.1} s ago",
                    rank.all,
                    rank.requests_per_second,
                    rank.cpu_percent,
                    rank.queue,
                    rank.age_seconds
                );
            }
            for wanted in &tick.moves {
                let by = match wanted.selector.as_str() {
                    "" => "as pinned".to_owned(),
                    selector => format!("by {selector}"),
                };
                let (path, to, load) = (path(&wanted.path), wanted.to, wanted.load);
                let _ = writeln!(text, "    {path} is to go to {to}: load {load:.2}, {by}");
            }
            for line in &tick.log {
                let _ = writeln!(text, "    | {line}");
            }
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
fn millis(micros: u64) -> f64 {
    micros as f64 / 1000.0
}
