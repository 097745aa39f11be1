//! The log of the balancers, kept in the store: a new monitor continues the log of the one before.
//!
//! The log is cut into parts, objects that are named by the number of their first record. The
//! newest part is put again as it grows, at most once a second; a full part stays as it is, and the
//! oldest ones are deleted. Nothing is read before a request or a record comes.
//!
//! Invariants: numbers of records continue from monitor to monitor; a crash loses the records of
//! the last second. An unreadable part is left out, and hinders no other part.
//!
//! Not fenced: a monitor that was replaced without noticing may put its newest part again. The next
//! record of the new monitor repairs that, and it is a log.

use std::collections::VecDeque;

use crc32c::crc32c;
use metastore::request::{Condition, StoreFailure, StoreOp, StoreResult, Token};
use types::bytes::{Malformed, Put, Reader};
use types::{ConnId, Moment, Span};
use wire::{Failure, MonAnswer};

use crate::effects::Asker;
use crate::{MonEffects, WAITING_MAX, explain};

/// The common prefix of the parts' names.
const PREFIX: &str = "balancer/log/";
const VERSION: u8 = 1;
/// What is kept.
const RECORDS_MAX: usize = 8192;
const RECORD_BYTES_MAX: usize = 6 << 20;
/// A part with so many bytes of records is full.
const PART_BYTES: usize = 128 << 10;
/// Time between two puts, and before the store is tried again.
const INTERVAL: Span = Span::from_millis(1000);
/// Tells operations on the log from those on the map and on policies.
const TOKENS: u64 = 3 << 62;

#[derive(Debug, Default)]
enum Phase {
    /// The content of the store is unknown.
    #[default]
    Unread,
    Listing,
    /// The parts that are left to read, the oldest first.
    Reading(VecDeque<u64>),
    /// All of the store's records are here.
    Ready,
    /// The records before this number will be in the store.
    Writing(u64),
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Log {
    phase: Phase,
    /// Of the operation under way, or of the last one.
    last_token: u64,
    records: VecDeque<Vec<u8>>,
    bytes: usize,
    /// How many records there were before these.
    before: u64,
    /// Until the store was read: those it has.
    read: Vec<Vec<u8>>,
    /// Numbers of the first records of the parts that the store has.
    parts: VecDeque<u64>,
    /// So many records are in the store, counted from the first that ever was.
    written: u64,
    /// When the store was asked last.
    asked: Option<Moment>,
    /// The requesters of records with numbers beyond these.
    waiting: Vec<(Asker, u64)>,
}

impl Log {
    /// Whether an operation is about the log.
    pub(crate) fn is_mine(token: Token) -> bool {
        token.0 & TOKENS == TOKENS
    }

    /// Drops requesters at this connection.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        self.waiting.retain(|(asker, _)| asker.conn != conn);
    }

    /// Answers waiting requesters with a failure.
    pub(crate) fn fail_waiting(&mut self, reply: &Failure, effects: &mut MonEffects) {
        for (asker, _) in self.waiting.drain(..) {
            effects.reply(asker, Err(reply.clone()));
        }
    }

    /// Whether the store has everything, as far as it can be had.
    pub(crate) fn is_quiet(&self) -> bool {
        match self.phase {
            Phase::Unread => true,
            Phase::Ready => self.written == self.end(),
            Phase::Listing | Phase::Reading(_) | Phase::Writing(_) => false,
        }
    }

    /// Adds a record.
    pub(crate) fn record(&mut self, record: &[u8]) {
        self.bytes += record.len();
        self.records.push_back(record.to_vec());
        self.cut();
    }

    /// Answers with the records that an asker does not have yet, once they are read.
    ///
    /// # Errors
    /// `EAGAIN` if too many wait.
    pub(crate) fn ask(
        &mut self,
        asker: Asker,
        after: u64,
        effects: &mut MonEffects,
    ) -> Result<(), Failure> {
        if matches!(self.phase, Phase::Ready | Phase::Writing(_)) {
            effects.reply(asker, Ok(self.answer(after)));
            return Ok(());
        }
        if self.waiting.len() >= WAITING_MAX {
            return Err(crate::again("too many wait for the balancers' log"));
        }
        self.waiting.push((asker, after));
        if matches!(self.phase, Phase::Unread) {
            self.list(effects);
        }
        Ok(())
    }

