//! Several ranks on one store: subtrees move between them at random while clients work, directories
//! are split and their fragments move, servers are killed at any step of that, and connections
//! break.
//!
//! Every name is changed by one client and looked at by all, so that the possible answers are known
//! exactly (`register`): the value that the name had at some moment between question and answer.
//! The next look at a name finds a change that was lost, done twice, or undone by a recovery, and
//! so does an answer of a rank that is not the authority any more.
//!
//! In the end, when everything is healed, each directory must be served by exactly one rank, and
//! have the expected entries.

mod audit;
mod balance;
mod faults;
mod job;
mod judge;
mod linking;
mod locks;

mod moves;
mod opens;
mod register;
mod script;
mod tree;
mod worker;

use std::panic::{AssertUnwindSafe, catch_unwind};

use client::SessionEffects;
use mds::{Mds, Settings};
use metastore::request::Token;
use types::rng::Rng;
use types::{ClientId, Ino, Rank, Result, Span};
use wire::{Answer, Message};

use crate::call::CallKind;
use crate::plan::Faults;
use crate::tally::Report;
use crate::world::{Client, Drive, Event, MS, Routed, Routes, Workload, World};
use balance::Balancing;
use job::Job;
use locks::Locks;
use opens::Opens;

use register::Registers;
use script::{Role, Script};
use tree::Tree;
use worker::Worker;

/// A server checks itself after every input while it is small; all of its invariants at once are
/// checked after so many inputs, because that takes longer than an input.
const VALIDATED_EVERY: u64 = 16;
/// How long everything may take to come to rest when nothing is broken any more.
const PATIENCE: u64 = 60_000 * MS;
/// Directories that move.
const DIRS: usize = 3;
/// The name of a file with locks, in each of these.
const LOCKED: &str = "c0.locked";
/// Directories that move, and in which further directories are renamed.
const BASES: usize = 3;

/// See the module documentation.
#[derive(Debug)]
struct Ranks {
    world: World,
    /// The work of each client.
    workers: Vec<Worker>,
    /// Files get several names.
    links: bool,
    /// All of them in one directory, which can go to other ranks then.
    links_inside: bool,
    registers: Registers,
    balancing: Option<Balancing>,
    job: Job,
    tree: Tree,
    locks: Locks,
    opens: Opens,
    /// No client changes anything any more.
    at_rest: bool,
}

/// Runs a seed; with `directories` they are renamed between ranks, too.
#[must_use]
pub fn run(seed: u64, trace: bool, directories: bool) -> Report {
    let mut run = Ranks::new(seed, trace);
    run.world.settings.pass_directories = directories;
    let ended = catch_unwind(AssertUnwindSafe(|| run.run()));
    run.world.note_end(ended.is_err());
    for mds in std::mem::take(&mut run.world.servers).into_iter().filter_map(|server| server.mds) {
        run.count(&mds);
    }
    let redirected = run.world.clients.iter().map(|it| it.router.redirected()).sum();
    let tally = &mut run.world.tally;
    tally.count("journals merged", run.job.merges);
    tally.count("requests sent on", redirected);
    tally.count("servers killed", run.world.crashes);
    run.world.report()
}

impl Ranks {
    fn new(seed: u64, trace: bool) -> Self {
        let mut rng = Rng::new(seed ^ 0x7261_6e6b_7321);
        let ranks = 2 + rng.index(2);
        let settings = Settings {
            // The model counts.
            about_bytes: u64::MAX,
            segment_bytes_max: rng.pick(&[400, 4000, 100_000]),
            segments_max: rng.pick(&[2, 4, 16]),
            commit_interval: Span::from_millis(rng.pick(&[1, 5, 20])),
            dispatch: rng.pick(&[1, 2, 4]),
            reconnect: Span::from_millis(400),
            recall: Span::from_millis(2000),
            inodes_max: rng.pick(&[20, 1 << 20]),
            capture_rows: rng.pick(&[1, 4096]),
            split_entries: if seed.is_multiple_of(5) { 6 } else { 0 },
            balance_interval: Span(u64::MAX),
            balance_half_life: Span::from_millis(200),
            ..Settings::default()
        };
        let mut world = World::new(settings, ranks, rng, trace);
        world.validated_every = VALIDATED_EVERY;
        world.delay_max = world.rng.pick(&[1, 3, 10]) * MS;
        if world.rng.percent(85) {
            let (crashes, breaks, lost_percent) = (1, 1, 5);
            world.faults = Faults { crashes, breaks, lost_percent, ..Faults::default() };
        }
        Self {
            balancing: Balancing::of(seed, &mut world),
            world,
            workers: Vec::new(),
            // Half of the seeds: few links need a directory of another rank.
            links: seed & 1 == 1,
            links_inside: seed & 0b1_0101 == 0b1_0001,
            registers: Registers::default(),
            job: Job::default(),
            tree: Tree::default(),
            locks: Locks::default(),
            opens: Opens::default(),

            at_rest: false,
        }
    }

