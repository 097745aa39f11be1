//! `merge`: the journal of a decoupled client, transferred and applied (S1 Fig 8, S0 Fig 10). The
//! time per event must not depend on how many there are, nor on what the directory holds (J-12).

use cudele::{MergeBy, Result};

use super::arriving;
use super::job::Outcome;
use super::lab::{Fill, Lab, Size, fill};
use super::row::Row;
use super::stats::real;

/// Also of the rows in `arriving`.
pub(crate) const BENCH: &str = "merge";
const SIZES: [u64; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];
/// By reference: the time must hardly depend on how many there are.
const LARGE: [u64; 2] = [1_000_000, 10_000_000];
/// Fewer go by value.
const BY_REFERENCE_MIN: u64 = 4096;

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let sizes = lab.sizes(&SIZES, 10_000);
    let full = lab.files(1_000_000, 10_000);
    let by_value = |size: &u64| Row::new(BENCH, format!("by_value_{}", Size(*size)), *size);
    let mut rows: Vec<_> = sizes.iter().map(by_value).collect();
    let mut into_full = Row::new(BENCH, format!("into_full_{}", Size(full)), full);
    let by_reference = |size: &u64| Row::new(BENCH, format!("by_reference_{}", Size(*size)), *size);
    let mut large = lab.sizes(&LARGE, 10_000);
    large.retain(|size| *size >= BY_REFERENCE_MIN);
    let mut references: Vec<_> = large.iter().map(by_reference).collect();
    let merge_by = MergeBy::Value;
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        for (size, row) in sizes.iter().zip(&mut rows) {
            lab.progress(BENCH, repetition, &format!("{size} events"));
            let cluster = lab.cluster(&[])?;
            let dir = cluster.directory(None)?;
            note(
                row,
                &fill(
                    &cluster,
                    Fill { dir: &dir, first: 0, files: *size, merge: false, merge_by },
                )?,
            );
            cluster.store().clone_into(&mut store);
        }
        for (size, row) in large.iter().zip(&mut references) {
            lab.progress(BENCH, repetition, &format!("{size} events by reference"));
            let cluster = lab.cluster(&[])?;
            let dir = cluster.directory(None)?;
            let merge_by = MergeBy::Reference;
            let task = Fill { dir: &dir, first: 0, files: *size, merge: false, merge_by };
            note_reference(row, &fill(&cluster, task)?);
        }
        lab.progress(BENCH, repetition, "into a full directory");
        let cluster = lab.cluster(&[])?;
        let dir = cluster.directory(None)?;
        fill(&cluster, Fill { dir: &dir, first: 0, files: full, merge: true, merge_by })?;
        note(
            &mut into_full,
            &fill(&cluster, Fill { dir: &dir, first: full, files: full, merge: false, merge_by })?,
        );
    }
    rows.append(&mut references);
    rows.push(into_full);
    lab.report(&store, rows);
    arriving::run(lab)
}

fn note(row: &mut Row, outcome: &Outcome) {
    let seconds = outcome.part("volatile_apply");
    row.push(seconds);
    row.bytes_per_event = Some(real(outcome.bytes) / real(outcome.events.max(1)));
    row.note("ns_per_event", seconds * 1e9 / real(outcome.events.max(1)));
    row.cpu(std::slice::from_ref(outcome));
    let (verify, apply) = (outcome.part("verify"), outcome.part("apply"));
    row.note("transfer_seconds", seconds - verify - apply);
    row.note("verify_seconds", verify);
    row.note("apply_seconds", apply);
}

/// What counts is the time from when the runs are in the store to when everybody may see them; what
/// the client spends on writing them is listed beside it.
fn note_reference(row: &mut Row, outcome: &Outcome) {
    let (all, visible) = (outcome.part("volatile_apply"), outcome.part("by_reference"));
    row.push(visible);
    row.bytes_per_event = Some(real(outcome.bytes) / real(outcome.events.max(1)));
    row.note("ns_per_event", visible * 1e9 / real(outcome.events.max(1)));
    row.cpu(std::slice::from_ref(outcome));
    row.note("write_runs_seconds", all - visible);
}
