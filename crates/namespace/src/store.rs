//! The exchange with the metadata store: rows come in, and go out as checkpoints.

use types::{Ino, Seq};

use crate::replay::ReplayState;
use crate::tree::InodeTree;

/// See the module documentation. Modules `load` and `partial` take rows from the store, `flush` and
/// `attach` bring rows there.
#[derive(Debug)]
pub struct StoreExchange<'n> {
    pub(crate) tree: &'n mut InodeTree,
    pub(crate) replay: &'n mut ReplayState,
}

impl StoreExchange<'_> {
    /// The inode of a directory came: it changes as the names did that came before it. In a replay
    /// that waits for the end.
    pub(crate) fn resolve_touch(&mut self, ino: Ino) {
        if !self.replay.active {
            self.tree.resolve_touch_up_to(ino, Seq(u64::MAX));
        }
    }
}
