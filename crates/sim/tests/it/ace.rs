//! ACE for cells: small workloads, with a fault after every persistence point.
//!
//! `cargo xtask sim --ace --length 2` runs all workloads of two operations with every fault.

use sim::cells::ace::{
    AceCase, AceCounts, AceFailure, PointFaults, run_case, run_workload, workloads,
};

/// Runs every nth workload of a length in all cells, with one fault after each point.
fn run(length: u32, from: u64, every: usize) -> AceCounts {
    let mut sum = AceCounts::default();
    for workload in (from..workloads(length)).step_by(every) {
        for cell in 0..9 {
            let case = AceCase { length, workload, cell, strike: None };
            let counts = run_workload(case, PointFaults::Next, &mut |failure| {
                let AceFailure { case, violation } = failure;
                let (words, number) = (case.words(), case.number());
                let again = format!("again: cargo xtask sim --ace-case {number:#x} --transcript");
                panic!("{words}\n{violation}\n{again}");
            });
            sum.add(&counts);
        }
    }
    sum
}

#[test]
fn the_survivors_of_one_operation_are_those_of_the_promise() {
    let AceCounts { workloads, points, runs, failures, .. } = run(1, 0, 1);
    assert_eq!((runs, failures), (points + workloads, 0));
    assert!(workloads > 300 && points > 2_000, "{workloads} workloads, {points} points");
}

#[test]
fn the_survivors_of_two_operations_are_those_of_the_promise() {
    assert!(run(2, 3, 191).runs > 400);
}

#[test]
fn the_survivors_of_three_operations_are_those_of_the_promise() {
    assert!(run(3, 11, 9_973).runs > 400);
}

/// Cases that found a fault: `docs/trust.md` says which. The third is the second one with another
/// fault.
#[test]
fn cases_that_broke_a_promise() {
    for number in [
        0x1_b173_0008,
        0x5173_0007,
        0x5175_0007,
        0x13_e276_0014,
        0xe_5203_0009,
        0xd_2253_000b,
        0xe_0273_000f,
        0x16_4273_000a,
        0x18_b246_000e,
        0x22_7273_0011,
    ] {
        let case = AceCase::of_number(number).expect("a case has this number");
        let report = run_case(case, false).expect("the workload is possible");
        assert_eq!(report.violation, None, "{}", case.words());
    }
}
