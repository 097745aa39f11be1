//! A branch (E-04) in the view of a process that works on it: a snapshot of the namespace, and the
//! journals that were appended to it since. No server takes part (E-01).
//!
//! The view is the server's own namespace code. Directories of the snapshot are loaded on demand
//! ([`Refusal::Cold`]); the caller reads them from the store. Changes are planned against the view
//! with every rule, become events, and wait in memory until they are sealed as the next layer.
//!
//! Invariant: the view is a function of the snapshot and the layers, in their order.

use journal::{Event, JournalBuffer, JournalError, SegmentHeader, SegmentReader, Writer};
use metastore::request::LoadedDir;
use namespace::{ApplyOutcome, Mode, Namespace, Planned, PlannedInode, Refusal};
use types::{
    Attr, ClientId, Cred, EntryName, Epoch, Errno, Ino, InoRange, Map, Origin, RenameFlags, Seq,
    Timestamp,
};

mod conflict;

pub use conflict::{BranchConflicts, ConflictingName, Sides, conflicts, joined};

/// Events of branches are newer than all events of servers: positions of ranks are below this.
const NEWER: u64 = 1 << 63;

/// See the module documentation.
#[derive(Debug)]
pub struct BranchView {
    namespace: Namespace,
    root: Ino,
    buffer: JournalBuffer,
    /// Position of the first event that is held.
    first: Seq,
    numbers: InoRange,
    reports: Composed,
}

/// The result of composing several branches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Composed {
    /// Names of one that another one has, too.
    pub replaced: u64,
    /// Rejected events, because their directory or inode does not exist.
    pub rejected: u64,
}

/// Why a layer cannot be put on top.
#[derive(Debug)]
pub enum LayerError<E> {
    /// It is damaged.
    Damaged(JournalError),
    /// A directory of the snapshot cannot be read.
    Fetch(E),
}

impl<E> From<JournalError> for LayerError<E> {
    fn from(error: JournalError) -> Self {
        Self::Damaged(error)
    }
}

impl BranchView {
    /// A view of a snapshot of this directory. Its next event will have this position.
    #[must_use]
    pub fn new(root: &Attr, next: Seq) -> Self {
        let mut namespace = Namespace::new();
        namespace.store().adopt_root(root, false);
        namespace.store().leave_links_to_store();
        Self {
            namespace,
            root: root.ino,
            buffer: JournalBuffer::new(next, false),
            first: next,
            numbers: InoRange::default(),
            reports: Composed::default(),
        }
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> Ino {
        self.root
    }

    /// The view, for questions.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The policy in force in a directory, if the branch or its snapshot has one below its root, or
    /// at it.
    pub fn policy(&mut self, dir: Ino) -> Option<policy::Policy> {
        let (source, in_force) = self.namespace.effective_policy(dir);
        source.map(|_| in_force.policy.clone())
    }

    /// Adds a directory of the snapshot; `None` if the store had nothing of it.
    pub fn load(&mut self, dir: Ino, loaded: Option<&LoadedDir>) {
        let nothing = (Seq(0), metastore::DirTouch::default());
        let (position, touched) = loaded.map_or(nothing, |loaded| {
            self.namespace.store().load(dir, loaded.rows.iter());
            (loaded.manifest.position, loaded.manifest.touched)
        });
        self.namespace.store().finish_load(dir, position, touched);
    }

    /// Puts a layer of this branch on top.
    ///
    /// # Errors
    /// If the layer is damaged, or a directory cannot be read.
    pub fn replay<E>(
        &mut self,
        layer: &[u8],
        mut fetch: impl FnMut(Ino) -> Result<Option<LoadedDir>, E>,
    ) -> Result<(), LayerError<E>> {
        let mut reader = SegmentReader::open(layer)?;
        while let Some(block) = reader.next_block()? {
            let mut events = block.events();
            while let Some(record) = events.next_event()? {
                while let Some(dir) = self.namespace.needs().of(&record.event) {
                    let loaded = fetch(dir).map_err(LayerError::Fetch)?;
                    self.load(dir, loaded.as_ref());
                }
                self.namespace.apply(newer(record.seq), Mode::Live, &record.event);
            }
        }
        Ok(())
    }

    /// Applies the part of another branch's layer behind a position, as a merge would: its names
    /// win over existing names, two directories of one name become one, and events about removed
    /// inodes are rejected.
    ///
    /// # Errors
    /// As [`BranchView::replay`].
    pub fn compose<E>(
        &mut self,
        layer: &[u8],
        known: Seq,
        made: &mut MadeDirs,
        mut fetch: impl FnMut(Ino) -> Result<Option<LoadedDir>, E>,
    ) -> Result<(), LayerError<E>> {
        let mut reader = SegmentReader::open(layer)?;
        while let Some(block) = reader.next_block()? {
            let mut events = block.events();
            while let Some(record) = events.next_event()? {
                if record.seq <= known {
                    continue;
                }
                let event = &record.event;
                while !self.namespace.needs().lacks_place(event)
                    && let Some(dir) = self.needed(event, made)
                {
                    let loaded = fetch(dir).map_err(LayerError::Fetch)?;
                    self.load(dir, loaded.as_ref());
                }
                self.merge_one(newer(record.seq), event, made);
            }
        }
        Ok(())
    }

    fn needed(&self, event: &Event<'_>, made: &MadeDirs) -> Option<Ino> {
        // A create of a file needs no look-up; a directory that replaces an entry must be reported.
        let mut replaced = None;
        if let Event::Create(create) = event
            && !made.is_new(create.parent)
            && let Err(Refusal::Cold(dir)) = self.namespace.peek(create.parent, create.name)
        {
            replaced = Some(dir);
        }
        replaced.or_else(|| self.namespace.needs().in_merge(event, |dir| made.is_new(dir)))
    }

    fn merge_one(&mut self, seq: Seq, event: &Event<'_>, made: &mut MadeDirs) {
        if event.is_nothing() {
            return;
        }
        if self.namespace.needs().lacks_place(event) {
            self.reports.rejected += 1;
            return;
        }
        match self.namespace.apply(seq, Mode::Merge, event) {
            ApplyOutcome::Done => {}
            ApplyOutcome::Replaced(_) => self.reports.replaced += 1,
            ApplyOutcome::Rejected => self.reports.rejected += 1,
        }
        if let Event::Create(create) = event
            && create.file_type() == types::FileType::Directory
        {
            made.dirs.insert(create.ino, ());
        }
        for dir in self.namespace.adopters() {
            // It has names now that the layer did not give it.
            made.dirs.remove(&dir);
        }
        let _ = self.namespace.take_losses();
    }

    /// The result of composing so far.
    #[must_use]
    pub fn composed(&self) -> Composed {
        self.reports
    }

    /// Inode numbers that are left.
    #[must_use]
    pub fn numbers_left(&self) -> u64 {
        self.numbers.len()
    }

    /// From now on new inodes have these numbers; those that are left are never used.
    pub fn number_from(&mut self, numbers: InoRange) {
        self.numbers = numbers;
    }

    /// Creates a file, directory, symbolic link or device, with every rule of POSIX checked.
    ///
    /// # Errors
    /// Those of `open` with `O_CREAT` and `O_EXCL`; `ENOSPC` if the numbers are used up.
    pub fn create(
        &mut self,
        cred: &Cred,
        entry: EntryName<'_>,
        new: &PlannedInode<'_>,
    ) -> Result<Ino, Refusal> {
        let mut numbers = self.numbers;
        let ino = numbers.take().ok_or(Errno::NoSpace)?;
        let planned = self.namespace.plan().make(cred, entry, new, ino)?;
        self.numbers = numbers;
        self.append(&planned);
        Ok(ino)
    }

    /// Applies a plan.
    ///
    /// # Errors
    /// As the plan.
    pub fn change<'a>(
        &mut self,
        plan: impl FnOnce(&Namespace) -> Result<Planned<'a>, Refusal>,
    ) -> Result<(), Refusal> {
        let planned = plan(&self.namespace)?;
        self.append(&planned);
        Ok(())
    }

