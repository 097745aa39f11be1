//! Links between pages lead to files and headings that exist.
//!
//! Every relative link of every page is followed: its path must be a file or folder of the
//! repository, and its anchor a heading of that page. Anchors are those of GitHub, and mdBook gives
//! headings the same ones. Links to other hosts are not followed. The book's contents
//! (`docs/SUMMARY.md`) must list every page of `docs/`, apart from single decisions.
//!
//! Invariant: a renamed page or heading breaks the build until the links to it follow.

use super::Finding;
use crate::tree::{File, Tree};

const CONTENTS: &str = "docs/SUMMARY.md";

/// The index of this folder lists its pages.
const DECISIONS: &str = "docs/decisions/";

/// Finds links that lead nowhere, and pages that are missing in the book.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = missing_in_book(tree);
    for page in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        for (line, text) in prose(page) {
            for link in links(&without_code(text)) {
                if let Err((message, remedy)) = follow(tree, page, link) {
                    found.push(Finding::new(&page.path, line, message, remedy));
                }
            }
        }
    }
    found
}

fn missing_in_book(tree: &Tree) -> Vec<Finding> {
    let Some(contents) = tree.get(CONTENTS) else { return Vec::new() };
    let is_page = |path: &&str| {
        let inside = path.strip_prefix("docs/").is_some_and(|name| name.ends_with(".md"));
        inside && *path != CONTENTS && !path.starts_with(DECISIONS)
    };
    let pages = tree.files.iter().map(|file| file.path.as_str()).filter(is_page);
    let missing = pages.filter(|path| {
        let link = format!("]({})", path.trim_start_matches("docs/"));
        !contents.text().contains(&link)
    });
    missing
        .map(|path| Finding::new(path, 0, "not in the book", format!("add it to {CONTENTS}")))
        .collect()
}

/// Lines outside of code blocks, counted from 1.
fn prose(page: &File) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    page.text().lines().enumerate().filter_map(move |(at, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((at + 1, line))
    })
}

/// The line without its code spans, in which brackets are no links.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// The targets of `[text](target)`, without those on other hosts.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| {
        let target = rest.split(')').next()?;
        (!target.is_empty() && !target.contains([':', ' '])).then_some(target)
    })
}

fn follow(tree: &Tree, page: &File, link: &str) -> Result<(), (String, &'static str)> {
    let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
    let path = if path.is_empty() { page.path.clone() } else { resolve(&page.path, path) };
    // A link to the repository's top has nothing to look up.
    if !path.is_empty() && !tree.contains(&path) {
        return Err((format!("there is no {path}"), "name the page that took its place"));
    }
    let Some(target) = tree.get(&path).filter(|file| file.path.ends_with(".md")) else {
        return Ok(());
    };
    if fragment.is_empty() || anchors(target).iter().any(|anchor| anchor == fragment) {
        return Ok(());
    }
    Err((format!("{path} has no heading #{fragment}"), "name the heading that took its place"))
}

/// The anchors of a page's headings; the second of two equal headings ends in `-1`.
fn anchors(page: &File) -> Vec<String> {
    let mut anchors = Vec::<String>::new();
    for (_, line) in prose(page) {
        let Some(heading) = line.trim_start_matches('#').strip_prefix(' ') else { continue };
        if !line.starts_with('#') {
            continue;
        }
        let first = anchor(heading);
        let mut name = first.clone();
        let mut count = 0;
        while anchors.contains(&name) {
            count += 1;
            name = format!("{first}-{count}");
        }
        anchors.push(name);
    }
    anchors
}

/// The anchor of a heading: lower case, hyphens for blanks, and no other punctuation.
pub(super) fn anchor(heading: &str) -> String {
    let letters = heading.trim().chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        letter => letter.is_alphanumeric().then_some(letter),
    });
    letters.flat_map(char::to_lowercase).collect()
}

/// A link is relative to the folder of its page.
fn resolve(page: &str, link: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
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
