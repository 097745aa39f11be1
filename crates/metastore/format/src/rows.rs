//! A buffer of captured rows.
//!
//! The metadata server captures rows on its only thread, under a budget of a millisecond; sorting
//! and encoding them is left to a worker, which takes the buffer by value. Hence a push is a plain
//! append. Not a table: nothing can be looked up in it.
//!
//! Invariant: every row in the buffer decodes; later pushes of a name are newer.

use types::bytes::Reader;
use types::{DirFragId, NAME_BYTES_MAX, check_name};

use crate::object::RunId;
use crate::row::{Base, Row, RowValue, put_value, read_value};
use crate::run::encode_run;
use crate::values::VALUE_BYTES_MIN;

/// Rows in the order in which they were pushed, encoded back to back.
#[derive(Clone, Default)]
pub struct Rows {
    /// For each row a byte for the length of the name, the name, the value.
    bytes: Vec<u8>,
    /// Where each row starts.
    starts: Vec<usize>,
    /// Set by the first inode.
    base: Option<Base>,
    /// Some row may have a value that belongs into a value segment, or is in one.
    has_large: bool,
    has_pointers: bool,
}

/// Where a buffer holds a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowPlace {
    pub(crate) start: usize,
    end: usize,
}

impl Rows {
    /// An empty buffer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a row. Costs one encoding and no allocation beyond growing the buffer. If the name
    /// was pushed before, this row is the one that counts.
    ///
    /// The name must be legal ([`check_name`]); the namespace holds no illegal ones.
    #[inline]
    pub fn push(&mut self, name: &[u8], value: RowValue<'_>) {
        let name_bytes = match u8::try_from(name.len()) {
            Ok(count @ 1..) => count,
            Ok(0) | Err(_) => panic!("a name has 1 to {NAME_BYTES_MAX} bytes"),
        };
        debug_assert!(check_name(name).is_ok(), "the namespace holds only legal names");
        let base = match (&self.base, &value) {
            (Some(base), _) => *base,
            (None, RowValue::Inode(record)) => *self.base.insert(Base::of(record)),
            (None, RowValue::Removed | RowValue::Remote { .. }) => Base::default(),
        };
        self.note(&value);
        self.starts.push(self.bytes.len());
        self.bytes.push(name_bytes);
        self.bytes.extend_from_slice(name);
        put_value(&mut self.bytes, &base, &value);
    }

    #[inline]
    fn note(&mut self, value: &RowValue<'_>) {
        if let RowValue::Inode(record) = value {
            self.has_large |= record.data.len() + record.extra.len() >= VALUE_BYTES_MIN;
            self.has_pointers |= record.pointer.is_some();
        }
    }

    /// Whether the content of some inode may be in a value segment.
    #[must_use]
    pub fn has_pointers(&self) -> bool {
        self.has_pointers
    }

    /// How many bytes of content and attributes belong into a value segment.
    #[must_use]
    pub fn large_bytes(&self) -> u64 {
        if !self.has_large {
            return 0;
        }
        let large = self.iter().filter_map(|row| match row.value {
            RowValue::Inode(record) if record.is_large(VALUE_BYTES_MIN) => {
                Some((record.data.len() + record.extra.len()) as u64)
            }
            RowValue::Inode(_) | RowValue::Remote { .. } | RowValue::Removed => None,
        });
        large.sum()
    }

    /// How many rows were pushed, repeated names included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether nothing was pushed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// How many bytes the rows take in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.starts.len() * size_of::<usize>()
    }

    /// The names in the order in which they were pushed.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.places().map(|place| self.row(place).0)
    }

    /// Takes out the rows from a position on, in the order in which they were pushed.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Self {
        let Some(start) = self.starts.get(at).copied() else { return Self::new() };
        let mut starts = self.starts.split_off(at);
        starts.iter_mut().for_each(|place| *place -= start);
        Self { bytes: self.bytes.split_off(start), starts, ..*self }
    }

    /// The row that was pushed last.
    #[must_use]
    pub fn last(&self) -> Option<Row<'_>> {
        self.iter_from(self.len().checked_sub(1)?).next()
    }

    /// Puts another value in place of that of the row that was pushed last.
    pub fn replace_last(&mut self, value: RowValue<'_>) {
        let Some(start) = self.starts.last().copied() else { return };
        let name_bytes = usize::from(self.bytes[start]);
        self.bytes.truncate(start + 1 + name_bytes);
        self.note(&value);
        let base = self.base();
        put_value(&mut self.bytes, &base, &value);
    }

    /// Forgets all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.starts.clear();
        (self.base, self.has_large, self.has_pointers) = (None, false, false);
    }

    /// The rows in the order in which they were pushed.
    pub fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        self.iter_from(0)
    }

    /// The rows from a position in the order in which they were pushed.
    pub fn iter_from(&self, start: usize) -> impl Iterator<Item = Row<'_>> {
        let base = self.base();
        self.places().skip(start).map(move |place| {
            let (name, value) = self.row(place);
            let value = read_value(&mut Reader::new(value), &base)
                .expect("the buffer holds only what push encoded");
            Row { name, value }
        })
    }

    /// The names and their encoded values, in the order in which they were pushed: the content of a
    /// run, except for the prefixes that names share.
    pub fn encoded(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.places().map(|place| self.row(place))
    }

    /// Sorts the rows by name and encodes them as a run; of several rows with one name the last
    /// counts. Meant for a worker: it takes a fraction of a second per million rows.
    #[must_use]
    pub fn into_run(self, dirfrag: DirFragId, id: RunId) -> Vec<u8> {
        encode_run(dirfrag, id, &self)
    }

    /// Makes room for rows that are known to come.
    pub(crate) fn reserve(&mut self, rows: usize, bytes: usize) {
        self.starts.reserve(rows);
        self.bytes.reserve(bytes);
    }

    /// The base of the rows.
    pub(crate) fn base(&self) -> Base {
        self.base.unwrap_or_default()
    }

    /// Where the rows lie, in the order in which they were pushed.
    pub(crate) fn places(&self) -> impl Iterator<Item = RowPlace> {
        let ends = self.starts.iter().copied().skip(1).chain([self.bytes.len()]);
        self.starts.iter().zip(ends).map(|(start, end)| RowPlace { start: *start, end })
    }

    /// The name and the encoded value of one row.
    #[inline]
    pub(crate) fn row(&self, place: RowPlace) -> (&[u8], &[u8]) {
        let name_bytes = usize::from(self.bytes[place.start]);
        self.bytes[place.start + 1..place.end].split_at(name_bytes)
    }
}

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rows").field("len", &self.len()).field("bytes", &self.bytes()).finish()
    }
}

#[cfg(test)]
mod tests;
