//! Inode attributes.

use crate::{Ino, Stripe, StripedFile, Timestamp};

/// The bits of a mode that name the file type (`S_IFMT`).
pub const MODE_TYPE: u32 = 0o170_000;
/// The bits of a mode that hold permissions, set-id and sticky bits.
pub const MODE_PERMISSIONS: u32 = 0o7777;

/// The seven POSIX file types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FileType {
    /// A regular file.
    #[default]
    Regular = 8,
    /// A directory.
    Directory = 4,
    /// A symbolic link.
    Symlink = 10,
    /// A FIFO.
    Fifo = 1,
    /// A socket.
    Socket = 12,
    /// A character device.
    CharDevice = 2,
    /// A block device.
    BlockDevice = 6,
}

impl FileType {
    /// The type bits of a mode. The discriminants are those of `d_type`, that is `S_IFMT >> 12`.
    #[must_use]
    pub fn mode_bits(self) -> u32 {
        u32::from(self as u8) << 12
    }

    /// The type that a mode names, or `None` if its type bits are not one of the seven.
    #[must_use]
    pub fn from_mode(mode: u32) -> Option<Self> {
        Some(match (mode & MODE_TYPE) >> 12 {
            8 => Self::Regular,
            4 => Self::Directory,
            10 => Self::Symlink,
            1 => Self::Fifo,
            12 => Self::Socket,
            2 => Self::CharDevice,
            6 => Self::BlockDevice,
            _ => return None,
        })
    }

    /// One letter, as `ls -l` prints it.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Self::Regular => '-',
            Self::Directory => 'd',
            Self::Symlink => 'l',
            Self::Fifo => 'p',
            Self::Socket => 's',
            Self::CharDevice => 'c',
            Self::BlockDevice => 'b',
        }
    }

    /// The word that JSON output uses.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Regular => "file",
            Self::Directory => "directory",
            Self::Symlink => "symlink",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::CharDevice => "char-device",
            Self::BlockDevice => "block-device",
        }
    }
}

/// What `stat` reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// File type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names; for a directory 2 plus the number of its sub-directories, or 1 where that
    /// is not known.
    pub nlink: u32,
    /// Device number of a device file, else 0.
    pub rdev: u32,
    /// How the content of a file is striped if it is not inline.
    pub stripe: Stripe,
    /// Length in bytes; for a directory the number of its entries, as far as they
    /// are known.
    pub size: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of the attributes.
    pub ctime: Timestamp,
    /// Birth.
    pub btime: Timestamp,
}

impl Attr {
    /// The file, for access to its content in the object store.
    #[must_use]
    pub const fn striped(&self) -> StripedFile {
        StripedFile::new(self.ino, self.stripe)
    }

    /// The file type. Modes in a namespace always name one; an illegal one reads as a file.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        FileType::from_mode(self.mode).unwrap_or_default()
    }

    /// Whether this is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.mode & MODE_TYPE == FileType::Directory.mode_bits()
    }
}

/// The one number in which formats keep a value that only device files and only regular files have:
/// a device number, or [`Stripe::code`].
#[must_use]
pub fn device_or_stripe(mode: u32, rdev: u32, stripe: Stripe) -> u32 {
    if mode & MODE_TYPE == FileType::Regular.mode_bits() { stripe.code() } else { rdev }
}

/// The reverse of [`device_or_stripe`]. A regular file whose number is no stripe has the default
/// striping: files older than stripes have an arbitrary number here.
#[must_use]
pub fn device_and_stripe(mode: u32, number: u32) -> (u32, Stripe) {
    if mode & MODE_TYPE == FileType::Regular.mode_bits() {
        (0, Stripe::from_code(number).unwrap_or_default())
    } else {
        (number, Stripe::default())
    }
}

/// The attributes that a `setattr` changes. `None` leaves an attribute as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AttrChange {
    /// New permission bits (the type cannot change).
    pub mode: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New length in bytes (truncate or extend).
    pub size: Option<u64>,
    /// New access time.
    pub atime: Option<Timestamp>,
    /// New modification time.
    pub mtime: Option<Timestamp>,
}

impl AttrChange {
    /// Whether nothing would change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
