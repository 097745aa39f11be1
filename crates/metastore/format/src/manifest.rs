//! The manifest of a directory fragment: which runs it consists of, newest first.
//!
//! The only mutable object of a fragment. It is replaced as a whole by compare-and-swap, and is
//! small enough for that. Not here: the swap itself, and which objects may be deleted after it.
//!
//! Invariant: run numbers are unique and below `next_run`, which never goes back: a number that a
//! manifest once listed never names other bytes later. A run that a client wrote has a number of
//! another kind ([`RunId::of_client`]), and an [`Attached`] that limits its rows.

use std::collections::BTreeSet;
use std::ops::Range;

use crc32c::crc32c;
use types::bytes::{Malformed, Put, Reader};
use types::{DirFragId, InoRange, Seq, Timestamp};

use crate::attach::Attached;
use crate::error::{FormatError, malformed};
use crate::frame::{Frame, sealed};
use crate::object::{RunId, manifest_name, put_dirfrag, read_dirfrag};
use crate::run::{Columns, RunReader};
use crate::values::ValueSegment;

/// The newest manifest format. A manifest without value segments is written as version 2, which had
/// none, and one without attached runs, too, as version 1.
pub const MANIFEST_VERSION: u16 = 3;
/// Without value segments.
const ATTACHED_VERSION: u16 = 2;
/// Without attached runs.
const PLAIN_VERSION: u16 = 1;

const FRAME: Frame = Frame {
    magic: b"CUDLMANI",
    versions: PLAIN_VERSION..=MANIFEST_VERSION,
    is_magic: "the magic of a manifest",
};
const FLAG_COUNTS_EXACT: u16 = 1;
const HEADER_BYTES: usize = 8 + 2 + 2 + 16 + 7 * 8 + 4;
const RUN_BYTES: usize = 4 * 8 + 4;
/// An attached run without its ranges, and a range.
const ATTACHED_BYTES_MIN: usize = 8 + 8 + 4;
const RANGE_BYTES: usize = 8 + 8;
/// A value segment without its uses, and a use.
const SEGMENT_BYTES_MIN: usize = 8 + 8 + 4 + 4;
const USE_BYTES: usize = 8 + 8;

/// The list of runs of a directory fragment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Which fragment.
    pub dirfrag: DirFragId,
    /// Grows by one with every replacement.
    pub generation: u64,
    /// The number for the next run. An object of that number may exist all the same, if its writer
    /// died before it could replace the manifest: store runs with put-if-absent, and on a conflict
    /// take the next number.
    pub next_run: u64,
    /// The runs, newest first: of two rows with one name the one in the earlier run counts.
    pub runs: Vec<RunInfo>,
    /// The facts about the runs among them that clients wrote.
    pub attached: Vec<Attached>,
    /// The value segments that its runs point into.
    pub values: Vec<ValueSegment>,
    /// How many names the fragment has.
    pub entries: u64,
    /// How many of them are directories.
    pub subdirs: u64,
    /// Whether `entries` and `subdirs` are exact. They are not after runs were attached by
    /// reference, because their names may exist already; loading the fragment makes them so again.
    pub counts_exact: bool,
    /// The runs have every change of the directory up to this position of the rank's journal,
    /// journalled or not.
    pub position: Seq,
    /// When its content changed last, if that is not known to be stored in its inode: after a crash
    /// a directory may be written before its inode was found. Zeros for no such change.
    pub touched: DirTouch,
}

/// A change of a directory's content, and so of its times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirTouch {
    /// When.
    pub time: Timestamp,
    /// The position of the event in its rank's journal.
    pub seq: Seq,
}

/// A run as its manifest knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunInfo {
    /// Its number.
    pub id: RunId,
    /// How many rows it has, removed ones included.
    pub rows: u64,
    /// How many rows only hide older ones.
    pub removed: u64,
    /// The length of the object.
    pub bytes: u64,
    /// The CRC-32C of the whole object: the manifest means these bytes and no others.
    pub crc: u32,
}

