//! Clients that rename directories, within a rank and from one to another, into each other and onto
//! each other (F-13).
//!
//! Each has directories of its own, and may put them anywhere, including directories of the other
//! clients. The name of each directory is known after every answer, so a directory that is lost, or
//! is in two places, or below itself, is found.

mod judge;

use std::collections::BTreeMap;

use types::{Errno, FileType, Ino, Rank, RenameFlags, Result};
use wire::{Answer, ChangeOp, NewInode, Op, RankOp, ReadOp};

use super::job::JOB;
use super::register::Place;
use super::script::Script;
use super::worker::Asked;
use super::{Event, MS, Ranks};

/// The clients that do this.
pub(super) const FIRST: usize = JOB + 1;
/// See `FIRST`.
pub(super) const LAST: usize = FIRST + 1;
/// Directories of one client.
const DIRS_MAX: usize = 7;
/// Names that it uses in each directory.
const NAMES: u64 = 3;
/// The most attempts of a request before it counts as endless.
const TRIES_MAX: u32 = 4000;

/// The steps of such a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    MakeDir(Place),
    Create(Place),
    Rmdir(Place),
    Lookup(Place),
    List(Ino),
    Export(Ino, Rank),
    Rename(Place, Place),
}

/// Where all directories are.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// Directories of the root that move, and in which all other directories begin.
    pub(super) bases: Vec<Ino>,
    /// The place and the client of each.
    dirs: BTreeMap<Ino, (Place, usize)>,
    /// Removed directories: they are empty when all clients have their answers.
    removed: Vec<Ino>,
    tries: BTreeMap<usize, u32>,
    /// When each client was last told that it changed something.
    changed: BTreeMap<usize, u64>,
}

impl Step {
    pub(super) fn op(&self) -> Op<'_> {
        let new =
            |kind: FileType| NewInode { mode: kind.mode_bits() | 0o755, ..NewInode::default() };
        match self {
            Self::MakeDir((parent, name)) => Op::Change(ChangeOp::Create {
                parent: *parent,
                name,
                new: new(FileType::Directory),
            }),
            Self::Create((parent, name)) => {
                Op::Change(ChangeOp::Create { parent: *parent, name, new: new(FileType::Regular) })
            }
            Self::Rmdir((parent, name)) => Op::Change(ChangeOp::Rmdir { parent: *parent, name }),
            Self::Lookup((parent, name)) => Op::Read(ReadOp::Lookup { parent: *parent, name }),
            Self::List(dir) => {
                Op::Read(ReadOp::List { dir: *dir, after: None, limit: 4096, attrs: true })
            }
            Self::Export(dir, rank) => Op::Rank(RankOp::Export { dir: *dir, rank: *rank }),
            Self::Rename((parent, name), (new_parent, new_name)) => {
                let flags = RenameFlags::default();
                Op::Change(ChangeOp::Rename {
                    parent: *parent,
                    name,
                    new_parent: *new_parent,
                    new_name,
                    flags,
                })
            }
        }
    }

    pub(super) fn named(&self) -> Ino {
        match self {
            Self::MakeDir(place)
            | Self::Create(place)
            | Self::Rmdir(place)
            | Self::Lookup(place) => place.0,
            Self::List(dir) | Self::Export(dir, _) => *dir,
            Self::Rename(from, _) => from.0,
        }
    }

    /// The directories that must be known for it.
    pub(super) fn dirs(&self) -> Vec<Ino> {
        if let Self::Rename(from, to) = self { vec![from.0, to.0] } else { vec![self.named()] }
    }
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
        let place = (dir, format!("t{client}.{}", self.world.rng.below(NAMES)).into_bytes());
        let here = self.registers.now(&place);
        let few = mine.len() < 3;
        let step = match self.world.rng.below(20) {
            0..=4 if here.is_none() && mine.len() < DIRS_MAX => Step::MakeDir(place),
            5 if !mine.is_empty() => {
                let (dir, _) = mine[self.world.rng.index(mine.len())];
                let name = format!("t{client}.f{}", self.world.rng.below(NAMES)).into_bytes();
                if self.registers.now(&(dir, name.clone())).is_none() {
                    Step::Create((dir, name))
                } else {
                    Step::Lookup((dir, name))
                }
            }
            6 if !few => Step::Rmdir(mine[self.world.rng.index(mine.len())].1.clone()),
            7 if !few => {
                let dir = self.world.rng.pick(&all);
                Step::Export(dir, Rank(self.world.rng.index(self.world.servers.len()) as u16))
            }
            8 => Step::List(dir),
            9 | 10 => Step::Lookup(place),
            _ if !mine.is_empty() => {
                let from = mine[self.world.rng.index(mine.len())].1.clone();
                if from == place { Step::Lookup(place) } else { Step::Rename(from, place) }
            }
            _ => Step::Lookup(place),
        };
        self.tree.tries.insert(client, 0);
        Script::Tree(step)
    }

    /// The path of a directory below a base.
    pub(super) fn path_in_tree(&self, dir: Ino) -> Option<Vec<u8>> {
        let way = self.tree.way(dir);
        let base = way.last().and_then(|top| self.tree.bases.iter().position(|it| it == top))?;
        let mut path = format!("d{}", base + super::DIRS).into_bytes();
        let below = way.iter().rev().filter_map(|ino| Some(&self.tree.dirs.get(ino)?.0.1));
        for name in below {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        Some(path)
    }

    /// A step was answered.
    pub(super) fn tree_answered(&mut self, client: usize, asked: Asked, result: Result<Answer>) {
        let Asked { script, at, .. } = asked;
        let Script::Tree(step) = script else { return };
        let tries = self.tree.tries.entry(client).or_default();
        *tries += 1;
        if *tries > TRIES_MAX {
            return self.world.fail(format!("client.{client} {step:?} never ends: {result:?}"));
        }
        let errno = result.as_ref().err().map(|error| error.errno);
        if matches!(errno, Some(Errno::Again | Errno::Stale)) {
            // Another client moved a directory since, or its rank is not known yet.
            if step.dirs().into_iter().any(|dir| self.tree.is_gone(dir)) {
                return self.tree_refused(client, (&step, at), Errno::Stale);
            }
            let after = self.world.rng.between(1, 4 * MS);
            return self.again(client, Script::Tree(step), after);
        }
        self.tree_done(client, step, at, result);
    }

    fn tree_next(&mut self, client: usize) {
        let after = self.world.rng.between(1, 4 * MS);
        self.world.schedule(after, Event::Turn(client));
    }
}
