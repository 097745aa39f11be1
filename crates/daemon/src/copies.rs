//! Second copies of the few objects that cannot be rebuilt ([`metastore::is_copied`]).
//!
//! A worker writes the copy after it has answered the put of the object, so that no request waits
//! for the copy. Of several pending copies it writes only the newest.
//!
//! Invariant: [`Copies::write`] never replaces a copy by an older one.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use metastore::request::StoreOp;
use metastore::{copy_name, encode_copy, is_copied};
use objstore::{Expect, ObjectStore};

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    newest: Mutex<BTreeMap<String, Vec<u8>>>,
    /// One copy is written at a time: two of one object stay in order.
    writing: Mutex<()>,
}

impl Copies {
    /// The object that an operation stores, if that object has a second copy.
    pub(crate) fn of(&self, op: &StoreOp) -> Option<(String, Vec<u8>)> {
        let StoreOp::Put { object, data, .. } = op else { return None };
        is_copied(object).then(|| (object.clone(), data.clone()))
    }

    /// Notes a stored object. Called before the answer, so that the next put is noted later.
    pub(crate) fn note(&self, object: String, data: Vec<u8>) -> String {
        lock(&self.newest).insert(object.clone(), data);
        object
    }

    /// Writes the copy. After a failure, the next change of the object writes it.
    pub(crate) fn write(&self, store: &dyn ObjectStore, object: &str) {
        let _lock = lock(&self.writing);
        let Some(data) = lock(&self.newest).remove(object) else { return };
        let written = store.put(&copy_name(object), &encode_copy(object, &data), Expect::Any);
        if written.is_err() {
            lock(&self.newest).entry(object.to_owned()).or_insert(data);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use metastore::decode_copy;
    use objstore::Memory;

    use super::*;

    #[test]
    fn of_several_copies_the_newest_is_written() {
        let (store, copies) = (Memory::new(), Copies::default());
        let name = copies.note("mon/map".into(), b"old".to_vec());
        copies.note("mon/map".into(), b"new".to_vec());
        copies.write(&store, &name);
        copies.write(&store, &name);
        let (bytes, _) = store.get(&copy_name(&name)).unwrap();
        assert_eq!(decode_copy(&name, &bytes).unwrap(), b"new");
    }
}
