//! How plainly comments and pages are written: sentences without a noun as subject, pronouns in
//! place of nouns, and vague words, each counted.
//!
//! Not a grammar checker: the counts find text that a reader must decode, and `STYLE.md` says how
//! to write instead. Code is never looked at, and neither are tables, headings and code blocks.
//!
//! Invariant: a sentence that is counted has its path and line, so every figure can be explained.

use std::ops::AddAssign;

/// A sentence must have this many words to be counted.
const SENTENCE_WORDS_MIN: usize = 4;

/// Columns a comment line may have.
const COMMENT_COLUMNS_MAX: usize = 100;

/// First words of a sentence that has no noun as its subject.
const HEADLESS: [&str; 13] = [
    "Who",
    "Whoever",
    "Whom",
    "Whose",
    "What",
    "Whatever",
    "Those who",
    "Those that",
    "Of what",
    "From what",
    "Behind what",
    "To whom",
    "With what",
];

/// Pronouns that stand where a noun belongs.
const PRONOUNS: [&str; 6] = ["what", "who", "whoever", "whatever", "whose", "whom"];

/// Words and phrases that name nothing a reader could search for. Longer phrases come first.
const VAGUE: [&str; 29] = [
    "somebody",
    "nobody",
    "everybody",
    "anybody",
    "whoever",
    "whatever",
    "somewhere",
    "elsewhere",
    "meanwhile",
    "once more",
    "anew",
    "by itself",
    "is told",
    "are told",
    "goes on",
    "go on with",
    "says so",
    "is said",
    "stands for",
    "is there",
    "was there",
    "on its way",
    "what is",
    "what was",
    "who has",
    "who is",
    "those who",
    "of others",
    "others",
];

/// Counts of one text, or of many together.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Counts {
    /// Sentences of at least four words.
    pub(crate) sentences: usize,
    /// Words of these sentences.
    pub(crate) words: usize,
    /// Sentences that begin with a pronoun instead of a noun.
    pub(crate) headless: usize,
    /// Pronouns in place of nouns.
    pub(crate) pronouns: usize,
    /// Vague words and phrases.
    pub(crate) vague: usize,
    /// Comment lines that are wider than a hundred columns.
    pub(crate) wide: usize,
}

impl Counts {
    /// Headless sentences in a hundred.
    pub(crate) fn headless_percent(&self) -> f64 {
        ratio(self.headless, self.sentences) * 100.0
    }

    /// Pronouns in a thousand words.
    pub(crate) fn pronouns_per_mille(&self) -> f64 {
        ratio(self.pronouns, self.words) * 1000.0
    }

