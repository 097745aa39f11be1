use types::{FileType, Ino};

use super::*;
use crate::tests::{dirfrag, inode};
use crate::{InodeRecord, Manifest, Row, RowValue, Rows, RunReader, encode_columns, overlay};

fn content(number: u8) -> Vec<u8> {
    vec![number; VALUE_BYTES_MIN + usize::from(number)]
}

/// A run of which every other row has its content in a segment, and the segment.
fn columns() -> (Vec<u8>, Manifest, Vec<u8>) {
    let mut rows = Rows::new();
    for number in 0..8_u8 {
        let data = if number % 2 == 0 { content(number) } else { vec![number; 9] };
        let name = format!("file-{number}");
        rows.push(name.as_bytes(), inode(u64::from(number), FileType::Regular, &data));
    }
    let target = vec![b'/'; 300];
    rows.push(b"link", inode(99, FileType::Symlink, &target));
    assert_eq!(rows.large_bytes(), 4 * VALUE_BYTES_MIN as u64 + 2 + 4 + 6);
    let (run, info, columns) = encode_columns(dirfrag(Ino(7)), RunId(3), &rows);
    let mut manifest = Manifest { next_run: 4, ..Manifest::new(dirfrag(Ino(7))) };
    assert!(manifest.replace_runs(0..0, Some((info, &columns))).is_empty());
    (run, manifest, columns.segment.expect("four values are long").0)
}

fn pointer(run: &[u8], name: &str) -> Option<Pointer> {
    match RunReader::open(run).unwrap().get(name.as_bytes()).unwrap() {
        Some(RowValue::Inode(record)) => record.pointer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_value_segment_holds_exactly_the_long_values() {
    let (run, manifest, values) = columns();
    let segment = &manifest.values[0];
    segment.check(dirfrag(Ino(7)), &values).unwrap();
    assert_eq!(segment.used() + HEADER_BYTES as u64, segment.bytes, "nothing else is in it");
    for number in (0..8_u8).step_by(2) {
        let at = pointer(&run, &format!("file-{number}")).expect("it is long");
        let found = at.read(dirfrag(Ino(7)), &values[usize::try_from(at.offset).unwrap()..]);
        assert_eq!(found, Ok((&content(number)[..], &b""[..])));
    }
    assert_eq!(pointer(&run, "file-1"), None);
    assert_eq!(pointer(&run, "link"), None, "who lists a directory needs where links lead");
}

#[test]
fn every_truncation_and_every_bit_flip_of_a_segment_is_detected() {
    let (run, manifest, mut values) = columns();
    let (segment, fragment) = (&manifest.values[0], dirfrag(Ino(7)));
    for cut in 0..values.len() {
        assert!(segment.check(fragment, &values[..cut]).is_err(), "cut at {cut}");
    }
    let at = pointer(&run, "file-2").unwrap();
    let start = usize::try_from(at.offset).unwrap();
    let inside = start..start + usize::try_from(at.bytes()).unwrap();
    for bit in 0..values.len() * 8 {
        values[bit / 8] ^= 1 << (bit % 8);
        assert!(segment.check(fragment, &values).is_err(), "bit {bit}");
        let read = at.read(fragment, &values[start..]);
        assert_eq!(read.is_err(), inside.contains(&(bit / 8)), "bit {bit}");
        values[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(segment.check(dirfrag(Ino(8)), &values).is_err(), "of another directory");
}

#[test]
fn a_manifest_with_segments_survives_the_round_trip_and_no_bit_may_change() {
    let (_, manifest, _) = columns();
    let mut bytes = manifest.encode();
    assert_eq!(bytes[8], 3);
    assert_eq!(Manifest::decode(&bytes), Ok(manifest));
    for cut in 0..bytes.len() {
        assert!(Manifest::decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Manifest::decode(&bytes).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn a_segment_goes_with_the_last_run_that_points_into_it() {
    let (run, mut manifest, _) = columns();
    let (first, runs) = (manifest.clone(), [run]);
    let copy = |id: u64, keep: &dyn Fn(&[u8]) -> bool| {
        let mut builder = crate::RunBuilder::new(first.dirfrag, RunId(id)).with_values(1 << 20);
        let push = |name: &[u8], value: &RowValue<'_>| {
            if keep(name) {
                builder.push(name, value);
            }
        };
        overlay(&first, &runs, push).unwrap();
        builder.finish_columns()
    };
    manifest.next_run = 6;
    let (_, info, columns) = copy(4, &|name| name == b"file-0");
    assert!(columns.segment.is_none(), "what is in a segment is not written again");
    assert!(manifest.replace_runs(0..1, Some((info, &columns))).is_empty());
    assert_eq!(manifest.values[0].uses, [(RunId(4), VALUE_BYTES_MIN as u64 + 4)]);
    let (_, info, columns) = copy(5, &|name| name == b"file-1");
    assert_eq!(manifest.replace_runs(0..1, Some((info, &columns))), [RunId(3)]);
    assert!(manifest.values.is_empty());
}

#[test]
fn a_client_may_not_point_anywhere() {
    let attr = crate::tests::attr(100, FileType::Regular);
    let record = InodeRecord { attr, ..InodeRecord::default() };
    let range = types::InoRange { start: attr.ino.0, end: attr.ino.0 + 1 };
    let attached = crate::Attached { ranges: vec![range], ..crate::Attached::default() };
    assert!(attached.admit(RowValue::Inode(record)).is_some());
    let record = InodeRecord { pointer: Some(Pointer::default()), ..record };
    assert_eq!(attached.admit(RowValue::Inode(record)), None);
}

#[test]
fn rows_know_whether_they_have_pointers() {
    let mut rows = Rows::new();
    rows.push(b"a", inode(1, FileType::Regular, &content(1)));
    assert!(!rows.has_pointers() && rows.large_bytes() > 0);
    let attr = crate::tests::attr(2, FileType::Regular);
    let pointer = Some(Pointer { segment: RunId(1), offset: 40, data: 300, extra: 2 });
    let record = InodeRecord { attr, pointer, ..InodeRecord::default() };
    rows.push(b"b", RowValue::Inode(record));
    assert!(rows.has_pointers());
    let last = rows.last().unwrap();
    assert_eq!(last, Row { name: b"b", value: RowValue::Inode(record) });
    rows.clear();
    assert!(!rows.has_pointers() && rows.large_bytes() == 0);
}
