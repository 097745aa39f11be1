//! A decoupled subtree, as its owner sees it.
//!
//! Creating files appends events to a journal in memory and does nothing else: no look-up, no check
//! for existence, no message (Append Client Journal, M-03). The content of the subtree is computed
//! only for a caller that looks: the [`SubtreeView`] is the server's own namespace code applied to
//! the client's own journal.
//!
//! Invariant: the journal is the truth; the view is a function of the base it was loaded with and
//! of the journal.

use std::collections::VecDeque;

use journal::{Create, Event, JournalBuffer, SegmentHeader, Writer};
use namespace::{Mode, Planned, PlannedInode, Refusal};
use types::{
    Attr, AttrChange, ClientId, Cred, EntryName, Epoch, Errno, FileType, Ino, InoRange, MODE_TYPE,
    Origin, RenameFlags, Seq, Stripe, Timestamp, XattrChange,
};

/// The grant of the monitor and the server to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// To whom.
    pub client: ClientId,
    /// The root of the subtree.
    pub root: Attr,
    /// The inode numbers it may use.
    pub range: InoRange,
    /// The term of the decoupling.
    pub epoch: Epoch,
    /// Whether the subtree was empty.
    pub empty: bool,
    /// Whether every create is checked against the view: existence and permissions (`check:
    /// client`, F-07). All other changes always are.
    pub check: bool,
}

/// See the module documentation.
#[derive(Debug)]
pub struct ClientSubtree {
    grant: Grant,
    ranges: VecDeque<InoRange>,
    /// The number taken last.
    last: Ino,
    buffer: JournalBuffer,
    /// Position of the first event that is still held.
    first_seq: Seq,
    /// Blocks at the front that the view has seen.
    seen: usize,
    /// The view has seen every event before this position.
    viewed: Seq,
    /// Blocks of earlier events, for a view that is made later.
    unseen: Vec<Vec<u8>>,
    /// An event said of a file that its content is in the object store.
    content_elsewhere: bool,
    view: Option<Box<SubtreeView>>,
}

impl ClientSubtree {
    /// A subtree with an empty journal that begins with event `first_seq`.
    #[must_use]
    pub fn new(grant: Grant, first_seq: Seq) -> Self {
        Self {
            ranges: VecDeque::from([grant.range]),
            last: Ino(0),
            grant,
            buffer: JournalBuffer::new(first_seq, false),
            first_seq,
            seen: 0,
            viewed: first_seq,
            unseen: Vec::new(),
            content_elsewhere: false,
            view: None,
        }
    }

    /// What was given.
    #[must_use]
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> Ino {
        self.grant.root.ino
    }

    /// Inode numbers that are left.
    #[must_use]
    pub fn inodes_left(&self) -> u64 {
        self.ranges.iter().map(|range| range.len()).sum()
    }

    /// Adds numbers when the range was extended.
    pub fn extend(&mut self, range: InoRange) {
        self.ranges.push_back(range);
    }

    /// The number taken last, by this journal or one before it; 0 for none.
    #[must_use]
    pub fn last_taken(&self) -> Ino {
        self.last
    }

    /// Numbers up to and including this one, in the order in which they were given, were used
    /// before: by the journal of an earlier process of the same client.
    pub fn skip_used(&mut self, last: Ino) {
        let Some(at) = self.ranges.iter().position(|range| range.contains(last)) else { return };
        self.ranges.drain(..at);
        let range = self.ranges[0];
        assert!(range.contains(last), "{last} is in the range that is used now");
        self.ranges[0].start = last.0 + 1;
        self.last = last;
    }

    /// Gives up the numbers that are left, for good: no event will use them, and no journal of an
    /// earlier process does.
    pub fn give_up(&mut self) -> Vec<InoRange> {
        let left = std::mem::take(&mut self.ranges);
        left.into_iter().filter(|range| !range.is_empty()).collect()
    }

    #[inline]
    fn take_ino(&mut self) -> Result<Ino, Errno> {
        loop {
            let Some(range) = self.ranges.front_mut() else { return Err(Errno::NoSpace) };
            if let Some(ino) = range.take() {
                self.last = ino;
                return Ok(ino);
            }
            self.ranges.pop_front();
        }
    }

