//! What is to be so whatever the seed, in a cluster that nothing disturbs but what is written here.

use policy::{Cell, Mechanism};
use types::{Cred, RenameFlags};
use wire::MergeFlags;

use super::fault::{Fault, Fuse};
use super::ledger::Shown;
use super::{Cells, Done};

/// A process that has decoupled the first subtree under a policy of this name.
fn decoupled(seed: u64, cell: &str) -> Done<(Cells, usize)> {
    let mut cells = Cells::new(seed, false);
    (cells.world.disk.errors_percent, cells.world.plan.faults.errors_percent) = (0, 0);
    let found = Cell::all().find(|known| known.to_string() == cell);
    let found = found.expect("a cell of this name");
    cells.boot()?;
    cells.decouple(found)?;
    let client = cells.client()?;
    Ok((cells, client))
}

/// A journal is merged by value, then from its object, and the server dies: what the first merge
/// did is in its memory only, and the second one promises that it survives.
fn merged_twice(seed: u64, first: u64, then: u64) -> Done<()> {
    let (mut cells, client) = decoupled(seed, "invisible-global")?;
    cells.append(first)?;
    let journal = cells.holding()?.journal();
    cells.send_journal(client, (&journal, "", true), MergeFlags::default())?;
    cells.append(then)?;
    cells.complete()?;
    let holding = cells.holding()?;
    assert!(holding.holds(Mechanism::GlobalPersist));
    let object = holding.object_from(holding.inner.header().first_seq);
    let journal = holding.journal();
    cells.send_journal(client, (&journal, &object, false), MergeFlags::default())?;
    cells.strike(Fault::Server);
    cells.check("after the crash");
    assert_eq!(cells.world.violation, None, "seed {seed:#x}");
    let shown = cells.job().ledger.updates.iter().filter(|it| it.shown == Shown::Stable).count();
    assert_eq!(shown as u64, first + then, "seed {seed:#x}");
    Ok(())
}

#[test]
fn what_is_merged_from_an_object_after_a_merge_without_one_survives_the_server() {
    for seed in 0..8 {
        assert_eq!(merged_twice(seed, 5, 0), Ok(()), "seed {seed:#x}");
        assert_eq!(merged_twice(seed, 4, 5), Ok(()), "seed {seed:#x}");
    }
}

/// A journal that begins with something else than a create is merged, and the server dies after some
/// steps: all of it is there, or nothing.
fn renamed_first(seed: u64, steps: u64) -> Done<()> {
    let (mut cells, _) = decoupled(seed, "weak-global")?;
    cells.append(1)?;
    // The client looks at what it made before that is merged, and so still sees it then.
    cells.holding()?.inner.view();
    cells.complete()?;
    let (time, root) = (cells.world.clock().time, cells.job().root);
    let inner = &mut cells.holding()?.inner;
    let (from, to) = ((root, &b"u0"[..]), (root, &b"moved"[..]));
    let renamed = inner.rename(&Cred::root(), from, to, RenameFlags::default(), time);
    assert_eq!((renamed, inner.events()), (Ok(()), 1), "seed {seed:#x}");
    cells.append(7)?;
    cells.fuse = Some(Fuse { steps, fault: Fault::Server });
    // Its answer may be lost.
    let _ = cells.complete();
    cells.fuse = None;
    cells.calm_down()?;
    let seen = cells.listing(0);
    let is_there = |name: &str| seen.keys().any(|(_, known)| known == name);
    let after = (0..8).map(|at| if at == 0 { "moved".into() } else { format!("u{at}") });
    let count = after.filter(|name| is_there(name)).count();
    assert!(
        matches!((count, is_there("u0")), (0, true) | (8, false)),
        "seed {seed:#x}, after {steps} steps: {seen:?}"
    );
    Ok(())
}

#[test]
fn a_merge_that_begins_with_something_else_than_a_create_is_all_there_or_nothing() {
    for seed in 0..8 {
        for steps in 0..50 {
            assert_eq!(renamed_first(seed, steps), Ok(()), "seed {seed:#x}, {steps} steps");
        }
    }
}
