//! The next steps of each client, and the step that is under way.

use std::collections::VecDeque;

use types::{Errno, Ino, Rank, Result};
use wire::Answer;

use super::job::JOB;
use super::register::Place;
use super::script::{Role, Script};
use super::tree;
use super::{Event, MS, Ranks, Routes};
use crate::call::{Call, CallKind};

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Worker {
    pub(super) asked: Option<Script>,
    pub(super) script: VecDeque<Script>,
    pub(super) dirs: Vec<Ino>,
    pub(super) finished: bool,
    next_name: u64,
    /// How often the present step was repeated.
    pub(super) tries: u32,
    /// Asked again after a while.
    again: bool,
    pub(super) moved_inner: bool,
}

impl Worker {
    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_none() && self.script.is_empty() && !self.again
    }
}

/// How often a step is repeated before it counts as endless.
const TRIES_MAX: u32 = 4000;

impl Ranks {
    /// Time for a client to do something, if it waits for nothing.
    pub(super) fn turn(&mut self, client: usize) {
        self.workers[client].again = false;
        if self.workers[client].asked.is_some() {
            return;
        }
        let script = match self.workers[client].script.pop_front() {
            Some(script) => script,
            None if client == JOB && self.job.is_pending() => self.choose_job(),
            None if client == 0 => return,
            None if self.workers[client].finished => {
                self.close_files(client);
                match self.end_lock(client) {
                    Some(script) => script,
                    None => return,
                }
            }
            None if client == JOB => self.choose_job(),
            // They do not look for names in fragments.
            None if client >= tree::FIRST && self.world.settings.split_entries == 0 => {
                self.choose_tree(client)
            }
            None => self.choose(client),
        };
        let (paths, call) = (self.paths_of(client, &script), Call::root(script.call.clone()));
        let journal = if let Role::Job(journal) = &script.role { journal.clone() } else { None };
        self.workers[client].asked = Some(script);
        self.begin(client, call, journal, paths);
    }

    /// A client's next step. It changes names of its own only.
    fn choose(&mut self, client: usize) -> Script {
        match self.world.rng.below(20) {
            0..=2 => return self.choose_lock(client),
            3 | 4 => return self.choose_open(client),
            _ => {}
        }
        let dir = |run: &mut Self| {
            let dirs = &run.workers[client].dirs;
            dirs[run.world.rng.index(dirs.len())]
        };
        let mine = |run: &mut Self, dir: Ino| {
            let name = format!("c{client}.{}", run.world.rng.below(4));
            (dir, name)
        };
        let place = dir(self);
        let place = mine(self, place);
        let exists = self.registers.now(&place).is_some();
        match self.world.rng.below(10) {
            0..=3 if exists => Script::unlink(place),
            0..=3 => Script::create(&place),
            4 if exists => {
                let to = if self.world.rng.percent(60) { place.0 } else { dir(self) };
                let to = mine(self, to);
                if self.registers.now(&to).is_none() {
                    Script::rename(place, to)
                } else {
                    Script::look_up(to)
                }
            }
            5 if exists && self.links => {
                let to = if self.links_inside { place.0 } else { dir(self) };
                let to = mine(self, to);
                self.choose_link(place.clone(), to).unwrap_or(Script::look_up(place))
            }
            4 | 5 => Script::look_up(place),
            6 => {
                let other = 1 + self.world.rng.index(self.workers.len() - 1);
                Script::look_up((place.0, format!("c{other}.{}", self.world.rng.below(4))))
            }
            7 if exists && self.links => self.choose_to_say(place),
            7 => Script::set_mode(place.0, 0o755, Role::Plain),
            8 => Script::list(place.0),
            _ => {
                self.workers[client].next_name += 1;
                let number = self.workers[client].next_name;
                Script::create(&(place.0, format!("c{client}.n{number}")))
            }
        }
    }

    pub(super) fn step_ended(&mut self, client: usize, at: u64, result: &Result<Answer>) {
        let Some(script) = self.workers[client].asked.take() else { return };
        let errno = result.as_ref().err().map(|error| error.errno);
        if script.role == Role::Tree {
            return self.tree_answered(client, script, at, result);
        }
        let of_job = matches!(script.role, Role::Job(_));
        if let Role::Lock(file) = script.role
            && errno != Some(Errno::Stale)
        {
            let judged = self.lock_answered(client, (file, at), &script.call, result);
            return self.judged(client, &script, judged, result);
        }
        if let Role::Open(file) = script.role
            && !matches!(errno, Some(Errno::Stale | Errno::Again))
        {
            let judged = self.open_answered(client, file, result);
            return self.judged(client, &script, judged, result);
        }
        if errno == Some(Errno::Again) && !matches!(script.call, CallKind::Merge { .. }) {
            return self.repeat(client, script, result);
        }
        if !of_job && errno == Some(Errno::Stale) {
            if self.is_part_gone(&script) {
                // The fragment is gone since this was planned.
                return self.world.schedule(1, Event::Turn(client));
            }
            self.world.tally.count(
                "requests asked for again in vain",
                u64::from(!self.paths_of(client, &script).is_empty()),
            );
            return self.repeat(client, script, result);
        }
        if !of_job && self.is_kept_apart(client, &script, errno) {
            return self.world.schedule(MS, Event::Turn(client));
        }
        self.workers[client].tries = 0;
        self.world.tally.count("answers judged", 1);
        let judged = if of_job {
            self.job_answered(&script, result)
        } else {
            self.judge(client, &script, at, result)
        };
        self.judged(client, &script, judged, result);
    }

