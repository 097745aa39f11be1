//! The lines of a dump.

use std::borrow::Cow;

use cudele::{Attr, Errno, Error, FileType, Result, Timestamp};
use serde::{Deserialize, Serialize};
use types::{Ino, MODE_PERMISSIONS, hex};

use super::DUMP_VERSION;

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpHeader {
    /// The version of the format.
    pub cudele_dump: u32,
    /// The directory.
    pub path: String,
    /// The branch that keeps its state until the dump is complete.
    pub branch: String,
    /// Whether the branch was made for the dump, and is removed afterwards.
    pub branch_is_temporary: bool,
    /// The moment of that state, in nanoseconds since 1970.
    pub time_ns: i64,
}

impl DumpHeader {
    /// Reads the first line.
    ///
    /// # Errors
    /// `EBADMSG` if it is none, or of another version.
    pub fn parse(line: &[u8]) -> std::result::Result<Self, String> {
        let header: Self = serde_json::from_slice(line)
            .map_err(|error| format!("its first line is not that of a dump: {error}"))?;
        if header.cudele_dump != DUMP_VERSION {
            let version = header.cudele_dump;
            return Err(format!("it has version {version}, this program reads {DUMP_VERSION}"));
        }
        Ok(header)
    }
}

/// The last line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpEnd {
    /// The number of lines of names.
    pub entries: u64,
    /// The number of lines of names that could not be read.
    pub skipped: u64,
    /// Always true: it tells this line from that of a name.
    pub end: bool,
}

/// A directory or file that could not be read. The line is written at once, so that a second
/// process, which continues the dump, does not call the dump complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpSkip {
    /// Its path, for people.
    pub not_dumped: String,
    /// Why.
    pub reason: String,
}

impl DumpSkip {
    /// Reads a line, if it is one of these.
    #[must_use]
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let is_one = line.starts_with(br#"{"not_dumped":"#);
        is_one.then(|| serde_json::from_slice(line).ok()).flatten()
    }
}

/// Names and values of extended attributes.
pub type XattrList = Vec<(Vec<u8>, Vec<u8>)>;

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpedXattr {
    /// Its name.
    pub name: String,
    /// Its value, as hexadecimal digits.
    pub value_hex: String,
}

/// The line of one name. A directory comes before the names in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpLine<'a> {
    /// Below the directory of the dump; empty for itself.
    #[serde(borrow)]
    pub path: Cow<'a, str>,
    /// The same as hexadecimal digits, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_hex: Option<Cow<'a, str>>,
    /// `file`, `directory`, `symlink`, ... as [`FileType::word`].
    #[serde(rename = "type", borrow)]
    pub file_type: Cow<'a, str>,
    /// Permissions in octal digits.
    pub mode: Cow<'a, str>,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// In bytes.
    pub size: u64,
    /// Inode number at the source.
    pub ino: u64,
    /// Names of the inode, those outside of the dump included.
    pub nlink: u32,
    /// Number of a device.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rdev: u32,
    /// Last change of the content, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Last access.
    pub atime_ns: i64,
    /// Last change of the attributes.
    pub ctime_ns: i64,
    /// Birth.
    pub btime_ns: i64,
    /// The earlier path of the same inode, if this is a further name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as: Option<Cow<'a, str>>,
    /// The same as digits, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as_hex: Option<Cow<'a, str>>,
    /// The target of a symbolic link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Cow<'a, str>>,
    /// The same as digits, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_hex: Option<Cow<'a, str>>,
    /// Content that the inode itself keeps, as digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_hex: Option<Cow<'a, str>>,
    /// Extended attributes, access control lists among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub xattrs: Vec<DumpedXattr>,
    /// The policy of the directory itself, as a policy file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Cow<'a, str>>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Bytes as text, and as digits if they are no text.
pub(super) fn text(bytes: &[u8]) -> (Cow<'_, str>, Option<Cow<'static, str>>) {
    let digits = std::str::from_utf8(bytes).is_err().then(|| hex::encode(bytes).into());
    (String::from_utf8_lossy(bytes), digits)
}

/// The bytes that [`text`] wrote.
fn bytes_of(text: &str, digits: Option<&str>) -> Option<Vec<u8>> {
    match digits {
        Some(digits) => hex::decode(digits),
        None => Some(text.as_bytes().to_vec()),
    }
}

const TYPES: [FileType; 7] = [
    FileType::Regular,
    FileType::Directory,
    FileType::Symlink,
    FileType::Fifo,
    FileType::Socket,
    FileType::CharDevice,
    FileType::BlockDevice,
];

