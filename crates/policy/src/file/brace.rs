//! Reads policies in braces: JSON, YAML's flow form, and the form with no commas at all (A-09).
//!
//! ```text
//! file   = "{" { member [ "," ] } "}"
//! member = word ":" word
//! word   = "..." with JSON's escapes | '...' with '' for a quote | bare
//! ```
//!
//! A bare word ends before a comma, a brace, a line's end or a comment, a bare key also before the
//! colon. `#` at a line's start or after a space begins a comment. Values are words: objects and
//! lists have no meaning in a policy.
//!
//! Invariant: every byte up to the fault is accounted for: as space, comment, punctuation or a
//! member.

use super::{Member, PolicyError, Scan, fault};
use crate::text;

/// Whether the first thing in a text, after space and comments, is an opening brace.
pub(super) fn is_brace_form(source: &str) -> bool {
    let mut reader = Reader { source, at: 0 };
    reader.skip_space();
    reader.peek() == Some('{')
}

/// Reads a text for which [`is_brace_form`] holds.
pub(super) fn scan(source: &str) -> Scan {
    let mut reader = Reader { source, at: 0 };
    let mut members = Vec::new();
    let fault = reader.file(&mut members).err();
    Scan { members, fault }
}

type Result<T> = std::result::Result<T, PolicyError>;

struct Word {
    text: String,
    /// Where its content begins, in bytes.
    at: usize,
}

struct Reader<'a> {
    source: &'a str,
    /// The next byte; always on a character boundary.
    at: usize,
}

impl<'a> Reader<'a> {
    fn file(&mut self, members: &mut Vec<Member>) -> Result<()> {
        self.skip_space();
        let opened_at = self.at;
        self.at += '{'.len_utf8();
        loop {
            self.skip_space();
            match self.peek() {
                Some('}') => break,
                None => return Err(self.unclosed(opened_at)),
                Some(_) => members.push(self.member(opened_at)?),
            }
            self.skip_space();
            if self.peek() == Some(',') {
                self.at += 1;
            }
        }
        self.at += '}'.len_utf8();
        self.skip_space();
        match self.peek() {
            None => Ok(()),
            Some(_) => {
                Err(self.error("there is text after the closing brace", "one policy to a file"))
            }
        }
    }

    fn member(&mut self, opened_at: usize) -> Result<Member> {
        let key = self.word(&[',', '{', '}', '[', ']', ':'], "a key")?;
        self.skip_space();
        if self.peek() != Some(':') {
            let cause = format!("a colon is missing after {}", text::quoted(&key.text));
            return Err(self.error(cause, "write each member as \"key\": \"value\""));
        }
        self.at += ':'.len_utf8();
        self.skip_space();
        if self.peek().is_none() {
            return Err(self.unclosed(opened_at));
        }
        let value = self.word(&[',', '{', '}', '[', ']'], "a value")?;
        Ok(Member { key: key.text, key_at: key.at, value: value.text, value_at: value.at })
    }

    fn word(&mut self, ends: &[char], expected: &str) -> Result<Word> {
        match self.peek() {
            Some('"') => self.double_quoted(),
            Some('\'') => self.single_quoted(),
            _ => {
                let rest = self.rest();
                let line = rest.split(['\n', '\r']).next().unwrap_or(rest);
                let line = line.split(" #").next().unwrap_or(line);
                let bare = line.split(ends).next().unwrap_or(line).trim_end();
                if bare.is_empty() {
                    let cause = format!("{expected} is missing here");
                    return Err(self.error(cause, "write each member as \"key\": \"value\""));
                }
                let at = self.at;
                self.at += bare.len();
                Ok(Word { text: bare.to_owned(), at })
            }
        }
    }

    fn double_quoted(&mut self) -> Result<Word> {
        let opened_at = self.at;
        self.at += '"'.len_utf8();
        let mut word = Word { text: String::new(), at: self.at };
        loop {
            match self.peek() {
                Some('"') => {
                    self.at += '"'.len_utf8();
                    return Ok(word);
                }
                Some('\\') => word.text.push(self.escape()?),
                None | Some('\n' | '\r') => return Err(self.unclosed_quote(opened_at)),
                Some(plain) => {
                    word.text.push(plain);
                    self.at += plain.len_utf8();
                }
            }
        }
    }

    fn single_quoted(&mut self) -> Result<Word> {
        let opened_at = self.at;
        self.at += '\''.len_utf8();
        let mut word = Word { text: String::new(), at: self.at };
        loop {
            match self.peek() {
                None | Some('\n' | '\r') => return Err(self.unclosed_quote(opened_at)),
                Some(character) => {
                    self.at += character.len_utf8();
                    if character == '\'' {
                        if self.peek() != Some('\'') {
                            return Ok(word);
                        }
                        self.at += '\''.len_utf8();
                    }
                    word.text.push(character);
                }
            }
        }
    }

    /// One of JSON's escapes; the reader stands at the backslash.
    fn escape(&mut self) -> Result<char> {
        let rest = self.rest();
        let simple = match rest.as_bytes().get(1) {
            Some(sign @ (b'"' | b'\\' | b'/')) => Some(char::from(*sign)),
            Some(b'n') => Some('\n'),
            Some(b'r') => Some('\r'),
            Some(b't') => Some('\t'),
            Some(b'b') => Some('\u{8}'),
            Some(b'f') => Some('\u{c}'),
            _ => None,
        };
        if let Some(character) = simple {
            self.at += 2;
            return Ok(character);
        }
        // Characters beyond the basic plane would come as two escapes. No word of a policy has
        // any, and so a surrogate is refused like every other escape that is not understood.
        let code = rest.strip_prefix("\\u").and_then(|rest| rest.get(..4));
        let character = code
            .filter(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .and_then(|code| char::from_u32(u32::from_str_radix(code, 16).ok()?));
        let Some(character) = character else {
            return Err(self.error("this escape is not understood", "write the character itself"));
        };
        self.at += "\\u0000".len();
        Ok(character)
    }

    fn skip_space(&mut self) {
        loop {
            // A byte order mark is no part of the text it begins.
            let rest = self.rest();
            let rest = if self.at == 0 { rest.trim_start_matches('\u{feff}') } else { rest };
            self.at = self.source.len() - rest.trim_start().len();
            let begins_word = self.source[..self.at].ends_with(|before: char| {
                !before.is_whitespace() && !"{},".contains(before) && before != '\u{feff}'
            });
            if self.peek() != Some('#') || begins_word {
                return;
            }
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn error(&self, cause: impl Into<String>, remedy: &str) -> PolicyError {
        fault(self.source, self.at, "", cause, remedy)
    }

    /// Reported at the end of the text, where the brace belongs.
    fn unclosed(&self, opened_at: usize) -> PolicyError {
        let (line, column) = text::line_and_column(self.source, opened_at);
        let cause = format!("the brace opened at line {line}, column {column} is not closed");
        let end = self.source.trim_end().len();
        fault(self.source, end, "", cause, "add } at the end; the text may be incomplete")
    }

    fn unclosed_quote(&self, opened_at: usize) -> PolicyError {
        let cause = "the quote that begins here is not closed on its line";
        fault(self.source, opened_at, "", cause, "add the closing quote")
    }
}
