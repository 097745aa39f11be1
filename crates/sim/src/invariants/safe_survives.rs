//! Promise: a change that was called safe survives every crash of the server (`stream`, M-02;
//! Table II, strong and global).
//!
//! *Safe* follows from the position that every reply carries, from the answer to a sync, and from
//! any answer at all under a policy with `ack: safe`.

use types::Seq;
use wire::{Answer, Reply};

/// After a recovery: everything up to `promised` exists.
///
/// # Errors
/// If it is not.
pub fn check(promised: Seq, recovered: Seq) -> Result<(), String> {
    if recovered < promised {
        return Err(format!("{promised} was safe, but only {recovered} was recovered"));
    }
    Ok(())
}

/// An answer that says *safe* comes with a position that is.
///
/// # Errors
/// If it does not.
pub fn answer(answer: &Answer, reply: &Reply) -> Result<(), String> {
    match answer {
        Answer::Safe(seq) if *seq > reply.safe => {
            Err(format!("{seq} is called safe, but only {} is", reply.safe))
        }
        _ => Ok(()),
    }
}
