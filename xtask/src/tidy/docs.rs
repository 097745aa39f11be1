//! Files, items and links that the documents name exist.
//!
//! Three things are checked: the hop tables of `docs/walkthrough/` (each file exists and each item
//! occurs in it), links between documents, and paths in backticks. A machine can check that a link
//! has a target; only a reader can check that the text is *true*.
//!
//! Invariant: a renamed file or function breaks the build until the documents follow.

use super::Finding;
use crate::rust::contains_word;
use crate::tree::{File, Tree};

const WALKTHROUGH: &str = "docs/walkthrough/";

/// A word in backticks that begins like this is a path of the repository.
const TOP: [&str; 7] = ["crates/", "docs/", "xtask/", "scripts/", "fuzz/", "examples/", ".ci/"];

/// Characters that make a path a pattern or a placeholder, which no file has to match.
const PLACEHOLDER: [char; 6] = ['<', '*', '…', '$', ' ', '('];

/// Finds names that lead nowhere.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        if file.path.starts_with(WALKTHROUGH) {
            check_tables(tree, file, &mut found);
        }
        check_paths(tree, file, &mut found);
    }
    found
}

/// Where a table keeps the two columns that matter.
struct Columns {
    file: usize,
    item: usize,
}

fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

fn check_tables(tree: &Tree, document: &File, found: &mut Vec<Finding>) {
    let mut columns: Option<Columns> = None;
    for (at, line) in document.text().lines().enumerate() {
        let Some(cells) = cells(line) else {
            columns = None;
            continue;
        };
        let find = |name: &str| cells.iter().position(|cell| cell.eq_ignore_ascii_case(name));
        if let (Some(file), Some(item)) = (find("file"), find("item")) {
            columns = Some(Columns { file, item });
        } else if let Some(Columns { file, item }) = columns {
            let cell = |at: usize| cells.get(at).copied().unwrap_or_default();
            if !cell(file).starts_with("--") && !cell(file).starts_with(":-") {
                check_hop(tree, (document, at + 1), (cell(file), cell(item)), found);
            }
        }
    }
}

/// One row: the files exist, and every item occurs in one of them.
fn check_hop(
    tree: &Tree,
    (document, line): (&File, usize),
    (files, items): (&str, &str),
    found: &mut Vec<Finding>,
) {
    let mut texts = Vec::new();
    for path in files.split([',', ' ', '`']).filter(|path| path.contains('.')) {
        match tree.get(path).or_else(|| tree.get(&format!("crates/{path}"))) {
            Some(file) => texts.push(file.text()),
            None => {
                let message = format!("there is no file {path}");
                let remedy = "name the file that has this hop now";
                found.push(Finding::new(&document.path, line, message, remedy));
            }
        }
    }
    if texts.is_empty() {
        return;
    }
    for item in backticked(items) {
        let name = last_name(item);
        if !name.is_empty() && !texts.iter().any(|text| contains_word(text, name)) {
            let message = format!("`{item}` does not occur in {files}");
            let remedy = "name the item that does this hop now";
            found.push(Finding::new(&document.path, line, message, remedy));
        }
    }
}

/// `Namespace::plan_create(…)` is searched for as `plan_create`, `Op::Create { … }` as `Create`.
fn last_name(item: &str) -> &str {
    let end = item.find(['(', '<', '{', ' ']).unwrap_or(item.len());
    let path = &item[..end];
    path.rsplit(['.', ':']).next().unwrap_or(path).trim_end_matches('!')
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
            .filter(|path| !tree.contains(path.split(':').next().unwrap_or(path)))
            .chain(links(line).map(|link| resolve(&document.path, link)).filter(|path| {
                // A link to the repository's top has nothing to look up.
                !path.is_empty() && !tree.contains(path)
            }));
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

/// The targets of `[text](target)` that lead to a file here.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| {
        let target = rest.split(')').next()?.split('#').next()?;
        (!target.is_empty() && !target.contains(':') && !target.contains(' ')).then_some(target)
    })
}

/// A link is relative to the document it stands in.
fn resolve(document: &str, link: &str) -> String {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}
