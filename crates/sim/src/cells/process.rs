//! The steps of a client's process: it waits for answers over any number of connections, as the
//! library does, and may be struck at any step.

use client::{LogNeed, LogState, LogStep};
use policy::{Mechanism, Policy};
use types::{ClientId, Epoch, Errno, Ino, Tid};
use wire::{Answer, MergeFlags};

use super::fault::Fault;
use super::ledger::Shown;
use super::{Cells, Done, Stop};
use crate::call::{Call, CallKind};
use crate::invariants::liveness;
use crate::world::{Client, Drive, Event, Link, Routes};

/// Request numbers between two processes that act as one client.
const TIDS: u64 = 1 << 20;

impl Cells {
    /// Starts a process that acts as a client. Returns its place.
    pub(super) fn add_process(&mut self, id: Option<ClientId>) -> usize {
        let id = id.unwrap_or_else(|| self.requests.new_id());
        let first = Tid(TIDS * self.requests.workers.len() as u64 + 1);
        let client = self.requests.add(Client { first, ..Client::new(id, false) });
        self.requests.workers[client].unjudged = true;
        client
    }

    /// One thing happens: a fault if it is time, or else an event of the cluster.
    pub(super) fn step(&mut self, client: usize) -> Done<()> {
        self.burn();
        self.is_alive(client)?;
        if !self.requests.step() {
            return Err(Stop::Broken);
        }
        self.notice_crashes();
        self.burn_point();
        self.is_alive(client)
    }

    /// A process has written to its disk, or to the store: a persistence point.
    pub(super) fn persisted(&mut self, client: usize) -> Done<()> {
        self.points.of_client += 1;
        self.burn_point();
        self.is_alive(client)
    }

    /// A step of a process without a request, at which it may be struck.
    pub(super) fn local_step(&mut self, client: usize) -> Done<()> {
        self.burn();
        self.is_alive(client)
    }

    pub(super) fn is_alive(&self, client: usize) -> Done<()> {
        if self.requests.world.violation.is_some() {
            return Err(Stop::Broken);
        }
        if self.requests.world.clients[client].alive { Ok(()) } else { Err(Stop::Killed) }
    }

    fn burn(&mut self) {
        self.burn_point();
        match &mut self.fuse {
            Some(fuse) if fuse.steps == 0 => {
                let fault = fuse.fault;
                self.fuse = None;
                self.strike(fault);
            }
            Some(fuse) => fuse.steps -= 1,
            None => {}
        }
    }

    /// The fault strikes that was armed for a persistence point, if the point has passed.
    fn burn_point(&mut self) {
        let passed = self.points.passed(self.requests.store_writes);
        if let Some((_, fault)) = self.points.armed.take_if(|(at, _)| *at <= passed) {
            self.points.struck = true;
            self.strike(fault);
        }
    }

    /// Faults strike the job that is being worked on, and the server.
    pub(super) fn strike(&mut self, fault: Fault) {
        let job = &mut self.jobs[self.current];
        self.struck = true;
        self.requests.world.note(format_args!("$ {} strikes {}", fault.name(), job.path));
        if !job.ledger.updates.is_empty() {
            let what = format!("fault: {} {}", job.cell, fault.name());
            self.requests.world.tally.count(&what, 1);
        }
        if fault.ends_client() {
            self.end_process();
        }
        let (job, world) = (&mut self.jobs[self.current], &mut self.requests.world);
        if fault.cuts_power() {
            job.machine.cut(&mut world.rng);
        }
        if fault.takes_disk() {
            job.machine = super::machine::Machine::default();
            job.ledger.disk_gone();
        }
        if fault.kills_server() {
            self.requests.crash(0);
        } else if fault == Fault::Stop {
            let stop =
                if world.rng.below(2) == 0 { Event::Terminate(0) } else { Event::EndCluster(0) };
            world.schedule(1, stop);
        }
        self.notice_crashes();
    }

    /// The process of the current job ends.
    pub(super) fn end_process(&mut self) {
        let job = &mut self.jobs[self.current];
        let Some(process) = job.process.take() else { return };
        job.ledger.process_ended(process.client);
        self.requests.end_process(process.client);
    }

