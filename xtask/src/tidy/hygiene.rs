//! Leftovers that no reviewer looks for: notes of unfinished work, blobs, blanks at the ends of
//! lines, paths of the machine on which a file was written, and code of one profile only.
//!
//! Test data is exempt from the last two: its bytes are fixed.

use super::Finding;
use crate::rust::contains_word;
use crate::tree::{FILE_BYTES_MAX, File, Tree};

/// Notes that promise work for later. Spelt apart so that this file does not contain them.
const NOTES: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("to", "do!"),
    concat!("unimpl", "emented!"),
];

/// Where notes are looked for: code and scripts. In a document the words may be the subject.
const CODE: [&str; 5] = [".rs", ".toml", ".sh", ".yml", ".py"];

/// Attributes that leave code out of a profile. The tests compile only one profile, so such code
/// could stop compiling in the other without a failure.
const ONE_PROFILE: [&str; 2] =
    [concat!("cfg(debug", "_assertions)]"), concat!("cfg(not(debug", "_assertions))]")];

/// The crate that Python loads has such code: what it leaves out is a function of the interpreter.
const MAY_DIFFER: &str = "crates/pyapi/";

/// Directories of particular machines. `/home/` counts only with a name that is not one of
/// [`EXAMPLE_HOMES`], because a file system's documents are full of examples.
const MACHINE: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), HOME];

const HOME: &str = concat!("/ho", "me/");

const EXAMPLE_HOMES: [&str; 4] = ["alice", "bob", "carol", "user"];

/// Finds content that no file of the repository should have.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.files.iter().flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    let find =
        |line, message: String, remedy: &str| Finding::new(&file.path, line, message, remedy);
    let mut found = Vec::new();
    if file.bytes > FILE_BYTES_MAX {
        let message = format!("{} bytes, more than {FILE_BYTES_MAX}", file.bytes);
        found.push(find(0, message, "generate it, or keep it outside of git"));
    }
    let is_code = CODE.iter().any(|end| file.path.ends_with(end)) || is_script(file);
    let is_data = file.path.contains("/testdata/");
    // `lines` would swallow the carriage returns that are looked for here.
    for (at, line) in file.text().split('\n').enumerate() {
        let note = NOTES.iter().find(|note| is_code && contains_word(line, note));
        if let Some(note) = note {
            let message = format!("`{note}` is left in the code");
            found.push(find(at + 1, message, "finish it, or open an issue and remove the note"));
        }
        if ONE_PROFILE.iter().any(|&cfg| is_code && line.contains(cfg))
            && !file.path.starts_with(MAY_DIFFER)
        {
            let message = "code of one profile only: no step compiles the other".to_owned();
            found.push(find(at + 1, message, "use the macro `cfg!`, or `debug_assert!`"));
        }
        if is_data {
            continue;
        }
        if line.ends_with([' ', '\t', '\r']) {
            found.push(find(at + 1, "blanks at the end of the line".into(), "remove them"));
        }
        if let Some(path) = machine_path(line) {
            let message = format!("`{path}` is a directory of one machine");
            found.push(find(at + 1, message, "use a relative path, a variable or a parameter"));
        }
    }
    found
}

fn is_script(file: &File) -> bool {
    file.path.starts_with("scripts/") || file.text().starts_with("#!")
}

/// The first path in the line that only one machine has.
fn machine_path(line: &str) -> Option<&'static str> {
    MACHINE.into_iter().find(|&path| {
        line.match_indices(path).any(|(at, _)| {
            // `$dir/…`, `./…` or `a/…` continue some other path.
            let continues = line[..at].ends_with(|c: char| {
                c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '}' | '~')
            });
            !continues && (path != HOME || !is_example(&line[at + path.len()..]))
        })
    })
}

/// Whether the name after `/home/` is an example or empty.
fn is_example(rest: &str) -> bool {
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '-');
    let name = &rest[..end.unwrap_or(rest.len())];
    name.is_empty() || EXAMPLE_HOMES.contains(&name)
}
