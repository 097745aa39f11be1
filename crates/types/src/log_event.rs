//! Events that logs record. State machines hand them out as values; drivers write them.

use std::fmt;
use std::str::FromStr;

/// How much an event matters to an administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Data are lost, or a service does not work.
    Error,
    /// A service works, but not for every client, or not for long.
    Warning,
    /// The state of a daemon has changed.
    Info,
    /// Usual work was done.
    Debug,
}

impl LogLevel {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Error, "error"),
        (Self::Warning, "warning"),
        (Self::Info, "info"),
        (Self::Debug, "debug"),
    ];

    /// The name in options and logs.
    #[must_use]
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(level, _)| *level == self).map_or("", |(_, word)| *word)
    }
}

impl FromStr for LogLevel {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.iter().find(|(_, word)| *word == text).map(|(level, _)| *level).ok_or(())
    }
}

/// A value in a log event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogValue {
    /// A count, a number of an object, or a duration in the unit of the field's name.
    Number(u64),
    /// Anything else.
    Text(String),
}

impl From<u64> for LogValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<String> for LogValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for LogValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// An event: a text for people, and a name and fields for programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEvent {
    /// How much it matters.
    pub level: LogLevel,
    /// The part of the program, a dot, and the event: `store.full`. Names stay from release to
    /// release.
    pub name: &'static str,
    /// Further facts, with the same names in all events: `rank`, `term`, `client`, `dir`
    /// (an inode number), `process`, `errno`, `ms`.
    pub fields: Vec<(&'static str, LogValue)>,
    /// A sentence with everything in it.
    pub text: String,
}

impl LogEvent {
    /// An event without fields.
    #[must_use]
    pub fn new(level: LogLevel, name: &'static str, text: impl fmt::Display) -> Self {
        Self { level, name, fields: Vec::new(), text: text.to_string() }
    }

    /// The event with one more field.
    #[must_use]
    pub fn with(mut self, field: &'static str, value: impl Into<LogValue>) -> Self {
        self.fields.push((field, value.into()));
        self
    }
}
