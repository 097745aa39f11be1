//! What simulations did: how often each cell of Table II and each change from one to another
//! occurred, and how often a fault struck.

use std::fmt;

use policy::Cell;

use super::fault::Fault;

/// The number of cells.
const CELLS: usize = 9;

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellTally {
    /// Updates whose mechanisms completed, by cell.
    updates: [u64; CELLS],
    /// Faults that struck a subtree with updates, by cell.
    faults: [[u64; Fault::ALL.len()]; CELLS],
    /// Changes of policy that were begun, from a cell to another.
    changes: [[u64; CELLS]; CELLS],
    /// Those of them that completed, and those that a fault struck before they did.
    completed: [[u64; CELLS]; CELLS],
    struck: [[u64; CELLS]; CELLS],
    /// Updates that Nonvolatile Apply completed for.
    pub nonvolatile: u64,
    /// Directories that merges by reference brought, and such merges that the server refused.
    pub merged_runs: u64,
    /// See `merged_runs`.
    pub refused_runs: u64,
    /// Parts of journals that were merged during a job.
    pub parts: u64,
    /// Comparisons of a subtree with the updates that must and may exist.
    pub comparisons: u64,
}

fn place(cell: Cell) -> usize {
    Cell::all().position(|known| known == cell).unwrap_or(0)
}

impl CellTally {
    pub(super) fn updates(&mut self, cell: Cell, count: usize) {
        self.updates[place(cell)] += count as u64;
    }

    pub(super) fn fault(&mut self, cell: Cell, fault: Fault) {
        let at = Fault::ALL.iter().position(|known| *known == fault).unwrap_or(0);
        self.faults[place(cell)][at] += 1;
    }

    pub(super) fn change(&mut self, from: Cell, to: Cell, (completed, struck): (bool, bool)) {
        let (from, to) = (place(from), place(to));
        self.changes[from][to] += 1;
        self.completed[from][to] += u64::from(completed);
        self.struck[from][to] += u64::from(struck);
    }

    /// Whether updates completed under each of the nine cells, by Nonvolatile Apply, by reference
    /// and in parts, and a fault struck each cell.
    #[must_use]
    pub fn has_every_cell(&self) -> bool {
        let struck = |faults: &[u64; Fault::ALL.len()]| faults.iter().any(|count| *count > 0);
        let updates =
            self.updates.iter().chain([&self.nonvolatile, &self.merged_runs, &self.parts]);
        updates.into_iter().all(|count| *count > 0) && self.faults.iter().all(struck)
    }

    /// Adds the tally of another simulation.
    pub fn add(&mut self, other: &Self) {
        let sum = |all: &mut [u64; CELLS], more: &[u64; CELLS]| {
            all.iter_mut().zip(more).for_each(|(all, more)| *all += more);
        };
        sum(&mut self.updates, &other.updates);
        for (all, more) in self.faults.iter_mut().zip(&other.faults) {
            all.iter_mut().zip(more).for_each(|(all, more)| *all += more);
        }
        for (all, more) in [
            (&mut self.changes, &other.changes),
            (&mut self.completed, &other.completed),
            (&mut self.struck, &other.struck),
        ] {
            all.iter_mut().zip(more).for_each(|(all, more)| sum(all, more));
        }
        self.nonvolatile += other.nonvolatile;
        self.merged_runs += other.merged_runs;
        self.parts += other.parts;
        self.refused_runs += other.refused_runs;
        self.comparisons += other.comparisons;
    }

    fn write_changes(
        f: &mut fmt::Formatter<'_>,
        what: &str,
        all: &[[u64; CELLS]; CELLS],
    ) -> fmt::Result {
        let pairs = || all.iter().flatten();
        let (seen, sum) = (pairs().filter(|count| **count > 0).count(), pairs().sum::<u64>());
        let fewest = pairs().min().copied().unwrap_or(0);
        writeln!(f, "{what}: {seen} of 81 pairs, {sum} in all, {fewest} of the rarest")?;
        for (from, counts) in Cell::all().zip(all) {
            write!(f, "  {:<17}", from.to_string())?;
            counts.iter().try_for_each(|count| write!(f, " {count:>6}"))?;
            writeln!(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for CellTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cells: updates completed;")?;
        Fault::ALL.iter().try_for_each(|fault| write!(f, " {}", fault.name()))?;
        writeln!(f)?;
        for ((cell, updates), faults) in Cell::all().zip(&self.updates).zip(&self.faults) {
            write!(f, "  {:<17} {updates:>8};", cell.to_string())?;
            faults.iter().try_for_each(|count| write!(f, " {count:>6}"))?;
            writeln!(f)?;
        }
        writeln!(f, "  {} of them by nonvolatile apply", self.nonvolatile)?;
        let (runs, refused) = (self.merged_runs, self.refused_runs);
        writeln!(f, "  {runs} directories merged by reference; {refused} such merges refused")?;
        Self::write_changes(f, "changes of policy, from row to column", &self.changes)?;
        Self::write_changes(f, "of these completed", &self.completed)?;
        Self::write_changes(f, "struck by a fault before they did", &self.struck)
    }
}
