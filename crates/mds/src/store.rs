//! The store operations that are under way, and the part of the server that waits for each.
//!
//! Invariant: a token is used once.

use metastore::request::{StoreOp, Token};
use types::{Ino, Map, Rank};

use crate::{MdsEffects, balance, op, purge};

/// The part of the server that waits for a store operation.
#[derive(Debug)]
pub(crate) enum Waiting {
    Recovery,
    Log,
    Tables,
    Fetch(Ino),
    Checkpoint(Ino),
    Compact(Ino),
    MergeObject(u64),
    Attach(u64),
    Trim,
    Forget,
    Purge(purge::Task),
    Share(Ino),
    /// The list of subtrees is read or replaced.
    Subtrees,
    Snapshot(u64),
    Balance(balance::Object),
    Adopt(Box<op::Adopting>),
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct StoreOps {
    rank: Rank,
    waiting: Map<Token, Waiting>,
    last: u64,
}

impl StoreOps {
    pub(crate) fn new(rank: Rank) -> Self {
        Self { rank, waiting: Map::default(), last: 0 }
    }

    /// Hands an operation to the driver; its result is brought to `waiting`.
    pub(crate) fn begin(
        &mut self,
        waiting: Waiting,
        mut op: StoreOp,
        effects: &mut MdsEffects,
    ) -> Token {
        op.seen_by(self.rank);
        self.last += 1;
        let token = Token(self.last);
        self.waiting.insert(token, waiting);
        effects.store.push((token, op));
        token
    }

    /// The parts of the server that wait for an operation.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter().map(|(token, waiting)| {
            assert!(token.0 <= self.last, "{token:?} was given to an operation");
            waiting
        })
    }

    /// An operation ended. `None` if nothing waits for it.
    pub(crate) fn end(&mut self, token: Token) -> Option<Waiting> {
        self.waiting.remove(&token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "was given to an operation")]
    fn a_token_that_was_not_given_is_found() {
        let mut ops = StoreOps::new(Rank(0));
        ops.waiting.insert(Token(1), Waiting::Recovery);
        ops.waiting().for_each(drop);
    }

    #[test]
    fn each_operation_has_a_token_and_ends_once() {
        let (mut ops, mut effects) = (StoreOps::new(Rank(0)), MdsEffects::default());
        let delete = || StoreOp::Delete { objects: Vec::new() };
        let first = ops.begin(Waiting::Trim, delete(), &mut effects);
        let second = ops.begin(Waiting::Forget, delete(), &mut effects);
        assert!(first != second && effects.store.len() == 2);
        assert!(matches!(ops.end(first), Some(Waiting::Trim)));
        assert!(ops.end(first).is_none());
        assert_eq!(ops.waiting().count(), 1);
    }
}
