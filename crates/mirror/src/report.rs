//! The options of a mirror, and the report of its work.

use cudele::Error;

/// The options of a mirror.
#[derive(Clone, Copy, Debug, Default)]
pub struct MirrorOptions {
    /// Remove names that the source does not have.
    pub delete: bool,
    /// Report each deed, and change nothing.
    pub dry_run: bool,
    /// Read the content of files that have the length and the time of their copies, too.
    pub checksum: bool,
}

/// A change of a name of the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorDeed {
    /// A new name.
    Make,
    /// New content, or another type.
    Replace,
    /// Permissions, owner or time.
    Attributes,
    /// One more name of a file.
    Link,
    /// A name that moved, with everything below it.
    Move,
    /// A name that the source does not have any more, with everything below it.
    Remove,
}

impl MirrorDeed {
    /// A word for people and machines.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Make => "make",
            Self::Replace => "replace",
            Self::Attributes => "attributes",
            Self::Link => "link",
            Self::Move => "move",
            Self::Remove => "remove",
        }
    }
}

/// The numbers of deeds of a mirror.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorCounts {
    /// Names of the source that were compared.
    pub compared: u64,
    /// Names that were made or replaced.
    pub copied: u64,
    /// Names that got other attributes.
    pub attributes: u64,
    /// Names that were moved; those below a directory do not count.
    pub moved: u64,
    /// Names that were removed; those below a directory do not count.
    pub removed: u64,
    /// Bytes of content that were copied.
    pub bytes: u64,
    /// Names that vanished from the source before they were copied.
    pub vanished: u64,
    /// Names that could not be copied.
    pub failed: u64,
}

impl MirrorCounts {
    /// The difference to an earlier moment.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            compared: self.compared - before.compared,
            copied: self.copied - before.copied,
            attributes: self.attributes - before.attributes,
            moved: self.moved - before.moved,
            removed: self.removed - before.removed,
            bytes: self.bytes - before.bytes,
            vanished: self.vanished - before.vanished,
            failed: self.failed - before.failed,
        }
    }
}

/// Receives the deeds with the names relative to the root, and the faults of single names.
pub trait MirrorObserver: std::fmt::Debug {
    /// Something was done to a name, or would be.
    fn done(&mut self, deed: MirrorDeed, name: &[u8]);
    /// A name was compared.
    fn compared(&mut self);
    /// A name could not be copied; the mirror goes on.
    fn failed(&mut self, error: Error);
}
