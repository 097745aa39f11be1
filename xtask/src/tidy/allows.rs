//! A silenced lint says why.
//!
//! clippy asks the same of the code it compiles; this check also sees code for other targets and
//! `fuzz/`, which stands outside the workspace.

use super::Finding;
use crate::rust::{attributes, contains_word};
use crate::tree::Tree;

/// Finds `allow` and `expect` attributes without a reason.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.rust() {
        for attribute in attributes(file.text()) {
            if attribute.silences() && !contains_word(&attribute.code, "reason") {
                let message = "a lint is silenced without a reason";
                let remedy = "add `reason = \"...\"`, or repair what the lint found";
                found.push(Finding::new(&file.path, attribute.line, message, remedy));
            }
        }
    }
    found
}
