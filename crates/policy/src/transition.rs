//! Transitions: what has to happen before another policy holds for a subtree (P-16, F-04).
//!
//! Until all of it is done the old policy is in force with its promise; whatever crashes, the
//! subtree is in the one or the other. The tables of `docs/semantics.md` follow from this file.

use crate::{Composition, Durability, Mechanism, Policy};

/// What a change of policy needs, in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transition {
    /// Carried out on the journal that is held, so that it is kept as the new policy promises.
    pub persist: Composition,
    /// The journal that is held is merged, and the subtree is everybody's again.
    pub merge: bool,
    /// What is in the metadata server's memory only is written to the metadata store.
    pub store: bool,
}

impl Transition {
    /// From one policy to another. `held` says whether a client has the subtree.
    #[must_use]
    pub fn between(from: &Policy, to: &Policy, held: bool) -> Self {
        let merge = held && !to.is_decoupled();
        let promised = durability(to);
        let persist = match promised {
            // What is merged need not be kept by its client.
            _ if !held || merge || promised <= durability(from) => Composition::Nothing,
            Durability::Local => Mechanism::LocalPersist.into(),
            Durability::Global => Mechanism::GlobalPersist.into(),
            Durability::None => Composition::Nothing,
        };
        let store = promised > Durability::None && (merge || in_memory_only(from));
        Self { persist, merge, store }
    }

    /// Whether nothing has to happen: the new policy holds at once.
    #[must_use]
    pub fn is_immediate(&self) -> bool {
        *self == Self::default()
    }
}

/// Without a cell nothing is promised.
fn durability(policy: &Policy) -> Durability {
    policy.cell().map_or(Durability::None, |cell| cell.durability)
}

/// Whether the policy leaves changes that others see in the memory of the metadata server. Under an
/// invisible one these are explicit merges, and what was there when it came into force.
fn in_memory_only(policy: &Policy) -> bool {
    policy.cell().is_some_and(|cell| cell.durability != Durability::Global)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use expect_test::expect;

    use super::*;
    use crate::{Cell, Consistency};

    /// One row for every cell that a held subtree comes from, one column for every cell that it
    /// goes to: `p` persists, `m` merges, `s` stores, `-` nothing, `.` no change.
    fn table(held: bool) -> String {
        let mut text = String::new();
        for from in Cell::all() {
            if held && from.consistency == Consistency::Strong {
                // Nobody holds a subtree whose policy does not decouple.
                continue;
            }
            let _ = write!(text, "{from:<17}");
            for to in Cell::all() {
                let transition =
                    Transition::between(&Policy::of_cell(from), &Policy::of_cell(to), held);
                let mut steps = String::new();
                for (step, needed) in [
                    ('p', transition.persist != Composition::Nothing),
                    ('m', transition.merge),
                    ('s', transition.store),
                ] {
                    if needed {
                        steps.push(step);
                    }
                }
                let none = if from == to { "." } else { "-" };
                let shown = if steps.is_empty() || from == to { none } else { &steps };
                let _ = write!(text, " {shown:<3}");
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        text
    }

    #[test]
    fn every_pair_of_cells() {
        expect![[r#"
            invisible-none .   ps  ps  -   ps  ps  m   ms  ms
            invisible-local -   .   ps  -   s   ps  m   ms  ms
            invisible-global -   -   .   -   -   -   m   ms  ms
            weak-none -   ps  ps  .   ps  ps  m   ms  ms
            weak-local -   s   ps  -   .   ps  m   ms  ms
            weak-global -   -   -   -   -   .   m   ms  ms
        "#]]
        .assert_eq(&table(true));
        expect![[r#"
            invisible-none .   s   s   -   s   s   -   s   s
            invisible-local -   .   s   -   s   s   -   s   s
            invisible-global -   -   .   -   -   -   -   -   -
            weak-none -   s   s   .   s   s   -   s   s
            weak-local -   s   s   -   .   s   -   s   s
            weak-global -   -   -   -   -   .   -   -   -
            strong-none -   s   s   -   s   s   .   s   s
            strong-local -   s   s   -   s   s   -   .   s
            strong-global -   -   -   -   -   -   -   -   .
        "#]]
        .assert_eq(&table(false));
    }
}
