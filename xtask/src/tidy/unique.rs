//! The name of a public type is unique in the workspace.
//!
//! A reader who meets a type in an import or an error message then finds one definition.
//! `xtask/same-names.txt` lists the names that were given twice when the rule came. Not seen: types
//! that a macro defines. Tests and examples may name their types freely.
//!
//! Invariant: every entry of the list is needed, so the list only shrinks.

use std::collections::BTreeMap;

use super::Finding;
use crate::rust::code_only;
use crate::tree::{File, Tree};

const LIST: &str = "xtask/same-names.txt";
const REMEDY: &str = "say in the name to what the type belongs (`ExportStage`, not `Stage`)";
const KINDS: [&str; 5] = ["struct", "enum", "trait", "type", "union"];

/// A public type, and the place of its definition.
struct Definition<'a> {
    path: &'a str,
    line: usize,
}

/// Finds names of two public types, and entries of the list that are not needed.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let list = tree.get(LIST).map(File::text).unwrap_or_default();
    let excused = |name: &str| list.lines().any(|line| line == name);
    let mut found = Vec::new();
    let definitions = definitions(tree);
    for (name, places) in definitions.iter().filter(|(name, _)| !excused(name)) {
        let [first, others @ ..] = places.as_slice() else { continue };
        for other in others {
            let message =
                format!("`{name}` is a public type of {}:{}, too", first.path, first.line);
            found.push(Finding::new(other.path, other.line, message, REMEDY));
        }
    }
    for (at, name) in list.lines().enumerate() {
        let entry = !name.is_empty() && !name.starts_with('#');
        if entry && definitions.get(name).is_none_or(|places| places.len() < 2) {
            let message = format!("`{name}` names at most one public type");
            found.push(Finding::new(LIST, at + 1, message, "remove the entry"));
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
