//! The course of one request through this server, for `cudele trace`.
//!
//! The driver sees all that goes into the state machine and comes out of it. While a request is
//! traced, each message to a client, store operation and notice is a step with its time; the steps
//! end when the change is durable. Store operations that other requests caused in this time are
//! steps, too: their texts name the objects. Only peers that speak for every user may trace,
//! because the steps name clients and objects of others. A server traces one request at a time;
//! without one, an event costs one comparison.

use mds::MdsEffects;
use metastore::request::{StoreFailure, StoreOp, StoreResult, Token};
use types::{ConnId, Errno, LogEvent, Moment, Seq, Set, Span, Tid};
use wire::{Failure, Message, Reply, TracePart, TraceStep, Traced};

/// How long a server waits for the request that is to be traced.
const ARRIVED: Span = Span::from_millis(10_000);
/// How long after the reply a change may become durable: with some policies that is never.
const DURABLE: Span = Span::from_millis(1_000);
/// How long a request is traced that gets no reply.
const ANSWERED: Span = Span::from_millis(60_000);

/// The request that is traced.
#[derive(Debug)]
struct Course {
    conn: ConnId,
    tid: Tid,
    /// When its client asked for its course.
    wanted: Moment,
    /// When it arrived; `None` before that.
    began: Option<Moment>,
    steps: Vec<TraceStep>,
    /// Store operations that began meanwhile, and their names.
    operations: Vec<(Token, TracePart, String, Moment)>,
    /// The event of the reply, and when the reply left.
    replied: Option<(Seq, Moment)>,
    /// The reply said that its event is durable.
    is_known_durable: bool,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Tracer {
    /// The connections of peers that may not trace.
    limited: Set<ConnId>,
    course: Option<Box<Course>>,
}

impl Tracer {
    pub(crate) fn opened(&mut self, conn: ConnId, is_trusted: bool) {
        if !is_trusted {
            self.limited.insert(conn);
        }
    }

    pub(crate) fn closed(&mut self, conn: ConnId) {
        self.limited.remove(&conn);
        self.course.take_if(|course| course.conn == conn);
    }

    /// A client asks for the course of its next request with this number. Returns the answer if
    /// there is none.
    pub(crate) fn want(&mut self, conn: ConnId, tid: Tid, now: Moment) -> Option<Message<'static>> {
        let refusal = if self.limited.contains(&conn) {
            Some((Errno::NotPermitted, "only root and the owner of the cluster trace requests"))
        } else {
            self.course.is_some().then_some((Errno::Busy, "the server traces another request"))
        };
        let Some((errno, text)) = refusal else {
            let (wanted, steps, operations) = (now, Vec::new(), Vec::new());
            let (began, replied, is_known_durable) = (None, None, false);
            let course =
                Course { conn, tid, wanted, began, steps, operations, replied, is_known_durable };
            self.course = Some(Box::new(course));
            return None;
        };
        let failure = Failure { errno, text: text.to_owned() };
        Some(Message::Traced(Box::new(Traced { tid, steps: Err(failure) })))
    }

