//! Names and paths: bytes, not text. Any byte but `/` and NUL is legal in a name.

use crate::{Errno, Ino};

/// Longest name in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest path in bytes.
pub const PATH_BYTES_MAX: usize = 4095;
/// Longest target of a symbolic link in bytes.
pub const SYMLINK_BYTES_MAX: usize = 4095;

/// The key of a directory entry: a directory and a name in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryName<'a> {
    /// The directory.
    pub dir: Ino,
    /// The name.
    pub name: &'a [u8],
}

impl<'a> EntryName<'a> {
    /// A name in a directory.
    #[inline]
    #[must_use]
    pub const fn new(dir: Ino, name: &'a [u8]) -> Self {
        Self { dir, name }
    }
}

/// Checks that `name` can name a directory entry.
///
/// # Errors
/// `EINVAL` for the empty name, `.`, `..` and names with `/` or NUL; `ENAMETOOLONG` over 255 bytes.
pub fn check_name(name: &[u8]) -> Result<(), Errno> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Errno::NameTooLong);
    }
    if name.is_empty() || name == b"." || name == b".." {
        return Err(Errno::Invalid);
    }
    if has_illegal_byte(name) {
        return Err(Errno::Invalid);
    }
    Ok(())
}

/// Whether a name contains `/` or NUL. Every request and every merged event has its names checked,
/// so the function compares eight bytes at once, and compares some bytes twice.
fn has_illegal_byte(name: &[u8]) -> bool {
    let is_illegal = |byte: &u8| *byte == b'/' || *byte == 0;
    let Some(last) = name.last_chunk::<8>() else { return name.iter().any(is_illegal) };
    let (chunks, _) = name.as_chunks::<8>();
    chunks.iter().chain([last]).any(|chunk| {
        let word = u64::from_ne_bytes(*chunk);
        has_zero_byte(word) || has_zero_byte(word ^ u64::from_ne_bytes([b'/'; 8]))
    })
}

/// Whether a byte of a word is zero. The subtraction sets a high bit that was not set if a byte is.
const fn has_zero_byte(word: u64) -> bool {
    let (ones, highs) = (u64::from_ne_bytes([0x01; 8]), u64::from_ne_bytes([0x80; 8]));
    word.wrapping_sub(ones) & !word & highs != 0
}

/// The hash that orders a directory and assigns a name to a fragment. Stored in cursors and used
/// to split directories, so it must never change (xxh3, upper half of the 64-bit result).
#[must_use]
pub fn name_hash(name: &[u8]) -> u32 {
    (xxhash_rust::xxh3::xxh3_64(name) >> 32) as u32
}

/// A path relative to some directory: its legal components, in order. A leading `/` is the root,
/// empty components and `.` are dropped as POSIX does, `..` is refused because the namespace does
/// not follow symbolic links and a textual `..` would lie.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    components: Vec<Vec<u8>>,
}

impl Path {
    /// The directory itself.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// Parses a path.
    ///
    /// # Errors
    /// `EINVAL` for `..` or NUL, `ENAMETOOLONG` for a component over 255 or a path over 4095 bytes.
    pub fn parse(path: impl AsRef<[u8]>) -> Result<Self, Errno> {
        let path = path.as_ref();
        if path.len() > PATH_BYTES_MAX {
            return Err(Errno::NameTooLong);
        }
        let mut components = Vec::new();
        for component in path.split(|byte| *byte == b'/') {
            if component.is_empty() || component == b"." {
                continue;
            }
            check_name(component)?;
            components.push(component.to_vec());
        }
        Ok(Self { components })
    }

    /// The components, first to last.
    pub fn components(&self) -> impl ExactSizeIterator<Item = &[u8]> + DoubleEndedIterator {
        self.components.iter().map(Vec::as_slice)
    }

    /// Whether this is the directory itself.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.components.is_empty()
    }

    /// The path without its last component, and that component.
    #[must_use]
    pub fn split_last(&self) -> Option<(Path, &[u8])> {
        let (last, rest) = self.components.split_last()?;
        Some((Path { components: rest.to_vec() }, last))
    }

    /// The path extended by a component that was checked before.
    #[must_use]
    pub fn join(&self, name: &[u8]) -> Path {
        debug_assert!(check_name(name).is_ok(), "join takes a legal name");
        let mut components = self.components.clone();
        components.push(name.to_vec());
        Path { components }
    }

    /// Whether `self` is `other` or lies below it.
    #[must_use]
    pub fn starts_with(&self, other: &Path) -> bool {
        self.components.starts_with(&other.components)
    }

    /// The bytes, with a leading `/`.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        if self.components.is_empty() {
            return b"/".to_vec();
        }
        let mut bytes = Vec::new();
        for component in &self.components {
            bytes.push(b'/');
            bytes.extend_from_slice(component);
        }
        bytes
    }
}

impl Path {
    /// The path for people, as [`crate::quote::quoted`] shows it.
    #[must_use]
    pub fn quoted(&self) -> String {
        crate::quote::quoted(&self.to_bytes()).into_owned()
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.to_bytes()))
    }
}