impl RunInfo {
    /// Describes a run.
    #[must_use]
    pub fn of(run: &RunReader<'_>) -> Self {
        let bytes = run.as_bytes();
        Self {
            id: run.id(),
            rows: run.rows(),
            removed: run.removed_rows(),
            bytes: bytes.len() as u64,
            crc: crc32c(bytes),
        }
    }

    /// Checks that `bytes` are the object that the manifest means.
    pub(crate) fn check(&self, bytes: &[u8]) -> Result<(), Malformed> {
        if bytes.len() as u64 != self.bytes {
            return Err(malformed(bytes.len(), "the length that the manifest states"));
        }
        if crc32c(bytes) != self.crc {
            return Err(malformed(0, "the checksum that the manifest states"));
        }
        Ok(())
    }
}

impl Manifest {
    /// The manifest of a fragment without entries.
    #[must_use]
    pub fn new(dirfrag: DirFragId) -> Self {
        Self { dirfrag, next_run: 1, counts_exact: true, ..Self::default() }
    }

    /// The bytes of the object.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        debug_assert_eq!(self.check(), Ok(()), "a manifest that is stored is consistent");
        let version = self.version();
        let mut out = FRAME.begin_version(version);
        out.reserve_exact(HEADER_BYTES + self.runs.len() * RUN_BYTES);
        out.put_u16(if self.counts_exact { FLAG_COUNTS_EXACT } else { 0 });
        put_dirfrag(&mut out, self.dirfrag);
        out.put_u64(self.generation);
        out.put_u64(self.next_run);
        out.put_u64(self.entries);
        out.put_u64(self.subdirs);
        out.put_u64(self.position.0);
        out.put_u64(self.touched.time.0.cast_unsigned());
        out.put_u64(self.touched.seq.0);
        out.put_u32(u32::try_from(self.runs.len()).expect("a fragment has few runs"));
        for run in &self.runs {
            out.put_u64(run.id.0);
            out.put_u64(run.rows);
            out.put_u64(run.removed);
            out.put_u64(run.bytes);
            out.put_u32(run.crc);
        }
        if version > PLAIN_VERSION {
            put_attached(&mut out, &self.attached);
        }
        if version > ATTACHED_VERSION {
            put_values(&mut out, &self.values);
        }
        sealed(out)
    }

    /// How many bytes have to be read for all of it, about: without the garbage in value segments.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let runs = self.runs.iter().map(|run| run.bytes);
        runs.chain(self.values.iter().map(ValueSegment::used)).fold(0, u64::saturating_add)
    }

    /// The first version that can say all of it.
    fn version(&self) -> u16 {
        match (self.attached.is_empty(), self.values.is_empty()) {
            (true, true) => PLAIN_VERSION,
            (false, true) => ATTACHED_VERSION,
            (_, false) => MANIFEST_VERSION,
        }
    }

    /// Puts a run with its columns in the place of some runs, or nothing. Returns the value
    /// segments that no run points into any more; they are not listed then.
    #[must_use]
    pub fn replace_runs(
        &mut self,
        replaced: Range<usize>,
        new: Option<(RunInfo, &Columns)>,
    ) -> Vec<RunId> {
        let info = new.map(|(info, _)| info);
        let old: Vec<RunId> = self.runs.splice(replaced, info).map(|run| run.id).collect();
        self.attached.retain(|attached| !old.contains(&attached.run));
        let written = new.and_then(|(_, columns)| columns.segment.as_ref());
        self.values.extend(written.map(|(_, segment)| segment.clone()));
        for segment in &mut self.values {
            segment.uses.retain(|(run, _)| !old.contains(run));
            if let Some((info, columns)) = new
                && let Some(bytes) = columns.uses.get(&segment.id)
            {
                segment.uses.push((info.id, *bytes));
            }
        }
        let gone = self.values.extract_if(.., |segment| segment.uses.is_empty());
        gone.map(|segment| segment.id).collect()
    }

    /// Reads a manifest.
    ///
    /// # Errors
    /// If the bytes are anything but the result of [`Manifest::encode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        decode(bytes).map_err(|malformed| FormatError::new("manifest", malformed))
    }

    /// Reads the manifest of a certain fragment; errors name the object.
    ///
    /// # Errors
    /// As [`Manifest::decode`], and if it is the manifest of another fragment.
    pub fn decode_as(dirfrag: DirFragId, bytes: &[u8]) -> Result<Self, FormatError> {
        decode(bytes)
            .and_then(|manifest| match manifest.dirfrag == dirfrag {
                true => Ok(manifest),
                false => Err(malformed(12, "the fragment that the object's name states")),
            })
            .map_err(|malformed| FormatError::new(manifest_name(dirfrag), malformed))
    }

    /// Checks the rules between the fields.
    fn check(&self) -> Result<(), &'static str> {
        let mut seen = BTreeSet::new();
        for run in &self.runs {
            let is_clients = run.id.is_clients();
            if (run.id.0 >= self.next_run && !is_clients) || !seen.insert(run.id) {
                return Err("unique run numbers below the next one");
            }
            let known = self.attached.iter().filter(|attached| attached.run == run.id).count();
            if known != usize::from(is_clients) {
                return Err("what is known of a run of a client, and of no other");
            }
            if run.removed > run.rows {
                return Err("at most as many removed rows as rows");
            }
        }
        if self.attached.iter().any(|attached| !seen.contains(&attached.run)) {
            return Err("attached runs that are listed");
        }
        self.check_values(&seen)?;
        if self.counts_exact && self.subdirs > self.entries {
            return Err("at most as many directories as entries");
        }
        Ok(())
    }

    fn check_values(&self, runs: &BTreeSet<RunId>) -> Result<(), &'static str> {
        let mut seen = BTreeSet::new();
        for segment in &self.values {
            if segment.id.0 >= self.next_run || !seen.insert(segment.id) {
                return Err("unique numbers of value segments below the next run's");
            }
            let mut users = BTreeSet::new();
            let is_legal = |(run, bytes): &(RunId, u64)| {
                runs.contains(run) && !run.is_clients() && *bytes <= segment.bytes
            };
            if segment.uses.is_empty()
                || !segment.uses.iter().all(|used| is_legal(used) && users.insert(used.0))
            {
                return Err("value segments with runs that are listed");
            }
        }
        Ok(())
    }
}

