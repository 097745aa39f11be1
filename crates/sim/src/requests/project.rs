//! A client that works in a decoupled subtree: it asks the monitor for it, appends to its journal,
//! and merges.

use namespace::PlannedInode;
use policy::{Cell, Composition, InterferePolicy, Mechanism, Policy};
use types::{AttrChange, Cred, EntryName, Errno, Ino, Result, Stripe, Tid, Timestamp};
use wire::{Answer, MergeFlags};

use super::Requests;
use crate::call::{Call, CallKind};
use crate::jobs::{JobStep, RunningJob};
use crate::world::{Drive, Event, Routes};

/// Where a project stands.
#[derive(Debug)]
enum ProjectStage {
    /// Nobody asked yet.
    New,
    /// The monitor was asked.
    Asked(Tid),
    /// The answer was that the store fails: whether it was done is not known.
    Refused,
    /// Appending.
    Working,
    /// A merge is under way.
    Merging(u64),
    /// A merge was interrupted and must be made again.
    Interrupted,
    /// The server restarted during a merge that was to release the subtree.
    Doubtful,
    /// It was released.
    Done,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Project {
    pub(crate) region: usize,
    stage: ProjectStage,
    held: Option<RunningJob>,
    /// Directories that the journal itself made, and the root.
    dirs: Vec<Ino>,
    files: Vec<(Ino, Ino)>,
    /// Whether the journal is kept in the object store.
    global: bool,
    block: bool,
    /// Events until the next merge.
    target: u64,
    /// Whether the next merge gives the subtree back, however often it is tried.
    release: bool,
}

impl Project {
    /// Checks the invariants of the subtree, if the client has it.
    pub(crate) fn validate(&self) {
        self.held.iter().for_each(|held| held.job.inner.validate());
    }

    pub(crate) fn new(region: usize, global: bool, block: bool) -> Self {
        Self {
            region,
            stage: ProjectStage::New,
            held: None,
            dirs: Vec::new(),
            files: Vec::new(),
            global,
            block,
            target: 0,
            release: false,
        }
    }

    /// The server lost its memory, and with it the merges that no journal has: later work that
    /// builds on them is given up. Returns whether an unknown part of a merge exists: the part that
    /// was in the metadata store by then stays.
    pub(crate) fn server_restarted(&mut self) -> bool {
        let Some(held) = self.held.as_mut().filter(|_| !self.global) else { return false };
        held.job.inner.clear(true);
        held.job.earlier.clear();
        self.dirs.truncate(1);
        self.files.clear();
        let merging = matches!(self.stage, ProjectStage::Merging(_) | ProjectStage::Interrupted);
        if merging {
            // Whether the subtree was released with it is not known.
            self.stage = if self.release { ProjectStage::Doubtful } else { ProjectStage::Working };
        }
        merging
    }

    /// Whether it is about a region and its merges survive crashes.
    pub(crate) fn keeps(&self, region: usize) -> bool {
        self.region == region && self.global
    }

    fn policy(&self) -> Policy {
        let cell = if self.global { "weak-global" } else { "weak-none" };
        let mut policy = Policy::of_cell(Cell::from_name(cell).expect("a cell of Table II"));
        policy.allocated_inodes = 8;
        policy.interfere = if self.block { InterferePolicy::Block } else { InterferePolicy::Allow };
        policy
    }
}

impl Requests {
    /// One step of a client's project.
    pub(crate) fn work_on_project(&mut self, client: usize) {
        let Some(mut project) = self.workers[client].project.take() else { return };
        match project.stage {
            ProjectStage::New | ProjectStage::Refused => self.ask_for_subtree(client, &mut project),
            ProjectStage::Asked(tid) => self.asked(client, &mut project, tid),
            ProjectStage::Working => self.append(client, &mut project),
            ProjectStage::Interrupted => self.merge(client, &mut project),
            // Another job in the same subtree: its journal begins at position 1 again.
            ProjectStage::Done if self.world.rng.percent(30) => {
                project = Project::new(project.region, project.global, project.block);
            }
            ProjectStage::Merging(_) | ProjectStage::Doubtful | ProjectStage::Done => {}
        }
        self.workers[client].project = Some(project);
    }

