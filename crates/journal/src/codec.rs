//! Events to bytes and back, each as a difference to the event before it.
//!
//! Metadata-heavy jobs make runs of creates in one directory, so these are the cheapest: one flag
//! byte, one byte for the lengths of the shared and the new part of the name, and the new part. A
//! field that follows its predecessor's pattern (same directory, next inode, same mode and owner,
//! same coarse time, next request id) takes no space at all.
#![allow(
    clippy::cast_possible_truncation,
    reason = "name lengths are at most 255, and varints put their low seven bits"
)]

mod decode;
mod encode;

use types::NAME_BYTES_MAX;

/// Set in the first byte of a create; the low bits are the flags below.
const CREATE: u8 = 0x80;
/// The directory differs from the previous event's.
const NEW_PARENT: u8 = 0x01;
/// The inode is not the previous one plus one.
const NEW_INO: u8 = 0x02;
/// Mode, owner or group differ.
const NEW_OWNER: u8 = 0x04;
/// The time differs.
const NEW_TIME: u8 = 0x08;
/// A second flag byte follows.
const DETAILS: u8 = 0x10;
/// The origin is not the same client's next request.
const NEW_ORIGIN: u8 = 0x20;
/// Lengths of the shared prefix and of the rest of the name are both below 16: one byte.
const SHORT_NAME: u8 = 0x40;

/// Details of a create: a size other than zero.
const SIZE: u8 = 0x01;
/// An mtime other than the event's time, in nanoseconds.
const MTIME_NANOS: u8 = 0x02;
/// An mtime other than the event's time, in whole seconds.
const MTIME_SECONDS: u8 = 0x04;
/// An atime other than the mtime.
const ATIME: u8 = 0x08;
/// A device number, or how a file is striped.
const RDEV: u8 = 0x10;
/// Inline data or a link target.
const DATA: u8 = 0x20;
/// It has extended attributes.
const EXTRA: u8 = 0x40;
const DETAILS_KNOWN: u8 = SIZE | MTIME_NANOS | MTIME_SECONDS | ATIME | RDEV | DATA | EXTRA;

const NANOS: i64 = 1_000_000_000;

/// The values with which the next event is compared. Reset at the start of every block, so that a
/// block can be read without the blocks before it.
#[derive(Clone, Debug)]
struct Context {
    parent: u64,
    ino: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    time: i64,
    mtime: i64,
    client: u64,
    tid: u64,
    name: [u8; NAME_BYTES_MAX],
    name_len: usize,
}

impl Context {
    fn new() -> Self {
        Self {
            parent: 0,
            ino: 0,
            mode: 0,
            uid: 0,
            gid: 0,
            time: 0,
            mtime: 0,
            client: 0,
            tid: 0,
            name: [0; NAME_BYTES_MAX],
            name_len: 0,
        }
    }

    fn shared_prefix(&self, name: &[u8]) -> usize {
        let known = &self.name[..self.name_len];
        known.iter().zip(name).take_while(|(a, b)| a == b).count()
    }

    /// Remembers a name of which the first `shared` bytes are already in place.
    fn remember(&mut self, shared: usize, name: &[u8]) {
        self.name[shared..name.len()].copy_from_slice(&name[shared..]);
        self.name_len = name.len();
    }
}

pub(crate) use decode::{Decoder, State};
pub use encode::Encoder;