fn decode(bytes: &[u8]) -> Result<Manifest, Malformed> {
    let (version, mut reader) = FRAME.open(bytes)?;
    let end = reader.offset() + reader.rest().len();
    let flags = reader.u16()?;
    if flags & !FLAG_COUNTS_EXACT != 0 {
        return Err(malformed(reader.offset() - 2, "flags that this version defines"));
    }
    let mut manifest = Manifest {
        counts_exact: flags & FLAG_COUNTS_EXACT != 0,
        dirfrag: read_dirfrag(&mut reader)?,
        generation: reader.u64()?,
        next_run: reader.u64()?,
        entries: reader.u64()?,
        subdirs: reader.u64()?,
        position: Seq(reader.u64()?),
        touched: DirTouch { time: Timestamp(reader.u64()?.cast_signed()), seq: Seq(reader.u64()?) },
        runs: Vec::new(),
        attached: Vec::new(),
        values: Vec::new(),
    };
    let count = reader.u32()? as usize;
    // Checked before anything is allocated for it.
    let left = reader.rest().len();
    let is_plain = version == PLAIN_VERSION;
    let fits = count.checked_mul(RUN_BYTES).is_some_and(|runs| match is_plain {
        true => runs == left,
        false => runs < left,
    });
    if !fits {
        return Err(malformed(reader.offset() - 4, "as many runs as there are bytes for"));
    }
    manifest.runs.reserve_exact(count);
    for _ in 0..count {
        manifest.runs.push(read_run(&mut reader)?);
    }
    if !is_plain {
        manifest.attached = read_attached(&mut reader, end)?;
        if version > ATTACHED_VERSION {
            manifest.values = read_values(&mut reader, end)?;
        }
        reader.end()?;
        if manifest.version() != version {
            return Err(malformed(
                FRAME.magic.len(),
                "the first version that can say what it says",
            ));
        }
    }
    manifest.check().map_err(|cause| malformed(HEADER_BYTES, cause))?;
    Ok(manifest)
}

