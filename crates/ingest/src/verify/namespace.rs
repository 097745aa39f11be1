//! The facts of a tree in the namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

use cudele::{Attr, Dir, FileType, Fs, Ino, Result};
use xxhash_rust::xxh3::Xxh3;

use super::{Content, Fact, Facts, group};

/// Reads a directory of the namespace with everything below it, contents included.
///
/// # Errors
/// The first of a listing or a read.
pub fn of_namespace(fs: &Arc<Fs>, root: &str) -> Result<Facts> {
    let mut facts = Facts::new();
    let mut inodes: BTreeMap<Ino, Vec<Vec<u8>>> = BTreeMap::new();
    facts.insert(Vec::new(), fact(&fs.stat(root)?, Content::None));
    let mut pending: Vec<(Dir, Vec<u8>)> = vec![(fs.open_dir(root)?, Vec::new())];
    while let Some((dir, path)) = pending.pop() {
        for entry in dir.list()? {
            let mut below = path.clone();
            if !below.is_empty() {
                below.push(b'/');
            }
            below.extend_from_slice(&entry.name);
            let attr = entry.attr;
            let content = match attr.file_type() {
                FileType::Regular => content(fs, &attr)?,
                FileType::Symlink => Content::Target(fs.read_link(attr.ino)?),
                FileType::CharDevice | FileType::BlockDevice => Content::Device(attr.rdev),
                FileType::Directory | FileType::Fifo | FileType::Socket => Content::None,
            };
            if attr.is_dir() {
                pending.push((dir.enter(&entry.name, attr.ino)?, below.clone()));
            } else if attr.nlink > 1 {
                inodes.entry(attr.ino).or_default().push(below.clone());
            }
            facts.insert(below, fact(&attr, content));
        }
    }
    group(&mut facts, inodes.into_values());
    Ok(facts)
}

fn content(fs: &Fs, attr: &Attr) -> Result<Content> {
    let mut hasher = Xxh3::new();
    let mut length = 0;
    fs.read_file(attr, &mut |bytes| {
        hasher.update(bytes);
        length += bytes.len() as u64;
        Ok(())
    })?;
    // A file with less content than its size is a different one.
    let length = if length == attr.size { length } else { u64::MAX };
    Ok(Content::File(length, hasher.digest128()))
}

fn fact(attr: &Attr, content: Content) -> Fact {
    Fact {
        file_type: attr.file_type(),
        permissions: Some(attr.mode & 0o7777),
        owner: Some((attr.uid, attr.gid)),
        mtime: Some(attr.mtime),
        content,
        same_as: None,
    }
}
