//! Write-behind: written content before it reaches the object store.
//!
//! A write returns when its bytes are in a buffer here. Adjacent writes are gathered into pieces,
//! which threads write to the store: the program continues while the store works, and small writes
//! become large ones. One thread keeps a disk busy; a store that executes many operations at once
//! has several threads. Every other access to the content of a file waits until all its pieces are
//! written ([`ContentCx::drain`]). Each file is written back every [`WRITE_BACK_EVERY`], which
//! bounds the loss when the process is killed.
//!
//! The next call that waits returns an error, and so does every flush and sync until a program
//! writes the lost part again (module `lost`). Invariants: a failed write does not lengthen a file,
//! and none of its bytes show when the file grows again; content of the inode stays here until the
//! store has it.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use cudele::{Error, Fs, Ino, Result, StripedFile};

use crate::content::ContentCx;
use crate::file::{Body, Content};
use crate::held;

/// The store is written in pieces of so many bytes, and at multiples of it.
const PIECE_BYTES: usize = 1 << 20;
/// So many pieces of a file may wait; then its writer does.
const PIECES_WAITING_MAX: usize = 8;
/// A store has so many writers at most, one for each [`WRITER_BYTES`] that it takes at once.
const WRITERS_MAX: usize = 4;
const WRITER_BYTES: usize = 8 << 20;
/// So many buffers are kept for the next pieces: new ones would cost as much as the copying.
const SPARE_MAX: usize = 16;
/// The longest time that written content stays here.
pub(crate) const WRITE_BACK_EVERY: Duration = Duration::from_secs(5);

/// The newest writes to a file, before the hand-over to a thread.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    start: u64,
    bytes: Vec<u8>,
    /// How long the file was before this.
    length_before: u64,
    /// The pieces of the file that threads have.
    flow: Option<Arc<Flow>>,
    /// The whole content as the inode has it, until the store has its beginning.
    inline: Option<Vec<u8>>,
    /// The error of a write that failed while no call waited.
    failed: Option<Error>,
}

impl WriteBuffer {
    /// Content that was in the inode and is to be in the store.
    pub(crate) fn take_inline(&mut self, bytes: Vec<u8>) {
        let (length_before, inline) = (bytes.len() as u64, Some(bytes.clone()));
        let failed = self.failed.take();
        *self = Self { bytes, length_before, inline, failed, ..Self::default() };
    }

    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Whether a thread has a piece of the file.
    fn is_moving(&self) -> bool {
        !self.bytes.is_empty() || self.flow.is_some()
    }
}

/// The pieces of one file that are on their way.
#[derive(Debug, Default)]
struct Flow {
    state: Mutex<FlowState>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct FlowState {
    waiting: usize,
    /// The failed write with the lowest offset.
    failed: Option<FailedWrite>,
}

#[derive(Clone, Debug)]
struct FailedWrite {
    error: Error,
    start: u64,
    /// How long the file was before it.
    length_before: u64,
}

impl Flow {
    /// Waits until at most so many pieces are on their way.
    fn wait(&self, at_most: usize) -> Option<FailedWrite> {
        let state = held(&self.state);
        let until = |state: &mut FlowState| state.waiting > at_most;
        let mut state =
            self.arrived.wait_while(state, until).unwrap_or_else(PoisonError::into_inner);
        if at_most == 0 { state.failed.take() } else { state.failed.clone() }
    }
}

#[derive(Debug)]
struct Piece {
    place: StripedFile,
    buffered: WriteBuffer,
    flow: Arc<Flow>,
}

/// The threads that write, and their buffers.
#[derive(Debug, Default)]
pub(crate) struct WriteBack {
    threads: Mutex<Option<Sender<Piece>>>,
    spare: Arc<Spare>,
}

#[derive(Debug, Default)]
struct Spare(Mutex<Vec<Vec<u8>>>);

impl Spare {
    fn take(&self) -> Vec<u8> {
        held(&self.0).pop().unwrap_or_default()
    }

    fn give(&self, mut buffer: Vec<u8>) {
        let mut spare = held(&self.0);
        if spare.len() < SPARE_MAX && buffer.capacity() > 0 {
            buffer.clear();
            spare.push(buffer);
        }
    }
}

impl WriteBack {
    /// The queue of the threads; `None` if no thread can be started.
    fn threads(&self, fs: &Arc<Fs>) -> Option<Sender<Piece>> {
        let mut threads = held(&self.threads);
        if threads.is_none() {
            let (sender, pieces) = channel();
            let pieces = Arc::new(Mutex::new(pieces));
            let writer = |_| {
                let (fs, pieces, spare) = (fs.clone(), pieces.clone(), self.spare.clone());
                let new = std::thread::Builder::new().name("writer".to_owned());
                new.spawn(move || write_pieces(&fs, &pieces, &spare)).ok()
            };
            let wanted = (fs.store().bytes_at_once() / WRITER_BYTES).clamp(1, WRITERS_MAX);
            let begun = (0..wanted).map_while(writer).count();
            *threads = (begun > 0).then_some(sender);
        }
        threads.clone()
    }
}

fn write_pieces(fs: &Fs, pieces: &Mutex<Receiver<Piece>>, spare: &Spare) {
    // One thread waits for the next piece, the other threads for the lock.
    let next = || held(pieces).recv();
    while let Ok(Piece { place, buffered, flow }) = next() {
        let WriteBuffer { start, bytes, length_before, .. } = buffered;
        // A skipped piece has failed, too: the thread of a later piece may have been faster.
        let failed = held(&flow.state).failed.as_ref().map(|failed| failed.error.clone());
        let written = failed.map_or_else(|| fs.write_at(place, start, &bytes), Err);
        spare.give(bytes);
        let mut state = held(&flow.state);
        if let Err(error) = written
            && state.failed.as_ref().is_none_or(|failed| start < failed.start)
        {
            state.failed = Some(FailedWrite { error, start, length_before });
        }
        state.waiting -= 1;
        flow.arrived.notify_all();
    }
}

impl ContentCx<'_> {
    /// Buffers a write to content in the object store.
    ///
    /// # Errors
    /// Those of earlier writes: `ENOSPC`, `EIO`.
    pub(crate) fn write_buffered(
        &self,
        ino: Ino,
        content: &mut Content,
        offset: u64,
        mut data: &[u8],
    ) -> Result<()> {
        if content.buffered.end() != offset || !content.buffered.is_moving() {
            self.drain(ino, content)?;
            if offset > content.size {
                self.clear_tail(ino, content)?;
            }
            content.buffered.start = offset;
            content.buffered.length_before = content.size;
        }
        content.note_change(offset..offset + data.len() as u64);
        while !data.is_empty() {
            let buffered = &mut content.buffered;
            if buffered.bytes.capacity() == 0 {
                buffered.bytes = self.write_back.spare.take();
            }
            let in_piece = usize::try_from(buffered.end() % PIECE_BYTES as u64).unwrap_or_default();
            let (now, later) = data.split_at(data.len().min(PIECE_BYTES - in_piece));
            buffered.bytes.extend_from_slice(now);
            content.size = content.size.max(buffered.end());
            if in_piece + now.len() == PIECE_BYTES {
                self.hand_over(ino, content)?;
            }
            data = later;
        }
        Ok(())
    }

