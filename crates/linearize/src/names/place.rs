//! A name in a directory.

use types::Ino;

/// See the module documentation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The directory.
    pub dir: Ino,
    /// The name.
    pub name: Vec<u8>,
}

impl Place {
    /// A place.
    #[must_use]
    pub fn new(dir: Ino, name: impl AsRef<[u8]>) -> Self {
        Self { dir, name: name.as_ref().to_vec() }
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.dir, String::from_utf8_lossy(&self.name))
    }
}
