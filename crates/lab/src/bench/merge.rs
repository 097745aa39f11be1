//! `merge`: the journal of a decoupled client, transferred and applied (S1 Fig 8, S0 Fig 10). The
//! time per event must not depend on the number of events, nor on the content of the directory
//! (J-12); by reference the time must not depend on the number at all.

use cudele::{MergeBy, Result};

use super::arriving::{self, BENCH};
use crate::harness::cluster::TestCluster;
use crate::harness::job::{JobOutcome, Task};
use crate::harness::lab::{Fill, Lab, Size, alone, fill};
use crate::harness::row::{PER_SECOND, Row};
use crate::harness::stats::real;

const SIZES: [u64; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];
/// By reference: the time must hardly depend on how many there are.
const LARGE: [u64; 2] = [1_000_000, 10_000_000];
/// Fewer go by value.
const BY_REFERENCE_MIN: u64 = 4096;
/// Events a second, by value.
const GOAL_BY_VALUE: f64 = 4e6;
/// Milliseconds from finished runs to the moment when all clients see a million names.
const GOAL_VISIBLE_MS: f64 = 50.0;
/// Times as long for ten million.
const GOAL_OF_1M: f64 = 1.5;
/// The time from the last create to visibility, over the same time by value.
const GOAL_OF_BY_VALUE: f64 = 0.5;

/// The share of the rate of root's merge that remains with checks of rights.
const GOAL_OF_ROOT: f64 = 0.9;
/// Another user, and the user's group (Debian's `nobody` and `nogroup`).
const NOBODY: u32 = 65_534;
const GROUP: &str = "65534";

const MILLION: u64 = 1_000_000;

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let sizes = lab.sizes(&SIZES, 10_000);
    let full = lab.files(MILLION, 10_000);
    let by_value = |size: &u64| {
        let mut row = Row::new(BENCH, format!("by_value_{}", Size(*size)), *size);
        if *size == MILLION {
            row.goal(PER_SECOND, GOAL_BY_VALUE);
        }
        row
    };
    let mut rows: Vec<_> = sizes.iter().map(by_value).collect();
    let mut into_full = Row::new(BENCH, format!("into_full_{}", Size(full)), full);
    let mut large = lab.sizes(&LARGE, 10_000);
    large.retain(|size| *size >= BY_REFERENCE_MIN);
    let mut references: Vec<_> = large.iter().map(reference_row).collect();
    let mut jobs: Vec<_> = large.first().map(|size| job_rows(*size)).into_iter().collect();
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        for (size, row) in sizes.iter().zip(&mut rows) {
            lab.progress(BENCH, repetition, &format!("{size} events"));
            let cluster = lab.cluster(&[])?;
            note(row, &merged(&cluster, *size, MergeBy::Value, true)?.0);
            cluster.store().clone_into(&mut store);
        }
        let mut million = None;
        for (size, row) in large.iter().zip(&mut references) {
            lab.progress(BENCH, repetition, &format!("{size} events by reference"));
            let cluster = lab.cluster(&[])?;
            let (outcome, dir) = merged(&cluster, *size, MergeBy::Reference, true)?;
            let visible = note_reference(row, &outcome);
            match million {
                Some(million) => row.note("of_1M", visible / million),
                None => million = Some(visible),
            }
            row.note("first_stat_seconds", find(&cluster, &dir)?);
        }
        for (size, [by_value, by_reference]) in large.iter().zip(&mut jobs) {
            lab.progress(BENCH, repetition, &format!("a job of {size} creates"));
            let value = from_last_create(by_value, &lab.cluster(&[])?, MergeBy::Value)?;
            let reference = from_last_create(by_reference, &lab.cluster(&[])?, MergeBy::Reference)?;
            by_reference.note("of_by_value", reference / value);
        }
        lab.progress(BENCH, repetition, "into a full directory");
        let cluster = lab.cluster(&[])?;
        let dir = cluster.directory(None)?;
        let merge_by = MergeBy::Value;
        fill(&cluster, Fill { dir: &dir, first: 0, files: full, merge: true, merge_by })?;
        note(
            &mut into_full,
            &fill(&cluster, Fill { dir: &dir, first: full, files: full, merge: false, merge_by })?,
        );
    }
    rows.extend(rights(lab, full)?);
    rows.append(&mut references);
    rows.extend(jobs.into_iter().flatten());
    rows.push(into_full);
    lab.report(&store, rows);
    // Several at once: not with `--clients 1`.
    if lab.clients(2) > 1 { arriving::run(lab) } else { Ok(()) }
}

