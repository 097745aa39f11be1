use cudele::{FileType, Ino};

use super::*;

fn attr(mode: u32) -> Attr {
    Attr { ino: Ino(1), mode, ..Attr::default() }
}

#[test]
fn modes_look_as_in_ls() {
    let shown = |file_type: FileType, bits| mode(&attr(file_type.mode_bits() | bits));
    assert_eq!(shown(FileType::Regular, 0o644), "-rw-r--r--");
    assert_eq!(shown(FileType::Directory, 0o1777), "drwxrwxrwt");
    assert_eq!(shown(FileType::Regular, 0o6755), "-rwsr-sr-x");
    assert_eq!(shown(FileType::Regular, 0o7644), "-rwSr-Sr-T");
    assert_eq!(shown(FileType::Symlink, 0o777), "lrwxrwxrwx");
    assert_eq!(permissions(&attr(0o100_644)), "0644");
}

#[test]
fn sizes_use_the_largest_unit() {
    let cases = [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (10 << 20, "10.0 MiB"),
        (u64::MAX, "15.9 EiB"),
    ];
    for (bytes, text) in cases {
        assert_eq!(size(bytes), text);
    }
}

#[test]
fn times_are_civil_and_exact() {
    let cases = [
        (0, 0, "1970-01-01T00:00:00.000000000Z"),
        (-1, 999_999_999, "1969-12-31T23:59:59.999999999Z"),
        (951_782_399, 0, "2000-02-28T23:59:59.000000000Z"),
        (951_868_799, 5, "2000-02-29T23:59:59.000000005Z"),
        (951_868_800, 0, "2000-03-01T00:00:00.000000000Z"),
        (4_107_542_400, 0, "2100-03-01T00:00:00.000000000Z"),
        (1_700_000_000, 0, "2023-11-14T22:13:20.000000000Z"),
    ];
    for (seconds, nanos, text) in cases {
        assert_eq!(instant(Timestamp::from_parts(seconds, nanos)), text);
    }
    assert_eq!(minute(Timestamp::from_parts(1_700_000_000, 0)), "2023-11-14 22:13");
    assert_eq!(&instant(Timestamp(i64::MIN))[..10], "1677-09-21");
}

#[test]
fn json_keeps_bytes_that_are_no_text() {
    let mut object = Map::new();
    put_bytes(&mut object, "name", b"a\xff");
    put_bytes(&mut object, "path", b"/a");
    let expected = json!({ "name": "a\u{fffd}", "name_hex": "61ff", "path": "/a" });
    assert_eq!(Value::Object(object), expected);
}
