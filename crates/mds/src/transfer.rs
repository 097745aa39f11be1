//! Transfers: everything that moves from one rank to another, by one protocol between the two
//! servers ([decision 75](../../../docs/decisions/0075-one-transfer.md)).
//!
//! `state` is the protocol as a pure function. The model (`tests/model.rs`) drives the same
//! function through crashes, lost messages and transfers that meet.

mod state;
#[cfg(test)]
mod tests;

pub(crate) use state::{
    Fence, ListView, Record, TransferAction, TransferEvent, TransferId, TransferMeeting,
    TransferMessage, TransferState,
};
