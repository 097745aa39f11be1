//! Ticks of the ranks: heartbeats out, a view, a decision, exports.

use types::Rank;
use types::rng::Rng;

use super::{Cluster, STEP_SECONDS, count};
use crate::{BalancerView, Counts, Decision, Metrics, Unit, decide_until, heartbeat, is_settled};

/// A unit with fewer hits than this is not offered for moving.
const COLD: f64 = 0.01;

impl Cluster<'_> {
    /// Lets every rank decide whose time has come.
    pub(super) fn tick(&mut self, now: f64, second: u32) {
        let every = self.setup.model.tick_seconds;
        for rank in 0..self.ranks.len() {
            let offset = self.ranks[rank].offset_seconds;
            let due = |at: f64| ((at - offset) / every).floor();
            if now >= offset && due(now) > due(now - STEP_SECONDS) {
                self.beat(rank, now);
                let (view, parts) = self.view(rank, now);
                if !is_settled(now - self.ranks[rank].moved_at, every) {
                    continue;
                }
                let state = self.ranks[rank].state.clone();
                let decision = decide_until(self.policy, &view, &state, self.expired);
                self.note(second, rank, &decision);
                self.execute(rank, &decision, &parts, now);
                self.ranks[rank].state = decision.state;
            }
        }
    }

    /// The rank sends its heartbeat, which is its state for all ranks until the next one.
    fn beat(&mut self, rank: usize, now: f64) {
        let noise = self.setup.model.noise;
        let auth = self.world.parts.iter().filter(|part| part.rank == rank);
        let auth = auth.fold(Counts::default(), |sum, part| sum.plus(&part.counts));
        let (auth, all) = heartbeat::loads(self.policy, &auth, &auth, &crate::Expired::never());
        let seconds = (now - self.ranks[rank].last_metrics_at).max(STEP_SECONDS);
        let busy = self.queues.busy(rank) * 100.0 * about_one(&mut self.rng, noise);
        let queue = self.queues.length(rank) * about_one(&mut self.rng, noise);
        let state = &mut self.ranks[rank];
        let requests = state.requests.max(1e-9);
        state.last_metrics = Metrics {
            auth,
            all,
            cpu_percent: busy.clamp(0.0, 100.0),
            mem_percent: 10.0,
            queue,
            requests_per_second: state.requests / seconds,
            request_seconds: (state.busy_seconds / requests).min(1.0),
            inodes: 0.0,
            age_seconds: 0.0,
        };
        state.last_metrics_at = now;
        (state.requests, state.busy_seconds) = (0.0, 0.0);
    }

    /// The view of a rank, and the fragment of each of its units.
    fn view(&self, rank: usize, now: f64) -> (BalancerView, Vec<usize>) {
        let parts = &self.world.parts;
        // Counts include the fragments below, as far as the rank has all that lies between.
        let mut nested: Vec<Counts> = parts.iter().map(|part| part.counts).collect();
        let mut inodes: Vec<f64> = parts.iter().map(|part| part.entries).collect();
        for at in self.inner_first() {
            let Some(above) = self.world.above(at) else { continue };
            if parts[above].rank == parts[at].rank {
                nested[above] = nested[above].plus(&nested[at]);
                inodes[above] += inodes[at];
            }
        }
        let mut outer_first = self.inner_first();
        outer_first.reverse();
        let mine = outer_first.into_iter().filter(|at| parts[*at].rank == rank);
        let mine: Vec<usize> =
            mine.filter(|at| nested[*at].sum() >= COLD || parts[*at].dir == 0).collect();
        let mut place = vec![None; parts.len()];
        for (number, at) in mine.iter().enumerate() {
            place[*at] = Some(number);
        }
        let unit = |at: &usize| Unit {
            id: parts[*at].id,
            parent: self.world.above(*at).and_then(|above| place[above]),
            counts: nested[*at],
            inodes: whole(inodes[*at]),
            movable: parts[*at].dir != 0,
            pin: self.world.dirs[parts[*at].dir].pin,
        };
        let auth = mine.iter().fold(Counts::default(), |sum, at| sum.plus(&parts[*at].counts));
        let last_metrics = |other: &super::RankState| Metrics {
            age_seconds: now - other.last_metrics_at,
            ..other.last_metrics
        };
        let view = BalancerView {
            whoami: Rank(u16::try_from(rank).unwrap_or(u16::MAX)),
            ranks: self.ranks.iter().map(last_metrics).collect(),
            auth,
            all: auth,
            units: mine.iter().map(unit).collect(),
            tick_seconds: self.setup.model.tick_seconds,
            move_seconds: self.setup.model.move_seconds,
        };
        (view, mine)
    }

    /// Fragments with those of deeper directories first.
    fn inner_first(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.world.parts.len()).collect();
        // Directories are numbered after their parents.
        order.sort_by_key(|at| std::cmp::Reverse((self.world.parts[*at].dir, *at)));
        order
    }

    fn execute(&mut self, rank: usize, decision: &Decision, parts: &[usize], now: f64) {
        let model = self.setup.model;
        for export in &decision.exports {
            let (Some(part), to) = (parts.get(export.unit), usize::from(export.to.0)) else {
                continue;
            };
            let moved = self.world.export(*part, to);
            let inodes: f64 = moved.iter().map(|at| self.world.parts[*at].entries).sum();
            let freeze = model.freeze_seconds + inodes * model.freeze_inode_seconds;
            // From the next step on, which is the first that can notice.
            self.world.freeze(&moved, now + STEP_SECONDS + freeze);
            let sessions = self.sessions(&moved);
            let cost = model.move_seconds
                + inodes * model.move_inode_seconds
                + count(sessions) * model.flush_seconds;
            for end in [rank, to] {
                self.ranks[end].debt_seconds += cost;
            }
            self.ranks[rank].moved_at = now + STEP_SECONDS + freeze;
            self.report.migrations += 1;
            self.report.inodes_moved += inodes;
            self.report.sessions_flushed += sessions as u64;
            // Each of them learns by a forward where it is now.
            self.forwarded += count(sessions);
        }
    }

    /// How many clients use one of these fragments now.
    fn sessions(&self, moved: &[usize]) -> usize {
        let uses = |client: &usize| {
            self.users
                .get(*client)
                .is_some_and(|parts| parts.iter().any(|part| moved.contains(part)))
        };
        (0..usize::from(self.setup.clients)).filter(uses).count()
    }
}

/// 1, give or take up to `share`.
fn about_one(rng: &mut Rng, share: f64) -> f64 {
    1.0 + share * (2.0 * rng.unit() - 1.0)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count of entries, never negative; the cast saturates"
)]
fn whole(count: f64) -> u64 {
    count as u64
}
