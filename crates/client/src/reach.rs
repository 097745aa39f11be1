//! The way to the server of a rank: the server to connect to, the back-off between attempts, and
//! the end of a client's patience.

use types::{Errno, Error, Moment, Rank, Result, Span};
use wire::{ClusterMap, MdsState, MonOp};

/// The error of a client whose work another client took over, and of a rank that is gone: no later
/// attempt can succeed.
const FENCED: Errno = Errno::Stale;
/// The error of a server without room for another connection.
const FULL: Errno = Errno::Busy;
/// The error of a server that refuses the client's key, or of a socket that the user may not open.
const REFUSED: Errno = Errno::Access;
/// How long a refusal may pass: a daemon that starts makes its socket first, and then opens it to
/// the group.
const REFUSED_FOR: Span = Span::from_millis(500);
/// The pause between two attempts.
const RETRY: Span = Span::from_millis(20);
/// The same for a full server: refused clients must not take the time that the connected ones
/// need.
const RETRY_FULL: Span = Span::from_millis(500);

/// The attempts of a client to connect to a server.
#[derive(Clone, Copy, Debug)]
pub struct Attempts {
    since: Moment,
    patience: Option<Span>,
}

impl Attempts {
    /// The patience of a client that does not choose one.
    pub const PATIENCE: Span = Span::from_millis(30_000);

    /// Attempts that began at a moment, and end after so long; never with `None`.
    #[must_use]
    pub fn new(since: Moment, patience: Option<Span>) -> Self {
        Self { since, patience }
    }

    /// An attempt failed. Returns the pause before the next one.
    ///
    /// # Errors
    /// The error of the attempt, if there is no next one.
    pub fn failed(&self, now: Moment, error: &Error) -> Result<Span> {
        let is_over = self.patience.is_some_and(|most| now.since(self.since) >= most);
        let (full, fenced) = (error.errno == FULL, error.errno == FENCED);
        let refused = error.errno == REFUSED && now.since(self.since) >= REFUSED_FOR;
        if !is_over && !fenced && !refused {
            return Ok(if full { RETRY_FULL } else { RETRY });
        }
        let remedy = "see `cudele status`; a server that crashed is restarted by `cudele up`";
        let error = error.clone();
        let is_plain = error.remedy.is_empty() && !(full || fenced || refused);
        Err(if is_plain { error.remedy(remedy) } else { error })
    }
}

/// How long a monitor may be away: an administrator restarts it.
const MONITOR_AWAY: Span = Span::from_millis(3_000);
/// How long its socket may be missing: a monitor that starts removes the one before it.
const SOCKET_MISSING: Span = Span::from_millis(10);

/// How far a request to the monitor came before its connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The monitor did not receive all of it, so it was not executed.
    Unsent,
    /// It may have been executed.
    Unanswered,
}

/// The attempts of a client to make one request of the monitor.
#[derive(Clone, Copy, Debug)]
pub struct MonitorAttempts {
    since: Moment,
}

impl MonitorAttempts {
    /// Attempts that began at a moment.
    #[must_use]
    pub fn new(since: Moment) -> Self {
        Self { since }
    }

    /// An attempt failed. Returns the pause before the next one.
    ///
    /// # Errors
    /// The error of the attempt, if there is no next one: without a monitor there is no socket, and
    /// the caller learns so at once; a request that may not be executed twice is not sent again.
    pub fn failed(
        &self,
        now: Moment,
        op: &MonOp<'_>,
        delivery: Delivery,
        error: Error,
    ) -> Result<Span> {
        let may_repeat = delivery == Delivery::Unsent || op.may_repeat();
        let is_away = matches!(error.errno, Errno::Refused | Errno::Io);
        let patience = if is_away { MONITOR_AWAY } else { SOCKET_MISSING };
        let may_return = is_away || error.errno == Errno::NotFound;
        let is_over = now.since(self.since) >= patience;
        if may_repeat && may_return && !is_over { Ok(RETRY.min(patience)) } else { Err(error) }
    }
}

/// The address of the active server of a rank; or of one that recovers, because it waits for its
/// clients, which must repeat unsafe requests before it serves any other request; or of one that
/// stops, which serves them while it writes.
///
/// # Errors
/// `EAGAIN` if the rank has no such server, `ESTALE` if the cluster does not have the rank.
pub fn server_of(map: &ClusterMap, rank: Rank) -> Result<&str> {
    let of_rank = || map.mds.iter().filter(|entry| entry.rank == rank);
    let is = |state| of_rank().find(|entry| entry.state == state);
    if let Some(entry) =
        [MdsState::Active, MdsState::Replaying, MdsState::Stopping].into_iter().find_map(is)
    {
        return Ok(&entry.address);
    }
    let (errno, cause) = if rank != Rank(0) && of_rank().next().is_none() {
        (FENCED, "the cluster has no such rank any more")
    } else {
        (Errno::Again, "the metadata server is not active")
    };
    Err(Error::new(errno, rank.to_string(), cause))
}

/// The error of a client that the server does not hear any more.
#[must_use]
pub fn fenced(client: types::ClientId) -> Error {
    let cause = "its work was taken over by another client, and it is not heard any more";
    Error::new(FENCED, client.to_string(), cause)
        .remedy("`cudele status` shows who has the subtree now")
}

/// The better of two errors of a connection that failed: a server that refuses a connection says
/// why before it closes it.
#[must_use]
pub fn refusal(sent: Error, received: Option<Error>) -> Error {
    received.filter(|why| why.errno == FULL).unwrap_or(sent)
}

