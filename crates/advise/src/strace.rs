//! A line of `strace`: process, time, call, arguments and result.
//!
//! Understood: `strace -f`, with or without `-o`, `-t`, `-tt`, `-ttt`, `-r`, `-y`, `-T`. A call
//! that another process's call interrupts (`<unfinished ...>`, `<... resumed>`) is joined again.

use std::collections::BTreeMap;

/// A call that has returned.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call<'a> {
    /// The thread; 0 if the trace is of one process and does not say.
    pub(crate) thread: u64,
    /// Seconds since the start of the trace's clock, if the trace has times.
    pub(crate) time: Option<f64>,
    pub(crate) name: &'a str,
    pub(crate) arguments: Vec<&'a str>,
    /// What it returned; negative for an error.
    pub(crate) result: i64,
    /// The error's name, such as `ENOENT`.
    pub(crate) error: Option<&'a str>,
}

/// The kind of a line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Line {
    /// The text of a whole call, with its process and the time of its start.
    Call(u64, Option<f64>, String),
    /// A thread ended, and when.
    Ended(u64, Option<f64>),
    /// Nothing to be understood: a signal, or the beginning of a call that returns later.
    Other,
    /// Something that `strace` would not write.
    Foreign,
}

/// Puts lines together.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// Calls that have begun, by thread.
    begun: BTreeMap<u64, (Option<f64>, String)>,
}

/// The number at the start of a text, and the text behind the following blanks.
fn number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text.get(..end)?.parse().ok()?, text.get(end..)?))
}

/// Seconds of `-r` and `-ttt` (`12.000345`), `-t` and `-tt` (`12:03:45.000345`).
fn time(word: &str) -> Option<f64> {
    let mut seconds = 0.0;
    let mut parts = 0;
    for part in word.split(':') {
        seconds = seconds * 60.0 + part.parse::<f64>().ok().filter(|part| *part >= 0.0)?;
        parts += 1;
    }
    let is_time = parts == 3 || (parts == 1 && word.contains('.'));
    is_time.then_some(seconds)
}

impl Lines {
    pub(crate) fn next(&mut self, line: &str) -> Line {
        let mut rest = line.trim();
        let mut thread = 0;
        if let Some((id, after)) =
            rest.strip_prefix("[pid").and_then(|rest| number(rest.trim_start()))
        {
            let Some(after) = after.trim_start().strip_prefix(']') else { return Line::Foreign };
            (thread, rest) = (id, after.trim_start());
        } else if let Some((id, after)) = number(rest)
            && after.starts_with(char::is_whitespace)
        {
            (thread, rest) = (id, after.trim_start());
        }
        let mut at = None;
        if let Some((word, after)) = rest.split_once(char::is_whitespace)
            && let Some(seconds) = time(word)
        {
            (at, rest) = (Some(seconds), after.trim_start());
        }
        if rest.is_empty() {
            return Line::Other;
        }
        if rest.starts_with("+++ ") {
            return Line::Ended(thread, at);
        }
        if rest.starts_with("--- ") || rest.starts_with("strace: ") {
            return Line::Other;
        }
        if let Some(begun) = rest.strip_suffix("<unfinished ...>") {
            self.begun.insert(thread, (at, begun.trim_end().to_owned()));
            return Line::Other;
        }
        if let Some(resumed) = rest.strip_prefix("<... ") {
            let Some((_, end)) = resumed.split_once(" resumed>") else { return Line::Foreign };
            let Some((began, mut begun)) = self.begun.remove(&thread) else { return Line::Foreign };
            begun.push_str(end);
            return Line::Call(thread, began.or(at), begun);
        }
        Line::Call(thread, at, rest.to_owned())
    }
}

impl<'a> Call<'a> {
    /// Takes the text of a call apart.
    pub(crate) fn parse(thread: u64, time: Option<f64>, text: &'a str) -> Option<Self> {
        let open = text.find('(')?;
        let name = text.get(..open)?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(is_name) {
            return None;
        }
        let (arguments, rest) = arguments(text.get(open + 1..)?)?;
        let result = rest.trim_start().strip_prefix('=')?.trim_start();
        let (word, after) = result.split_once(char::is_whitespace).unwrap_or((result, ""));
        // With -y a descriptor is followed by its path.
        let value = word.split('<').next().unwrap_or(word);
        let result = match value.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16).ok(),
            None => value.parse().ok(),
        }?;
        let error = after.split_whitespace().next().filter(|_| result < 0);
        Some(Self { thread, time, name, arguments, result, error })
    }

    pub(crate) fn argument(&self, number: usize) -> Option<&'a str> {
        self.arguments.get(number).copied()
    }
}

