//! The namespace of a simulation: directories, their fragments, and their ranks.

use types::{DirFragId, Frag, Ino, Rank};

use super::queue::{Use, Visit, Work};
use super::recorded::Load;
use super::workload::Activity;
use super::{Setup, count};
use crate::{Counts, HitKind};
use types::rng::mix;

/// A fragment.
#[derive(Clone, Debug)]
pub(super) struct SimulatedFragment {
    pub(super) id: DirFragId,
    pub(super) dir: usize,
    pub(super) rank: usize,
    /// The hits in the fragment, without those below.
    pub(super) counts: Counts,
    pub(super) entries: f64,
    frozen_until: f64,
}

/// A directory.
#[derive(Clone, Debug)]
pub(super) struct Dir {
    pub(super) parent: Option<usize>,
    pub(super) parts: Vec<usize>,
    pub(super) pin: Option<Rank>,
}

/// See the module documentation. Parents come before their children.
#[derive(Clone, Debug)]
pub(super) struct SimulatedNamespace {
    pub(super) dirs: Vec<Dir>,
    pub(super) parts: Vec<SimulatedFragment>,
}

/// Fragments are not divided further than this.
const BITS_MAX: u8 = 9;

impl SimulatedNamespace {
    pub(super) fn new(setup: &Setup, load: Load<'_>) -> Self {
        let mut world = Self { dirs: Vec::new(), parts: Vec::new() };
        match load {
            Load::Made(workload) => {
                workload.tree(setup.clients).into_iter().for_each(|parent| world.add(parent));
            }
            Load::Recorded(recording, _) => {
                for dir in recording.dirs() {
                    let part = world.parts.len();
                    world.add(dir.parent);
                    world.parts[part].entries += dir.entries;
                    let pin = dir.pin.filter(|pin| pin.0 < setup.ranks);
                    world.dirs[part].pin = pin;
                    // Where an administrator wanted it, it was from the start.
                    world.parts[part].rank = pin.map_or_else(
                        || dir.parent.map_or(0, |parent| world.parts[parent].rank),
                        |pin| usize::from(pin.0),
                    );
                }
            }
        }
        if setup.pinned {
            let below_root = |dir: &&mut Dir| dir.parent == Some(0);
            for (at, dir) in world.dirs.iter_mut().filter(below_root).enumerate() {
                let rank = at % usize::from(setup.ranks);
                dir.pin = u16::try_from(rank).ok().map(Rank);
            }
        }
        world
    }

    fn add(&mut self, parent: Option<usize>) {
        let (dir, part) = (self.dirs.len(), self.parts.len());
        let id = DirFragId { ino: Ino(dir as u64 + 1), frag: Frag::WHOLE };
        let counts = Counts::default();
        self.parts.push(SimulatedFragment {
            id,
            dir,
            rank: 0,
            counts,
            entries: 1.0,
            frozen_until: 0.0,
        });
        self.dirs.push(Dir { parent, parts: vec![part], pin: None });
    }

    /// The fragment that a directory's name stands in.
    pub(super) fn above(&self, part: usize) -> Option<usize> {
        let dir = self.parts[part].dir;
        let parent = &self.dirs[self.dirs[dir].parent?];
        let hash = usize::try_from(mix(dir as u64) >> 33).unwrap_or(0);
        parent.parts.get(hash % parent.parts.len().max(1)).copied()
    }

    /// Splits fragments with more than `entries`.
    pub(super) fn split(&mut self, entries: f64) {
        for at in 0..self.parts.len() {
            let old = self.parts[at].clone();
            let bits = old.id.frag.bits + 3;
            if old.entries <= entries || bits > BITS_MAX {
                continue;
            }
            let piece = |number: u32| SimulatedFragment {
                id: DirFragId {
                    frag: Frag {
                        bits,
                        value: old.id.frag.value | (number << (32 - u32::from(bits))),
                    },
                    ..old.id
                },
                counts: old.counts.times(0.125),
                entries: old.entries / 8.0,
                ..old.clone()
            };
            self.parts[at] = piece(0);
            for number in 1..8 {
                self.dirs[old.dir].parts.push(self.parts.len());
                self.parts.push(piece(number));
            }
        }
    }

