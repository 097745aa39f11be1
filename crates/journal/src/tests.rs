#![allow(clippy::cast_possible_truncation, reason = "generated numbers are cut to size on purpose")]

use proptest::prelude::*;
use types::{
    Attr, AttrChange, ClientId, Epoch, INLINE_BYTES_MAX, Ino, Origin, Pool, Rank, Seq, Stripe, Tid,
    Timestamp,
};

use crate::segment::{HEADER_BYTES, scan};
use crate::{
    Create, Event, InodeSnapshot, JournalBuffer, Loss, SegmentHeader, SegmentReader, Writer,
};

fn header() -> SegmentHeader {
    SegmentHeader { writer: Writer::Mds { rank: Rank(0) }, epoch: Epoch(3), first_seq: Seq(1) }
}

fn segment(origins: bool, events: &[(Origin, Event<'_>)]) -> Vec<u8> {
    let mut buffer = JournalBuffer::new(Seq(1), origins);
    for (origin, event) in events {
        buffer.append(*origin, event);
    }
    buffer.close_block();
    let mut bytes = header().encode().to_vec();
    for block in buffer.blocks() {
        bytes.extend_from_slice(block);
    }
    bytes
}

fn count(bytes: &[u8]) -> Result<u64, crate::JournalError> {
    let mut reader = SegmentReader::open(bytes)?;
    let mut events = 0;
    while let Some(block) = reader.next_block()? {
        let mut block = block.events();
        while block.next_event()?.is_some() {
            events += 1;
        }
    }
    Ok(events)
}

fn create<'a>(name: &'a [u8], ino: u64, time: i64) -> Event<'a> {
    let time = Timestamp(time);
    Event::Create(Create {
        parent: Ino(1),
        name,
        ino: Ino(ino),
        mode: 0o100_644,
        time,
        mtime: time,
        atime: time,
        ..Create::default()
    })
}

#[derive(Clone, Debug)]
struct Raw {
    kind: u8,
    parent: u64,
    name: Vec<u8>,
    other: Vec<u8>,
    ino: u64,
    numbers: [i64; 4],
    origin: (u64, u64),
}

impl Raw {
    /// Any stripe, most often the usual one.
    fn stripe(&self) -> Stripe {
        Stripe::from_code(self.numbers[0].cast_unsigned() as u32 % 27).unwrap_or_default()
    }

    fn snapshot(&self) -> InodeSnapshot<'_> {
        let [a, b, c, d] = self.numbers;
        let stripe = self.stripe();
        let attr = Attr {
            ino: Ino(self.ino),
            mode: if stripe == Stripe::DEFAULT { 0o040_755 } else { 0o100_644 },
            stripe,
            uid: a.cast_unsigned() as u32,
            nlink: 2,
            size: d.cast_unsigned(),
            mtime: Timestamp(b),
            ctime: Timestamp(c),
            ..Attr::default()
        };
        InodeSnapshot { attr, data: &self.name, extra: &self.other }
    }

    fn event(&self) -> Event<'_> {
        let [a, b, c, _] = self.numbers;
        let time = Timestamp(a);
        let (parent, ino, name) = (Ino(self.parent), Ino(self.ino), self.name.as_slice());
        match self.kind {
            0 => Event::Create(Create {
                parent,
                name,
                ino,
                mode: 0o100_000 | (b.cast_unsigned() as u32 & 0o7777),
                uid: b.cast_unsigned() as u32,
                gid: c.cast_unsigned() as u32,
                stripe: self.stripe(),
                size: c.cast_unsigned(),
                time,
                mtime: Timestamp(b),
                atime: Timestamp(c),
                data: &self.other,
                ..Create { extra: &self.name, ..Create::default() }
            }),
            1 => Event::Link { parent, name, ino, home: Ino(3), inode: self.snapshot(), time },
            2 => Event::Unlink { parent, name, ino, time },
            3 => Event::Rmdir { parent, name, ino, time },
            4 => Event::Rename {
                parent,
                name,
                new_parent: Ino(b.cast_unsigned()),
                new_name: name,
                moved: self.snapshot(),
                exchanged: (c % 2 == 0).then(|| self.snapshot()),
                replaced: Ino(c.cast_unsigned()),
                time,
            },
            5 => Event::SetAttr {
                ino,
                home: parent,
                change: AttrChange {
                    mode: (b % 2 == 0).then_some(7),
                    size: (c % 2 == 0).then_some(u64::MAX),
                    mtime: Some(Timestamp(c)),
                    ..AttrChange::default()
                },
                time,
            },
            6 => Event::SetXattr {
                ino,
                home: parent,
                name,
                value: (b % 2 == 0).then_some(self.other.as_slice()),
                time,
            },
            7 => Event::SetData {
                ino,
                home: parent,
                data: &self.other,
                size: b.cast_unsigned(),
                time,
            },
            8 => Event::SetPolicy { ino, home: parent, policy: &self.other, time },
            9 => Event::Session { client: ClientId(self.parent), tid: Tid(self.ino) },
            10 => Event::Merged {
                subtree: ino,
                client: ClientId(1),
                object: &self.other,
                first: a.cast_unsigned(),
                events: b.cast_unsigned(),
                last: c % 2 == 0,
                losses: &self.name,
            },
            _ => Event::Stored { dir: ino },
        }
    }
}

