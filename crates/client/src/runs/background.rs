//! The runs of a journal, written while the journal grows.
//!
//! Jobs mostly create files in directories of their own. A create is a complete row, independent of
//! later events, so that the rows of a directory can be sorted and stored in *pieces* as soon as
//! there are enough of them; each piece is a run. At the end only the rows in memory are written,
//! and the rest of the journal is put together.
//!
//! A journal with other changes in its own directories is converted as a whole, at its merge
//! ([`ByReference::of`]). Not here: threads, and the store.
//!
//! Invariant: of the rows there are in memory at most [`ROWS_BYTES_MAX`]; of those that are stored
//! eight bytes each, by which a name that is given twice is found.

use journal::{Create, Event, JournalBuffer, SegmentHeader};
use metastore::{DirRun, InodeRecord, RowValue, Rows, RunList};
use types::{Attr, AttrChange, FileType, Ino, Map, Origin, Seq, Timestamp};

use super::piece::{Piece, StoredRun};
use super::tree::Tree;
use super::{ByReference, ByValue, RunThreshold, read_block};

/// A piece is written when a directory has this many bytes of rows: some hundred thousand names.
/// Each piece is an object, and a run that every reader of the directory must read.
pub(super) const PIECE_BYTES: usize = 8 << 20;
/// The pieces of a directory with many pieces grow up to this: the cost of a merge and of a look-up
/// grows with their number.
pub(super) const LARGE_PIECE_BYTES: usize = 4 * PIECE_BYTES;
/// A piece is at least this part of those before it.
const PIECE_PART: usize = 4;
/// All rows in memory.
pub(super) const ROWS_BYTES_MAX: usize = 8 * PIECE_BYTES;
/// So many directories are kept in mind, with their names.
const DIRS_MAX: usize = 1 << 16;

/// See the module documentation.
#[derive(Debug)]
pub struct RunCollector {
    root: Ino,
    worth: RunThreshold,
    tree: Tree,
    dirs: Map<Ino, Dir>,
    /// Bytes of rows of all directories, and when there may be a piece.
    bytes: usize,
    look_at: usize,
    /// The smallest inode number that the journal gave, and the largest.
    inos: (Ino, Ino),
    blocks: Vec<BlockNote>,
    /// Of the first block.
    journal: u32,
    last: Seq,
}

/// A directory that the journal made; or the root.
#[derive(Debug, Default)]
struct Dir {
    /// The content of its row without the times.
    name: Vec<u8>,
    attr: Attr,
    rows: Rows,
    /// The inode of its first row in memory.
    first: Ino,
    names: u64,
    subdirs: u64,
    written: Vec<StoredRun>,
    /// Bytes that the rows of its pieces had in memory.
    in_pieces: usize,
}

impl Dir {
    /// So many bytes of rows are worth a piece.
    fn piece_bytes(&self) -> usize {
        (self.in_pieces / PIECE_PART).clamp(PIECE_BYTES, LARGE_PIECE_BYTES)
    }
}

/// The result of the last look-up in a block.
#[derive(Clone, Copy, Debug)]
struct BlockNote {
    events: u64,
    /// The directory in which all of them create something, if there is one.
    only: Option<Ino>,
}

impl RunCollector {
    /// A journal of the subtree with this root, which has no names on the server.
    #[must_use]
    pub fn new(root: Ino, is_empty: bool, worth: RunThreshold) -> Self {
        let tree = Tree::new(is_empty.then_some(root));
        let mut dirs = Map::default();
        if is_empty {
            dirs.insert(root, Dir::default());
        }
        let (inos, look_at) = ((Ino(u64::MAX), Ino(0)), PIECE_BYTES);
        let (blocks, bytes, journal, last) = (Vec::new(), 0, 0, Seq(0));
        Self { root, worth, tree, dirs, bytes, look_at, inos, blocks, journal, last }
    }

