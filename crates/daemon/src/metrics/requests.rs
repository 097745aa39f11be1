//! The time of requests, from their arrival to their replies.
//!
//! The driver sees requests and replies pass. A table of fixed size has the requests under way: a
//! place is found by connection and number, so noting a request or a reply allocates nothing and
//! compares one entry. Two requests on one place are rare: the later request is measured.
//!
//! The log has a line for a slow request, while it waits or with its reply.

use exporter::LatencyHistogram;
use types::{ConnId, LogEvent, LogLevel, Moment, Span, Tid};
use wire::Message;

/// Requests under way that can be measured; a power of two.
const PLACES: usize = 4096;
/// Kinds of operations; there are fewer.
const KINDS_MAX: usize = 128;
/// The number of a free place. No client has this number.
const FREE: ConnId = ConnId(u64::MAX);
/// Spreads connections over the table: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Clone, Copy, Debug)]
struct Place {
    conn: ConnId,
    tid: Tid,
    arrived: Moment,
    kind: usize,
    uid: u32,
    /// The log has it.
    is_told: bool,
}

/// A request that takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlowRequest {
    pub(crate) op: &'static str,
    pub(crate) conn: ConnId,
    pub(crate) uid: u32,
    pub(crate) took: Span,
    pub(crate) is_answered: bool,
}

impl From<SlowRequest> for LogEvent {
    fn from(slow: SlowRequest) -> Self {
        let SlowRequest { op, conn, uid, took, is_answered } = slow;
        let ms = took.0 / 1_000_000;
        let what = if is_answered { "took" } else { "has waited" };
        let text = format!("a request of user {uid} on connection {} {what} {ms} ms: {op}", conn.0);
        Self::new(LogLevel::Warning, "request.slow", text)
            .with("op", op)
            .with("uid", u64::from(uid))
            .with("connection", conn.0)
            .with("ms", ms)
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct RequestTimes {
    places: Box<[Place]>,
    kinds: Vec<(&'static str, LatencyHistogram)>,
    turns: LatencyHistogram,
    unmeasured: u64,
    /// From this duration on a request is slow; `None` for never.
    slow: Option<Span>,
}

/// The requests that wait for other programs: for a lock, and for the next change.
const WAITING: [&str; 2] = ["lock", "watch"];

fn place(conn: ConnId, tid: Tid) -> usize {
    let spread = conn.0.wrapping_mul(SPREAD) >> 32;
    #[allow(clippy::cast_possible_truncation, reason = "only the lowest bits count")]
    let place = spread.wrapping_add(tid.0) as usize;
    place & (PLACES - 1)
}

impl RequestTimes {
    pub(crate) fn new(slow: Option<Span>) -> Self {
        let free =
            Place { conn: FREE, tid: Tid(0), arrived: Moment(0), kind: 0, uid: 0, is_told: false };
        Self {
            places: vec![free; PLACES].into(),
            kinds: Vec::with_capacity(KINDS_MAX),
            turns: LatencyHistogram::default(),
            unmeasured: 0,
            slow,
        }
    }

    /// A message arrived. Requests without a reply are not measured.
    #[inline]
    pub(crate) fn arrived(&mut self, conn: ConnId, now: Moment, message: &Message<'_>) {
        let Message::Request(request) = message else { return };
        if request.is_async {
            return;
        }
        let Some(kind) = self.kind(request.op.name()) else { return };
        let (tid, uid) = (request.tid, request.cred.uid);
        let place = &mut self.places[place(conn, tid)];
        self.unmeasured += u64::from(place.conn != FREE);
        *place = Place { conn, tid, arrived: now, kind, uid, is_told: false };
    }

    /// A frame leaves for a client. Returns the request that it answers, if that was slow and is
    /// new.
    #[inline]
    pub(crate) fn sent(&mut self, conn: ConnId, now: Moment, frame: &[u8]) -> Option<SlowRequest> {
        let tid = wire::answered(frame)?;
        let place = &mut self.places[place(conn, tid)];
        if (place.conn, place.tid) != (conn, tid) {
            return None;
        }
        place.conn = FREE;
        let (op, times) = &mut self.kinds[place.kind];
        let took = now.since(place.arrived);
        times.note(took.0);
        let is_slow = self.slow.is_some_and(|slow| took >= slow);
        (is_slow && !place.is_told && !WAITING.contains(op)).then_some(SlowRequest {
            op,
            conn,
            uid: place.uid,
            took,
            is_answered: true,
        })
    }

    /// The requests that have become slow since the last call, and wait for their replies.
    pub(crate) fn overdue(&mut self, now: Moment) -> Vec<SlowRequest> {
        let Some(slow) = self.slow else { return Vec::new() };
        let kinds = &self.kinds;
        let waiting = self.places.iter_mut().filter(|place| place.conn != FREE && !place.is_told);
        waiting
            .filter_map(|place| {
                let (op, took) = (kinds[place.kind].0, now.since(place.arrived));
                if took < slow || WAITING.contains(&op) {
                    return None;
                }
                place.is_told = true;
                let (conn, uid) = (place.conn, place.uid);
                Some(SlowRequest { op, conn, uid, took, is_answered: false })
            })
            .collect()
    }

    /// A connection is gone: its requests get no reply.
    pub(crate) fn closed(&mut self, conn: ConnId) {
        for place in self.places.iter_mut().filter(|place| place.conn == conn) {
            place.conn = FREE;
        }
    }

    /// A turn of the loop in which something happened has ended.
    #[inline]
    pub(crate) fn turned(&mut self, began: Moment, ended: Moment) {
        self.turns.note(ended.since(began).0);
    }

    /// The number of a kind. A name has one address in the program, so that addresses are compared
    /// first.
    #[inline]
    fn kind(&mut self, name: &'static str) -> Option<usize> {
        let known = self.kinds.iter().position(|(known, _)| std::ptr::eq(*known, name));
        known.or_else(|| self.new_kind(name))
    }

    #[cold]
    fn new_kind(&mut self, name: &'static str) -> Option<usize> {
        let known = self.kinds.iter().position(|(known, _)| *known == name);
        known.or_else(|| {
            let is_room = self.kinds.len() < KINDS_MAX;
            is_room.then(|| self.kinds.push((name, LatencyHistogram::default())))?;
            Some(self.kinds.len() - 1)
        })
    }

    /// The kinds of requests that came so far, with their durations.
    pub(crate) fn kinds(&self) -> &[(&'static str, LatencyHistogram)] {
        &self.kinds
    }

    /// The durations of turns.
    pub(crate) fn turns(&self) -> &LatencyHistogram {
        &self.turns
    }

    /// Requests that were not measured.
    pub(crate) fn unmeasured(&self) -> u64 {
        self.unmeasured
    }

    /// Requests without a reply so far, and how long the oldest has waited.
    pub(crate) fn under_way(&self, now: Moment) -> (u64, Span) {
        let waiting = self.places.iter().filter(|place| place.conn != FREE);
        waiting.fold((0, Span::default()), |(count, longest), place| {
            (count + 1, longest.max(now.since(place.arrived)))
        })
    }
}