fn raw() -> impl Strategy<Value = Raw> {
    (
        0..12u8,
        prop_oneof![Just(1u64), any::<u64>()],
        prop::collection::vec(prop_oneof![Just(b'a'), any::<u8>()], 1..=255),
        prop::collection::vec(any::<u8>(), 0..100),
        any::<u64>(),
        prop::array::uniform4(prop_oneof![Just(0i64), Just(5_000_000_000), any::<i64>()]),
        (any::<u64>(), any::<u64>()),
    )
        .prop_map(|(kind, parent, name, other, ino, numbers, origin)| Raw {
            kind,
            parent,
            name,
            other,
            ino,
            numbers,
            origin,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_event_survives_the_round_trip(raws in prop::collection::vec(raw(), 0..60), origins: bool) {
        let events: Vec<_> = raws
            .iter()
            .map(|raw| (Origin { client: ClientId(raw.origin.0), tid: Tid(raw.origin.1) }, raw.event()))
            .collect();
        let bytes = segment(origins, &events);
        let mut reader = SegmentReader::open(&bytes).expect("own header");
        let mut expected = events.iter();
        while let Some(block) = reader.next_block().expect("own block") {
            let mut block = block.events();
            while let Some(record) = block.next_event().expect("own event") {
                let (origin, event) = expected.next().expect("no more than were written");
                prop_assert_eq!(&record.event, event);
                prop_assert_eq!(record.origin, if origins { *origin } else { Origin::default() });
            }
        }
        prop_assert!(expected.next().is_none());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        crate::fuzz::decode(&bytes);
    }

    #[test]
    fn mutated_segments_never_panic(
        raws in prop::collection::vec(raw(), 1..20),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let events: Vec<_> = raws.iter().map(|raw| (Origin::default(), raw.event())).collect();
        let mut bytes = segment(true, &events);
        for (index, value) in flips {
            let index = index.index(bytes.len());
            bytes[index] = value;
        }
        crate::fuzz::decode(&bytes);
        crate::fuzz::decode(&bytes[HEADER_BYTES + 27..]);
    }
}

#[test]
fn every_truncation_is_detected_or_is_a_clean_end() {
    let events: Vec<_> =
        (0..50).map(|i| (Origin::default(), create(b"name", 100 + i, 5))).collect();
    let bytes = segment(false, &events);
    for cut in 0..bytes.len() {
        let expected_clean = cut == HEADER_BYTES;
        assert_eq!(count(&bytes[..cut]).is_ok(), expected_clean, "cut at {cut}");
    }
    assert_eq!(count(&bytes), Ok(50));
}

#[test]
fn every_bit_flip_is_detected() {
    let bytes = segment(true, &[(Origin::default(), create(b"name", 100, 5))]);
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(count(&damaged).is_err(), "flip of bit {bit}");
    }
}

#[test]
fn a_torn_end_is_distinguished_from_a_hole_in_the_middle() {
    let names: Vec<Vec<u8>> = (0..40_000).map(|i| format!("some name {i}").into_bytes()).collect();
    let events: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(i, name)| (Origin::default(), create(name, 7 * i as u64, i as i64 * 977)))
        .collect();
    let bytes = segment(false, &events);
    let whole = scan(&bytes).expect("header");
    assert_eq!((whole.events, whole.damage), (40_000, None));

    let torn = scan(&bytes[..bytes.len() - 10]).expect("header");
    let damage = torn.damage.expect("cut off");
    assert_eq!(damage.resumes, None);
    assert!(torn.events > 30_000 && torn.events < 40_000);

    let mut holed = bytes;
    holed[HEADER_BYTES + 40] ^= 1;
    let damage = scan(&holed).expect("header").damage.expect("damaged");
    assert_eq!(damage.error.offset, HEADER_BYTES as u64);
    assert!(damage.resumes.is_some());
}

#[test]
fn a_run_of_creates_costs_a_few_bytes_each() {
    let names: Vec<Vec<u8>> = (0..100_000).map(|i| format!("file.{i:07}").into_bytes()).collect();
    let events: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(i, name)| {
            let origin = Origin { client: ClientId(4), tid: Tid(1 + i as u64) };
            (origin, create(name, 1_000 + i as u64, i as i64 / 100 * 1_000_000))
        })
        .collect();
    for origins in [false, true] {
        let per_create = segment(origins, &events).len() as f64 / 100_000.0;
        assert!(per_create < 4.0, "{per_create} bytes");
    }
}

