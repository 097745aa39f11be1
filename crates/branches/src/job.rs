//! The branch of a job that has a metadata server of its own: the server gets the layers, and the
//! changes in its journal become the next layers.
//!
//! Not here: the server (crate `jobserver`).
//!
//! Invariant: the branch gets all changes of the job in one replacement of its object, which
//! [`BranchJob::finish`] makes, or none.

use engine::read_snapshots;
use journal::{Event, JournalBuffer, SegmentReader};
use metastore::{Branch, Layer, Snapshot};
use objstore::{Expect, LockGuard, Version};
use types::{Errno, Error, Ino, InoRange, Origin, Path, Result, Seq};

use crate::work::LAYER_BYTES;
use crate::{Branches, lost, squash, view};

/// A locked branch, with inode numbers for one job. Dropping it discards the changes of the job.
#[derive(Debug)]
pub struct BranchJob {
    branches: Branches,
    name: String,
    branch: Branch,
    version: Version,
    snapshot: Snapshot,
    path: Path,
    numbers: InoRange,
    /// Held as long as this is.
    lock: Box<dyn LockGuard>,
}

impl Branches {
    /// Locks a branch for a job, and takes so many inode numbers for the job.
    ///
    /// # Errors
    /// `ENOENT`; `EBUSY` if another process works on the branch; `EINVAL` if it is not open;
    /// `EBADMSG`; `ENOSPC` if there are not as many numbers.
    pub fn begin_job(&self, name: &str, numbers: u64) -> Result<BranchJob> {
        let lock = self.lock(name)?;
        let (branch, version) = self.open_branch(name)?;
        let (snapshots, _) = read_snapshots(&*self.store)?;
        let snapshot = snapshots.get(branch.snapshot).ok_or_else(|| lost(name))?.clone();
        let path = cudele::parse_path(&snapshot.path)?;
        let numbers = self.grant(numbers)?;
        let (branches, name) = (self.clone(), name.to_owned());
        Ok(BranchJob { branches, name, branch, version, snapshot, path, numbers, lock })
    }
}

impl BranchJob {
    /// The name of the branch.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The snapshot that the branch is of.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The path of the branch's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The inode numbers of the job.
    #[must_use]
    pub fn numbers(&self) -> InoRange {
        self.numbers
    }

    /// The position behind the last event of the branch, before the job adds its own events.
    #[must_use]
    pub fn next_seq(&self) -> Seq {
        self.branch.next_seq()
    }

    /// The layers, each with the name and the bytes of its object.
    pub fn layers(&self) -> impl Iterator<Item = Result<(String, Vec<u8>)>> {
        let store = &**self.branches.store();
        let read = move |layer: &Layer| Ok((layer.name(), view::read_layer(store, layer)?));
        self.branch.layers.iter().map(read)
    }

    /// Records the job's numbers in the branch. The job must not use a number before that: `gc`
    /// deletes only content of numbers that the branch lists and no layer has.
    ///
    /// # Errors
    /// `ESTALE` if another process has changed the branch; `ENOSPC`, `EIO`.
    pub fn record_numbers(&mut self) -> Result<()> {
        self.branch.ranges.push(self.numbers);
        self.version = self.branches.note(&self.name, &mut self.branch, self.version)?;
        Ok(())
    }

    /// Ends the job: the changes in these segments of its server's journal, which have names,
    /// become a part of the branch, all of them or, after a failure, none. Returns the number of
    /// events. A second call fails, because the branch has changed.
    ///
    /// # Errors
    /// The errors of the segments; `ESTALE` if another process has changed the branch; `ENOSPC`,
    /// `EIO`.
    pub fn finish<N: AsRef<str>>(
        &self,
        segments: impl IntoIterator<Item = Result<(N, Vec<u8>)>>,
    ) -> Result<u64> {
        if self.lock.is_lost() {
            return Err(Error::new(Errno::Stale, &*self.name, "somebody else has this branch now"));
        }
        let mut layers = Layers::new(&self.branches, &self.branch);
        let mut used = None;
        for segment in segments {
            let (name, bytes) = segment?;
            each_change(&bytes, |event| {
                if let Event::Create(create) = event {
                    used = used.max(Some(create.ino));
                }
                layers.push(event)
            })
            .map_err(|error| match error {
                Refused::Damaged(error) => error.in_journal(name.as_ref()),
                Refused::Store(error) => error,
            })?;
        }
        let Layers { made, events, .. } = layers.end()?;
        self.replace(made, used)?;
        Ok(events)
    }

    /// Adds layers to the branch, and gives back the numbers behind the last used one.
    fn replace(&self, made: Vec<Layer>, used: Option<Ino>) -> Result<()> {
        let mut branch = self.branch.clone();
        branch.layers.extend(made);
        branch.ranges.pop();
        if let Some(last) = used {
            branch.ranges.push(InoRange { start: self.numbers.start, end: last.0 + 1 });
        }
        let branch = squash::squashed(&**self.branches.store(), branch)?;
        self.branches.put(&self.name, &branch, Expect::Is(self.version))?;
        Ok(())
    }
}

/// Layers that are in the making.
struct Layers<'a> {
    branches: &'a Branches,
    branch: &'a Branch,
    buffer: JournalBuffer,
    first: Seq,
    made: Vec<Layer>,
    events: u64,
}

impl<'a> Layers<'a> {
    fn new(branches: &'a Branches, branch: &'a Branch) -> Self {
        let first = branch.next_seq();
        let buffer = JournalBuffer::new(first, false);
        Self { branches, branch, buffer, first, made: Vec::new(), events: 0 }
    }

    fn push(&mut self, event: &Event<'_>) -> Result<()> {
        self.buffer.append(Origin::default(), event);
        self.events += 1;
        if self.buffer.bytes() >= LAYER_BYTES { self.store() } else { Ok(()) }
    }

    /// Stores the gathered events. No object refers to them before the branch does.
    fn store(&mut self) -> Result<()> {
        let next = self.buffer.next_seq();
        if next == self.first {
            return Ok(());
        }
        let gathered = std::mem::replace(&mut self.buffer, JournalBuffer::new(next, false));
        let number = self.branch.next_layer() + self.made.len() as u64;
        let (store, first) = (&**self.branches.store(), self.first);
        self.made.push(squash::put(store, self.branch, gathered, first, number)?);
        self.first = next;
        Ok(())
    }

    fn end(mut self) -> Result<Self> {
        self.store()?;
        Ok(self)
    }
}

enum Refused {
    Damaged(journal::JournalError),
    Store(Error),
}

impl From<journal::JournalError> for Refused {
    fn from(error: journal::JournalError) -> Self {
        Self::Damaged(error)
    }
}

/// Gives the changes of a segment. The other events of a server's journal are about the server.
fn each_change(
    segment: &[u8],
    mut take: impl FnMut(&Event<'_>) -> Result<()>,
) -> std::result::Result<(), Refused> {
    let mut reader = SegmentReader::open(segment)?;
    while let Some(block) = reader.next_block()? {
        let mut events = block.events();
        while let Some(record) = events.next_event()? {
            match record.event {
                Event::Session { .. } | Event::Merged { .. } | Event::Stored { .. } => {}
                Event::Create(_)
                | Event::Link { .. }
                | Event::Unlink { .. }
                | Event::Rmdir { .. }
                | Event::Rename { .. }
                | Event::SetAttr { .. }
                | Event::SetXattr { .. }
                | Event::SetData { .. }
                | Event::SetPolicy { .. } => take(&record.event).map_err(Refused::Store)?,
            }
        }
    }
    Ok(())
}
