//! The places at which a fault strikes: before a mechanism, inside it, after it, and after the
//! composition; and how far the work is at each of them.

use cudele::{Mechanism, Stage};
use policy::{Composition, Durability};

use crate::table::Row;
use crate::tree::acts;

/// The progress of the journal on the way to its storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Persisted {
    No,
    /// The bytes are with the kernel. A kill does not take them, a power cut may.
    Written,
    Yes,
}

/// Whether the journal is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merged {
    No,
    /// The server has all of it and may be at it.
    Perhaps,
    Yes,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// The place, as the client process says it.
    pub(crate) place: String,
    /// In a decoupled subtree:
    pub(crate) persisted: Persisted,
    pub(crate) merged: Merged,
    /// By requests: acts that are answered, and of these the acts that the client has logged.
    pub(crate) answered: usize,
    pub(crate) logged: usize,
    /// The composition is complete for all of it.
    pub(crate) complete: bool,
    /// Whether the client completes again after it.
    pub(crate) before_repetition: bool,
}

/// The act in the middle of which requests are interrupted.
const MIDDLE: usize = 9;

/// All places of a cell, in the order in which the client comes to them.
pub(crate) fn steps(row: &Row) -> Vec<Step> {
    if row.cell.composition().contains(Mechanism::Rpcs) { strong(row) } else { decoupled(row) }
}

fn decoupled(row: &Row) -> Vec<Step> {
    let mut steps = Vec::new();
    let (mut persisted, mut merged) = (Persisted::No, Merged::No);
    let mut add = |place: &str, persisted, merged| {
        steps.push(Step {
            place: place.to_owned(),
            persisted,
            merged,
            answered: 0,
            logged: 0,
            complete: false,
            before_repetition: true,
        });
    };
    add("appended", persisted, merged);
    for mechanism in mechanisms(&row.cell.composition()) {
        for stage in Stage::ALL.into_iter().filter(|stage| passes(mechanism, *stage)) {
            match (mechanism, stage) {
                (Mechanism::VolatileApply, Stage::Sent) => merged = Merged::Perhaps,
                (Mechanism::VolatileApply, Stage::Applied) => merged = Merged::Yes,
                // A file gets its name when it is durable, an object has it from the start.
                (Mechanism::LocalPersist, Stage::Ended)
                | (Mechanism::GlobalPersist, Stage::Synced) => persisted = Persisted::Yes,
                (Mechanism::GlobalPersist, Stage::Written) => persisted = Persisted::Written,
                _ => {}
            }
            add(&format!("{}:{}", mechanism.name(), stage.name()), persisted, merged);
        }
    }
    add("completed", persisted, merged);
    add("repeated", persisted, merged);
    if merged == Merged::Yes {
        add("merged", persisted, merged);
        add("forgotten", persisted, merged);
    }
    let repeated = steps.iter().position(|step| step.place == "repeated").unwrap();
    for (at, step) in steps.iter_mut().enumerate() {
        step.complete = at + 1 >= repeated;
        step.before_repetition = at < repeated;
    }
    steps
}

fn strong(row: &Row) -> Vec<Step> {
    let step = |place: String, answered, logged| Step {
        place,
        persisted: Persisted::No,
        merged: Merged::No,
        answered,
        logged,
        complete: false,
        before_repetition: true,
    };
    let all = acts().len();
    let mut steps = vec![step("act 0".into(), 0, 0)];
    if row.cell.durability == Durability::Local {
        for (stage, logged) in
            [(Stage::Begun, MIDDLE - 1), (Stage::Written, MIDDLE), (Stage::Ended, MIDDLE)]
        {
            let place = format!("act {MIDDLE} local_persist:{}", stage.name());
            steps.push(step(place, MIDDLE, logged));
        }
    }
    steps.push(step(format!("act {MIDDLE}"), MIDDLE, MIDDLE));
    steps.push(Step { complete: true, ..step("completed".into(), all, all) });
    steps
}

/// The mechanisms that are carried out when a composition of Table II is completed, in order.
pub(crate) fn mechanisms(composition: &Composition) -> Vec<Mechanism> {
    let text = composition.to_string();
    let named = |name: &str| Mechanism::ALL.into_iter().find(|known| known.name() == name);
    let all = text.split('+').filter_map(named);
    all.filter(|mechanism| *mechanism != Mechanism::AppendClientJournal).collect()
}

/// The stages that a mechanism passes through.
pub(crate) fn passes(mechanism: Mechanism, stage: Stage) -> bool {
    use Stage::{Applied, Begun, Ended, Opened, Sending, Sent, Synced, Written};
    match mechanism {
        Mechanism::LocalPersist => matches!(stage, Begun | Opened | Written | Synced | Ended),
        Mechanism::GlobalPersist => matches!(stage, Begun | Written | Synced | Ended),
        Mechanism::VolatileApply => matches!(stage, Begun | Sending | Sent | Applied | Ended),
        Mechanism::Rpcs
        | Mechanism::Stream
        | Mechanism::AppendClientJournal
        | Mechanism::NonvolatileApply => false,
    }
}
