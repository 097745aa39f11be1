//! The name of a public type is unique in the workspace.
//!
//! A reader who meets a type in an import or an error message then finds one definition. Not seen:
//! types that a macro defines. Tests and examples may name their types freely.

use std::collections::BTreeMap;

use super::Finding;
use crate::rust::code_only;
use crate::tree::{File, Tree};

const REMEDY: &str = "say in the name to what the type belongs (`ExportStage`, not `Stage`)";
const KINDS: [&str; 5] = ["struct", "enum", "trait", "type", "union"];

/// A public type, and the place of its definition.
struct Definition<'a> {
    path: &'a str,
    line: usize,
}

/// Finds the names of two public types.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (name, places) in definitions(tree) {
        let [first, others @ ..] = places.as_slice() else { continue };
        for other in others {
            let message =
                format!("`{name}` is a public type of {}:{}, too", first.path, first.line);
            found.push(Finding::new(other.path, other.line, message, REMEDY));
        }
    }
    found
}

fn definitions(tree: &Tree) -> BTreeMap<String, Vec<Definition<'_>>> {
    let mut found: BTreeMap<String, Vec<Definition<'_>>> = BTreeMap::new();
    let source = |file: &&File| {
        file.crate_name().is_some() && file.path.contains("/src/") && !file.is_test()
    };
    for file in tree.rust().filter(source) {
        for (at, line) in code_only(file.text()).lines().enumerate() {
            if let Some(name) = public_type(line) {
                let place = Definition { path: &file.path, line: at + 1 };
                found.entry(name.to_owned()).or_default().push(place);
            }
        }
    }
    found
}

/// The name of the public type whose definition begins on this line.
fn public_type(line: &str) -> Option<&str> {
    let mut words = line.trim_start().strip_prefix("pub ")?.split_whitespace();
    let kind = words.find(|word| *word != "unsafe")?;
    let name = words.next().filter(|_| KINDS.contains(&kind))?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    // A macro has `$name` there.
    Some(&name[..end]).filter(|name| !name.is_empty())
}
