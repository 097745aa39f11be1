//! The form of a commit message: `part: imperative subject`, at most 72 characters, and a body
//! wherever the change is larger than its subject can explain.
//!
//! Not a judge of content: a reviewer decides whether the body gives the reason.
//!
//! Invariant: a message that git writes itself (merge, revert, fixup) passes.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::run::{Failure, Outcome};
use crate::tree::grouped;

/// Characters a subject may have.
const SUBJECT_CHARS_MAX: usize = 72;

/// A change of more lines than this needs a body.
const LINES_WITHOUT_BODY_MAX: usize = 30;

/// Parts besides the crates.
const PARTS: [&str; 10] =
    ["xtask", "ci", "docs", "scripts", "experiments", "fuzz", "contrib", "build", "tests", "all"];

/// First words that are no imperative.
const NO_IMPERATIVE: [&str; 16] = [
    "a", "an", "the", "this", "that", "these", "those", "it", "what", "who", "whoever", "where",
    "when", "after", "no", "some",
];

/// Imperatives that end like a third person or a past.
const IMPERATIVES: [&str; 14] = [
    "pass", "process", "address", "compress", "discuss", "focus", "bypass", "express", "suppress",
    "access", "embed", "feed", "need", "speed",
];

/// Checks the message that git has written to a file, against the change that is staged.
pub(crate) fn check(root: &Path, file: &str) -> Outcome {
    let text = fs::read_to_string(root.join(file))
        .map_err(|error| Failure::Failed(format!("cannot read the message in {file}: {error}")))?;
    let crates = fs::read_dir(root.join("crates"))
        .map_err(|error| Failure::Failed(format!("cannot list the crates: {error}")))?;
    let mut parts: Vec<String> = PARTS.map(str::to_owned).to_vec();
    parts.extend(crates.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()));
    parts.extend(grouped().map(str::to_owned));
    match fault(&text, &parts, staged_lines(root)) {
        None => Ok(()),
        Some(fault) => Err(Failure::Failed(format!("the commit message is refused: {fault}"))),
    }
}

/// Lines that the staged change adds and removes; 0 if git does not answer.
fn staged_lines(root: &Path) -> usize {
    let output =
        Command::new("git").args(["diff", "--cached", "--numstat"]).current_dir(root).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let counts = |line: &str| -> usize {
        line.split('\t').take(2).filter_map(|count| count.parse::<usize>().ok()).sum()
    };
    text.map_or(0, |text| text.lines().map(counts).sum())
}

/// The first fault of a message, with its remedy.
fn fault(text: &str, parts: &[String], lines: usize) -> Option<String> {
    let text: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let subject = text.first().copied().unwrap_or_default();
    if ["Merge ", "Revert ", "fixup! ", "squash! "].iter().any(|own| subject.starts_with(own)) {
        return None;
    }
    let length = subject.chars().count();
    if length > SUBJECT_CHARS_MAX {
        return Some(format!(
            "the subject has {length} characters, at most {SUBJECT_CHARS_MAX} are allowed; move \
             the reason to the body"
        ));
    }
    let Some((part, rest)) = subject.split_once(": ") else {
        return Some("the subject names no part; begin with one, as in `mds: reject …`".into());
    };
    if let Some(unknown) = part.split(", ").find(|name| !parts.iter().any(|part| part == name)) {
        let known = parts.join(", ");
        return Some(format!("there is no part `{unknown}`; the parts are {known}"));
    }
    let verb = rest.split_whitespace().next().unwrap_or_default();
    if !is_imperative(verb) {
        return Some(format!("`{verb}` is no imperative; begin as in `mds: reject creates`"));
    }
    if rest.ends_with('.') {
        return Some("the subject ends with a full stop; remove it".into());
    }
    if text.get(1).is_some_and(|line| !line.is_empty()) {
        return Some("the second line is not empty; separate subject and body".into());
    }
    let has_body = text.iter().skip(2).any(|line| !line.trim().is_empty());
    (lines > LINES_WITHOUT_BODY_MAX && !has_body).then(|| {
        format!("{lines} lines change and there is no body; say why, and how it was checked")
    })
}

fn is_imperative(verb: &str) -> bool {
    let starts_small = verb.starts_with(|first: char| first.is_ascii_lowercase());
    let other_form = ["s", "ed", "ing"].iter().any(|end| verb.ends_with(end) && verb.len() > 4);
    starts_small
        && !NO_IMPERATIVE.contains(&verb)
        && (!other_form || IMPERATIVES.contains(&verb) || verb.ends_with("ss"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str, lines: usize) -> Option<String> {
        let parts: Vec<String> = ["mds", "docs", "cli"].map(str::to_owned).to_vec();
        fault(text, &parts, lines)
    }

    #[test]
    fn a_plain_message_passes() {
        for text in [
            "mds: reject creates in a frozen directory\n\nA subtree moves.\n",
            "mds, cli: pass the rank's number on\n\nBoth need it.\n",
            "Merge branch 'topic'\n",
            "Revert \"mds: reject creates\"\n",
        ] {
            assert_eq!(refused(text, 100), None, "{text}");
        }
        assert_eq!(refused("docs: name the default port\n# comment\n", 3), None);
    }

    #[test]
    fn each_fault_is_named() {
        let long = format!("mds: reject {}\n", "x".repeat(72));
        for (text, lines, expected) in [
            ("Who merges is asked by the rank\n", 1, "names no part"),
            ("server: reject creates\n", 1, "no part `server`"),
            ("mds: rejects creates\n", 1, "no imperative"),
            ("mds: rejected creates\n", 1, "no imperative"),
            ("mds: what is open is told\n", 1, "no imperative"),
            ("mds: Reject creates\n", 1, "no imperative"),
            ("mds: reject creates.\n", 1, "full stop"),
            ("mds: reject creates\nbody\n", 1, "second line"),
            ("mds: reject creates\n", 31, "no body"),
            (long.as_str(), 1, "84 characters"),
        ] {
            let found = refused(text, lines).unwrap_or_default();
            assert!(found.contains(expected), "{text}: {found}");
        }
    }
}
