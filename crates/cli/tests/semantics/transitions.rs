//! Policies that are changed.

use std::fmt::Write as _;
use std::path::Path;

use policy::{Cell, Composition, Consistency, Policy, Transition};

use crate::fixture::World;
use crate::tools::{FullStore, TREE, cell, ingest, seen};

/// A table of the document: the steps that a change from the cell of the row to that of the column
/// needs.
fn table(held: bool) -> String {
    let columns: Vec<_> = Cell::all().map(|cell| cell.to_string()).collect();
    let mut text = format!("| from \\ to | {} |\n|---{}|\n", columns.join(" | "), "|---".repeat(9));
    for from in Cell::all() {
        if held && from.consistency == Consistency::Strong {
            continue;
        }
        let _ = write!(text, "| {from} |");
        for to in Cell::all() {
            let [before, after] = [from, to].map(Policy::of_cell);
            let Transition { persist, merge, store } = Transition::between(&before, &after, held);
            let steps =
                [(persist != Composition::Nothing, "persist"), (merge, "merge"), (store, "store")];
            let steps = steps.into_iter().filter(|(needed, _)| *needed && from != to);
            let steps: Vec<_> = steps.map(|(_, step)| step).collect();
            let _ = write!(text, " {} |", steps.join(", "));
        }
        text.push('\n');
    }
    text.replace("|  |", "| |").replace("|  |", "| |")
}

#[test]
fn a_change_takes_the_steps_that_the_tables_say() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/promises/changes.md");
    let document = std::fs::read_to_string(document).unwrap();
    for held in [true, false] {
        let table = table(held);
        assert!(
            document.contains(&table),
            "docs/promises/changes.md has another table than\n{table}"
        );
    }
}

#[test]
fn a_change_that_fails_leaves_the_old_policy() {
    let world = World::new();
    ingest(&world, "invisible-local", "/job");
    let full = FullStore::new(&world);
    world.run(&["policy", "set", "/job", "weak-global"]).refused(&["journal/client/", "EIO"]);
    for _ in 0..2 {
        assert_eq!(cell(&world, "/job"), "invisible-local");
        assert_eq!(seen(&world, "/job"), [""; 0]);
        world.crash();
    }
    drop(full);
    world.run(&["policy", "set", "/job", "weak-global"]).done();
    assert_eq!(cell(&world, "/job"), "weak-global");
    world.run(&["merge", "/job"]).done();
    assert_eq!(seen(&world, "/job"), TREE);
}
