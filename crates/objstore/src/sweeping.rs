//! The removal of leftovers that no object refers to.
//!
//! Invariant: a leftover that a living process may still refer to stays.

use types::Result;

/// What [`Sweeping::sweep`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Parts of objects that were looked at.
    pub pieces: u64,
    /// Of these belonged to nothing, and were removed.
    pub garbage: u64,
    /// Bytes of those, copies not counted.
    pub bytes: u64,
    /// Belonged to nothing and stayed, because a process may still be writing them.
    pub young: u64,
}

/// A store in which crashes may leave parts of objects.
pub trait Sweeping {
    /// Finds leftovers of crashes that belong to no object, and removes them unless `look`. The
    /// time is in seconds since 1970: leftovers that may be younger than two hours stay. Other
    /// processes may use the store during that. Nothing to be done on a store that tidies up when
    /// it is opened.
    ///
    /// # Errors
    /// Those of every method of [`ObjectStore`](crate::ObjectStore).
    fn sweep(&self, _now_s: i64, _look: bool) -> Result<Swept> {
        Ok(Swept::default())
    }
}