    fn ask_for_subtree(&mut self, client: usize, project: &mut Project) {
        let region = &mut self.oracle.regions[project.region];
        if !region.known || region.closed {
            return;
        }
        region.closed = true;
        let (path, id) = (region.path.clone(), self.world.clients[client].id);
        let policy = project.policy().to_yaml();
        let tid = self.ask_monitor(&CallKind::Decouple { path, client: id, policy });
        project.stage = ProjectStage::Asked(tid);
    }

    fn asked(&mut self, client: usize, project: &mut Project, tid: Tid) {
        let id = self.world.clients[client].id;
        match self.world.monitor.answers.remove(&tid) {
            // The server crashed: the question is asked again.
            None if self.world.servers[0].recovered && !self.world.is_asked(tid) => {
                self.oracle.regions[project.region].closed = false;
                project.stage = ProjectStage::Refused;
            }
            None => {}
            Some(Ok(Answer::Decoupled(answer))) => {
                let result = self.oracle.granted(id, answer.range);
                self.world.check(result);
                let region = &mut self.oracle.regions[project.region];
                region.closed = false;
                region.owner = Some((id, project.block));
                project.dirs = vec![answer.root.ino];
                project.held = Some(RunningJob::new(id, &answer, project.policy(), true));
                project.target = self.world.rng.between(1, 40);
                project.stage = ProjectStage::Working;
            }
            Some(Ok(other)) => {
                self.world.check(Err(format!("a decoupling was answered {other:?}")))
            }
            Some(Err(failure)) => {
                let excused = matches!(failure.errno, Errno::Again | Errno::Io | Errno::NoSpace);
                if !excused {
                    self.world.check(Err(format!("a decoupling was refused: {failure:?}")));
                }
                self.oracle.regions[project.region].closed = false;
                project.stage = ProjectStage::Refused;
            }
        }
    }

    fn append(&mut self, client: usize, project: &mut Project) {
        let time = self.world.clock().time;
        let mut rng = self.world.rng.fork();
        for _ in 0..rng.between(1, 8) {
            let Some(inner) = project.held.as_mut().map(|held| &mut held.job.inner) else { return };
            if inner.inodes_left() == 0 {
                let what = CallKind::Extend { subtree: inner.root(), count: rng.between(1, 30) };
                let mut routed = self.world.clients[client].routed.values();
                if !routed.any(|it| matches!(it.call.what, CallKind::Extend { .. })) {
                    self.call(client, Call::root(what));
                }
                break;
            }
            if let Some(ino) = one_event(project, &mut rng, self.plan.names, time) {
                let taken = self.oracle.numbers.take(self.world.clients[client].id, ino);
                self.world.check(taken);
            }
        }
        if project.held.as_ref().is_some_and(|it| it.job.inner.events() >= project.target) {
            project.release = self.world.rng.percent(20);
            self.merge(client, project);
        }
    }

    /// Begins a merge if no other client has a request under way in the subtree.
    fn merge(&mut self, client: usize, project: &mut Project) {
        let root = self.oracle.regions[project.region].root;
        let routed = self.world.clients.iter().flat_map(|it| it.routed.values());
        let pending = routed.map(|it| &it.call).chain(self.workers.iter().flat_map(|it| &it.again));
        let quiet = !pending.into_iter().any(|call| self.is_about(call, root));
        self.oracle.regions[project.region].closed = true;
        if !quiet || !self.world.session(client).is_connected() {
            project.stage = ProjectStage::Interrupted;
            return;
        }
        let Some(held) = &mut project.held else { return };
        let composition = if project.global && self.world.rng.percent(30) {
            Composition::One(Mechanism::NonvolatileApply)
        } else {
            held.job.policy.effective()
        };
        let flags = MergeFlags { release: project.release, ..MergeFlags::default() };
        held.begin(&composition, flags);
        self.pursue_merge(client, project, None);
        self.disturb_merge(client);
    }