    /// Creates a file, directory, symbolic link or device: appends an event.
    ///
    /// # Errors
    /// `EINVAL` or `ENAMETOOLONG` for an illegal name, `EINVAL` for a mode without a type, `EFBIG`
    /// for more content than may be inline or a file beyond the maximum length, `ENOSPC` when the
    /// inode numbers are used up (extend the range and try again).
    #[inline]
    pub fn create(
        &mut self,
        cred: &Cred,
        parent: Ino,
        name: &[u8],
        new: &PlannedInode<'_>,
    ) -> Result<Ino, Errno> {
        check_new(name, new)?;
        let ino = self.take_ino()?;
        self.append_create(cred, ino, EntryName::new(parent, name), new);
        Ok(ino)
    }

    #[inline]
    fn append_create(
        &mut self,
        cred: &Cred,
        ino: Ino,
        EntryName { dir: parent, name }: EntryName<'_>,
        new: &PlannedInode<'_>,
    ) {
        let (uid, gid) = new.owner.unwrap_or((cred.uid, cred.gid));
        let mtime = new.mtime.unwrap_or(new.time);
        // The formats keep one number for both: see `types::device_or_stripe`.
        let is_file = new.mode & MODE_TYPE == FileType::Regular.mode_bits();
        let (rdev, stripe) = if is_file { (0, new.stripe) } else { (new.rdev, Stripe::default()) };
        let event = Event::Create(Create {
            parent,
            name,
            ino,
            mode: new.mode,
            uid,
            gid,
            rdev,
            stripe,
            size: new.size,
            time: new.time,
            mtime,
            atime: new.atime.unwrap_or(mtime),
            data: new.data,
            extra: &[],
        });
        self.content_elsewhere |= event.content_elsewhere().is_some();
        self.buffer.append(Origin::default(), &event);
    }

    /// Creates with every rule of POSIX checked against the view (`check: client`).
    ///
    /// # Errors
    /// As the namespace's `Planner::create`; [`Refusal::Cold`] if the view lacks a directory.
    pub fn create_checked(
        &mut self,
        cred: &Cred,
        entry: EntryName<'_>,
        new: &PlannedInode<'_>,
    ) -> Result<Ino, Refusal> {
        let (plan, mut inherited) = (self.view().namespace().plan(), Vec::new());
        let planned = plan.create(cred, entry, new, Ino(u64::MAX), &mut inherited)?;
        let ino = self.take_ino()?;
        self.append(&Event::Create(Create { ino, ..planned }));
        Ok(ino)
    }

    /// Appends an event that was planned against the view, which follows at once: reading it back
    /// out of the journal would close a block for every event.
    fn append(&mut self, event: &Event<'_>) {
        let seq = self.buffer.next_seq();
        self.content_elsewhere |= event.content_elsewhere().is_some();
        self.buffer.append(Origin::default(), event);
        if let Some(view) = &mut self.view
            && self.viewed == seq
        {
            view.namespace_mut().apply(seq, Mode::Live, event);
            self.viewed = self.buffer.next_seq();
        }
    }

    fn append_planned(&mut self, planned: &Planned<'_>) {
        self.append(&planned.event());
    }

