//! The log of a daemon: a line for each event, as text or as JSON.
//!
//! An event of one name has [`LINES_MAX`] lines a minute at most, and then a line with the number
//! of the others: clients cause some of the events, and must not fill a disk.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};
use types::{Errno, Error, LogEvent, LogLevel, LogValue, Timestamp};

/// Lines of events of one name in a [`MINUTE`].
const LINES_MAX: u64 = 100;
const MINUTE: Duration = Duration::from_secs(60);

/// The form of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Time, level, daemon and process, and a sentence.
    #[default]
    Text,
    /// An object with the same, the name of the event, and its fields.
    Json,
}

impl Display for LogFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

impl FromStr for LogFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => {
                let cause = format!("`{text}` is no form of a log");
                Err(Error::new(Errno::Invalid, "log format", cause).remedy("text or json"))
            }
        }
    }
}

/// Which events are worth a line: by their level, and by other levels for parts of the program
/// (`warning,store=debug`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter {
    level: LogLevel,
    parts: BTreeMap<String, LogLevel>,
    text: String,
}

impl Default for LogFilter {
    fn default() -> Self {
        Self { level: LogLevel::Info, parts: BTreeMap::new(), text: "info".to_owned() }
    }
}

/// The parts of the program that have events.
const PARTS: [&str; 11] = [
    "audit",
    "client",
    "connection",
    "merge",
    "metrics",
    "mount",
    "rank",
    "request",
    "server",
    "store",
    "transfer",
];

impl FromStr for LogFilter {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refused = |cause: String| {
            let remedy = format!(
                "error, warning, info or debug, and PART=LEVEL behind a comma; the parts are {}",
                PARTS.join(", ")
            );
            Error::new(Errno::Invalid, "log level", cause).remedy(remedy)
        };
        let level = |word: &str| {
            word.parse::<LogLevel>().map_err(|()| refused(format!("`{word}` is no level")))
        };
        let mut filter = Self { text: text.to_owned(), ..Self::default() };
        for word in text.split(',') {
            match word.split_once('=') {
                None => filter.level = level(word)?,
                Some((part, _)) if !PARTS.contains(&part) => {
                    return Err(refused(format!("`{part}` is no part of the program")));
                }
                Some((part, word)) => {
                    filter.parts.insert(part.to_owned(), level(word)?);
                }
            }
        }
        Ok(filter)
    }
}

impl Display for LogFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl LogFilter {
    /// Whether an event of this level and name is worth a line.
    fn admits(&self, level: LogLevel, name: &str) -> bool {
        let part = name.split_once('.').map_or(name, |(part, _)| part);
        level <= *self.parts.get(part).unwrap_or(&self.level)
    }
}

/// The lines of events of one name.
#[derive(Debug)]
struct Lines {
    since: Instant,
    count: u64,
    level: LogLevel,
}

/// The destination of a daemon's log: standard error, which `cudele up` redirects into a file, or
/// nothing.
#[derive(Clone, Debug, Default)]
pub struct Log {
    name: Option<String>,
    filter: LogFilter,
    format: LogFormat,
    lines: Arc<Mutex<BTreeMap<&'static str, Lines>>>,
}

impl Log {
    /// The log of the daemon with this name, on standard error.
    #[must_use]
    pub fn of(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..Self::default() }
    }

    /// No log.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// The log with other events, in another form.
    #[must_use]
    pub fn with(self, filter: LogFilter, format: LogFormat) -> Self {
        Self { filter, format, ..self }
    }

    /// Writes an event of level info.
    pub fn info(&self, name: &'static str, text: impl Display) {
        self.write(LogEvent::new(LogLevel::Info, name, text));
    }

    /// Writes an event of level warning.
    pub fn warning(&self, name: &'static str, text: impl Display) {
        self.write(LogEvent::new(LogLevel::Warning, name, text));
    }

    /// Writes an event of level error.
    pub fn error(&self, name: &'static str, text: impl Display) {
        self.write(LogEvent::new(LogLevel::Error, name, text));
    }

    /// Writes an event of level debug, which is made only if the filter admits it: there are many,
    /// and mostly nobody reads them.
    pub fn debug(&self, name: &'static str, event: impl FnOnce(&'static str) -> LogEvent) {
        if self.name.is_some() && self.filter.admits(LogLevel::Debug, name) {
            self.write(event(name));
        }
    }

    /// Writes a line, if the filter admits the event.
    pub fn write(&self, event: impl Into<LogEvent>) {
        let event = event.into();
        if self.name.is_none() || !self.filter.admits(event.level, event.name) {
            return;
        }
        let now = Instant::now();
        for omitted in self.omitted(now) {
            self.put(&omitted);
        }
        if self.count(now, &event) {
            self.put(&event);
        }
    }

    /// Writes how many lines were left out in a minute that has passed.
    pub fn tick(&self) {
        for omitted in self.omitted(Instant::now()) {
            self.put(&omitted);
        }
    }

    /// Counts an event. Returns whether it has a line.
    fn count(&self, now: Instant, event: &LogEvent) -> bool {
        let mut all = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let new = Lines { since: now, count: 0, level: event.level };
        let lines = all.entry(event.name).or_insert(new);
        lines.count += 1;
        lines.count <= LINES_MAX
    }

    /// The ends of minutes with more events than lines.
    fn omitted(&self, now: Instant) -> Vec<LogEvent> {
        let mut all = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let over = |lines: &Lines| now.duration_since(lines.since) >= MINUTE;
        let ended = all.extract_if(.., |_, lines| over(lines));
        let full = ended.filter(|(_, lines)| lines.count > LINES_MAX);
        full.map(|(name, lines)| {
            let count = lines.count - LINES_MAX;
            LogEvent::new(lines.level, name, format_args!("{count} more events {name} in a minute"))
                .with("omitted", count)
        })
        .collect()
    }

    fn put(&self, event: &LogEvent) {
        let Some(name) = &self.name else { return };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = Timestamp(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)).utc();
        let line = match self.format {
            LogFormat::Text => text(&time, name, std::process::id(), event),
            LogFormat::Json => json(&time, name, std::process::id(), event),
        };
        // One write, so that the lines of two threads or processes do not mix. A full disk must not
        // end the daemon.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}

/// A line for people. Control characters in the text would be commands to a terminal. The usual
/// level is not written.
fn text(time: &str, name: &str, process: u32, event: &LogEvent) -> String {
    let text: String = event.text.chars().flat_map(visible).collect();
    let is_usual = event.level == LogLevel::Info;
    let level = if is_usual { String::new() } else { format!("{}: ", event.level.word()) };
    format!("{time} {name}[{process}] {level}{text}\n")
}

/// A line for programs.
fn json(time: &str, name: &str, process: u32, event: &LogEvent) -> String {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("time", time.into());
    put("level", event.level.word().into());
    put("daemon", name.into());
    put("pid", process.into());
    put("event", event.name.into());
    for (field, value) in &event.fields {
        let value = match value {
            LogValue::Number(number) => Value::from(*number),
            LogValue::Text(text) => Value::from(text.as_str()),
        };
        put(field, value);
    }
    put("text", event.text.as_str().into());
    format!("{}\n", Value::Object(object))
}

fn visible(letter: char) -> impl Iterator<Item = char> {
    let escaped = letter.is_control().then(|| letter.escape_default());
    let plain = (!letter.is_control()).then_some(letter);
    escaped.into_iter().flatten().chain(plain)
}

#[cfg(test)]
mod tests;
