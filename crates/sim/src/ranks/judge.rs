//! Whether answers are possible.

use std::collections::BTreeMap;

use types::{Errno, Ino, Rank, Result as Answered};
use wire::Answer;

use super::Ranks;
use super::register::Place;
use super::script::Script;
use super::worker::Worker;

impl Ranks {
    pub(super) fn judge(
        &mut self,
        client: usize,
        script: &Script,
        asked: u64,
        result: &Answered<Answer>,
    ) -> Result<(), &'static str> {
        let when = (asked, self.world.now);
        let errno = result.as_ref().err().map(|error| error.errno);
        match (script, result) {
            (Script::MakeDir(..), Ok(Answer::Attr(attr))) => {
                self.workers[client].dirs.push(attr.ino)
            }
            (Script::MakeInner(parent, _), Ok(Answer::Attr(attr))) => {
                self.number_used(attr.ino)?;
                self.inner_made(*parent, attr.ino, when);
            }
            (Script::Create(place), Ok(Answer::Attr(attr))) => {
                self.number_used(attr.ino)?;
                self.registers.changed(place.clone(), Some(attr.ino), when);
            }
            (Script::Unlink(place), Ok(Answer::Done)) => {
                self.registers.changed(place.clone(), None, when);
            }
            (Script::Rename(from, to), Ok(Answer::Done)) if from != to => {
                let ino = self.registers.now(from);
                self.registers.changed(from.clone(), None, when);
                self.registers.changed(to.clone(), ino, when);
            }
            (Script::Link(link), Ok(Answer::Done | Answer::Attr(_))) => self.linked(link, when),
            (Script::Rename(from, to), _) if from == to => {}
            (Script::Lookup((Ino::ROOT, _)), _) => {}
            (Script::Lookup(place), Ok(Answer::Attr(attr))) => {
                if !self.may_be(client, place, Some(attr.ino), when) {
                    return Err("the name was never that then");
                }
                self.judge_file(client, place, attr)?;
            }
            (Script::Lookup(place), Err(_)) if errno == Some(Errno::NotFound) => {
                if !self.may_be(client, place, None, when) {
                    return Err("the name was there");
                }
            }
            (Script::Touch(_), Ok(Answer::Done)) => {}
            (Script::Say(_, ino, mode), Ok(Answer::Done)) => self.registers.say(*ino, *mode),
            (Script::List(dir), Ok(Answer::Entries { entries, .. })) => {
                let listed: BTreeMap<_, _> =
                    entries.iter().map(|(name, attr)| (name.clone(), attr.ino)).collect();
                if listed.len() != entries.len() {
                    return Err("a name is listed twice");
                }
                self.judge_listing(client, *dir, listed)?;
            }
            (Script::Stat(dir), Ok(Answer::Attr(attr))) => {
                if self.at_rest && attr.size != self.registers.in_dir(*dir).len() as u64 {
                    return Err("the numbers of names do not add up");
                }
            }
            (Script::Export(_, Rank::NONE), Ok(Answer::Done)) => {}
            (Script::Export(dir, _), Ok(Answer::Done)) => {
                self.count_move(client, *dir);
            }
            (Script::Split(_), Ok(Answer::Done)) => self.report.splits += 1,
            (Script::Join(_), Ok(Answer::Done)) => self.report.joins += 1,
            (Script::Export(..) | Script::Split(_) | Script::Join(_), Err(_))
                if errno == Some(Errno::Busy) =>
            {
                self.report.refused += 1;
            }
            _ => return Err("no such answer was possible"),
        }
        Ok(())
    }

    fn count_move(&mut self, client: usize, dir: Ino) {
        self.report.moves += 1;
        let known = self.world.clients[client].router.fragments();
        let inner = known.whole_of(dir).and_then(|part| known.whole_of(part));
        self.report.inner_moves += u64::from(inner.is_some());
        let mut names = self.registers.in_dir(dir).into_values();
        let linked = names.any(|ino| self.registers.had_several(ino));
        self.report.linked_moves += u64::from(linked);
        self.workers[client].moved_inner |= self.inner() == Some(dir);
    }

    /// A listing has exactly the client's own names; the first client, which has none, sees all
    /// when the cluster is at rest.
    fn judge_listing(
        &self,
        client: usize,
        dir: Ino,
        mut listed: BTreeMap<Vec<u8>, Ino>,
    ) -> Result<(), &'static str> {
        let prefix = format!("c{client}.").into_bytes();
        let of = |name: &Vec<u8>| client == 0 || name.starts_with(&prefix);
        let mut known = self.registers.in_dir(dir);
        known.retain(|name, _| of(name));
        listed.retain(|name, _| of(name));
        if known == listed { Ok(()) } else { Err("the listing is not what is there") }
    }

    /// A name of another client may also have the result of that client's pending change.
    fn may_be(&self, client: usize, place: &Place, ino: Option<Ino>, when: (u64, u64)) -> bool {
        let changing = |other: &Worker| {
            // The first attempt of a repeated request may have taken effect.
            let asked = other.asked.as_ref().map(|asked| &asked.script);
            let asked = asked.into_iter().chain(other.script.front());
            asked.into_iter().any(|script| match script {
                Script::Create(other) => other == place && ino.is_some(),
                Script::Unlink(other) => other == place && ino.is_none(),
                Script::Link(link) => link.to == *place && ino.is_some(),
                Script::Rename(from, to) => {
                    (from == place && ino.is_none()) || (to == place && ino.is_some())
                }
                Script::Job(step) => step.makes(place, ino),
                Script::MakeDir(..)
                | Script::MakeInner(..)
                | Script::Tree(_)
                | Script::Lookup(_)
                | Script::List(_)
                | Script::Touch(_)
                | Script::Say(..)
                | Script::Split(_)
                | Script::Join(_)
                | Script::Stat(_)
                | Script::Export(..) => false,
            })
        };
        let others = self.workers.iter().enumerate().filter(|(at, _)| *at != client);
        self.registers.may_be(place, ino, when)
            || others.into_iter().any(|(_, other)| changing(other))
    }
}