    /// Servers that died, or stopped, since the last look.
    pub(super) fn notice_crashes(&mut self) {
        if self.requests.world.crashes != self.crashes {
            self.crashes = self.requests.world.crashes;
            for job in &mut self.jobs {
                let held = job.process.as_ref().and_then(|process| process.holds.as_deref());
                let repeats = held.is_none_or(|it| it.policy.contains(Mechanism::LocalPersist));
                job.ledger.server_crashed(repeats);
            }
        }
        if self.requests.world.servers[0].stopped && !self.was_stopped {
            self.jobs.iter_mut().for_each(|job| job.ledger.stored());
        }
        self.was_stopped = self.requests.world.servers[0].stopped;
    }

    /// Waits until a process is welcome, and has sent a new server the messages that come first.
    pub(super) fn ready(&mut self, client: usize) -> Done<()> {
        let end = self.requests.world.now + liveness::ANSWERED_WITHIN.0;
        loop {
            if self.requests.world.session(client).is_connected() {
                if !self.requests.workers[client].returning {
                    return Ok(());
                }
                self.return_with_logs(client)?;
                continue;
            }
            self.in_time(end, "a connection")?;
            self.step(client)?;
        }
    }

    fn in_time(&mut self, end: u64, what: &str) -> Done<()> {
        if self.requests.world.now <= end {
            return Ok(());
        }
        self.requests.world.check(liveness::check([what.to_owned()].into_iter()));
        Err(Stop::Broken)
    }

    /// Asks the server and waits for the answer. The server may have to be led to these inodes.
    pub(super) fn request_at(
        &mut self,
        client: usize,
        what: CallKind,
        paths: Vec<(String, Ino)>,
    ) -> Done<Answer> {
        self.ready(client)?;
        let text = format!("{what:?}");
        let number = self.requests.begin(client, Call::root(what), None, paths);
        self.wait(client, number, &text)
    }

    pub(super) fn request(&mut self, client: usize, what: CallKind) -> Done<Answer> {
        self.request_at(client, what, Vec::new())
    }

    /// Asks the server, sends a journal with it, and waits for the answer. A transfer that is
    /// interrupted is not repeated.
    pub(super) fn transfer(
        &mut self,
        client: usize,
        what: CallKind,
        journal: Option<Vec<u8>>,
    ) -> Done<Answer> {
        self.ready(client)?;
        let text = format!("{what:?}");
        let number = self.requests.begin(client, Call::root(what), journal, Vec::new());
        self.wait(client, number, &text)
    }

    fn wait(&mut self, client: usize, number: u64, text: &str) -> Done<Answer> {
        self.requests.workers[client].asked.insert(number, None);
        let end = self.requests.world.now + liveness::ANSWERED_WITHIN.0;
        loop {
            let worker = &mut self.requests.workers[client];
            if let Some(Some(_)) = worker.asked.get(&number) {
                let answer = worker.asked.remove(&number).flatten().ok_or(Stop::Broken)?;
                return answer.map_err(|error| Stop::Failed(error.errno));
            }
            if worker.returning && self.requests.world.session(client).is_connected() {
                self.return_with_logs(client)?;
            }
            self.in_time(end, text)?;
            self.step(client)?;
        }
    }

    /// Asks the server through the monitor, which passes a question on once.
    pub(super) fn ask_monitor(&mut self, client: usize, what: &CallKind) -> Done<Answer> {
        let end = self.requests.world.now + liveness::ANSWERED_WITHIN.0;
        while !self.requests.world.servers[0].is_recovered() {
            self.in_time(end, "a server")?;
            self.step(client)?;
        }
        let tid = self.requests.ask_monitor(what);
        if self.requests.world.is_asked(tid) {
            // Should the asker die, it may be carried out all the same.
            self.job().question = Some(tid);
        }
        loop {
            match self.requests.world.monitor.answers.remove(&tid) {
                Some(answer) => {
                    // If the monitor refused this question, an earlier one is still under way.
                    self.job().question.take_if(|asked| *asked == tid);
                    return answer.map_err(|failure| Stop::Failed(failure.errno));
                }
                None if !self.requests.world.is_asked(tid) => {
                    return Err(Stop::Failed(Errno::Again));
                }
                None => {}
            }
            self.in_time(end, &format!("{what:?}"))?;
            self.step(client)?;
        }
    }

    /// The term of the server that a process speaks to.
    pub(super) fn epoch(&self, client: usize) -> Epoch {
        self.requests.world.session(client).epoch()
    }

