//! Which crate may depend on which: dependencies point up this table and never sideways.
//!
//! The core (rows 1 to 6) decides and remembers; the rows below execute its decisions. A short list
//! of third-party libraries keeps the core quick to build and free of hidden input.
//!
//! Inside `lab`, the modules have an order, too.
//!
//! Invariant: every crate of the workspace has a row.

use toml::{Table, Value};

use super::Finding;
use crate::rust::code_only;
use crate::tree::{File, Tree, folder_of};

/// Crate and row. A crate may use only crates in rows with smaller numbers.
const ROWS: [(&str, u8); 43] = [
    ("types", 1),
    ("policy", 2),
    ("balancer", 2),
    ("journal", 3),
    ("advise", 3),
    ("metastore", 4),
    ("wire", 4),
    ("namespace", 5),
    ("mds", 6),
    ("mon", 6),
    ("client", 6),
    ("model", 6),
    ("linearize", 6),
    ("objstore", 7),
    ("keys", 7),
    ("httpserver", 7),
    ("testceph", 7),
    ("exporter", 8),
    ("net", 8),
    ("engine", 8),
    ("jobtree", 8),
    ("posix", 8),
    ("daemon", 9),
    ("sim", 9),
    ("fsck", 9),
    ("cudele", 10),
    ("branches", 11),
    ("vfs", 11),
    ("web", 11),
    ("terminal", 11),
    ("jobserver", 12),
    ("mount", 12),
    ("calls", 12),
    ("ingest", 12),
    ("mirror", 12),
    ("intercept", 12),
    ("capi", 13),
    ("pyapi", 13),
    ("preload", 13),
    ("decoders", 13),
    ("cli", 14),
    ("lab", 14),
    ("xtask", 14),
];

/// The last row of the core.
const CORE_ROW: u8 = 6;

/// Crates that touch disks and sockets know formats, not servers: of the core they may use only
/// rows up to [`EDGE_USES_ROW`].
const EDGE_ROW: u8 = 7;
const EDGE_USES_ROW: u8 = 4;

/// Crates that know less than their row allows, with all crates of the workspace that they may use.
const NARROW: [(&str, &[&str]); 3] = [
    ("objstore", &["types"]),
    ("engine", &["types", "metastore", "objstore"]),
    ("net", &["types", "metastore", "wire", "keys"]),
];

/// Libraries from outside the workspace that a core crate may use.
const CORE_LIBRARIES: [&str; 5] = ["thiserror", "crc32c", "hashbrown", "xxhash-rust", "blake3"];

/// Further libraries of the policy crate: policies are files that people write.
const POLICY_LIBRARIES: [&str; 3] = ["serde", "serde_json", "serde-saphyr"];

/// Further libraries of the balancer crate: its policies are scripts, and the script engine is a
/// value that takes a script and returns a result.
const BALANCER_LIBRARIES: [&str; 1] = ["mlua"];

/// Further libraries of the tests of a core crate.
const TEST_LIBRARIES: [&str; 3] = ["proptest", "expect-test", "stateright"];

/// Crates that any crate may be tested against: the executable specification, which knows events
/// only, and a real Ceph cluster, which knows nothing of this project.
const FOR_TESTS: [&str; 2] = ["model", "testceph"];

/// Modules of `lab`, the lowest first: none names a later one, so that no circle closes.
const LAB: &str = "crates/lab/src/";
const LAB_MODULES: [&str; 4] = ["harness", "worker", "bench", "soak"];

/// The row of a crate.
fn row(name: &str) -> Option<u8> {
    ROWS.iter().find(|(known, _)| *known == name).map(|(_, row)| *row)
}

/// Whether a crate belongs to the core.
pub(super) fn is_core(name: &str) -> bool {
    row(name).is_some_and(|row| row <= CORE_ROW)
}

/// Finds dependencies that point the wrong way, and crates that go around the common lints.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let manifest = |file: &&File| file.crate_name().is_some_and(|name| file.path == path(name));
    let mut found: Vec<_> = tree.files.iter().filter(manifest).flat_map(check_manifest).collect();
    found.extend(tree.rust().flat_map(check_modules));
    found
}

