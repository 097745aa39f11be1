//! Writes runs while the journal grows, so that a merge by reference has little left to do.
//!
//! One thread reads closed blocks and gathers rows ([`client::RunCollector`]); two threads sort,
//! encode and store them piece by piece. The appending thread copies a block now and then and does
//! not wait; the merge takes the last blocks. After any failure here, the merge reads the whole
//! journal.
//!
//! Invariant: the server does not know these objects. So useless ones may be deleted, and `cudele
//! sweep` finds those of a process that died.

use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use client::{ByReference, ByValue, Piece, RunCollector, RunThreshold, StoredRun};
use journal::SegmentHeader;
use objstore::Expect;
use types::{Errno, Error, Ino, Result};

use crate::Fs;

/// A journal with fewer blocks is merged fast enough without this.
const BLOCKS_MIN: usize = 2;
/// Blocks that were handed over and not read yet.
const BLOCKS_WAITING: usize = 16;
/// The number of unsorted pieces; the gathering thread waits beyond it.
const PIECES_WAITING: usize = 1;
/// Threads that sort and store. While one waits for the store the other one has work.
const WRITERS: usize = 2;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Written {
    blocks: Option<SyncSender<Message>>,
    handed: usize,
    is_empty: bool,
    thread: Option<JoinHandle<std::result::Result<RunCollector, Ended>>>,
}

#[derive(Debug)]
enum Message {
    Block(Vec<u8>),
    /// There are no more.
    End,
}

/// Why nothing comes of it.
#[derive(Debug)]
enum Ended {
    /// The journal cannot be told so.
    ByValue(ByValue),
    /// The store failed.
    Failed(Error),
}

impl From<ByValue> for Ended {
    fn from(because: ByValue) -> Self {
        Self::ByValue(because)
    }
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

type Stored = std::result::Result<StoredRun, Ended>;

impl Written {
    /// Starts the threads if the journal is long enough. `is_empty` says whether the server has no
    /// names in the root.
    pub(super) fn start(fs: &Arc<Fs>, root: Ino, is_empty: bool, blocks: usize) -> Option<Self> {
        if blocks < BLOCKS_MIN {
            return None;
        }
        let (sender, receiver) = sync_channel(BLOCKS_WAITING);
        let collector = RunCollector::new(root, is_empty, RunThreshold::default());
        let fs = fs.clone();
        let thread = fs.cluster().thread("runs").ok()?;
        let thread = thread.spawn(move || collect_runs(&fs, collector, &receiver)).ok()?;
        Some(Self { blocks: Some(sender), handed: 0, is_empty, thread: Some(thread) })
    }

    /// Hands closed blocks over, as many as are taken at once.
    pub(super) fn hand_over(&mut self, blocks: &[Vec<u8>]) {
        let Some(sender) = &self.blocks else { return };
        for block in blocks.get(self.handed..).unwrap_or_default() {
            match sender.try_send(Message::Block(block.clone())) {
                Ok(()) => self.handed += 1,
                Err(TrySendError::Full(_)) => return,
                // It has given up, and says why at the end.
                Err(TrySendError::Disconnected(_)) => return self.blocks = None,
            }
        }
    }

    /// The whole journal as runs, which are stored, and a rest; or why not.
    ///
    /// # Errors
    /// The error of the store.
    pub(crate) fn finish(
        mut self,
        header: &SegmentHeader,
        blocks: &[impl AsRef<[u8]>],
        is_empty: bool,
    ) -> Result<std::result::Result<ByReference, ByValue>> {
        if is_empty != self.is_empty {
            // Other clients have made names in the root.
            return Ok(Err(ByValue::Changes));
        }
        if let Some(sender) = self.blocks.take() {
            let rest = blocks.get(self.handed..).unwrap_or_default().iter();
            let rest = rest.map(|block| Message::Block(block.as_ref().to_vec()));
            for message in rest.chain([Message::End]) {
                // A thread that has given up returns the reason.
                if sender.send(message).is_err() {
                    break;
                }
            }
        }
        let Some(thread) = self.thread.take() else { return Ok(Err(ByValue::Changes)) };
        let panicked = |_| Err(Error::new(Errno::Io, "runs", "their thread panicked").into());
        match thread.join().unwrap_or_else(panicked) {
            Ok(collector) => Ok(collector.finish(header, blocks)),
            Err(Ended::ByValue(because)) => Ok(Err(because)),
            Err(Ended::Failed(error)) => Err(error),
        }
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        self.blocks = None;
        if let Some(thread) = self.thread.take() {
            // The thread deletes its objects, and its result is not needed.
            let _ = thread.join();
        }
    }
}

/// Writes runs until the journal ends; deletes useless ones.
fn collect_runs(
    fs: &Fs,
    mut collector: RunCollector,
    blocks: &Receiver<Message>,
) -> std::result::Result<RunCollector, Ended> {
    let ended = with_writers(fs, &mut collector, blocks);
    let useless = if ended.is_ok() { collector.take_useless() } else { collector.give_up() };
    for part in useless {
        // After a failure, the object stays until a sweep.
        let _ = fs.store().delete(&part.object());
    }
    ended.map(|()| collector)
}

fn with_writers(
    fs: &Fs,
    collector: &mut RunCollector,
    blocks: &Receiver<Message>,
) -> std::result::Result<(), Ended> {
    let (pieces, todo) = sync_channel(PIECES_WAITING);
    let (stored, done) = channel();
    let todo = Mutex::new(todo);
    std::thread::scope(|scope| {
        let writers = (0..WRITERS).map_while(|_| {
            let (stored, todo) = (stored.clone(), &todo);
            let write = move || write(fs, todo, &stored);
            Builder::new().name("runs-write".to_owned()).spawn_scoped(scope, write).ok()
        });
        if writers.count() == 0 {
            return Err(ByValue::Changes.into());
        }
        drop(stored);
        let mut ended = read_all(collector, blocks, &pieces, &done);
        drop(pieces);
        for part in done {
            // Noted also if nothing comes of it, so that it is deleted.
            let noted = part.and_then(|part| Ok(collector.written(part)?));
            ended = ended.and(noted);
        }
        ended
    })
}

/// Reads blocks, and has pieces written as soon as there are any.
fn read_all(
    collector: &mut RunCollector,
    blocks: &Receiver<Message>,
    pieces: &SyncSender<Piece>,
    done: &Receiver<Stored>,
) -> std::result::Result<(), Ended> {
    // The writing threads end early only by a panic.
    let lost = |_| Error::new(Errno::Io, "runs", "the threads that write them are gone");
    for message in blocks {
        match message {
            Message::Block(bytes) => collector.take(&bytes)?,
            Message::End => {
                for piece in collector.end()? {
                    pieces.send(piece).map_err(lost)?;
                }
                return Ok(());
            }
        }
        while let Some(piece) = collector.next_piece()? {
            pieces.send(piece).map_err(lost)?;
        }
        while let Ok(part) = done.try_recv() {
            collector.written(part?)?;
        }
    }
    // The receiver has given up.
    Err(ByValue::Changes.into())
}

/// Stores pieces until there are no more.
fn write(fs: &Fs, todo: &Mutex<Receiver<Piece>>, stored: &Sender<Stored>) {
    loop {
        let piece = todo.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(piece) = piece else { return };
        if stored.send(store(fs, piece)).is_err() {
            return;
        }
    }
}

fn store(fs: &Fs, piece: Piece) -> Stored {
    let ((name, bytes), part) = piece.encode()?;
    // An existing object of this name has the same content.
    let _ = fs.store().put(&name, &bytes, Expect::Any)?;
    Ok(part)
}