    /// Goes on with a merge, after an answer of the server.
    fn pursue_merge(
        &mut self,
        client: usize,
        project: &mut Project,
        answer: Option<Result<Answer>>,
    ) {
        let Some(held) = &mut project.held else { return };
        let (now, epoch) = (self.world.moment(), self.world.session(client).epoch());
        let given_up = held.job.note.unused.len();
        let step = held.pursue(&self.world.memory, now, epoch, answer);
        // From now on any client may get them.
        for range in &held.job.note.unused[given_up..] {
            self.oracle.numbers.give_up(self.world.clients[client].id, *range);
        }
        match step {
            JobStep::Ask(what, sent, journal) => {
                self.workers[client].merging = journal;
                let number = self.begin(client, Call::root(what), sent, Vec::new());
                project.stage = ProjectStage::Merging(number);
            }
            JobStep::Done(Err(error)) if error.errno != Errno::Stale => {
                project.stage = ProjectStage::Interrupted;
                self.workers[client].left += 2;
            }
            JobStep::Done(result) => self.merged(client, project, result.is_err()),
        }
    }

    /// A merge is done. If the subtree is `gone`, an earlier attempt released it, and a crash took
    /// the answer, or the answer was that the store fails.
    fn merged(&mut self, client: usize, project: &mut Project, gone: bool) {
        self.world.tally.count("jobs merged", 1);
        let region = &mut self.oracle.regions[project.region];
        region.closed = false;
        let journal = &self.workers[client].merging;
        if gone && region.known && region.last_merge != *journal {
            // The next look shows how much of the journal exists.
            region.in_doubt = project.global.then(|| journal.clone());
            region.known = false;
        }
        project.target = self.world.rng.between(1, 40);
        project.dirs = vec![region.root];
        if region.known {
            project.dirs = super::choose::dirs(&self.oracle.model, region.root);
        }
        project.files.clear();
        project.stage = ProjectStage::Working;
        if project.release || gone {
            region.owner = None;
            project.stage = ProjectStage::Done;
        }
    }

    /// Sometimes the client dies while its journal is being merged, and then the server.
    fn disturb_merge(&mut self, client: usize) {
        let faults = &self.world.faults;
        if !self.issuing || faults.crashes == 0 || faults.kills == 0 || !self.world.rng.percent(20)
        {
            return;
        }
        let at = self.world.rng.between(1, 6 * self.world.delay_max);
        self.world.schedule(at, Event::Kill(client as u64 - 1));
        let later = self.world.rng.between(0, self.world.delay_max);
        self.world.schedule(at + later, Event::Crash);
    }

    /// Whether a request is about something below a directory, as far as the model knows.
    fn is_about(&self, call: &Call, root: Ino) -> bool {
        let (inos, names) = call.what.touched();
        let below = |ino| {
            self.oracle.model.node(ino).is_none()
                || crate::region::is_within(&self.oracle.model, ino, root)
        };
        inos.iter().any(|ino| below(*ino))
            || names
                .iter()
                .any(|(dir, name)| self.oracle.model.peek(*dir, name.as_bytes()).is_some_and(below))
    }

    /// Brings a merge or a question to the monitor that is under way to its end. Returns whether
    /// there was something to do.
    pub(crate) fn finish_project(&mut self, client: usize) -> bool {
        let Some(project) = &self.workers[client].project else { return false };
        let busy = match project.stage {
            ProjectStage::Refused => !self.asks_no_more(project),
            ProjectStage::Asked(_) | ProjectStage::Interrupted => true,
            ProjectStage::New
            | ProjectStage::Working
            | ProjectStage::Merging(_)
            | ProjectStage::Doubtful
            | ProjectStage::Done => false,
        };
        if busy && self.world.clients[client].alive {
            self.run_until(100_000_000, |_| false);
            // By now the server knows the dead clients: their requests took effect, or never will.
            for (client, worker) in self.world.clients.iter_mut().zip(&mut self.workers) {
                if !client.alive {
                    client.routed.clear();
                    worker.again.clear();
                }
            }
            self.work_on_project(client);
        }
        busy && self.world.clients[client].alive
    }

    /// After a crash the content of the region that a project requested is unknown, and the answer
    /// is lost. Such a region is not requested again before a client has looked, and no client
    /// could look while the project may have it and block the rest.
    fn asks_no_more(&self, project: &Project) -> bool {
        matches!(project.stage, ProjectStage::Refused) && !self.oracle.regions[project.region].known
    }