/// The error of a request that was not executed because no server could be reached. The error of
/// the connection is no answer to the request: `ENOENT` would mean that there is no such file. A
/// server that refuses the client's key has answered.
#[must_use]
pub fn unreached(error: Error) -> Error {
    let is_said = matches!(error.errno, FENCED | REFUSED);
    if is_said { error } else { Error { errno: Errno::Io, ..error } }
}

#[cfg(test)]
mod tests {
    use wire::MdsEntry;

    use super::*;

    fn after(millis: u64, errno: Errno) -> Result<Span> {
        let attempts = Attempts::new(Moment(0), Some(Attempts::PATIENCE));
        attempts.failed(Moment(0) + Span::from_millis(millis), &Error::of(errno, "test"))
    }

    #[test]
    fn a_client_waits_for_a_monitor_that_restarts_and_repeats_what_may_be_repeated() {
        let stop = MonOp::Stop;
        let after = |millis, op, lost, errno| {
            let now = Moment(0) + Span::from_millis(millis);
            let error = Error::of(errno, "monitor");
            MonitorAttempts::new(Moment(0))
                .failed(now, op, lost, error)
                .map_err(|error| error.errno)
        };
        for (op, lost) in [(&stop, Delivery::Unsent), (&MonOp::Status, Delivery::Unanswered)] {
            assert_eq!(after(1, op, lost, Errno::Io), Ok(RETRY));
            assert_eq!(after(1, op, lost, Errno::Refused), Ok(RETRY));
            assert_eq!(after(3_000, op, lost, Errno::Refused), Err(Errno::Refused));
        }
        assert_eq!(after(1, &stop, Delivery::Unanswered, Errno::Io), Err(Errno::Io));
        // Without a cluster there is no socket: the user learns so at once.
        assert_eq!(after(1, &stop, Delivery::Unsent, Errno::NotFound), Ok(SOCKET_MISSING));
        assert_eq!(after(10, &stop, Delivery::Unsent, Errno::NotFound), Err(Errno::NotFound));
        for errno in [Errno::Access, Errno::Busy, Errno::TimedOut, Errno::BadMessage] {
            assert_eq!(after(1, &MonOp::Status, Delivery::Unsent, errno), Err(errno));
        }
    }

    #[test]
    fn a_client_backs_off_longer_from_a_full_server() {
        assert_eq!(after(1, Errno::Io).unwrap(), RETRY);
        assert_eq!(after(1, FULL).unwrap(), RETRY_FULL);
    }

    #[test]
    fn a_client_gives_up_at_the_end_of_its_patience_and_at_once_if_it_is_fenced() {
        let error = after(30_000, Errno::Io).unwrap_err();
        assert_eq!(error.errno, Errno::Io);
        assert!(error.remedy.contains("cudele status"));
        let attempts = Attempts::new(Moment(0), Some(Attempts::PATIENCE));
        let older = Error::of(Errno::BadMessage, "test").remedy("upgrade it");
        let error = attempts.failed(Moment(u64::MAX), &older).unwrap_err();
        assert_eq!(error.remedy, "upgrade it", "the server knows better");
        assert_eq!(after(30_000, FULL).unwrap_err().errno, FULL);
        assert_eq!(after(0, FENCED).unwrap_err().errno, FENCED);
        assert_eq!(after(499, REFUSED).unwrap(), RETRY);
        assert_eq!(after(500, REFUSED).unwrap_err().errno, REFUSED);
        let patient = Attempts::new(Moment(0), None);
        let refused = patient.failed(Moment(u64::MAX), &Error::of(REFUSED, "test"));
        assert_eq!(refused.unwrap_err().errno, REFUSED, "no attempt of a patient client helps");
        assert!(patient.failed(Moment(u64::MAX), &Error::of(Errno::Io, "test")).is_ok());
    }

    #[test]
    fn a_client_connects_to_the_active_server_or_to_one_that_recovers() {
        let entry = |rank, state, address: &str| MdsEntry {
            rank: Rank(rank),
            epoch: types::Epoch(1),
            address: address.to_owned(),
            state,
            pid: 1,
            counters: Vec::new(),
        };
        let mds = vec![
            entry(0, MdsState::Replaying, "old"),
            entry(0, MdsState::Active, "new"),
            entry(1, MdsState::Replaying, "one"),
            entry(2, MdsState::Lost, "two"),
        ];
        let map = ClusterMap { mds, ..ClusterMap::default() };
        assert_eq!(server_of(&map, Rank(0)).unwrap(), "new");
        assert_eq!(server_of(&map, Rank(1)).unwrap(), "one");
        assert_eq!(server_of(&map, Rank(2)).unwrap_err().errno, Errno::Again);
        assert_eq!(server_of(&map, Rank(3)).unwrap_err().errno, FENCED);
    }

    #[test]
    fn an_error_of_the_connection_is_no_answer() {
        assert_eq!(unreached(Error::of(Errno::NotFound, "socket")).errno, Errno::Io);
        assert_eq!(unreached(fenced(types::ClientId(3))).errno, FENCED);
        assert_eq!(unreached(Error::of(REFUSED, "server")).errno, REFUSED);
        let (sent, full) = (Error::of(Errno::Io, "send"), Error::of(FULL, "server"));
        assert_eq!(refusal(sent.clone(), Some(full)).errno, FULL);
        assert_eq!(refusal(sent, Some(Error::of(Errno::TimedOut, "server"))).errno, Errno::Io);
    }
}