    /// Moves or swaps names.
    ///
    /// # Errors
    /// As the namespace's `Planner::rename`.
    pub fn rename(
        &mut self,
        cred: &Cred,
        from: EntryName<'_>,
        to: EntryName<'_>,
        flags: RenameFlags,
        time: Timestamp,
    ) -> Result<(), Refusal> {
        if let Some(planned) = self.namespace.plan().rename(cred, from, to, flags, time)? {
            self.append(&planned);
        }
        Ok(())
    }

    fn append(&mut self, planned: &Planned<'_>) {
        let event = planned.event();
        let seq = self.buffer.append(Origin::default(), &event);
        self.namespace.apply(newer(seq), Mode::Live, &event);
    }

    /// Events that are held.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.buffer.next_seq().0 - self.first.0
    }

    /// Bytes of the events that are held.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.buffer.bytes()
    }

    /// The events since the last seal, as a journal, and the position of its first event. They stay
    /// until the caller confirms that the journal is stored ([`BranchView::sealed`]).
    pub fn seal(&mut self) -> (Seq, Vec<u8>) {
        self.buffer.close_block();
        let bytes = journal_of(self.root, self.first, self.buffer.blocks());
        (self.first, bytes)
    }

    /// The sealed journal is stored, and no change was made since.
    pub fn sealed(&mut self) {
        for block in self.buffer.take_blocks() {
            self.buffer.recycle(block);
        }
        self.first = self.buffer.next_seq();
    }
}

/// Directories that the layers of a branch made: all their names come from the branch.
#[derive(Clone, Debug, Default)]
pub struct MadeDirs {
    dirs: Map<Ino, ()>,
}

impl MadeDirs {
    fn is_new(&self, dir: Ino) -> bool {
        self.dirs.contains_key(&dir)
    }
}

/// A journal of a branch. It names no client: the client that merges it adds its own name.
#[must_use]
pub fn journal_of<B: AsRef<[u8]>>(root: Ino, first: Seq, blocks: &[B]) -> Vec<u8> {
    let writer = Writer::Client { client: ClientId(0), subtree: root };
    let header = SegmentHeader { writer, epoch: Epoch(0), first_seq: first };
    let mut bytes = header.encode().to_vec();
    blocks.iter().for_each(|block| bytes.extend_from_slice(block.as_ref()));
    bytes
}

fn newer(seq: Seq) -> Seq {
    Seq(seq.0 | NEWER)
}
