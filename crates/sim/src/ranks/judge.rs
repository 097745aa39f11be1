//! Whether answers are possible.

use std::collections::BTreeMap;

use types::{Attr, Errno, Ino, Rank, Result as Answered};
use wire::Answer;

use super::Ranks;
use super::register::Place;
use super::script::{Role, Script};
use super::worker::Worker;
use crate::call::CallKind;

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
        match (&script.call, result) {
            (CallKind::Create { parent, name, .. }, Ok(Answer::Attr(attr))) => {
                if *parent == Ino::ROOT {
                    self.workers[client].dirs.push(attr.ino);
                    return Ok(());
                }
                self.number_used(attr.ino)?;
                self.registers.changed((*parent, name.clone()), Some(attr.ino), when);
                match script.role {
                    Role::MakeInner => self.inner_made(*parent, attr.ino),
                    Role::MakeLocked => self.lock_file_made((*parent, name.clone()), attr.ino),
                    _ => {}
                }
            }
            (CallKind::Unlink { parent, name }, Ok(Answer::Done)) => {
                self.registers.changed((*parent, name.clone()), None, when);
            }
            (CallKind::Rename { from, to, .. }, _) if from == to => {}
            (CallKind::Rename { from, to, .. }, Ok(Answer::Done)) => {
                let ino = self.registers.now(from);
                self.registers.changed(from.clone(), None, when);
                self.registers.changed(to.clone(), ino, when);
            }
            (CallKind::Link { ino, parent, name }, Ok(Answer::Done | Answer::Attr(_))) => {
                self.linked(*ino, (*parent, name.clone()), when);
            }
            (CallKind::Lookup { parent: Ino::ROOT, .. }, _) => {}
            (CallKind::Lookup { parent, name }, _) => {
                self.judge_look_up(client, &(*parent, name.clone()), when, result)?;
            }
            (CallKind::SetAttr { ino, change }, Ok(Answer::Done)) => {
                if let (Role::File(_), Some(mode)) = (&script.role, change.mode) {
                    self.registers.say(*ino, mode);
                }
            }
            (CallKind::List { dir, .. }, Ok(Answer::Entries { entries, .. })) => {
                let listed = names_of(entries);
                if listed.len() != entries.len() {
                    return Err("a name is listed twice");
                }
                self.judge_listing(*dir, &format!("c{client}."), client == 0, listed)?;
            }
            (CallKind::GetAttr { ino: dir }, Ok(Answer::Attr(attr))) => {
                if self.at_rest && attr.size != self.registers.in_dir(*dir).len() as u64 {
                    return Err("the numbers of names do not add up");
                }
            }
            (CallKind::Export { rank: Rank::NONE, .. }, Ok(Answer::Done)) => {}
            (CallKind::Export { dir, .. }, Ok(Answer::Done)) => self.count_move(client, *dir),
            (CallKind::Split { .. }, Ok(Answer::Done)) => {
                self.world.tally.count("directories split", 1)
            }
            (CallKind::Join { .. }, Ok(Answer::Done)) => {
                self.world.tally.count("directories joined", 1)
            }
            (CallKind::Export { .. } | CallKind::Split { .. } | CallKind::Join { .. }, Err(_))
                if errno == Some(Errno::Busy) =>
            {
                self.world.tally.count("moves refused", 1);
            }
            _ => return Err("no such answer was possible"),
        }
        Ok(())
    }

    fn judge_look_up(
        &self,
        client: usize,
        place: &Place,
        when: (u64, u64),
        result: &Answered<Answer>,
    ) -> Result<(), &'static str> {
        match result {
            Ok(Answer::Attr(attr)) if self.may_be(client, place, Some(attr.ino), when) => {
                self.judge_file(client, place, attr)
            }
            Ok(Answer::Attr(_)) => Err("the name was never that then"),
            Err(error) if error.errno != Errno::NotFound => Err("no such answer was possible"),
            Err(_) if self.may_be(client, place, None, when) => Ok(()),
            Err(_) => Err("the name was there"),
            Ok(_) => Err("no such answer was possible"),
        }
    }

    fn count_move(&mut self, client: usize, dir: Ino) {
        self.world.tally.count("subtrees moved", 1);
        let known = self.world.clients[client].router.fragments();
        let inner = known.whole_of(dir).and_then(|part| known.whole_of(part));
        self.world.tally.count("fragments of fragments moved", u64::from(inner.is_some()));
        let mut names = self.registers.in_dir(dir).into_values();
        let linked = names.any(|ino| self.registers.had_several(ino));
        self.world.tally.count("subtrees moved with files of several names", u64::from(linked));
        self.workers[client].moved_inner |= self.inner() == Some(dir);
    }

    /// A listing has exactly the names of the directory that begin in a way: those of the client
    /// itself, or all when the cluster is at rest.
    pub(super) fn judge_listing(
        &self,
        dir: Ino,
        prefix: &str,
        all: bool,
        mut listed: BTreeMap<String, Ino>,
    ) -> Result<(), &'static str> {
        let mut known = self.registers.in_dir(dir);
        known.retain(|name, _| all || name.starts_with(prefix));
        listed.retain(|name, _| all || name.starts_with(prefix));
        if known == listed { Ok(()) } else { Err("the listing is not what is there") }
    }

    /// A name of another client may also have the result of that client's pending change.
    fn may_be(&self, client: usize, place: &Place, ino: Option<Ino>, when: (u64, u64)) -> bool {
        let changing = |other: &Worker| {
            // The first attempt of a repeated request may have taken effect.
            let asked = other.asked.iter().chain(other.script.front());
            asked.into_iter().any(|script| match (&script.call, &script.role) {
                (_, Role::Tree) => false,
                (
                    CallKind::Create { parent, name, .. } | CallKind::Link { parent, name, .. },
                    _,
                ) => (parent, name) == (&place.0, &place.1) && ino.is_some(),
                (CallKind::Unlink { parent, name }, _) => {
                    (parent, name) == (&place.0, &place.1) && ino.is_none()
                }
                (CallKind::Rename { from, to, .. }, _) => {
                    (from == place && ino.is_none()) || (to == place && ino.is_some())
                }
                _ => false,
            })
        };
        let others = self.workers.iter().enumerate().filter(|(at, _)| *at != client);
        self.registers.may_be(place, ino, when)
            || self.job.makes(place, ino)
            || others.into_iter().any(|(_, other)| changing(other))
    }
}

/// The names in a listing, and their inodes.
pub(super) fn names_of(entries: &[(Vec<u8>, Attr)]) -> BTreeMap<String, Ino> {
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    entries.iter().map(|(name, attr)| (text(name), attr.ino)).collect()
}
