//! The fault matrix: every cell of Table II, every fault, at every step of the composition, with
//! real processes. After each the exact survivors are compared with section 6 of the design, of
//! which `table` is a copy and `expect` the reading.
//!
//! The default run strikes every cell with every fault where the promise begins to hold, and at one
//! other step, which differs from cell to cell. All steps: `cargo test -p cli --test matrix --
//! --ignored --nocapture`.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "I/O edge: tests start daemons and clients, kill them and say what they skip"
)]

mod case;
mod client;
mod disk;
mod expect;
mod repeat;
mod replay;
mod site;
mod step;
mod table;
mod transitions;
mod tree;

use case::{Lab, Outcome};
use expect::Fault;
use step::{Step, steps};
use table::{Row, TABLE};

#[test]
fn every_cell_meets_every_fault() {
    report(&run(|row, fault, steps| {
        let promise = steps.iter().position(|step| step.complete).unwrap();
        let cell = TABLE.iter().position(|known| known.cell == row.cell).unwrap();
        let fault = Fault::ALL.iter().position(|known| *known == fault).unwrap();
        let other = (cell * Fault::ALL.len() + fault * 3) % steps.len();
        let mut chosen = vec![promise, other];
        chosen.dedup();
        chosen
    }));
}

#[test]
#[ignore = "all steps: minutes"]
fn every_cell_meets_every_fault_at_every_step() {
    report(&run(|_, _, steps| (0..steps.len()).collect()));
}

/// Runs cases at the chosen steps: those with a power failure of the store on a site of their own,
/// beside the rest.
fn run(choose: impl Fn(&Row, Fault, &[Step]) -> Vec<usize> + Sync) -> Vec<Outcome> {
    let all = |lab: &mut Lab, power: bool| {
        let mut outcomes = Vec::new();
        for row in &TABLE {
            let steps = steps(row);
            for fault in Fault::ALL {
                if (fault == Fault::StorePower) != power {
                    continue;
                }
                for at in choose(row, fault, &steps) {
                    outcomes.extend(lab.run(row, fault, &steps[at]));
                }
            }
        }
        outcomes
    };
    std::thread::scope(|scope| {
        let power =
            scope.spawn(|| Lab::with_power().map_or(Vec::new(), |mut lab| all(&mut lab, true)));
        let mut outcomes = all(&mut Lab::new(), false);
        outcomes.extend(power.join().unwrap());
        outcomes
    })
}

/// Prints the matrix, and fails if a line of it is not as the table says.
fn report(outcomes: &[Outcome]) {
    for outcome in outcomes {
        println!("{outcome}");
    }
    let wrong = outcomes.iter().filter(|outcome| !outcome.is_expected()).count();
    println!("{} cases, {wrong} not as the table says", outcomes.len());
    assert_eq!(wrong, 0);
}
