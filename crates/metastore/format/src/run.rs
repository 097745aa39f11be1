//! Runs: immutable tables of rows, sorted by name.
//!
//! A run is `header block* filters index footer`. Blocks carry their own checksum and the index
//! their boundaries, so that one block of a remote object can be read ([`RunIndex`]); [`RunReader`]
//! reads the whole object, or some blocks. Not here: the list of a fragment's runs (the manifest)
//! and their overlay (`load`).
//!
//! Invariant: names strictly increase through a run, and every byte of it is under a checksum.

mod block;
mod cursor;
mod filter;
mod index;
mod reader;
mod stream;
mod writer;

use types::bytes::{Malformed, Put, Reader};
use types::{DirFragId, Ino};

use crate::error::{KNOWN_VERSION, malformed};
use crate::manifest::RunInfo;
use crate::name::NameBuf;
use crate::object::{RunId, put_dirfrag, read_dirfrag};
use crate::row::{Base, read_value};
use crate::rows::Rows;
use crate::values::VALUE_BYTES_MIN;

pub use cursor::RunCursor;
pub use index::{RunIndex, RunRange};
pub use reader::{RunEnds, RunReader};
#[cfg(test)]
pub(crate) use stream::CHUNK_BYTES;
pub(crate) use stream::{Moved, RunStream, StreamCursor};
pub use writer::{Columns, RunBuilder};

/// The run format that this build writes. It reads those before: 3 had no pointers to value
/// segments; 2 had no filters, and its header counted the rows; 1 had no stripes, and the value in
/// their place is read as the default stripe.
pub const RUN_VERSION: u16 = 4;
/// The first version with filters, and with the counts behind the index.
const FILTERED_VERSION: u16 = 3;
/// A block ends with the row that makes its rows at least this many bytes.
pub const BLOCK_BYTES_TARGET: usize = 16 * 1024;
/// Every so many rows of a block a name is stored in full, to be found by binary search.
pub const RESTART_ROWS: usize = 16;
/// How many rows are looked up at once.
const LOOKUP_ROWS: usize = 32;

const MAGIC: &[u8; 8] = b"CUDLRUN1";
const END_MAGIC: &[u8; 8] = b"CUDLRUNE";
const HEADER_BYTES: usize = 8 + 2 + 2 + 16 + 3 * 8 + Base::BYTES;
/// How many rows there are, and how many of them are removals: behind the index.
const STATS_BYTES: usize = 8 + 8;
const FOOTER_BYTES: usize = 8 + 4 + 4 + 8;
/// An index entry without the name.
const INDEX_ENTRY_BYTES: usize = 4 + 4 + 1;
/// The shortest row: two lengths, a name of one byte and the tag of a removed row.
const ROW_BYTES_MIN: usize = 4;
/// The bytes behind the restarts of a block: their number and the checksum.
const BLOCK_END_BYTES: usize = 4 + 4;

/// Sorts rows by name and encodes them as a run; of several rows with one name the last counts.
#[must_use]
pub fn encode_run(dirfrag: DirFragId, id: RunId, rows: &Rows) -> Vec<u8> {
    write_rows(dirfrag, id, rows).finish().0
}

/// As [`encode_run`], with long values in a value segment of the same number.
#[must_use]
pub fn encode_columns(dirfrag: DirFragId, id: RunId, rows: &Rows) -> (Vec<u8>, RunInfo, Columns) {
    let mut builder =
        RunBuilder::with_base(dirfrag, id, rows.base(), 0).with_values(VALUE_BYTES_MIN);
    for key in writer::sorted(rows) {
        let (name, value) = rows.row(key.place);
        let value = read_value(&mut Reader::new(value), &rows.base())
            .expect("the buffer holds only what push encoded");
        builder.push(name, &value);
    }
    builder.finish_columns()
}

