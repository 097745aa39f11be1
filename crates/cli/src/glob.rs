//! Patterns for names: `*` is any bytes, `?` one character, `[a-z]` and `[!a-z]` one character of
//! a set, and `\` takes the next character as it is.
//!
//! Names are bytes: where they are not UTF-8, each byte counts as a character. Invariant: matching
//! takes at most length of the pattern times length of the name, for any pattern.

/// One element of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum GlobPart {
    Any,
    One,
    Is(u32),
    /// Whether membership is negated, and inclusive ranges.
    In(bool, Vec<(u32, u32)>),
}

/// See the module documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glob {
    parts: Vec<GlobPart>,
}

/// Characters, with bytes that belong to none counted from above the last character.
fn characters(bytes: &[u8]) -> Vec<u32> {
    let mut all = Vec::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        all.extend(chunk.valid().chars().map(u32::from));
        all.extend(chunk.invalid().iter().map(|byte| 0x11_0000 + u32::from(*byte)));
    }
    all
}

impl Glob {
    /// Reads a pattern. A `[` without its `]` matches itself, as in shells.
    pub(crate) fn new(pattern: &[u8]) -> Self {
        let text = characters(pattern);
        let mut parts = Vec::new();
        let mut at = 0;
        while let Some(c) = text.get(at) {
            at += 1;
            let part = match char::from_u32(*c) {
                Some('*') => GlobPart::Any,
                Some('?') => GlobPart::One,
                Some('\\') => {
                    let next = text.get(at).copied();
                    at += usize::from(next.is_some());
                    GlobPart::Is(next.unwrap_or(*c))
                }
                Some('[') => match set(&text[at..]) {
                    Some((part, length)) => {
                        at += length;
                        part
                    }
                    None => GlobPart::Is(*c),
                },
                Some(_) | None => GlobPart::Is(*c),
            };
            if part != GlobPart::Any || parts.last() != Some(&GlobPart::Any) {
                parts.push(part);
            }
        }
        Self { parts }
    }

    /// Whether all of a name matches.
    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        let name = characters(name);
        let (mut part, mut at) = (0, 0);
        // The last star, and the part of the name that the pattern behind it may still get.
        let mut star = None;
        while at < name.len() {
            match self.parts.get(part) {
                Some(GlobPart::Any) => {
                    star = Some((part, at));
                    part += 1;
                    continue;
                }
                Some(one) if one.takes(name[at]) => (part, at) = (part + 1, at + 1),
                Some(_) | None => match star {
                    Some((after, from)) => {
                        (part, at) = (after + 1, from + 1);
                        star = Some((after, from + 1));
                    }
                    None => return false,
                },
            }
        }
        self.parts[part..].iter().all(|rest| *rest == GlobPart::Any)
    }
}

impl GlobPart {
    fn takes(&self, c: u32) -> bool {
        match self {
            GlobPart::Any => false,
            GlobPart::One => true,
            GlobPart::Is(this) => *this == c,
            GlobPart::In(negated, ranges) => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
            }
        }
    }
}

/// The set that begins after a `[`, and how many characters it takes with its `]`.
fn set(text: &[u32]) -> Option<(GlobPart, usize)> {
    let is = |at: usize, c: char| text.get(at) == Some(&u32::from(c));
    let negated = is(0, '!') || is(0, '^');
    let first = usize::from(negated);
    let mut at = first;
    let mut ranges = Vec::new();
    // A bracket that comes first is a member.
    while at == first || !is(at, ']') {
        let low = *text.get(at)?;
        if is(at + 1, '-') && !is(at + 2, ']') {
            ranges.push((low, *text.get(at + 2)?));
            at += 3;
        } else {
            ranges.push((low, low));
            at += 1;
        }
    }
    Some((GlobPart::In(negated, ranges), at + 1))
}

#[cfg(test)]
mod tests;