    /// Whether nothing is traced.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.course.is_none()
    }

    /// A message arrived. Returns whether it is the request that is traced.
    #[inline]
    pub(crate) fn arrived(
        &mut self,
        conn: ConnId,
        message: &Message<'_>,
        now: impl FnOnce() -> Moment,
    ) -> bool {
        let Some(course) = &mut self.course else { return false };
        let Message::Request(request) = message else { return false };
        if (course.conn, course.tid) != (conn, request.tid) || course.began.is_some() {
            return false;
        }
        let now = now();
        course.began = Some(now);
        let text = format!("{} of user {} arrives", request.op.name(), request.cred.uid);
        course.step(now, TracePart::Server, text);
        true
    }

    /// The state machine has handled the request that is traced.
    pub(crate) fn handled(&mut self, now: Moment) {
        if let Some(course) = &mut self.course {
            course.step(now, TracePart::Server, "the state machine has handled it".to_owned());
        }
    }

    /// A store operation has ended.
    pub(crate) fn stored(
        &mut self,
        token: Token,
        result: &Result<StoreResult, Box<StoreFailure>>,
        now: Moment,
    ) {
        let Some(course) = &mut self.course else { return };
        let Some(at) = course.operations.iter().position(|known| known.0 == token) else { return };
        let (_, part, name, began) = course.operations.swap_remove(at);
        let micros = now.since(began).0 / 1_000;
        let outcome = match result {
            Ok(_) => format!("ended after {micros} us"),
            Err(failure) => format!("failed after {micros} us: {}", failure.error.errno.symbol()),
        };
        course.step(now, part, format!("{name} {outcome}"));
    }

    /// The effects of the state machine are about to be executed.
    pub(crate) fn executes(&mut self, effects: &MdsEffects, now: Moment) {
        let Some(course) = self.course.as_mut().filter(|course| course.began.is_some()) else {
            return;
        };
        for notice in &effects.notices {
            course.step(now, TracePart::Server, LogEvent::from(notice).text);
        }
        for (conn, frame) in effects.outbox.iter() {
            course.sends(conn, frame, now);
        }
        for (token, op) in &effects.store {
            let (part, name) = described(op);
            course.step(now, part, format!("{name} begins"));
            course.operations.push((*token, part, name, now));
        }
    }

    /// The steps, if the request is done: its change is durable up to `safe`, or takes too long.
    pub(crate) fn ended(&mut self, safe: Seq, now: Moment) -> Option<(ConnId, Message<'static>)> {
        self.course.take_if(|course| course.began.is_none() && now.since(course.wanted) > ARRIVED);
        let course = self.course.as_mut()?;
        let began = course.began?;
        match course.replied {
            Some((seq, _)) if seq.0 == 0 => {}
            Some((seq, _)) if seq <= safe => course.is_durable(seq, now),
            Some((seq, at)) if now.since(at) > DURABLE => {
                let text = format!("event {} is not durable yet: see the policy", seq.0);
                course.step(now, TracePart::Server, text);
            }
            None if now.since(began) > ANSWERED => {
                course.step(now, TracePart::Server, "there is no reply yet".to_owned());
            }
            Some(_) | None => return None,
        }
        let Course { conn, tid, steps, .. } = *self.course.take()?;
        Some((conn, Message::Traced(Box::new(Traced { tid, steps: Ok(steps) }))))
    }
}

impl Course {
    fn step(&mut self, now: Moment, part: TracePart, mut text: String) {
        let Some(began) = self.began.filter(|_| self.steps.len() < TraceStep::STEPS_MAX) else {
            return;
        };
        if text.len() > TraceStep::TEXT_MAX {
            text.truncate(text.floor_char_boundary(TraceStep::TEXT_MAX));
        }
        self.steps.push(TraceStep { at: now.since(began), part, text });
    }

    fn is_durable(&mut self, event: Seq, now: Moment) {
        if !self.is_known_durable {
            self.step(now, TracePart::Server, format!("event {} is durable", event.0));
        }
    }

    /// A message leaves for a client.
    fn sends(&mut self, conn: ConnId, frame: &[u8], now: Moment) {
        let Ok(Some((frame, _))) = wire::frame::decode(frame) else { return };
        match Message::decode(frame.payload) {
            Ok(Message::Reply(reply)) if (conn, reply.tid) == (self.conn, self.tid) => {
                self.step(now, TracePart::Server, said(&reply));
                self.replied = Some((reply.seq, now));
                self.is_known_durable = reply.seq <= reply.safe;
            }
            Ok(Message::Revoke { dir }) => {
                let text = format!("connection {} must give {dir} back", conn.0);
                self.step(now, TracePart::Clients, text);
            }
            Ok(Message::Recall { ino }) => {
                let text = format!("connection {} must write {ino}", conn.0);
                self.step(now, TracePart::Clients, text);
            }
            Ok(_) | Err(_) => {}
        }
    }
}

fn said(reply: &Reply) -> String {
    match &reply.result {
        Err(failure) => format!("the reply leaves: {}", failure.errno.symbol()),
        Ok(_) if reply.seq.0 == 0 => "the reply leaves".to_owned(),
        Ok(_) if reply.seq <= reply.safe => {
            format!("the reply leaves: event {} is durable", reply.seq.0)
        }
        Ok(_) => format!("the reply leaves: event {} is applied", reply.seq.0),
    }
}

/// The name of a store operation, for a reader.
fn described(op: &StoreOp) -> (TracePart, String) {
    let text = match op {
        StoreOp::Append { object, data } => {
            let text = format!("append of {} bytes to {object}", data.len());
            return (TracePart::Journal, text);
        }
        StoreOp::Put { object, data, .. } => format!("put of {object}, {} bytes", data.len()),
        StoreOp::Get { object } => format!("read of {object}"),
        StoreOp::List { prefix } => format!("list of {prefix}"),
        StoreOp::Delete { objects } => format!("deletion of {} objects", objects.len()),
        StoreOp::PurgeData { ino, .. } => format!("purge of the content of {ino}"),
        StoreOp::PurgeDir { ino } => format!("purge of the directory {ino}"),
        StoreOp::LoadDir { ino } => format!("load of the directory {ino}"),
        StoreOp::LookUp { ino, names } => format!("lookup of {} names in {ino}", names.len()),
        StoreOp::CompactDir { ino } => format!("compaction of the directory {ino}"),
        StoreOp::AttachDirs { dirs, .. } => format!("attachment of {} runs", dirs.len()),
        StoreOp::ProveRuns { runs } => format!("proof of {} runs", runs.len()),
        StoreOp::TakeSnapshot { .. } => "snapshot".to_owned(),
        StoreOp::CommitDir { ino, .. } => format!("commit of the directory {ino}"),
    };
    (TracePart::Store, text)
}

