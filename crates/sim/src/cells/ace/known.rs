//! Faults of the product that the workloads found, and that are not mended yet. A run of such a
//! workload that breaks its promise is counted apart; the tests keep cases of each.

use policy::{Cell, Consistency, Durability};

use super::grammar::AceOp;
use crate::cells::fault::Fault;

/// The known fault that may explain a broken promise.
pub(super) fn explain(cell: Cell, operations: &[AceOp], fault: Fault) -> Option<&'static str> {
    let has = |wanted: fn(&AceOp) -> bool| operations.iter().any(wanted);
    let logs = cell.consistency == Consistency::Strong && cell.durability == Durability::Local;
    if !fault.kills_server() {
        return None;
    }
    // The store has the inode among those with several names, and not yet the directory: a create
    // of a known inode gives no name, because the inode may have been renamed since. A merge meets
    // this state where a change of policy has the server store the merge.
    let stores = has(|op| matches!(op, AceOp::Policy(_)));
    if (logs || stores) && has(|op| matches!(op, AceOp::Link(..))) {
        return Some("a repeated merge or log does not give a linked file its first name again");
    }
    None
}
