//! Chooses the subtrees that leave: from the roots of the rank's subtrees downwards.
//!
//! Policies decide the load for each rank, and choose among the fragments and subtrees of one
//! directory; the walk over the namespace is the same for all policies. A subtree is only divided
//! if it is too popular to be sent whole, so directories that are used together stay together.
//!
//! Invariant: no unit is sent twice, no immovable unit is sent, and no sent unit is inside another
//! sent unit.

use types::{DirFragId, Rank};

use crate::selector::{self, Candidate, Selector};
use crate::{BalancerSettings, BalancerView, Fault};

/// A subtree that is to be moved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Export {
    /// Its place in [`BalancerView::units`].
    pub unit: usize,
    /// The fragment at its top.
    pub id: DirFragId,
    /// Where it goes.
    pub to: Rank,
    /// Its load by the policy's `metaload`.
    pub load: f64,
    /// Inodes that move with it.
    pub inodes: u64,
    /// The selector that chose the unit; None for a unit that goes to its pin.
    pub selector: Option<Selector>,
}

/// The result of a walk.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Selection {
    pub(crate) exports: Vec<Export>,
    /// Too popular to be sent, and nothing below that could be sent instead: dividing the directory
    /// into more fragments would help.
    pub(crate) indivisible: Vec<DirFragId>,
}

/// Beside a unit that is too popular, units with less than this share of the target stay: many
/// small moves would not help.
const TINY_SHARE: f64 = 0.01;

/// A target that is this nearly reached is reached.
const CLOSE_ENOUGH: f64 = 1e-9;