fn put_attached(out: &mut Vec<u8>, attached: &[Attached]) {
    out.put_u32(u32::try_from(attached.len()).expect("a fragment has few runs"));
    for Attached { run, position, ranges } in attached {
        out.put_u64(run.0);
        out.put_u64(position.0);
        out.put_u32(u32::try_from(ranges.len()).expect("a client has few ranges"));
        for range in ranges {
            out.put_u64(range.start);
            out.put_u64(range.end);
        }
    }
}

/// Reads the bytes of [`put_attached`], up to `end`.
fn read_attached(reader: &mut Reader<'_>, end: usize) -> Result<Vec<Attached>, Malformed> {
    let left = |reader: &Reader<'_>| end.saturating_sub(reader.offset());
    let start = *reader;
    let count = reader.u32()? as usize;
    // Checked before anything is allocated for it.
    if count > left(reader) / ATTACHED_BYTES_MIN {
        return Err(start.malformed("as many attached runs as there are bytes for"));
    }
    let mut attached = Vec::with_capacity(count);
    for _ in 0..count {
        let (run, position) = (RunId(reader.u64()?), Seq(reader.u64()?));
        let start = *reader;
        let count = reader.u32()? as usize;
        if count > left(reader) / RANGE_BYTES {
            return Err(start.malformed("as many ranges as there are bytes for"));
        }
        let mut ranges = Vec::with_capacity(count);
        for _ in 0..count {
            ranges.push(InoRange { start: reader.u64()?, end: reader.u64()? });
        }
        attached.push(Attached { run, position, ranges });
    }
    Ok(attached)
}

fn put_values(out: &mut Vec<u8>, values: &[ValueSegment]) {
    out.put_u32(u32::try_from(values.len()).expect("a fragment has few value segments"));
    for ValueSegment { id, bytes, crc, uses } in values {
        out.put_u64(id.0);
        out.put_u64(*bytes);
        out.put_u32(*crc);
        out.put_u32(u32::try_from(uses.len()).expect("a fragment has few runs"));
        for (run, bytes) in uses {
            out.put_u64(run.0);
            out.put_u64(*bytes);
        }
    }
}

/// Reads the bytes of [`put_values`], which end before `end`.
fn read_values(reader: &mut Reader<'_>, end: usize) -> Result<Vec<ValueSegment>, Malformed> {
    let left = |reader: &Reader<'_>| end.saturating_sub(reader.offset());
    let start = *reader;
    let count = reader.u32()? as usize;
    // Checked before anything is allocated for it.
    if count > left(reader) / SEGMENT_BYTES_MIN {
        return Err(start.malformed("as many value segments as there are bytes for"));
    }
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        let (id, bytes, crc) = (RunId(reader.u64()?), reader.u64()?, reader.u32()?);
        let start = *reader;
        let count = reader.u32()? as usize;
        if count > left(reader) / USE_BYTES {
            return Err(start.malformed("as many uses as there are bytes for"));
        }
        let mut uses = Vec::with_capacity(count);
        for _ in 0..count {
            uses.push((RunId(reader.u64()?), reader.u64()?));
        }
        values.push(ValueSegment { id, bytes, crc, uses });
    }
    Ok(values)
}

fn read_run(reader: &mut Reader<'_>) -> Result<RunInfo, Malformed> {
    Ok(RunInfo {
        id: RunId(reader.u64()?),
        rows: reader.u64()?,
        removed: reader.u64()?,
        bytes: reader.u64()?,
        crc: reader.u32()?,
    })
}

#[cfg(test)]
mod tests;