/// Finds modules of `lab` that name a module above them.
fn check_modules(file: &File) -> Vec<Finding> {
    let Some(inside) = file.path.strip_prefix(LAB) else { return Vec::new() };
    let module = inside.split(['/', '.']).next().unwrap_or_default();
    let Some(at) = LAB_MODULES.iter().position(|known| *known == module) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (line, text) in code_only(file.text()).lines().enumerate() {
        for above in &LAB_MODULES[at + 1..] {
            if text.contains(&format!("crate::{above}::")) {
                let message = format!("`{module}` must not name `{above}`");
                let remedy = "move what both need into the lower module";
                found.push(Finding::new(&file.path, line + 1, message, remedy));
            }
        }
    }
    found
}

fn path(name: &str) -> String {
    format!("{}/Cargo.toml", folder_of(name))
}

fn check_manifest(file: &File) -> Vec<Finding> {
    let folder = file.crate_name().unwrap_or_default();
    let find =
        |line, message: String, remedy: &str| Finding::new(&file.path, line, message, remedy);
    let manifest: Table = match file.text().parse() {
        Ok(manifest) => manifest,
        Err(error) => {
            let message = format!("cannot be parsed: {}", error.to_string().trim_end());
            return vec![find(0, message.replace('\n', " "), "repair it")];
        }
    };
    let Some(row) = row(folder) else {
        let message = format!("`{folder}` has no row");
        return vec![find(0, message, "give it one in xtask/src/tidy/layers.rs")];
    };
    let mut found = Vec::new();
    let name = manifest.get("package").and_then(|package| package.get("name"));
    if name.and_then(Value::as_str) != Some(folder) {
        let message = format!("the package in folder `{folder}` has another name");
        found.push(find(0, message, "name package and folder alike"));
    }
    let inherits = manifest.get("lints").and_then(|lints| lints.get("workspace"));
    if inherits.and_then(Value::as_bool) != Some(true) {
        let remedy = "add `[lints]` with `workspace = true`";
        found.push(find(0, "does not take the workspace's lints".into(), remedy));
    }
    for Dependency { name, test } in dependencies(&manifest) {
        if let Some(remedy) = refusal(folder, row, &name, test) {
            let message = format!("`{folder}` must not depend on `{name}`");
            found.push(find(line_of(file.text(), &name), message, &remedy));
        }
    }
    found
}

/// One dependency of a manifest.
pub(super) struct Dependency {
    /// The package's own name, which may differ from the name in this manifest.
    pub(super) name: String,
    /// Only tests use it.
    pub(super) test: bool,
}

/// All dependencies of a manifest.
pub(super) fn dependencies(manifest: &Table) -> Vec<Dependency> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    let mut found = Vec::new();
    for table in std::iter::once(manifest).chain(targets) {
        for kind in ["dependencies", "build-dependencies", "dev-dependencies"] {
            let list = table.get(kind).and_then(Value::as_table);
            for (key, value) in list.into_iter().flatten() {
                let package = value.get("package").and_then(Value::as_str);
                let name = package.unwrap_or(key).to_owned();
                found.push(Dependency { name, test: kind == "dev-dependencies" });
            }
        }
    }
    found
}

/// Why `user`, which is in `user_row`, may not depend on `used`: the remedy. None if it may.
fn refusal(user: &str, user_row: u8, used: &str, test: bool) -> Option<String> {
    let Some(used_row) = row(used) else {
        let known = CORE_LIBRARIES.contains(&used)
            || (user == "policy" && POLICY_LIBRARIES.contains(&used))
            || (user == "balancer" && BALANCER_LIBRARIES.contains(&used))
            || (test && TEST_LIBRARIES.contains(&used));
        let remedy = "the core uses few libraries (xtask/src/tidy/layers.rs): do it without, or \
                      in a crate at the I/O edge";
        return (user_row <= CORE_ROW && !known).then(|| remedy.to_owned());
    };
    if test && FOR_TESTS.contains(&used) {
        return None;
    }
    if let Some((_, known)) = NARROW.iter().find(|(narrow, _)| *narrow == user) {
        return (!known.contains(&used))
            .then(|| format!("`{user}` may use {} only: hand in what it needs", known.join(", ")));
    }
    let limit = if user_row == EDGE_ROW { EDGE_USES_ROW } else { user_row - 1 };
    (used_row > limit).then(|| {
        format!(
            "row {user_row} may use rows 1 to {limit}, `{used}` is in row {used_row}: move what \
             both need up, or hand it in"
        )
    })
}

fn line_of(manifest: &str, dependency: &str) -> usize {
    let names = |line: &str| line.split(['.', ' ', '=', ']']).any(|word| word == dependency);
    manifest.lines().position(names).map_or(0, |at| at + 1)
}
