use crate::bytes::{Put, Reader, unzigzag, zigzag};
use crate::{
    Errno, Error, Frag, INLINE_BYTES, INLINE_BYTES_MAX, Ino, InoRange, Path, Pool, Rank,
    STRIPE_BYTES, Stripe, Timestamp, check_name, device_and_stripe, device_or_stripe, name_hash,
};
use crate::{hex, rng};

#[test]
fn varints_survive_the_round_trip_and_refuse_more_than_64_bits() {
    for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
        let mut bytes = Vec::new();
        bytes.put_varint(value);
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.varint(), Ok(value));
        assert!(reader.is_at_end());
        for cut in 0..bytes.len() {
            assert!(Reader::new(&bytes[..cut]).varint().is_err());
        }
    }
    assert!(Reader::new(&[0xff; 10]).varint().is_err());
    assert!(Reader::new(&[0x80; 11]).varint().is_err());
    for value in [0, 1, -1, i64::MAX, i64::MIN] {
        assert_eq!(unzigzag(zigzag(value)), value);
    }
}

#[test]
fn an_illegal_byte_is_found_at_every_place_of_a_name() {
    for length in 1..40 {
        // Bytes that differ from an illegal one in one bit, or by one.
        for other in [b'a', 1, 0x80, b'.', b'0', b'/' | 0x80, 0xff] {
            let legal = vec![other; length];
            assert_eq!(check_name(&legal).is_ok(), other != b'.' || length > 2, "{legal:?}");
            for (at, bad) in (0..length).flat_map(|at| [(at, 0), (at, b'/')]) {
                let mut name = legal.clone();
                name[at] = bad;
                assert_eq!(check_name(&name), Err(Errno::Invalid), "{name:?}");
            }
        }
    }
}

#[test]
fn names_are_bytes_with_few_rules() {
    assert_eq!(check_name(b"file"), Ok(()));
    assert_eq!(check_name(b"\xff\xfe\n"), Ok(()), "not UTF-8 is legal");
    assert_eq!(check_name(&[b'a'; 255]), Ok(()));
    assert_eq!(check_name(&[b'a'; 256]), Err(Errno::NameTooLong));
    for bad in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
        assert_eq!(check_name(bad), Err(Errno::Invalid));
    }
}

#[test]
fn paths_drop_empty_components_and_refuse_dot_dot() {
    let path = Path::parse("//a/./b//c/").expect("legal");
    assert_eq!(path.to_string(), "/a/b/c");
    assert!(path.starts_with(&Path::parse("a/b").expect("legal")));
    assert!(!path.starts_with(&Path::parse("/a/bc").expect("legal")));
    assert_eq!(Path::parse("/a/../b"), Err(Errno::Invalid));
    assert_eq!(Path::parse(vec![b'x'; 5000]), Err(Errno::NameTooLong));
    assert!(Path::parse("/").expect("legal").is_root());
}

#[test]
fn the_name_hash_is_part_of_the_format() {
    assert_eq!(name_hash(b""), 0x2d06_8005);
    assert!(Frag { bits: 1, value: 0x8000_0000 }.contains(0xdead_beef));
    assert!(!Frag { bits: 1, value: 0 }.contains(0xdead_beef));
    assert!(Frag::WHOLE.contains(7));
}

#[test]
fn ranks_own_disjoint_numbers() {
    let (zero, one) = (Ino::space_of(Rank(0)), Ino::space_of(Rank(1)));
    assert_eq!(zero.end, one.start);
    let mut range = InoRange { start: 5, end: 6 };
    assert_eq!(range.take(), Some(Ino(5)));
    assert_eq!(range.take(), None);
}

#[test]
fn the_store_has_two_hidden_directories_of_each_rank() {
    assert_eq!(Ino::TRASH.stored_by(Rank(0)), Ino::TRASH);
    assert_eq!(Ino::ANCHOR.stored_by(Rank(3)), Ino::ANCHOR);
    let (links, trash) = (Ino::links_of(Rank(3)), Ino::TRASH.stored_by(Rank(3)));
    assert!(links != trash && links.is_mount_stub() && trash.is_mount_stub());
    assert!(links.is_links() && !trash.is_links());
}

#[test]
fn errors_name_subject_cause_and_remedy() {
    let error = Error::new(Errno::Busy, "/job", "decoupled by client.7").remedy("merge it first");
    assert_eq!(error.to_string(), "/job: decoupled by client.7 (EBUSY); merge it first");
    assert_eq!(Errno::from_code(Errno::Busy.code()), Errno::Busy);
}

#[test]
fn time_before_1970_has_positive_nanoseconds() {
    let time = Timestamp::from_parts(-1, 999_999_999);
    assert_eq!((time.seconds(), time.nanoseconds()), (-1, 999_999_999));
}

