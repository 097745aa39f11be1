//! One request with all its steps: at this client, on the way, and at the servers.
//!
//! The request has a connection and a client of its own, so that nothing answers it from a cache.

use std::sync::Arc;
use std::time::{Duration, Instant};

use net::Connection;
use types::{Errno, Error, Rank, Result, Tid};
use wire::{Answer, Hello, Message, Op, Request, Traced};

use crate::Fs;

/// The only request of the client.
const FIRST: Tid = Tid(1);
/// How long a message may take.
const PATIENCE: Duration = Duration::from_secs(70);
/// Ranks that send the request on, at most.
const HOPS_MAX: usize = 16;

/// An event on the way of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CourseStep {
    /// Since the beginning of the hop, by the clock of this process. Times of the server are moved:
    /// messages are assumed to take equally long in both directions.
    pub at: Duration,
    /// `client`, or a part of the server: `server`, `journal`, `store`, `clients`.
    pub part: &'static str,
    /// The event, for a reader.
    pub text: String,
}

/// The request at one rank.
#[derive(Clone, Debug)]
pub struct RequestHop {
    /// The rank that was asked.
    pub rank: Rank,
    /// The events in their order.
    pub steps: Vec<CourseStep>,
    /// The answer; a rank that is not responsible answers with another one.
    pub answer: Result<Answer>,
}

struct Timeline {
    began: Instant,
    steps: Vec<CourseStep>,
}

impl Timeline {
    fn note(&mut self, text: impl Into<String>) -> Duration {
        let at = self.began.elapsed();
        self.steps.push(CourseStep { at, part: "client", text: text.into() });
        at
    }
}

impl Fs {
    /// Carries a request out at the rank that is responsible as far as this client has heard, or at
    /// the one to which that rank sends the request on, and reports its course at each of them.
    ///
    /// # Errors
    /// `EPERM` unless this process speaks for every user, `EBUSY` if the server traces another
    /// request, `EIO` if it is of a release that traces none, or ends; those of connections.
    pub fn trace(self: &Arc<Self>, op: &Op<'_>) -> Result<Vec<RequestHop>> {
        let mut rank = op.about().inode.map_or(Rank(0), |ino| self.rank_of(ino));
        let mut hops = Vec::new();
        loop {
            let hop = self.trace_at(rank, op)?;
            let next = match &hop.answer {
                Ok(Answer::Redirect(elsewhere)) if hops.len() < HOPS_MAX => Some(elsewhere.rank),
                Ok(_) | Err(_) => None,
            };
            hops.push(hop);
            match next {
                Some(next) => rank = next,
                None => return Ok(hops),
            }
        }
    }

    fn trace_at(&self, rank: Rank, op: &Op<'_>) -> Result<RequestHop> {
        let cluster = self.cluster();
        let map = cluster.status()?;
        let entry = map.mds.iter().find(|entry| entry.rank == rank);
        let none = || Error::new(Errno::NotFound, rank.to_string(), "the map has no such rank");
        let address = entry.ok_or_else(none)?.address.parse()?;
        let client = cluster.register()?;
        let mut time = Timeline { began: Instant::now(), steps: Vec::new() };
        let mut connection = Connection::open(&address, cluster.keys())?;
        connection.set_timeout(Some(PATIENCE))?;
        time.note(format!("is connected to {address}"));
        let hello = Hello { client, epoch: types::Epoch(0), unsafe_requests: 0 };
        connection.send(&Message::Hello(hello).to_frame())?;
        let welcome = Message::decode(connection.receive()?).map_err(malformed)?;
        let Message::Welcome(welcome) = welcome else { return Err(unexpected(&welcome)) };
        time.note(format!("is welcome as client {}, term {}", client.0, welcome.epoch.0));
        let request = Request::new(FIRST, Tid(0), self.cred().clone(), *op);
        let request = Message::Request(request).to_frame();
        let frames = [Message::Trace { tid: FIRST }.to_frame(), request.clone()].concat();
        let sent = time.note(format!("sends the request, {} bytes", request.len()));
        connection.send(&frames)?;
        let (mut answer, mut replied) = (None, sent);
        loop {
            let frame = connection.receive().map_err(|error| older(error, answer.is_none()))?;
            let length = frame.len();
            let message = Message::decode(frame).map_err(malformed)?;
            if let Message::Traced(traced) = message {
                let steps = merged(time.steps, *traced, sent, replied)?;
                let none = || Error::new(Errno::TimedOut, rank.to_string(), "no reply came");
                let answer = answer.unwrap_or_else(|| Err(none()));
                return Ok(RequestHop { rank, steps, answer });
            }
            if let Message::Reply(reply) = message
                && reply.tid == FIRST
            {
                replied = time.note(format!("has the reply, {length} bytes"));
                answer = Some(reply.result.map_err(Error::from));
            }
        }
    }
}

/// The steps of the server between those of the client.
fn merged(
    mut steps: Vec<CourseStep>,
    traced: Traced,
    sent: Duration,
    replied: Duration,
) -> Result<Vec<CourseStep>> {
    let seen = traced.steps.map_err(Error::from)?;
    let nanos = Duration::from_nanos;
    let left = seen.iter().find(|step| step.text.starts_with("the reply leaves"));
    let at_server = left.map_or(Duration::ZERO, |step| nanos(step.at.0));
    let way = replied.saturating_sub(sent).saturating_sub(at_server) / 2;
    steps.extend(seen.into_iter().map(|step| {
        let (at, part) = (sent + way + nanos(step.at.0), step.part.name());
        CourseStep { at, part, text: step.text }
    }));
    steps.sort_by_key(|step| step.at);
    Ok(steps)
}

/// A server of an older release ends the connection at a message that it does not know.
fn older(error: Error, is_first: bool) -> Error {
    if is_first && error.errno == Errno::Io {
        let cause = "the server ended the connection before its reply";
        return Error::new(Errno::Io, error.subject, cause).remedy(
            "trace again if the server has stopped; one of an earlier release traces no requests",
        );
    }
    error
}

fn malformed(malformed: types::bytes::Malformed) -> Error {
    Error::new(Errno::BadMessage, "the server", malformed.to_string())
}

fn unexpected(message: &Message<'_>) -> Error {
    Error::new(Errno::BadMessage, "the server", format!("{message:?} is no welcome"))
}