    fn hand_over(&self, ino: Ino, content: &mut Content) -> Result<()> {
        let Some(threads) = self.write_back.threads(self.fs) else {
            let end = content.buffered.end();
            self.drain(ino, content)?;
            (content.buffered.start, content.buffered.length_before) = (end, content.size);
            return Ok(());
        };
        let flow = content.buffered.flow.get_or_insert_default().clone();
        let next = WriteBuffer {
            start: content.buffered.end(),
            length_before: content.size,
            flow: Some(flow.clone()),
            inline: content.buffered.inline.take(),
            ..WriteBuffer::default()
        };
        let buffered = std::mem::replace(&mut content.buffered, next);
        let place = StripedFile::new(ino, content.stripe);
        held(&flow.state).waiting += 1;
        if threads.send(Piece { place, buffered, flow: flow.clone() }).is_err() {
            // The queue ends with the mount, after the last write.
            return Err(Error::of(cudele::Errno::Io, "file"));
        }
        match flow.wait(PIECES_WAITING_MAX) {
            None => Ok(()),
            Some(_) => self.drain(ino, content),
        }
    }

    /// Everything written so far is in the object store when this returns.
    ///
    /// # Errors
    /// Those of earlier writes, once: `ENOSPC`, `EIO`. The file is as long then as it was before
    /// them.
    pub(crate) fn drain(&self, ino: Ino, content: &mut Content) -> Result<()> {
        if !content.buffered.is_moving() {
            return content.buffered.failed.take().map_or(Ok(()), Err);
        }
        let buffered = std::mem::take(&mut content.buffered);
        let end = buffered.end();
        let WriteBuffer { start, bytes, length_before, flow, inline, failed: earlier } = buffered;
        let place = StripedFile::new(ino, content.stripe);
        let last = if bytes.is_empty() { Ok(()) } else { self.fs.write_at(place, start, &bytes) };
        self.write_back.spare.give(bytes);
        let failed = flow.and_then(|flow| flow.wait(0));
        let failed = failed.or(last.err().map(|error| FailedWrite { error, start, length_before }));
        let Some(failed) = failed else { return earlier.map_or(Ok(()), Err) };
        let FailedWrite { error, start, length_before: length } = failed;
        if content.shared {
            content.lost.add(start..end, &error);
            // The bytes in the store may be those of another client.
            content.grown = content.grown.min(length);
            return Err(error);
        }
        // The store may have a part of the write, which would show when the file grows again.
        content.tail = content.tail.max(std::mem::replace(&mut content.size, length));
        match inline.filter(|inline| length == inline.len() as u64) {
            Some(inline) => {
                content.lost.add(length..end, &error);
                content.body = Body::Inline(inline);
                if self.fs.delete_data(place, content.tail).is_ok() {
                    content.tail = 0;
                }
            }
            None => {
                content.lost.add(start..end, &error);
                // A later growth of the file repeats a removal that fails now.
                let _ = self.clear_tail(ino, content);
            }
        }
        Err(error)
    }

    /// Nothing is in the object store beyond the end of the file when this returns.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`.
    pub(crate) fn clear_tail(&self, ino: Ino, content: &mut Content) -> Result<()> {
        let Content { size, tail, .. } = *content;
        if size < tail {
            self.fs.zero_range(StripedFile::new(ino, content.stripe), tail, size..tail)?;
        }
        content.tail = 0;
        Ok(())
    }

    /// Writes back every file that no call is using.
    pub(crate) fn write_back_idle(&self) {
        if !self.trees.nodes().any_open() {
            return;
        }
        let files = self.trees.nodes().files();
        for (ino, file) in files {
            let Some(mut content) = file.if_idle() else { continue };
            match self.drain(ino, &mut content) {
                // The next call returns the error.
                Err(error) => content.buffered.failed = Some(error),
                // After a failure the content is still here, and the next round tries again.
                Ok(()) => {
                    if self.write_back(ino, &mut content).is_ok() {
                        self.seal(ino, &mut content);
                    }
                }
            }
        }
    }
}
