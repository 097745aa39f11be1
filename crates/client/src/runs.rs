//! A journal as runs: the client's side of a merge by reference.
//!
//! No other client has seen the changes of a journal in directories that it made itself: the server
//! need not receive them event by event. [`ByReference::of`] applies the journal to a namespace of
//! its own and writes those directories in the format of the metadata store. The rest of the
//! journal, the *rest*, concerns directories that other clients know; it is merged by value behind
//! them, and gives them names. The root of the subtree counts as made by the journal while it is
//! empty.
//!
//! Some journals cannot be merged so ([`ByValue`] lists the reasons). They lose nothing: merging by
//! value is the reference for both ways.
//!
//! Invariant: runs and rest give the namespace that the journal gives.

mod background;
mod piece;
mod tree;

pub use background::RunCollector;
pub use piece::{Piece, StoredRun};

use journal::{Event, JournalBuffer, JournalError, SegmentHeader};
use metastore::{DirRun, Rows, RunInfo, RunList, RunReader, encode_clients_run, run_name};
use namespace::{ApplyOutcome, Mode, Namespace};
use types::{Attr, AttrChange, DirFragId, Errno, Frag, Ino, Origin, Seq, Set};

use tree::Tree;

/// Which directories are worth a run. Each costs the server an object to write, as much as some
/// thousand events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunThreshold {
    /// A tree with fewer names in all goes by value.
    pub names_min: u64,
    /// So does one with fewer names for each of its directories.
    pub names_per_directory_min: u64,
}

impl Default for RunThreshold {
    fn default() -> Self {
        Self { names_min: 4096, names_per_directory_min: 1024 }
    }
}

/// Why a journal is merged by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByValue {
    /// No directory that it made has enough names.
    Small,
    /// It gives an inode several names: those live in a directory of the server's.
    HardLinks,
    /// It sets extended attributes in a directory that it made.
    Xattrs,
    /// It takes a name that it had given before, or an inode number twice.
    TakenTwice,
    /// It moves something into a directory that it made, or out of one.
    Moves,
    /// It removes files that have content in the object store, which the server deletes.
    Content,
    /// The journal changes or removes its own creations: that needs the whole journal.
    Changes,
    /// The journal has impossible events.
    Senseless,
    /// A directory is too large for one object.
    TooLarge,
    /// The server rejects it: another client was first, or the policy requires a look at every
    /// event.
    Refused,
}

impl ByValue {
    /// The reason in words.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Small => "no directory that it made has enough names",
            Self::HardLinks => "it makes hard links",
            Self::Xattrs => "it sets extended attributes",
            Self::TakenTwice => "it gives a name twice",
            Self::Moves => "it moves things into directories that it made, or out of them",
            Self::Content => "it removes files that have content in the object store",
            Self::Changes => "it changes what it made",
            Self::Senseless => "some of it cannot be carried out",
            Self::TooLarge => "a directory is larger than one object may be",
            Self::Refused => "the server had to look at it",
        }
    }
}

/// An object, and its name.
type Object = (String, Vec<u8>);

/// A journal as runs and a rest.
#[derive(Clone, Debug)]
pub struct ByReference {
    /// The message in front of the rest.
    pub list: RunList,
    /// The objects to be stored before that, by name.
    pub objects: Vec<Object>,
    /// The rest.
    pub header: SegmentHeader,
    /// Its blocks.
    pub blocks: Vec<Vec<u8>>,
    /// Events that are not in the rest.
    pub events: u64,
    /// How many of them are creates.
    pub created: u64,
}

impl ByReference {
    /// Tells a journal, of which these are header and blocks, as runs and a rest. `root` is the
    /// subtree's, and `is_empty` says whether it has no names on the server.
    ///
    /// # Errors
    /// If the journal cannot be merged by reference. A damaged journal counts as impossible: the
    /// server will name the damage.
    pub fn of(
        header: &SegmentHeader,
        blocks: &[impl AsRef<[u8]>],
        root: &Attr,
        is_empty: bool,
        worth: RunThreshold,
    ) -> Result<Self, ByValue> {
        let mut split = Split::new(root, is_empty);
        each_event(blocks, |seq, event| split.apply(seq, event))?;
        split.choose(worth)?;
        let mut rest = JournalBuffer::new(header.first_seq, false);
        each_event(blocks, |seq, event| split.divide(seq, event, &mut rest))?;
        let (dirs, objects) = split.write(&mut rest)?;
        rest.close_block();
        let journal = blocks.first().map_or(0, |block| journal::checksum(block.as_ref()));
        let list = RunList { journal, last: split.last, dirs, proof: None };
        let Split { events, created, .. } = split;
        let blocks = rest.take_blocks();
        Ok(Self { list, objects, header: *header, blocks, events, created })
    }

