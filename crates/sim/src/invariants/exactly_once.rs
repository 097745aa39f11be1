//! Promise: a request has its effect once, however often it is sent, and every time the same
//! answer (design section 5, request ids).

use model::Model;
use types::{Errno, Ino};
use wire::{Answer, Failure, Reply};

use crate::oracle::{Applied, Issued};

/// A change that is part of the model was answered again.
///
/// # Errors
/// If the answer is not that of the first time.
pub fn repeated(
    model: &Model,
    applied: &Applied,
    reply: &Reply,
    answer: &Answer,
) -> Result<(), String> {
    if reply.time.0 != 0 && reply.time != applied.time {
        return Err(format!("carried out twice: at {:?} and {:?}", applied.time, reply.time));
    }
    match answer {
        Answer::Attr(attr) if applied.ino != Ino(0) => {
            let now = model.getattr(applied.ino);
            if attr.ino != applied.ino && (reply.time.0 != 0 || now.is_ok()) {
                return Err(format!("created {}, but answered {} again", applied.ino, attr.ino));
            }
            let as_created = attr.ctime == applied.time;
            if attr.ino == applied.ino && !as_created && now.is_ok_and(|now| now != *attr) {
                return Err(format!("answered again with {attr:?}, not {now:?}"));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// A change that is part of the model was refused when it was sent again.
///
/// # Errors
/// Unless that says nothing about it.
pub fn refused(
    issued: &Issued,
    failure: &Failure,
    (store_fails, late): (bool, bool),
) -> Result<(), String> {
    match failure.errno {
        Errno::NoSpace | Errno::Io if store_fails => Ok(()),
        // The client was away for so long that its answer is forgotten, and the server does not
        // have the directory in memory: the client walks its path again.
        Errno::Stale | Errno::NotFound if late => Ok(()),
        _ => Err(format!(
            "was applied ({:?}) and then refused with {} ({})",
            issued.applied,
            failure.errno.symbol(),
            failure.text
        )),
    }
}
