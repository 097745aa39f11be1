//! Recovery: taking over a rank. Fence the predecessor, replay its journal over the metadata
//! store, wait a moment for clients to send again what was applied but not safe, then serve.

use std::collections::VecDeque;

use journal::{BlockReader, Event, SegmentReader, segment};
use metastore::request::{
    Condition, StoreFailure, StoreOp, StoreResult, Token, journal_prefix, rank_name,
};
use namespace::Mode;
use types::{Errno, Error, Ino, Origin, Seq};
use wire::{Message, Request};

use crate::log::{Log, Segment};
use crate::{Effects, Mds, Phase, Waiting};

#[derive(Debug, Default)]
enum Step {
    #[default]
    Idle,
    ReadTable,
    TakeOver,
    ListSegments,
    ReadSegment,
    Replay,
    ReadMerged,
    /// The journal is applied; the root is fetched if the journal did not make it.
    FetchRoot,
}

/// The state of a recovery.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    step: Step,
    /// Segments yet to be read, by name.
    names: VecDeque<String>,
    /// Segments that were read.
    segments: VecDeque<Segment>,
    name: String,
    bytes: Vec<u8>,
    /// Bytes of the segment that are intact.
    intact: usize,
    /// Where the next block starts, and how many of its events are applied.
    offset: usize,
    skip: u64,
    last: Seq,
    /// Requests that clients sent again, to be carried out in their first order.
    resent: Vec<(Seq, types::ConnId, Vec<u8>)>,
    /// A journal object that was merged: its bytes are applied at this point of the replay.
    merged: Option<Vec<u8>>,
}

impl Mds {
    pub(crate) fn start_recovery(&mut self, effects: &mut Effects) {
        self.recovery.step = Step::ReadTable;
        let object = rank_name(self.rank);
        self.store(Waiting::Recovery, StoreOp::Get { object }, effects);
    }

    pub(crate) fn recovery_stored(
        &mut self,
        _token: Token,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut Effects,
    ) {
        let result = match result {
            Ok(result) => result,
            Err(failure) => {
                effects.fatal = Some(failure.error);
                return;
            }
        };
        if let Err(error) = self.recovery_advance(result, effects) {
            effects.fatal = Some(error);
        }
    }

    fn recovery_advance(
        &mut self,
        result: StoreResult,
        effects: &mut Effects,
    ) -> Result<(), Error> {
        match (&self.recovery.step, result) {
            (Step::ReadTable, StoreResult::Missing) => self.take_over(None, effects),
            (Step::ReadTable, StoreResult::Bytes(bytes, version)) => {
                self.take_over(Some((&bytes, version)), effects)
            }
            (Step::TakeOver, StoreResult::Stored(version)) => {
                self.tables.taken_over(version);
                self.recovery.step = Step::ListSegments;
                let prefix = journal_prefix(self.rank);
                self.store(Waiting::Recovery, StoreOp::List { prefix }, effects);
                Ok(())
            }
            (Step::TakeOver, _) => Err(Error::new(
                Errno::Busy,
                self.rank.to_string(),
                "another server is starting as this rank",
            )
            .remedy("stop one of the two")),
            (Step::ListSegments, StoreResult::Names(names)) => {
                self.recovery.names = names.into();
                self.next_segment(effects)
            }
            (Step::ReadSegment, StoreResult::Bytes(bytes, _)) => self.open_segment(bytes, effects),
            (Step::ReadSegment, StoreResult::Missing) => self.next_segment(effects),
            (Step::ReadMerged, StoreResult::Bytes(bytes, _)) => {
                self.recovery.merged = Some(bytes);
                self.recovery.step = Step::Replay;
                self.recovery_continue(effects);
                Ok(())
            }
            (Step::ReadMerged, StoreResult::Missing) => {
                // It was removed by its owner, after a checkpoint made it redundant.
                self.recovery.merged = Some(Vec::new());
                self.recovery.step = Step::Replay;
                self.recovery_continue(effects);
                Ok(())
            }
            (step, result) => {
                let cause = format!("recovery expected something else: {step:?}, {result:?}");
                Err(Error::new(Errno::Io, self.rank.to_string(), cause))
            }
        }
    }

    fn take_over(
        &mut self,
        stored: Option<(&[u8], u64)>,
        effects: &mut Effects,
    ) -> Result<(), Error> {
        let condition =
            stored.map_or(Condition::Absent, |(_, version)| Condition::Version(version));
        let data = self.tables.take_over(stored)?;
        self.recovery.step = Step::TakeOver;
        let object = rank_name(self.rank);
        self.store(Waiting::Recovery, StoreOp::Put { object, data, condition }, effects);
        Ok(())
    }