    /// Removes a name.
    ///
    /// # Errors
    /// As the namespace's `Planner::unlink`, against the view.
    pub fn unlink(
        &mut self,
        cred: &Cred,
        parent: Ino,
        name: &[u8],
        time: Timestamp,
    ) -> Result<(), Refusal> {
        let planned = self.view().namespace().plan().unlink(cred, parent, name, time)?;
        self.append_planned(&planned);
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As the namespace's `Planner::rmdir`, against the view.
    pub fn rmdir(
        &mut self,
        cred: &Cred,
        parent: Ino,
        name: &[u8],
        time: Timestamp,
    ) -> Result<(), Refusal> {
        let planned = self.view().namespace().plan().rmdir(cred, parent, name, time)?;
        self.append_planned(&planned);
        Ok(())
    }

    /// Moves or swaps names.
    ///
    /// # Errors
    /// As the namespace's `Planner::rename`, against the view.
    pub fn rename(
        &mut self,
        cred: &Cred,
        from: EntryName<'_>,
        to: EntryName<'_>,
        flags: RenameFlags,
        time: Timestamp,
    ) -> Result<(), Refusal> {
        let planned = self.view().namespace().plan().rename(cred, from, to, flags, time)?;
        if let Some(planned) = planned {
            self.append_planned(&planned);
        }
        Ok(())
    }

    /// Gives an inode one more name.
    ///
    /// # Errors
    /// As the namespace's `Planner::link`, against the view.
    pub fn link(
        &mut self,
        cred: &Cred,
        ino: Ino,
        to: EntryName<'_>,
        time: Timestamp,
    ) -> Result<(), Refusal> {
        let planned = self.view().namespace().plan().link(cred, ino, to, time)?;
        self.append_planned(&planned);
        Ok(())
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// As the namespace's `Planner::setattr`, against the view.
    pub fn setattr(
        &mut self,
        cred: &Cred,
        ino: Ino,
        change: &AttrChange,
        time: Timestamp,
    ) -> Result<(), Refusal> {
        let planned = self.view().namespace().plan().setattr(cred, ino, change, time)?;
        self.append_planned(&planned);
        Ok(())
    }

    /// Sets or removes an extended attribute.
    ///
    /// # Errors
    /// As the namespace's `Planner::setxattr`, against the view.
    pub fn setxattr(
        &mut self,
        cred: &Cred,
        ino: Ino,
        change: XattrChange<'_>,
        time: Timestamp,
    ) -> Result<(), Refusal> {
        let planned = self.view().namespace().plan().setxattr(cred, ino, change, time)?;
        self.append_planned(&planned);
        Ok(())
    }

    /// Replaces inline content, and sets the size.
    ///
    /// # Errors
    /// As the namespace's `Planner::setdata`, against the view.
    pub fn setdata(
        &mut self,
        cred: &Cred,
        ino: Ino,
        data: &[u8],
        size: u64,
        time: Timestamp,
    ) -> Result<(), Refusal> {
        let planned = self.view().namespace().plan().setdata(cred, ino, data, size, time)?;
        self.append_planned(&planned);
        Ok(())
    }

    /// Sets attributes without looking at the view: for an inode that was just created.
    pub fn set_attr_blindly(&mut self, ino: Ino, home: Ino, change: &AttrChange, time: Timestamp) {
        let event = Event::SetAttr { ino, home, change: *change, time };
        self.content_elsewhere |= event.content_elsewhere().is_some();
        self.buffer.append(Origin::default(), &event);
    }

    /// The next event gets this position; nothing may be held.
    pub fn start_at(&mut self, next: Seq) {
        debug_assert_eq!(self.events(), 0, "positions of held events cannot change");
        self.buffer = JournalBuffer::new(next, false);
        self.first_seq = next;
        self.viewed = next;
        self.seen = 0;
    }

    /// Whether any event so far, of this journal or of a replayed one, names content in the object
    /// store. If none did, a search for such events is needless.
    #[must_use]
    pub fn has_content_elsewhere(&self) -> bool {
        self.content_elsewhere
    }

    /// Events that are held.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.buffer.next_seq().0 - self.first_seq.0
    }

    /// Bytes of the journal that are held, without the header.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.buffer.bytes()
    }

    /// Position of the next event.
    #[must_use]
    pub fn next_seq(&self) -> Seq {
        self.buffer.next_seq()
    }

    /// The header of the journal that is held.
    #[must_use]
    pub fn header(&self) -> SegmentHeader {
        SegmentHeader {
            writer: Writer::Client { client: self.grant.client, subtree: self.root() },
            epoch: self.grant.epoch,
            first_seq: self.first_seq,
        }
    }

    /// The blocks that are held, oldest first; the last one is closed for this.
    pub fn blocks(&mut self) -> &[Vec<u8>] {
        self.buffer.close_block();
        self.buffer.blocks()
    }

    /// The closed blocks; the last events may be in none of them.
    #[must_use]
    pub fn closed_blocks(&self) -> &[Vec<u8>] {
        self.buffer.blocks()
    }

    /// Takes the events so far out, as a journal of its own, without copying it; the next event
    /// begins a new journal.
    pub fn seal(&mut self) -> (SegmentHeader, Vec<Vec<u8>>) {
        let header = self.header();
        if self.view.is_some() {
            self.view();
        }
        self.buffer.close_block();
        assert!(self.first_seq <= self.buffer.next_seq(), "a journal is not shorter than empty");
        self.seen = 0;
        self.first_seq = self.buffer.next_seq();
        (header, self.buffer.take_blocks())
    }

    /// Uses the memory of blocks again.
    pub fn recycle(&mut self, blocks: Vec<Vec<u8>>) {
        blocks.into_iter().for_each(|block| self.buffer.recycle(block));
    }

    /// The mechanisms are complete: the journal up to here is where it has to be, and its memory
    /// is used again; if the job goes on, not before a view has the events.
    pub fn clear(&mut self, goes_on: bool) {
        let (_, blocks) = self.seal();
        if goes_on && self.view.is_none() {
            return self.keep_unseen(blocks);
        }
        let unseen = std::mem::take(&mut self.unseen);
        self.recycle(unseen);
        self.recycle(blocks);
    }
}

mod placed;
mod validate;
mod view;

use placed::check_new;
pub use view::SubtreeView;
