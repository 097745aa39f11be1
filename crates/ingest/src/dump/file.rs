//! The file of a dump: its frames, and where a second process continues.

use std::fs::File;
use std::io::{BufRead, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use cudele::{Errno, Error, Ino, Result};
use serde::Serialize;
use types::Map;
use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, find_frame_compressed_size};

use super::line::{damaged, parse};
use super::{DumpEnd, DumpHeader, DumpLine, DumpSkip, LINE_BYTES_MAX};

/// Text of one frame. An interrupted dump loses at most so much.
const FRAME_BYTES: usize = 4 << 20;
/// The fastest level: the text has much in common from line to line.
const LEVEL: i32 = 1;
/// The most that a frame can take: the longest line, which zstd cannot make smaller.
const PACKED_BYTES_MAX: usize = FRAME_BYTES + 2 * LINE_BYTES_MAX;

/// Writes the lines of a dump.
pub struct DumpFile {
    to: Box<dyn Write>,
    /// The file, if it is one: it is flushed at the end.
    file: Option<File>,
    name: String,
    lines: Vec<u8>,
    compressor: Compressor<'static>,
    /// Bytes in the file so far.
    pub bytes: u64,
}

impl std::fmt::Debug for DumpFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DumpFile").field("name", &self.name).field("bytes", &self.bytes).finish()
    }
}

impl DumpFile {
    /// A new file, which must not exist. It is the owner's alone: a dump has names and content that
    /// the permissions in the namespace keep from other users.
    ///
    /// # Errors
    /// `EEXIST`, and the system's other errors.
    pub fn create(path: &Path) -> Result<Self> {
        let mut options = File::options();
        let file =
            options.write(true).create_new(true).mode(0o600).open(path).map_err(|error| {
                let remedy =
                    "continue a dump that was interrupted with --resume, or name another file";
                terminal::io(path, &error).remedy(remedy)
            })?;
        Self::over(path, file, 0)
    }

    /// A file with a part of a dump: everything behind its last whole frame is cut off.
    ///
    /// # Errors
    /// The system's.
    pub fn append(path: &Path, progress: &DumpProgress) -> Result<Self> {
        let failed = |error: &std::io::Error| terminal::io(path, error);
        let mut file = File::options().write(true).open(path).map_err(|e| failed(&e))?;
        file.set_len(progress.bytes).map_err(|e| failed(&e))?;
        file.seek(SeekFrom::Start(progress.bytes)).map_err(|e| failed(&e))?;
        Self::over(path, file, progress.bytes)
    }

    fn over(path: &Path, file: File, bytes: u64) -> Result<Self> {
        let to = file.try_clone().map_err(|error| terminal::io(path, &error))?;
        Self::new(Box::new(to), Some(file), path.display().to_string(), bytes)
    }

    /// Standard output.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn standard_output() -> Result<Self> {
        let name = "standard output".to_owned();
        Self::new(Box::new(std::io::stdout().lock()), None, name, 0)
    }

    fn new(to: Box<dyn Write>, file: Option<File>, name: String, bytes: u64) -> Result<Self> {
        let mut compressor = Compressor::new(LEVEL).map_err(|error| failed(&name, &error))?;
        compressor
            .set_parameter(CParameter::ChecksumFlag(true))
            .map_err(|error| failed(&name, &error))?;
        Ok(Self { to, file, name, lines: Vec::new(), compressor, bytes })
    }

    /// Writes the first line, in a frame of its own.
    ///
    /// # Errors
    /// The system's.
    pub fn begin(&mut self, header: &DumpHeader) -> Result<()> {
        self.push(header)?;
        self.flush()
    }

    /// Appends a line.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn push(&mut self, line: &impl Serialize) -> Result<()> {
        serde_json::to_writer(&mut self.lines, line)
            .map_err(|error| failed(&self.name, &error.into()))?;
        self.lines.push(b'\n');
        if self.lines.len() < FRAME_BYTES {
            return Ok(());
        }
        self.flush()
    }

    /// Ends the frame.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let packed = self.compressor.compress(&self.lines);
        let packed = packed.map_err(|error| failed(&self.name, &error))?;
        self.to.write_all(&packed).map_err(|error| failed(&self.name, &error))?;
        self.bytes += packed.len() as u64;
        self.lines.clear();
        Ok(())
    }

    /// Writes the last line, and has the file on the disk.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn finish(&mut self, end: DumpEnd) -> Result<()> {
        self.push(&end)?;
        self.flush()?;
        self.to.flush().map_err(|error| failed(&self.name, &error))?;
        if let Some(file) = &self.file {
            file.sync_all().map_err(|error| failed(&self.name, &error))?;
        }
        Ok(())
    }
}

