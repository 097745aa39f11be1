//! The effective composition: the mechanisms that run if a policy has both a consistency and a
//! durability expression.
//!
//! Invariant: the durability expression begins only after every update of the consistency
//! expression was appended, and ends before the mechanisms that follow (P-13): append, then
//! persist, then apply.

use crate::{Composition, Mechanism};

/// The consistency expression up to and including the mechanism that carries updates (`rpcs` or
/// `append_client_journal`; the last, if there are several), then the durability expression, then
/// the rest of the consistency expression (P-13).
///
/// In a parallel group the durability expression goes into the branch that carries updates, or
/// after the whole group if several branches do. Without any mechanism that carries updates it
/// goes first, since persist still precedes apply.
pub(crate) fn effective(consistency: &Composition, durability: &Composition) -> Composition {
    if carries_updates(consistency) {
        insert(consistency, durability)
    } else {
        Composition::serial([durability.clone(), consistency.clone()])
    }
}

fn insert(into: &Composition, durability: &Composition) -> Composition {
    let after = || Composition::serial([into.clone(), durability.clone()]);
    let replaced = |members: &[Composition], index: usize| {
        let mut members = members.to_vec();
        members[index] = insert(&members[index], durability);
        members
    };
    match into {
        Composition::Nothing | Composition::One(_) => after(),
        Composition::Serial(members) => match members.iter().rposition(carries_updates) {
            Some(last) => Composition::serial(replaced(members, last)),
            None => after(),
        },
        Composition::Parallel(members) => {
            let mut carriers = (0..members.len()).filter(|index| carries_updates(&members[*index]));
            match (carriers.next(), carriers.next()) {
                (Some(only), None) => Composition::parallel(replaced(members, only)),
                _several_or_none => after(),
            }
        }
    }
}

fn carries_updates(composition: &Composition) -> bool {
    composition.mechanisms().any(Mechanism::carries_updates)
}

#[cfg(test)]
mod tests;
