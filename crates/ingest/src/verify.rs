//! Whether a tree in the namespace equals the source it came from.
//!
//! Both are read back and written down as [`Facts`] by code that shares nothing with the intake of
//! sources: directories by their own walk, archives by a second reading, the namespace through
//! listings and file reads. Then the facts are compared.
//!
//! Invariant: every difference is reported; values without a comparison (attributes that an archive
//! does not have) are `None` in the facts of the source.

mod archive;
mod namespace;
mod tree;

use std::collections::BTreeMap;
use std::io::Read;

use cudele::{FileType, Timestamp};
use xxhash_rust::xxh3::Xxh3;

pub use archive::of_archive;
pub use namespace::of_namespace;
pub use tree::of_tree;

use crate::source::shown;

/// Bytes read at a time.
const CHUNK_BYTES: usize = 256 * 1024;

/// A tree: every path below its root (the root's is empty) and its object.
pub type Facts = BTreeMap<Vec<u8>, Fact>;

/// The facts of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The type.
    pub file_type: FileType,
    /// The lower 12 bits of its mode, if they are compared.
    pub permissions: Option<u32>,
    /// User and group, if they are compared.
    pub owner: Option<(u32, u32)>,
    /// The last change of its content, if it is compared.
    pub mtime: Option<Timestamp>,
    /// The content.
    pub content: Content,
    /// The first path, in order, of the inode that this path names, if it has several here.
    pub same_as: Option<Vec<u8>>,
}

/// The content of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A directory, FIFO or socket.
    None,
    /// Length in bytes and hash (xxh3, 128 bits).
    File(u64, u128),
    /// The target of a symbolic link.
    Target(Vec<u8>),
    /// The number of a device.
    Device(u32),
}

/// A path at which two trees differ, and the difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Below the roots.
    pub path: Vec<u8>,
    /// The difference.
    pub what: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", shown(&self.path), self.what)
    }
}

/// Length and hash of a stream.
fn hash(source: &mut dyn Read) -> std::io::Result<Content> {
    let mut hasher = Xxh3::new();
    let mut length = 0;
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return Ok(Content::File(length, hasher.digest128())),
            Ok(count) => {
                hasher.update(&buffer[..count]);
                length += count as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Gives every path of an inode with several the first of them.
fn group(facts: &mut Facts, groups: impl IntoIterator<Item = Vec<Vec<u8>>>) {
    for mut paths in groups {
        paths.sort();
        let Some(first) = paths.first().cloned().filter(|_| paths.len() > 1) else { continue };
        for path in paths {
            if let Some(fact) = facts.get_mut(&path) {
                fact.same_as = Some(first.clone());
            }
        }
    }
}

/// Every difference, in the order of the paths. Paths for which `skipped` holds are left out.
pub fn compare(source: &Facts, copy: &Facts, skipped: &dyn Fn(&[u8]) -> bool) -> Vec<Difference> {
    let mut differences = Vec::new();
    let mut differ = |path: &[u8], what: String| {
        differences.push(Difference { path: path.to_vec(), what });
    };
    for (path, fact) in source {
        if skipped(path) {
            continue;
        }
        match copy.get(path) {
            None => differ(path, format!("missing; the source has a {}", fact.file_type.word())),
            Some(found) => compare_one(fact, found, &mut |what| differ(path, what)),
        }
    }
    for (path, found) in copy {
        if !source.contains_key(path) && !skipped(path) {
            differ(path, format!("a {} that the source does not have", found.file_type.word()));
        }
    }
    differences.sort_by(|a, b| a.path.cmp(&b.path));
    differences
}

fn compare_one(source: &Fact, copy: &Fact, differ: &mut dyn FnMut(String)) {
    if source.file_type != copy.file_type {
        let (was, is) = (source.file_type.word(), copy.file_type.word());
        return differ(format!("type: the source has a {was}, the copy a {is}"));
    }
    if let (Some(was), Some(is)) = (source.permissions, copy.permissions)
        && was != is
    {
        differ(format!("mode: the source has {was:04o}, the copy {is:04o}"));
    }
    if let (Some(was), Some(is)) = (source.owner, copy.owner)
        && was != is
    {
        let ((uid, gid), (other_uid, other_gid)) = (was, is);
        differ(format!("owner: the source has {uid}:{gid}, the copy {other_uid}:{other_gid}"));
    }
    if let (Some(was), Some(is)) = (source.mtime, copy.mtime)
        && was != is
    {
        differ(format!("mtime: the source has {} ns, the copy {} ns", was.0, is.0));
    }
    match (&source.content, &copy.content) {
        (was, is) if was == is => {}
        (Content::File(was, _), Content::File(is, _)) if was != is => {
            differ(format!("size: the source has {was} bytes, the copy {is}"));
        }
        (Content::File(..), _) => differ("content: the hashes differ".to_owned()),
        (Content::Target(was), Content::Target(is)) => {
            differ(format!("target: the source has {}, the copy {}", shown(was), shown(is)));
        }
        (Content::None | Content::Target(_) | Content::Device(_), _) => {
            differ("device number: they differ".to_owned());
        }
    }
    if source.same_as != copy.same_as {
        let text = |same: &Option<Vec<u8>>| {
            same.as_ref().map_or_else(|| "no other name".to_owned(), |path| shown(path))
        };
        let (was, is) = (text(&source.same_as), text(&copy.same_as));
        differ(format!("hard links: in the source the inode is {was}, in the copy {is}"));
    }
}

#[cfg(test)]
mod tests;
