//! The difference between a file and its copy, and the step that ends the difference.

use types::{Attr, FileType, MODE_PERMISSIONS, Timestamp};

/// Set-user-id and set-group-id. Without its owner a copy must not have them: they would lend the
/// rights of the user that copies.
const SET_ID: u32 = 0o6000;

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// The facts about a file that its copy shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) file_type: FileType,
    /// Twelve bits.
    pub(crate) permissions: u32,
    /// User and group.
    pub(crate) owner: (u32, u32),
    pub(crate) rdev: u64,
    /// In bytes. Of directories without meaning.
    pub(crate) size: u64,
    pub(crate) mtime: Timestamp,
    /// Device and number of the inode: equal for two names of one file.
    pub(crate) inode: (u64, u64),
    /// How many names a file has. Of directories without meaning.
    pub(crate) names: u32,
}

impl Item {
    /// The facts about a file of a namespace.
    pub(crate) fn of(attr: &Attr) -> Self {
        Self {
            file_type: attr.file_type(),
            permissions: attr.mode & MODE_PERMISSIONS,
            owner: (attr.uid, attr.gid),
            rdev: u64::from(attr.rdev),
            size: attr.size,
            mtime: attr.mtime,
            inode: (0, attr.ino.0),
            names: attr.nlink,
        }
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.file_type == FileType::Directory
    }

    /// Whether the file has further names that its copy shares.
    pub(crate) fn is_linked(&self) -> bool {
        self.names > 1 && !self.is_dir()
    }

    /// The facts that a copy can have if this process may not give files away.
    pub(crate) fn without_owner(self) -> Self {
        Self { permissions: self.permissions & !SET_ID, ..self }
    }
}

/// The way to make the copy equal to the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// They are equal.
    Nothing,
    /// Permissions, owner or time differ.
    Attributes,
    /// There is no copy.
    Make,
    /// The copy has another type or another content.
    Replace,
}

/// Compares a file with its copy. The content counts as equal if length and time of the last change
/// are: a copy gets the time of its source after its content.
///
/// The time of a directory does not count here, because its entries are compared later.
pub(crate) fn step(wanted: &Item, there: Option<&Item>, keeps_owner: bool) -> Step {
    let Some(there) = there else { return Step::Make };
    if wanted.file_type != there.file_type {
        return Step::Replace;
    }
    let is_same_time = is_same_time(wanted.mtime, there.mtime);
    let is_same_content = match wanted.file_type {
        FileType::Regular | FileType::Symlink => wanted.size == there.size && is_same_time,
        FileType::CharDevice | FileType::BlockDevice => wanted.rdev == there.rdev,
        FileType::Directory | FileType::Fifo | FileType::Socket => true,
    };
    if !is_same_content {
        return Step::Replace;
    }
    let has_permissions = wanted.file_type != FileType::Symlink;
    let is_same = (!has_permissions || wanted.permissions == there.permissions)
        && (!keeps_owner || wanted.owner == there.owner)
        && (wanted.is_dir() || is_same_time);
    if is_same { Step::Nothing } else { Step::Attributes }
}

/// Whether two times are equal. Some file systems keep whole seconds only.
pub(crate) fn is_same_time(wanted: Timestamp, there: Timestamp) -> bool {
    let seconds = |time: Timestamp| time.0.div_euclid(NANOS_PER_SECOND);
    let is_whole = there.0.rem_euclid(NANOS_PER_SECOND) == 0;
    wanted == there || (is_whole && seconds(wanted) == seconds(there))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Item {
        Item {
            file_type: FileType::Regular,
            permissions: 0o644,
            owner: (7, 8),
            rdev: 0,
            size: 5,
            mtime: Timestamp(3_000_000_001),
            inode: (0, 1),
            names: 1,
        }
    }

    #[test]
    fn content_counts_as_equal_by_length_and_time() {
        let wanted = file();
        assert_eq!(step(&wanted, None, true), Step::Make);
        assert_eq!(step(&wanted, Some(&Item { inode: (9, 9), ..wanted }), true), Step::Nothing);
        assert_eq!(step(&wanted, Some(&Item { size: 6, ..wanted }), true), Step::Replace);
        let later = Item { mtime: Timestamp(3_000_000_002), ..wanted };
        assert_eq!(step(&wanted, Some(&later), true), Step::Replace);
        let link = Item { file_type: FileType::Symlink, ..wanted };
        assert_eq!(step(&wanted, Some(&link), true), Step::Replace);
        assert_eq!(step(&link, Some(&Item { permissions: 0o777, ..link }), true), Step::Nothing);
    }

    #[test]
    fn owners_count_only_where_they_can_be_given() {
        let wanted = file();
        let other = Item { owner: (1, 1), ..wanted };
        assert_eq!(step(&wanted, Some(&other), true), Step::Attributes);
        assert_eq!(step(&wanted, Some(&other), false), Step::Nothing);
        let mode = Item { permissions: 0o600, ..wanted };
        assert_eq!(step(&wanted, Some(&mode), false), Step::Attributes);
        let set_id = Item { permissions: 0o4755, ..wanted };
        assert_eq!(set_id.without_owner().permissions, 0o755);
    }

    #[test]
    fn a_directory_does_not_count_its_time_and_a_device_its_length() {
        let dir = Item { file_type: FileType::Directory, ..file() };
        let later = Item { mtime: Timestamp(9), size: 1, ..dir };
        assert_eq!(step(&dir, Some(&later), true), Step::Nothing);
        let device = Item { file_type: FileType::CharDevice, rdev: 0x103, ..file() };
        assert_eq!(step(&device, Some(&Item { rdev: 0x105, ..device }), true), Step::Replace);
        let touched = Item { mtime: Timestamp(9), ..device };
        assert_eq!(step(&device, Some(&touched), true), Step::Attributes);
    }

    #[test]
    fn whole_seconds_are_compared_as_seconds() {
        let time = Timestamp(3_000_000_001);
        assert!(is_same_time(time, Timestamp(3_000_000_000)));
        assert!(!is_same_time(time, Timestamp(3_000_000_002)));
        assert!(!is_same_time(time, Timestamp(2_000_000_000)));
        assert!(is_same_time(Timestamp(-1), Timestamp(-NANOS_PER_SECOND)));
    }
}
