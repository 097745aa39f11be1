//! Comments and pages are written in plain words, as `STYLE.md` asks.
//!
//! The list `xtask/words.txt` has the crates and pages that are not there yet, each with the
//! figures that it may not exceed: `name headless% pronouns vague wide`.
//!
//! Invariant: an entry is at most a tenth above the present figures, so an improvement stays.

use std::collections::BTreeMap;

use super::Finding;
use crate::prose::{Counts, Fault, measure};
use crate::tree::{File, Tree, folder_of};

const LIST: &str = "xtask/words.txt";

/// The changelog of versions before the rules existed is a record and stays as it is.
const EXEMPT: [&str; 2] = ["CHANGELOG.md", "STYLE.md"];

/// Faults that one finding quotes.
const QUOTED_MAX: usize = 3;

/// Figures that a crate or page may reach.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Limit {
    /// Sentences without a noun as subject, in a hundred.
    headless: f64,
    /// Pronouns in place of nouns, in a thousand words.
    pronouns: f64,
    /// Vague words, in a thousand.
    vague: f64,
    /// Comment lines of more than a hundred columns.
    wide: usize,
}

/// The limit of every crate and page that is not on the list.
const RULE: Limit = Limit { headless: 0.5, pronouns: 3.0, vague: 3.0, wide: 0 };

/// A figure and the same figure read from the list differ by less.
const ROUNDING: f64 = 1e-6;

impl Limit {
    fn admits(&self, counts: &Counts) -> bool {
        counts.headless_percent() <= self.headless + ROUNDING
            && counts.pronouns_per_mille() <= self.pronouns + ROUNDING
            && counts.vague_per_mille() <= self.vague + ROUNDING
            && counts.wide <= self.wide
    }
}

/// One line of the list.
#[derive(Clone, Copy, Debug)]
struct Entry<'a> {
    line: usize,
    name: &'a str,
    limit: Limit,
}

/// Finds crates and pages above their limit, and entries that are out of date.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let list = tree.get(LIST).map(File::text).unwrap_or_default();
    let entries = entries(list, &mut found);
    let measured = survey(tree);
    for (name, (counts, faults)) in &measured {
        match entries.iter().find(|entry| entry.name == *name) {
            Some(entry) => found.extend(compare(entry, counts, faults)),
            None if !RULE.admits(counts) => found.push(above(name, counts, faults)),
            None => {}
        }
    }
    let gone = entries.iter().filter(|entry| !measured.contains_key(entry.name));
    found.extend(gone.map(|entry| {
        let message = format!("{} does not exist", entry.name);
        Finding::new(LIST, entry.line, message, "remove the entry")
    }));
    found
}

/// Figures and faults by crate, and by path for pages; a fault carries the path of its file.
fn survey(tree: &Tree) -> BTreeMap<String, (Counts, Vec<(String, Fault)>)> {
    let mut measured = BTreeMap::<String, (Counts, Vec<(String, Fault)>)>::new();
    for file in tree.files.iter().filter(|file| is_prose(file)) {
        let name = match file.crate_name() {
            Some(name) if file.is_rust() => folder_of(name),
            Some(_) | None => file.path.clone(),
        };
        let (counts, faults) = measure(&file.path, file.text());
        let sum = measured.entry(name).or_default();
        sum.0 += counts;
        sum.1.extend(faults.into_iter().map(|fault| (file.path.clone(), fault)));
    }
    measured
}

fn is_prose(file: &File) -> bool {
    let page = file.path.ends_with(".md") && !EXEMPT.contains(&file.path.as_str());
    let generated = file.path.contains("/testdata/") || file.path.starts_with("experiments/");
    (file.is_rust() && file.crate_name().is_some()) || (page && !generated)
}

fn figures(counts: &Counts) -> String {
    format!(
        "{:.1} % of the sentences have no noun as subject, {:.1} pronouns and {:.1} vague words per \
         1,000 words, {} wide comment lines",
        counts.headless_percent(),
        counts.pronouns_per_mille(),
        counts.vague_per_mille(),
        counts.wide
    )
}