/// Merges by value, under `check: none`, by root and by another user in turn: the server holds each
/// event of the user's journal against the rights of the user. Nothing without root.
fn rights(lab: &mut Lab, files: u64) -> Result<Vec<Row>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(Vec::new());
    }
    let row = |who: &str| Row::new(BENCH, format!("of_{who}_{}", Size(files)), files);
    let (mut of_root, mut of_user) = (row("root"), row("user"));
    of_user.goal("of_root", GOAL_OF_ROOT);
    for repetition in 0..lab.repeat {
        lab.progress(BENCH, repetition, "events of another user");
        let mut seconds = [0.0; 2];
        // The second of two is slower on some machines.
        let turns = if repetition % 2 == 0 { [0, 1] } else { [1, 0] };
        for turn in turns {
            let mut cluster = lab.cluster_for(GROUP)?;
            let dir = cluster.directory(None)?;
            if turn == 1 {
                cluster.work_as(NOBODY, &[&dir])?;
            }
            let merge_by = MergeBy::Value;
            let fill = Fill { dir: &dir, first: 0, files, merge: false, merge_by };
            let outcome = crate::harness::lab::fill_as(&cluster, fill, true)?;
            note(if turn == 0 { &mut of_root } else { &mut of_user }, &outcome);
            seconds[turn] = outcome.part("volatile_apply");
        }
        of_user.note("of_root", seconds[0] / seconds[1]);
    }
    Ok(vec![of_root, of_user])
}

fn reference_row(size: &u64) -> Row {
    let mut row = Row::new(BENCH, format!("by_reference_{}", Size(*size)), *size);
    match *size {
        MILLION => row.limit("visible_ms", GOAL_VISIBLE_MS),
        _ => row.limit("of_1M", GOAL_OF_1M),
    }
    row
}

/// A job of so many creates, as fast as it can, and its merge at once: by value and by reference.
fn job_rows(size: u64) -> [Row; 2] {
    let row = |how: &str| Row::new(BENCH, format!("job_{how}_{}", Size(size)), size);
    let (by_value, mut by_reference) = (row("by_value"), row("by_reference"));
    by_reference.limit("of_by_value", GOAL_OF_BY_VALUE);
    [by_value, by_reference]
}

/// A merge into a new directory, and that directory. The measurement begins with the completion, or
/// with the first create.
fn merged(
    cluster: &TestCluster,
    files: u64,
    merge_by: MergeBy,
    append_first: bool,
) -> Result<(JobOutcome, String)> {
    let dir = cluster.directory(None)?;
    let fill = Fill { dir: &dir, first: 0, files, merge: false, merge_by };
    let outcome = crate::harness::lab::fill_as(cluster, fill, append_first)?;
    Ok((outcome, dir))
}

/// Records and returns the time from the last create on.
fn from_last_create(row: &mut Row, cluster: &TestCluster, merge_by: MergeBy) -> Result<f64> {
    let (outcome, _) = merged(cluster, row.files, merge_by, false)?;
    let creates = outcome.part("append_client_journal");
    let seconds = outcome.seconds() - creates;
    row.push(seconds);
    row.note("create_seconds", creates);
    row.note("all_seconds", outcome.seconds());
    row.cpu(std::slice::from_ref(&outcome));
    Ok(seconds)
}

/// How long another client takes to look one name up then.
fn find(cluster: &TestCluster, dir: &str) -> Result<f64> {
    let path = format!("{dir}/file.0000000");
    Ok(alone(cluster, Task::LookUp { path })?.seconds())
}

fn note(row: &mut Row, outcome: &JobOutcome) {
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

/// Records and returns the time from the moment when the runs are in the store to visibility; the
/// client's remaining writes are listed beside it.
fn note_reference(row: &mut Row, outcome: &JobOutcome) -> f64 {
    let (all, visible) = (outcome.part("volatile_apply"), outcome.part("by_reference"));
    row.push(visible);
    row.bytes_per_event = Some(real(outcome.bytes) / real(outcome.events.max(1)));
    row.note("visible_ms", visible * 1e3);
    row.note("runs", outcome.part("runs"));
    row.cpu(std::slice::from_ref(outcome));
    row.note("write_runs_seconds", all - visible);
    visible
}
