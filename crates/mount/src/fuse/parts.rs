//! The parts of requests and replies over io_uring.
//!
//! The kernel hands over a request in three parts: its header and the fields of its operation in
//! one structure (`struct fuse_uring_req_header`), names and content in the payload. The other code
//! knows one form, that of the device, in which the parts follow each other.

use super::abi::{Fields, OUT_HEADER_BYTES};

/// Bytes of the structure.
pub(super) const HEADERS_BYTES: usize = 288;
/// The place of the operation's fields in the structure.
const FIELDS_AT: usize = 128;
/// The most bytes of the operation's fields.
const FIELDS_BYTES: usize = 128;
/// The place of the command's own fields (`struct fuse_uring_ent_in_out`).
const COMMAND_AT: usize = FIELDS_AT + FIELDS_BYTES;
/// The places of the number that the reply's command repeats, and of the payload's length.
const COMMIT_ID_AT: usize = COMMAND_AT + 8;
const PAYLOAD_LENGTH_AT: usize = COMMAND_AT + 16;
/// Bytes before every request.
const IN_HEADER_BYTES: usize = 40;
/// The place of a request's number in its header.
const UNIQUE_AT: usize = 8;

/// Copies a request into a buffer, in the form of the device. Returns its length; `None` for a
/// malformed one.
pub(super) fn join(headers: &[u8], payload: &[u8], buffer: &mut [u8]) -> Option<usize> {
    let number = |mut from: Fields<'_>| from.u32().and_then(|number| usize::try_from(number).ok());
    let length = number(Fields(headers))?;
    let payload_length = number(Fields(headers.get(PAYLOAD_LENGTH_AT..)?))?;
    let fields_length = length.checked_sub(IN_HEADER_BYTES + payload_length)?;
    let fields = headers.get(FIELDS_AT..COMMAND_AT)?.get(..fields_length)?;
    let payload = payload.get(..payload_length)?;
    let (header, rest) = buffer.get_mut(..length)?.split_at_mut(IN_HEADER_BYTES);
    header.copy_from_slice(&headers[..IN_HEADER_BYTES]);
    let (to_fields, to_payload) = rest.split_at_mut(fields_length);
    to_fields.copy_from_slice(fields);
    to_payload.copy_from_slice(payload);
    Some(length)
}

/// Writes a reply in the form of the device into its parts. The headers are those of the request.
pub(super) fn split(reply: &[u8], headers: &mut [u8], payload: &mut [u8]) {
    let (header, body) = reply.split_at(OUT_HEADER_BYTES);
    headers[..OUT_HEADER_BYTES].copy_from_slice(header);
    payload[..body.len()].copy_from_slice(body);
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    headers[PAYLOAD_LENGTH_AT..PAYLOAD_LENGTH_AT + 4].copy_from_slice(&length.to_ne_bytes());
}

/// The number of a request.
pub(super) fn unique(headers: &[u8]) -> u64 {
    headers.get(UNIQUE_AT..).and_then(|rest| Fields(rest).u64()).unwrap_or_default()
}

/// The number by which the kernel finds the request of a reply.
pub(super) fn commit_id(headers: &[u8]) -> u64 {
    headers.get(COMMIT_ID_AT..).and_then(|rest| Fields(rest).u64()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
