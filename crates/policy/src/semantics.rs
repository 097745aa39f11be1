//! What compositions mean: the nine combinations of consistency and durability (Table II), the
//! composition that gives each, and the combination that an arbitrary composition gives.
//!
//! The module judges compositions whose mechanisms have all completed (P-08); only the executing
//! process knows the state before that. Invariant: a cell never claims more than survives. A
//! mechanism counts only where the order makes it cover every update.

use std::fmt;

use crate::order::Order;
use crate::{Composition, Mechanism, text};

/// When other clients see an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Consistency {
    /// Never, until an explicit merge (P-02).
    Invisible,
    /// At some time in the future: when it is merged (P-03).
    Weak,
    /// At once (P-04).
    Strong,
}

/// Which failures an update survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// None that reaches the process holding it (P-05).
    None,
    /// Those after which the failed machine comes back with its disk (P-06).
    Local,
    /// Any failure of client or server, and of a minority of the object store (P-07).
    Global,
}

impl Consistency {
    /// All three, weakest first.
    pub const ALL: [Self; 3] = [Self::Invisible, Self::Weak, Self::Strong];

    /// `invisible`, `weak` or `strong`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invisible => "invisible",
            Self::Weak => "weak",
            Self::Strong => "strong",
        }
    }
}

impl Durability {
    /// All three, weakest first.
    pub const ALL: [Self; 3] = [Self::None, Self::Local, Self::Global];

    /// `none`, `local` or `global`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Local => "local",
            Self::Global => "global",
        }
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The composition that gives a consistency and a durability, as Table II has it (P-01). Persist
/// precedes apply, so that nothing becomes visible which a crash can still take back.
#[must_use]
pub fn composition_of(consistency: Consistency, durability: Durability) -> Composition {
    let (first, then) = match consistency {
        Consistency::Invisible => (Mechanism::AppendClientJournal, None),
        Consistency::Weak => (Mechanism::AppendClientJournal, Some(Mechanism::VolatileApply)),
        Consistency::Strong => (Mechanism::Rpcs, None),
    };
    let keep = keeper(consistency, durability);
    let mechanisms = [Some(first), keep, then];
    Composition::serial(mechanisms.into_iter().flatten().map(Composition::One))
}

/// The mechanism that gives the durability: the server persists the requests, and the client
/// persists its journal.
fn keeper(consistency: Consistency, durability: Durability) -> Option<Mechanism> {
    match (durability, consistency) {
        (Durability::None, _) => None,
        (Durability::Local, _) => Some(Mechanism::LocalPersist),
        (Durability::Global, Consistency::Strong) => Some(Mechanism::Stream),
        (Durability::Global, Consistency::Invisible | Consistency::Weak) => {
            Some(Mechanism::GlobalPersist)
        }
    }
}

/// One cell of Table II: a consistency with a durability (M-10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    /// The time at which other clients see an update.
    pub consistency: Consistency,
    /// The failures that an update survives.
    pub durability: Durability,
}

impl Cell {
    /// All nine, by consistency, then durability.
    pub fn all() -> impl Iterator<Item = Self> {
        Consistency::ALL.into_iter().flat_map(|consistency| {
            Durability::ALL.into_iter().map(move |durability| Self { consistency, durability })
        })
    }

