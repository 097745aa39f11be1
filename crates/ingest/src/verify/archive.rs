//! The facts of an archive: a second reading, into a picture of the unpacked tree.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use cudele::{Errno, Error, FileType, Result, Timestamp};
use tar::EntryType;

use super::{Content, Fact, Facts, group, hash};
use crate::source::archive::{decompressed, open};

/// Inodes by the number of the entry that made them.
#[derive(Default)]
struct Picture {
    facts: Facts,
    /// Which inode a path names.
    inodes: BTreeMap<Vec<u8>, usize>,
}

/// Reads an archive.
///
/// # Errors
/// `EBADMSG` if it cannot be read.
pub fn of_archive(path: &Path) -> Result<Facts> {
    let name = path.display().to_string();
    let bad = |error: std::io::Error| Error::new(Errno::BadMessage, &name, error.to_string());
    let mut archive = tar::Archive::new(decompressed(&name, open(path)?)?);
    let mut picture = Picture::default();
    for (number, entry) in archive.entries().map_err(bad)?.enumerate() {
        let mut entry = entry.map_err(bad)?;
        picture.add(number, &mut entry).map_err(bad)?;
    }
    Ok(picture.finish())
}

/// The components that count, with one `/` between them.
fn plain(path: &[u8]) -> Vec<u8> {
    let parts: Vec<&[u8]> =
        path.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    parts.join(&b'/')
}

impl Picture {
    #[allow(clippy::wildcard_enum_match_arm, reason = "archives may hold types that nobody knows")]
    fn add<R: Read>(
        &mut self,
        number: usize,
        entry: &mut tar::Entry<'_, R>,
    ) -> std::io::Result<()> {
        let raw = entry.path_bytes().into_owned();
        let path = plain(&raw);
        let header = entry.header().clone();
        let target = entry.link_name_bytes().map(std::borrow::Cow::into_owned).unwrap_or_default();
        let mut mtime = Timestamp::from_parts(header.mtime()?.cast_signed(), 0);
        if let Some(extensions) = entry.pax_extensions()? {
            for extension in extensions.flatten() {
                if extension.key_bytes() == b"mtime" {
                    mtime = precise(extension.value().unwrap_or_default()).unwrap_or(mtime);
                }
            }
        }
        let device = || -> std::io::Result<Content> {
            let major = header.device_major()?.unwrap_or(0);
            let minor = header.device_minor()?.unwrap_or(0);
            let number = rustix::fs::makedev(major, minor);
            Ok(Content::Device(u32::try_from(number).unwrap_or(u32::MAX)))
        };
        let (file_type, content) = match header.entry_type() {
            EntryType::Directory => (FileType::Directory, Content::None),
            EntryType::Regular if raw.ends_with(b"/") => (FileType::Directory, Content::None),
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                (FileType::Regular, hash(entry)?)
            }
            EntryType::Symlink => (FileType::Symlink, Content::Target(target)),
            EntryType::Fifo => (FileType::Fifo, Content::None),
            EntryType::Char => (FileType::CharDevice, device()?),
            EntryType::Block => (FileType::BlockDevice, device()?),
            EntryType::Link => {
                let first = plain(&target);
                if let (Some(fact), Some(inode)) =
                    (self.facts.get(&first).cloned(), self.inodes.get(&first).copied())
                {
                    self.facts.insert(path.clone(), fact);
                    self.inodes.insert(path, inode);
                }
                return Ok(());
            }
            _ => return Ok(()),
        };
        self.above(&path);
        let owner = (header.uid()?, header.gid()?);
        let owner = u32::try_from(owner.0).ok().zip(u32::try_from(owner.1).ok());
        let permissions = Some(header.mode()? & 0o7777);
        let mtime = Some(mtime);
        let fact = Fact { file_type, permissions, owner, mtime, content, same_as: None };
        self.facts.insert(path.clone(), fact);
        self.inodes.insert(path, number);
        Ok(())
    }

    /// Directories that the archive takes for granted; nothing is known of their attributes.
    fn above(&mut self, path: &[u8]) {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in std::iter::once(0).chain(ends) {
            self.facts.entry(path[..end].to_vec()).or_insert(Fact {
                file_type: FileType::Directory,
                permissions: None,
                owner: None,
                mtime: None,
                content: Content::None,
                same_as: None,
            });
        }
    }

    fn finish(mut self) -> Facts {
        let mut groups: BTreeMap<usize, Vec<Vec<u8>>> = BTreeMap::new();
        for (path, inode) in self.inodes {
            groups.entry(inode).or_default().push(path);
        }
        group(&mut self.facts, groups.into_values());
        self.facts
    }
}

/// A PAX time: seconds with a fraction.
fn precise(text: &str) -> Option<Timestamp> {
    let negative = text.starts_with('-');
    let (seconds, fraction) = text.trim_start_matches('-').split_once('.').unwrap_or((text, "0"));
    let seconds: i64 = seconds.trim_start_matches('-').parse().ok()?;
    let mut nanos = 0;
    let mut weight = 100_000_000;
    for digit in fraction.bytes().take(9) {
        nanos += i64::from(digit.checked_sub(b'0')?) * weight;
        weight /= 10;
    }
    let time = seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?;
    Some(Timestamp(if negative { -time } else { time }))
}
