//! Promise: a request has its effect once, however often it is sent, and every time the same
//! answer (design section 5, request ids).

use model::Model;
use types::{Attr, Errno, Ino};
use wire::{Answer, Failure, Reply};

use crate::oracle::{Applied, Issued};

/// A change that is part of the model was answered again. The created inode has had the attributes
/// `since` from the time when the request arrived again.
///
/// # Errors
/// If the answer is not that of the first time.
pub fn repeated(
    (model, since): (&Model, &[Attr]),
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
            let was_true = as_created || since.contains(attr);
            if attr.ino == applied.ino && !was_true && now.is_ok_and(|now| now != *attr) {
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

#[cfg(test)]
mod tests {
    use types::{Cred, Seq, Tid, Timestamp};

    use super::*;
    use crate::call::{Call, CallKind};
    use crate::expect;

    const FILE: Ino = Ino(1 << 41);

    fn attributes_of_size(size: u64, at: i64) -> (Model, Attr) {
        let mut model = Model::with_root(Timestamp(0));
        let name = "file".to_owned();
        let create =
            CallKind::Create { parent: Ino::ROOT, name, mode: 0o100_644, size: 0, data: vec![] };
        let resize = types::AttrChange { size: Some(size), ..Default::default() };
        let resize = CallKind::SetAttr { ino: FILE, change: resize };
        for (what, time) in [(create, 1), (resize, at)] {
            let call = Call { cred: Cred::root(), what };
            expect::perform(&mut model, &call, Timestamp(time), FILE).expect("a change");
        }
        let attr = model.getattr(FILE).expect("a file");
        (model, attr)
    }

    #[test]
    fn a_create_is_answered_again_with_attributes_since_the_request_arrived_again() {
        let ((_, before), (_, between)) = (attributes_of_size(3, 2), attributes_of_size(5, 3));
        let (model, now) = attributes_of_size(7, 4);
        let applied = Applied { seq: Seq(1), ino: FILE, time: Timestamp(1) };
        for (attr, allowed) in [(before, false), (between, true), (now, true)] {
            let (answer, time) = (Answer::Attr(attr), applied.time);
            let result = Ok(answer.clone());
            let reply =
                Reply { tid: Tid(1), seq: Seq(1), time, safe: Seq(1), grants: None, result };
            let judged = repeated((&model, &[between, now]), &applied, &reply, &answer);
            assert_eq!(judged.is_ok(), allowed, "size {}: {judged:?}", attr.size);
        }
    }
}
