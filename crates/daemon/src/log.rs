//! A daemon's log: a line with the time and the daemon's name for each event.

use std::fmt::Display;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use types::Timestamp;

/// The destination of a daemon's log: standard error, which `cudele up` redirects into a file, or
/// nothing.
#[derive(Clone, Debug, Default)]
pub struct Log {
    name: Option<String>,
}

impl Log {
    /// The log of the daemon with this name, on standard error.
    #[must_use]
    pub fn of(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()) }
    }

    /// No log.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Writes a line.
    pub fn line(&self, event: impl Display) {
        let Some(name) = &self.name else { return };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = Timestamp(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)).utc();
        let process = std::process::id();
        let line = line(&time, &format!("{name}[{process}]"), &event.to_string());
        // One write, so that the lines of two threads or processes do not mix. A full disk must not
        // end the daemon.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}

/// A line of the log. Control characters in the event would be commands to a terminal.
fn line(time: &str, name: &str, event: &str) -> String {
    let event: String = event.chars().flat_map(visible).collect();
    format!("{time} {name} {event}\n")
}

fn visible(letter: char) -> impl Iterator<Item = char> {
    let escaped = letter.is_control().then(|| letter.escape_default());
    let plain = (!letter.is_control()).then_some(letter);
    escaped.into_iter().flatten().chain(plain)
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn a_line_stays_one_line() {
        let text =
            line("2026-11-24T07:48:58.123Z", "mds.0[7]", "cannot read \u{1b}[2J\nüber: gone");
        let wanted = "2026-11-24T07:48:58.123Z mds.0[7] cannot read \\u{1b}[2J\\nüber: gone\n";
        assert_eq!(text, wanted);
    }
}
