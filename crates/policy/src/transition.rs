//! Transitions: the steps that precede a change of a subtree's policy (P-16, F-04).
//!
//! The old policy and its promise hold until all steps are complete; after a crash the subtree has
//! either the old or the new policy. The tables of `docs/promises/changes.md` follow from this
//! file.

use crate::{Composition, Durability, Mechanism, Policy};

/// The steps of a change of policy, in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transition {
    /// Carried out on the journal that is held, so that it is kept as the new policy promises.
    pub persist: Composition,
    /// Merge the client's journal, and open the subtree to all clients again.
    pub merge: bool,
    /// Write changes that only the metadata server's memory has to the metadata store.
    pub store: bool,
}

impl Transition {
    /// From one policy to another. `held` says whether a client has the subtree.
    #[must_use]
    pub fn between(from: &Policy, to: &Policy, held: bool) -> Self {
        let merge = held && !to.is_decoupled();
        let promised = durability(to);
        let persist = match promised {
            // The client need not persist merged changes.
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

/// Whether the policy leaves visible changes in the memory of the metadata server. Under an
/// invisible policy these are explicit merges, and changes from before the policy.
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
                // No client holds a subtree whose policy does not decouple.
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
