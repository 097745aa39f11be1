//! Which mechanism of a composition is certainly complete before which other one begins.
//!
//! Guarantees and warnings are both about order, and both ask here. Invariant: `a` precedes `b`
//! only if their lowest common group is serial and `a` is in an earlier member; members of a
//! parallel group precede each other in no order.

use crate::{Composition, Mechanism};

/// One step down from a group to one of its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    serial: bool,
    index: usize,
}

/// Every mechanism of a composition with the way to it from the outermost group.
pub(crate) struct Order {
    places: Vec<(Mechanism, Vec<Step>)>,
}

impl Order {
    pub(crate) fn of(composition: &Composition) -> Self {
        let mut places = Vec::new();
        collect(composition, &mut Vec::new(), &mut places);
        Self { places }
    }

    pub(crate) fn has(&self, mechanism: Mechanism) -> bool {
        self.count(mechanism) > 0
    }

    pub(crate) fn has_any(&self, kind: fn(Mechanism) -> bool) -> bool {
        self.ways(kind).next().is_some()
    }

    pub(crate) fn count(&self, mechanism: Mechanism) -> usize {
        self.places.iter().filter(|(member, _)| *member == mechanism).count()
    }

    /// Whether some `later` begins only when every mechanism of the `earlier` kind is complete.
    pub(crate) fn some_follows_every(
        &self,
        later: Mechanism,
        earlier: fn(Mechanism) -> bool,
    ) -> bool {
        self.places
            .iter()
            .filter(|(member, _)| *member == later)
            .any(|(_, later)| self.ways(earlier).all(|earlier| precedes(earlier, later)))
    }

    /// Whether every mechanism of the one kind is complete before any of the other begins.
    pub(crate) fn all_precede(
        &self,
        earlier: fn(Mechanism) -> bool,
        later: fn(Mechanism) -> bool,
    ) -> bool {
        self.ways(earlier).all(|earlier| self.ways(later).all(|later| precedes(earlier, later)))
    }

    fn ways(&self, kind: fn(Mechanism) -> bool) -> impl Iterator<Item = &[Step]> {
        self.places.iter().filter(move |(member, _)| kind(*member)).map(|(_, way)| way.as_slice())
    }
}

fn collect(
    composition: &Composition,
    way: &mut Vec<Step>,
    places: &mut Vec<(Mechanism, Vec<Step>)>,
) {
    let (members, serial) = match composition {
        Composition::Nothing => return,
        Composition::One(mechanism) => return places.push((*mechanism, way.clone())),
        Composition::Serial(members) => (members, true),
        Composition::Parallel(members) => (members, false),
    };
    for (index, member) in members.iter().enumerate() {
        way.push(Step { serial, index });
        collect(member, way, places);
        way.pop();
    }
}

/// Ways of one composition agree in kind up to and including the first step in which they differ.
fn precedes(earlier: &[Step], later: &[Step]) -> bool {
    let parting = earlier.iter().zip(later).find(|(earlier, later)| earlier.index != later.index);
    parting.is_some_and(|(earlier, later)| {
        debug_assert_eq!(earlier.serial, later.serial, "both are steps out of the same group");
        earlier.serial && earlier.index < later.index
    })
}

#[cfg(test)]
mod tests;
