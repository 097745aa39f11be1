//! Pools for the content of files, which policies choose by name.
//!
//! Not here: how an object's name tells its pool ([`Pool::of_object`]).
//!
//! Invariant: a pool keeps its number as long as the store exists.

use types::{Errno, Error, Pool, Result};

/// A store that may have several pools.
pub trait Pools {
    /// The store's number for a pool of this name, from now on and for all processes: file data
    /// with names that begin with it ([`Pool::of_object`]) is in that pool (E-03).
    ///
    /// # Errors
    /// `EOPNOTSUPP` on a store that has no pools; `ENOENT` if there is no such pool; the error that
    /// keeps this user from writing to it.
    fn pool(&self, name: &str) -> Result<Pool> {
        Err(Error::new(Errno::NotSupported, name, "the object store has no pools to choose from")
            .remedy("leave data_pool out of the policy, or use a store in a Ceph cluster"))
    }
}