    /// The region of which a client does not know whether it has it, and never will.
    pub(crate) fn asked_in_vain(&mut self, client: usize) -> Option<usize> {
        let gives_up =
            self.workers[client].project.as_ref().is_some_and(|it| self.asks_no_more(it));
        let alive = self.world.clients[client].alive;
        let doubtful = |project: &&mut Project| matches!(project.stage, ProjectStage::Doubtful);
        let super::Worker { project, merging, .. } = &mut self.workers[client];
        let project = project.as_mut().filter(|it| gives_up || !alive || doubtful(it))?;
        if doubtful(&project) {
            project.stage = ProjectStage::Done;
            self.oracle.regions[project.region].owner = None;
            return Some(project.region);
        }
        let asked = matches!(project.stage, ProjectStage::Asked(_) | ProjectStage::Refused);
        if matches!(project.stage, ProjectStage::Merging(_) | ProjectStage::Interrupted) {
            // No reply tells how much of its last merge exists.
            let region = &mut self.oracle.regions[project.region];
            let known = project.global && region.known;
            region.in_doubt = known.then(|| merging.clone());
            region.known = false;
        }
        project.stage = ProjectStage::Done;
        asked.then_some(project.region)
    }

    /// A request of a client is answered.
    pub(crate) fn project_answered(
        &mut self,
        client: usize,
        number: u64,
        call: &Call,
        result: &Result<Answer>,
    ) {
        if let Some(mut project) = self.workers[client].project.take() {
            self.take_answer(client, &mut project, (number, call), result);
            self.workers[client].project = Some(project);
        }
    }

    fn take_answer(
        &mut self,
        client: usize,
        project: &mut Project,
        (number, call): (u64, &Call),
        result: &Result<Answer>,
    ) {
        match (&call.what, result) {
            // For the client's asynchronous changes.
            (CallKind::Extend { subtree: Ino(0), .. }, _) => {}
            (CallKind::Extend { .. }, Ok(Answer::Range(range))) => {
                project.held.iter_mut().for_each(|held| held.job.take_range(*range));
            }
            (CallKind::Merge { .. }, result) if matches!(project.stage, ProjectStage::Merging(known) if known == number) =>
            {
                self.pursue_merge(client, project, Some(result.clone()));
            }
            _ => {}
        }
    }
}

/// Appends one event to the journal of a project. Returns the inode that it creates, if any.
fn one_event(
    project: &mut Project,
    rng: &mut types::rng::Rng,
    names: u64,
    time: Timestamp,
) -> Option<Ino> {
    let cred = Cred::root();
    let dir = match rng.below(30) {
        // Events of a dishonest client: a directory outside, and some that do not exist.
        0 => Ino::ROOT,
        1 | 2 => Ino((1 << 50) + rng.below(3)),
        _ => project.dirs[rng.index(project.dirs.len())],
    };
    let name = format!("n{}", rng.below(names + 2));
    let inner = &mut project.held.as_mut()?.job.inner;
    // Its files are striped otherwise than those that are made by request.
    let stripe = Stripe::MIN;
    let new = |mode| PlannedInode { mode, stripe, time, ..PlannedInode::default() };
    match rng.below(12) {
        0 | 1 => {
            let ino = inner.create(&cred, dir, name.as_bytes(), &new(0o040_777)).ok()?;
            project.dirs.push(ino);
            return Some(ino);
        }
        2 if !project.files.is_empty() => {
            let (home, ino) = project.files[rng.index(project.files.len())];
            let change = AttrChange { mode: Some(0o600), ..AttrChange::default() };
            inner.set_attr_blindly(ino, home, &change, time);
        }
        3 if inner.grant().empty => {
            let _ = inner.unlink(&cred, dir, name.as_bytes(), time);
        }
        4 if inner.grant().empty => {
            let to = project.dirs[rng.index(project.dirs.len())];
            let other = format!("n{}", rng.below(names + 2));
            let from = EntryName::new(dir, name.as_bytes());
            let to = EntryName::new(to, other.as_bytes());
            let _ = inner.rename(&cred, from, to, types::RenameFlags::default(), time);
        }
        5 if inner.grant().empty => {
            let _ = inner.rmdir(&cred, dir, name.as_bytes(), time);
        }
        _ => {
            let ino = inner.create(&cred, dir, name.as_bytes(), &new(0o100_644)).ok()?;
            project.files.push((dir, ino));
            return Some(ino);
        }
    }
    None
}