    /// A process is welcome again: its log comes before its pending requests.
    fn return_with_logs(&mut self, client: usize) -> Done<()> {
        self.requests.workers[client].returning = false;
        let mine = |job: &super::Job| job.process.as_ref().is_some_and(|it| it.client == client);
        if let Some(at) = self.jobs.iter().position(mine) {
            let logs = self.jobs[at].machine.logs.len();
            for log in 0..logs {
                if self.jobs[at].machine.logs[log].process == client {
                    match self.replay_own(client, (at, log)) {
                        // The connection: with the next one it is tried again.
                        Err(Stop::Failed(Errno::Io | Errno::Again)) => {
                            self.requests.workers[client].returning = true;
                            return self.step(client);
                        }
                        Err(Stop::Failed(_)) | Ok(()) => {}
                        Err(stop) => return Err(stop),
                    }
                }
            }
        }
        let Link { session, effects, .. } = self.requests.world.home(client);
        session.go_on(effects);
        self.requests.send(client);
        Ok(())
    }

    fn replay_own(&mut self, client: usize, (at, log): (usize, usize)) -> Done<()> {
        let session = self.requests.world.session(client);
        let (epoch, crashed) = (session.epoch(), session.crashed());
        let known = &mut self.jobs[at].machine.logs[log];
        let (need, events) = (LogNeed::of(known.since, epoch, crashed), known.updates.len());
        match LogState::default().step(need, epoch, events as u64) {
            LogStep::Keep | LogStep::Remove => Ok(()),
            LogStep::NoteTerm => {
                known.since = epoch;
                Ok(())
            }
            LogStep::BeginAgain => {
                (known.since, known.synced) = (epoch, 0);
                known.blocks.clear();
                for update in std::mem::take(&mut known.updates) {
                    self.jobs[at].ledger.updates[update].kept.log = false;
                }
                Ok(())
            }
            LogStep::Replay => {
                let writer = known.client;
                self.replay_log(client, (at, log), writer)
            }
        }
    }

    /// Applies a log again. The server decides whether the policy still asks for it.
    pub(super) fn replay_log(
        &mut self,
        client: usize,
        (at, log): (usize, usize),
        writer: ClientId,
    ) -> Done<()> {
        let epoch = self.epoch(client);
        let root = self.jobs[at].root;
        let known = &self.jobs[at].machine.logs[log];
        let header = journal::SegmentHeader {
            writer: journal::Writer::Client { client: writer, subtree: root },
            epoch: known.since,
            first_seq: types::Seq(1),
        };
        let updates = known.updates.clone();
        let mut bytes = header.encode().to_vec();
        bytes.extend(known.blocks.concat());
        if !updates.is_empty() {
            self.jobs[at].ledger.sent(&updates, 0);
            let flags = MergeFlags { strong_log: true, ..MergeFlags::default() };
            let (subtree, length) = (root, bytes.len() as u64);
            let (object, unused) = (String::new(), Vec::new());
            let merge = CallKind::Merge { subtree, bytes: length, object, flags, unused };
            self.transfer(client, merge, Some(bytes))?;
        }
        // Where a change of policy is under way, it may be in force, and then nothing was applied.
        let known = self.jobs[at].doubt.is_empty().then_some(self.jobs[at].cell);
        let applied = known.or_else(|| self.in_force(at)?.0.cell()).is_some_and(super::job::logs);
        let job = &mut self.jobs[at];
        job.machine.logs[log].since = epoch;
        // Under another policy the log is not asked for, and keeps nothing.
        for at in &updates {
            let update = &mut job.ledger.updates[*at];
            if applied && update.kept.log && update.shown != Shown::Stable {
                update.shown = Shown::Memory;
            }
        }
        job.ledger.replayed(&updates, root);
        Ok(())
    }

    /// The policy in force and the owner of the subtree, as the server says.
    pub(super) fn in_force(&mut self, at: usize) -> Option<(Policy, ClientId)> {
        let (path, root) = (self.jobs[at].path.clone(), self.jobs[at].root);
        let answer = self.requests.ask_at(&path, &CallKind::GetPolicy { dir: root });
        self.notice_crashes();
        let Ok(Answer::Policy(found)) = answer else { return None };
        if let Some(policy) = self.policies.get(&found.policy) {
            return Some((policy.clone(), found.owner));
        }
        let policy = Policy::parse(&found.policy).ok()?.policy;
        self.policies.insert(found.policy.clone(), policy.clone());
        Some((policy, found.owner))
    }

    /// The owner of the subtree, or no client.
    pub(super) fn owner_in_force(&mut self, at: usize) -> ClientId {
        self.in_force(at).map_or(ClientId(0), |(_, owner)| owner)
    }
}
