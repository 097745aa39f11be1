use std::collections::BTreeMap;

use crc32c::{crc32c, crc32c_append};
use proptest::prelude::*;
use types::rng::Rng;
use types::{FileType, Ino};

use super::*;
use crate::manifest::RunInfo;
use crate::row::{Row, RowValue};
use crate::tests::{dirfrag, inode};

/// A run of several blocks with names of every shape.
fn large_run() -> (BTreeMap<Vec<u8>, u64>, Vec<u8>) {
    let (mut names, mut rows) = (BTreeMap::new(), Rows::new());
    for number in 0..4000_u64 {
        let scattered = number.wrapping_mul(0x9E37_79B9) % 100_000;
        let name = match number % 3 {
            0 => format!("checkpoint.{scattered:06}"),
            1 => format!("{scattered:x}"),
            _ => format!("{}{scattered}", "long".repeat(usize::try_from(number % 50).unwrap())),
        };
        rows.push(name.as_bytes(), inode(number, FileType::Regular, b""));
        names.insert(name.into_bytes(), number);
    }
    (names, rows.into_run(dirfrag(Ino::ROOT), RunId(3)))
}

fn read_all(run: &RunReader<'_>) -> Vec<Vec<u8>> {
    let (mut names, mut cursor) = (Vec::new(), run.iter());
    while let Some(row) = cursor.next_row().expect("valid rows") {
        names.push(row.name.to_vec());
    }
    names
}