/// As [`encode_run`], for a client: the number is [`RunId::of_client`], with `first` an inode
/// number of the client's in the rows.
#[must_use]
pub fn encode_clients_run(dirfrag: DirFragId, first: Ino, rows: &Rows) -> (RunId, Vec<u8>) {
    let mut writer = write_rows(dirfrag, RunId::default(), rows);
    writer.name_by_rows(first);
    let (bytes, info) = writer.finish();
    (info.id, bytes)
}

fn write_rows(dirfrag: DirFragId, id: RunId, rows: &Rows) -> RunBuilder {
    debug_assert!(!rows.has_pointers(), "whoever writes pointers has to count them");
    let mut writer = RunBuilder::with_base(dirfrag, id, rows.base(), rows.bytes());
    // Rows are looked up a few at a time: none of these look-ups waits for another, so the
    // processor waits for memory once per batch and not once per row.
    let mut batch = Vec::with_capacity(LOOKUP_ROWS);
    for keys in writer::sorted(rows).chunks(LOOKUP_ROWS) {
        batch.extend(keys.iter().map(|key| rows.row(key.place)));
        for (name, value) in batch.drain(..) {
            writer.push_encoded(name, value);
        }
    }
    writer
}

/// Reads `data` as the rows of a block, as if its checksum were right.
pub(crate) fn fuzz_block(data: &[u8]) {
    let Some((first_bytes, body)) = data.split_first() else {
        return;
    };
    let Some((first, body)) = body.split_at_checked(usize::from(*first_bytes & 7)) else {
        return;
    };
    let rows = body.last_chunk::<4>().map_or(0, |count| count[0]);
    for rows in
        usize::from(rows.saturating_sub(1)) * RESTART_ROWS..=usize::from(rows) * RESTART_ROWS
    {
        let Ok(block) = block::Block::frame(body, 0, rows) else {
            continue;
        };
        let (mut cursor, mut name) = (block.cursor(), NameBuf::new());
        while let Ok(Some(_)) = cursor.advance(&Base::default(), &mut name, || first) {}
        let _ = block.get(&Base::default(), block::BlockProbe { first, name: first });
        let _ = block
            .get(&Base::default(), block::BlockProbe { first, name: &body[..body.len().min(8)] });
        let _ = block.scan(&Base::default(), block::BlockProbe { first, name: first });
    }
}

/// The first bytes of a run.
#[derive(Clone, Copy, Debug)]
struct Header {
    version: u16,
    dirfrag: DirFragId,
    id: RunId,
    rows: u64,
    removed: u64,
    base: Base,
}

impl Header {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(MAGIC);
        out.put_u16(RUN_VERSION);
        out.put_u16(0); // flags: this version defines none
        put_dirfrag(out, self.dirfrag);
        out.put_u64(self.id.0);
        // Where the counts were: when the header is written they are not known yet.
        out.put_u64(0);
        out.put_u64(0);
        self.base.put(out);
    }

    fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.take(MAGIC.len())? != MAGIC {
            return Err(malformed(0, "the magic of a run"));
        }
        let version = reader.u16()?;
        if !(1..=RUN_VERSION).contains(&version) {
            return Err(malformed(MAGIC.len(), KNOWN_VERSION));
        }
        if reader.u16()? != 0 {
            return Err(malformed(MAGIC.len() + 2, "flags that this version defines"));
        }
        let header = Self {
            version,
            dirfrag: read_dirfrag(&mut reader)?,
            id: RunId(reader.u64()?),
            rows: reader.u64()?,
            removed: reader.u64()?,
            base: Base::read(&mut reader)?,
        };
        debug_assert_eq!(reader.offset(), HEADER_BYTES, "the header has a fixed length");
        header.check_counts()?;
        if version >= FILTERED_VERSION && header.rows > 0 {
            return Err(malformed(HEADER_BYTES - Base::BYTES - 16, "zero where the counts were"));
        }
        Ok(header)
    }

    fn check_counts(&self) -> Result<(), Malformed> {
        if self.removed > self.rows {
            return Err(malformed(
                HEADER_BYTES - Base::BYTES,
                "at most as many removed rows as rows",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
