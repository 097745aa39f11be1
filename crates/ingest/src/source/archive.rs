//! A tar archive as a source: plain or compressed with gzip, xz or zstd, recognised by its first
//! bytes.
//!
//! Archives come from strangers. An entry that would leave the destination is rejected by name:
//! absolute paths, `..`, hard links to an object that the archive does not contain. An archive that
//! ends early is rejected too: without its end mark the missing part is unknown. The taker knows
//! all entries, and finds entries below a symbolic link or a file.

use std::cell::Cell;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use cudele::{Errno, Error, FileType, Result, Timestamp};
use tar::{EntryType, Header};
use types::{PATH_BYTES_MAX, SYMLINK_BYTES_MAX, acl, check_name};

use super::{EntrySink, Skip, SourceEntry, SourceKind, shown};

const BUFFER_BYTES: usize = 256 * 1024;
/// Enough to recognise every compression.
const MAGIC_BYTES: usize = 6;

/// Opens an archive file.
///
/// # Errors
/// The system's error.
pub(crate) fn open(path: &Path) -> Result<Box<dyn Read>> {
    let file = File::open(path).map_err(|error| terminal::io(path, &error))?;
    Ok(Box::new(file))
}

/// Undoes the compression, if there is one.
pub(crate) fn decompressed<'r>(
    name: &str,
    mut raw: Box<dyn Read + 'r>,
) -> Result<Box<dyn Read + 'r>> {
    let mut start = Vec::new();
    (&mut raw)
        .take(MAGIC_BYTES as u64)
        .read_to_end(&mut start)
        .map_err(|error| Error::new(Errno::Io, name, error.to_string()))?;
    let magic = start.clone();
    let whole = BufReader::with_capacity(BUFFER_BYTES, std::io::Cursor::new(start).chain(raw));
    Ok(match magic.as_slice() {
        [0x1f, 0x8b, ..] => Box::new(flate2::bufread::MultiGzDecoder::new(whole)),
        [0xfd, b'7', b'z', b'X', b'Z', 0] => {
            Box::new(liblzma::bufread::XzDecoder::new_multi_decoder(whole))
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let decoder = zstd::stream::read::Decoder::with_buffer(whole);
            Box::new(decoder.map_err(|error| Error::new(Errno::Io, name, error.to_string()))?)
        }
        _ => Box::new(whole),
    })
}

/// Notices when the end of the archive's bytes is reached.
struct Watched<R> {
    inner: R,
    at_end: Rc<Cell<bool>>,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(buffer)?;
        if count == 0 && !buffer.is_empty() {
            self.at_end.set(true);
        }
        Ok(count)
    }
}

/// The content of one entry: exactly as many bytes as announced, or an error.
struct Content<'r> {
    inner: &'r mut dyn Read,
    left: u64,
    broken: Option<String>,
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = match self.inner.read(buffer) {
            Ok(0) if self.left > 0 && !buffer.is_empty() => {
                let cause = format!("the archive ends {} bytes before its content does", self.left);
                self.broken = Some(cause);
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            Ok(count) => count,
            Err(error) => {
                self.broken = Some(error.to_string());
                return Err(error);
            }
        };
        self.left = self.left.saturating_sub(count as u64);
        Ok(count)
    }
}

/// Hands out every entry of an archive.
///
/// # Errors
/// `EBADMSG`, with the archive and the entry, for any fault of the archive; the taker's errors.
pub(crate) fn read(name: &str, raw: Box<dyn Read + '_>, taker: &mut dyn EntrySink) -> Result<()> {
    let at_end = Rc::new(Cell::new(false));
    let watched = Watched { inner: decompressed(name, raw)?, at_end: at_end.clone() };
    let mut archive = tar::Archive::new(watched);
    let mut last = Vec::new();
    let mut count = 0_u64;
    let entries = archive.entries().map_err(|error| damaged(name, &last, &error.to_string()))?;
    for entry in entries {
        let entry = entry.map_err(|error| damaged(name, &last, &error.to_string()))?;
        last = entry.path_bytes().into_owned();
        count += 1;
        one(name, entry, taker)?;
    }
    if at_end.get() {
        let cause = if count == 0 { "no archive, or an empty file" } else { "no end mark follows" };
        return Err(damaged(name, &last, cause));
    }
    // The checksum of a compressed archive stands at its end.
    let rest = std::io::copy(&mut archive.into_inner(), &mut std::io::sink());
    rest.map(|_| ()).map_err(|error| damaged(name, &last, &error.to_string()))
}

