//! A journal in memory, as a decoupled client appends to it.

use types::{Origin, Seq};

use crate::block::{self, BLOCK_BYTES, HEADER_BYTES};
use crate::codec::Encoder;
use crate::event::Event;

/// Bytes that must be free in a block before an event without data is encoded into it: two names,
/// and every number at its longest.
const EVENT_ROOM: usize = 768;

/// An append-only journal in memory: closed blocks, and one open one.
///
/// Appending is the hot path of a decoupled client (Append Client Journal, M-03): it checks
/// nothing, takes no lock and makes no system call. It allocates once per 64 KiB block, and not
/// even that while recycled blocks are at hand.
#[derive(Debug)]
pub struct JournalBuffer {
    closed: Vec<Vec<u8>>,
    open: Vec<u8>,
    open_events: u32,
    next_seq: Seq,
    encoder: Encoder,
    origins: bool,
    spare: Vec<Vec<u8>>,
    bytes_closed: u64,
}

impl JournalBuffer {
    /// An empty journal that begins with event `first_seq`. With `origins`, events carry the
    /// request that caused them.
    #[must_use]
    pub fn new(first_seq: Seq, origins: bool) -> Self {
        Self {
            closed: Vec::new(),
            open: Vec::new(),
            open_events: 0,
            next_seq: first_seq,
            encoder: Encoder::new(origins),
            origins,
            spare: Vec::new(),
            bytes_closed: 0,
        }
    }

    /// Appends an event and returns its position.
    #[inline]
    pub fn append(&mut self, origin: Origin, event: &Event<'_>) -> Seq {
        if self.open.len() + EVENT_ROOM > self.open.capacity() {
            self.next_block();
        }
        self.encoder.encode(origin, event, &mut self.open);
        self.open_events += 1;
        let seq = self.next_seq;
        self.next_seq.0 += 1;
        if self.open.len() >= BLOCK_BYTES {
            self.close_block();
        }
        seq
    }

    #[cold]
    fn next_block(&mut self) {
        self.close_block();
        if self.open.capacity() < BLOCK_BYTES {
            self.open = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(BLOCK_BYTES));
        }
        self.open.resize(HEADER_BYTES, 0);
    }

    /// Closes the open block, so that [`JournalBuffer::blocks`] holds every event.
    pub fn close_block(&mut self) {
        if self.open_events == 0 {
            self.open.clear();
            return;
        }
        let first = Seq(self.next_seq.0 - u64::from(self.open_events));
        block::seal(&mut self.open, self.origins, self.open_events, first);
        self.bytes_closed += self.open.len() as u64;
        self.closed.push(std::mem::take(&mut self.open));
        self.open_events = 0;
        self.encoder.reset();
    }

    /// The closed blocks, oldest first.
    #[must_use]
    pub fn blocks(&self) -> &[Vec<u8>] {
        &self.closed
    }

    /// Takes the closed blocks out, oldest first.
    pub fn take_blocks(&mut self) -> Vec<Vec<u8>> {
        self.bytes_closed = 0;
        std::mem::take(&mut self.closed)
    }

    /// Gives the memory of a block back for reuse. At most 64 blocks (4 MiB) are kept.
    pub fn recycle(&mut self, mut block: Vec<u8>) {
        if self.spare.len() < 64 && block.capacity() >= BLOCK_BYTES {
            block.clear();
            self.spare.push(block);
        }
    }

    /// Position that the next event will have.
    #[must_use]
    pub fn next_seq(&self) -> Seq {
        self.next_seq
    }

    /// Whether no event is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.closed.is_empty() && self.open_events == 0
    }

    /// Bytes held, headers of blocks included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes_closed + if self.open_events == 0 { 0 } else { self.open.len() as u64 }
    }
}
