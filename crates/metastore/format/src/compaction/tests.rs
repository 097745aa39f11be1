use super::*;
use crate::object::RunId;

const TIERS: Tiers = Tiers { small_bytes: 100, at_once_bytes: 400, run_bytes_max: 1 << 30 };

fn run(bytes: u64) -> RunInfo {
    RunInfo { id: RunId(1), rows: bytes / 10, removed: 0, bytes, crc: 0 }
}

fn runs(bytes: &[u64]) -> Vec<RunInfo> {
    bytes.iter().copied().map(run).collect()
}

#[test]
fn small_runs_are_merged_at_once_and_the_large_one_below_them_is_not() {
    assert_eq!(TIERS.at_once(&runs(&[10; 6])), 0);
    assert_eq!(TIERS.at_once(&runs(&[10; 7])), 7);
    let mut above = vec![10; 7];
    above.push(1_000_000);
    assert_eq!(TIERS.at_once(&runs(&above)), 7);
    assert_eq!(TIERS.at_once(&runs(&[90; 7])), 0, "together they are too many bytes");
    assert_eq!(TIERS.choose_runs(&runs(&[90; 7])), Some(7));
}

#[test]
fn four_of_a_tier_are_merged_with_what_is_above_them() {
    assert_eq!(TIERS.choose_runs(&runs(&[300, 300, 300])), None);
    assert_eq!(TIERS.choose_runs(&runs(&[300, 300, 300, 300])), Some(4));
    assert_eq!(TIERS.choose_runs(&runs(&[50, 300, 300, 300, 300, 5000])), Some(5));
    assert_eq!(TIERS.choose_runs(&runs(&[300, 300, 300, 5000, 300])), None, "they do not meet");
    assert_eq!(TIERS.choose_runs(&[]), None);
}

#[test]
fn a_run_of_mostly_tombstones_is_merged_with_the_rows_it_hides() {
    let mut two = runs(&[300, 300]);
    two[0].removed = two[0].rows;
    assert_eq!(TIERS.choose_runs(&two), None, "they hide half of it");
    two.insert(0, RunInfo { removed: 10, ..run(100) });
    assert_eq!(TIERS.choose_runs(&two), Some(3));
}

#[test]
fn tombstones_over_long_values_trigger_a_merge() {
    use crate::values::ValueSegment;
    let mut manifest = Manifest::new(types::DirFragId::default());
    manifest.runs = runs(&[100, 300]);
    let uses = vec![(RunId(1), 5000)];
    manifest.values = vec![ValueSegment { id: RunId(1), bytes: 5000, crc: 0, uses }];
    assert_eq!(TIERS.choose(&manifest), None, "nothing was removed");
    manifest.runs[0].removed = 7;
    assert_eq!(TIERS.choose(&manifest), None, "that is little");
    manifest.runs[0].removed = 8;
    assert_eq!(TIERS.choose(&manifest), Some(2));
    manifest.values[0].bytes = 400;
    assert_eq!(TIERS.choose(&manifest), None, "it is not worth it");
    manifest.values[0].bytes = 5000;
    manifest.runs.remove(1);
    assert_eq!(TIERS.choose(&manifest), None, "nothing is below it");
}

#[test]
fn no_run_becomes_larger_than_an_object_may_be() {
    let tiers = Tiers { run_bytes_max: 1000, ..TIERS };
    assert_eq!(tiers.choose_runs(&runs(&[300, 300, 300, 300])), None, "three of them would fit");
    assert_eq!(tiers.choose_runs(&runs(&[250, 250, 250, 250, 250])), Some(4));
}

/// The cost of a directory that only grows: runs, and bytes written for each byte that came.
#[test]
fn rewriting_and_runs_grow_with_the_logarithm() {
    let (mut all, mut came, mut written): (Vec<RunInfo>, u64, u64) = (Vec::new(), 0, 0);
    let mut most = 0;
    for _ in 0..4096 {
        all.insert(0, run(300));
        came += 300;
        written += 300;
        while let Some(count) = TIERS.choose_runs(&all) {
            let merged: u64 = all.drain(..count).map(|run| run.bytes).sum();
            written += merged;
            all.insert(0, run(merged));
        }
        most = most.max(all.len());
    }
    assert!(written <= 7 * came, "{written} of {came}: six four-fold growths");
    assert!(most <= 3 * 7, "{most} runs at the same time");
}