    /// Starts the due reads or writes. At the end all are due at once.
    pub(crate) fn advance(&mut self, now: Moment, ending: bool, effects: &mut MonEffects) {
        let waited = self.asked.is_none_or(|asked| now.since(asked) >= INTERVAL);
        match self.phase {
            Phase::Unread if !self.records.is_empty() && waited => {
                self.asked = Some(now);
                self.list(effects);
            }
            Phase::Ready if self.written < self.end() && (waited || ending) => {
                self.asked = Some(now);
                self.write(effects);
            }
            Phase::Unread
            | Phase::Listing
            | Phase::Reading(_)
            | Phase::Ready
            | Phase::Writing(_) => {}
        }
    }

    /// Takes the result of an operation in.
    pub(crate) fn stored(
        &mut self,
        now: Moment,
        token: Token,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MonEffects,
    ) {
        if token.0 != TOKENS | self.last_token {
            // Parts that were deleted, or not: then they are next time.
            return;
        }
        match (std::mem::take(&mut self.phase), result) {
            (Phase::Listing, Ok(StoreResult::Names(names))) => {
                let number =
                    |name: String| u64::from_str_radix(name.strip_prefix(PREFIX)?, 16).ok();
                let mut parts: Vec<u64> = names.into_iter().filter_map(number).collect();
                parts.sort_unstable();
                self.parts = parts.iter().copied().collect();
                self.read_on(self.parts.clone(), effects);
            }
            (Phase::Reading(mut left), Ok(result)) => {
                if let (Some(first), StoreResult::Bytes(bytes, _)) = (left.pop_front(), result) {
                    self.take_part(first, &bytes);
                }
                self.read_on(left, effects);
            }
            (Phase::Writing(end), Ok(_)) => {
                self.written = end.max(self.written);
                self.phase = Phase::Ready;
                self.delete_old(effects);
            }
            (Phase::Writing(_), Err(_)) => {
                // The same again later.
                self.asked = Some(now);
                self.phase = Phase::Ready;
            }
            (Phase::Listing | Phase::Reading(_), result) => {
                self.asked = Some(now);
                self.read.clear();
                self.parts.clear();
                let why = match result {
                    Err(failure) => explain(&failure.error),
                    Ok(_) => crate::failure(types::Errno::Io, "the store has no list of names"),
                };
                let text = format!("the balancers' log cannot be read: {}", why.text);
                self.fail_waiting(&crate::failure(why.errno, text), effects);
            }
            (phase @ (Phase::Unread | Phase::Ready), _) => self.phase = phase,
        }
    }

    fn end(&self) -> u64 {
        self.before + self.records.len() as u64
    }

    fn answer(&self, after: u64) -> MonAnswer {
        // The requester knows more records than there are only if an earlier log was lost.
        let skip = if after > self.end() { 0 } else { after.saturating_sub(self.before) };
        let records = self.records.iter().skip(usize::try_from(skip).unwrap_or(usize::MAX));
        MonAnswer::BalancerLog { before: self.before + skip, records: records.cloned().collect() }
    }

    /// Drops the oldest records beyond the maximum.
    fn cut(&mut self) {
        while self.records.len() > RECORDS_MAX || self.bytes > RECORD_BYTES_MAX {
            let Some(gone) = self.records.pop_front() else { return };
            self.bytes -= gone.len();
            self.before += 1;
        }
    }

    fn emit(&mut self, op: StoreOp, effects: &mut MonEffects) {
        self.last_token += 1;
        effects.store.push((Token(TOKENS | self.last_token), op));
    }

    fn list(&mut self, effects: &mut MonEffects) {
        self.phase = Phase::Listing;
        self.emit(StoreOp::List { prefix: PREFIX.to_owned() }, effects);
    }

