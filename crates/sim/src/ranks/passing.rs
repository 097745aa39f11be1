//! A rename from a directory of one rank to one of another: the client carries the offer of one
//! rank to the other (F-13).

use types::{Errno, Ino, Rank};
use wire::{Answer, Failure, Op};

use super::client::SoFar;
use super::register::Place;
use super::script::Script;
use super::{Event, MS, RanksWorld};

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Depart,
    Arrive {
        number: u64,
        ino: Ino,
    },
    /// The other rank's answer, and whether it may differ in a moment.
    Passed {
        number: u64,
        ino: Ino,
        arrived: Result<(), Errno>,
    },
    /// Whether it was done after all.
    Check(Ino),
}

/// One that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Passing {
    pub(super) from: Place,
    pub(super) to: Place,
    /// The directories, or their fragments, and their ranks.
    dirs: (Ino, Ino),
    ranks: (Rank, Rank),
    step: Step,
}

impl Passing {
    pub(super) fn op(&self) -> Op<'_> {
        let Self { from, to, dirs, ranks, step } = self;
        match *step {
            Step::Depart => Op::Depart {
                parent: dirs.0,
                name: &from.1,
                new_parent: dirs.1,
                new_name: &to.1,
                no_replace: false,
                to: ranks.1,
            },
            Step::Arrive { number, .. } => {
                Op::Arrive { dir: dirs.1, from: ranks.0, cross_rename: number }
            }
            Step::Passed { number, .. } => Op::Passed { dir: dirs.0, cross_rename: number },
            Step::Check(_) => Op::Lookup { parent: to.0, name: &to.1 },
        }
    }

    pub(super) fn named(&self) -> Ino {
        match self.step {
            Step::Depart | Step::Passed { .. } => self.dirs.0,
            Step::Arrive { .. } => self.dirs.1,
            Step::Check(_) => self.to.0,
        }
    }

    /// The rename that it is a step of.
    fn whole(&self) -> Script {
        Script::Rename(self.from.clone(), self.to.clone())
    }

    /// The inode of a step that only looks a name up.
    fn checks(&self) -> Option<Ino> {
        if let Step::Check(ino) = self.step { Some(ino) } else { None }
    }
}

impl RanksWorld {
    /// One server has redirected a part of the rename to another one. Returns whether the rename
    /// continues so.
    pub(super) fn pass(&mut self, client: usize, script: &Script, at: u64) -> bool {
        let Script::Rename(from, to) = script else { return false };
        let known = &self.clients[client];
        let dirs = (known.home(from), known.home(to));
        let ranks = (known.place(dirs.0), known.place(dirs.1));
        if ranks.0 == ranks.1 {
            return false;
        }
        let (from, to, step) = (from.clone(), to.clone(), Step::Depart);
        let passing = Passing { from, to, dirs, ranks, step };
        self.ask(client, Script::Pass(passing), ranks.0, (at, 0), SoFar::default());
        true
    }

    /// Says whether it was a step that was answered, or the answer makes the first one necessary.
    pub(super) fn passing_answered(
        &mut self,
        client: usize,
        (script, at): (&Script, u64),
        result: &Result<Answer, Failure>,
    ) -> bool {
        match script {
            Script::Pass(passing) if passing.checks().is_none() => {
                self.step_answered(client, (passing, at), result);
                true
            }
            Script::Rename(..) => {
                let crosses = |failure: &Failure| failure.errno == Errno::CrossDevice;
                result.as_ref().is_err_and(crosses) && self.pass(client, script, at)
            }
            _ => false,
        }
    }

