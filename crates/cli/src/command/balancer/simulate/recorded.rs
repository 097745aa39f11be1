//! The output of `cudele --json balancer log`, as a load.

use std::path::Path;

use balancer::simulate::Recording;
use balancer::{
    Counts, DecisionRecord, Metrics, RecordedDirectory, RecordedEvent, TickRecord, Unit,
};
use cudele::{Errno, Error, Result};
use serde_json::{Value, json};
use types::{DirFragId, Frag, Ino, Rank, Span, Timestamp};

/// Reads a log.
pub(super) fn read(file: &Path, half_life: f64) -> Result<Recording> {
    let bytes = std::fs::read(file).map_err(|error| terminal::io(file, &error))?;
    let rows: Value = serde_json::from_slice(&bytes).map_err(|error| refused(file, &error))?;
    let rows = rows.as_array().ok_or_else(|| refused(file, &"it is no list of records"))?;
    let mut records = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        // The results of moves are no part of the load.
        if row["kind"] == "tick" {
            let record = record(row);
            let damaged = || refused(file, &format!("record {} is not complete", at + 1));
            records.push(record.ok_or_else(damaged)?);
        }
    }
    let half_life = std::time::Duration::try_from_secs_f64(half_life).unwrap_or_default();
    let half_life = Span(u64::try_from(half_life.as_nanos()).unwrap_or(u64::MAX));
    Recording::of(&records, half_life).ok_or_else(|| refused(file, &"no rank has ticked in it"))
}

/// The facts about it for a report.
pub(super) fn facts(recording: &Recording, times: f64) -> Value {
    json!({
        "seconds": recording.seconds(), "directories": recording.directories(),
        "per_second": recording.per_second(), "times": times,
    })
}

fn refused(file: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::new(
        Errno::Invalid,
        file.display().to_string(),
        format!("it is no balancers' log: {why}"),
    )
    .remedy("record one with `cudele --json balancer log > FILE`")
}

fn record(row: &Value) -> Option<DecisionRecord> {
    let units = row["units"].as_array()?.iter().map(warm).collect::<Option<Vec<_>>>()?;
    let ranks = row["ranks"].as_array()?.iter().map(metrics).collect::<Option<Vec<_>>>()?;
    let tick_seconds = number(&row["tick_seconds"])?;
    Some(DecisionRecord {
        rank: Rank(u16::try_from(row["rank"].as_u64()?).ok()?),
        time: Timestamp(row["time"].as_i64()?),
        what: RecordedEvent::Tick(TickRecord {
            tick_seconds,
            units,
            ranks,
            ..TickRecord::default()
        }),
    })
}

fn warm(row: &Value) -> Option<RecordedDirectory> {
    let counts = &row["counts"];
    let unit = Unit {
        id: DirFragId { ino: Ino(row["ino"].as_u64()?), frag: Frag::WHOLE },
        parent: row["parent"].as_u64().and_then(|parent| usize::try_from(parent).ok()),
        counts: Counts {
            inode_reads: number(&counts["IRD"])?,
            inode_writes: number(&counts["IWR"])?,
            readdirs: number(&counts["READDIR"])?,
            ..Counts::default()
        },
        inodes: row["inodes"].as_u64()?,
        movable: row["movable"].as_bool()?,
        pin: row["pin"].as_u64().and_then(|pin| u16::try_from(pin).ok()).map(Rank),
    };
    Some(RecordedDirectory { path: Vec::new(), unit })
}

fn metrics(row: &Value) -> Option<Metrics> {
    let (request_seconds, requests_per_second) = (number(&row["cost"])?, number(&row["req"])?);
    Some(Metrics { request_seconds, requests_per_second, ..Metrics::default() })
}

/// A number that is not negative.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().filter(|value| value.is_finite() && *value >= 0.0)
}
