use proptest::prelude::*;

use super::*;
use crate::tests::{attr, inode};

fn round_trip(base: &Base, value: RowValue<'_>) {
    let mut bytes = Vec::new();
    put_value(&mut bytes, base, &value);
    assert_eq!(is_removed(&bytes), value == RowValue::Removed);
    let mut reader = Reader::new(&bytes);
    assert_eq!(read_value(&mut reader, base), Ok(value));
    assert!(reader.is_at_end());
    for cut in 0..bytes.len() {
        assert!(read_value(&mut Reader::new(&bytes[..cut]), base).is_err());
    }
}

/// Numbers at which an encoding could break, and any further ones.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), Just(u64::MAX), Just(1 << 63), 0..1000_u64, any::<u64>()]
}

prop_compose! {
    fn any_attr()(n in prop::array::uniform11(number())) -> Attr {
        let (narrow, time) = (|n: u64| (n >> 32 ^ n & 0xffff_ffff).try_into().expect("32 bits"), |n: u64| Timestamp(n.cast_signed()));
        let (rdev, stripe) = types::device_and_stripe(narrow(n[1]), narrow(n[5]));
        Attr {
            ino: Ino(n[0]),
            mode: narrow(n[1]),
            stripe,
            uid: narrow(n[2]),
            gid: narrow(n[3]),
            nlink: narrow(n[4]),
            rdev,
            size: n[6],
            atime: time(n[7]),
            mtime: time(n[8]),
            ctime: time(n[9]),
            btime: time(n[10]),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_stripe_survives_the_round_trip(code in 0..27_u32, base in any_attr()) {
        let base = Base::of(&InodeRecord { attr: base, ..InodeRecord::default() });
        let stripe = types::Stripe::from_code(code).unwrap_or_default();
        let attr = Attr { stripe, ..attr(1, FileType::Regular) };
        round_trip(&base, RowValue::Inode(InodeRecord { attr, ..InodeRecord::default() }));
    }

    #[test]
    fn any_record_survives_the_round_trip_against_any_base(
        attr in any_attr(),
        base in any_attr(),
        version in number(),
        data in prop::collection::vec(any::<u8>(), 0..20),
        extra in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let base = Base::of(&InodeRecord { attr: base, ..InodeRecord::default() });
        let record = InodeRecord { attr, version: Seq(version), data: &data, extra: &extra, pointer: None };
        round_trip(&base, RowValue::Inode(record));
        round_trip(&Base::of(&record), RowValue::Inode(record));
    }
}

#[test]
fn removed_and_remote_rows_survive_the_round_trip() {
    round_trip(&Base::default(), RowValue::Removed);
    for bits in 0..16 {
        if let Some(file_type) = FileType::from_mode(bits << 12) {
            round_trip(&Base::default(), RowValue::Remote { ino: Ino(u64::MAX), file_type });
        }
    }
}

#[test]
fn unknown_kinds_flags_and_types_are_refused() {
    let read = |bytes: &[u8]| read_value(&mut Reader::new(bytes), &Base::default()).map(|_| ());
    let expected = |expected| Err(Malformed { offset: 0, expected });
    assert_eq!(read(&[3, 0, 0, 0]), expected("a kind of row"));
    assert_eq!(read(&[4, 0, 0, 0]), expected("a kind of row"), "a removed row has no flags");
    assert_eq!(read(&[0x82, 0x40, 0, 0, 0]), expected("a kind of row"), "flag 13 is not defined");
    let both = [0x8a, 0x20, 0, 0, 0, 1, b'x', 1, 40, 0, 0];
    assert_eq!(
        read(&both).map_err(|error| error.expected),
        Err("content in a row or a pointer to it")
    );
    assert_eq!(read(&[1, 0, 0, 0]), expected("a file type"));
}

#[test]
fn an_ordinary_file_takes_at_most_sixteen_bytes() {
    let base =
        Base::of(&InodeRecord { attr: attr(0, FileType::Regular), ..InodeRecord::default() });
    let length = |number| {
        let mut bytes = Vec::new();
        put_value(&mut bytes, &base, &inode(number, FileType::Regular, b""));
        bytes.len()
    };
    // The millionth file of a job, made eleven days after the first.
    assert_eq!((length(0), length(1_000_000)), (4, 15));
}
