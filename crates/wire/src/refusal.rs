//! How a server refuses a connection: with one reply that answers no request.

use types::{Seq, Tid, Timestamp};

use crate::{Failure, Reply};

impl Reply {
    /// The only message of a server on a connection that it refuses, in place of a welcome.
    #[must_use]
    pub fn refusal(failure: Failure) -> Self {
        let (seq, time, safe) = (Seq(0), Timestamp(0), Seq(0));
        Self { tid: Tid(0), seq, time, safe, grants: None, result: Err(failure) }
    }

    /// Why a server refuses the connection, if this reply is a refusal.
    #[must_use]
    pub fn refused(&self) -> Option<&Failure> {
        self.result.as_ref().err().filter(|_| self.tid == Tid(0))
    }
}