    /// The cell a name such as `weak-global` names, in any case, with a hyphen, an underscore or
    /// a space.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let spelling = text::normalise(name);
        Self::all().find(|cell| text::normalise(&cell.to_string()) == spelling)
    }

    /// The composition of Table II that gives this cell (P-01).
    #[must_use]
    pub fn composition(self) -> Composition {
        composition_of(self.consistency, self.durability)
    }

    /// The two halves of that composition as a policy file has them: the consistency expression
    /// and the durability expression (P-13).
    #[must_use]
    pub fn expressions(self) -> (Composition, Composition) {
        let consistency = composition_of(self.consistency, Durability::None);
        let durability = keeper(self.consistency, self.durability);
        (consistency, durability.map_or(Composition::Nothing, Composition::One))
    }

    /// The cell that a complete composition gives, or `None` where it carries no updates at all, or
    /// carries some by RPC and some by a client's journal, so that no single answer holds.
    ///
    /// A mechanism counts only if it begins after all mechanisms that it must cover. Nonvolatile
    /// apply makes updates both visible and globally durable. Stream persists only updates that
    /// were sent by RPC.
    #[must_use]
    pub fn of(composition: &Composition) -> Option<Self> {
        let order = Order::of(composition);
        let kept = |mechanism| order.some_follows_every(mechanism, Mechanism::carries_updates);
        let (consistency, global) =
            match (order.has(Mechanism::AppendClientJournal), order.has(Mechanism::Rpcs)) {
                (true, true) | (false, false) => return None,
                (false, true) => (Consistency::Strong, order.has(Mechanism::Stream)),
                (true, false) => {
                    let nonvolatile = kept(Mechanism::NonvolatileApply);
                    let applied = nonvolatile || kept(Mechanism::VolatileApply);
                    let consistency =
                        if applied { Consistency::Weak } else { Consistency::Invisible };
                    (consistency, nonvolatile)
                }
            };
        let durability = if global || kept(Mechanism::GlobalPersist) {
            Durability::Global
        } else if kept(Mechanism::LocalPersist) {
            Durability::Local
        } else {
            Durability::None
        };
        Some(Self { consistency, durability })
    }

    /// The cell's promise, for people.
    #[must_use]
    pub fn guarantee(self) -> Guarantee {
        Guarantee::of(self)
    }
}

/// `weak-global` and so on.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.consistency, self.durability)
    }
}

/// The promise of a cell once its composition is complete, in words: the clients that see an
/// update, and the fate of the update in each failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guarantee {
    /// When other clients see an update.
    pub seen_by_others: &'static str,
    /// The client is killed and starts again with the same disk.
    pub client_killed: &'static str,
    /// The client's machine and disk never come back.
    pub client_gone: &'static str,
    /// The metadata server is killed.
    pub mds_killed: &'static str,
    /// A minority of the object store's devices is lost.
    pub store_minority_lost: &'static str,
}

impl Guarantee {
    fn of(cell: Cell) -> Self {
        use {Consistency as C, Durability as D};
        let seen_by_others = match cell.consistency {
            C::Invisible => "only after an explicit merge",
            C::Weak => "after the merge",
            C::Strong => "at once",
        };
        let [client_killed, client_gone, mds_killed, store_minority_lost] =
            match (cell.consistency, cell.durability) {
                (C::Invisible, D::None) => {
                    ["lost", "lost", "kept by the client", "kept by the client"]
                }
                (C::Invisible, D::Local) => ["kept", "lost", "kept", "kept"],
                (C::Invisible, D::Global) | (C::Strong, D::Global) => {
                    ["kept", "kept", "kept", "kept"]
                }
                (C::Weak, D::None) => {
                    let unmerged = "lost if not yet merged";
                    [unmerged, unmerged, "what was merged is lost", "may be lost with the server"]
                }
                (C::Weak, D::Local) => [
                    "kept",
                    "lost if not yet merged",
                    "kept: the client merges again from its file",
                    "kept",
                ],
                (C::Weak, D::Global) => {
                    ["kept", "kept", "kept: the server merges again from the object", "kept"]
                }
                (C::Strong, D::None) => ["kept", "kept", "lost", "lost"],
                (C::Strong, D::Local) => [
                    "kept",
                    "kept unless the server fails too",
                    "kept: the client replays its log",
                    "kept",
                ],
            };
        Self { seen_by_others, client_killed, client_gone, mds_killed, store_minority_lost }
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "others see updates: {}", self.seen_by_others)?;
        writeln!(f, "client killed, same disk: {}", self.client_killed)?;
        writeln!(f, "client gone for good: {}", self.client_gone)?;
        writeln!(f, "metadata server killed: {}", self.mds_killed)?;
        write!(f, "minority of the store lost: {}", self.store_minority_lost)
    }
}

#[cfg(test)]
mod tests;
