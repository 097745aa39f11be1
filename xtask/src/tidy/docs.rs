//! Paths in backticks that the documents name exist.
//!
//! [`super::links`] follows the links between documents, and [`super::walkthrough`] checks tables
//! of hops.
//!
//! Invariant: a renamed file breaks the build until the documents follow.

use super::Finding;
use crate::tree::{File, Tree};

/// A word in backticks that begins like this is a path of the repository.
const TOP: [&str; 7] = ["crates/", "docs/", "xtask/", "scripts/", "fuzz/", "examples/", ".ci/"];

/// Characters that make a path a pattern or a placeholder, which no file has to match.
const PLACEHOLDER: [char; 6] = ['<', '*', '…', '$', ' ', '('];

/// Finds names that lead nowhere.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        check_paths(tree, file, &mut found);
    }
    found
}

fn backticked(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn check_paths(tree: &Tree, document: &File, found: &mut Vec<Finding>) {
    let mut fenced = false;
    for (at, line) in document.text().lines().enumerate() {
        fenced ^= line.trim_start().starts_with("```");
        if fenced {
            continue;
        }
        let paths = backticked(line).filter(|word| TOP.iter().any(|top| word.starts_with(top)));
        let dangling = paths
            .filter(|path| !path.contains(PLACEHOLDER))
            .flat_map(alternatives)
            .filter(|path| !tree.contains(path.split(':').next().unwrap_or(path)));
        for path in dangling {
            let message = format!("there is no {path}");
            found.push(Finding::new(&document.path, at + 1, message, "name what took its place"));
        }
    }
}

/// `a/{b,c}.rs` is `a/b.rs` and `a/c.rs`.
fn alternatives(path: &str) -> Vec<String> {
    let parts = path.split_once('{').and_then(|(before, rest)| {
        let (list, after) = rest.split_once('}')?;
        Some(list.split(',').map(|name| format!("{before}{}{after}", name.trim())).collect())
    });
    parts.unwrap_or_else(|| vec![path.to_owned()])
}