#[test]
fn foreign_and_newer_journals_are_refused_with_a_reason() {
    let cause = |bytes: &[u8]| SegmentReader::open(bytes).expect_err("refused").cause;
    assert!(cause(b"").contains("too short"));
    assert!(cause(&[7; 80]).contains("not a Cudele journal"));
    let mut newer = header().encode().to_vec();
    newer[8] = 4;
    let crc = crc32c::crc32c(&newer[..48]);
    newer[48..52].copy_from_slice(&crc.to_le_bytes());
    assert!(cause(&newer).contains("version 4"));
    let client = SegmentHeader {
        writer: Writer::Client { client: ClientId(9), subtree: Ino(77) },
        ..header()
    };
    assert_eq!(SegmentHeader::decode(&client.encode()), Ok(client));
}

/// The events of the example, the second striped differently and with extended attributes if the
/// version knows how.
fn example(stripe: Stripe, extra: &[u8]) -> Vec<u8> {
    let first = create(b"a", 1 << 40, 1_000);
    let mut second = create(b"b", (1 << 40) + 1, 1_000);
    if let Event::Create(create) = &mut second {
        (create.stripe, create.extra) = (stripe, extra);
    }
    let (parent, time) = (Ino(1), Timestamp(2_000));
    let third = Event::Unlink { parent, name: b"a", ino: Ino(1 << 40), time };
    let origin = |client, tid| Origin { client: ClientId(client), tid: Tid(tid) };
    segment(true, &[(origin(1, 1), first), (origin(1, 2), second), (origin(2, 1), third)])
}

fn hex(bytes: &[u8]) -> String {
    bytes.chunks(16).map(|line| types::hex::spaced(line) + "\n").collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    types::hex::decode(&text.split_whitespace().collect::<String>()).unwrap()
}

#[test]
fn reads_v1() {
    let stored = from_hex(include_str!("../testdata/v1/three_events.hex"));
    assert_eq!(count(&stored), Ok(3));
    assert_eq!(stored[8], 1);
    // Only the version of its header differs from the current format.
    assert_eq!(stored[HEADER_BYTES..], example(Stripe::DEFAULT, b"")[HEADER_BYTES..]);
}

#[test]
fn reads_v2() {
    let stored = from_hex(include_str!("../testdata/v2/three_events.hex"));
    assert_eq!((count(&stored), stored[8]), (Ok(3), 2));
    assert_eq!(stored[HEADER_BYTES..], example(Stripe::MIN, b"")[HEADER_BYTES..]);
}

#[test]
fn reads_v3() {
    let bytes = example(Stripe::MIN, b"extended attributes");
    expect_test::expect_file!["../testdata/v3/three_events.hex"].assert_eq(&hex(&bytes));
    assert_eq!(count(&bytes), Ok(3));
}

#[test]
fn the_usual_stripe_costs_nothing_and_another_one_two_bytes() {
    let usual = example(Stripe::DEFAULT, b"").len();
    assert_eq!(example(Stripe::MAX, b"").len(), usual + 2, "details and the stripe");
}

#[test]
fn the_longest_inline_content_is_an_event_like_any_other() {
    let data = vec![7; INLINE_BYTES_MAX];
    let (ino, home, size, time) = (Ino(5), Ino(1), data.len() as u64, Timestamp(1));
    let large = |name, ino| {
        let Event::Create(new) = create(name, ino, 1) else { unreachable!("it is one") };
        Event::Create(Create { size, data: &data, ..new })
    };
    let events = [
        large(b"a", 5),
        create(b"b", 6, 1),
        Event::SetData { ino, home, data: &data, size, time },
        large(b"c", 7),
    ];
    let bytes = segment(false, &events.map(|event| (Origin::default(), event)));
    let mut reader = SegmentReader::open(&bytes).unwrap();
    let mut read = 0;
    while let Some(block) = reader.next_block().unwrap() {
        let mut block = block.events();
        while let Some(record) = block.next_event().unwrap() {
            assert_eq!(record.event, events[read]);
            read += 1;
        }
    }
    assert_eq!(read, events.len());
    assert_eq!(scan(&bytes).unwrap().damage, None);
}

#[test]
fn a_list_of_losses_is_read_back() {
    let time = Timestamp(-5);
    let content = [None, Some((Pool(0), 0)), Some((Pool(255), 1 << 48))];
    let mut list = vec![
        Loss { winner: Ino(7), loser: Ino(8), names: 1, time },
        Loss { winner: Ino(0), loser: Ino(9), names: 2, time },
        Loss::of_create(Ino(10), time),
    ];
    list.extend(content.map(|content| Loss::of_removed(Ino(11), content)));
    let mut bytes = Vec::new();
    list.iter().for_each(|loss| loss.put(&mut bytes));
    assert_eq!(Loss::all(&bytes).collect::<Vec<_>>(), list);
    let removed: Vec<_> = list.iter().map(Loss::removed).collect();
    let expected = content.map(|content| Some((Ino(11), content)));
    assert_eq!(removed, [&[None; 3][..], &expected].concat());
    let creates: Vec<_> = list.iter().filter_map(Loss::create).collect();
    assert_eq!(creates, [Ino(10)]);
}
