//! One more name for a file whose names another rank has: one directory goes to the other's rank
//! first, or the other one, and if both stay there is no such name (B-02).

use types::{Errno, Ino, Rank};
use wire::{Answer, Failure, Op};

use super::client::SoFar;
use super::register::Place;
use super::script::Script;
use super::{Event, MS, RanksWorld};

/// A name that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) from: Place,
    pub(super) to: Place,
    pub(super) ino: Ino,
    /// How often the directories were looked for.
    rounds: u32,
}

/// After this many rounds a client gives a link up, as real clients do after a while.
const ROUNDS_MAX: u32 = 30;

/// A directory that is to go for that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Colocation {
    link: Link,
    /// The directory, or its fragment, or the file whose directory is meant.
    ino: Ino,
    to: Rank,
    /// The other one was refused.
    is_second: bool,
}

impl Link {
    pub(super) fn op(&self) -> Op<'_> {
        Op::Link { ino: self.ino, parent: self.to.0, name: &self.to.1 }
    }
}

impl Colocation {
    pub(super) fn op(&self) -> Op<'_> {
        Op::Gather { ino: self.ino, rank: self.to }
    }

    pub(super) fn named(&self) -> Ino {
        self.ino
    }
}

impl RanksWorld {
    /// A further name for an inode that has one already, if there is such an inode.
    pub(super) fn choose_link(&self, from: Place, to: Place) -> Option<Script> {
        let ino = self.registers.now(&from)?;
        let stays = |place: &Place| self.is_about_job(place.0);
        let may_be = self.registers.now(&to).is_none() && !stays(&from) && !stays(&to);
        may_be.then_some(Script::Link(Link { from, to, ino, rounds: 0 }))
    }

    /// Says whether the answer was one on the way to a name, or makes a way necessary.
    pub(super) fn linking_answered(
        &mut self,
        client: usize,
        (script, at): (&Script, u64),
        result: &Result<Answer, Failure>,
    ) -> bool {
        let errno = result.as_ref().err().map(|failure| failure.errno);
        match (script, errno) {
            // The rank of the directory may know nothing of the file.
            (Script::Link(link), Some(Errno::CrossDevice | Errno::Stale)) => {
                self.bring_together(client, link, at);
            }
            (Script::Gather(gathering), _) => {
                self.colocate_answered(client, (gathering, at), result);
            }
            _ => return false,
        }
        true
    }

    fn bring_together(&mut self, client: usize, link: &Link, at: u64) {
        let known = &self.clients[client];
        let homes = (known.home(&link.from), known.home(&link.to));
        let ranks = (known.place(homes.0), known.place(homes.1));
        if ranks.0 == ranks.1 {
            return self.locate_link(client, link);
        }
        let (link, ino, to) = (link.clone(), homes.1, ranks.0);
        let gathering = Colocation { link, ino, to, is_second: false };
        self.ask(client, Script::Gather(gathering), ranks.1, (at, 0), SoFar::default());
    }

    /// Looks up the ranks of both directories, and then the file, and continues.
    fn locate_link(&mut self, client: usize, link: &Link) {
        if link.rounds == ROUNDS_MAX {
            self.report.apart += 1;
            return self.schedule(MS, Event::Turn(client));
        }
        let link = &Link { rounds: link.rounds + 1, ..link.clone() };
        let known = &mut self.clients[client];
        for (dir, name) in [&link.from, &link.to] {
            let home = known.fragments.home(*dir, name);
            if home != *dir {
                known.fragments.forget(home);
            }
            known.places.remove(dir);
        }
        known.script.push_front(Script::Link(link.clone()));
        known.script.push_front(Script::Lookup(link.from.clone()));
        for dir in [link.from.0, link.to.0] {
            if let Some(at) = self.top(client, dir) {
                let look = Script::Lookup((Ino::ROOT, format!("d{at}").into_bytes()));
                self.clients[client].script.push_front(look);
            }
        }
        self.clients[client].again = true;
        self.schedule(2 * MS, Event::Turn(client));
    }

    fn colocate_answered(
        &mut self,
        client: usize,
        (gathering, at): (&Colocation, u64),
        result: &Result<Answer, Failure>,
    ) {
        let Colocation { link, ino, to, is_second } = gathering;
        match result {
            Ok(Answer::Done) => {
                self.report.gathered += 1;
                let home = self.clients[client].home(&link.from);
                let gone = if *is_second { home } else { *ino };
                self.clients[client].places.insert(gone, *to);
                let rank = self.clients[client].place(self.clients[client].home(&link.to));
                let script = Script::Link(link.clone());
                self.ask(client, script, rank, (at, 0), SoFar::default());
            }
            Ok(Answer::Fragments(fragments)) => {
                self.clients[client].fragments.note(fragments);
                self.clients[client].places.extend(fragments.parts);
                self.locate_link(client, link);
            }
            Ok(Answer::Elsewhere(elsewhere)) if elsewhere.root == Ino(0) => {
                self.locate_link(client, link);
            }
            Err(failure) if matches!(failure.errno, Errno::Again | Errno::Stale) => {
                self.locate_link(client, link);
            }
            Err(failure) if failure.errno == Errno::Busy && !is_second => {
                let known = &self.clients[client];
                let ranks =
                    (known.place(known.home(&link.from)), known.place(known.home(&link.to)));
                let (link, ino, is_second) = (link.clone(), link.ino, true);
                let gathering = Colocation { link, ino, to: ranks.1, is_second };
                self.ask(client, Script::Gather(gathering), ranks.0, (at, 0), SoFar::default());
            }
            Err(failure) if failure.errno == Errno::Busy => {
                self.report.apart += 1;
                self.schedule(MS, Event::Turn(client));
            }
            _ => self.fail(format!("client.{client} {gathering:?} got {result:?}")),
        }
    }

    /// Something to say of a file, which is the same through all of its names.
    pub(super) fn choose_to_say(&mut self, place: Place) -> Script {
        let ino = self.registers.now(&place).filter(|_| !self.is_about_job(place.0));
        let Some(ino) = ino else { return Script::Lookup(place) };
        let before = self.registers.said.get(&ino).copied().unwrap_or(0);
        Script::Say(place, ino, (before + 1) & types::MODE_PERMISSIONS)
    }

    /// After a restart the server may not know the inode: a look-up of its name brings it back.
    pub(super) fn looks_for_what_it_says(&mut self, client: usize, script: &Script) -> bool {
        let Script::Say(place, ..) = script else { return false };
        self.clients[client].script.push_front(script.clone());
        self.again(client, Script::Lookup(place.clone()), MS);
        true
    }

    /// A file has a name more.
    pub(super) fn linked(&mut self, link: &Link, when: (u64, u64)) {
        self.report.linked += 1;
        self.registers.linked.insert(link.ino);
        self.registers.changed(link.to.clone(), Some(link.ino), when);
    }

    /// Whether a file of a client has as many names as it should, and is as that client said last.
    pub(super) fn judge_file(
        &self,
        client: usize,
        place: &Place,
        attr: &types::Attr,
    ) -> Result<(), &'static str> {
        let is_own = place.1.starts_with(format!("c{client}.").as_bytes());
        let Some(ino) = self.registers.now(place).filter(|_| is_own) else { return Ok(()) };
        if self.registers.names_of(ino) != attr.nlink as usize {
            return Err("the file has more names, or fewer");
        }
        let said = self.registers.said.get(&ino);
        if said.is_some_and(|said| attr.mode & types::MODE_PERMISSIONS != *said) {
            return Err("that was not said of the file last");
        }
        Ok(())
    }
}