    /// What is sent: the list, the rest's header and its blocks.
    #[must_use]
    pub fn message(&self) -> Vec<Vec<u8>> {
        let front = [self.list.encode(), self.header.encode().to_vec()];
        front.into_iter().chain(self.blocks.iter().cloned()).collect()
    }

    /// The rest as a journal object has it.
    #[must_use]
    pub fn rest(&self) -> Vec<u8> {
        let mut bytes = self.header.encode().to_vec();
        self.blocks.iter().for_each(|block| bytes.extend_from_slice(block));
        bytes
    }
}

/// Whether a server's rejection concerns the way of merging a journal, so that it may be merged by
/// value.
#[must_use]
pub fn may_go_by_value(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NotEmpty | Errno::Exists | Errno::NotSupported | Errno::BadMessage | Errno::NotFound
    )
}

fn each_event(
    blocks: &[impl AsRef<[u8]>],
    mut take: impl FnMut(Seq, &Event<'_>) -> Result<(), ByValue>,
) -> Result<(), ByValue> {
    let damaged = |_: JournalError| ByValue::Senseless;
    for block in blocks {
        let block = read_block(block.as_ref())?;
        let mut events = block.events();
        while let Some(record) = events.next_event().map_err(damaged)? {
            take(record.seq, &record.event)?;
        }
    }
    Ok(())
}

fn read_block(bytes: &[u8]) -> Result<journal::Block<'_>, ByValue> {
    journal::Block::read(bytes, 0).map(|(block, _)| block).map_err(|_| ByValue::Senseless)
}

/// A journal that is being divided.
struct Split {
    root: Ino,
    /// The subtree's content, as far as the journal made it itself.
    namespace: Namespace,
    tree: Tree,
    /// Events that nothing came of, so that the directories that the journal made do not show them.
    rejected: Set<Seq>,
    /// Files that lost their last name, with content that is not in their inodes.
    content: Set<Ino>,
    first: Ino,
    last: Seq,
    events: u64,
    created: u64,
}

impl Split {
    fn new(root: &Attr, is_empty: bool) -> Self {
        let mut namespace = Namespace::new();
        namespace.store().adopt_root(root, is_empty);
        Self {
            root: root.ino,
            namespace,
            tree: Tree::new(is_empty.then_some(root.ino)),
            rejected: Set::default(),
            content: Set::default(),
            first: Ino(0),
            last: Seq(0),
            events: 0,
            created: 0,
        }
    }

    fn apply(&mut self, seq: Seq, event: &Event<'_>) -> Result<(), ByValue> {
        self.last = seq;
        match *event {
            Event::Create(ref create) => {
                if self.namespace.knows(create.ino) {
                    return Err(ByValue::TakenTwice);
                }
                if create.file_type() == types::FileType::Directory {
                    self.tree.make(create.ino, create.parent);
                }
                if self.first == Ino(0) {
                    self.first = create.ino;
                }
            }
            Event::Rename { parent, new_parent, ref moved, ref exchanged, .. } => {
                self.tree.move_to(moved.attr.ino, new_parent);
                if let Some(back) = exchanged {
                    self.tree.move_to(back.attr.ino, parent);
                }
            }
            Event::Link { .. } => return Err(ByValue::HardLinks),
            Event::SetPolicy { .. } | Event::Merged { .. } | Event::Stored { .. } => {
                return Err(ByValue::Senseless);
            }
            Event::Unlink { .. }
            | Event::Rmdir { .. }
            | Event::SetAttr { .. }
            | Event::SetXattr { .. }
            | Event::SetData { .. } => {}
            Event::Session { .. } => return Ok(()),
        }
        match (self.namespace.apply(seq, Mode::Live, event), event) {
            (ApplyOutcome::Replaced(_), Event::Create(_)) => return Err(ByValue::TakenTwice),
            (ApplyOutcome::Rejected, _) => {
                self.rejected.insert(seq);
            }
            (ApplyOutcome::Done | ApplyOutcome::Replaced(_), _) => {}
        }
        let freed = self.namespace.take_freed().into_iter();
        self.content.extend(freed.filter(|it| it.is_stored && !it.is_dir).map(|it| it.ino));
        Ok(())
    }