    /// Vague words in a thousand.
    pub(crate) fn vague_per_mille(&self) -> f64 {
        ratio(self.vague, self.words) * 1000.0
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.sentences += other.sentences;
        self.words += other.words;
        self.headless += other.headless;
        self.pronouns += other.pronouns;
        self.vague += other.vague;
        self.wide += other.wide;
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts of words in one repository")]
fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// One sentence that counts against its text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Fault {
    /// Where the sentence's paragraph begins, counted from 1.
    pub(crate) line: usize,
    /// The sentence, or the comment line that is too wide.
    pub(crate) sentence: String,
    /// For people: the broken rule.
    pub(crate) why: &'static str,
}

/// Counts a Rust source's comments, or a page's paragraphs, and lists the faults.
pub(crate) fn measure(path: &str, text: &str) -> (Counts, Vec<Fault>) {
    let is_rust = path.ends_with(".rs");
    let paragraphs = if is_rust { comments(text) } else { page(text) };
    let (mut counts, mut faults) = (Counts::default(), Vec::new());
    for (line, paragraph) in &paragraphs {
        for sentence in sentences(paragraph) {
            measure_sentence(*line, sentence, &mut counts, &mut faults);
        }
    }
    for (at, line) in text.lines().enumerate().filter(|_| is_rust) {
        if line.trim_start().starts_with("//") && line.chars().count() > COMMENT_COLUMNS_MAX {
            counts.wide += 1;
            let why = "wider than 100 columns";
            faults.push(Fault { line: at + 1, sentence: line.trim().to_owned(), why });
        }
    }
    (counts, faults)
}

fn measure_sentence(line: usize, sentence: &str, counts: &mut Counts, faults: &mut Vec<Fault>) {
    let words = sentence.split_whitespace().count();
    if words < SENTENCE_WORDS_MIN {
        return;
    }
    let headless = HEADLESS.iter().any(|start| begins_with(sentence, start));
    let lower = sentence.to_lowercase();
    let pronouns = occurrences(&lower, &PRONOUNS);
    let vague = occurrences(&lower, &VAGUE);
    *counts +=
        Counts { sentences: 1, words, headless: usize::from(headless), pronouns, vague, wide: 0 };
    let why = match (headless, pronouns > 0, vague > 0) {
        (true, _, _) => "no noun as subject",
        (false, true, _) => "a pronoun in place of a noun",
        (false, false, true) => "a vague word",
        (false, false, false) => return,
    };
    faults.push(Fault { line, sentence: sentence.to_owned(), why });
}

/// Runs of comment lines, each with its first line. Lists, tables, headings and code break a run.
fn comments(text: &str) -> Vec<(usize, String)> {
    let lines = text.lines().map(|line| {
        let comment = line.trim_start().strip_prefix("//")?;
        let comment = comment.strip_prefix(['/', '!']).unwrap_or(comment).trim();
        let breaks = comment.starts_with(['#', '*', '|']) || comment.starts_with("```");
        (!comment.is_empty() && !breaks).then_some(comment)
    });
    runs(lines)
}

/// Paragraphs of a page outside of code blocks, without headings and rows of tables.
fn page(text: &str) -> Vec<(usize, String)> {
    let mut in_code = false;
    let lines = text.lines().map(|line| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        let breaks = in_code || fence || line.trim().is_empty() || line.starts_with(['|', '#']);
        (!breaks).then_some(line.trim())
    });
    runs(lines)
}

fn runs<'a>(lines: impl Iterator<Item = Option<&'a str>>) -> Vec<(usize, String)> {
    let (mut runs, mut open) = (Vec::<(usize, String)>::new(), false);
    for (at, line) in lines.enumerate() {
        match (line, runs.last_mut()) {
            (Some(line), Some((_, run))) if open => {
                run.push(' ');
                run.push_str(line);
            }
            (Some(line), _) => runs.push((at + 1, line.to_owned())),
            (None, _) => {}
        }
        open = line.is_some();
    }
    runs
}

/// Sentences end at a full stop, colon, semicolon, question or exclamation mark before a blank.
fn sentences(paragraph: &str) -> Vec<&str> {
    let (mut sentences, mut start) = (Vec::new(), 0);
    for (at, pair) in paragraph.as_bytes().windows(2).enumerate() {
        if matches!(pair, [b'.' | b':' | b'!' | b'?' | b';', b' ']) {
            sentences.push(paragraph[start..=at].trim());
            start = at + 1;
        }
    }
    sentences.push(paragraph[start..].trim());
    sentences
}

fn begins_with(sentence: &str, start: &str) -> bool {
    sentence.strip_prefix(start).is_some_and(|rest| !rest.starts_with(is_word))
}

/// How often one of the phrases stands in a lower-case text as whole words, without overlaps.
fn occurrences(text: &str, phrases: &[&str]) -> usize {
    let (mut count, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text[at..];
        let starts_word = !text[..at].ends_with(is_word);
        let found = phrases.iter().find(|phrase| starts_word && begins_with(rest, phrase));
        count += usize::from(found.is_some());
        at += match found {
            Some(phrase) => phrase.len(),
            None => rest.chars().next().map_or(1, char::len_utf8),
        };
    }
    count
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests;
