//! The answers about the balancers: their decisions, and the hottest directories.

use std::collections::BTreeMap;

use balancer::{DecisionRecord, MoveRecord, RecordedEvent, TickRecord, TickResult};
use cudele::BalancerLog;
use serde_json::{Value, json};

use crate::ROWS_MAX;

/// The records with their numbers, the newest first. A record of a later release is left out.
fn records(log: &BalancerLog) -> impl Iterator<Item = (u64, DecisionRecord)> {
    let numbered = (log.before + 1..).zip(&log.records).collect::<Vec<_>>();
    let newest = numbered.into_iter().rev();
    newest.filter_map(|(number, bytes)| Some((number, DecisionRecord::decode(bytes).ok()?)))
}

fn path(bytes: &[u8]) -> String {
    if bytes.is_empty() { "?".to_owned() } else { String::from_utf8_lossy(bytes).into_owned() }
}

/// The newest decisions and moves. Ticks in which no policy was asked are left out.
pub(crate) fn newest(log: &BalancerLog) -> Value {
    let is_said = |record: &DecisionRecord| match &record.what {
        RecordedEvent::Tick(tick) => tick.ended != TickResult::Skipped,
        RecordedEvent::Move(_) => true,
    };
    let said = records(log).filter(|(_, record)| is_said(record));
    let rows = said.take(ROWS_MAX).map(|(number, record)| {
        let (rank, time) = (record.rank.0, record.time.0 / 1_000_000);
        match &record.what {
            RecordedEvent::Tick(tick) => decision(number, (rank, time), tick),
            RecordedEvent::Move(done) => moved(number, (rank, time), done),
        }
    });
    Value::Array(rows.collect())
}

fn decision(number: u64, (rank, time): (u16, i64), tick: &TickRecord) -> Value {
    let wanted = tick.moves.iter().map(
        |wanted| json!({ "path": path(&wanted.path), "to": wanted.to.0, "load": wanted.load }),
    );
    json!({
        "kind": "decision", "number": number, "rank": rank, "time": time, "policy": tick.policy,
        "ended": tick.ended.word(), "why": tick.why, "loads": tick.loads, "targets": tick.targets,
        "moves": wanted.collect::<Vec<_>>(), "log": tick.log,
    })
}

fn moved(number: u64, (rank, time): (u16, i64), done: &MoveRecord) -> Value {
    json!({
        "kind": "move", "number": number, "rank": rank, "time": time, "path": path(&done.path),
        "to": done.to.0, "moved": done.failure.is_empty(), "failure": done.failure,
        "frozen_ms": done.frozen_micros / 1000, "sessions": done.flushed,
    })
}

/// The tick of a rank is old after so many nanoseconds.
const RECENT: i64 = 120_000_000_000;

/// The hottest directories by the newest tick of each rank: hits, faded, with those below, and the
/// rank with most.
pub(crate) fn heat(log: &BalancerLog) -> Value {
    let mut newest: BTreeMap<u16, TickRecord> = BTreeMap::new();
    let mut last = None;
    for (_, record) in records(log) {
        if record.time.0 < *last.get_or_insert(record.time.0) - RECENT {
            break;
        }
        if let RecordedEvent::Tick(tick) = record.what {
            newest.entry(record.rank.0).or_insert(tick);
        }
    }
    let mut hottest: BTreeMap<String, (f64, u16)> = BTreeMap::new();
    for (rank, tick) in &newest {
        for warm in &tick.units {
            let load = warm.unit.counts.sum();
            let known = hottest.entry(path(&warm.path)).or_insert((load, *rank));
            if load > known.0 {
                *known = (load, *rank);
            }
        }
    }
    let mut all: Vec<_> = hottest.into_iter().filter(|(_, (load, _))| *load > 0.0).collect();
    all.sort_by(|a, b| b.1.0.total_cmp(&a.1.0).then_with(|| a.0.cmp(&b.0)));
    all.truncate(ROWS_MAX);
    let rows = all
        .into_iter()
        .map(|(path, (load, rank))| json!({ "path": path, "load": load, "rank": rank }));
    Value::Array(rows.collect())
}