/// Splits arguments at commas that are in no string and no brackets, up to the closing parenthesis.
fn arguments(text: &str) -> Option<(Vec<&str>, &str)> {
    let (mut found, mut start, mut depth, mut quoted) = (Vec::new(), 0, 0_usize, false);
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if quoted {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => quoted = false,
                _ => {}
            }
            continue;
        }
        match c {
            '"' => quoted = true,
            '(' | '[' | '{' => depth += 1,
            ']' | '}' => depth = depth.saturating_sub(1),
            ')' if depth > 0 => depth -= 1,
            ',' | ')' if depth == 0 => {
                let argument = text.get(start..at)?.trim();
                if c == ',' || !argument.is_empty() {
                    found.push(argument);
                }
                start = at + 1;
                if c == ')' {
                    return Some((found, text.get(start..)?));
                }
            }
            _ => {}
        }
    }
    None
}

/// The bytes of a string argument; nothing if it is none, or was cut off.
pub(crate) fn string(argument: &str) -> Option<Vec<u8>> {
    let inner = argument.strip_prefix('"')?.strip_suffix('"')?;
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.bytes().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let plain = match rest.next()? {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'v' => 11,
            b'f' => 12,
            b'x' => {
                let digits: String = [rest.next()?, rest.next()?].map(char::from).iter().collect();
                u8::from_str_radix(&digits, 16).ok()?
            }
            digit @ b'0'..=b'7' => {
                let mut value = u32::from(digit - b'0');
                for _ in 0..2 {
                    let Some(next) = rest.next_if(|next| (b'0'..=b'7').contains(next)) else {
                        break;
                    };
                    value = value * 8 + u32::from(next - b'0');
                }
                u8::try_from(value).ok()?
            }
            other => other,
        };
        bytes.push(plain);
    }
    Some(bytes)
}

/// The number of a descriptor argument, which `-y` follows with a path.
pub(crate) fn descriptor(argument: &str) -> Option<i64> {
    argument.split('<').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Call, Line, Lines, string};

    fn whole(lines: &mut Lines, line: &str) -> (u64, Option<f64>, String) {
        match lines.next(line) {
            Line::Call(thread, time, text) => (thread, time, text),
            other @ (Line::Ended(..) | Line::Other | Line::Foreign) => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn every_way_of_writing_a_line_is_understood() {
        let call = "close(3) = 0";
        let mut lines = Lines::default();
        for (line, thread, time) in [
            ("close(3) = 0", 0, None),
            ("77  close(3) = 0", 77, None),
            ("[pid  77] close(3) = 0", 77, None),
            ("77 1600000000.5 close(3) = 0", 77, Some(1_600_000_000.5)),
            ("[pid 77] 00:01:01.5 close(3) = 0", 77, Some(61.5)),
            ("     0.25 close(3) = 0", 0, Some(0.25)),
        ] {
            assert_eq!(whole(&mut lines, line), (thread, time, call.to_owned()), "{line}");
        }
        assert_eq!(lines.next("77 1.5 +++ exited with 0 +++"), Line::Ended(77, Some(1.5)));
        assert_eq!(lines.next("--- SIGCHLD {si_signo=SIGCHLD} ---"), Line::Other);
    }

    #[test]
    fn interrupted_calls_are_joined() {
        let mut lines = Lines::default();
        assert_eq!(lines.next("1 mkdir(\"/a\", 0755 <unfinished ...>"), Line::Other);
        assert_eq!(whole(&mut lines, "2 close(1) = 0").0, 2);
        let (thread, _, text) =
            whole(&mut lines, "1 <... mkdir resumed>) = -1 EEXIST (File exists)");
        let call = Call::parse(thread, None, &text).unwrap();
        assert_eq!((call.thread, call.name, call.result), (1, "mkdir", -1));
        assert_eq!(call.error, Some("EEXIST"));
        assert_eq!(call.arguments, ["\"/a\"", "0755"]);
        assert_eq!(lines.next("3 <... mkdir resumed>) = 0"), Line::Foreign);
    }

    #[test]
    fn arguments_are_split_where_they_end() {
        let text = r#"openat(AT_FDCWD</srv>, "a,\"b)\303\244\x41", O_RDWR|O_CREAT, {st_mode=S_IFREG|0644, ...}) = 3</srv/a> <0.000012>"#;
        let call = Call::parse(0, None, text).unwrap();
        assert_eq!(call.arguments.len(), 4);
        assert_eq!(string(call.arguments[1]).unwrap(), "a,\"b)\u{e4}A".as_bytes());
        assert_eq!(call.result, 3);
        assert_eq!(Call::parse(0, None, "exit_group(0) = ?"), None);
        assert_eq!(Call::parse(0, None, "getpid() = 7").unwrap().arguments.len(), 0);
    }

    proptest! {
        #[test]
        fn arbitrary_lines_never_panic(text in ".*") {
            let mut lines = Lines::default();
            if let Line::Call(thread, time, text) = lines.next(&text) {
                let _ = Call::parse(thread, time, &text);
            }
            let _ = string(&text);
        }
    }
}
