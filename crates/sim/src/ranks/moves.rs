//! Directories are moved, split and joined, while clients work in them.

use types::{Frag, Ino, Rank};

use super::script::Script;
use super::{Event, MS, Ranks};
use crate::call::CallKind;

impl Ranks {
    /// Moves a directory to some rank, if the moving client is idle.
    pub(super) fn begin_move(&mut self) {
        if self.workers[0].finished {
            return;
        }
        if self.workers[0].is_idle() {
            let mut dirs = self.workers[0].dirs.clone();
            if self.world.rng.percent(30) {
                dirs.extend(self.tree.bases.iter().copied());
            }
            // One is in another: both move often.
            dirs.extend(self.inner().into_iter().chain(self.inner()));
            let dir = self.world.rng.pick(&dirs);
            let rank = Rank(self.world.rng.index(self.world.servers.len()) as u16);
            let parts = self.world.clients[0].router.fragments().parts(dir);
            let todo = self.world.rng.below(10);
            let (dir, scripts) = match (todo, parts) {
                (0, Some(parts)) => (dir, put_together(dir, parts)),
                (1..=7, Some(parts)) => self.move_part(parts, rank),
                // The decoupled directory, and the one that it is in, stay in one piece.
                (0..=3, None) if !self.is_about_job(dir) && !self.tree.bases.contains(&dir) => {
                    (dir, vec![Script::split(dir), Script::stat(dir)])
                }
                (8, _) => (dir, vec![Script::stat(dir)]),
                // A directory that is not pinned can go for a file with several names.
                _ if self.links && self.world.rng.percent(50) => {
                    (dir, vec![Script::export(dir, rank), Script::export(dir, Rank::NONE)])
                }
                _ => (dir, vec![Script::export(dir, rank)]),
            };
            if self.world.rng.percent(50) && self.is_faulty() {
                // One of the two sides dies on the way.
                let server = if self.world.rng.percent(50) {
                    rank
                } else {
                    self.world.clients[0].router.place(dir)
                };
                let after = self.world.rng.between(1, 25);
                self.world.servers[usize::from(server.0)].doomed = Some(after);
            }
            self.workers[0].script.extend(scripts);
            self.world.schedule(1, Event::Turn(0));
        }
        let after = self.world.rng.between(5, 150) * MS;
        self.world.schedule(after, Event::Move);
    }

    /// Whether a fragment was to move that is gone since that was planned.
    pub(super) fn is_part_gone(&self, script: &Script) -> bool {
        let dir = match script.call {
            CallKind::Export { dir, .. } | CallKind::Split { dir } | CallKind::Join { dir } => dir,
            CallKind::GetAttr { ino } => ino,
            _ => return false,
        };
        self.top(0, dir).is_none() && self.inner() != Some(dir)
    }

    /// A fragment moves, or is split again, or is joined.
    fn move_part(&mut self, parts: [Ino; Frag::SPLIT_WAYS], rank: Rank) -> (Ino, Vec<Script>) {
        let part = self.world.rng.pick(&parts);
        let todo = self.world.rng.below(10);
        match (todo, self.world.clients[0].router.fragments().parts(part)) {
            (0..=1, Some(inner)) => (part, put_together(part, inner)),
            (2..=8, Some(inner)) => {
                let inner = self.world.rng.pick(&inner);
                (inner, vec![Script::export(inner, rank)])
            }
            (0..=2, None) => {
                let home = Script::export(part, Rank(0));
                (part, vec![home, Script::split(part), Script::stat(part)])
            }
            (3, None) => (part, vec![Script::stat(part)]),
            _ => (part, vec![Script::export(part, rank)]),
        }
    }
}

fn put_together(dir: Ino, parts: [Ino; Frag::SPLIT_WAYS]) -> Vec<Script> {
    let home = parts.map(|part| Script::export(part, Rank(0)));
    home.into_iter().chain([CallKind::Join { dir }.into()]).collect()
}
