//! A dump as a source.
//!
//! A dump may come from a stranger, as an archive may: paths that would leave the destination, and
//! links to names that did not come before, are refused by the same rules.

use std::io::{BufReader, Read};

use cudele::{Errno, Error, FileType, Result};
use types::{INLINE_BYTES_MAX, SYMLINK_BYTES_MAX, acl};

use super::archive::clean;
use super::{EntrySink, Skip, SourceEntry, SourceKind, shown};
use crate::dump::{DumpEnd, DumpHeader, DumpLine, DumpSkip, damaged, next_line, parse};

const BUFFER_BYTES: usize = 256 * 1024;

/// Hands out every entry of a dump.
///
/// # Errors
/// `EBADMSG`, with the dump and the line, for any fault of the dump; the taker's errors.
pub fn read(name: &str, raw: Box<dyn Read + '_>, taker: &mut dyn EntrySink) -> Result<()> {
    let decoder = zstd::stream::read::Decoder::new(raw)
        .map_err(|error| Error::new(Errno::Io, name, error.to_string()))?;
    let mut from = BufReader::with_capacity(BUFFER_BYTES, decoder);
    let (mut line, mut next) = (Vec::new(), Vec::new());
    let mut number = 1;
    if !next_line(name, number, &mut from, &mut line)? {
        return Err(damaged(name, number, "it is empty"));
    }
    DumpHeader::parse(&line).map_err(|cause| damaged(name, number, &cause))?;
    // One line ahead, because the last one has another meaning.
    let mut is_there = next_line(name, number + 1, &mut from, &mut line)?;
    let (mut entries, mut skipped) = (0, 0);
    while is_there {
        number += 1;
        is_there = next_line(name, number + 1, &mut from, &mut next)?;
        if !is_there {
            break;
        }
        if let Some(DumpSkip { not_dumped, reason }) = DumpSkip::parse(&line) {
            taker.skip(Skip { path: not_dumped.into_bytes(), reason });
            skipped += 1;
        } else {
            one(name, number, &line, taker)?;
            entries += 1;
        }
        std::mem::swap(&mut line, &mut next);
    }
    let end: DumpEnd = serde_json::from_slice(&line)
        .map_err(|_| damaged(name, number, "its last line is missing"))?;
    if (end.end, end.entries, end.skipped) != (true, entries, skipped) {
        let cause = format!("{} entries and {} faults were written", end.entries, end.skipped);
        return Err(damaged(name, number, &cause));
    }
    Ok(())
}

fn one(name: &str, number: u64, line: &[u8], taker: &mut dyn EntrySink) -> Result<()> {
    let line = parse(name, number, line)?;
    let bad = |cause: String| damaged(name, number, &cause);
    let raw_path = line.path_bytes().map_err(bad)?;
    let refused = |cause: &str| bad(format!("the entry {} {cause}", shown(&raw_path)));
    let path = clean(&raw_path).map_err(refused)?;
    let file_type = line.kind().map_err(bad)?;
    if path.is_empty() && file_type != FileType::Directory {
        return Err(refused("has no name"));
    }
    let parts = Parts::of(&line, file_type).map_err(|cause| refused(&cause))?;
    let mut xattrs = line.xattr_bytes().map_err(bad)?;
    xattrs.retain(|(name, _)| name.starts_with(b"user.") || acl::is_list(name));
    let entry = SourceEntry {
        path: &path,
        kind: parts.kind(&line, file_type),
        permissions: line.permissions().map_err(bad)?,
        owner: (line.uid, line.gid),
        mtime: line.mtime(),
        atime: Some(cudele::Timestamp(line.atime_ns)),
        xattrs: &xattrs,
    };
    taker.take(&entry, &mut parts.data.as_deref().unwrap_or_default())?;
    if let Some(policy) = &line.policy {
        taker.policy(&path, policy);
    }
    Ok(())
}

/// The parts of one type of inodes.
struct Parts {
    same_as: Option<Vec<u8>>,
    target: Vec<u8>,
    data: Option<Vec<u8>>,
}

impl Parts {
    fn of(line: &DumpLine<'_>, file_type: FileType) -> std::result::Result<Self, String> {
        let same_as = match line.same_as_bytes()? {
            Some(first) => {
                let first =
                    clean(&first).map_err(|cause| format!("links to a path that {cause}"))?;
                Some(first)
            }
            None => None,
        };
        let target = line.target_bytes()?;
        let is_link = file_type == FileType::Symlink && same_as.is_none();
        if is_link && (target.is_empty() || target.len() > SYMLINK_BYTES_MAX || target.contains(&0))
        {
            return Err("is a link with an illegal target".to_owned());
        }
        let data = line.data()?;
        if let Some(data) = &data
            && (file_type != FileType::Regular
                || data.len() as u64 != line.size
                || data.len() > INLINE_BYTES_MAX)
        {
            return Err("has content of another length than its size".to_owned());
        }
        Ok(Self { same_as, target, data })
    }

    fn kind(&self, line: &DumpLine<'_>, file_type: FileType) -> SourceKind<'_> {
        if let Some(first) = &self.same_as {
            return SourceKind::HardLink(first);
        }
        match file_type {
            FileType::Directory => SourceKind::Directory,
            FileType::Symlink => SourceKind::Symlink(&self.target),
            FileType::Regular if self.data.is_none() && line.size > 0 => {
                SourceKind::Hollow { size: line.size }
            }
            FileType::Regular => SourceKind::File { size: line.size },
            FileType::Fifo | FileType::Socket | FileType::CharDevice | FileType::BlockDevice => {
                SourceKind::Special { file_type, rdev: line.rdev }
            }
        }
    }
}
