//! `heat`: the hot directories when a source tree is unpacked, configured and compiled (Mantle,
//! figure 1).
//!
//! One client does it (`compile`) on one rank that has a small share of a processor (`rationed`).
//! Its balancer counts the requests in each directory, and lets the counts fade; twice in a second
//! it records them (`cudele balancer log`). Rows `heat_SECOND` have the counts of each directory of
//! the tree at that time, `job` has the time of the job.

use balancer::{DecisionRecord, RecordedEvent};
use cudele::{Cluster, Errno, Error, Result};

use super::compile::{DIRECTORIES, jobs};
use crate::harness::lab::Lab;
use crate::harness::rationed::Rationed;
use crate::harness::row::Row;

const BENCH: &str = "heat";
/// It records, and one rank has nowhere to move anything to.
const POLICY: &str = "cudele";
/// The names of the tree's directories in rows.
const PARTS: [&str; 16] = [
    "part_00", "part_01", "part_02", "part_03", "part_04", "part_05", "part_06", "part_07",
    "part_08", "part_09", "part_10", "part_11", "part_12", "part_13", "part_14", "part_15",
];

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let files = lab.files(120, 10);
    let mut job = Row::new(BENCH, "job", files * DIRECTORIES);
    lab.progress(BENCH, 0, &job.name);
    let rationed = Rationed::new(lab, 1, &[])?;
    let tasks = jobs(rationed.directories(1)?, files);
    rationed.policy(POLICY)?;
    let cluster = Cluster::connect(&rationed.cluster.address().parse()?)?;
    let so_far = cluster.balancer_log(0)?;
    let so_far = so_far.before + so_far.records.len() as u64;
    let took = rationed.work(tasks)?;
    took.note(&mut job, 1);
    let rows = recorded(&cluster.balancer_log(so_far)?.records)?;
    let store = rationed.cluster.store().to_owned();
    lab.report(&store, std::iter::once(job).chain(rows));
    Ok(())
}

/// A row for each tick in which a directory of the tree was warm.
fn recorded(records: &[Vec<u8>]) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    let mut begun = None;
    for bytes in records {
        let record = DecisionRecord::decode(bytes).map_err(|malformed| {
            Error::new(Errno::BadMessage, "balancer log", malformed.to_string())
        })?;
        let RecordedEvent::Tick(tick) = &record.what else { continue };
        let mut heat = [0.0; PARTS.len()];
        for warm in &tick.units {
            if let Some(part) = part(&warm.path) {
                heat[part] = warm.unit.counts.sum();
            }
        }
        if heat.iter().sum::<f64>() < 1.0 {
            continue;
        }
        let begun = *begun.get_or_insert(record.time.0);
        let tenths = (record.time.0 - begun) / 100_000_000;
        let mut row = Row::new(BENCH, format!("heat_{}.{}", tenths / 10, tenths % 10), 0);
        row.push(tick.tick_seconds);
        PARTS.iter().zip(heat).for_each(|(name, heat)| row.note(name, heat));
        rows.push(row);
    }
    Ok(rows)
}

/// Which directory of the tree a path is.
fn part(path: &[u8]) -> Option<usize> {
    let name = std::str::from_utf8(path).ok()?.rsplit('/').next()?;
    let number: usize = name.strip_prefix("part.")?.parse().ok()?;
    (number < PARTS.len()).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_the_tree_are_parts() {
        assert_eq!(PARTS.len() as u64, DIRECTORIES);
        assert_eq!(part(b"/bench.1/part.07"), Some(7));
        for other in [&b"/bench.1"[..], b"/part.16", b"/part.x", b"/\xff"] {
            assert_eq!(part(other), None);
        }
    }
}
