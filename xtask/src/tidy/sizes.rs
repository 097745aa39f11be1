//! A file fits a reader's head: 500 lines without tests, and a list of exceptions that shrinks.
//!
//! Function length is clippy's business (`too_many_lines`); this check counts files. The list,
//! `xtask/ratchet.txt`, holds `path lines` for files that were too long when the limit came.
//!
//! Invariant: an entry states the present length exactly, so a shortened file cannot grow again.

use super::Finding;
use crate::rust::lines_without_tests;
use crate::tree::Tree;

/// Lines a file may have, not counting its tests.
const FILE_LINES_MAX: usize = 500;

const RATCHET: &str = "xtask/ratchet.txt";

/// One line of the list.
struct Entry<'a> {
    /// In the list, counted from 1.
    line: usize,
    path: &'a str,
    lines: usize,
}

/// Finds files that are too long and entries that are out of date.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let list = tree.get(RATCHET).map(|file| file.text()).unwrap_or_default();
    let mut found = Vec::new();
    let entries = entries(list, &mut found);
    for file in tree.rust().filter(|file| !file.is_test()) {
        let lines = lines_without_tests(file.text());
        match entries.iter().find(|entry| entry.path == file.path) {
            Some(entry) => found.extend(compare(entry, lines)),
            None if lines > FILE_LINES_MAX => {
                let message = format!("{lines} lines without tests, more than {FILE_LINES_MAX}");
                let remedy = "split it: one noun or one operation per file";
                found.push(Finding::new(&file.path, 0, message, remedy));
            }
            None => {}
        }
    }
    for entry in entries.iter().filter(|entry| tree.get(entry.path).is_none()) {
        let message = format!("{} does not exist", entry.path);
        found.push(Finding::new(RATCHET, entry.line, message, "remove the entry"));
    }
    found
}

fn entries<'a>(list: &'a str, found: &mut Vec<Finding>) -> Vec<Entry<'a>> {
    let mut entries = Vec::new();
    for (at, text) in list.lines().enumerate() {
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let parsed = text.split_once(' ').and_then(|(path, lines)| {
            Some(Entry { line: at + 1, path, lines: lines.trim().parse().ok()? })
        });
        match parsed {
            Some(entry) => entries.push(entry),
            None => found.push(Finding::new(RATCHET, at + 1, "not an entry", "write `path lines`")),
        }
    }
    entries
}

fn compare(entry: &Entry, lines: usize) -> Option<Finding> {
    let Entry { path, lines: listed, .. } = entry;
    if lines > *listed {
        let message = format!("{lines} lines without tests, more than the {listed} it is allowed");
        return Some(Finding::new(path, 0, message, "split it: it is on the list to shrink"));
    }
    let remedy = if lines <= FILE_LINES_MAX {
        "remove the entry".to_owned()
    } else {
        format!("lower the entry to {lines}")
    };
    let message = format!("{path} has shrunk from {listed} to {lines} lines");
    (lines < *listed || lines <= FILE_LINES_MAX)
        .then(|| Finding::new(RATCHET, entry.line, message, remedy))
}