/// A walk over the units of a view.
pub(crate) struct Walk<'a> {
    view: &'a BalancerView,
    settings: &'a BalancerSettings,
    selectors: &'a [Selector],
    children: Vec<Vec<usize>>,
    /// Loads, as far as they were asked for.
    loads: Vec<Option<f64>>,
    /// The sent part of a unit: a divided unit is not sent any more.
    gone: Vec<Option<f64>>,
    /// Sent or pinned, or part of something that was sent.
    closed: Vec<bool>,
    found: Selection,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(
        view: &'a BalancerView,
        settings: &'a BalancerSettings,
        selectors: &'a [Selector],
    ) -> Self {
        let mut children = vec![Vec::new(); view.units.len()];
        for (at, unit) in view.units.iter().enumerate() {
            if let Some(siblings) = unit.parent.and_then(|parent| children.get_mut(parent)) {
                siblings.push(at);
            }
        }
        let count = view.units.len();
        let (loads, gone, closed) = (vec![None; count], vec![None; count], vec![false; count]);
        Self {
            view,
            settings,
            selectors,
            children,
            loads,
            gone,
            closed,
            found: Selection::default(),
        }
    }

    /// Sends units that are pinned to other ranks, and keeps units that are pinned here. The
    /// innermost pin holds.
    pub(crate) fn pins(&mut self, load: &mut Load<'_>) -> Result<(), Fault> {
        let pinned = self.view.units.iter().enumerate().rev();
        for (at, pin) in pinned.filter_map(|(at, unit)| unit.pin.map(|pin| (at, pin))) {
            let elsewhere = pin != self.view.whoami && usize::from(pin.0) < self.view.ranks.len();
            if elsewhere && self.may_move(at) {
                let load = self.load(at, load)?;
                self.send(at, pin, load, None);
            } else {
                self.take(at, 0.0);
            }
        }
        Ok(())
    }

    /// Sends about `target` to one rank.
    pub(crate) fn fill(&mut self, to: Rank, target: f64, load: &mut Load<'_>) -> Result<(), Fault> {
        if self.selectors.contains(&Selector::Hash) {
            return self.scatter(to, load);
        }
        let mut missing = target * self.settings.need_min;
        let enough = missing * CLOSE_ENOUGH;
        let mut popular: Vec<Candidate> = Vec::new();
        let mut tiny: Vec<Candidate> = Vec::new();
        let mut level: Vec<usize> =
            (0..self.view.units.len()).filter(|at| self.parent(*at).is_none()).collect();
        loop {
            let listed = self.candidates(&level, load)?;
            let most = missing * self.settings.need_max;
            let (fits, too_popular): (Vec<_>, Vec<_>) =
                listed.into_iter().partition(|c| c.load <= most);
            let is_tiny = |c: &Candidate| !too_popular.is_empty() && c.load < missing * TINY_SHARE;
            let (small, fits): (Vec<_>, Vec<_>) = fits.into_iter().partition(is_tiny);
            tiny.extend(small);
            popular.extend(too_popular);
            missing -= self.send_some(&fits, to, missing);
            if missing <= enough {
                return Ok(());
            }
            popular.sort_by(|a, b| a.load.total_cmp(&b.load));
            let Some(next) = popular.pop() else { break };
            level = self.children.get(next.unit).cloned().unwrap_or_default();
            let id = self.view.units.get(next.unit).map(|unit| unit.id);
            if level.is_empty()
                && let Some(id) = id
                && !self.found.indivisible.contains(&id)
            {
                self.found.indivisible.push(id);
            }
        }
        tiny.retain(|c| !self.is_closed(c.unit));
        self.send_some(&tiny, to, missing);
        Ok(())
    }

    pub(crate) fn found(self) -> Selection {
        self.found
    }

    /// Everything that cannot be divided goes where its hash says.
    fn scatter(&mut self, to: Rank, load: &mut Load<'_>) -> Result<(), Fault> {
        for at in 0..self.view.units.len() {
            let leaf = self.children.get(at).is_some_and(Vec::is_empty);
            let Some(id) = self.view.units.get(at).map(|unit| unit.id) else { continue };
            let here = selector::home(id, self.view.ranks.len()) == usize::from(to.0);
            if leaf && here && !self.is_closed(at) && self.may_move(at) {
                let load = self.load(at, load)?;
                self.send(at, to, load, Some(Selector::Hash));
            }
        }
        Ok(())
    }

    /// The units of a level that may be sent or opened. An immovable or divided unit is opened at
    /// once: its children compete with its neighbours.
    fn candidates(
        &mut self,
        level: &[usize],
        load: &mut Load<'_>,
    ) -> Result<Vec<Candidate>, Fault> {
        let mut listed = Vec::with_capacity(level.len());
        let mut rest: Vec<usize> = level.iter().rev().copied().collect();
        while let Some(unit) = rest.pop() {
            if self.is_closed(unit) {
                continue;
            }
            if !self.may_move(unit) {
                rest.extend(self.children.get(unit).into_iter().flatten().rev());
                continue;
            }
            let load = self.load(unit, load)?;
            if load > 0.0 {
                listed.push(Candidate { unit, load });
            }
        }
        Ok(listed)
    }

    fn send_some(&mut self, listed: &[Candidate], to: Rank, target: f64) -> f64 {
        if listed.is_empty() {
            return 0.0;
        }
        let Some(choice) = selector::closest(self.selectors, listed, target) else { return 0.0 };
        for candidate in &choice.sent {
            self.send(candidate.unit, to, candidate.load, Some(choice.selector));
        }
        choice.sum
    }

    fn send(&mut self, unit: usize, to: Rank, load: f64, selector: Option<Selector>) {
        let Some(sent) = self.view.units.get(unit) else { return };
        let (id, inodes) = (sent.id, sent.inodes);
        self.found.exports.push(Export { unit, id, to, load, inodes, selector });
        self.take(unit, load);
    }

    /// Takes a unit and all below out of the walk. The units above it count as divided from now on.
    fn take(&mut self, unit: usize, load: f64) {
        let mut above = self.parent(unit);
        while let Some(at) = above {
            if let Some(gone) = self.gone.get_mut(at) {
                *gone = Some(gone.unwrap_or_default() + load);
            }
            above = self.parent(at);
        }
        let mut below = vec![unit];
        while let Some(at) = below.pop() {
            if let Some(closed) = self.closed.get_mut(at) {
                *closed = true;
            }
            below.extend(self.children.get(at).into_iter().flatten());
        }
    }

    fn load(&mut self, unit: usize, load: &mut Load<'_>) -> Result<f64, Fault> {
        let known = self.loads.get(unit).copied().flatten();
        let value = match (known, self.view.units.get(unit)) {
            (Some(known), _) => known,
            (None, Some(unit)) => load(&unit.counts)?,
            (None, None) => 0.0,
        };
        if let Some(known) = self.loads.get_mut(unit) {
            *known = Some(value);
        }
        let gone = self.gone.get(unit).copied().flatten().unwrap_or_default();
        Ok((value - gone).max(0.0))
    }

    fn may_move(&self, unit: usize) -> bool {
        let whole = self.gone.get(unit).is_some_and(Option::is_none);
        whole && self.view.units.get(unit).is_some_and(|unit| unit.movable)
    }

    fn is_closed(&self, unit: usize) -> bool {
        self.closed.get(unit).copied().unwrap_or(true)
    }

    fn parent(&self, unit: usize) -> Option<usize> {
        self.view.units.get(unit).and_then(|unit| unit.parent)
    }
}

/// The policy's `metaload`.
pub(crate) type Load<'a> = dyn FnMut(&crate::Counts) -> Result<f64, Fault> + 'a;

#[cfg(test)]
mod tests;