    /// Takes the next block of the journal.
    ///
    /// # Errors
    /// If the journal has to be told from its whole. Nothing may follow.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), ByValue> {
        let block = read_block(bytes)?;
        if self.blocks.is_empty() {
            self.journal = journal::checksum(bytes);
        }
        let (mut count, mut only) = (0, None);
        let mut events = block.events();
        loop {
            let note = |dir| if count == 0 || only == Some(dir) { Some(dir) } else { None };
            if let Some((seq, _, create)) = events.next_create().map_err(|_| ByValue::Senseless)? {
                only = note(create.parent);
                self.last = seq;
                self.create(&create)?;
            } else if let Some(record) = events.next_event().map_err(|_| ByValue::Senseless)? {
                only = None;
                self.last = record.seq;
                self.other(&record.event)?;
            } else {
                break;
            }
            count += 1;
        }
        self.blocks.push(BlockNote { events: count, only });
        Ok(())
    }

    #[inline]
    fn create(&mut self, create: &Create<'_>) -> Result<(), ByValue> {
        self.inos = (self.inos.0.min(create.ino), self.inos.1.max(create.ino));
        let Some(dir) = self.dirs.get_mut(&create.parent) else {
            return self.create_elsewhere(create);
        };
        if dir.rows.is_empty() {
            dir.first = create.ino;
        }
        dir.names += 1;
        (dir.attr.mtime, dir.attr.ctime) = (create.time, create.time);
        if create.file_type() == FileType::Directory {
            dir.subdirs += 1;
            return self.make_dir(create);
        }
        let before = dir.rows.bytes();
        dir.rows.push(create.name, row(&attr_of(create), create.data));
        self.bytes += dir.rows.bytes() - before;
        Ok(())
    }

    /// In a directory that is not the journal's own.
    #[cold]
    fn create_elsewhere(&mut self, create: &Create<'_>) -> Result<(), ByValue> {
        if (self.inos.0..=self.inos.1).contains(&create.parent) {
            // Below a file that the journal made: the namespace will say.
            return Err(ByValue::Changes);
        }
        if create.file_type() == FileType::Directory { self.make_dir(create) } else { Ok(()) }
    }

    /// Its row is written at the end: by then it is known when it changed last.
    fn make_dir(&mut self, create: &Create<'_>) -> Result<(), ByValue> {
        if self.dirs.len() >= DIRS_MAX || !create.data.is_empty() {
            return Err(ByValue::Small);
        }
        self.tree.make(create.ino, create.parent);
        let dir = Dir { name: create.name.to_vec(), attr: attr_of(create), ..Dir::default() };
        match self.dirs.insert(create.ino, dir) {
            None => Ok(()),
            Some(_) => Err(ByValue::TakenTwice),
        }
    }

    /// Everything but a create. In its own directories only the last file may still change.
    #[cold]
    fn other(&mut self, event: &Event<'_>) -> Result<(), ByValue> {
        let is_own = |dir| self.dirs.contains_key(&dir);
        let is_elsewhere = match *event {
            Event::SetAttr { ino, home, ref change, time } if !is_own(ino) && is_own(home) => {
                return self.change(ino, home, change, time);
            }
            Event::SetAttr { ino, home, .. }
            | Event::SetXattr { ino, home, .. }
            | Event::SetData { ino, home, .. } => !is_own(ino) && !is_own(home),
            Event::Unlink { parent, ino, .. } | Event::Rmdir { parent, ino, .. } => {
                !is_own(ino) && !is_own(parent)
            }
            Event::Rename { parent, new_parent, ref moved, ref exchanged, .. } => {
                let back = exchanged.as_ref().is_some_and(|back| is_own(back.attr.ino));
                !back && [parent, new_parent, moved.attr.ino].into_iter().all(|ino| !is_own(ino))
            }
            Event::Session { .. } => true,
            Event::Create(_)
            | Event::Link { .. }
            | Event::SetPolicy { .. }
            | Event::Merged { .. }
            | Event::Stored { .. } => false,
        };
        if is_elsewhere { Ok(()) } else { Err(ByValue::Changes) }
    }

    /// Changes attributes as the namespace does. Mostly this is the length of a file whose content
    /// was written before its length was known.
    fn change(
        &mut self,
        ino: Ino,
        home: Ino,
        change: &AttrChange,
        time: Timestamp,
    ) -> Result<(), ByValue> {
        let dir = self.dirs.get_mut(&home).ok_or(ByValue::Changes)?;
        let before = dir.rows.bytes();
        let last = dir.rows.last().map(|row| row.value);
        let (mut attr, data) = match last {
            Some(RowValue::Inode(known)) if known.attr.ino == ino => {
                (known.attr, known.data.to_vec())
            }
            Some(RowValue::Inode(_) | RowValue::Removed | RowValue::Remote { .. }) | None => {
                return Err(ByValue::Changes);
            }
        };
        let AttrChange { mode: None, uid: None, gid: None, size, atime, mtime } = *change else {
            return Err(ByValue::Changes);
        };
        if let Some(size) = size {
            (attr.size, attr.mtime) = (size, time);
        }
        attr.atime = atime.unwrap_or(attr.atime);
        attr.mtime = mtime.unwrap_or(attr.mtime);
        attr.ctime = time;
        dir.rows.replace_last(row(&attr, &data));
        self.bytes = self.bytes + dir.rows.bytes() - before;
        Ok(())
    }

    /// A piece that is to be written now, if there is one.
    ///
    /// # Errors
    /// If the rows in memory are too many and of too many directories: the journal is not worth it.
    pub fn next_piece(&mut self) -> Result<Option<Piece>, ByValue> {
        if self.bytes < self.look_at {
            return Ok(None);
        }
        self.look_at = self.bytes + PIECE_BYTES / 16;
        let largest = self.dirs.iter().max_by_key(|(ino, dir)| (dir.rows.bytes(), **ino));
        let Some((ino, dir)) = largest else { return Ok(None) };
        if dir.rows.bytes() < dir.piece_bytes() && self.bytes < ROWS_BYTES_MAX {
            return Ok(None);
        }
        let (ino, is_worth) = (*ino, dir.rows.len() as u64 >= self.worth.names_min);
        if is_worth { Ok(self.piece(ino)) } else { Err(ByValue::Small) }
    }

    /// Everything there is, as if it were enough.
    #[cfg(test)]
    pub(super) fn every_piece(&mut self) -> Vec<Piece> {
        let mut all: Vec<_> = self.dirs.keys().copied().collect();
        all.sort_unstable();
        all.into_iter().filter_map(|dir| self.piece(dir)).collect()
    }

    fn piece(&mut self, ino: Ino) -> Option<Piece> {
        let dir = self.dirs.get_mut(&ino).filter(|dir| !dir.rows.is_empty())?;
        let rows = std::mem::take(&mut dir.rows);
        assert!(self.bytes >= rows.bytes(), "{ino}: the bytes of the rows are counted");
        self.bytes -= rows.bytes();
        dir.in_pieces += rows.bytes();
        self.look_at = PIECE_BYTES;
        Some(Piece { dir: ino, first: dir.first, rows })
    }

    /// A piece is stored.
    ///
    /// # Errors
    /// If a name is in another one, too.
    pub fn written(&mut self, part: StoredRun) -> Result<(), ByValue> {
        let Some(dir) = self.dirs.get_mut(&part.dir) else { return Ok(()) };
        let twice = dir.written.iter().any(|known| known.meets(&part));
        dir.written.push(part);
        if twice { Err(ByValue::TakenTwice) } else { Ok(()) }
    }

    /// The stored pieces: useless, if the job gives up.
    pub fn give_up(&mut self) -> Vec<StoredRun> {
        self.dirs.drain().flat_map(|(_, dir)| dir.written).collect()
    }

    /// The journal ends: the remaining rows of the directories that become runs.
    ///
    /// # Errors
    /// If there are none.
    pub fn end(&mut self) -> Result<Vec<Piece>, ByValue> {
        let Self { tree, dirs, worth, .. } = self;
        tree.choose(*worth, |dir| dirs.get(&dir).map(|dir| dir.names));
        if tree.is_empty() {
            return Err(ByValue::Small);
        }
        let chosen = tree.chosen();
        for ino in &chosen {
            self.push_dir(*ino);
        }
        let pieces: Vec<_> = chosen.iter().filter_map(|dir| self.piece(*dir)).collect();
        Ok(pieces.into_iter().flat_map(Piece::halves).collect())
    }

    /// The stored pieces of directories that do not become runs, once all pieces are stored.
    pub fn take_useless(&mut self) -> Vec<StoredRun> {
        let Self { tree, dirs, .. } = self;
        let others = dirs.iter_mut().filter(|(ino, _)| !tree.is_chosen(**ino));
        others.flat_map(|(_, dir)| std::mem::take(&mut dir.written)).collect()
    }

    /// The row of a directory in the one above it, if that becomes a run, too.
    fn push_dir(&mut self, ino: Ino) {
        if self.tree.is_top(ino) {
            return;
        }
        let (Some(above), Some(dir)) = (self.tree.parent(ino), self.dirs.get_mut(&ino)) else {
            return;
        };
        let (name, attr) = (std::mem::take(&mut dir.name), dir.attr);
        if let Some(above) = self.dirs.get_mut(&above) {
            if above.rows.is_empty() {
                above.first = ino;
            }
            let before = above.rows.bytes();
            above.rows.push(&name, row(&attr, &[]));
            self.bytes += above.rows.bytes() - before;
        }
    }

    /// The merge request, now that all pieces are stored.
    ///
    /// # Errors
    /// If there are none, or too many for one list.
    pub fn finish(
        mut self,
        header: &SegmentHeader,
        blocks: &[impl AsRef<[u8]>],
    ) -> Result<ByReference, ByValue> {
        debug_assert_eq!(blocks.len(), self.blocks.len(), "it has seen the journal");
        let mut dirs = Vec::new();
        for ino in self.tree.chosen() {
            let Some(dir) = self.dirs.get_mut(&ino) else { continue };
            let parts = std::mem::take(&mut dir.written);
            let touched = dir.attr.mtime;
            // A run says no more than how many of its names are directories at the most.
            let mut left = dir.subdirs;
            dirs.extend(parts.iter().rev().map(|part| {
                let subdirs = left.min(part.info.rows);
                left -= subdirs;
                DirRun { dir: ino, run: part.info, subdirs, touched }
            }));
        }
        if dirs.is_empty() {
            return Err(ByValue::Small);
        }
        if dirs.len() > metastore::ATTACHED_DIRS_MAX {
            return Err(ByValue::TooLarge);
        }
        let mut rest = JournalBuffer::new(header.first_seq, false);
        let (events, created) = self.divide(blocks, &mut rest)?;
        rest.close_block();
        let list = RunList { journal: self.journal, last: self.last, dirs, proof: None };
        let (objects, blocks) = (Vec::new(), rest.take_blocks());
        Ok(ByReference { list, objects, header: *header, blocks, events, created })
    }

    /// Puts events that the runs do not contain into the rest. Returns the number of events in the
    /// runs, and the number of creates among them.
    fn divide(
        &self,
        blocks: &[impl AsRef<[u8]>],
        rest: &mut JournalBuffer,
    ) -> Result<(u64, u64), ByValue> {
        let (mut events, mut created) = (0, 0);
        let is_run = |dir| self.tree.is_chosen(dir);
        for (bytes, note) in blocks.iter().zip(&self.blocks) {
            if note.only.is_some_and(is_run) {
                (events, created) = (events + note.events, created + note.events);
                continue;
            }
            let block = read_block(bytes.as_ref())?;
            let mut records = block.events();
            while let Some(record) = records.next_event().map_err(|_| ByValue::Senseless)? {
                match record.event {
                    Event::Create(create) if is_run(create.parent) => created += 1,
                    Event::SetAttr { home, ino, .. } if is_run(home) && ino != self.root => {}
                    ref event @ (Event::Create(_)
                    | Event::Link { .. }
                    | Event::Unlink { .. }
                    | Event::Rmdir { .. }
                    | Event::Rename { .. }
                    | Event::SetAttr { .. }
                    | Event::SetXattr { .. }
                    | Event::SetData { .. }
                    | Event::SetPolicy { .. }
                    | Event::Session { .. }
                    | Event::Merged { .. }
                    | Event::Stored { .. }) => {
                        rest.append(Origin::default(), event);
                        continue;
                    }
                }
                events += 1;
            }
        }
        for ino in self.tree.chosen().into_iter().filter(|ino| self.tree.is_top(*ino)) {
            let Some(dir) = self.dirs.get(&ino) else { continue };
            let home = self.tree.parent(ino).unwrap_or(Ino::ANCHOR);
            let change = AttrChange { mtime: Some(dir.attr.mtime), ..AttrChange::default() };
            let event = Event::SetAttr { ino, home, change, time: dir.attr.ctime };
            rest.append(Origin::default(), &event);
        }
        Ok((events, created))
    }
}

fn row<'a>(attr: &Attr, data: &'a [u8]) -> RowValue<'a> {
    RowValue::Inode(InodeRecord { attr: *attr, data, ..InodeRecord::default() })
}

fn attr_of(create: &Create<'_>) -> Attr {
    let Create { ino, mode, uid, gid, rdev, stripe, size, time, mtime, atime, .. } = *create;
    let (ctime, btime) = (time, time);
    Attr { ino, mode, uid, gid, nlink: 1, rdev, stripe, size, atime, mtime, ctime, btime }
}
