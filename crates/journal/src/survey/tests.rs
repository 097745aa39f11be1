#![allow(clippy::cast_possible_truncation, reason = "generated numbers are small")]

use proptest::prelude::*;
use types::{ClientId, Epoch, Ino, Origin, Seq, Timestamp};

use super::{GAP_EVENTS_MAX, Survey};
use crate::segment::{HEADER_BYTES, scan};
use crate::{Block, Create, Event, JournalBuffer, Record, SegmentHeader, Writer, extract, rewrite};

const ALL: std::ops::Range<Seq> = Seq(0)..Seq(u64::MAX);

/// A client's journal of creates in blocks of so many events, from `first` on.
fn journal(first: u64, blocks: &[u64]) -> Vec<u8> {
    let writer = Writer::Client { client: ClientId(3), subtree: Ino(100) };
    let header = SegmentHeader { writer, epoch: Epoch(2), first_seq: Seq(first) };
    let mut buffer = JournalBuffer::new(Seq(first), false);
    for count in blocks {
        for _ in 0..*count {
            let number = buffer.next_seq().0;
            let name = format!("file.{number}");
            let (parent, ino, time) = (Ino(100), Ino(number.wrapping_add(1000)), Timestamp(7));
            let create = Create { parent, name: name.as_bytes(), ino, time, ..Create::default() };
            buffer.append(Origin::default(), &Event::Create(create));
        }
        buffer.close_block();
    }
    let mut bytes = header.encode().to_vec();
    bytes.extend(buffer.take_blocks().concat());
    bytes
}

/// Where the blocks start.
fn starts(bytes: &[u8]) -> Vec<usize> {
    let (mut all, mut at) = (Vec::new(), HEADER_BYTES);
    while at < bytes.len() {
        all.push(at);
        at = Block::read(bytes, at).expect("intact").1;
    }
    all
}

/// The positions of the events that say something.
fn told(bytes: &[u8]) -> Vec<u64> {
    let mut all = Vec::new();
    let survey = Survey::of(bytes).expect("header");
    survey.each(&mut |record: &Record<'_>| {
        if !record.event.is_nothing() {
            if let Event::Create(create) = record.event {
                assert_eq!(create.ino.0, record.seq.0.wrapping_add(1000), "an event moved");
            }
            all.push(record.seq.0);
        }
    });
    all
}

fn repaired(bytes: &[u8]) -> Vec<u8> {
    let survey = Survey::of(bytes).expect("header");
    let repaired = rewrite(&survey, &ALL, &mut |_| true).bytes;
    assert_eq!(scan(&repaired).expect("header").damage, None);
    repaired
}

#[test]
fn an_intact_journal_is_rewritten_byte_by_byte() {
    let bytes = journal(5, &[3, 1, 4]);
    let survey = Survey::of(&bytes).expect("header");
    assert_eq!((survey.events, survey.next_seq, survey.damage.len()), (8, Seq(13), 0));
    assert_eq!(rewrite(&survey, &ALL, &mut |_| true).bytes, bytes);
}

#[test]
fn a_hole_is_reported_with_its_place_and_closed() {
    let mut bytes = journal(1, &[3, 3, 3]);
    let starts = starts(&bytes);
    bytes[starts[1] + 40] ^= 4;
    let survey = Survey::of(&bytes).expect("header");
    let [hole] = survey.damage.as_slice() else { panic!("{:?}", survey.damage) };
    assert_eq!((hole.bytes.clone(), hole.torn), (starts[1]..starts[2], false));
    assert_eq!(hole.lost, Seq(4)..Seq(7));
    assert_eq!(told(&repaired(&bytes)), [1, 2, 3, 7, 8, 9]);
}

#[test]
fn blocks_that_are_cut_out_leave_their_positions() {
    let mut bytes = journal(1, &[3, 3, 3]);
    let starts = starts(&bytes);
    bytes.drain(starts[1]..starts[2]);
    let survey = Survey::of(&bytes).expect("header");
    assert_eq!(survey.damage[0].bytes, starts[1]..starts[1]);
    assert_eq!(told(&repaired(&bytes)), [1, 2, 3, 7, 8, 9]);
}

#[test]
fn a_torn_end_is_cut_off_and_its_positions_are_not_given_again() {
    let bytes = journal(1, &[3, 3]);
    let torn = &bytes[..bytes.len() - 1];
    let survey = Survey::of(torn).expect("header");
    assert!(survey.damage[0].torn);
    assert_eq!(survey.next_seq, Seq(4));
    assert!(survey.free_seq() >= Seq(7), "{}", survey.free_seq());
    assert_eq!(told(&repaired(torn)), [1, 2, 3]);
}

#[test]
fn an_event_of_an_unknown_type_ends_its_block_and_no_more() {
    let mut bytes = journal(1, &[3, 3]);
    let starts = starts(&bytes);
    // The first event of the first block, and the checksum as a writer of that type had made it.
    bytes[starts[0] + 28] = 99;
    let (header, payload) = (&bytes[starts[0]..starts[0] + 24], &bytes[starts[0] + 28..starts[1]]);
    let crc = crc32c::crc32c_append(crc32c::crc32c(header), payload);
    bytes[starts[0] + 24..starts[0] + 28].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(scan(&bytes).expect("header").damage, None, "the checksums match");
    let survey = Survey::of(&bytes).expect("header");
    assert_eq!(survey.damage[0].lost, Seq(1)..Seq(4));
    assert_eq!(survey.damage[0].bytes.end, starts[1]);
    assert_eq!(told(&repaired(&bytes)), [4, 5, 6]);
}