    fn step_answered(
        &mut self,
        client: usize,
        (passing, at): (&Passing, u64),
        result: &Result<Answer, Failure>,
    ) {
        let Passing { ranks, step, .. } = passing.clone();
        match result {
            Ok(Answer::Elsewhere(elsewhere)) if elsewhere.root == Ino(0) => {
                self.clients[client].places.insert(passing.named(), elsewhere.rank);
            }
            Ok(Answer::Fragments(fragments)) => {
                self.clients[client].fragments.note(fragments);
                self.clients[client].places.extend(fragments.parts);
            }
            Ok(_) | Err(_) => {}
        }
        let next = |step| Script::Pass(Passing { step, ..passing.clone() });
        let errno = result.as_ref().err().map(|failure| failure.errno);
        let again = matches!(errno, Some(Errno::Again | Errno::Stale))
            || matches!(result, Ok(Answer::Elsewhere(_) | Answer::Fragments(_)));
        match (step, result) {
            (Step::Depart, Ok(Answer::CrossRename(number, ino))) => {
                let script = next(Step::Arrive { number: *number, ino: *ino });
                self.ask(client, script, ranks.1, (at, 0), SoFar::default());
            }
            (Step::Arrive { number, ino }, Ok(Answer::Done)) => {
                let script = next(Step::Passed { number, ino, arrived: Ok(()) });
                self.ask(client, script, ranks.0, (at, 0), SoFar::default());
            }
            (Step::Arrive { number, ino }, _)
                if again || (errno == Some(Errno::CrossDevice) && self.may_stay(passing)) =>
            {
                let arrived = Err(errno.unwrap_or(Errno::Again));
                let script = next(Step::Passed { number, ino, arrived });
                self.ask(client, script, ranks.0, (at, 0), SoFar::default());
            }
            (Step::Passed { arrived: Ok(()), .. }, _) | (Step::Passed { .. }, Ok(Answer::Done)) => {
                self.report.passed += 1;
                self.passing_ended(client, at, passing);
            }
            (Step::Passed { arrived: Err(Errno::CrossDevice), .. }, _) if again => {
                self.schedule(MS, Event::Turn(client));
            }
            (Step::Passed { ino, .. }, _) if again => self.check_passing(client, passing, ino),
            (Step::Depart, _) if again => {
                if errno != Some(Errno::Stale) {
                    return self.pass_again(client, passing);
                }
                // A fragment may be gone, or the directory may have moved without a redirect.
                self.clients[client].fragments.forget(passing.dirs.0);
                match self.top(client, passing.from.0) {
                    Some(name) => self.walk_first(client, passing.whole(), name),
                    None => self.pass_again(client, passing),
                }
            }
            (Step::Depart, Err(_)) if errno == Some(Errno::CrossDevice) => {
                if !self.may_stay(passing) {
                    return self.fail(format!("client.{client} {passing:?} got {result:?}"));
                }
                self.schedule(MS, Event::Turn(client));
            }
            _ => self.fail(format!("client.{client} {passing:?} got {result:?}")),
        }
    }

    /// The rename was carried out.
    fn passing_ended(&mut self, client: usize, at: u64, passing: &Passing) {
        let script = passing.whole();
        self.report.judged += 1;
        if let Err(violation) = self.judge(client, &script, at, &Ok(Answer::Done)) {
            return self.fail(format!("client.{client} {script:?}: {violation}"));
        }
        // The earlier state is unknown, even to the client.
        for place in [&passing.from, &passing.to] {
            self.clients[client].script.push_back(Script::Lookup(place.clone()));
        }
        let after = self.rng.between(1, 4 * MS);
        self.schedule(after, Event::Turn(client));
    }

    /// Both servers may have dropped the result: then the name shows it.
    fn check_passing(&mut self, client: usize, passing: &Passing, ino: Ino) {
        let check = Passing { step: Step::Check(ino), ..passing.clone() };
        self.clients[client].script.push_front(Script::Pass(check));
        self.clients[client].again = true;
        self.schedule(MS, Event::Turn(client));
    }

    /// The name that it should have got was looked up. Says whether that was asked.
    pub(super) fn passing_checked(
        &mut self,
        client: usize,
        (script, at): (&Script, u64),
        result: &Result<Answer, Failure>,
    ) -> bool {
        let Script::Pass(passing) = script else { return false };
        let Some(ino) = passing.checks() else { return false };
        match result {
            Ok(Answer::Attr(attr)) if attr.ino == ino => {
                self.report.passed += 1;
                self.passing_ended(client, at, passing);
            }
            Err(failure) if failure.errno == Errno::NotFound => self.pass_again(client, passing),
            _ => self.fail(format!("client.{client} {passing:?} got {result:?}")),
        }
        true
    }

    /// Whether a name may be forbidden to move: a decoupled directory has names of its own only,
    /// and all names of a file are on one rank.
    fn may_stay(&self, passing: &Passing) -> bool {
        let ino = self.registers.now(&passing.from);
        let several = ino.is_some_and(|ino| self.registers.had_several(ino));
        several || self.is_about_job(passing.from.0) || self.is_about_job(passing.to.0)
    }

    fn pass_again(&mut self, client: usize, passing: &Passing) {
        self.again(client, passing.whole(), 2 * MS);
    }
}
