//! The figures of the nine cells of Table II: how often each cell and each change from one to
//! another occurred, and how often a fault struck.

use std::fmt::Write;

use policy::Cell;

use super::fault::Fault;
use crate::tally::Tally;

const CHANGES: [(&str, &str); 3] = [
    ("change", "changes of policy, from row to column"),
    ("completed", "of these completed"),
    ("struck", "struck by a fault before they did"),
];

fn faults(tally: &Tally, cell: Cell) -> [u64; Fault::ALL.len()] {
    Fault::ALL.map(|fault| tally.get(&format!("fault: {cell} {}", fault.name())))
}

/// Whether updates completed under each of the nine cells, by Nonvolatile Apply, by reference and
/// in parts, and a fault struck each cell.
#[must_use]
pub fn has_every_cell(tally: &Tally) -> bool {
    let others =
        ["updates by nonvolatile apply", "directories merged by reference", "parts merged"];
    others.iter().all(|what| tally.get(what) > 0)
        && Cell::all().all(|cell| {
            tally.get(&format!("updates: {cell}")) > 0
                && faults(tally, cell).iter().any(|count| *count > 0)
        })
}

/// The figures by cell, in tables.
#[must_use]
pub fn table(tally: &Tally) -> String {
    let mut text = "cells: updates completed;".to_owned();
    Fault::ALL.iter().for_each(|fault| text += &format!(" {}", fault.name()));
    for cell in Cell::all() {
        let updates = tally.get(&format!("updates: {cell}"));
        let _ = write!(text, "\n  {:<17} {updates:>8};", cell.to_string());
        faults(tally, cell).iter().for_each(|count| text += &format!(" {count:>6}"));
    }
    for (what, title) in CHANGES {
        let count = |from: Cell, to: Cell| tally.get(&format!("{what}: {from} {to}"));
        let all = Cell::all().flat_map(|from| Cell::all().map(move |to| (from, to)));
        let all: Vec<u64> = all.map(|(from, to)| count(from, to)).collect();
        let (seen, sum) = (all.iter().filter(|count| **count > 0).count(), all.iter().sum::<u64>());
        let fewest = all.iter().min().copied().unwrap_or(0);
        let _ = write!(text, "\n{title}: {seen} of 81 pairs, {sum} in all, {fewest} of the rarest");
        for from in Cell::all() {
            let _ = write!(text, "\n  {:<17}", from.to_string());
            Cell::all().for_each(|to| text += &format!(" {:>6}", count(from, to)));
        }
    }
    text
}