#[test]
fn stray_blocks_are_damage() {
    let mut bytes = journal(1, &[3]);
    let end = bytes.len();
    for first in [2, GAP_EVENTS_MAX + 100, u64::MAX - 1] {
        let stray = journal(first, &[1]);
        bytes.extend_from_slice(&stray[HEADER_BYTES..]);
    }
    let survey = Survey::of(&bytes).expect("header");
    assert_eq!((survey.events, survey.damage.len()), (3, 1));
    assert_eq!(survey.damage[0].bytes, end..bytes.len());
}

#[test]
fn positions_at_the_end_of_all_numbers_are_damage_not_a_panic() {
    let bytes = journal(u64::MAX - 2, &[2]);
    assert!(scan(&bytes).expect("header").damage.is_none());
    let mut more = bytes;
    let again = journal(5, &[9]);
    // A block that starts at the last position and counts nine events.
    let mut block = again[HEADER_BYTES..].to_vec();
    block[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&block[..24]), &block[28..]);
    block[24..28].copy_from_slice(&crc.to_le_bytes());
    more.extend_from_slice(&block);
    assert!(scan(&more).expect("header").damage.is_some());
    assert!(Survey::of(&more).expect("header").damage[0].torn);
}

#[test]
fn a_range_keeps_positions() {
    let bytes = journal(1, &[4, 4, 4]);
    let survey = Survey::of(&bytes).expect("header");
    let part = rewrite(&survey, &(Seq(3)..Seq(11)), &mut |record| record.seq != Seq(6));
    assert_eq!(told(&part.bytes), [3, 4, 5, 7, 8, 9, 10]);
    assert_eq!(SegmentHeader::decode(&part.bytes).expect("header").first_seq, Seq(3));
    assert_eq!((part.kept, part.erased, part.next_seq), (7, 1, Seq(11)));
    let mut used = Vec::new();
    let again = rewrite(&Survey::of(&part.bytes).expect("header"), &ALL, &mut |_| false);
    let survey = Survey::of(&again.bytes).expect("header");
    survey.each(&mut |record| used.extend(record.event.numbered()));
    assert_eq!(used, (1003..1011).map(Ino).collect::<Vec<_>>(), "numbers stay used");
    assert_eq!((again.kept, again.erased), (0, 7));
    assert_eq!(scan(&part.bytes).expect("header").damage, None);
}

#[test]
fn selections_begin_differently_and_hold_what_was_selected() {
    let bytes = journal(1, &[4]);
    let survey = Survey::of(&bytes).expect("header");
    let first = |bytes: &[u8]| bytes[..Block::read(bytes, HEADER_BYTES).expect("block").1].to_vec();
    let some = extract(&survey, &mut |record| record.seq != Seq(2));
    let all = extract(&survey, &mut |_| true);
    assert!(first(&some) != first(&all) && first(&all) != first(&bytes));
    let survey = Survey::of(&some).expect("header");
    let mut inodes = Vec::new();
    survey.each(&mut |record| inodes.extend(record.event.inode()));
    assert_eq!(inodes, [Ino(1001), Ino(1003), Ino(1004)]);
    assert!(survey.damage.is_empty());
}

#[test]
fn a_header_is_replaced_and_nothing_else() {
    let mut bytes = journal(1, &[4]);
    let header = SegmentHeader::decode(&bytes).expect("header");
    bytes[30] ^= 1;
    assert!(SegmentHeader::decode(&bytes).is_err());
    assert_ne!(SegmentHeader::claimed(&bytes), Ok(header));
    let whole = header.put_on(&bytes);
    assert_eq!(told(&whole), [1, 2, 3, 4]);
    assert!(SegmentHeader::claimed(&bytes[..20]).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_is_erased_the_rest_keeps_its_place(
        blocks in prop::collection::vec(0u64..9, 0..6),
        keep in any::<u64>(),
        range in (0u64..60, 0u64..60),
    ) {
        let bytes = journal(1, &blocks);
        let survey = Survey::of(&bytes).expect("header");
        let wanted = |seq: u64| keep >> (seq % 64) & 1 == 1;
        let range = Seq(range.0)..Seq(range.1);
        let out = rewrite(&survey, &range, &mut |record| wanted(record.seq.0));
        let all: Vec<u64> = (1..=blocks.iter().sum::<u64>()).collect();
        let expected: Vec<u64> = all
            .into_iter()
            .filter(|seq| wanted(*seq) && range.contains(&Seq(*seq)))
            .collect();
        prop_assert_eq!(told(&out.bytes), expected);
        prop_assert_eq!(scan(&out.bytes).expect("header").damage, None);
    }

    #[test]
    fn any_damage_behind_the_header_can_be_repaired(
        blocks in prop::collection::vec(1u64..9, 1..6),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = journal(1, &blocks);
        for (index, value) in flips {
            let index = HEADER_BYTES + index.index(bytes.len() - HEADER_BYTES);
            bytes[index] = value;
        }
        bytes.truncate(HEADER_BYTES + cut.index(bytes.len() + 1 - HEADER_BYTES));
        let whole = repaired(&bytes);
        prop_assert_eq!(told(&whole), told(&bytes), "nothing that could be read is lost");
        prop_assert!(Survey::of(&whole).expect("header").damage.is_empty());
    }
}