/// The archive's bytes make no sense after an entry.
fn damaged(archive: &str, last: &[u8], cause: &str) -> Error {
    let place =
        if last.is_empty() { "at its start".into() } else { format!("after {}", shown(last)) };
    Error::new(Errno::BadMessage, archive, format!("damaged or truncated {place}: {cause}"))
        .remedy("get the archive again; `tar -t` shows what is left of it")
}

/// An entry must not be taken.
fn refused(archive: &str, path: &[u8], cause: &str) -> Error {
    Error::new(Errno::BadMessage, archive, format!("entry {} {cause}", shown(path)))
        .remedy("do not trust this archive; if you do, repack it without the entry")
}

fn one<R: Read>(
    archive: &str,
    mut entry: tar::Entry<'_, R>,
    taker: &mut dyn EntrySink,
) -> Result<()> {
    let raw_path = entry.path_bytes().into_owned();
    let header = entry.header().clone();
    let entry_type = header.entry_type();
    if entry_type.is_pax_global_extensions() {
        return Ok(());
    }
    let mut extra = Extra::default();
    extra.read(&mut entry).map_err(|error| damaged(archive, &raw_path, &error.to_string()))?;
    let path = clean(&raw_path).map_err(|cause| refused(archive, &raw_path, cause))?;
    let target = entry.link_name_bytes().map(std::borrow::Cow::into_owned).unwrap_or_default();
    let size = entry.size();
    let kind = match kind_of(entry_type, &raw_path, &header, size) {
        Ok(kind) => kind,
        Err(reason) => {
            taker.skip(Skip { path, reason });
            return Ok(());
        }
    };
    if extra.sparse {
        let reason = "sparse files in the PAX format are not supported".to_owned();
        taker.skip(Skip { path, reason });
        return Ok(());
    }
    let linked;
    let kind = match kind {
        SourceKind::Symlink(_) => {
            if target.is_empty() || target.len() > SYMLINK_BYTES_MAX || target.contains(&0) {
                return Err(refused(archive, &path, "is a link with an illegal target"));
            }
            SourceKind::Symlink(&target)
        }
        SourceKind::HardLink(_) => {
            linked = clean(&target)
                .map_err(|cause| refused(archive, &path, &format!("links to what {cause}")))?;
            SourceKind::HardLink(&linked)
        }
        kind @ (SourceKind::Directory
        | SourceKind::File { .. }
        | SourceKind::Hollow { .. }
        | SourceKind::Special { .. }) => kind,
    };
    if path.is_empty() && kind != SourceKind::Directory {
        return Err(refused(archive, &raw_path, "has no name"));
    }
    let fields = fields(&header).map_err(|error| damaged(archive, &path, &error.to_string()))?;
    let taken = SourceEntry {
        path: &path,
        kind,
        permissions: fields.mode & 0o7777,
        owner: (fields.uid, fields.gid),
        mtime: extra.mtime.unwrap_or(fields.mtime),
        atime: extra.atime,
        xattrs: &extra.xattrs,
    };
    let left = if matches!(kind, SourceKind::File { .. }) { size } else { 0 };
    let mut content = Content { inner: &mut entry, left, broken: None };
    let result = taker.take(&taken, &mut content);
    match content.broken {
        Some(cause) => Err(Error::new(
            Errno::BadMessage,
            archive,
            format!("damaged or truncated in {}: {cause}", shown(&path)),
        )
        .remedy("get the archive again; `tar -t` shows what is left of it")),
        None => result,
    }
}

