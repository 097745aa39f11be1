use super::*;
use crate::fuse::reply::Out;
use crate::fuse::request::{Op, Request};

/// A request as the kernel hands it over.
fn request(opcode: u32, fields: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut headers = vec![0; HEADERS_BYTES];
    let length = u32::try_from(IN_HEADER_BYTES + fields.len() + payload.len()).unwrap();
    headers[..4].copy_from_slice(&length.to_ne_bytes());
    headers[4..8].copy_from_slice(&opcode.to_ne_bytes());
    headers[8..16].copy_from_slice(&77_u64.to_ne_bytes());
    headers[FIELDS_AT..FIELDS_AT + fields.len()].copy_from_slice(fields);
    headers[COMMIT_ID_AT..COMMIT_ID_AT + 8].copy_from_slice(&78_u64.to_ne_bytes());
    let length = u32::try_from(payload.len()).unwrap().to_ne_bytes();
    headers[PAYLOAD_LENGTH_AT..PAYLOAD_LENGTH_AT + 4].copy_from_slice(&length);
    headers
}

#[test]
fn the_parts_of_a_request_join_in_the_form_of_the_device() {
    let mut buffer = [0; 4096];
    // A write of three bytes at position 9.
    let mut fields = [0; 40];
    fields[8] = 9;
    fields[16] = 3;
    let headers = request(16, &fields, b"abc");
    let length = join(&headers, b"abc and old bytes", &mut buffer).unwrap();
    let write = Request::parse(&buffer[..length]).unwrap();
    let Op::Write(what) = write.op else { panic!("{:?}", write.op) };
    assert_eq!((what.offset, what.data), (9, &b"abc"[..]));
    assert_eq!((unique(&headers), commit_id(&headers)), (77, 78));
    // A look-up has a name and no fields.
    let length = join(&request(1, &[], b"name\0"), b"name\0", &mut buffer).unwrap();
    let lookup = Request::parse(&buffer[..length]).unwrap();
    assert!(matches!(lookup.op, Op::Lookup(name) if name == "name"));
}

#[test]
fn lengths_that_contradict_each_other_are_refused() {
    let mut buffer = [0; 256];
    let with = |length: u32, payload_length: u32| {
        let mut headers = request(1, &[], b"");
        headers[..4].copy_from_slice(&length.to_ne_bytes());
        let place = PAYLOAD_LENGTH_AT..PAYLOAD_LENGTH_AT + 4;
        headers[place].copy_from_slice(&payload_length.to_ne_bytes());
        headers
    };
    for (length, payload_length) in [(39, 0), (44, 5), (300, 0), (60, 21), (u32::MAX, u32::MAX)] {
        assert!(join(&with(length, payload_length), &[0; 64], &mut buffer).is_none());
    }
    // More fields than the structure has room for, a payload or a request without room.
    assert!(join(&with(40 + 129, 0), &[], &mut buffer).is_none());
    assert!(join(&with(40 + 65, 65), &[0; 64], &mut buffer).is_none());
    assert!(join(&with(40 + 250, 250), &[0; 250], &mut buffer).is_none());
    assert!(join(&[0; 10], &[], &mut buffer).is_none());
}

#[test]
fn a_reply_is_split_and_an_error_has_no_payload() {
    let (mut headers, mut payload) = (request(15, &[0; 40], b""), [0; 64]);
    let mut out = Out::new();
    out.begin();
    out.bytes(b"content");
    split(out.finish(77, 0), &mut headers, &mut payload);
    assert_eq!(&payload[..7], b"content");
    assert_eq!(headers[PAYLOAD_LENGTH_AT], 7);
    assert_eq!((unique(&headers), commit_id(&headers)), (77, 78), "for the command");
    split(out.finish(77, -4), &mut headers, &mut payload);
    assert_eq!(headers[4..8], (-4_i32).to_ne_bytes());
    assert_eq!(headers[PAYLOAD_LENGTH_AT], 0);
}
