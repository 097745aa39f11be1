//! The records of a rank's balancing: every tick with its inputs and its reason, and every move
//! with its result. `cudele balancer log` shows them.
//!
//! Invariant: a record that was decoded holds numbers that are not NaN, and at most as much as
//! [`DecisionRecord::encode`] writes.

use types::bytes::{Malformed, Put, Reader};
use types::{DirFragId, Frag, Ino, Rank, Timestamp};

use crate::saved::checksum;
use crate::{BalancerAnswer, Counts, DecisionKind, Metrics, Unit};

/// The most directories that a record has: the warmest.
pub const RECORDED_UNITS_MAX: usize = 64;
/// The most moves and lines of a policy's log that it has.
const LISTED_MAX: usize = 64;

/// The result of a tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TickResult {
    /// The policy wanted nothing to move.
    #[default]
    Nothing,
    /// It wanted load to move.
    Moves,
    /// It failed, and nothing moved.
    Failed,
    /// It was not asked.
    Skipped,
}

impl TickResult {
    /// The word for people.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Nothing => "stays",
            Self::Moves => "moves",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [Self::Nothing, Self::Moves, Self::Failed, Self::Skipped].get(usize::from(code)).copied()
    }
}

/// A directory as it was at a tick.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedDirectory {
    /// Its path, as far as it was known.
    pub path: Vec<u8>,
    /// The unit. Its parent is a place in [`TickRecord::units`].
    pub unit: Unit,
}

/// Something that is to move.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedMove {
    /// Its path.
    pub path: Vec<u8>,
    /// Which fragment.
    pub id: DirFragId,
    /// Where to.
    pub to: Rank,
    /// Its load by the policy's `metaload`.
    pub load: f64,
    /// The selector that chose the unit; empty for a unit that goes to its pin.
    pub selector: String,
}

/// A tick of a rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TickRecord {
    /// The rank's ticks so far.
    pub tick: u64,
    /// Seconds between ticks.
    pub tick_seconds: f64,
    /// Version of the policy in force.
    pub version: u64,
    /// Its name.
    pub policy: String,
    /// The result of the move.
    pub ended: TickResult,
    /// Why.
    pub why: String,
    /// All ranks, by number, as the rank knew them.
    pub ranks: Vec<Metrics>,
    /// The hits in all that the rank has, and in all that it sees.
    pub counts: (Counts, Counts),
    /// Its warmest directories, each after the one it stands in.
    pub units: Vec<RecordedDirectory>,
    /// The loads of the ranks by the policy's `mdsload`.
    pub loads: Vec<f64>,
    /// How much each rank was to get.
    pub targets: Vec<f64>,
    /// The moves that the decision wanted.
    pub moves: Vec<WantedMove>,
    /// The lines that the policy logged.
    pub log: Vec<String>,
    /// Steps that the policy took, and microseconds.
    pub cost: (u64, u64),
}

/// A move that ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MoveRecord {
    /// The tick that wanted it.
    pub tick: u64,
    /// Its path.
    pub path: Vec<u8>,
    /// Its root.
    pub root: Ino,
    /// Where it was to go.
    pub to: Rank,
    /// Why it stayed, or empty.
    pub failure: String,
    /// How long requests for it waited, in microseconds.
    pub frozen_micros: u64,
    /// Sessions that had to give something back.
    pub flushed: u64,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "most are ticks")]
pub enum RecordedEvent {
    /// A rank decided, or not.
    Tick(TickRecord),
    /// Something moved, or not.
    Move(MoveRecord),
}

/// A line of the balancers' log.
#[derive(Clone, Debug, PartialEq)]
pub struct DecisionRecord {
    /// Who says it.
    pub rank: Rank,
    /// When.
    pub time: Timestamp,
    /// What happened.
    pub what: RecordedEvent,
}

const VERSION: u8 = 1;
const TICK: u8 = 0;
const MOVE: u8 = 1;