    /// Chooses the directories that become runs.
    fn choose(&mut self, worth: RunThreshold) -> Result<(), ByValue> {
        let Self { namespace, tree, .. } = self;
        tree.choose(worth, |dir| namespace.knows(dir).then(|| namespace.dirs().counts(dir).0));
        if self.tree.is_empty() { Err(ByValue::Small) } else { Ok(()) }
    }

    /// Puts an event into the rest, unless the runs show it.
    fn divide(
        &mut self,
        seq: Seq,
        event: &Event<'_>,
        rest: &mut JournalBuffer,
    ) -> Result<(), ByValue> {
        let is_run = |dir| self.tree.has(dir);
        // Where the dentry of an inode is: a directory's own one is in the directory above it.
        let place = |ino, home| is_run(self.tree.parent(ino).unwrap_or(home)) && ino != self.root;
        let inside = match *event {
            Event::Create(ref create) => is_run(create.parent),
            Event::Unlink { parent, ino, .. } | Event::Rmdir { parent, ino, .. } => {
                if is_run(parent) && self.content.contains(&ino) {
                    return Err(ByValue::Content);
                }
                is_run(parent)
            }
            Event::Rename { parent, new_parent, replaced, .. } => {
                if is_run(parent) != is_run(new_parent) {
                    return Err(ByValue::Moves);
                }
                if is_run(parent) && self.content.contains(&replaced) {
                    return Err(ByValue::Content);
                }
                is_run(parent)
            }
            Event::SetAttr { ino, home, .. } | Event::SetData { ino, home, .. } => place(ino, home),
            Event::SetXattr { ino, home, .. } => {
                if place(ino, home) {
                    return Err(ByValue::Xattrs);
                }
                false
            }
            Event::Link { .. }
            | Event::SetPolicy { .. }
            | Event::Merged { .. }
            | Event::Stored { .. }
            | Event::Session { .. } => false,
        };
        if !inside {
            rest.append(Origin::default(), event);
            return Ok(());
        }
        if self.rejected.contains(&seq) {
            return Err(ByValue::Senseless);
        }
        self.events += 1;
        self.created += u64::from(matches!(event, Event::Create(_)));
        Ok(())
    }

    /// Writes the directories as runs, and the new times of directories in the rest.
    fn write(&mut self, rest: &mut JournalBuffer) -> Result<(Vec<DirRun>, Vec<Object>), ByValue> {
        let (mut dirs, mut objects) = (Vec::new(), Vec::new());
        for dir in self.tree.chosen() {
            let Ok(Attr { mtime, ctime, .. }) = self.namespace.getattr(dir) else { continue };
            if self.tree.is_top(dir) {
                let home = self.namespace.home_of(dir).unwrap_or(Ino::ANCHOR);
                let change = AttrChange { mtime: Some(mtime), ..AttrChange::default() };
                let event = Event::SetAttr { ino: dir, home, change, time: ctime };
                rest.append(Origin::default(), &event);
            }
            let (entries, subdirs, _) = self.namespace.dirs().counts(dir);
            if entries == 0 {
                continue;
            }
            let dirfrag = DirFragId { ino: dir, frag: Frag::WHOLE };
            let (id, bytes) = encode_clients_run(dirfrag, self.first, &self.rows(dir));
            if bytes.len() as u64 > OBJECT_BYTES_MAX {
                return Err(ByValue::TooLarge);
            }
            let read = RunReader::open(&bytes).map_err(|_| ByValue::Senseless)?;
            dirs.push(DirRun { dir, run: RunInfo::of(&read), subdirs, touched: mtime });
            objects.push((run_name(dirfrag, id), bytes));
        }
        assert!(dirs.len() == objects.len(), "each run is an object");
        if dirs.is_empty() { Err(ByValue::Small) } else { Ok((dirs, objects)) }
    }

    fn rows(&mut self, dir: Ino) -> Rows {
        let mut rows = Rows::new();
        if let Some(mut capture) = self.namespace.store().begin_capture(dir) {
            while !self.namespace.store().capture(&mut capture, &mut rows, usize::MAX / 2) {}
            self.namespace.store().end_capture(dir);
        }
        rows
    }
}

/// No store takes larger objects.
const OBJECT_BYTES_MAX: u64 = 1 << 30;

#[cfg(test)]
mod tests;
