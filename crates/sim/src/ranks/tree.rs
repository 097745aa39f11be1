//! Clients that rename directories, within a rank and from one to another, into each other and onto
//! each other (F-13).
//!
//! Each has directories of its own, and may put them anywhere, including directories of the other
//! clients. The name of each directory is known after every answer, so a directory that is lost, or
//! is in two places, or below itself, is found.

mod judge;

use std::collections::BTreeMap;

use types::{Errno, FileType, Ino, Rank, RenameFlags};
use wire::{Answer, Failure, NewInode, Op};

use super::client::{Asked, SoFar};
use super::job::JOB;
use super::register::Place;
use super::script::Script;
use super::{Event, MS, RanksWorld};

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

/// A pending rename.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    from: Place,
    to: Place,
    ranks: (Rank, Rank),
    number: u64,
    ino: Ino,
}

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
    Depart(Offer),
    Arrive(Offer),
    /// The other rank's answer.
    Passed(Offer, Result<(), Errno>),
    /// Whether it was done after all.
    Check(Offer),
    /// Directories are looked up one after the other, the next one last, and then the step
    /// continues.
    Look(Vec<Place>, Box<Step>),
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
            Self::MakeDir((parent, name)) => {
                Op::Create { parent: *parent, name, new: new(FileType::Directory) }
            }
            Self::Create((parent, name)) => {
                Op::Create { parent: *parent, name, new: new(FileType::Regular) }
            }
            Self::Rmdir((parent, name)) => Op::Rmdir { parent: *parent, name },
            Self::Lookup((parent, name)) => Op::Lookup { parent: *parent, name },
            Self::List(dir) => Op::List { dir: *dir, after: None, limit: 4096, attrs: true },
            Self::Export(dir, rank) => Op::Export { dir: *dir, rank: *rank },
            Self::Rename((parent, name), (new_parent, new_name)) => {
                let flags = RenameFlags::default();
                Op::Rename { parent: *parent, name, new_parent: *new_parent, new_name, flags }
            }
            Self::Depart(Offer { from, to, ranks, .. }) => Op::Depart {
                parent: from.0,
                name: &from.1,
                new_parent: to.0,
                new_name: &to.1,
                no_replace: false,
                to: ranks.1,
            },
            Self::Arrive(Offer { to, ranks, number, .. }) => {
                Op::Arrive { dir: to.0, from: ranks.0, cross_rename: *number }
            }
            Self::Passed(Offer { from, number, .. }, _) => {
                Op::Passed { dir: from.0, cross_rename: *number }
            }
            Self::Check(Offer { to: (parent, name), .. }) => Op::Lookup { parent: *parent, name },
            Self::Look(places, _) => {
                let (parent, name) = places.last().expect("one is looked up");
                Op::Lookup { parent: *parent, name }
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
            Self::Depart(offer) | Self::Passed(offer, _) => offer.from.0,
            Self::Arrive(offer) | Self::Check(offer) => offer.to.0,
            Self::Look(places, _) => places.last().expect("one is looked up").0,
        }
    }

    /// The directories that must be known for it.
    fn dirs(&self) -> Vec<Ino> {
        match self {
            Self::Rename(from, to) => vec![from.0, to.0],
            Self::Depart(offer)
            | Self::Arrive(offer)
            | Self::Passed(offer, _)
            | Self::Check(offer) => vec![offer.from.0, offer.to.0],
            _ => vec![self.named()],
        }
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

impl RanksWorld {
    /// The next step of such a client.
    pub(super) fn choose_tree(&mut self, client: usize) -> Script {
        let all = self.tree.all();
        let dirs = self.tree.dirs.iter().filter(|(_, (_, owner))| *owner == client);
        let mine: Vec<(Ino, Place)> = dirs.map(|(ino, (place, _))| (*ino, place.clone())).collect();
        let dir = self.rng.pick(&all);
        let place = (dir, format!("t{client}.{}", self.rng.below(NAMES)).into_bytes());
        let here = self.registers.now(&place);
        let few = mine.len() < 3;
        let step = match self.rng.below(20) {
            0..=4 if here.is_none() && mine.len() < DIRS_MAX => Step::MakeDir(place),
            5 if !mine.is_empty() => {
                let (dir, _) = mine[self.rng.index(mine.len())];
                let name = format!("t{client}.f{}", self.rng.below(NAMES)).into_bytes();
                if self.registers.now(&(dir, name.clone())).is_none() {
                    Step::Create((dir, name))
                } else {
                    Step::Lookup((dir, name))
                }
            }
            6 if !few => Step::Rmdir(mine[self.rng.index(mine.len())].1.clone()),
            7 if !few => {
                let dir = self.rng.pick(&all);
                Step::Export(dir, Rank(self.rng.index(self.servers.len()) as u16))
            }
            8 => Step::List(dir),
            9 | 10 => Step::Lookup(place),
            _ if !mine.is_empty() => {
                let from = mine[self.rng.index(mine.len())].1.clone();
                if from == place { Step::Lookup(place) } else { Step::Rename(from, place) }
            }
            _ => Step::Lookup(place),
        };
        self.tree.tries.insert(client, 0);
        Script::Tree(step)
    }

    /// A directory is looked up by its name, with all directories above it, and then the step
    /// continues.
    fn look(&mut self, client: usize, step: Step, after: u64) {
        let mut places = Vec::new();
        for dir in step.dirs() {
            let way = self.tree.way(dir);
            let base = way.last().copied().and_then(|top| {
                let at = self.tree.bases.iter().position(|base| *base == top)?;
                Some((Ino::ROOT, format!("d{}", at + super::DIRS).into_bytes()))
            });
            let below = way.iter().filter_map(|ino| Some(self.tree.dirs.get(ino)?.0.clone()));
            let all: Vec<Place> = below.chain(base).collect();
            places.splice(0..0, all);
        }
        let script = if places.is_empty() { step } else { Step::Look(places, Box::new(step)) };
        self.again(client, Script::Tree(script), after);
    }

    /// Continues with another step, at once.
    fn step(&mut self, client: usize, step: Step, at: u64, rank: Option<Rank>) {
        let rank = rank.unwrap_or_else(|| self.clients[client].place(step.named()));
        self.ask(client, Script::Tree(step), rank, (at, 0), SoFar::default());
    }

    /// A step was answered.
    #[allow(clippy::too_many_lines, reason = "an arm for each answer")]
    pub(super) fn tree_answered(
        &mut self,
        client: usize,
        asked: Asked,
        result: Result<Answer, Failure>,
    ) {
        let Asked { script, at, rank, .. } = asked;
        let Script::Tree(step) = script else { return };
        let tries = self.tree.tries.entry(client).or_default();
        *tries += 1;
        if *tries > TRIES_MAX {
            return self.fail(format!("client.{client} {step:?} never ends: {result:?}"));
        }
        if let Ok(Answer::Attr(attr)) = &result
            && matches!(step, Step::MakeDir(_) | Step::Look(..) | Step::Lookup(_))
        {
            self.clients[client].places.insert(attr.ino, rank);
        }
        let errno = result.as_ref().err().map(|failure| failure.errno);
        match (step, &result) {
            (step, Ok(Answer::Elsewhere(it))) if it.root == Ino(0) => {
                self.report.redirected += 1;
                self.clients[client].places.insert(step.named(), it.rank);
                self.tree_redirected(client, step, at);
            }
            (Step::Look(places, then), Ok(Answer::Elsewhere(it))) => {
                self.clients[client].places.insert(it.root, it.rank);
                self.looked(client, places, *then, at);
            }
            (Step::Look(places, then), Ok(Answer::Attr(_))) => {
                self.looked(client, places, *then, at);
            }
            // Another client moved one of them since, or its rank is not known yet.
            (Step::Look(_, then), Err(_)) => self.retry_tree(client, *then, at),
            (Step::Depart(offer), Ok(Answer::CrossRename(number, ino))) => {
                let ranks = (rank, offer.ranks.1);
                let offer = Offer { number: *number, ino: *ino, ranks, ..offer };
                let to = offer.ranks.1;
                self.step(client, Step::Arrive(offer), at, Some(to));
            }
            (Step::Arrive(offer), _) => {
                let arrived = match result {
                    Ok(Answer::Done) => Ok(()),
                    Ok(_) => Err(Errno::Again),
                    Err(failure) => Err(failure.errno),
                };
                let from = offer.ranks.0;
                self.step(client, Step::Passed(offer, arrived), at, Some(from));
            }
            (Step::Passed(offer, Ok(())), _) | (Step::Passed(offer, _), Ok(Answer::Done)) => {
                self.tree_passed(client, offer, at);
            }
            (Step::Passed(offer, Err(Errno::Again | Errno::Stale)), _) => {
                self.look(client, Step::Check(offer), MS);
            }
            (Step::Passed(offer, Err(errno)), _) => {
                self.tree_refused(client, (&Step::Rename(offer.from, offer.to), at), errno);
            }
            (Step::Check(offer), Ok(Answer::Elsewhere(it))) if it.root == offer.ino => {
                self.tree_passed(client, offer, at);
            }
            (Step::Check(offer), Ok(Answer::Attr(attr))) if attr.ino == offer.ino => {
                self.tree_passed(client, offer, at);
            }
            (Step::Check(offer), Err(_)) if matches!(errno, Some(Errno::Stale | Errno::Again)) => {
                if self.tree.is_gone(offer.to.0) {
                    let step = Step::Rename(offer.from, offer.to);
                    return self.tree_refused(client, (&step, at), Errno::Stale);
                }
                self.look(client, Step::Check(offer), MS);
            }
            (Step::Check(offer), _) => {
                self.retry_tree(client, Step::Rename(offer.from, offer.to), at)
            }
            (Step::Depart(offer), Err(_)) if matches!(errno, Some(Errno::Again | Errno::Stale)) => {
                self.retry_tree(client, Step::Rename(offer.from, offer.to), at);
            }
            (Step::Depart(offer), _) => {
                let errno = errno.unwrap_or(Errno::Busy);
                self.tree_refused(client, (&Step::Rename(offer.from, offer.to), at), errno);
            }
            (Step::Rename(from, to), Err(failure)) if failure.errno == Errno::CrossDevice => {
                let ranks = (self.clients[client].place(from.0), self.clients[client].place(to.0));
                if ranks.0 == ranks.1 {
                    return self.retry_tree(client, Step::Rename(from, to), at);
                }
                let offer = Offer { from, to, ranks, number: 0, ino: Ino(0) };
                self.step(client, Step::Depart(offer), at, None);
            }
            (step, Err(_)) if matches!(errno, Some(Errno::Again | Errno::Stale)) => {
                self.retry_tree(client, step, at);
            }
            (step, _) => self.tree_done(client, step, rank, at, result),
        }
    }

    fn tree_redirected(&mut self, client: usize, step: Step, at: u64) {
        match step {
            Step::Depart(offer) => self.retry_tree(client, Step::Rename(offer.from, offer.to), at),
            // The offer is lost: it is withdrawn.
            Step::Arrive(offer) => {
                let from = offer.ranks.0;
                self.step(client, Step::Passed(offer, Err(Errno::Again)), at, Some(from));
            }
            step => self.step(client, step, at, None),
        }
    }

    fn looked(&mut self, client: usize, mut places: Vec<Place>, then: Step, at: u64) {
        places.pop();
        if !places.is_empty() {
            return self.step(client, Step::Look(places, Box::new(then)), at, None);
        }
        // Where both are is known now.
        if let Step::Rename(from, to) = &then {
            let ranks = (self.clients[client].place(from.0), self.clients[client].place(to.0));
            if ranks.0 != ranks.1 {
                let offer =
                    Offer { from: from.clone(), to: to.clone(), ranks, number: 0, ino: Ino(0) };
                return self.step(client, Step::Depart(offer), at, None);
            }
        }
        self.step(client, then, at, None);
    }

    /// Looks up the objects of a step and repeats it, unless they are gone.
    fn retry_tree(&mut self, client: usize, step: Step, at: u64) {
        if step.dirs().into_iter().any(|dir| self.tree.is_gone(dir)) {
            return self.tree_refused(client, (&step, at), Errno::Stale);
        }
        let after = self.rng.between(1, 4 * MS);
        self.look(client, step, after);
    }

    fn tree_next(&mut self, client: usize) {
        let after = self.rng.between(1, 4 * MS);
        self.schedule(after, Event::Turn(client));
    }

    /// It was carried out, and another rank has the name now.
    fn tree_passed(&mut self, client: usize, offer: Offer, at: u64) {
        self.report.passed_dirs += 1;
        self.note(|| format!("client.{client} passed {offer:?}"));
        let Offer { from, to, ranks, .. } = offer;
        self.tree_done(client, Step::Rename(from, to), ranks.1, at, Ok(Answer::Done));
    }
}
