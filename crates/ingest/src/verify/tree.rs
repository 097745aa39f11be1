//! The facts of a directory tree.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cudele::{FileType, Result, Timestamp};
use terminal::io;

use super::{Content, Fact, Facts, group, hash};

type Inodes = BTreeMap<(u64, u64), Vec<Vec<u8>>>;

/// Reads a directory tree. Unreadable entries are left out.
///
/// # Errors
/// If the root cannot be read.
pub fn of_tree(root: &Path) -> Result<Facts> {
    let root = &fs::canonicalize(root).map_err(|error| io(root, &error))?;
    let mut facts = Facts::new();
    let mut inodes = Inodes::new();
    let data = fs::symlink_metadata(root).map_err(|error| io(root, &error))?;
    facts.insert(Vec::new(), directory(&data));
    let mut pending = vec![(root.clone(), Vec::new())];
    while let Some((dir, path)) = pending.pop() {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries.filter_map(std::result::Result::ok) {
            let mut below = path.clone();
            if !below.is_empty() {
                below.push(b'/');
            }
            below.extend_from_slice(entry.file_name().as_bytes());
            let Ok(data) = fs::symlink_metadata(entry.path()) else { continue };
            if data.is_dir() {
                facts.insert(below.clone(), directory(&data));
                pending.push((entry.path(), below));
            } else if let Some(fact) = other(&entry.path(), &data) {
                if data.nlink() > 1 {
                    inodes.entry((data.dev(), data.ino())).or_default().push(below.clone());
                }
                facts.insert(below, fact);
            }
        }
    }
    group(&mut facts, inodes.into_values());
    Ok(facts)
}

fn directory(data: &fs::Metadata) -> Fact {
    fact(data, FileType::Directory, Content::None)
}

fn fact(data: &fs::Metadata, file_type: FileType, content: Content) -> Fact {
    Fact {
        file_type,
        permissions: Some(data.mode() & 0o7777),
        owner: Some((data.uid(), data.gid())),
        mtime: Some(Timestamp::from_parts(data.mtime(), data.mtime_nsec())),
        content,
        same_as: None,
    }
}

fn other(path: &Path, data: &fs::Metadata) -> Option<Fact> {
    let file_type = FileType::from_mode(data.mode())?;
    let content = match file_type {
        FileType::Regular => hash(&mut fs::File::open(path).ok()?).ok()?,
        FileType::Symlink => Content::Target(fs::read_link(path).ok()?.into_os_string().into_vec()),
        FileType::CharDevice | FileType::BlockDevice => {
            Content::Device(u32::try_from(data.rdev()).ok()?)
        }
        FileType::Directory | FileType::Fifo | FileType::Socket => Content::None,
    };
    Some(fact(data, file_type, content))
}
