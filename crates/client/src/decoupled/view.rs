//! The client's own picture of its subtree: the server's namespace code applied to the client's
//! journal.
//!
//! The first question makes the view. A job that only appends has none, and its events are not read
//! back: those that are merged while the job goes on are kept for a view, up to a limit.

use journal::{JournalError, SegmentReader};
use namespace::{Mode, Namespace};

use super::ClientSubtree;

/// Bytes of merged events that are kept for a view that is made later: a view takes more memory.
const UNSEEN_BYTES_MAX: usize = 256 << 20;

/// See the module documentation.
#[derive(Debug)]
pub struct SubtreeView {
    namespace: Namespace,
}

impl SubtreeView {
    /// The namespace, whose root directory is known by its inode number.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// For loading directories that the view lacks ([`namespace::Refusal::Cold`]).
    pub fn namespace_mut(&mut self) -> &mut Namespace {
        &mut self.namespace
    }
}

impl ClientSubtree {
    /// Whether there is a view.
    #[must_use]
    pub fn has_view(&self) -> bool {
        self.view.is_some()
    }

    /// The view, up to date with the journal.
    pub fn view(&mut self) -> &mut SubtreeView {
        let view = self.view.get_or_insert_with(|| {
            let root = &self.grant.root;
            // A directory that was empty has names if merged events are gone.
            let has_all = self.viewed == self.first_seq || !self.unseen.is_empty();
            let mut namespace = Namespace::new();
            namespace.store().adopt_root(root, self.grant.empty && root.size == 0 && has_all);
            Box::new(SubtreeView { namespace })
        });
        if self.viewed == self.buffer.next_seq() {
            return view;
        }
        self.buffer.close_block();
        let blocks = self.buffer.blocks();
        for block in self.unseen.iter().chain(&blocks[self.seen..]) {
            let Ok((block, _)) = journal::Block::read(block, 0) else {
                debug_assert!(false, "the buffer's own blocks are intact");
                continue;
            };
            let mut events = block.events();
            while let Ok(Some(record)) = events.next_event() {
                if record.seq >= self.viewed {
                    view.namespace.apply(record.seq, Mode::Live, &record.event);
                }
            }
        }
        self.seen = blocks.len();
        self.viewed = self.buffer.next_seq();
        self.unseen.drain(..).for_each(|block| self.buffer.recycle(block));
        view
    }

    /// Keeps blocks that left the journal for a view, which is made at once if they are too many.
    pub(super) fn keep_unseen(&mut self, blocks: Vec<Vec<u8>>) {
        self.unseen.extend(blocks);
        if self.unseen.iter().map(Vec::len).sum::<usize>() > UNSEEN_BYTES_MAX {
            self.view();
        }
    }

    /// Applies a journal of an earlier process of this client to the view. The numbers that it used
    /// are used.
    ///
    /// # Errors
    /// If the journal is damaged.
    pub fn replay(&mut self, bytes: &[u8]) -> Result<(), JournalError> {
        let mut reader = SegmentReader::open(bytes)?;
        while let Some(block) = reader.next_block()? {
            let mut events = block.events();
            while let Some(record) = events.next_event()? {
                if let Some(ino) = record.event.numbered() {
                    self.skip_used(ino);
                }
                self.content_elsewhere |= record.event.content_elsewhere().is_some();
                let namespace = &mut self.view().namespace;
                namespace.apply(record.seq, Mode::Live, &record.event);
            }
        }
        Ok(())
    }
}
