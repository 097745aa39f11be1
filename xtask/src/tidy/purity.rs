//! The parts of the standard library that the core may not name at all.
//!
//! clippy bans functions and types one by one and cannot be complete; this check bans the modules.
//! It also keeps the randomly seeded maps out of every crate, the edge included, because an edge
//! opts out of all banned types at once.
//!
//! Invariant: equal inputs give equal outputs in the core and in the simulator.

use super::{Finding, edges, layers};
use crate::rust::{code_only, contains_word};
use crate::tree::{File, Tree};

/// A module or type and its replacement.
const BANNED_IN_CORE: [(&str, &str); 15] = [
    ("std::fs", "emit an effect; the driver does the I/O"),
    ("std::net::TcpStream", "emit an effect; the driver does the I/O"),
    ("std::net::TcpListener", "emit an effect; the driver does the I/O"),
    ("std::net::UdpSocket", "emit an effect; the driver does the I/O"),
    ("std::os", "the core knows no operating system"),
    ("std::thread", "the core is single-threaded; the driver owns the threads"),
    ("std::env", "settings are handed in"),
    ("std::process", "return an error; the driver decides"),
    ("Instant", "take a types::Moment from the driver"),
    ("SystemTime", "take a types::Timestamp from the driver"),
    ("thread_local", "put the state into the value that needs it"),
    ("getrandom", "take a seed or a number from the driver"),
    ("rand", "take a seed or a number from the driver"),
    ("tokio", "the core does not wait"),
    ("async", "the core does not wait"),
];

/// Exceptions for the tests of the core: golden files are files, and a variable decides whether a
/// test rewrites them.
const ALLOWED_IN_TESTS: [&str; 2] = ["std::fs", "std::env"];

const BANNED_EVERYWHERE: [(&str, &str); 3] = [
    ("std::collections::HashMap", "use types::Map or BTreeMap: same input, same order"),
    ("std::collections::HashSet", "use types::Set or BTreeSet: same input, same order"),
    ("RandomState", "use types::FixedState: same input, same order"),
];

/// Finds names that would let the outside world in.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let inside = |file: &&File| file.crate_name().is_some();
    tree.rust().filter(inside).flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    let name = file.crate_name().unwrap_or_default();
    let pure = (layers::is_core(name) || name == "sim") && !edges::is_edge(file);
    let core = if pure { &BANNED_IN_CORE[..] } else { &[] };
    let excused = |word: &str| file.is_test() && ALLOWED_IN_TESTS.contains(&word);
    let banned: Vec<_> =
        BANNED_EVERYWHERE.iter().chain(core).filter(|(word, _)| !excused(word)).collect();
    let mut found = Vec::new();
    for (at, line) in spelled_out(&code_only(file.text())).lines().enumerate() {
        for (word, remedy) in &banned {
            if contains_word(line, word) {
                let message = format!("`{word}` is not for this crate");
                found.push(Finding::new(&file.path, at + 1, message, *remedy));
            }
        }
    }
    found
}

/// Writes `use std::{fs, net::X};` as `use std::fs, std::net::X;`: the search is for whole paths.
/// One level of braces at a time, on one line or over several; other code stays as it is.
fn spelled_out(code: &str) -> String {
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find("use std::") {
        let end = rest[at..].find(';').map_or(rest.len(), |end| at + end);
        out += &rest[..at];
        out += &expand(&rest[at..end]);
        rest = &rest[end..];
    }
    out + rest
}

fn expand(statement: &str) -> String {
    let mut out = String::with_capacity(statement.len());
    // The open braces so far, and the path since the last comma or brace.
    let mut opened: Vec<String> = Vec::new();
    let mut path = String::new();
    for c in statement.trim_start_matches("use ").chars() {
        match c {
            '{' => opened.push(std::mem::take(&mut path)),
            '}' | ',' => {
                write_path(&mut out, &opened, &mut path);
                if c == '}' {
                    opened.pop();
                }
            }
            '\n' => {
                write_path(&mut out, &opened, &mut path);
                out.push(c);
            }
            c if c.is_whitespace() && path.is_empty() => {}
            c => path.push(c),
        }
    }
    write_path(&mut out, &opened, &mut path);
    out
}

fn write_path(out: &mut String, opened: &[String], path: &mut String) {
    if !path.is_empty() {
        out.push_str(&opened.concat());
        out.push_str(path);
        out.push(' ');
        path.clear();
    }
}
