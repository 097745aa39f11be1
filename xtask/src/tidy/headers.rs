//! Every module opens with its purpose.
//!
//! Whether it says it well is for a reviewer; that it says something at all is for a machine. Test
//! modules are exempt: their names are sentences.

use std::collections::BTreeSet;

use super::Finding;
use crate::tree::{File, Tree, folder_of};

/// Finds crates without a root and modules without an opening `//!`.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let crates: BTreeSet<&str> = tree.files.iter().filter_map(File::crate_name).collect();
    for name in crates {
        let folder = folder_of(name);
        let root = |file: &str| tree.get(&format!("{folder}/src/{file}")).is_some();
        if !root("lib.rs") && !root("main.rs") {
            let message = "has neither src/lib.rs nor src/main.rs";
            found.push(Finding::new(&folder, 0, message, "add the crate's root"));
        }
    }
    let module = |file: &&File| {
        file.crate_name().is_some() && file.path.contains("/src/") && !file.is_test()
    };
    for file in tree.rust().filter(module) {
        if !file.text().starts_with("//! ") {
            let message = "does not open with `//!`";
            let remedy = "say what the module is for, what it is not, and its invariant";
            found.push(Finding::new(&file.path, 1, message, remedy));
        }
    }
    found
}
