//! Whether the answers to clients that rename directories are possible.

use types::{Errno, Ino, Result as Answered};
use wire::Answer;

use super::{FIRST, LAST};
use crate::call::CallKind;
use crate::ranks::judge::names_of;
use crate::ranks::register::Place;
use crate::ranks::script::{Role, Script};
use crate::ranks::{Event, Ranks};

impl Ranks {
    /// Nothing was done.
    pub(super) fn tree_refused(&mut self, client: usize, call: &CallKind, at: u64, errno: Errno) {
        self.world.note(format_args!("client.{client} {call:?} was refused: {errno}"));
        let dirs = call.touched().0;
        let may_be = match (call, errno) {
            (_, Errno::Busy) | (CallKind::Rename { .. }, Errno::CrossDevice) => true,
            (_, Errno::Stale) => dirs.iter().any(|dir| self.tree.is_gone(*dir)),
            (CallKind::Rename { from, to, .. }, Errno::Invalid) => {
                let ino = self.registers.now(from);
                // A pending rename may bring another directory there, or away.
                ino.is_some_and(|ino| self.tree.is_within(to.0, ino))
                    || self.others_changed(client, at)
            }
            (CallKind::Rename { to, .. }, Errno::NotEmpty) => {
                self.has_names(to) || self.others_changed(client, at)
            }
            (CallKind::Rmdir { parent, name }, Errno::NotEmpty) => {
                self.has_names(&(*parent, name.clone())) || self.others_changed(client, at)
            }
            _ => false,
        };
        if !may_be {
            let ways: Vec<Vec<Ino>> = dirs.iter().map(|dir| self.tree.way(*dir)).collect();
            return self.world.fail(format!(
                "client.{client} {call:?} was refused: {errno}; they are in {ways:?}"
            ));
        }
        match errno {
            Errno::Busy => self.world.tally.count("renames of directories refused as busy", 1),
            Errno::CrossDevice => self.world.tally.count("renames of directories that stayed", 1),
            _ => {}
        }
        self.next_turn(client);
    }

    fn has_names(&self, place: &Place) -> bool {
        let there = self.registers.now(place);
        there.is_some_and(|there| !self.registers.in_dir(there).is_empty())
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
        call: &CallKind,
        at: u64,
        result: &Answered<Answer>,
    ) {
        self.world.tally.count("answers judged", 1);
        let when = (at, self.world.now);
        let text = format!("client.{client} {call:?} got {result:?}");
        let judged = match (call, result) {
            (CallKind::Create { parent, name, .. }, Ok(Answer::Attr(attr))) => {
                let place = (*parent, name.clone());
                if attr.is_dir() {
                    self.tree.dirs.insert(attr.ino, (place.clone(), client));
                }
                self.tree_made(place, attr.ino, when)
            }
            (CallKind::Rmdir { parent, name }, Ok(Answer::Done)) => {
                self.tree_removed(client, &(*parent, name.clone()), when)
            }
            (CallKind::Rename { from, to, .. }, Ok(Answer::Done)) => {
                self.tree_renamed(client, (from.clone(), to.clone()), when)
            }
            (CallKind::Lookup { parent, name }, result) => {
                let found = match result {
                    Ok(Answer::Attr(attr)) => Ok(Some(attr.ino)),
                    Err(failure) if failure.errno == Errno::NotFound => Ok(None),
                    _ => Err("no such answer was possible"),
                };
                found.and_then(|found| {
                    let right = found == self.registers.now(&(*parent, name.clone()));
                    if right { Ok(()) } else { Err("the name is another one") }
                })
            }
            (CallKind::List { dir, .. }, Ok(Answer::Entries { entries, .. })) => {
                self.judge_listing(*dir, &format!("t{client}."), self.at_rest, names_of(entries))
            }
            (CallKind::Export { .. }, Ok(Answer::Done)) => {
                self.world.tally.count("subtrees moved", 1);
                Ok(())
            }
            (CallKind::Export { .. }, Err(failure)) if failure.errno == Errno::Busy => {
                self.world.tally.count("moves refused", 1);
                Ok(())
            }
            (_, Err(failure)) => return self.tree_refused(client, call, at, failure.errno),
            _ => Err("no such answer was possible"),
        };
        self.tree.changed.insert(client, self.world.now);
        // A change of another client without a reply may come before.
        let rings = !self.others_changed(client, self.world.now) && self.tree.has_ring();
        match judged {
            Ok(()) if rings => self.world.fail(format!("{text}: a directory is below itself")),
            Ok(()) => self.next_turn(client),
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
        let prefix = format!("t{client}.");
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
        self.workers[FIRST].tries = 0;
        for dir in self.tree.all() {
            let script = Script { role: Role::Tree, ..Script::list(dir) };
            self.workers[FIRST].script.push_back(script);
        }
        self.world.schedule(1, Event::Turn(FIRST));
    }
}