    fn run(&mut self) {
        self.set_up();
        let span = 1500 * MS + self.world.rng.below(1500) * MS;
        self.run_until(span, |_| false);
        self.heal();
        if !self.run_until(PATIENCE, Self::is_done) {
            self.world.fail("something never ended".into());
        }
        self.audit();
    }

    /// Servers start; the first client makes the directories, then all go to work.
    fn set_up(&mut self) {
        for server in 0..self.world.servers.len() {
            self.start(server);
        }
        // The first client moves subtrees, one has decoupled one, the last ones rename directories,
        // the rest work.
        for number in 0..=tree::LAST as u64 {
            let remembers = self.world.rng.percent(50);
            self.world.clients.push(Client::new(ClientId(number + 1), remembers));
            self.workers.push(Worker::default());
        }
        for number in 0..DIRS + BASES {
            let script = Script::make_dir(Ino::ROOT, &format!("d{number}"));
            self.workers[0].script.push_back(script);
        }
        self.world.schedule(MS, Event::Turn(0));
        self.run_until(20_000 * MS, |run| run.workers[0].dirs.len() == DIRS + BASES);
        self.tree.bases = self.workers[0].dirs.split_off(DIRS);
        self.begin_job();
        for dir in self.workers[0].dirs.clone() {
            let role = Role::MakeLocked;
            let script = Script::create(&(dir, LOCKED.to_owned()));
            self.workers[0].script.push_back(Script { role, ..script });
        }
        self.world.schedule(MS, Event::Turn(0));

        self.run_until(20_000 * MS, |run| run.workers[0].is_idle());
        let dirs = self.workers[0].dirs.clone();
        for client in 1..self.workers.len() {
            self.workers[client].dirs.clone_from(&dirs);
            self.world.schedule(MS, Event::Turn(client));
        }
        self.world.schedule(10 * MS, Event::Move);
        if self.is_faulty() {
            self.world.schedule(50 * MS, Event::Break(0));
            self.world.schedule(60 * MS, Event::Crash);
        }
    }

    /// Adds the counters of a server at its end.
    fn count(&mut self, mds: &Mds) {
        for (name, value) in mds.counters() {
            let what = match name.as_str() {
                "colocated" => "directories moved for second names",
                "renamed_away" => "names of files passed",
                "dirs_renamed_away" => "names of directories passed",
                _ => continue,
            };
            self.world.tally.count(what, value);
        }
    }

    /// Whether servers are killed and connections break.
    fn is_faulty(&self) -> bool {
        self.world.faults.crashes > 0
    }

    fn is_done(&self) -> bool {
        let rests = |mds: &Mds| mds.is_active() && !mds.is_moving();
        self.world.servers.iter().all(|server| server.is(rests))
            && self.workers.iter().all(Worker::is_idle)
            && !self.job.is_pending()
    }
}

impl Workload for Ranks {
    fn world(&self) -> &World {
        &self.world
    }

    fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Turn(client) => self.turn(client),
            Event::Break(_) => self.break_some(),
            Event::Recalled(client, ino) => self.give_up(client, ino),
            Event::Move if self.balancing.is_some() => self.crash_mover(),
            Event::Move => self.begin_move(),
            _ => self.crash_some(),
        }
    }

    fn answered(&mut self, client: usize, _: u64, routed: Routed, result: Result<Answer>) {
        if let CallKind::Yield { ino } = routed.call.what {
            return self.given_up(client, ino, &result);
        }
        self.step_ended(client, routed.at, &result);
    }

    fn told_monitor(&mut self, message: &Message<'_>) {
        if let Message::Balanced(bytes) = message {
            self.balanced(bytes);
        }
    }

    fn executing(&mut self, server: usize, token: Token) {
        self.check_writer(server, token);
    }

    fn ticked(&mut self, server: usize) {
        self.load_machine(server);
    }

    fn crashed(&mut self, mds: &Mds) {
        self.count(mds);
        self.world
            .tally
            .count("servers killed with a subtree on its way", u64::from(mds.is_moving()));
    }

    fn flushed(&mut self, client: usize, rank: Rank, effects: &SessionEffects) {
        self.locks_lost(client, &effects.locks_lost);
        self.recalled(client, &effects.recalled);
        if let Some(lost) = self.world.link(client, rank).session.take_lost() {
            let text = format!("client.{client} lost a change that {rank} had answered: {lost:?}");
            self.world.fail(text);
        }
    }
}
