//! Whether the answers to clients that rename directories are possible.

use std::collections::BTreeMap;

use types::{Errno, Ino, Result as Answered};
use wire::Answer;

use super::{FIRST, LAST, Step};
use crate::ranks::register::Place;
use crate::ranks::script::Script;
use crate::ranks::{Event, Ranks};

impl Ranks {
    /// Nothing was done.
    pub(super) fn tree_refused(&mut self, client: usize, (step, at): (&Step, u64), errno: Errno) {
        self.world.note(format_args!("client.{client} {step:?} was refused: {errno}"));
        let may_be = match (step, errno) {
            (_, Errno::Busy) => true,
            (Step::Rename(..), Errno::CrossDevice) => true,
            (_, Errno::Stale) => step.dirs().into_iter().any(|dir| self.tree.is_gone(dir)),
            (Step::Rename(from, to), Errno::Invalid) => {
                let ino = self.registers.now(from);
                // A pending rename may bring another directory there, or away.
                ino.is_some_and(|ino| self.tree.is_within(to.0, ino))
                    || self.others_changed(client, at)
            }
            (Step::Rename(_, place) | Step::Rmdir(place), Errno::NotEmpty) => {
                let there = self.registers.now(place);
                there.is_some_and(|there| !self.registers.in_dir(there).is_empty())
                    || self.others_changed(client, at)
            }
            _ => false,
        };
        if !may_be {
            let ways: Vec<Vec<Ino>> = step.dirs().iter().map(|dir| self.tree.way(*dir)).collect();
            return self.world.fail(format!(
                "client.{client} {step:?} was refused: {errno}; they are in {ways:?}"
            ));
        }
        match errno {
            Errno::Busy => self.report.busy_dirs += 1,
            Errno::CrossDevice => self.report.kept_dirs += 1,
            _ => {}
        }
        self.tree_next(client);
    }

    /// Whether another client has changed something since then, or may have.
    fn others_changed(&self, client: usize, since: u64) -> bool {
        let mut others = (FIRST..=LAST).filter(|other| *other != client);
        others.any(|other| {
            let changed_at = self.tree.changed.get(&other).copied().unwrap_or_default();
            !self.workers[other].is_idle() || changed_at >= since
        })
    }

    pub(super) fn tree_done(
        &mut self,
        client: usize,
        step: Step,
        at: u64,
        result: Answered<Answer>,
    ) {
        self.report.judged += 1;
        let when = (at, self.world.now);
        let text = format!("client.{client} {step:?} got {result:?}");
        let judged = match (step, result) {
            (Step::MakeDir(place), Ok(Answer::Attr(attr))) => {
                self.tree.dirs.insert(attr.ino, (place.clone(), client));
                self.tree_made(place, attr.ino, when)
            }
            (Step::Create(place), Ok(Answer::Attr(attr))) => self.tree_made(place, attr.ino, when),
            (Step::Rmdir(place), Ok(Answer::Done)) => self.tree_removed(client, &place, when),
            (Step::Rename(from, to), Ok(Answer::Done)) => {
                self.tree_renamed(client, (from, to), when)
            }
            (Step::Lookup(place), result) => {
                let found = match result {
                    Ok(Answer::Attr(attr)) => Ok(Some(attr.ino)),
                    Err(failure) if failure.errno == Errno::NotFound => Ok(None),
                    _ => Err("no such answer was possible"),
                };
                found.and_then(|found| {
                    let right = found == self.registers.now(&place);
                    if right { Ok(()) } else { Err("the name is another one") }
                })
            }
            (Step::List(dir), Ok(Answer::Entries { entries, .. })) => {
                let prefix = format!("t{client}.").into_bytes();
                let of = |name: &Vec<u8>| self.at_rest || name.starts_with(&prefix);
                let mut known = self.registers.in_dir(dir);
                known.retain(|name, _| of(name));
                let listed: Vec<(Vec<u8>, Ino)> =
                    entries.into_iter().map(|(name, attr)| (name, attr.ino)).collect();
                let mut listed: BTreeMap<Vec<u8>, Ino> = listed.into_iter().collect();
                listed.retain(|name, _| of(name));
                if known == listed { Ok(()) } else { Err("the listing is not what is there") }
            }
            (Step::Export(..), Ok(Answer::Done)) => {
                self.report.moves += 1;
                Ok(())
            }
            (Step::Export(..), Err(failure)) if failure.errno == Errno::Busy => {
                self.report.refused += 1;
                Ok(())
            }
            (step, Err(failure)) => return self.tree_refused(client, (&step, at), failure.errno),
            _ => Err("no such answer was possible"),
        };
        self.tree.changed.insert(client, self.world.now);
        // A change of another client without a reply may come before.
        let rings = !self.others_changed(client, self.world.now) && self.tree.has_ring();
        match judged {
            Ok(()) if rings => self.world.fail(format!("{text}: a directory is below itself")),
            Ok(()) => self.tree_next(client),
            Err(violation) => self.world.fail(format!("{text}: {violation}")),
        }
    }

    fn tree_made(&mut self, place: Place, ino: Ino, when: (u64, u64)) -> Result<(), &'static str> {
        self.number_used(ino)?;
        if self.tree.is_gone(place.0) {
            return Err("it was made in a directory that is gone");
        }
        self.registers.changed(place, Some(ino), when);
        Ok(())
    }

    fn tree_removed(
        &mut self,
        client: usize,
        place: &Place,
        when: (u64, u64),
    ) -> Result<(), &'static str> {
        let Some(ino) = self.registers.now(place) else { return Err("it was not there") };
        // Another client may already know that its directory moved.
        let prefix = format!("t{client}.").into_bytes();
        if self.registers.in_dir(ino).keys().any(|name| name.starts_with(&prefix)) {
            return Err("a directory with names was removed");
        }
        self.tree.dirs.remove(&ino);
        self.tree.removed.push(ino);
        self.registers.changed(place.clone(), None, when);
        Ok(())
    }

    fn tree_renamed(
        &mut self,
        client: usize,
        (from, to): (Place, Place),
        when: (u64, u64),
    ) -> Result<(), &'static str> {
        let Some(ino) = self.registers.now(&from) else { return Err("it was not there") };
        if self.registers.now(&to).is_some() {
            self.tree_removed(client, &to, when)?;
        }
        if self.tree.is_gone(to.0) {
            return Err("it went to a directory that is gone");
        }
        if let Some((place, _)) = self.tree.dirs.get_mut(&ino) {
            *place = to.clone();
        }
        self.registers.changed(from, None, when);
        self.registers.changed(to.clone(), Some(ino), when);
        Ok(())
    }

    /// All directories must be in their places, with their entries.
    pub(in crate::ranks) fn audit_tree(&mut self) {
        if self.tree.has_ring() {
            return self.world.fail("a directory is below itself".into());
        }
        let removed = self.tree.removed.iter();
        if removed.into_iter().any(|dir| !self.registers.in_dir(*dir).is_empty()) {
            return self.world.fail("a directory with names was removed".into());
        }
        for dir in self.tree.all() {
            self.tree.tries.insert(FIRST, 0);
            self.workers[FIRST].script.push_back(Script::Tree(Step::List(dir)));
        }
        self.world.schedule(1, Event::Turn(FIRST));
    }
}
