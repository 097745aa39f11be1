//! What is to be so whatever the seed, in a cluster that nothing disturbs but what is written here.

use policy::{Cell, Mechanism};
use wire::MergeFlags;

use super::fault::Fault;
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
