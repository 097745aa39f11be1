//! Libraries for programs of other languages contain neither a server nor a script engine.
//!
//! Follows the manifests of the workspace from such a library; a library from outside the workspace
//! counts where a manifest names it. Dependencies of tests do not count.
//!
//! Invariant: a finding names the whole way from the library to the forbidden crate.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use toml::{Table, Value};

use super::Finding;
use super::layers::dependencies;
use crate::tree::Tree;

/// The libraries that other languages load.
const LIBRARIES: [&str; 2] = ["capi", "pyapi"];

/// A crate that such a library must not contain, and its part.
const FORBIDDEN: [(&str, &str); 4] = [
    ("mds", "the metadata server"),
    ("mon", "the monitor"),
    ("daemon", "the threads of the servers"),
    ("mlua", "the script engine of the balancer"),
];

/// A package of the workspace.
struct Package<'a> {
    path: &'a str,
    uses: Vec<String>,
}

/// Finds ways from the libraries to crates that they must not contain.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let packages = packages(tree);
    LIBRARIES.iter().flat_map(|library| check_library(&packages, library)).collect()
}

fn packages(tree: &Tree) -> BTreeMap<String, Package<'_>> {
    let manifests: Vec<(&str, Table)> = tree
        .files
        .iter()
        .filter(|file| file.path == "Cargo.toml" || file.path.ends_with("/Cargo.toml"))
        // `layers` reports a manifest that cannot be parsed.
        .filter_map(|file| Some((file.path.as_str(), file.text().parse().ok()?)))
        .collect();
    let workspace = manifests.iter().find(|(path, _)| *path == "Cargo.toml");
    let named = workspace
        .and_then(|(_, manifest)| manifest.get("workspace")?.get("dependencies")?.as_table());
    let package_of = |name: String| {
        let package = named.and_then(|named| named.get(&name)?.get("package")?.as_str());
        package.map_or(name, str::to_owned)
    };
    let mut found = BTreeMap::new();
    for (path, manifest) in &manifests {
        let name = manifest.get("package").and_then(|package| package.get("name"));
        let Some(name) = name.and_then(Value::as_str) else { continue };
        let uses = dependencies(manifest).into_iter().filter(|dependency| !dependency.test);
        let uses = uses.map(|dependency| package_of(dependency.name)).collect();
        found.insert(name.to_owned(), Package { path, uses });
    }
    found
}

/// Searches breadth first, so that the reported way to a crate is a shortest one.
fn check_library(packages: &BTreeMap<String, Package<'_>>, library: &str) -> Vec<Finding> {
    let Some(start) = packages.get(library) else { return Vec::new() };
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let mut ways = VecDeque::from([vec![library.to_owned()]]);
    while let Some(way) = ways.pop_front() {
        let Some(package) = way.last().and_then(|last| packages.get(last)) else { continue };
        for used in &package.uses {
            if !seen.insert(used.clone()) {
                continue;
            }
            let way = [way.as_slice(), std::slice::from_ref(used)].concat();
            match FORBIDDEN.iter().find(|(name, _)| name == used) {
                Some((_, part)) => {
                    let message = format!("`{library}` contains {part}: {}", way.join(" -> "));
                    let remedy = "move what needs it into a crate that the library does not use";
                    found.push(Finding::new(start.path, 0, message, remedy));
                }
                None => ways.push_back(way),
            }
        }
    }
    found
}
