//! Words as people write them: normalising, quoting, guessing the intended word, and places in a
//! text.
//!
//! It knows no mechanism and no key. Invariant: nothing here changes a meaning. A suggestion is
//! only ever shown to a person, never acted upon.

/// Words longer than this many bytes get no suggestion, which bounds the work of finding one.
const SUGGEST_BYTES_MAX: usize = 64;

/// Words longer than this many characters are shortened in messages.
const QUOTED_CHARS_MAX: usize = 40;

/// The one spelling of a word: lower case, without space around it, and every run of spaces,
/// underscores and hyphens inside it written as one underscore.
pub(crate) fn normalise(word: &str) -> String {
    let mut spelling = String::with_capacity(word.len());
    let mut in_run = false;
    for character in word.trim().chars() {
        if character.is_whitespace() || character == '_' || character == '-' {
            if !in_run {
                spelling.push('_');
            }
            in_run = true;
        } else {
            spelling.push(character.to_ascii_lowercase());
            in_run = false;
        }
    }
    spelling
}

/// The word in backquotes for a message: shortened, and without control characters, because
/// messages end up on terminals.
pub(crate) fn quoted(word: &str) -> String {
    let mut shown: String =
        word.trim().chars().take(QUOTED_CHARS_MAX).flat_map(char::escape_debug).collect();
    if word.trim().chars().count() > QUOTED_CHARS_MAX {
        shown.push_str("...");
    }
    format!("`{shown}`")
}

/// The candidate a person most likely meant: the only one that starts with the word, else the one
/// fewest edits away, if those are at most a third of the word.
pub(crate) fn closest<'a>(
    word: &str,
    candidates: impl Iterator<Item = &'a str> + Clone,
) -> Option<&'a str> {
    if word.len() > SUGGEST_BYTES_MAX {
        return None;
    }
    let mut beginnings = candidates.clone().filter(|candidate| candidate.starts_with(word));
    if word.len() >= 3
        && let (Some(only), None) = (beginnings.next(), beginnings.next())
    {
        return Some(only);
    }
    candidates
        .map(|candidate| (edits(word, candidate), candidate))
        .filter(|(edits, _)| edits * 3 <= word.len())
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// How many bytes must be inserted, removed or replaced to turn one word into the other.
fn edits(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, from_byte) in from.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (index, to_byte) in to.bytes().enumerate() {
            let replaced = diagonal + usize::from(from_byte != to_byte);
            diagonal = row[index + 1];
            row[index + 1] = replaced.min(row[index] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

/// The remedy for a word that is none of `candidates`: the likely one, or all of them.
pub(crate) fn suggestion<'a>(
    word: &str,
    candidates: impl Iterator<Item = &'a str> + Clone,
) -> String {
    match closest(word, candidates.clone()) {
        Some(likely) => format!("did you mean `{likely}`?"),
        None => format!("use one of: {}", candidates.collect::<Vec<_>>().join(", ")),
    }
}

/// A number written in decimal digits only: no sign, no separators. `None` for any other text and
/// for numbers that do not fit.
pub(crate) fn digits(text: &str) -> Option<u64> {
    // The standard parser alone would take a leading plus sign.
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// The line and the column, in characters and both counted from 1, of a byte of a text. An offset
/// past the end, or inside a character, is taken as the nearest character boundary before it.
pub(crate) fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(offset)];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = 1 + before.bytes().filter(|byte| *byte == b'\n').count();
    (line, 1 + before[line_start..].chars().count())
}

#[cfg(test)]
mod tests;