fn above(name: &str, counts: &Counts, faults: &[(String, Fault)]) -> Finding {
    let quoted: Vec<String> = faults
        .iter()
        .take(QUOTED_MAX)
        .map(|(path, fault)| format!("{path}:{}: {} ({})", fault.line, fault.sentence, fault.why))
        .collect();
    let remedy = format!(
        "write plain words (STYLE.md; `cargo xtask words {name}` lists all):\n  {}",
        quoted.join("\n  ")
    );
    Finding::new(name, 0, figures(counts), remedy)
}

fn compare(entry: &Entry<'_>, counts: &Counts, faults: &[(String, Fault)]) -> Option<Finding> {
    if !entry.limit.admits(counts) {
        return Some(above(entry.name, counts, faults));
    }
    let remedy = if RULE.admits(counts) {
        "remove the entry".to_owned()
    } else if is_loose(&entry.limit, counts) {
        format!("lower the entry to `{}`", entry_line(entry.name, counts))
    } else {
        return None;
    };
    let message = format!("{} has become plainer than its entry", entry.name);
    Some(Finding::new(LIST, entry.line, message, remedy))
}

/// Whether the entry would let a tenth of the present figures come back.
fn is_loose(limit: &Limit, counts: &Counts) -> bool {
    #[allow(clippy::cast_precision_loss, reason = "counts of lines in one repository")]
    let wide = (limit.wide as f64, counts.wide as f64);
    [
        (limit.headless, counts.headless_percent()),
        (limit.pronouns, counts.pronouns_per_mille()),
        (limit.vague, counts.vague_per_mille()),
        wide,
    ]
    .into_iter()
    .any(|(limit, present)| limit > present * 1.1 + 1.0)
}

/// The present figures, rounded up to a tenth.
fn entry_line(name: &str, counts: &Counts) -> String {
    let up = |figure: f64| (figure * 10.0).ceil() / 10.0;
    format!(
        "{name} {:.1} {:.1} {:.1} {}",
        up(counts.headless_percent()),
        up(counts.pronouns_per_mille()),
        up(counts.vague_per_mille()),
        counts.wide
    )
}

fn entries<'a>(list: &'a str, found: &mut Vec<Finding>) -> Vec<Entry<'a>> {
    let mut entries = Vec::new();
    for (at, text) in list.lines().enumerate() {
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        match parse(at + 1, text) {
            Some(entry) => entries.push(entry),
            None => {
                let remedy = "write `name headless% pronouns vague wide`";
                found.push(Finding::new(LIST, at + 1, "not an entry", remedy));
            }
        }
    }
    entries
}

fn parse(line: usize, text: &str) -> Option<Entry<'_>> {
    let parts: Vec<&str> = text.split(' ').collect();
    let [name, headless, pronouns, vague, wide] = parts.as_slice() else { return None };
    let limit = Limit {
        headless: headless.parse().ok()?,
        pronouns: pronouns.parse().ok()?,
        vague: vague.parse().ok()?,
        wide: wide.parse().ok()?,
    };
    Some(Entry { line, name, limit })
}

/// Prints the list that the present figures need.
pub(crate) fn list(tree: &Tree) {
    let measured = survey(tree);
    for (name, (counts, _)) in measured.iter().filter(|(_, (counts, _))| !RULE.admits(counts)) {
        println!("{}", entry_line(name, counts));
    }
}

/// Prints the figures of crates and pages below the paths, and every fault with its place.
pub(crate) fn show(tree: &Tree, paths: &[&str]) {
    let below = |path: &str| {
        let inside = |top: &&str| {
            let top = top.trim_end_matches('/');
            path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        paths.is_empty() || paths.iter().any(inside)
    };
    let files = tree.files.iter().filter(|file| below(&file.path)).cloned().collect();
    for (name, (counts, faults)) in survey(&Tree { files }) {
        for (path, fault) in faults.iter().filter(|_| !paths.is_empty()) {
            println!("{path}:{}: {}: {}", fault.line, fault.why, fault.sentence);
        }
        println!("{name}: {} sentences, {}", counts.sentences, figures(&counts));
    }
}