impl TickRecord {
    /// The record of an answer. `path` names directories.
    #[must_use]
    pub fn of(answer: &BalancerAnswer, tick: u64, path: impl Fn(Ino) -> Vec<u8>) -> Self {
        let BalancerAnswer { question, decision, micros } = answer;
        let view = &question.view;
        let mut record = Self {
            tick,
            tick_seconds: view.tick_seconds,
            version: question.version,
            policy: question.policy.name().to_owned(),
            ended: TickResult::Skipped,
            why: question.skipped.clone().unwrap_or_default(),
            ranks: view.ranks.clone(),
            counts: (view.auth, view.all),
            units: warmest(&view.units, &path),
            ..Self::default()
        };
        let Some(decision) = decision else { return record };
        record.ended = match decision.outcome {
            DecisionKind::Balanced | DecisionKind::NoNeighbour(_) => TickResult::Nothing,
            DecisionKind::Migrate => TickResult::Moves,
            DecisionKind::Failed(_) => TickResult::Failed,
        };
        record.why.clone_from(&decision.why);
        record.loads.clone_from(&decision.loads);
        record.targets.clone_from(&decision.targets);
        let moves = decision.exports.iter().take(LISTED_MAX).map(|export| WantedMove {
            path: path(export.id.ino),
            id: export.id,
            to: export.to,
            load: export.load,
            selector: export.selector.map_or("", crate::Selector::name).to_owned(),
        });
        record.moves = moves.collect();
        record.log = decision.log.iter().take(LISTED_MAX).map(|line| line.text.clone()).collect();
        record.cost = (decision.steps, *micros);
        record
    }
}

/// The warmest units, each behind the unit that contains it. A containing unit is at least as warm,
/// so none is listed without its parents.
fn warmest(units: &[Unit], path: &impl Fn(Ino) -> Vec<u8>) -> Vec<RecordedDirectory> {
    let mut order: Vec<usize> = (0..units.len()).collect();
    let heat = |at: &usize| units.get(*at).map_or(0.0, |unit| unit.counts.sum());
    // Stable: of equal ones the parent comes first.
    order.sort_by(|a, b| heat(b).total_cmp(&heat(a)));
    order.truncate(RECORDED_UNITS_MAX);
    order.sort_unstable();
    let place = |at: usize| order.binary_search(&at).ok();
    let chosen = order.iter().filter_map(|at| units.get(*at));
    let warm = chosen.map(|unit| RecordedDirectory {
        path: path(unit.id.ino),
        unit: Unit { parent: unit.parent.and_then(place), ..*unit },
    });
    warm.collect()
}

impl DecisionRecord {
    /// The bytes. See `docs/formats/balancer.md`.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.put_u16(self.rank.0);
        out.put_u64(self.time.0.cast_unsigned());
        match &self.what {
            RecordedEvent::Tick(tick) => {
                out.put_u8(TICK);
                put_tick(&mut out, tick);
            }
            RecordedEvent::Move(done) => {
                out.put_u8(MOVE);
                let MoveRecord { tick, path, root, to, failure, frozen_micros, flushed } = done;
                out.put_varint(*tick);
                out.put_bytes(path);
                out.put_varint(root.0);
                out.put_u16(to.0);
                out.put_bytes(failure.as_bytes());
                out.put_varint(*frozen_micros);
                out.put_varint(*flushed);
            }
        }
        let sum = checksum(&out);
        out.put_u32(sum);
        out
    }

    /// Reads the bytes of [`DecisionRecord::encode`].
    ///
    /// # Errors
    /// [`Malformed`] with the offset, for anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != VERSION {
            return Err(reader.malformed("version 1"));
        }
        let rank = Rank(reader.u16()?);
        let time = Timestamp(reader.u64()?.cast_signed());
        let what = match reader.u8()? {
            TICK => RecordedEvent::Tick(tick(&mut reader)?),
            MOVE => RecordedEvent::Move(MoveRecord {
                tick: reader.varint()?,
                path: reader.bytes()?.to_vec(),
                root: Ino(reader.varint()?),
                to: Rank(reader.u16()?),
                failure: text(&mut reader)?,
                frozen_micros: reader.varint()?,
                flushed: reader.varint()?,
            }),
            _ => return Err(reader.malformed("a kind of record")),
        };
        let body = bytes.get(..reader.offset()).unwrap_or_default();
        if reader.u32()? != checksum(body) {
            return Err(reader.malformed("a matching checksum"));
        }
        reader.end()?;
        Ok(Self { rank, time, what })
    }
}

fn put_tick(out: &mut Vec<u8>, record: &TickRecord) {
    out.put_varint(record.tick);
    put_number(out, record.tick_seconds);
    out.put_varint(record.version);
    out.put_bytes(record.policy.as_bytes());
    out.put_u8(record.ended as u8);
    out.put_bytes(record.why.as_bytes());
    put_list(out, &record.ranks, |out, metrics| {
        metrics.named().iter().for_each(|(_, value)| put_number(out, *value));
    });
    put_counts(out, &record.counts.0);
    put_counts(out, &record.counts.1);
    put_list(out, &record.units, |out, RecordedDirectory { path, unit }| {
        out.put_bytes(path);
        put_id(out, unit.id);
        // From 1: 0 means none.
        out.put_varint(unit.parent.map_or(0, |parent| parent as u64 + 1));
        put_counts(out, &unit.counts);
        out.put_varint(unit.inodes);
        out.put_u8(u8::from(unit.movable));
        out.put_u16(unit.pin.unwrap_or(Rank::NONE).0);
    });
    put_list(out, &record.loads, |out, load| put_number(out, *load));
    put_list(out, &record.targets, |out, target| put_number(out, *target));
    put_list(out, &record.moves, |out, WantedMove { path, id, to, load, selector }| {
        out.put_bytes(path);
        put_id(out, *id);
        out.put_u16(to.0);
        put_number(out, *load);
        out.put_bytes(selector.as_bytes());
    });
    put_list(out, &record.log, |out, line| out.put_bytes(line.as_bytes()));
    out.put_varint(record.cost.0);
    out.put_varint(record.cost.1);
}