fn failed(name: &str, error: &std::io::Error) -> Error {
    terminal::io(Path::new(name), error)
}

/// The whole frames of an interrupted dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpProgress {
    /// Its first line.
    pub header: DumpHeader,
    /// Lines of names.
    pub entries: u64,
    /// Lines of names that could not be read.
    pub(super) skipped: u64,
    /// The path of the last one, and whether it is a directory.
    pub last: Option<LastEntry>,
    /// The first path of each inode with several names.
    pub(super) links: Map<Ino, Vec<u8>>,
    /// The length of its whole frames.
    pub(super) bytes: u64,
    /// Whether it has its last line: nothing is missing.
    pub is_complete: bool,
}

/// The last entry of an interrupted dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastEntry {
    pub(super) path: Vec<u8>,
    pub(super) is_directory: bool,
}

impl DumpProgress {
    /// Reads the whole frames of a file.
    ///
    /// # Errors
    /// The system's; `EBADMSG` if it does not begin like a dump, or a whole frame of it is damaged.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let mut file = File::open(path).map_err(|error| terminal::io(path, &error))?;
        let mut progress: Option<Self> = None;
        let (mut packed, mut number) = (Vec::new(), 0);
        while let Some(frame) = next_frame(&name, &mut file, &mut packed)? {
            let mut text = Vec::new();
            zstd::stream::read::Decoder::with_buffer(&frame[..])
                .and_then(|decoder| {
                    decoder.take((PACKED_BYTES_MAX + 1) as u64).read_to_end(&mut text)
                })
                .map_err(|error| damaged(&name, number, &error.to_string()))?;
            for line in text.split_inclusive(|byte| *byte == b'\n') {
                number += 1;
                let line = line.strip_suffix(b"\n").unwrap_or(line);
                match &mut progress {
                    None => {
                        let header = DumpHeader::parse(line)
                            .map_err(|cause| damaged(&name, number, &cause))?;
                        progress = Some(Self::begun(header));
                    }
                    Some(progress) => progress.note(&name, number, line)?,
                }
            }
            if let Some(progress) = &mut progress {
                progress.bytes += frame.len() as u64;
            }
        }
        progress.ok_or_else(|| {
            Error::new(Errno::BadMessage, name, "no whole frame of a dump is in it")
                .remedy("remove the file, and dump without --resume")
        })
    }

    fn begun(header: DumpHeader) -> Self {
        let links = Map::default();
        Self { header, entries: 0, skipped: 0, last: None, links, bytes: 0, is_complete: false }
    }

    fn note(&mut self, name: &str, number: u64, line: &[u8]) -> Result<()> {
        if let Ok(end) = serde_json::from_slice::<DumpEnd>(line) {
            self.is_complete = end.end;
            return Ok(());
        }
        if DumpSkip::parse(line).is_some() {
            self.skipped += 1;
            return Ok(());
        }
        let line: DumpLine<'_> = parse(name, number, line)?;
        let bad = |cause: String| damaged(name, number, &cause);
        let path = line.path_bytes().map_err(bad)?;
        let is_directory = line.file_type == "directory";
        if !is_directory && line.nlink > 1 && line.same_as.is_none() {
            self.links.insert(line.inode(), path.clone());
        }
        self.entries += 1;
        self.last = Some(LastEntry { path, is_directory });
        Ok(())
    }
}

/// The next whole frame of a file, or `None` at its end or where a frame is cut off.
fn next_frame(name: &str, file: &mut File, packed: &mut Vec<u8>) -> Result<Option<Vec<u8>>> {
    loop {
        if let Ok(length) = find_frame_compressed_size(packed) {
            let rest = packed.split_off(length);
            return Ok(Some(std::mem::replace(packed, rest)));
        }
        if packed.len() > PACKED_BYTES_MAX {
            return Err(damaged(name, 0, "a frame is longer than those of a dump"));
        }
        let read = file.take(FRAME_BYTES as u64 / 4).read_to_end(packed);
        if read.map_err(|error| failed(name, &error))? == 0 {
            return Ok(None);
        }
    }
}

/// Reads a line of at most [`LINE_BYTES_MAX`] into `line`, without its end. False at the end.
///
/// # Errors
/// `EBADMSG`.
pub(crate) fn next_line(
    name: &str,
    number: u64,
    from: &mut dyn BufRead,
    line: &mut Vec<u8>,
) -> Result<bool> {
    line.clear();
    let read = from.take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', line);
    if read.map_err(|error| damaged(name, number, &error.to_string()))? == 0 {
        return Ok(false);
    }
    match line.pop() {
        Some(b'\n') => Ok(true),
        _ if line.len() >= LINE_BYTES_MAX => Err(damaged(name, number, "the line is too long")),
        _ => Err(damaged(name, number, "the line has no end")),
    }
}
