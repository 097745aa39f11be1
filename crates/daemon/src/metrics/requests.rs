//! The time of requests, from their arrival to their replies.
//!
//! The driver sees requests and replies pass. A table of fixed size has the requests under way: a
//! place is found by connection and number, so noting a request or a reply allocates nothing and
//! compares one entry. Two requests on one place are rare: the later request is measured.

use exporter::LatencyHistogram;
use types::{ConnId, Moment, Tid};
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
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct RequestTimes {
    places: Box<[Place]>,
    kinds: Vec<(&'static str, LatencyHistogram)>,
    turns: LatencyHistogram,
    unmeasured: u64,
}

fn place(conn: ConnId, tid: Tid) -> usize {
    let spread = conn.0.wrapping_mul(SPREAD) >> 32;
    #[allow(clippy::cast_possible_truncation, reason = "only the lowest bits count")]
    let place = spread.wrapping_add(tid.0) as usize;
    place & (PLACES - 1)
}

impl RequestTimes {
    pub(crate) fn new() -> Self {
        let free = Place { conn: FREE, tid: Tid(0), arrived: Moment(0), kind: 0 };
        Self {
            places: vec![free; PLACES].into(),
            kinds: Vec::with_capacity(KINDS_MAX),
            turns: LatencyHistogram::default(),
            unmeasured: 0,
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
        let place = &mut self.places[place(conn, request.tid)];
        self.unmeasured += u64::from(place.conn != FREE);
        *place = Place { conn, tid: request.tid, arrived: now, kind };
    }

    /// A frame leaves for a client.
    #[inline]
    pub(crate) fn sent(&mut self, conn: ConnId, now: Moment, frame: &[u8]) {
        let Some(tid) = wire::answered(frame) else { return };
        let place = &mut self.places[place(conn, tid)];
        if (place.conn, place.tid) == (conn, tid) {
            place.conn = FREE;
            self.kinds[place.kind].1.note(now.since(place.arrived).0);
        }
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
    pub(crate) fn under_way(&self, now: Moment) -> (u64, types::Span) {
        let waiting = self.places.iter().filter(|place| place.conn != FREE);
        waiting.fold((0, types::Span::default()), |(count, longest), place| {
            (count + 1, longest.max(now.since(place.arrived)))
        })
    }
}