fn tick(reader: &mut Reader<'_>) -> Result<TickRecord, Malformed> {
    Ok(TickRecord {
        tick: reader.varint()?,
        tick_seconds: number(reader)?,
        version: reader.varint()?,
        policy: text(reader)?,
        ended: {
            let start = *reader;
            TickResult::from_code(reader.u8()?)
                .ok_or_else(|| start.malformed("an end of a tick"))?
        },
        why: text(reader)?,
        ranks: list(reader, metrics)?,
        counts: (counts(reader)?, counts(reader)?),
        units: list(reader, warm)?,
        loads: list(reader, number)?,
        targets: list(reader, number)?,
        moves: list(reader, |reader| {
            Ok(WantedMove {
                path: reader.bytes()?.to_vec(),
                id: id(reader)?,
                to: Rank(reader.u16()?),
                load: number(reader)?,
                selector: text(reader)?,
            })
        })?,
        log: list(reader, text)?,
        cost: (reader.varint()?, reader.varint()?),
    })
}

fn warm(reader: &mut Reader<'_>) -> Result<RecordedDirectory, Malformed> {
    let path = reader.bytes()?.to_vec();
    let id = id(reader)?;
    let parent = usize::try_from(reader.varint()?).ok().and_then(|parent| parent.checked_sub(1));
    let counts = counts(reader)?;
    let inodes = reader.varint()?;
    let movable = reader.u8()? != 0;
    let pin = Some(Rank(reader.u16()?)).filter(|pin| *pin != Rank::NONE);
    Ok(RecordedDirectory { path, unit: Unit { id, parent, counts, inodes, movable, pin } })
}

fn metrics(reader: &mut Reader<'_>) -> Result<Metrics, Malformed> {
    Ok(Metrics {
        auth: number(reader)?,
        all: number(reader)?,
        cpu_percent: number(reader)?,
        mem_percent: number(reader)?,
        queue: number(reader)?,
        requests_per_second: number(reader)?,
        request_seconds: number(reader)?,
        inodes: number(reader)?,
        age_seconds: number(reader)?,
    })
}

fn put_counts(out: &mut Vec<u8>, counts: &Counts) {
    counts.named().iter().for_each(|(_, value)| put_number(out, *value));
}

fn counts(reader: &mut Reader<'_>) -> Result<Counts, Malformed> {
    Ok(Counts {
        inode_reads: number(reader)?,
        inode_writes: number(reader)?,
        readdirs: number(reader)?,
        fetches: number(reader)?,
        stores: number(reader)?,
    })
}

fn put_id(out: &mut Vec<u8>, id: DirFragId) {
    out.put_varint(id.ino.0);
    out.put_u8(id.frag.bits);
    out.put_u32(id.frag.value);
}

fn id(reader: &mut Reader<'_>) -> Result<DirFragId, Malformed> {
    let ino = Ino(reader.varint()?);
    Ok(DirFragId { ino, frag: Frag { bits: reader.u8()?, value: reader.u32()? } })
}

fn put_number(out: &mut Vec<u8>, value: f64) {
    out.put_u64(value.to_bits());
}

fn number(reader: &mut Reader<'_>) -> Result<f64, Malformed> {
    let value = f64::from_bits(reader.u64()?);
    if value.is_nan() { Err(reader.malformed("a number")) } else { Ok(value) }
}

fn text(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let start = *reader;
    let text = std::str::from_utf8(reader.bytes()?);
    text.map(str::to_owned).map_err(|_| start.malformed("text"))
}

fn put_list<T>(out: &mut Vec<u8>, list: &[T], mut put: impl FnMut(&mut Vec<u8>, &T)) {
    out.put_varint(list.len() as u64);
    list.iter().for_each(|element| put(out, element));
}

fn list<T>(
    reader: &mut Reader<'_>,
    mut get: impl FnMut(&mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let count = reader.length()?;
    let mut list = Vec::new();
    for _ in 0..count {
        list.push(get(reader)?);
    }
    Ok(list)
}

#[cfg(test)]
mod tests;