#[test]
fn times_are_written_as_date_and_time_in_utc() {
    let text = |seconds, millis: i64| Timestamp::from_parts(seconds, millis * 1_000_000).utc();
    assert_eq!(text(0, 0), "1970-01-01T00:00:00.000Z");
    assert_eq!(text(1_795_506_538, 7), "2026-11-24T07:48:58.007Z");
    assert_eq!(text(951_782_400, 0), "2000-02-29T00:00:00.000Z");
    assert_eq!(text(951_868_799, 999), "2000-02-29T23:59:59.999Z");
    assert_eq!(text(4_107_542_400, 0), "2100-03-01T00:00:00.000Z");
    assert_eq!(text(-1, 999), "1969-12-31T23:59:59.999Z");
}

#[test]
fn stripes_are_powers_of_two_and_the_usual_one_is_nothing() {
    assert_eq!(Stripe::of_bytes(STRIPE_BYTES), Some(Stripe::DEFAULT));
    assert_eq!(Stripe::DEFAULT.code(), 0);
    for bits in 0..64 {
        let stripe = Stripe::of_bytes(1 << bits);
        assert_eq!(stripe.is_some(), (16..=26).contains(&bits));
        let Some(stripe) = stripe else { continue };
        assert_eq!(Stripe::from_code(stripe.code()), Some(stripe));
        for pool in [1, 200, 255].map(Pool) {
            let there = stripe.in_pool(pool);
            assert_ne!(there, stripe);
            assert_eq!((there.bytes(), there.pool()), (stripe.bytes(), pool));
            assert_eq!(Stripe::from_code(there.code()), Some(there));
        }
        assert_eq!(stripe.count(0), 0);
        assert_eq!(stripe.count(stripe.bytes()), 1);
        assert_eq!(stripe.count(stripe.bytes() + 1), 2);
    }
    assert_eq!(Stripe::of_bytes((1 << 20) + 1), None);
    assert_eq!(Stripe::from_code(15), None);
    assert_eq!(Stripe::from_code(27), None);
    assert_eq!(Stripe::from_code(22), Some(Stripe::DEFAULT));
    assert_eq!(Stripe::from_code(u32::MAX), None);
}

#[test]
fn inline_content_fits_the_smallest_stripe() {
    assert!(INLINE_BYTES_MAX as u64 <= Stripe::MIN.bytes());
    assert!(INLINE_BYTES as usize <= INLINE_BYTES_MAX);
}

#[test]
fn one_number_is_a_device_or_a_stripe() {
    let (file, device, dir) = (0o100_644, 0o020_600, 0o040_755);
    let both = |mode, rdev, stripe| device_and_stripe(mode, device_or_stripe(mode, rdev, stripe));
    assert_eq!(both(file, 0, Stripe::MIN), (0, Stripe::MIN));
    assert_eq!(both(file, 20, Stripe::MAX), (0, Stripe::MAX), "a file has no device number");
    assert_eq!(both(device, 20, Stripe::DEFAULT), (20, Stripe::DEFAULT));
    assert_eq!(both(dir, 0, Stripe::DEFAULT), (0, Stripe::DEFAULT));
    assert_eq!(device_and_stripe(file, 0x801), (0, Stripe::DEFAULT), "as it was before stripes");
}

#[test]
fn hexadecimal_digits_give_the_bytes_again_and_nothing_else_does() {
    let bytes: Vec<u8> = (0..=255).collect();
    let text = hex::encode(&bytes);
    assert!(text.starts_with("00010203") && text.ends_with("fdfeff"));
    assert_eq!(hex::decode(&text), Some(bytes.clone()));
    assert_eq!(hex::decode(&text.to_uppercase()), Some(bytes));
    assert_eq!(hex::spaced(&[0, 0xab]), "00 ab");
    for bad in ["0", "0g", "+1", "0 ", "é", "00\n"] {
        assert_eq!(hex::decode(bad), None, "{bad:?}");
    }
}

#[test]
fn numbers_in_names_have_one_spelling() {
    assert_eq!((hex::fixed("00ff", 4), hex::padded("00ff", 4)), (Some(255), Some(255)));
    assert_eq!((hex::fixed("100ff", 4), hex::padded("100ff", 4)), (None, Some(0x1_00ff)));
    for bad in ["ff", "00FF", "+0ff", "000ff", "00f ", "11112222333344445"] {
        assert_eq!((hex::fixed(bad, 4), hex::padded(bad, 4)), (None, None), "{bad}");
    }
}

#[test]
fn a_uuid_of_random_bytes_says_that_it_is_random() {
    assert_eq!(hex::uuid([0; 16]), "00000000-0000-4000-8000-000000000000");
    assert_eq!(hex::uuid([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
}

#[test]
fn a_seed_gives_the_numbers_of_splitmix64() {
    // The first results of the reference implementation for the seed 1234567.
    let mut rng = rng::Rng::new(1_234_567);
    let first = [rng.bits(), rng.bits(), rng.bits()];
    assert_eq!(
        first,
        [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
    );
    assert_eq!(rng::mix(0), 0);
    for _ in 0..1000 {
        assert!((0.0..1.0).contains(&rng.unit()) && (3..=5).contains(&rng.between(3, 5)));
    }
}