    fn next_segment(&mut self, effects: &mut Effects) -> Result<(), Error> {
        let Some(name) = self.recovery.names.pop_front() else {
            self.recovery.step = Step::FetchRoot;
            self.recovery_waits_for(Ino::ANCHOR, effects);
            return Ok(());
        };
        self.recovery.name.clone_from(&name);
        self.recovery.step = Step::ReadSegment;
        self.store(Waiting::Recovery, StoreOp::Get { object: name }, effects);
        Ok(())
    }

    /// Checks a segment as a whole before anything of it is applied.
    fn open_segment(&mut self, bytes: Vec<u8>, effects: &mut Effects) -> Result<(), Error> {
        let name = self.recovery.name.clone();
        let last_one = self.recovery.names.len() < self.settings.dispatch;
        let scan = match segment::scan(&bytes) {
            Ok(scan) => scan,
            // A segment that was being created: nothing in it was acknowledged.
            Err(_) if bytes.len() < segment::HEADER_BYTES => {
                return self.next_segment(effects);
            }
            Err(error) => return Err(error.in_journal(&name)),
        };
        if let Some(damage) = &scan.damage {
            // The end of an interrupted write: nothing in it was acknowledged, or it was written
            // again to the next segment. If neither is so, positions are missing below.
            if damage.resumes.is_some() {
                return Err(damage.error.in_journal(&name));
            }
        }
        let header = journal::SegmentHeader::decode(&bytes).map_err(|e| e.in_journal(&name))?;
        let expected = Seq(self.recovery.last.0 + 1);
        if self.recovery.last != Seq(0) && header.first_seq > expected {
            if last_one {
                // Written in parallel with one that was lost: it was never acknowledged.
                self.recovery.names.clear();
                return self.next_segment(effects);
            }
            let cause = format!("events {expected} to {} are missing", header.first_seq);
            return Err(Error::new(Errno::BadMessage, name, cause)
                .remedy("run `cudele journal inspect` to see what is still there"));
        }
        let index = name.rsplit('/').next().and_then(|hex| u64::from_str_radix(hex, 16).ok());
        let last = Seq(scan.next_seq.0 - 1);
        let segment = Log::recovered_segment(
            index.unwrap_or_default(),
            header.first_seq,
            last,
            bytes.len() as u64,
        );
        self.recovery.segments.push_back(segment);
        self.recovery.last = self.recovery.last.max(last);
        self.recovery.intact = scan.intact;
        self.recovery.bytes = bytes;
        self.recovery.offset = segment::HEADER_BYTES;
        self.recovery.skip = 0;
        self.recovery.step = Step::Replay;
        self.recovery_continue(effects);
        Ok(())
    }

    /// Applies events until the segment ends or one needs something from the store.
    pub(crate) fn recovery_continue(&mut self, effects: &mut Effects) {
        match self.recovery.step {
            Step::Replay => {}
            Step::FetchRoot => return self.replayed(effects),
            Step::Idle
            | Step::ReadTable
            | Step::TakeOver
            | Step::ListSegments
            | Step::ReadSegment
            | Step::ReadMerged => return,
        }
        let bytes = std::mem::take(&mut self.recovery.bytes);
        let result = self.replay_segment(&bytes[..self.recovery.intact], effects);
        self.recovery.bytes = bytes;
        match result {
            Ok(true) => {
                if let Err(error) = self.next_segment(effects) {
                    effects.fatal = Some(error);
                }
            }
            Ok(false) => {}
            Err(error) => effects.fatal = Some(error.in_journal(&self.recovery.name)),
        }
    }