    /// Reads the next part, or has all of them.
    fn read_on(&mut self, left: VecDeque<u64>, effects: &mut MonEffects) {
        if let Some(first) = left.front().copied() {
            self.phase = Phase::Reading(left);
            return self.emit(StoreOp::Get { object: name(first) }, effects);
        }
        // Records since this monitor started come behind the stored ones.
        let end = self.written + self.end();
        let read = std::mem::take(&mut self.read);
        if self.before == 0 {
            for record in read.into_iter().rev() {
                self.bytes += record.len();
                self.records.push_front(record);
            }
        }
        self.before = end.saturating_sub(self.records.len() as u64);
        self.cut();
        self.phase = Phase::Ready;
        for (asker, after) in std::mem::take(&mut self.waiting) {
            effects.reply(asker, Ok(self.answer(after)));
        }
    }

    fn take_part(&mut self, first: u64, bytes: &[u8]) {
        let Ok(records) = decode(bytes) else { return };
        if first != self.written {
            // Something between is missing: numbers are not given to other records.
            self.read.clear();
        }
        self.written = first.saturating_add(records.len() as u64);
        self.read.extend(records);
    }

    /// Puts the newest part, or begins another one.
    fn write(&mut self, effects: &mut MonEffects) {
        let at =
            |number: u64| usize::try_from(number.saturating_sub(self.before)).unwrap_or(usize::MAX);
        // Behind the last of several that came at once none of the older may be left in memory.
        let next = self.written.max(self.before);
        let open = self.parts.back().copied().filter(|first| {
            let held = self.records.range(at(*first).min(at(next))..at(next));
            *first >= self.before
                && next == self.written
                && held.map(Vec::len).sum::<usize>() < PART_BYTES
        });
        let first = open.unwrap_or(next);
        let (mut taken, mut bytes) = (Vec::new(), 0);
        for record in self.records.range(at(first)..) {
            let is_new = first + taken.len() as u64 >= next;
            if is_new && bytes >= PART_BYTES {
                break;
            }
            bytes += record.len();
            taken.push(record.as_slice());
        }
        let (end, data) = (first + taken.len() as u64, encode(&taken));
        if open.is_none() {
            self.parts.push_back(first);
        }
        self.phase = Phase::Writing(end);
        self.emit(StoreOp::Put { object: name(first), data, condition: Condition::Any }, effects);
    }

    /// Deletes parts of which nothing is kept.
    fn delete_old(&mut self, effects: &mut MonEffects) {
        let mut objects = Vec::new();
        // A part ends where the next one begins.
        while self.parts.get(1).is_some_and(|next| *next <= self.before) {
            objects.extend(self.parts.pop_front().map(name));
        }
        if !objects.is_empty() {
            self.emit(StoreOp::Delete { objects }, effects);
        }
    }
}

fn name(first: u64) -> String {
    format!("{PREFIX}{first:016x}")
}

/// The bytes of a part. See `docs/formats/balancer.md`.
fn encode(records: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    bytes.put_varint(records.len() as u64);
    records.iter().for_each(|record| bytes.put_bytes(record));
    let sum = crc32c(&bytes);
    bytes.put_u32(sum);
    bytes
}

fn decode(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Malformed> {
    let mut reader = Reader::new(bytes);
    if reader.u8()? != VERSION {
        return Err(reader.malformed("version 1"));
    }
    let count = reader.length()?;
    let mut records = Vec::new();
    for _ in 0..count {
        records.push(reader.bytes()?.to_vec());
    }
    let body = bytes.get(..reader.offset()).unwrap_or_default();
    if reader.u32()? != crc32c(body) {
        return Err(reader.malformed("a matching checksum"));
    }
    reader.end()?;
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn every_truncation_and_every_flipped_bit_of_a_part_is_detected() {
        let bytes = encode(&[b"one", b"", b"three"]);
        assert_eq!(decode(&bytes).unwrap(), [&b"one"[..], b"", b"three"]);
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "{end}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&flipped).is_err(), "bit {bit}");
        }
    }
}
