//! The map as an object of the store, [`MAP_NAME`].
//!
//! ```text
//! object := "CUDLMMAP" version:u16 map crc:u32
//! ```
//!
//! `map` is the map as messages carry it, without the regular reports of metadata servers; see
//! `docs/formats/wire.md`. Not here: when it is stored.
//!
//! Invariant: from any bytes, decoding returns a consistent map or an error that names the byte and
//! the remedy; it never panics.

use crc32c::crc32c;
use metastore::request::MAP_NAME;
use types::bytes::{Malformed, Put, Reader};
use types::{ClientId, Errno, Error};
use wire::ClusterMap;

const MAGIC: &[u8; 8] = b"CUDLMMAP";
/// Version 3 has no revoked keys, version 2 has no balancers either, and version 1 does not say
/// which inodes have the policies.
const VERSION: u16 = *ClusterMap::STORED_VERSIONS.end();
const CRC_BYTES: usize = 4;
/// Apart from the other faults because its remedy differs: nothing is damaged.
const KNOWN_VERSION: &str = "a format version that this build reads";

/// The bytes of the object.
#[must_use]
pub fn encode(map: &ClusterMap) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.put_u16(VERSION);
    map.encode(&mut out, false);
    let crc = crc32c(&out);
    out.put_u32(crc);
    out
}

/// Reads the object.
///
/// # Errors
/// `EBADMSG` if the bytes are anything but the result of [`encode`].
pub fn decode(bytes: &[u8]) -> Result<ClusterMap, Error> {
    read(bytes).map_err(|malformed| {
        let remedy = if malformed.expected == KNOWN_VERSION {
            "run the release that wrote it, or a later one"
        } else {
            "restore this object from a copy of the store; do not delete it, or client ids would \
             be given out a second time"
        };
        Error::new(Errno::BadMessage, MAP_NAME, malformed.to_string()).remedy(remedy)
    })
}

fn read(bytes: &[u8]) -> Result<ClusterMap, Malformed> {
    let mut reader = Reader::new(bytes);
    if reader.take(MAGIC.len())? != MAGIC {
        return Err(Reader::new(bytes).malformed("the magic of a cluster map"));
    }
    let before_version = reader;
    let version = reader.u16()?;
    let before_body = reader;
    let Some((body, crc)) = bytes.split_last_chunk::<CRC_BYTES>() else {
        return Err(reader.malformed("more bytes"));
    };
    if crc32c(body) != u32::from_le_bytes(*crc) {
        return Err(before_body.malformed("a map whose checksum matches"));
    }
    if !ClusterMap::STORED_VERSIONS.contains(&version) {
        return Err(before_version.malformed(KNOWN_VERSION));
    }
    let mut reader = Reader::new(body);
    reader.take(before_body.offset())?;
    let mut map = ClusterMap::decode_stored(&mut reader, version)?;
    reader.end()?;
    // Reports of servers are not stored: those in these bytes are of no server that lives.
    map.mds.iter_mut().for_each(|entry| entry.counters.clear());
    map.warnings.clear();
    let sorted = map.mds.is_sorted_by(|a, b| a.rank < b.rank)
        && map.policies.is_sorted_by(|a, b| (&a.path, a.ino) < (&b.path, b.ino))
        && map.balancers.is_sorted_by(|a, b| a.version < b.version)
        && map.revoked.is_sorted_by(|a, b| a < b);
    if !sorted || map.next_client == ClientId(0) || !map.decoupled.is_empty() {
        return Err(before_body.malformed("a map that agrees with itself"));
    }
    Ok(map)
}
