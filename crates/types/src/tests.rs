use crate::bytes::{Put, Reader, unzigzag, zigzag};
use crate::{Errno, Error, Frag, Ino, InoRange, Path, Rank, Timestamp, check_name, name_hash};

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