/// The kind of an entry, without targets; or why it is skipped.
#[allow(clippy::wildcard_enum_match_arm, reason = "archives may hold types that nobody knows")]
fn kind_of(
    entry_type: EntryType,
    path: &[u8],
    header: &Header,
    size: u64,
) -> std::result::Result<SourceKind<'static>, String> {
    let special = |file_type| SourceKind::Special { file_type, rdev: 0 };
    let device = |file_type| {
        let number = |part: std::io::Result<Option<u32>>| part.ok().flatten().unwrap_or(0);
        let (major, minor) = (number(header.device_major()), number(header.device_minor()));
        let rdev = u32::try_from(rustix::fs::makedev(major, minor))
            .map_err(|_| "its device number does not fit 32 bits".to_owned())?;
        Ok(SourceKind::Special { file_type, rdev })
    };
    match entry_type {
        // Before there were types, a slash at the end said that it is a directory.
        EntryType::Regular if path.ends_with(b"/") => Ok(SourceKind::Directory),
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
            Ok(SourceKind::File { size })
        }
        EntryType::Directory => Ok(SourceKind::Directory),
        EntryType::Symlink => Ok(SourceKind::Symlink(&[])),
        EntryType::Link => Ok(SourceKind::HardLink(&[])),
        EntryType::Fifo => Ok(special(FileType::Fifo)),
        EntryType::Char => device(FileType::CharDevice),
        EntryType::Block => device(FileType::BlockDevice),
        other => Err(format!("entries of type {:?} are not known", char::from(other.as_byte()))),
    }
}

struct Fields {
    mode: u32,
    uid: u32,
    gid: u32,
    mtime: Timestamp,
}

fn fields(header: &Header) -> std::io::Result<Fields> {
    let id =
        |id: u64| u32::try_from(id).map_err(|_| std::io::Error::other("an owner over 32 bits"));
    Ok(Fields {
        mode: header.mode()?,
        uid: id(header.uid()?)?,
        gid: id(header.gid()?)?,
        mtime: seconds(header)?,
    })
}

/// The header's mtime. Times before 1970 are negative in base 256.
fn seconds(header: &Header) -> std::io::Result<Timestamp> {
    let field = &header.as_old().mtime;
    let seconds = if field[0] & 0x80 == 0 {
        i64::try_from(header.mtime()?).unwrap_or(i64::MAX)
    } else {
        let low = field[4..].iter().fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
        low.cast_signed()
    };
    Ok(Timestamp::from_parts(seconds, 0))
}

/// The values of PAX headers.
#[derive(Default)]
struct Extra {
    mtime: Option<Timestamp>,
    atime: Option<Timestamp>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    sparse: bool,
}

impl Extra {
    fn read<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>) -> std::io::Result<()> {
        let Some(extensions) = entry.pax_extensions()? else { return Ok(()) };
        // The library takes a line end within a value (lists as text, binary attributes) for the
        // end of the record: such a record is left out.
        for extension in extensions.flatten() {
            let (key, value) = (extension.key_bytes(), extension.value_bytes());
            if key == b"mtime" {
                self.mtime = time(value);
            } else if key == b"atime" {
                self.atime = time(value);
            } else if key.starts_with(b"GNU.sparse.") {
                self.sparse = true;
            } else if let Some(name) = key.strip_prefix(b"SCHILY.xattr.")
                && (name.starts_with(b"user.") || acl::is_list(name))
            {
                self.xattrs.push((name.to_vec(), value.to_vec()));
            }
        }
        Ok(())
    }
}

/// A decimal time with an optional fraction, such as `-1.5`.
fn time(text: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(text).ok()?;
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let seconds: i64 = whole.parse().ok()?;
    let nanos: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanos: i64 = nanos.parse().ok()?;
    Some(Timestamp::from_parts(sign * seconds, sign * nanos))
}

/// The path of an entry, with everything dropped that means nothing; or why it is refused.
pub(crate) fn clean(raw: &[u8]) -> std::result::Result<Vec<u8>, &'static str> {
    if raw.starts_with(b"/") {
        return Err("has an absolute path");
    }
    let mut path = Vec::with_capacity(raw.len());
    for component in raw.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => continue,
            b".." => return Err("leaves the destination with `..`"),
            _ => {
                check_name(component).map_err(|_| "has a name that is too long or contains NUL")?
            }
        }
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(component);
    }
    if path.len() > PATH_BYTES_MAX {
        return Err("has a path of more than 4095 bytes");
    }
    Ok(path)
}
