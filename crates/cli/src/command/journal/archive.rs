//! The export of a metadata server's journal: a tar archive with a file for each segment.
//!
//! Equal journals have equal archives, and an archive that was cut off or changed is noticed: the
//! segments have their own checksums, the rest has tar's.

use std::io::Read;

use cudele::{Errno, Error, Result};

/// The end of an archive.
const END: [u8; 1024] = [0; 1024];

/// Packs objects.
///
/// # Errors
/// If a name does not fit into an archive.
pub(super) fn pack<'a>(objects: impl Iterator<Item = (&'a str, &'a [u8])>) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, bytes) in objects {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        let added = archive.append_data(&mut header, name, bytes);
        added.map_err(|error| Error::new(Errno::Invalid, name, error.to_string()))?;
    }
    archive.into_inner().map_err(|error| Error::new(Errno::Io, "archive", error.to_string()))
}

/// Unpacks objects, in the order of the archive.
///
/// # Errors
/// `EBADMSG` if it is no archive, or not all of one.
pub(super) fn unpack(file: &str, bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>> {
    let bad = |cause: String| {
        Error::new(Errno::BadMessage, file, cause)
            .remedy("this must be the export of a metadata server's journal, a tar archive")
    };
    if !bytes.len().is_multiple_of(512) || !bytes.ends_with(&END) {
        return Err(bad(format!("at byte {}: the archive does not end here", bytes.len())));
    }
    let mut all = Vec::new();
    let mut archive = tar::Archive::new(bytes);
    for entry in archive.entries().map_err(|error| bad(error.to_string()))? {
        let mut entry = entry.map_err(|error| bad(error.to_string()))?;
        let at = entry.raw_header_position();
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).map_err(|error| bad(error.to_string()))?;
        if content.len() as u64 != entry.size() {
            return Err(bad(format!("at byte {at}: {name} is cut off")));
        }
        all.push((name, content));
    }
    Ok(all)
}
