//! Faults of a policy, with their lines.

use std::fmt;

use types::{Errno, Error};

/// The kinds of faults. All of them leave the rank as it is: nothing moves in that tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The text is no policy.
    Syntax,
    /// The script failed while it ran.
    Script,
    /// The script took more steps than it may.
    Steps,
    /// The script took longer than it may.
    Time,
    /// The script wanted more memory than it may have.
    Memory,
    /// The script's decision is impossible: not a number, or a rank that does not exist.
    Result,
    /// Not the policy's fault: the view makes no sense.
    View,
}

impl FaultKind {
    /// Whether the script used up what one decision may use.
    #[must_use]
    pub fn is_budget(self) -> bool {
        match self {
            Self::Steps | Self::Time | Self::Memory => true,
            Self::Syntax | Self::Script | Self::Result | Self::View => false,
        }
    }
}

/// A fault of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which kind.
    pub kind: FaultKind,
    /// The line of the policy's file, counted from 1, where it is known.
    pub line: Option<u32>,
    /// The fault, on one line of at most 300 characters.
    pub message: String,
}

const MESSAGE_CHARS_MAX: usize = 300;

impl Fault {
    /// A fault without a line.
    pub(crate) fn new(kind: FaultKind, message: impl AsRef<str>) -> Self {
        Self { kind, line: None, message: one_line(message.as_ref(), MESSAGE_CHARS_MAX) }
    }

    /// The same fault in a line.
    pub(crate) fn at(mut self, line: Option<u32>) -> Self {
        self.line = line;
        self
    }

    /// The remedy for a person.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self.kind {
            FaultKind::Syntax => "correct the policy; `cudele balancer check FILE` tells more",
            FaultKind::Script => {
                "correct the policy; `cudele balancer check FILE` runs it on made-up clusters"
            }
            FaultKind::Steps | FaultKind::Time => {
                "let the policy do less: look for an endless loop"
            }
            FaultKind::Memory => "let the policy keep less: look for a table or text that grows",
            FaultKind::Result => {
                "give every rank that exists a number that is not negative, and no other rank one"
            }
            FaultKind::View => "report this: the server described itself wrongly",
        }
    }

    /// The error for people, about the policy of this name.
    #[must_use]
    pub fn to_error(&self, policy: &str) -> Error {
        let errno = match self.kind {
            FaultKind::Time => Errno::TimedOut,
            FaultKind::Syntax
            | FaultKind::Script
            | FaultKind::Steps
            | FaultKind::Memory
            | FaultKind::Result
            | FaultKind::View => Errno::Invalid,
        };
        Error::new(errno, policy, self.to_string()).remedy(self.remedy())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Fault {}

/// The first line of a text from outside, without control characters, at most so long.
pub(crate) fn one_line(text: &str, chars_max: usize) -> String {
    let mut line = String::new();
    for (at, c) in text.lines().next().unwrap_or_default().chars().enumerate() {
        if at == chars_max {
            line.push('…');
            break;
        }
        line.push(if c.is_control() { '\u{fffd}' } else { c });
    }
    line
}
