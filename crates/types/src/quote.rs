//! Names in front of people: quoted so that a shell reads the same bytes and a terminal receives no
//! control character.
//!
//! A user chooses a file's name freely: an unquoted name can move the cursor, hide other lines and
//! forge messages. Every message of the program quotes its names here.
//!
//! Invariant: the returned text has no control character, and a shell reads [`quoted`] as one word
//! of the same bytes.

use std::borrow::Cow;
use std::fmt::Write as _;

/// A name or path for people, as GNU `ls` shows it on a terminal: plain text unchanged, all else in
/// the quotes of a shell.
#[must_use]
pub fn quoted(bytes: &[u8]) -> Cow<'_, str> {
    let special =
        |c: char| c.is_whitespace() || "'\"\\$`*?[]{}()<>|&;!#~".contains(c) || c.is_control();
    let Ok(text) = std::str::from_utf8(bytes) else { return Cow::Owned(escaped(bytes)) };
    if text.contains(char::is_control) {
        return Cow::Owned(escaped(bytes));
    }
    if !text.is_empty() && !text.contains(special) {
        return Cow::Borrowed(text);
    }
    // Between double quotes these would mean something.
    let harmless = |c: char| c.is_alphanumeric() || " '%+,-./:]_}@~#".contains(c);
    Cow::Owned(if !text.contains('\'') {
        format!("'{text}'")
    } else if text.chars().all(harmless) {
        format!("\"{text}\"")
    } else {
        escaped(bytes)
    })
}

/// Text with names in it, on one line: an escape sequence replaces each control character. A name
/// alone needs [`quoted`].
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    replaced(text, char::is_control)
}

/// The same for text of several lines.
#[must_use]
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    replaced(text, |c| c.is_control() && c != '\n' && c != '\t')
}

fn replaced(text: &str, bad: impl Fn(char) -> bool + Copy) -> Cow<'_, str> {
    if !text.contains(bad) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if bad(c) {
            put_escapes(&mut shown, c.encode_utf8(&mut [0; 4]).as_bytes());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Printable characters between `'`, all other bytes between `$'`.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::from("'");
    let mut in_escapes = false;
    let mut escapes = |text: &mut String, wanted: bool| {
        if wanted != in_escapes {
            text.push_str(if wanted { "'$'" } else { "''" });
            in_escapes = wanted;
        }
    };
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            escapes(&mut text, c.is_control());
            match c {
                '\'' => text.push_str("'\\''"),
                c if c.is_control() => {
                    put_escapes(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes())
                }
                c => text.push(c),
            }
        }
        if !chunk.invalid().is_empty() {
            escapes(&mut text, true);
            put_escapes(&mut text, chunk.invalid());
        }
    }
    text.push('\'');
    text
}

fn put_escapes(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let letter = match byte {
            7 => 'a',
            8 => 'b',
            b'\t' => 't',
            b'\n' => 'n',
            11 => 'v',
            12 => 'f',
            b'\r' => 'r',
            byte => {
                let _ = write!(text, "\\{byte:03o}");
                continue;
            }
        };
        text.extend(['\\', letter]);
    }
}

#[cfg(test)]
mod tests;
