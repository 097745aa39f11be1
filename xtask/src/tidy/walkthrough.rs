//! Files and functions that the walkthroughs name exist.
//!
//! A walkthrough has tables of hops with a column `file` and a column `item`, and prose that says
//! "`item` in `crates/…/file.rs`". Each file must exist, and one of the files of a row must define
//! each item of the row: a function, or a type. Only a reader can check that the text is *true*.
//!
//! Invariant: a renamed or moved function breaks the build until its walkthrough follows.

use super::Finding;
use crate::rust::contains_word;
use crate::tree::{File, Tree};

const PAGES: &str = "docs/walkthrough/";

/// Keywords in front of the name that an item may have.
const DEFINES: [&str; 5] = ["fn", "struct", "enum", "trait", "type"];

/// Finds hops that lead nowhere.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for page in tree.files.iter().filter(|file| file.path.starts_with(PAGES)) {
        check_tables(tree, page, &mut found);
        check_prose(tree, page, &mut found);
    }
    found
}

/// The columns of a table that name a place.
struct Columns {
    file: usize,
    item: usize,
}

fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

fn check_tables(tree: &Tree, page: &File, found: &mut Vec<Finding>) {
    let mut columns: Option<Columns> = None;
    for (at, line) in page.text().lines().enumerate() {
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
                check_hop(tree, (page, at + 1), (cell(file), cell(item)), found);
            }
        }
    }
}

/// Every "`item` in `file.rs`", also over the end of a line.
fn check_prose(tree: &Tree, page: &File, found: &mut Vec<Finding>) {
    let parts: Vec<&str> = page.text().split('`').collect();
    let mut line = 1;
    for (at, part) in parts.iter().enumerate() {
        let next = |by: usize| parts.get(at + by).copied().unwrap_or_default();
        let is_item = at % 2 == 1 && next(1).split_whitespace().eq(["in"]);
        if is_item && next(2).ends_with(".rs") {
            check_hop(tree, (page, line), (next(2), &format!("`{part}`")), found);
        }
        line += part.matches('\n').count();
    }
}

/// One row: the files exist, and one of them defines each item.
fn check_hop(
    tree: &Tree,
    (page, line): (&File, usize),
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
                found.push(Finding::new(&page.path, line, message, remedy));
            }
        }
    }
    if texts.is_empty() {
        return;
    }
    for item in items.split('`').skip(1).step_by(2) {
        let name = last_name(item);
        let is_defined = |text: &&str| {
            DEFINES.iter().any(|keyword| contains_word(text, &format!("{keyword} {name}")))
        };
        if !name.is_empty() && !texts.iter().any(is_defined) {
            let message = format!("no function or type `{item}` is defined in {files}");
            let remedy = "name the item that does this hop now";
            found.push(Finding::new(&page.path, line, message, remedy));
        }
    }
}

/// `Namespace::plan_create(…)` is searched for as `plan_create`, `ByReference::of` as `of`.
fn last_name(item: &str) -> &str {
    let end = item.find(['(', '<', '{', ' ']).unwrap_or(item.len());
    let path = &item[..end];
    path.rsplit(['.', ':']).next().unwrap_or(path).trim_end_matches('!')
}
