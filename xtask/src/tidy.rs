//! The checks the compiler and clippy do not make, one file each.
//!
//! Every check is a function from the [`Tree`] to its findings: it reads nothing else, so its tests
//! plant one fault in a tree of strings. Nothing here repairs anything.
//!
//! Invariant: a finding names the place, the fault and the remedy.

mod allows;
mod contained;
mod docs;
mod edges;
mod headers;
mod hygiene;
mod layers;
mod links;
mod promises;
mod purity;
mod sizes;
mod unique;
mod walkthrough;
mod words;

use std::fmt;
use std::path::Path;

use crate::run::{Failure, Outcome};
use crate::tree::Tree;

/// One fault and its remedy.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Finding {
    path: String,
    /// Counted from 1; 0 when the fault is the file itself.
    line: usize,
    message: String,
    remedy: String,
}

impl Finding {
    fn new(
        path: &str,
        line: usize,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding { path: path.to_owned(), line, message: message.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tidy: {}:", self.path)?;
        if self.line > 0 {
            write!(f, "{}:", self.line)?;
        }
        write!(f, " {}; {}", self.message, self.remedy)
    }
}

type Check = fn(&Tree) -> Vec<Finding>;

const CHECKS: [Check; 14] = [
    layers::check,
    contained::check,
    edges::check,
    purity::check,
    sizes::check,
    unique::check,
    headers::check,
    allows::check,
    docs::check,
    links::check,
    walkthrough::check,
    promises::check,
    hygiene::check,
    words::check,
];

fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found: Vec<Finding> = CHECKS.iter().flat_map(|check| check(tree)).collect();
    found.sort();
    found
}

/// Checks the repository at `root` and prints the findings.
pub(crate) fn run(root: &Path) -> Outcome {
    let tree = Tree::load(root)
        .map_err(|error| Failure::Failed(format!("cannot read the repository: {error}")))?;
    let found = findings(&tree);
    for finding in &found {
        println!("{finding}");
    }
    println!("tidy: {} files, {} faults", tree.files.len(), found.len());
    if found.is_empty() { Ok(()) } else { Err(Failure::Reported) }
}

/// Prints how plainly the crates and pages below the paths are written, and each fault; with
/// `--list` instead the lines that `xtask/words.txt` needs.
pub(crate) fn show_words(root: &Path, paths: &[&str]) -> Outcome {
    let tree = Tree::load(root)
        .map_err(|error| Failure::Failed(format!("cannot read the repository: {error}")))?;
    match paths {
        ["--list"] => words::list(&tree),
        paths => words::show(&tree, paths),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