    /// Returns whether the segment is done; if not, something is being fetched.
    fn replay_segment(
        &mut self,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<bool, journal::JournalError> {
        while self.recovery.offset < bytes.len() {
            let (block, next) = journal::Block::read(bytes, self.recovery.offset)?;
            let mut events = block.events();
            for _ in 0..self.recovery.skip {
                events.next_event()?;
            }
            if !self.replay_block(&mut events, effects)? {
                return Ok(false);
            }
            self.recovery.offset = next;
            self.recovery.skip = 0;
        }
        Ok(true)
    }

    fn replay_block(
        &mut self,
        events: &mut BlockReader<'_>,
        effects: &mut Effects,
    ) -> Result<bool, journal::JournalError> {
        // Runs of requests are one client's: the newest of a run says it all.
        let mut origin = Origin::default();
        while let Some(record) = events.next_event()? {
            if let Some(dir) = self.namespace.needs(&record.event) {
                self.sessions.recovered(origin.client, origin.tid);
                self.recovery_waits_for(dir, effects);
                return Ok(false);
            }
            match record.event {
                Event::Session { client, tid } => self.sessions.recovered(client, tid),
                Event::Merged { subtree, object, .. } => match self.recovery.merged.take() {
                    Some(bytes) => {
                        self.reapply(record.seq, &bytes);
                        self.note_merge(record.seq, subtree, object);
                    }
                    None => {
                        self.sessions.recovered(origin.client, origin.tid);
                        self.recovery.step = Step::ReadMerged;
                        let object = String::from_utf8_lossy(object).into_owned();
                        self.store(Waiting::Recovery, StoreOp::Get { object }, effects);
                        return Ok(false);
                    }
                },
                event @ (Event::Create(_)
                | Event::Link { .. }
                | Event::Unlink { .. }
                | Event::Rmdir { .. }
                | Event::Rename { .. }
                | Event::SetAttr { .. }
                | Event::SetXattr { .. }
                | Event::SetData { .. }
                | Event::SetPolicy { .. }) => {
                    self.namespace.apply(record.seq, Mode::Replay, &event);
                    if record.origin.client != origin.client {
                        self.sessions.recovered(origin.client, origin.tid);
                    }
                    origin = record.origin;
                }
            }
            self.counters.recovered_events += 1;
            self.recovery.skip += 1;
        }
        self.sessions.recovered(origin.client, origin.tid);
        Ok(true)
    }

    /// Applies a client's journal again that was merged before the restart (weak consistency with
    /// global durability).
    fn reapply(&mut self, seq: Seq, bytes: &[u8]) {
        let Ok(mut reader) = SegmentReader::open(bytes) else { return };
        while let Ok(Some(block)) = reader.next_block() {
            let mut events = block.events();
            while let Ok(Some(record)) = events.next_event() {
                self.namespace.apply(seq, Mode::Merge, &record.event);
                self.counters.recovered_events += 1;
            }
        }
    }

    /// The whole journal is applied.
    fn replayed(&mut self, effects: &mut Effects) {
        self.recovery.bytes = Vec::new();
        self.recovery.step = Step::Idle;
        if !self.namespace.knows(Ino::ROOT) {
            // A new cluster, or one that ended before its first checkpoint.
            self.namespace.make_root(self.clock.time);
            self.checkpoint_all();
        }
        self.namespace.take_freed();
        let segments = std::mem::take(&mut self.recovery.segments);
        self.log.resume(self.tables.epoch(), segments, self.recovery.last);
        self.phase = Phase::Reconnecting { until: self.clock.now + self.settings.reconnect };
        for (conn, frame) in std::mem::take(&mut self.early) {
            if let Ok(Some((frame, _))) = wire::frame::decode(&frame)
                && let Ok(message) = Message::decode(frame.payload)
            {
                self.message(conn, message, effects);
            }
        }
        if self.sessions.all_returned() {
            self.become_active(effects);
        }
    }

    /// A request that came while clients of the previous tenure are still returning.
    pub(crate) fn request_early(
        &mut self,
        conn: types::ConnId,
        request: &Request<'_>,
        effects: &mut Effects,
    ) {
        let frame = Message::Request(request.clone()).to_frame();
        match (&request.replay, self.sessions.client(conn)) {
            (Some(replay), Some(client)) if matches!(self.phase, Phase::Reconnecting { .. }) => {
                self.recovery.resent.push((replay.seq, conn, frame));
                let session = self.sessions.get_mut(client);
                session.resending = session.resending.saturating_sub(1);
                if self.sessions.all_returned() {
                    self.become_active(effects);
                }
            }
            _ => self.early.push_back((conn, frame)),
        }
    }

    /// Carries out what was sent again, in its first order, then whatever else waits.
    pub(crate) fn become_active(&mut self, effects: &mut Effects) {
        self.sessions.stop_waiting();
        self.phase = Phase::Active;
        let mut resent = std::mem::take(&mut self.recovery.resent);
        resent.sort_by_key(|(seq, ..)| *seq);
        self.counters.replayed += resent.len() as u64;
        let frames = resent.into_iter().map(|(_, conn, frame)| (conn, frame));
        let frames: Vec<_> = frames.chain(std::mem::take(&mut self.early)).collect();
        for (conn, frame) in frames {
            if let Ok(Some((frame, _))) = wire::frame::decode(&frame)
                && let Ok(message) = Message::decode(frame.payload)
            {
                self.message(conn, message, effects);
            }
        }
        self.beacon_tick(effects);
    }
}