    /// A step has ended, and its answer was possible or not.
    fn judged(
        &mut self,
        client: usize,
        script: &Script,
        judged: std::result::Result<(), &'static str>,
        result: &Result<Answer>,
    ) {
        if let Err(violation) = judged {
            let text = format!("client.{client} {script:?}: {violation}, got {result:?}");
            return self.world.fail(text);
        }
        if let CallKind::Rename { from, to, .. } = &script.call
            && self.rank_of(client, from) != self.rank_of(client, to)
        {
            let looks = [from.clone(), to.clone()].map(Script::look_up);
            self.workers[client].script.extend(looks);
        }
        self.next_turn(client);
    }

    pub(super) fn next_turn(&mut self, client: usize) {
        let after = self.world.rng.between(1, 4 * MS);
        self.world.schedule(after, Event::Turn(client));
    }

    /// The rank of a name, as far as a client knows.
    fn rank_of(&self, client: usize, place: &Place) -> Rank {
        let known = &self.world.clients[client];
        known.router.place(known.dir_of(place))
    }

    /// Repeats a step that was not executed.
    fn repeat(&mut self, client: usize, script: Script, result: &Result<Answer>) {
        // A fragment with a name of a file that has several may not come back.
        if matches!(script.call, CallKind::Join { .. }) && self.links && self.world.rng.percent(20)
        {
            self.world.tally.count("moves refused", 1);
            return self.world.schedule(MS, Event::Turn(client));
        }
        if self.may_try_again(client, &script, result) {
            self.again(client, script, 5 * MS);
        }
    }

    /// Counts the attempts of a step.
    pub(super) fn may_try_again(
        &mut self,
        client: usize,
        script: &Script,
        result: &Result<Answer>,
    ) -> bool {
        let tries = &mut self.workers[client].tries;
        *tries += 1;
        let may_be = *tries <= TRIES_MAX;
        if !may_be {
            self.world.fail(format!("client.{client} {script:?} never ends: {result:?}"));
        }
        may_be
    }

    /// Asks again after a while.
    pub(super) fn again(&mut self, client: usize, script: Script, after: u64) {
        self.workers[client].script.push_front(script);
        self.workers[client].again = true;
        self.world.schedule(after, Event::Turn(client));
    }

    /// The number in the name of a directory of the root.
    pub(super) fn top(&self, client: usize, dir: Ino) -> Option<usize> {
        let all = self.workers[client].dirs.iter().chain(&self.tree.bases);
        all.copied().position(|it| it == dir)
    }

    /// The paths of the inodes of a step, as far as there are any: fragments have none.
    fn paths_of(&self, client: usize, script: &Script) -> Vec<(String, Ino)> {
        let mut inos = script.call.touched().0;
        match (&script.role, &script.call) {
            (Role::File((dir, _)), _) => inos.push(*dir),
            (_, CallKind::Extend { subtree, .. } | CallKind::Merge { subtree, .. }) => {
                inos.push(*subtree);
            }
            _ => {}
        }
        if let Role::Lock(file) | Role::Open(file) = &script.role {
            let ino = &self.locks.ino(*file);
            let (dir, name) = self.lock_place(*file);
            let path = self.path_of(client, *dir).map(|path| (format!("{path}/{name}"), *ino));
            return path.into_iter().collect();
        }
        let path = |ino: Ino| Some((self.path_of(client, ino)?, ino));

        let mut paths: Vec<_> = inos.into_iter().filter_map(path).collect();
        if let (Role::File((dir, name)), CallKind::SetAttr { ino, .. } | CallKind::Link { ino, .. }) =
            (&script.role, &script.call)
            && let Some(path) = self.path_of(client, *dir)
        {
            paths.push((format!("{path}/{name}"), *ino));
        }
        paths
    }

    fn path_of(&self, client: usize, dir: Ino) -> Option<String> {
        if let Some(at) = self.top(client, dir) {
            return Some(format!("d{at}"));
        }
        self.path_of_job(dir).or_else(|| self.path_in_tree(dir))
    }
}
