use super::*;
use crate::{Errno, Error};

#[test]
fn names_can_be_pasted_into_a_shell() {
    // As GNU `ls` shows them on a terminal.
    let cases: [(&[u8], &str); 11] = [
        (b"plain-1.txt", "plain-1.txt"),
        ("gr\u{fc}n".as_bytes(), "gr\u{fc}n"),
        (b"two words", "'two words'"),
        (b"$HOME", "'$HOME'"),
        (b"it's", "\"it's\""),
        (b"it's (x)", "'it'\\''s (x)'"),
        (b"a\nb\x1b[m", "'a'$'\\n''b'$'\\033''[m'"),
        (b"\n\x07", "''$'\\n\\a'"),
        (b"\xff\\x", "''$'\\377''\\x'"),
        ("\u{9b}31m".as_bytes(), "''$'\\302\\233''31m'"),
        (b"", "''"),
    ];
    for (bytes, text) in cases {
        assert_eq!(quoted(bytes), text);
    }
}

#[test]
fn every_byte_survives_and_no_control_character_does() {
    for first in 0..=255u8 {
        for second in [0, b'\n', b'\'', b'1', b'\\', 0x80, 0xc3, 0xff] {
            let name = [first, second];
            let shown = quoted(&name).into_owned();
            assert!(!shown.contains(char::is_control), "{name:?}: {shown}");
            assert_eq!(read_by_a_shell(&shown), name, "{shown}");
        }
    }
}

#[test]
fn errors_have_one_line_whatever_they_are_about() {
    let error = Error::new(Errno::NotFound, "/a\nb\x1b[31m", "no `x\r\u{9b}1m`").remedy("look\n");
    let said = "'/a'$'\\n''b'$'\\033''[31m': no `x\\r\\302\\2331m` (ENOENT); look\\n";
    assert_eq!(error.to_string(), said);
    let plain = Error::new(Errno::Busy, "--mds 3", "it is two words");
    assert_eq!(plain.to_string(), "--mds 3: it is two words (EBUSY)");
}

#[test]
fn text_of_several_lines_keeps_them() {
    assert_eq!(printable_lines("a\tb\nc\x1b[2K\r"), "a\tb\nc\\033[2K\\r");
    assert!(matches!(printable_lines("a\tb\n"), Cow::Borrowed(_)));
}

/// Reads one word as a shell does.
fn read_by_a_shell(word: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = word.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '$' if rest.peek() == Some(&'\'') => {
                rest.next();
                loop {
                    match rest.next().expect("a quote ends it") {
                        '\'' => break,
                        '\\' => match rest.next().expect("something is escaped") {
                            'a' => bytes.push(7),
                            'b' => bytes.push(8),
                            't' => bytes.push(9),
                            'n' => bytes.push(10),
                            'v' => bytes.push(11),
                            'f' => bytes.push(12),
                            'r' => bytes.push(13),
                            digit => {
                                let digits = [Some(digit), rest.next(), rest.next()];
                                let value = digits.iter().fold(0, |value, digit| {
                                    8 * value + digit.and_then(|d| d.to_digit(8)).expect("octal")
                                });
                                bytes.push(u8::try_from(value).expect("a byte"));
                            }
                        },
                        c => bytes.extend(c.encode_utf8(&mut [0; 4]).bytes()),
                    }
                }
            }
            quote @ ('\'' | '"') => loop {
                match rest.next().expect("a quote ends it") {
                    c if c == quote => break,
                    c => bytes.extend(c.encode_utf8(&mut [0; 4]).bytes()),
                }
            },
            '\\' => bytes.extend(
                rest.next().expect("something is escaped").encode_utf8(&mut [0; 4]).bytes(),
            ),
            c => bytes.extend(c.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    bytes
}
