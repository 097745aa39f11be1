//! Reads composition expressions.
//!
//! A recursive descent over bytes, one function per level of the grammar:
//!
//! ```text
//! expression = "" | "none" | serial
//! serial     = parallel { "+" parallel }
//! parallel   = primary { ( "||" | "|||" ) primary }
//! primary    = mechanism | "(" serial ")"
//! ```
//!
//! Invariant: it either reads the whole text or says at which byte and why not; depth and size
//! are bounded before anything is allocated in proportion to them.

use std::fmt;

use types::{Errno, Error};

use super::Composition;
use crate::{Mechanism, text};

/// The longest expression, in bytes.
pub const EXPRESSION_BYTES_MAX: usize = 4096;

/// The deepest nesting of parentheses.
pub const NESTING_MAX: usize = 32;

/// The most mechanisms in one expression, counting repetitions.
pub const MECHANISMS_MAX: usize = 64;

/// The longest canonical name of a mechanism, `append_client_journal`, in bytes.
const NAME_BYTES_MAX: usize = 21;

// Canonical text may be longer than the input, because aliases are short. It must still be
// readable: per mechanism a name, an operator and at most one pair of parentheses.
const _: () = assert!(MECHANISMS_MAX * (NAME_BYTES_MAX + 4) <= EXPRESSION_BYTES_MAX);

/// Why a text is not a composition, and where. Its error number is EINVAL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompositionError {
    /// Where in the expression, in bytes from its start.
    pub at: usize,
    /// Where in the expression, in characters counted from 1.
    pub column: usize,
    /// The word or sign that is not understood; may be empty.
    pub word: String,
    /// The cause, in words.
    pub cause: String,
    /// The remedy.
    pub remedy: String,
}

impl fmt::Display for CompositionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}; {}", self.column, self.cause, self.remedy)
    }
}

impl std::error::Error for CompositionError {}

impl From<CompositionError> for Error {
    fn from(error: CompositionError) -> Self {
        let subject = format!("composition, column {}", error.column);
        Self::new(Errno::Invalid, subject, error.cause).remedy(error.remedy)
    }
}

type Result<T> = std::result::Result<T, CompositionError>;

/// See [`Composition::parse`].
pub(super) fn parse(text: &str) -> Result<Composition> {
    let mut parser = Parser { text, at: 0, depth: 0, mechanisms: 0 };
    if text.len() > EXPRESSION_BYTES_MAX {
        parser.at = EXPRESSION_BYTES_MAX;
        let cause = format!("the expression is longer than {EXPRESSION_BYTES_MAX} bytes");
        return Err(parser.error("", cause, "write a shorter one"));
    }
    if matches!(text::normalise(text).as_str(), "" | "none") {
        return Ok(Composition::Nothing);
    }
    let composition = parser.serial()?;
    match parser.peek() {
        None => Ok(composition),
        // A serial stops only at the end, at a closing parenthesis or before a second group.
        Some(')') => Err(parser.error(")", "nothing is open here", "remove the parenthesis")),
        Some(other) => Err(parser.error(
            &other.to_string(),
            "an operator is missing here",
            "write + for one after the other, or || for both at the same time",
        )),
    }
}

struct Parser<'a> {
    text: &'a str,
    /// The next byte; always on a character boundary.
    at: usize,
    depth: usize,
    mechanisms: usize,
}

impl<'a> Parser<'a> {
    fn serial(&mut self) -> Result<Composition> {
        let mut parts = vec![self.parallel()?];
        while self.peek() == Some('+') {
            self.at += 1;
            parts.push(self.parallel()?);
        }
        Ok(Composition::serial(parts))
    }

    fn parallel(&mut self) -> Result<Composition> {
        let mut parts = vec![self.primary()?];
        while self.peek() == Some('|') {
            let bars = self.rest().bytes().take_while(|byte| *byte == b'|').count();
            // Three bars are how a scanned copy of the language renders two.
            if !(2..=3).contains(&bars) {
                let word = "|".repeat(bars.min(8));
                let cause = format!("{} is no operator", text::quoted(&word));
                return Err(self.error(&word, cause, "write || for both at the same time"));
            }
            self.at += bars;
            parts.push(self.primary()?);
        }
        Ok(Composition::parallel(parts))
    }

    fn primary(&mut self) -> Result<Composition> {
        match self.peek() {
            Some('(') => self.parenthesised(),
            Some(sign @ ('+' | '|' | ')')) => Err(self.error(
                &sign.to_string(),
                format!("a mechanism is missing before `{sign}`"),
                "name one, or remove the sign",
            )),
            Some(_) => self.mechanism(),
            None => Err(self.error(
                "",
                "a mechanism is missing at the end",
                "name one, or remove the operator or parenthesis before it",
            )),
        }
    }

    fn parenthesised(&mut self) -> Result<Composition> {
        if self.depth == NESTING_MAX {
            let cause = format!("parentheses are nested more than {NESTING_MAX} deep");
            return Err(self.error("(", cause, "remove those that change nothing"));
        }
        let opened_at = self.at;
        self.at += 1;
        self.depth += 1;
        let inner = self.serial()?;
        self.depth -= 1;
        match self.peek() {
            Some(')') => {
                self.at += 1;
                Ok(inner)
            }
            Some(_) => Err(self.error(
                "",
                "an operator is missing here",
                "write + for one after the other, or || for both at the same time",
            )),
            None => {
                self.at = opened_at;
                Err(self.error("(", "the parenthesis is not closed", "add the closing one"))
            }
        }
    }

    fn mechanism(&mut self) -> Result<Composition> {
        let rest = self.rest();
        let word = rest[..rest.find(['+', '|', '(', ')']).unwrap_or(rest.len())].trim_end();
        let Some(mechanism) = Mechanism::from_name(word) else {
            return Err(self.unknown(word));
        };
        if self.mechanisms == MECHANISMS_MAX {
            let cause = format!("there are more than {MECHANISMS_MAX} mechanisms");
            return Err(self.error(word, cause, "write a shorter expression"));
        }
        self.mechanisms += 1;
        self.at += word.len();
        Ok(mechanism.into())
    }

    fn unknown(&self, word: &str) -> CompositionError {
        if text::normalise(word) == "none" {
            return self.error(word, "`none` cannot be composed", "write it alone or remove it");
        }
        let cause = format!("{} is no mechanism", text::quoted(word));
        if word.split_whitespace().all(|part| Mechanism::from_name(part).is_some()) {
            return self.error(word, cause, "put + or || between mechanisms");
        }
        let names = Mechanism::ALL.iter().map(|mechanism| mechanism.name());
        self.error(word, cause, text::suggestion(&text::normalise(word), names))
    }

    /// Skips space, then looks at the next character.
    fn peek(&mut self) -> Option<char> {
        self.at = self.text.len() - self.rest().trim_start().len();
        self.rest().chars().next()
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn error(
        &self,
        word: &str,
        cause: impl Into<String>,
        remedy: impl Into<String>,
    ) -> CompositionError {
        let at = self.text.floor_char_boundary(self.at);
        CompositionError {
            at,
            column: 1 + self.text[..at].chars().count(),
            word: word.to_owned(),
            cause: cause.into(),
            remedy: remedy.into(),
        }
    }
}