/// Makes the checksums right again after a change inside a block, as a forger would.
pub(crate) fn forge(bytes: &mut [u8]) {
    let footer = bytes.len() - FOOTER_BYTES;
    let index_start = u32::from_le_bytes(*bytes[footer..].first_chunk().unwrap()) as usize;
    let (mut at, mut offset) = (index_start, HEADER_BYTES);
    while at < footer - STATS_BYTES {
        let length = u32::from_le_bytes(*bytes[at..].first_chunk().unwrap()) as usize;
        at += INDEX_ENTRY_BYTES + usize::from(bytes[at + 8]);
        let end = offset + length;
        let crc = crc32c(&bytes[offset..end - 4]);
        bytes[end - 4..end].copy_from_slice(&crc.to_le_bytes());
        offset = end;
    }
    let crc = crc32c_append(crc32c(&bytes[..HEADER_BYTES]), &bytes[index_start..footer + 12]);
    bytes[footer + 12..footer + 16].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn rows_are_read_in_order_and_found_by_name() {
    let (names, bytes) = large_run();
    let run = RunReader::open(&bytes).unwrap();
    assert!(run.blocks().len() > 2, "several blocks are needed for this test");
    assert_eq!(read_all(&run), names.keys().cloned().collect::<Vec<_>>());
    assert_eq!(run.rows(), names.len() as u64);
    for (name, number) in &names {
        assert_eq!(run.get(name), Ok(Some(inode(*number, FileType::Regular, b""))));
    }
    for absent in [&b""[..], b"!", b"checkpoint.", b"checkpoint.0000000", b"\xff", &[b'z'; 300]] {
        assert_eq!(run.get(absent), Ok(None));
    }
}

#[test]
fn the_longest_inline_contents_are_rows_like_any_other() {
    let contents: Vec<Vec<u8>> =
        (0..20_u8).map(|n| vec![n; types::INLINE_BYTES_MAX - usize::from(n % 3)]).collect();
    let mut rows = Rows::new();
    let row = |number: usize| inode(number as u64, FileType::Regular, &contents[number]);
    for number in 0..contents.len() {
        rows.push(format!("large-{number:02}").as_bytes(), row(number));
        rows.push(format!("small-{number:02}").as_bytes(), inode(7, FileType::Regular, b"few"));
    }
    let bytes = rows.into_run(dirfrag(Ino::ROOT), RunId(1));
    let run = RunReader::open(&bytes).unwrap();
    assert_eq!(read_all(&run).len(), 40);
    for number in 0..contents.len() {
        assert_eq!(run.get(format!("large-{number:02}").as_bytes()), Ok(Some(row(number))));
        let small = run.get(format!("small-{number:02}").as_bytes());
        assert_eq!(small, Ok(Some(inode(7, FileType::Regular, b"few"))));
    }
}

#[test]
fn the_empty_run_is_a_run() {
    let bytes = Rows::new().into_run(dirfrag(Ino::ROOT), RunId(1));
    let run = RunReader::open(&bytes).unwrap();
    assert_eq!((run.rows(), run.iter().next_row()), (0, Ok(None)));
    assert_eq!(run.get(b"a"), Ok(None));
}

#[test]
fn live_and_removed_rows_are_counted() {
    let mut rows = Rows::new();
    rows.push(b"a", RowValue::Removed);
    rows.push(b"b", RowValue::Removed);
    rows.push(b"c", RowValue::Remote { ino: Ino(9), file_type: FileType::Socket });
    let bytes = rows.into_run(dirfrag(Ino::ROOT), RunId(1));
    let run = RunReader::open(&bytes).unwrap();
    assert_eq!((run.rows(), run.live_rows(), run.removed_rows()), (3, 1, 2));
    assert_eq!(run.get(b"a"), Ok(Some(RowValue::Removed)), "removed is not the same as absent");
}

#[test]
fn a_row_larger_than_a_block_has_a_block() {
    let (data, mut rows) = (vec![7; 10 * BLOCK_BYTES_TARGET], Rows::new());
    for name in [b"a", b"b", b"c"] {
        rows.push(name, inode(1, FileType::Regular, &data));
    }
    let bytes = rows.into_run(dirfrag(Ino::ROOT), RunId(1));
    let run = RunReader::open(&bytes).unwrap();
    assert_eq!(run.blocks().len(), 3);
    assert_eq!(run.get(b"b"), Ok(Some(inode(1, FileType::Regular, &data))));
}

/// A run small enough to damage everywhere.
fn small_run() -> Vec<u8> {
    let mut rows = Rows::new();
    for number in 0..20 {
        rows.push(format!("file-{number:02}").as_bytes(), inode(number, FileType::Regular, b"x"));
    }
    rows.push(b"gone", RowValue::Removed);
    rows.into_run(dirfrag(Ino::ROOT), RunId(1))
}

#[test]
fn every_truncation_is_detected() {
    let bytes = small_run();
    for cut in 0..bytes.len() {
        assert!(RunReader::open(&bytes[..cut]).is_err(), "cut at {cut}");
    }
}

#[test]
fn every_bit_flip_is_detected() {
    let mut bytes = small_run();
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(RunReader::open(&bytes).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn foreign_and_newer_objects_are_told_apart() {
    let cause = |change: fn(&mut Vec<u8>)| {
        let mut bytes = small_run();
        change(&mut bytes);
        RunReader::open(&bytes).expect_err("changed").cause
    };
    assert_eq!(cause(|bytes| bytes[0] = b'X'), "the magic of a run");
    assert_eq!(cause(|bytes| bytes[8] = 5), KNOWN_VERSION);
    assert_eq!(cause(|bytes| bytes[10] = 1), "flags that this version defines");
    assert_eq!(cause(|bytes| bytes.push(0)), "the magic at the end of a run");
    assert_eq!(cause(|bytes| bytes[HEADER_BYTES + 3] ^= 1), "a checksum that matches");
}

#[test]
fn a_run_under_another_name_is_refused() {
    let bytes = small_run();
    assert!(RunReader::open_as(dirfrag(Ino::ROOT), RunId(1), &bytes).is_ok());
    for (ino, id) in [(Ino(2), RunId(1)), (Ino::ROOT, RunId(2))] {
        let error = RunReader::open_as(dirfrag(ino), id, &bytes).expect_err("another run");
        assert_eq!(error.object, crate::run_name(dirfrag(ino), id));
    }
}

#[test]
fn forged_blocks_give_errors_or_other_rows_but_never_panic() {
    let (original, mut numbers) = (small_run(), Rng::new(0x5eed_0003));
    let space = original.len() - FOOTER_BYTES - HEADER_BYTES;
    let mut refused = 0;
    for _ in 0..10_000 {
        let mut bytes = original.clone();
        for _ in 0..=numbers.index(2) {
            // Anything but the counts, and the lengths in the index, by which the forger finds the
            // blocks.
            let at = HEADER_BYTES + numbers.index(space - 40 - STATS_BYTES);
            bytes[at] = numbers.byte();
        }
        forge(&mut bytes);
        let Ok(run) = RunReader::open(&bytes) else {
            refused += 1;
            continue;
        };
        let mut cursor = run.iter();
        let mut last = Vec::new();
        let end = loop {
            match cursor.next_row() {
                Ok(Some(Row { name, .. })) => {
                    assert!(last.as_slice() < name, "rows stay in order");
                    last = name.to_vec();
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = end {
            refused += 1;
            assert!(error.offset >= HEADER_BYTES && error.offset <= bytes.len(), "{error}");
            assert_eq!(cursor.next_row(), Ok(None), "nothing follows an error");
        }
        let _ = run.get(&last);
        let _ = run.get(b"file-17");
    }
    assert!(refused > 3_000, "most forgeries break a rule: {refused}");
}

#[test]
fn forged_counts_are_refused_before_anything_is_allocated() {
    let (original, footer) = (small_run(), small_run().len() - FOOTER_BYTES);
    for (at, cause) in [
        (footer + 8, "as many blocks as there are bytes for"),
        (footer - STATS_BYTES, "as many rows as the header states"),
        (36, "zero where the counts were"),
    ] {
        let mut bytes = original.clone();
        bytes[at..at + 4].fill(0xff);
        forge(&mut bytes);
        assert_eq!(RunReader::open(&bytes).expect_err("forged").cause, cause);
    }
    let mut bytes = original;
    bytes[footer - 8] += 1;
    forge(&mut bytes);
    let run = RunReader::open(&bytes).expect("the number of removed rows shows only at the end");
    let mut cursor = run.iter();
    let error = loop {
        match cursor.next_row() {
            Ok(row) => assert!(row.is_some(), "the end is an error"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.cause, "as many removed rows as the header states");
}

/// The ends of a run, as a reader of ranges has them.
fn index_of(bytes: &[u8]) -> RunIndex {
    let length = bytes.len() as u64;
    let footer = &bytes[bytes.len() - FOOTER_BYTES..];
    let tail = RunEnds::tail_bytes(length, footer).unwrap();
    RunIndex::read(length, &bytes[..HEADER_BYTES], &bytes[bytes.len() - tail..]).unwrap()
}

fn at(bytes: &[u8], span: RunRange) -> &[u8] {
    let start = usize::try_from(span.offset).unwrap();
    &bytes[start..start + span.length]
}

#[test]
fn a_name_is_found_by_reading_one_block_and_mostly_none_for_an_absent_one() {
    let (names, bytes) = large_run();
    let index = index_of(&bytes);
    assert_eq!((index.rows(), index.removed_rows()), (names.len() as u64, 0));
    let look = |name: &[u8]| {
        let Some(block) = index.block_of(name) else { return (false, None) };
        let filter = at(&bytes, index.filter_span(block).expect("this version has filters"));
        let may = index.may_have(block, filter, name).unwrap();
        let block_bytes = at(&bytes, index.span(block..block + 1));
        let found = index.get(block, block_bytes, name).unwrap();
        assert_eq!(index.get_admitted(block, block_bytes, name).unwrap(), found);
        (may, found)
    };
    for (name, number) in &names {
        assert_eq!(look(name), (true, Some(inode(*number, FileType::Regular, b""))));
    }
    let absent: Vec<_> = (0..10_000).map(|number| format!("checkpoint.x{number}")).collect();
    let mut passed = 0;
    for name in &absent {
        let (may, found) = look(name.as_bytes());
        assert_eq!(found, None);
        passed += u64::from(may);
    }
    // One in about 120 is expected.
    assert!((20..200).contains(&passed), "{passed} of 10,000 absent names cost a block");
    for absent in [&b""[..], b"!", b"\xff", &[b'z'; 255]] {
        assert_eq!(look(absent).1, None);
    }
}

#[test]
fn damage_is_found_in_what_is_read_of_a_run() {
    let (_, bytes) = large_run();
    let index = index_of(&bytes);
    let block = index.span(1..2);
    let mut damaged = at(&bytes, block).to_vec();
    damaged[100] ^= 1;
    let error = index.get(1, &damaged, index.first_name(1)).expect_err("damaged");
    assert!(error.offset as u64 > block.offset, "{error}");
    assert!(index.get_admitted(1, &damaged, b"a").is_err());
    assert!(RunReader::open_part(&index, 1..2, &damaged).is_err());
    let filter = index.filter_span(0).unwrap();
    let mut damaged = at(&bytes, filter).to_vec();
    damaged[0] ^= 1;
    assert!(index.may_have(0, &damaged, b"a").is_err());
    assert!(index.may_have(0, &[], b"a").is_err());
    // The ends, bit by bit.
    let small = small_run();
    let footer = &small[small.len() - FOOTER_BYTES..];
    let tail = RunEnds::tail_bytes(small.len() as u64, footer).unwrap();
    let (header, tail) = (&small[..HEADER_BYTES], &small[small.len() - tail..]);
    for bit in 0..(header.len() + tail.len()) * 8 {
        let (mut header, mut tail) = (header.to_vec(), tail.to_vec());
        let (byte, flip) = (bit / 8, 1 << (bit % 8));
        match byte.checked_sub(header.len()) {
            None => header[byte] ^= flip,
            Some(byte) => tail[byte] ^= flip,
        }
        assert!(RunIndex::read(small.len() as u64, &header, &tail).is_err(), "bit {bit}");
    }
}

#[test]
fn a_run_that_is_taken_away_while_it_grows_is_the_same_run() {
    let (names, whole) = large_run();
    let mut builder = RunBuilder::new(dirfrag(Ino::ROOT), RunId(3));
    let (mut bytes, mut pieces) = (Vec::new(), 0);
    for (name, number) in &names {
        builder.push(name, &inode(*number, FileType::Regular, b""));
        if builder.ready_bytes() > 16_000 {
            bytes.extend_from_slice(&builder.take());
            pieces += 1;
        }
    }
    let (rest, info) = builder.finish();
    bytes.extend_from_slice(&rest);
    assert!(pieces > 1, "{pieces}");
    assert_eq!(info, RunInfo::of(&RunReader::open(&bytes).unwrap()));
    let (one, other) = (RunReader::open(&bytes).unwrap(), RunReader::open(&whole).unwrap());
    assert_eq!(read_all(&one), read_all(&other));
    for (name, number) in &names {
        assert_eq!(one.get(name), Ok(Some(inode(*number, FileType::Regular, b""))));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_names_come_back_sorted(names in prop::collection::vec("[a-c\u{1}\u{ff}]{1,12}", 0..80)) {
        let (mut expected, mut rows) = (BTreeMap::new(), Rows::new());
        for (number, name) in (0..).zip(&names) {
            rows.push(name.as_bytes(), inode(number, FileType::Regular, b""));
            expected.insert(name.as_bytes().to_vec(), number);
        }
        let bytes = rows.into_run(dirfrag(Ino::ROOT), RunId(1));
        let run = RunReader::open(&bytes).unwrap();
        prop_assert_eq!(read_all(&run), expected.keys().cloned().collect::<Vec<_>>());
        for (name, number) in expected {
            prop_assert_eq!(run.get(&name), Ok(Some(inode(number, FileType::Regular, b""))));
        }
    }
}
