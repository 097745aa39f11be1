//! The mounts of this machine, as this process sees them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use types::{Errno, Error, Result};

/// A mount of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Where it is mounted.
    pub at: PathBuf,
    /// The directory of the namespace that it shows.
    pub root: String,
}

/// Where the kernel lists them.
const TABLE: &str = "/proc/self/mountinfo";

/// All mounts of namespaces.
///
/// # Errors
/// `EIO` without `/proc`.
pub fn listed() -> Result<Vec<MountEntry>> {
    Ok(lines()?.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// Whether anything is mounted on a directory; `true` where that cannot be known.
pub(crate) fn is_mount_point(at: &Path) -> bool {
    let Ok(table) = lines() else { return true };
    let is_at = |line: &[u8]| {
        line.split(|byte| *byte == b' ')
            .nth(4)
            .is_some_and(|field| Path::new(&OsString::from_vec(unescaped(field))) == at)
    };
    table.split(|byte| *byte == b'\n').any(is_at)
}

fn lines() -> Result<Vec<u8>> {
    std::fs::read(TABLE).map_err(|error| Error::new(Errno::Io, TABLE, error.to_string()))
}

/// A line of the table: `36 35 98:0 ROOT AT OPTIONS FIELDS - TYPE SOURCE OPTIONS`.
fn parse(line: &[u8]) -> Option<MountEntry> {
    let fields: Vec<_> = line.split(|byte| *byte == b' ').collect();
    let end = fields.iter().position(|field| *field == b"-")?;
    let (kind, source) = (fields.get(end + 1)?, unescaped(fields.get(end + 2)?));
    let root = String::from_utf8(source).ok()?.strip_prefix("cudele:")?.to_owned();
    let is_ours = kind.starts_with(b"fuse") && root.starts_with('/');
    let at = PathBuf::from(OsString::from_vec(unescaped(fields.get(4)?)));
    is_ours.then_some(MountEntry { at, root })
}

/// Undoes `\040` and the like.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let code = (*first == b'\\').then(|| tail.get(..3).and_then(octal)).flatten();
        match code {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::{MountEntry, is_mount_point, parse};

    #[test]
    fn mounts_of_the_namespace_are_found_in_the_kernels_table() {
        let line =
            b"92 30 0:51 / /mnt/a\\040b rw,nosuid shared:7 - fuse.cudele cudele:/home rw,x=1";
        let wanted = MountEntry { at: "/mnt/a b".into(), root: "/home".into() };
        assert_eq!(parse(line), Some(wanted.clone()));
        let older = String::from_utf8(line.to_vec()).unwrap().replace("fuse.cudele", "fuse");
        assert_eq!(parse(older.as_bytes()), Some(wanted));
        for other in ["36 35 98:0 / / rw - ext4 /dev/vda rw", "36 35 98:0 / /x rw", ""] {
            assert_eq!(parse(other.as_bytes()), None, "{other}");
        }
    }
    #[test]
    fn the_root_is_mounted_and_a_file_is_not() {
        assert!(is_mount_point("/".as_ref()));
        assert!(!is_mount_point("/proc/self/mountinfo".as_ref()));
    }
}
