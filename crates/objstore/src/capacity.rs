//! The room in a store, and the reserve that servers keep for a full one.
//!
//! Invariant: a store without a reserve is never short.

use types::{Result, Space};

/// The reserve for servers, in bytes ([`Capacity::reserve`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// The size that the reserve should have; 0 for no reserve.
    pub wanted: u64,
    /// The size that the reserve has.
    pub held: u64,
}

impl Reserved {
    /// Whether a part of the reserve is in use: the store is full.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.held < self.wanted
    }
}

/// A store that tells how full it is.
pub trait Capacity {
    /// How much room there is.
    ///
    /// # Errors
    /// Those of every method of [`ObjectStore`](crate::ObjectStore).
    fn space(&self) -> Result<Space>;

    /// Fills the reserve up to so many bytes, as far as the store has room. Servers use the reserve
    /// for removals, checkpoints and a clean stop. The reserve of a small store is a sixteenth of
    /// it.
    ///
    /// # Errors
    /// Those of every method of [`ObjectStore`](crate::ObjectStore); a full store is no error.
    fn reserve(&self, _bytes: u64) -> Result<Reserved> {
        Ok(Reserved::default())
    }

    /// Allows this process to use the reserve. Such a process must reject requests that make the
    /// store larger while [`Capacity::is_short`].
    fn allow_reserve(&self) {}

    /// Releases a part of the reserve until so many bytes are free, for a server that writes files
    /// beside the store. Without effect on a store without a reserve.
    fn lend_reserve(&self, _bytes: u64) {}

    /// Whether a part of the reserve is in use, as far as this process knows. Costs nothing.
    fn is_short(&self) -> bool {
        false
    }
}
