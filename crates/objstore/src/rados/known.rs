//! The states of objects that this process saw last, so that most conditional changes need no look
//! first.
//!
//! Only ever a guess: a change that relies on it asserts the version, and looks again if that has
//! changed. So forgetting costs a round trip, and nothing else.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::head::Head;
use crate::Version;

/// Of more objects nothing is remembered.
const OBJECTS_MAX: usize = 4096;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct KnownHeads(Mutex<BTreeMap<String, Guess>>);

/// The state of an object.
#[derive(Clone, Debug)]
pub(super) struct Guess {
    pub(super) head: Head,
    /// The version of the whole content, if it was seen, and if every change of it changes the
    /// head.
    pub(super) content: Option<Version>,
}

impl KnownHeads {
    pub(super) fn of(&self, name: &str) -> Option<Guess> {
        self.map().get(name).cloned()
    }

    /// The head as it was seen last.
    pub(super) fn head(&self, name: &str) -> Option<Head> {
        self.of(name).map(|guess| guess.head)
    }

    pub(super) fn note(&self, name: &str, head: Head, content: Option<Version>) {
        let content = content.filter(|_| head.large.is_none());
        let mut map = self.map();
        if map.len() >= OBJECTS_MAX && !map.contains_key(name) {
            map.clear();
        }
        map.insert(name.to_owned(), Guess { head, content });
    }

    pub(super) fn forget(&self, name: &str) {
        self.map().remove(name);
    }

    fn map(&self) -> MutexGuard<'_, BTreeMap<String, Guess>> {
        // No code here panics half-way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
