//! Locks among processes, and the exclusion of processes that do not answer.
//!
//! Invariant: a process that was fenced changes nothing in the store any more.

use std::fmt::Debug;

use types::{ClientId, Result};

/// A named lock that is held. Dropping it, or the death of the process, releases it. A store that
/// cannot see which processes are dead may give it away from a silent process; then that process
/// was fenced before (`ESTALE`).
pub trait LockGuard: Send + Debug {
    /// Who holds it: the `owner` given to [`Fencing::lock`].
    fn owner(&self) -> &str;

    /// Whether this process knows that another one took the lock, because this process did not
    /// answer. Then it can change nothing in the store any more, and should end.
    fn is_lost(&self) -> bool {
        false
    }
}

/// This process works as a client, until this is dropped ([`Fencing::enter`]).
#[derive(Debug, Default)]
pub struct Presence {
    /// Leaves when it is dropped; nothing on a store that cannot fence clients.
    _entered: Option<Box<dyn Debug + Send + Sync>>,
}

impl Presence {
    pub(crate) fn of(entered: impl Debug + Send + Sync + 'static) -> Self {
        Self { _entered: Some(Box::new(entered)) }
    }
}

/// A store that tells living processes from fenced ones, as far as it can.
pub trait Fencing {
    /// Announces that this process writes to the store as a client, so that other processes can
    /// fence it.
    ///
    /// # Errors
    /// Those of every method of [`ObjectStore`](crate::ObjectStore).
    fn enter(&self, _client: ClientId) -> Result<Presence> {
        Ok(Presence::default())
    }

    /// Fences every other process that has entered as this client: its later writes, and those that
    /// the store has not executed yet, are refused (`ESTALE`). False, and nothing done, on a store
    /// that cannot do that: there only clients that obey the metadata server are kept from writing.
    ///
    /// # Errors
    /// `EACCES` if this user may not do that.
    fn shut_out(&self, _client: ClientId) -> Result<bool> {
        Ok(false)
    }

    /// Takes a lock, exclusive among all processes that use the store, without waiting longer than
    /// it takes to find out whether a silent holder lives. Lock names follow the rules of object
    /// names but live apart from them.
    ///
    /// # Errors
    /// `EBUSY`, naming the holder, if it is held; also by this very process.
    fn lock(&self, name: &str, owner: &str) -> Result<Box<dyn LockGuard>>;
}
