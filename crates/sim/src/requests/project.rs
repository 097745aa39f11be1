//! A client that works in a decoupled subtree: it asks the monitor for it, appends to its journal,
//! and merges.

use client::{ClientSubtree, Grant};
use metastore::request::client_journal_name;
use namespace::PlannedInode;
use objstore::{Expect, ObjectStore};
use policy::{Cell, InterferePolicy, Policy};
use types::{
    AttrChange, Cred, EntryName, Errno, Ino, InoRange, Result, Seq, Stripe, Tid, Timestamp,
};
use wire::{Answer, MergeFlags, UnusedNumbers};

use super::Requests;
use crate::call::{Call, CallKind};
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
    inner: Option<ClientSubtree>,
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
    /// The server was asked to merge the journal object that is held: it is the server's.
    asked: bool,
    /// Numbers that it gave up: they go back with the subtree.
    unused: Vec<InoRange>,
}

impl Project {
    /// Checks the invariants of the subtree, if the client has it.
    pub(crate) fn validate(&self) {
        self.inner.iter().for_each(ClientSubtree::validate);
    }

    pub(crate) fn new(region: usize, global: bool, block: bool) -> Self {
        Self {
            region,
            stage: ProjectStage::New,
            inner: None,
            dirs: Vec::new(),
            files: Vec::new(),
            global,
            block,
            target: 0,
            release: false,
            asked: false,
            unused: Vec::new(),
        }
    }

    /// The server lost its memory, and with it the merges that no journal has: later work that
    /// builds on them is given up. Returns whether an unknown part of a merge exists: the part that
    /// was in the metadata store by then stays.
    pub(crate) fn server_restarted(&mut self) -> bool {
        let Some(inner) = self.inner.as_mut().filter(|_| !self.global) else { return false };
        inner.clear();
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
                let wire::Decoupled { root, range, epoch, empty } = answer;
                let grant = Grant { client: id, root, range, epoch, empty, check: false };
                project.dirs = vec![root.ino];
                project.inner = Some(ClientSubtree::new(grant, Seq(1)));
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
            let Some(inner) = &mut project.inner else { return };
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
        if project.inner.as_ref().is_some_and(|inner| inner.events() >= project.target) {
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
        let Some(inner) = &mut project.inner else { return };
        if project.release {
            // From now on any client may get them.
            for range in inner.give_up() {
                self.oracle.numbers.give_up(self.world.clients[client].id, range);
                project.unused.push(range);
            }
        }
        let bytes = journal_of(inner);
        let first = inner.header().first_seq.0;
        let mut object = String::new();
        let mut announced = bytes.len() as u64;
        if project.global && inner.events() > 0 {
            object = client_journal_name(
                root,
                self.world.clients[client].id,
                inner.grant().range,
                first,
            );
            if !project.asked {
                let _ = self.world.memory.put(&object, &bytes, Expect::Any);
            }
            if std::mem::replace(&mut project.asked, true) || self.world.rng.percent(50) {
                announced = 0;
            }
        }
        let store = project.global && self.world.rng.percent(30);
        let flags = MergeFlags { release: project.release, store, ..MergeFlags::default() };
        let unused = UnusedNumbers::encode(&project.unused);
        let what = CallKind::Merge { subtree: root, bytes: announced, object, flags, unused };
        self.workers[client].merging.clone_from(&bytes);
        let chunks = (announced > 0).then_some(bytes);
        let number = self.begin(client, Call::root(what), chunks, Vec::new());
        project.stage = ProjectStage::Merging(number);
        self.disturb_merge(client);
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
        let project = self.workers[client].project.as_mut();
        let project = project.filter(|it| gives_up || !alive || doubtful(it))?;
        if doubtful(&project) {
            project.stage = ProjectStage::Done;
            self.oracle.regions[project.region].owner = None;
            return Some(project.region);
        }
        let asked = matches!(project.stage, ProjectStage::Asked(_) | ProjectStage::Refused);
        if matches!(project.stage, ProjectStage::Merging(_) | ProjectStage::Interrupted) {
            // No reply tells how much of its last merge exists.
            let region = &mut self.oracle.regions[project.region];
            let journal = project.inner.as_mut().filter(|_| project.global && region.known);
            region.in_doubt = journal.map(journal_of);
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
                if let Some(inner) = &mut project.inner {
                    inner.extend(*range);
                }
            }
            (CallKind::Merge { flags, .. }, result) if matches!(project.stage, ProjectStage::Merging(known) if known == number) =>
            {
                let gone = result.as_ref().is_err_and(|failure| failure.errno == Errno::Stale);
                let released = flags.release && (result.is_ok() || gone);
                let region = &mut self.oracle.regions[project.region];
                if result.is_err() && !gone {
                    project.stage = ProjectStage::Interrupted;
                    self.workers[client].left += 2;
                    if result.as_ref().is_err_and(|failure| failure.errno == Errno::NotFound) {
                        // An earlier attempt merged it. The remaining step is to give the subtree
                        // back.
                        project.asked = false;
                        if let Some(inner) = &mut project.inner {
                            inner.clear();
                        }
                    }
                    return;
                }
                project.asked = false;
                region.closed = false;
                project.stage = ProjectStage::Working;
                project.target = self.world.rng.between(1, 40);
                if let Some(inner) = &mut project.inner {
                    let journal = journal_of(inner);
                    if gone && region.known && region.last_merge != journal {
                        // An earlier attempt released it, and a crash took the answer, or the
                        // answer was that the store fails: the next look shows how much of the
                        // journal exists.
                        region.in_doubt = project.global.then_some(journal);
                        region.known = false;
                    }
                    inner.clear();
                }
                project.dirs = vec![region.root];
                if region.known {
                    let dirs = super::choose::dirs(&self.oracle.model, region.root);
                    project.dirs = dirs;
                }
                project.files.clear();
                if released || gone {
                    region.owner = None;
                    project.stage = ProjectStage::Done;
                }
            }
            _ => {}
        }
    }
}

fn journal_of(inner: &mut ClientSubtree) -> Vec<u8> {
    let mut bytes = inner.header().encode().to_vec();
    bytes.extend(inner.blocks().concat());
    bytes
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
    let inner = project.inner.as_mut()?;
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
