//! Clients that rename directories, within a rank and from one to another, into each other and onto
//! each other (F-13).
//!
//! Each has directories of its own, and may put them anywhere, including directories of the other
//! clients. The name of each directory is known after every answer, so a directory that is lost, or
//! is in two places, or below itself, is found.

mod judge;

use std::collections::BTreeMap;

use types::{Errno, Ino, Rank, Result};
use wire::Answer;

use super::job::JOB;
use super::register::Place;
use super::script::{Role, Script};
use super::{MS, Ranks};
use crate::call::CallKind;

/// The clients that do this.
pub(super) const FIRST: usize = JOB + 1;
/// See `FIRST`.
pub(super) const LAST: usize = FIRST + 1;
/// Directories of one client.
const DIRS_MAX: usize = 7;
/// Names that it uses in each directory.
const NAMES: u64 = 3;
/// Where all directories are.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// Directories of the root that move, and in which all other directories begin.
    pub(super) bases: Vec<Ino>,
    /// The place and the client of each.
    dirs: BTreeMap<Ino, (Place, usize)>,
    /// Removed directories: they are empty when all clients have their answers.
    removed: Vec<Ino>,
    /// When each client was last told that it changed something.
    changed: BTreeMap<usize, u64>,
}

impl Tree {
    fn is_gone(&self, dir: Ino) -> bool {
        !self.bases.contains(&dir) && !self.dirs.contains_key(&dir)
    }

    /// The directories above one, and itself, from the bottom. Ends where one is below itself.
    fn way(&self, dir: Ino) -> Vec<Ino> {
        let mut way = vec![dir];
        let mut at = dir;
        while let Some(((parent, _), _)) = self.dirs.get(&at) {
            at = *parent;
            way.push(at);
            if way.len() > self.dirs.len() + 2 {
                break;
            }
        }
        way
    }

    fn is_within(&self, dir: Ino, above: Ino) -> bool {
        self.way(dir).contains(&above)
    }

    fn has_ring(&self) -> bool {
        let ends = |dir: &Ino| self.way(*dir).last().is_some_and(|top| self.bases.contains(top));
        !self.dirs.keys().all(ends)
    }

    fn all(&self) -> Vec<Ino> {
        self.bases.iter().copied().chain(self.dirs.keys().copied()).collect()
    }
}

impl Ranks {
    /// The next step of such a client.
    pub(super) fn choose_tree(&mut self, client: usize) -> Script {
        let all = self.tree.all();
        let dirs = self.tree.dirs.iter().filter(|(_, (_, owner))| *owner == client);
        let mine: Vec<(Ino, Place)> = dirs.map(|(ino, (place, _))| (*ino, place.clone())).collect();
        let dir = self.world.rng.pick(&all);
        let place = (dir, format!("t{client}.{}", self.world.rng.below(NAMES)));
        let here = self.registers.now(&place);
        let few = mine.len() < 3;
        let script = match self.world.rng.below(20) {
            0..=4 if here.is_none() && mine.len() < DIRS_MAX => Script::make_dir(place.0, &place.1),
            5 if !mine.is_empty() => {
                let (dir, _) = mine[self.world.rng.index(mine.len())];
                let place = (dir, format!("t{client}.f{}", self.world.rng.below(NAMES)));
                if self.registers.now(&place).is_none() {
                    Script::create(&place)
                } else {
                    Script::look_up(place)
                }
            }
            6 if !few => {
                let (parent, name) = mine[self.world.rng.index(mine.len())].1.clone();
                CallKind::Rmdir { parent, name }.into()
            }
            7 if !few => {
                let dir = self.world.rng.pick(&all);
                Script::export(dir, Rank(self.world.rng.index(self.world.servers.len()) as u16))
            }
            8 => Script::list(dir),
            9 | 10 => Script::look_up(place),
            _ if !mine.is_empty() => {
                let from = mine[self.world.rng.index(mine.len())].1.clone();
                if from == place { Script::look_up(place) } else { Script::rename(from, place) }
            }
            _ => Script::look_up(place),
        };
        self.workers[client].tries = 0;
        Script { role: Role::Tree, ..script }
    }

    /// The path of a directory below a base.
    pub(super) fn path_in_tree(&self, dir: Ino) -> Option<String> {
        let way = self.tree.way(dir);
        let base = way.last().and_then(|top| self.tree.bases.iter().position(|it| it == top))?;
        let below = way.iter().rev().filter_map(|ino| Some(&self.tree.dirs.get(ino)?.0.1));
        let top = format!("d{}", base + super::DIRS);
        Some(below.fold(top, |path, name| format!("{path}/{name}")))
    }

    /// A step was answered.
    pub(super) fn tree_answered(
        &mut self,
        client: usize,
        script: Script,
        at: u64,
        result: &Result<Answer>,
    ) {
        let errno = result.as_ref().err().map(|error| error.errno);
        if matches!(errno, Some(Errno::Again | Errno::Stale)) {
            // Another client moved a directory since, or its rank is not known yet.
            if script.call.touched().0.into_iter().any(|dir| self.tree.is_gone(dir)) {
                return self.tree_refused(client, &script.call, at, Errno::Stale);
            }
            if self.may_try_again(client, &script, result) {
                let after = self.world.rng.between(1, 4 * MS);
                self.again(client, script, after);
            }
            return;
        }
        self.tree_done(client, &script.call, at, result);
    }
}