#[cfg(test)]
mod tests {
    use types::Cred;
    use wire::{Op, SessionOp};

    use super::*;

    const CONN: ConnId = ConnId(4);
    const TID: Tid = Tid(1);

    fn at(micros: u64) -> Moment {
        Moment(micros * 1_000)
    }

    fn begun() -> Tracer {
        let mut tracer = Tracer::default();
        tracer.opened(CONN, true);
        assert_eq!(tracer.want(CONN, TID, at(0)), None);
        let op = Op::Session(SessionOp::Sync);
        let message = |tid| Message::Request(wire::Request::new(tid, Tid(0), Cred::root(), op));
        assert!(!tracer.arrived(CONN, &message(Tid(7)), || at(1)), "another request");
        assert!(tracer.arrived(CONN, &message(TID), || at(2)));
        tracer
    }

    fn reply(seq: u64, safe: u64) -> MdsEffects {
        let mut effects = MdsEffects::default();
        let (seq, safe, time) = (Seq(seq), Seq(safe), types::Timestamp(1));
        let reply =
            Reply { tid: TID, seq, time, safe, grants: None, result: Ok(wire::Answer::Done) };
        effects.outbox.send(CONN, &Message::Reply(reply));
        effects
    }

    fn texts(tracer: &mut Tracer, safe: u64, micros: u64) -> Option<Vec<String>> {
        let (conn, message) = tracer.ended(Seq(safe), at(micros))?;
        assert_eq!(conn, CONN);
        let Message::Traced(traced) = message else { panic!("{message:?}") };
        Some(traced.steps.unwrap().into_iter().map(|step| step.text).collect())
    }

    fn errno(message: Option<Message<'_>>) -> Option<Errno> {
        match message {
            Some(Message::Traced(traced)) => traced.steps.err().map(|failure| failure.errno),
            _ => None,
        }
    }

    #[test]
    fn a_trace_ends_when_the_event_is_durable() {
        let mut tracer = begun();
        let mut effects = reply(5, 4);
        let append = StoreOp::Append { object: "journal".to_owned(), data: vec![0; 9] };
        effects.store.push((Token(3), append));
        tracer.executes(&effects, at(3));
        assert_eq!(texts(&mut tracer, 4, 4), None);
        tracer.stored(Token(3), &Ok(StoreResult::Done), at(9));
        let said = texts(&mut tracer, 5, 10).unwrap();
        let wanted = [
            "sync of user 0 arrives",
            "the reply leaves: event 5 is applied",
            "append of 9 bytes to journal begins",
            "append of 9 bytes to journal ended after 6 us",
            "event 5 is durable",
        ];
        assert_eq!(said, wanted);
        assert!(tracer.is_idle());
    }

    #[test]
    fn an_event_that_no_journal_has_ends_the_trace_after_a_second() {
        let mut tracer = begun();
        tracer.executes(&reply(5, 4), at(3));
        assert_eq!(texts(&mut tracer, 4, 900_000), None);
        let said = texts(&mut tracer, 4, 1_100_000).unwrap();
        assert!(said.last().unwrap().contains("not durable yet"), "{said:?}");
    }

    #[test]
    fn one_request_of_a_trusted_peer_is_traced_at_a_time() {
        let mut tracer = begun();
        assert_eq!(errno(tracer.want(ConnId(5), TID, at(3))), Some(Errno::Busy));
        tracer.opened(ConnId(6), false);
        assert_eq!(errno(tracer.want(ConnId(6), TID, at(3))), Some(Errno::NotPermitted));
        tracer.closed(CONN);
        assert_eq!(tracer.want(ConnId(5), TID, at(4)), None);
        // The request never comes.
        assert_eq!(texts(&mut tracer, 0, 20_000_000), None);
        assert!(tracer.is_idle());
    }

    #[test]
    fn steps_are_bounded() {
        let mut tracer = begun();
        for _ in 0..1_000 {
            tracer.handled(at(5));
        }
        tracer.executes(&reply(0, 0), at(6));
        let (_, message) = tracer.ended(Seq(0), at(7)).unwrap();
        let frame = message.to_frame();
        let (frame, _) = wire::frame::decode(&frame).unwrap().unwrap();
        assert!(Message::decode(frame.payload).is_ok(), "a client takes it");
    }
}
