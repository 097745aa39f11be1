//! Each promise of `docs/promises/` has a test of its name, and a row in the table of its page.
//!
//! Every heading of level 3 in these pages is a promise, and its words are the name of a test
//! function of some crate: in lower case, with underscores for spaces and without punctuation. A
//! reader must judge whether the test shows the promise of the paragraph.
//!
//! Invariant: no promise is without a test, and no test of a promise outlives it.

use std::collections::BTreeMap;

use super::Finding;
use super::links::anchor;
use crate::rust::code_only;
use crate::tree::{File, Tree};

const PAGES: &str = "docs/promises/";

/// The tests here exist for the pages only.
const TESTS: &str = "crates/cli/tests/semantics/";

/// Finds promises without a test, and tests without a promise.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut promises = BTreeMap::<String, (&str, usize)>::new();
    for page in tree.files.iter().filter(|file| file.path.starts_with(PAGES)) {
        for (line, heading) in headings(page) {
            let row = format!("](#{})", anchor(heading));
            if !page.text().lines().any(|text| text.starts_with('|') && text.contains(&row)) {
                let message = format!("\"{heading}\" is not in the table of the page");
                found.push(Finding::new(&page.path, line, message, "add a row with a link to it"));
            }
            if let Some((path, first)) = promises.insert(test_name(heading), (&page.path, line)) {
                let message = format!("\"{heading}\" has the name of the heading {path}:{first}");
                found.push(Finding::new(&page.path, line, message, "name each promise once"));
            }
        }
    }
    let crates = tree.rust().filter(|file| file.path.starts_with("crates/"));
    let tests: Vec<_> = crates.flat_map(|file| tests(file).map(move |test| (file, test))).collect();
    for (promise, (path, line)) in &promises {
        if !tests.iter().any(|(_, (_, test))| test == promise) {
            let message = format!("no test is called {promise}");
            let remedy = "write the test that shows it, or take the promise back";
            found.push(Finding::new(path, *line, message, remedy));
        }
    }
    for (file, (line, test)) in tests {
        if file.path.starts_with(TESTS) && !promises.contains_key(&test) {
            let message = format!("{test} is no heading of a page in {PAGES}");
            let remedy = "write its promise there, or move it to the other tests";
            found.push(Finding::new(&file.path, line, message, remedy));
        }
    }
    found
}

/// The headings of level 3 with their lines.
fn headings(document: &File) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    document.text().lines().enumerate().filter_map(move |(at, line)| {
        fenced ^= line.starts_with("```");
        let heading = line.strip_prefix("### ").filter(|_| !fenced)?;
        Some((at + 1, heading.trim()))
    })
}

/// The name of the test of a heading.
fn test_name(heading: &str) -> String {
    let letters = heading.chars().filter_map(|letter| match letter {
        ' ' | '_' => Some('_'),
        letter => letter.is_alphanumeric().then(|| letter.to_ascii_lowercase()),
    });
    letters.collect()
}

/// The test functions of a file with their lines.
fn tests(file: &File) -> impl Iterator<Item = (usize, String)> {
    let mut is_test = false;
    let mut found = Vec::new();
    for (at, line) in code_only(file.text()).lines().enumerate() {
        let line = line.trim();
        is_test |= line == "#[test]";
        if let Some(rest) = line.strip_prefix("fn ")
            && std::mem::take(&mut is_test)
        {
            let name = rest.split(['(', '<']).next().unwrap_or_default();
            found.push((at + 1, name.to_owned()));
        }
    }
    found.into_iter()
}
