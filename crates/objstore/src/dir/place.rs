//! Where an object's file is: the mapping between object names and relative paths.
//!
//! `a/b` and `a` may both be objects, so directories need names that no object's file has: the
//! component with a `%` behind it. A `%` in a component is written `%25`. A component longer than
//! a file name may be is cut into chunks, all but the last of which are directories ending in `%+`.
//!
//! Invariant: the mapping is injective, no part of a path is `.` or `..`, and no part is longer
//! than 255 bytes.

use rustix::fs::FileType;
use types::Result;

use crate::check_name;

/// Escaped bytes per chunk; with `%+` and half an escape it stays below the 255 of a file name.
const CHUNK_BYTES_MAX: usize = 240;

/// The place of one object.
#[derive(Debug)]
pub(super) struct ObjectPlace<'a> {
    /// The object.
    pub(super) name: &'a str,
    /// Its file, relative to the directory of all objects.
    pub(super) path: String,
}

impl<'a> ObjectPlace<'a> {
    /// The place of the object `name`.
    pub(super) fn of(name: &'a str) -> Result<Self> {
        check_name(name)?;
        Ok(Self { name, path: encode(name) })
    }

    /// The directory the file is in; empty for the directory of all objects.
    pub(super) fn directory(&self) -> &str {
        parent(&self.path)
    }

    /// All directories above the file, outermost first, without the directory of all objects.
    pub(super) fn directories(&self) -> impl Iterator<Item = &str> {
        self.path.match_indices('/').map(|(end, _)| &self.path[..end])
    }
}

/// The path without its last part; empty if there is only one.
pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// The path of an object's file.
pub(super) fn encode(name: &str) -> String {
    let mut path = String::with_capacity(name.len() + 16);
    let mut components = name.split('/').peekable();
    while let Some(component) = components.next() {
        encode_component(component, &mut path);
        if components.peek().is_some() {
            path.push_str("%/");
        }
    }
    path
}

/// The directory with the files of objects whose names start with `prefix`, and the part of the
/// prefix, up to and including its last `/`, that this directory represents.
pub(super) fn encode_directory(prefix: &str) -> (String, &str) {
    match prefix.rfind('/') {
        Some(slash) => (encode(&prefix[..slash]) + "%", &prefix[..=slash]),
        None => (String::new(), ""),
    }
}

fn encode_component(component: &str, path: &mut String) {
    let component_start = path.len();
    let mut chunk_start = component_start;
    for character in component.chars() {
        if path.len() - chunk_start >= CHUNK_BYTES_MAX {
            path.push_str("%+/");
            chunk_start = path.len();
        }
        let continues = path.len() == chunk_start && chunk_start > component_start;
        match character {
            '%' => path.push_str("%25"),
            // No component is `.` or `..`, but the rest of a long one could be.
            '.' if continues => path.push_str("%2E"),
            _ => path.push(character),
        }
    }
}

/// The meaning of an entry of a directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EntryMeaning {
    /// The end of an object's name.
    File(String),
    /// More of the name; a directory.
    Directory(String),
}

/// Reads one part of a path back; `None` if no object has such a part. `kind` may be unknown, as
/// the name alone tells a directory from a file; if it is known, it must agree.
pub(super) fn decode(entry: &[u8], kind: FileType) -> Option<EntryMeaning> {
    let entry = std::str::from_utf8(entry).ok()?;
    let part = match (entry.strip_suffix("%+"), entry.strip_suffix('%')) {
        (Some(chunk), _) => EntryMeaning::Directory(unescape(chunk)?),
        (None, Some(component)) => EntryMeaning::Directory(unescape(component)? + "/"),
        (None, None) => EntryMeaning::File(unescape(entry)?),
    };
    let expected = match part {
        EntryMeaning::Directory(_) => FileType::Directory,
        EntryMeaning::File(_) => FileType::RegularFile,
    };
    (kind == expected || kind == FileType::Unknown).then_some(part)
}

fn unescape(escaped: &str) -> Option<String> {
    let mut parts = escaped.split('%');
    let mut text = parts.next()?.to_string();
    for part in parts {
        let (character, rest) = match (part.strip_prefix("25"), part.strip_prefix("2E")) {
            (Some(rest), _) => ('%', rest),
            (None, Some(rest)) => ('.', rest),
            (None, None) => return None,
        };
        text.push(character);
        text.push_str(rest);
    }
    Some(text)
}
