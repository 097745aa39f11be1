//! The speed of the machine without us: the disk's and the socket's own, beside which our figures
//! are read.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use cudele::Result;

use super::dialogue::{Stopwatch, await_start};
use super::noise;
use crate::harness::job::JobOutcome;

const WRITE_BYTES: usize = 1 << 20;
const MESSAGE_BYTES: usize = 64;

/// Writes a new file in large pieces and makes it durable, its name included.
pub(super) fn write(path: &Path, bytes: u64) -> Result<JobOutcome> {
    let about = |error| terminal::io(path, &error);
    let block = noise::block(WRITE_BYTES);
    await_start()?;
    let mut outcome = JobOutcome { bytes, ..JobOutcome::default() };
    let watch = Stopwatch::start();
    let mut file = std::fs::File::create(path).map_err(about)?;
    let mut left = bytes;
    while left > 0 {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        file.write_all(&block[..count]).map_err(about)?;
        left -= count as u64;
    }
    file.sync_all().map_err(about)?;
    if let Some(parent) = path.parent() {
        std::fs::File::open(parent).and_then(|dir| dir.sync_all()).map_err(about)?;
    }
    watch.stop(&mut outcome);
    std::fs::remove_file(path).map_err(about)?;
    Ok(outcome)
}

/// Answers messages until the peer leaves.
pub(super) fn echo(socket: &Path) -> Result<JobOutcome> {
    let about = |error| terminal::io(socket, &error);
    let listener = UnixListener::bind(socket).map_err(about)?;
    await_start()?;
    let (mut stream, _) = listener.accept().map_err(about)?;
    let mut message = [0; MESSAGE_BYTES];
    loop {
        match stream.read_exact(&mut message) {
            Ok(()) => stream.write_all(&message).map_err(about)?,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(about(error)),
        }
    }
    std::fs::remove_file(socket).map_err(about)?;
    Ok(JobOutcome::default())
}

/// Sends messages to [`echo`] and waits for each to come back.
pub(super) fn ping(socket: &Path, rounds: u64) -> Result<JobOutcome> {
    let about = |error| terminal::io(socket, &error);
    let mut stream = UnixStream::connect(socket).map_err(about)?;
    let mut message = [7; MESSAGE_BYTES];
    await_start()?;
    let mut outcome = JobOutcome { events: rounds, ..JobOutcome::default() };
    let watch = Stopwatch::start();
    for _ in 0..rounds {
        stream.write_all(&message).map_err(about)?;
        stream.read_exact(&mut message).map_err(about)?;
    }
    watch.stop(&mut outcome);
    Ok(outcome)
}