impl<'a> DumpLine<'a> {
    /// The line of a name with these attributes, without the parts of one type of inodes.
    pub(super) fn new(path: &'a [u8], attr: &Attr) -> Self {
        let (path, path_hex) = text(path);
        Self {
            path,
            path_hex,
            file_type: attr.file_type().word().into(),
            mode: format!("{:04o}", attr.mode & MODE_PERMISSIONS).into(),
            uid: attr.uid,
            gid: attr.gid,
            size: if attr.is_dir() { 0 } else { attr.size },
            ino: attr.ino.0,
            nlink: attr.nlink,
            rdev: attr.rdev,
            mtime_ns: attr.mtime.0,
            atime_ns: attr.atime.0,
            ctime_ns: attr.ctime.0,
            btime_ns: attr.btime.0,
            ..Self::default()
        }
    }

    /// The bytes of its path.
    ///
    /// # Errors
    /// Why they are none.
    pub fn path_bytes(&self) -> std::result::Result<Vec<u8>, String> {
        bytes_of(&self.path, self.path_hex.as_deref())
            .ok_or_else(|| "path_hex is not made of hexadecimal digits".to_owned())
    }

    /// The earlier path of the same inode.
    ///
    /// # Errors
    /// Why its digits are none.
    pub fn same_as_bytes(&self) -> std::result::Result<Option<Vec<u8>>, String> {
        let Some(text) = &self.same_as else { return Ok(None) };
        bytes_of(text, self.same_as_hex.as_deref())
            .map(Some)
            .ok_or_else(|| "same_as_hex is not made of hexadecimal digits".to_owned())
    }

    /// The target of a symbolic link; empty if there is none.
    ///
    /// # Errors
    /// Why its digits are none.
    pub fn target_bytes(&self) -> std::result::Result<Vec<u8>, String> {
        bytes_of(self.target.as_deref().unwrap_or_default(), self.target_hex.as_deref())
            .ok_or_else(|| "target_hex is not made of hexadecimal digits".to_owned())
    }

    /// Content that the inode keeps.
    ///
    /// # Errors
    /// Why its digits are none.
    pub fn data(&self) -> std::result::Result<Option<Vec<u8>>, String> {
        let Some(digits) = &self.data_hex else { return Ok(None) };
        hex::decode(digits)
            .map(Some)
            .ok_or_else(|| "data_hex is not made of hexadecimal digits".to_owned())
    }

    /// The type.
    ///
    /// # Errors
    /// Why the word is none.
    pub fn kind(&self) -> std::result::Result<FileType, String> {
        let known = TYPES.into_iter().find(|known| known.word() == self.file_type);
        known.ok_or_else(|| format!("there is no type {:?}", self.file_type))
    }

    /// The lower 12 bits of the mode.
    ///
    /// # Errors
    /// Why the digits are none.
    pub fn permissions(&self) -> std::result::Result<u32, String> {
        u32::from_str_radix(&self.mode, 8)
            .ok()
            .filter(|mode| mode & !MODE_PERMISSIONS == 0)
            .ok_or_else(|| format!("there is no mode {:?}", self.mode))
    }

    /// Names and values.
    ///
    /// # Errors
    /// Why a value is none.
    pub fn xattr_bytes(&self) -> std::result::Result<XattrList, String> {
        let value = |xattr: &DumpedXattr| {
            hex::decode(&xattr.value_hex)
                .map(|value| (xattr.name.as_bytes().to_vec(), value))
                .ok_or_else(|| format!("the value of {:?} is not made of digits", xattr.name))
        };
        self.xattrs.iter().map(value).collect()
    }

    /// The last change of its content.
    #[must_use]
    pub fn mtime(&self) -> Timestamp {
        Timestamp(self.mtime_ns)
    }

    /// The inode at the source.
    #[must_use]
    pub fn inode(&self) -> Ino {
        Ino(self.ino)
    }
}

/// A dump that makes no sense.
pub(crate) fn damaged(name: &str, line: u64, cause: &str) -> Error {
    let cause = format!("damaged or truncated in line {line}: {cause}");
    Error::new(Errno::BadMessage, name, cause)
        .remedy("get the dump again, or continue it with `cudele dump --resume`")
}

/// Reads a line of the middle.
///
/// # Errors
/// `EBADMSG`.
pub(crate) fn parse<'a>(name: &str, number: u64, line: &'a [u8]) -> Result<DumpLine<'a>> {
    serde_json::from_slice(line).map_err(|error| damaged(name, number, &error.to_string()))
}