    /// The work of a client in a second, on the present ranks.
    pub(super) fn work(&self, setup: &Setup, load: Load<'_>, client: u16, second: u32) -> Work {
        let Activity { dirs, kinds, each, traverses, think_seconds, weight } = match load {
            Load::Made(workload) => workload.activity(setup, client, second),
            Load::Recorded(recording, times) => recording.activity(setup, second, times),
        };
        let mut work = Work { think_seconds, ..Work::default() };
        for (at, (dir, share)) in dirs.into_iter().enumerate() {
            let kinds = each.get(at).copied().unwrap_or(kinds);
            let dir = &self.dirs[dir];
            let share = share / count(dir.parts.len());
            let mut ranks: Vec<usize> =
                dir.parts.iter().map(|part| self.parts[*part].rank).collect();
            ranks.sort_unstable();
            ranks.dedup();
            let sharing = 1.0 + setup.model.shared_share * count(ranks.len().saturating_sub(1));
            for part in &dir.parts {
                let rank = self.parts[*part].rank;
                work.units.push(Use { part: *part, share, kinds });
                visit(
                    &mut work,
                    rank,
                    share,
                    share * weight * sharing * setup.model.request_seconds,
                );
                let above = self.above(*part).map(|above| self.parts[above].rank);
                if let Some(other) = above.filter(|other| *other != rank) {
                    work.forwards += share * traverses;
                    visit(&mut work, other, 0.0, share * traverses * setup.model.forward_seconds);
                }
            }
        }
        work
    }

    pub(super) fn fade(&mut self, left: f64) {
        for part in &mut self.parts {
            part.counts = part.counts.times(left);
        }
    }

    /// Counts requests, and the entries that writes make.
    pub(super) fn count(&mut self, work: &Work, requests: f64) {
        for Use { part, share, kinds } in &work.units {
            let [reads, writes, lists] = kinds;
            let part = &mut self.parts[*part];
            part.counts.add(HitKind::InodeRead, requests * share * reads);
            part.counts.add(HitKind::InodeWrite, requests * share * writes);
            part.counts.add(HitKind::ReadDir, requests * share * lists);
            part.entries += requests * share * writes;
        }
    }

    /// The share of a step in which a client stands still: it waits once it needs a frozen
    /// fragment.
    pub(super) fn frozen_share(&self, work: &Work, requests: f64, now: f64, step: f64) -> f64 {
        let mut going = 1.0;
        for Use { part, share, .. } in &work.units {
            let left = (self.parts[*part].frozen_until - now).clamp(0.0, step) / step;
            if left > 0.0 {
                going *= 1.0 - left * (requests * share).min(1.0);
            }
        }
        1.0 - going
    }

    /// Moves a fragment and everything below it on the same rank. Returns the moved fragments.
    pub(super) fn export(&mut self, part: usize, to: usize) -> Vec<usize> {
        let from = self.parts[part].rank;
        // Parents come before children, and fragments after those they were divided from.
        let mut moved = vec![part];
        loop {
            let joins = |at: &usize| {
                !moved.contains(at)
                    && self.parts[*at].rank == from
                    && self.above(*at).is_some_and(|above| moved.contains(&above))
            };
            let more: Vec<usize> = (0..self.parts.len()).filter(joins).collect();
            if more.is_empty() {
                break;
            }
            moved.extend(more);
        }
        for at in &moved {
            self.parts[*at].rank = to;
        }
        moved
    }

    pub(super) fn freeze(&mut self, parts: &[usize], until: f64) {
        for part in parts {
            self.parts[*part].frozen_until = until;
        }
    }
}

fn visit(work: &mut Work, rank: usize, share: f64, seconds: f64) {
    match work.visits.iter_mut().find(|visit| visit.rank == rank) {
        Some(visit) => {
            visit.share += share;
            visit.seconds += seconds;
        }
        None => work.visits.push(Visit { rank, share, seconds }),
    }
}
