//! The view that a rank gives its policy.

use balancer::{BalancerView, Counts, Metrics, Question, Unit};
use types::{Ino, Map, Moment, Rank, Set, Span};
use wire::MdsState;

use super::load::{number, whole};
use super::{BalanceCx, RankHeartbeat, SILENT_TICKS};

/// Directories that a policy may choose from: the warmest.
const UNITS_MAX: usize = 4096;
/// The cost of moving a subtree for both ends, in seconds of work, before the first move.
const MOVE_SECONDS: f64 = 0.05;

impl BalanceCx<'_> {
    /// The question of this tick.
    pub(super) fn question_now(&mut self, now: Moment) -> Question {
        let own = self.own_metrics(now);
        let skipped = self.why_skip(now);
        let units = self.units(now);
        let counts = units.iter().filter(|unit| unit.parent.is_none());
        let auth = counts.fold(Counts::default(), |sum, unit| sum.plus(&unit.counts));
        let all = auth.plus(&self.balance.foreign.at(now, self.settings.balance_half_life));
        let ranks =
            (0..self.rank_count()).map(|rank| match self.balance.heartbeats.get(&Rank(rank)) {
                _ if Rank(rank) == self.rank => own,
                Some(RankHeartbeat { beat, at, .. }) => {
                    Metrics { age_seconds: seconds(now.since(*at)), ..beat.metrics }
                }
                None => Metrics::default(),
            });
        let view = BalancerView {
            whoami: self.rank,
            ranks: ranks.collect(),
            auth,
            all,
            units,
            tick_seconds: seconds(self.settings.balance_interval),
            move_seconds: self.balance.moves.mean_seconds().unwrap_or(MOVE_SECONDS),
        };
        let (version, policy) = self.balance.versions.current();
        let (policy, state) = (policy.clone(), self.balance.state.clone());
        Question { version, policy, view, state, skipped }
    }

    /// How many ranks there are: those of the map, and this one.
    pub(super) fn rank_count(&self) -> u16 {
        let known = self.map.into_iter().flat_map(|map| &map.mds).map(|entry| entry.rank.0 + 1);
        known.chain([self.rank.0 + 1]).max().unwrap_or(1)
    }

    /// The rank's figures about itself; the policy computes the loads.
    fn own_metrics(&mut self, now: Moment) -> Metrics {
        let last = (self.counters.requests, self.balance.vitals, now);
        let before = std::mem::replace(&mut self.balance.before, last);
        let requests = number(last.0 - before.0);
        let (vitals, earlier) = (last.1, before.1);
        let passed = seconds(now.since(before.2)).max(1e-3);
        // The process's CPU limit may have changed since the last tick.
        let busy = (vitals.cpu_seconds - earlier.cpu_seconds).clamp(0.0, passed);
        let found = vitals.found.saturating_sub(earlier.found);
        let looks = vitals.looks.saturating_sub(earlier.looks);
        Metrics {
            auth: 0.0,
            all: 0.0,
            cpu_percent: busy / passed * 100.0,
            mem_percent: vitals.mem_percent,
            // Of those that were there one is being served.
            queue: number(found.saturating_sub(looks)) / number(looks.max(1)),
            requests_per_second: requests / passed,
            request_seconds: if requests > 0.0 { busy / requests } else { 0.0 },
            inodes: number(self.namespace.inodes()),
            age_seconds: 0.0,
        }
    }

    /// Why nothing can be decided now, if so.
    fn why_skip(&self, now: Moment) -> Option<String> {
        let map = self.map?;
        let state = |rank| map.mds.iter().find(|entry| entry.rank == rank).map(|entry| entry.state);
        let silent = Span(self.settings.balance_interval.0.saturating_mul(SILENT_TICKS));
        let version = self.balance.versions.current().0;
        if let Some(why) = self.policy_not_ready() {
            return Some(why);
        }
        if self.authority.is_moving()
            || !self.balance.moves.is_empty()
            || self.balance.storing.is_some()
        {
            return Some("what was decided before is still being carried out".to_owned());
        }
        let quiet = seconds(now.since(self.authority.went_at.unwrap_or_default()));
        if !balancer::is_settled(quiet, seconds(self.settings.balance_interval)) {
            return Some("what moved a moment ago is not in the loads yet".to_owned());
        }
        for rank in (0..self.rank_count()).map(Rank).filter(|rank| *rank != self.rank) {
            match state(rank) {
                Some(MdsState::Active) => {}
                Some(state) => return Some(format!("{rank} is {}", state.word())),
                None => return Some(format!("there is no {rank}")),
            }
            let Some(heartbeat) = self.balance.heartbeats.get(&rank) else {
                return Some(format!("nothing was heard of {rank} yet"));
            };
            if now.since(heartbeat.at) >= silent {
                let silent = seconds(now.since(heartbeat.at));
                return Some(format!("nothing was heard of {rank} for {silent:.1} s"));
            }
            if heartbeat.beat.policy != version {
                let theirs = heartbeat.beat.policy;
                return Some(format!(
                    "{rank} was last heard of with version {theirs} of the policy, and this is \
                     version {version}"
                ));
            }
        }
        None
    }

    /// The warm directories that this rank serves, each after its parent. A parent is at least as
    /// warm as its children, so none is without it.
    fn units(&self, now: Moment) -> Vec<Unit> {
        let plain = self.authority.is_plain();
        let mut warm: Vec<(Ino, Counts, usize)> = Vec::new();
        for (id, counts) in self.balance.table.all(now) {
            let here = self.namespace.is_dir(id.ino)
                && (plain || self.authority.is_served_here(self.namespace, id.ino));
            if here {
                warm.push((id.ino, counts, self.namespace.ancestors(id.ino).count()));
            }
        }
        warm.sort_by(|a, b| {
            b.1.sum().total_cmp(&a.1.sum()).then(a.2.cmp(&b.2)).then(a.0.cmp(&b.0))
        });
        warm.truncate(UNITS_MAX);
        warm.sort_by_key(|(ino, _, depth)| (*depth, *ino));
        let places: Map<Ino, usize> = warm.iter().map(|unit| unit.0).zip(0..).collect();
        let fixed = self.fixed();
        let unit = |(ino, counts, _): &(Ino, Counts, usize)| {
            let above = self.namespace.ancestors(*ino).skip(1);
            let parent = above.into_iter().find_map(|above| places.get(&above).copied());
            let pin = self.authority.pin_of(*ino);
            Unit {
                id: whole(*ino),
                parent,
                counts: *counts,
                inodes: self.namespace.dirs().entries_of(*ino),
                movable: self.may_leave(*ino, &fixed),
                pin,
            }
        };
        let mut units: Vec<Unit> = warm.iter().map(unit).collect();
        // Inodes below, the inner ones first.
        for at in (0..units.len()).rev() {
            if let Some(parent) = units[at].parent {
                debug_assert!(parent < at, "a directory comes behind its parent");
                units[parent].inodes += units[at].inodes;
            }
        }
        units
    }

    /// Directories that cannot move because of something in them.
    fn fixed(&self) -> Set<Ino> {
        let decoupled = self.tables.decoupled.keys().copied();
        let split = self.authority.split_dirs();
        let roots: Vec<Ino> = self.authority.named_roots().chain(decoupled).chain(split).collect();
        roots.into_iter().flat_map(|root| self.namespace.ancestors(root)).collect()
    }

    /// Whether a directory may be given to another rank, as far as can be said quickly: the rest is
    /// found out when that begins.
    fn may_leave(&self, ino: Ino, fixed: &Set<Ino>) -> bool {
        let refused = self.balance.refused.get(&ino);
        if ino == Ino::ROOT || fixed.contains(&ino) || refused.is_some() {
            return false;
        }
        let decoupled = &self.tables.decoupled;
        if !decoupled.is_empty()
            && self.namespace.ancestors(ino).any(|above| decoupled.contains_key(&above))
        {
            return false;
        }
        // Directories in a fragment stay there, except fragments of fragments.
        let whole = self.authority.whole_of(ino).unwrap_or(ino);
        if self.namespace.ancestors(whole).skip(1).any(|above| self.authority.is_part(above)) {
            return false;
        }
        self.rank == Rank(0) || self.authority.is_own_root(ino)
    }
}

#[allow(clippy::cast_precision_loss, reason = "spans of days fit 52 bits of nanoseconds")]
pub(super) fn seconds(span: Span) -> f64 {
    span.0 as f64 / 1e9
}
