//! Just enough of Rust's lexical rules to tell code from comments and literals.
//!
//! Not a parser: tidy searches for words, attributes and lines, and a check that mistakes a string
//! for code would lose the developers' trust.
//!
//! Invariant: [`code_only`] keeps every line break and the number of characters, so a position in
//! its result is a position in the source.

/// The source with comments and literals replaced by blanks.
pub(crate) fn code_only(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    while at < chars.len() {
        let Some(end) = opaque_end(&chars, at) else {
            out.push(chars[at]);
            at += 1;
            continue;
        };
        out.extend(chars[at..end].iter().map(|&c| if c == '\n' { c } else { ' ' }));
        at = end;
    }
    out
}

/// Where the comment or literal that starts at `at` ends; None if none starts there.
fn opaque_end(chars: &[char], at: usize) -> Option<usize> {
    let next = chars.get(at + 1).copied();
    match chars[at] {
        '/' if next == Some('/') => {
            Some(find(chars, at, |rest| rest[0] == '\n').unwrap_or(chars.len()))
        }
        '/' if next == Some('*') => Some(block_comment_end(chars, at)),
        '"' => Some(string_end(chars, at)),
        '\'' => char_end(chars, at),
        'r' | 'b' | 'c' if at == 0 || !is_word(chars[at - 1]) => prefixed_end(chars, at),
        _ => None,
    }
}

fn find(chars: &[char], from: usize, holds: impl Fn(&[char]) -> bool) -> Option<usize> {
    (from..chars.len()).find(|&at| holds(&chars[at..]))
}

fn block_comment_end(chars: &[char], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0_usize);
    while at < chars.len() {
        match chars[at..] {
            ['/', '*', ..] => (at, depth) = (at + 2, depth + 1),
            ['*', '/', ..] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

/// `start` is the opening quote.
fn string_end(chars: &[char], start: usize) -> usize {
    let mut at = start + 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// A quote starts a character or a lifetime; a lifetime is code.
fn char_end(chars: &[char], start: usize) -> Option<usize> {
    match chars[start + 1..] {
        // The escaped character may itself be a quote, so the search begins behind it.
        ['\\', ..] => find(chars, start + 3, |rest| rest[0] == '\'').map(|quote| quote + 1),
        [_, '\'', ..] => Some(start + 3),
        _ => None,
    }
}

/// `r"…"`, `r#"…"#`, `b"…"`, `b'…'`, `br"…"`, `c"…"`, `cr"…"`.
fn prefixed_end(chars: &[char], start: usize) -> Option<usize> {
    let letters = chars[start..].iter().take(2).take_while(|c| matches!(c, 'r' | 'b' | 'c'));
    let letters = letters.count();
    let raw = chars[start + letters - 1] == 'r';
    let hashes = chars[start + letters..].iter().take_while(|&&c| c == '#').count();
    let quote = start + letters + hashes;
    match chars.get(quote) {
        Some('"') if raw => {
            let close: Vec<char> = format!("\"{}", "#".repeat(hashes)).chars().collect();
            let end = find(chars, quote + 1, |rest| rest.starts_with(&close));
            Some(end.map_or(chars.len(), |end| end + close.len()))
        }
        Some('"') if hashes == 0 => Some(string_end(chars, quote)),
        Some('\'') if hashes == 0 => char_end(chars, quote),
        _ => None,
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `word` occurs in `text` and is not part of a longer word. `word` may be a path
/// (`std::fs`): only its ends are looked at.
pub(crate) fn contains_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// One attribute of a source file.
#[derive(Debug)]
pub(crate) struct Attribute {
    /// Counted from 1.
    pub(crate) line: usize,
    /// `#![…]`: it applies to the whole module.
    pub(crate) inner: bool,
    /// As written, between the brackets.
    pub(crate) text: String,
    /// The same without comments and literals.
    pub(crate) code: String,
}

impl Attribute {
    /// Whether it silences a lint.
    pub(crate) fn silences(&self) -> bool {
        ["allow(", "expect("].iter().any(|word| {
            self.code.match_indices(word).any(|(at, _)| {
                at == 0 || !self.code[..at].ends_with(|c: char| is_word(c) || c == ':')
            })
        })
    }
}

/// The attributes of a file, in order.
pub(crate) fn attributes(source: &str) -> Vec<Attribute> {
    let code: Vec<char> = code_only(source).chars().collect();
    let chars: Vec<char> = source.chars().collect();
    let mut found = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < code.len() {
        let inner = code[at..].starts_with(&['#', '!', '[']);
        if inner || code[at..].starts_with(&['#', '[']) {
            let start = at + if inner { 3 } else { 2 };
            let end = bracket_end(&code, start);
            let text = chars[start..end].iter().collect();
            let code = code[start..end].iter().collect();
            found.push(Attribute { line, inner, text, code });
        }
        line += usize::from(code[at] == '\n');
        at += 1;
    }
    found
}

/// Where the bracket that was opened just before `start` closes.
fn bracket_end(code: &[char], start: usize) -> usize {
    let mut depth = 1_usize;
    for (at, c) in code.iter().enumerate().skip(start) {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    code.len()
}

/// How many lines a file has without its test modules (`#[cfg(test)] mod …` at the left margin).
pub(crate) fn lines_without_tests(source: &str) -> usize {
    let code = code_only(source);
    let mut lines = code.lines().peekable();
    let mut count = 0;
    while let Some(line) = lines.next() {
        count += 1;
        if line != "#[cfg(test)]" {
            continue;
        }
        while lines.next_if(|line| line.starts_with("#[")).is_some() {}
        if lines.next_if(|line| line.starts_with("mod ") && line.ends_with('{')).is_some() {
            count -= 1;
            for line in lines.by_ref() {
                if line == "}" {
                    break;
                }
            }
        }
    }
    count
}

#[cfg(test)]
mod tests;
