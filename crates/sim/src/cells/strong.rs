//! Requests in a shared subtree: visible at once, and as durable as the policy says.

use journal::{Create, Event, InodeSnapshot, JournalBuffer};

use policy::{Consistency, Durability};
use types::{Attr, EntryName, Errno, FileType, Origin, Seq};
use wire::Answer;

use super::ledger::{Shown, Update};
use super::machine::Log;
use super::{Cells, Done, Stop};
use crate::call::CallKind;

impl Cells {
    /// Creates names by requests, and waits until the promise of the policy holds for them.
    pub(super) fn work_by_requests(&mut self, count: u64) -> Done<()> {
        let client = self.client()?;
        let cell = self.job().cell;
        self.note("is worked in", cell);
        let strong = cell.consistency == Consistency::Strong;
        // A policy without `rpcs` says nothing about requests: they are journalled.
        let journalled = !strong || cell.durability == Durability::Global;
        let logged = strong && cell.durability == Durability::Local;
        for _ in 0..count {
            self.create(client, journalled, logged)?;
        }
        if journalled && self.rng.percent(70) {
            self.sync_requests(client)?;
        }
        if strong {
            self.requests.world.tally.count(&format!("updates: {cell}"), count);
        }
        Ok(())
    }

    /// The changes by the requests of a client are durable.
    pub(super) fn sync_requests(&mut self, client: usize) -> Done<()> {
        self.request(client, CallKind::Sync)?;
        for update in &mut self.job().ledger.updates {
            if update.resends == Some(client) {
                (update.shown, update.resends) = (Shown::Stable, None);
            }
        }
        Ok(())
    }

    fn create(&mut self, client: usize, journalled: bool, logged: bool) -> Done<()> {
        let dirs = self.job().dirs_shown();
        let (parent, dir) = (dirs[self.rng.index(dirs.len())], self.rng.percent(20));
        let name = format!("u{}", self.job().ledger.updates.len());
        let update = Update {
            shown: Shown::Perhaps,
            resends: journalled.then_some(client),
            ordered: usize::from(journalled) * client,
            ..Update::new(parent, &name, dir)
        };
        let at = self.job().ledger.add(update);
        let kind = if dir { FileType::Directory } else { FileType::Regular };
        let what = CallKind::create(parent, &name, kind, 0o777);
        let paths = self.job().path_of(parent).into_iter().map(|path| (path, parent)).collect();
        let crashes = self.requests.world.crashes;
        let answer = self.request_at(client, what, paths);
        let attr = match answer {
            Ok(Answer::Attr(attr)) => attr,
            Ok(other) => {
                self.requests.world.check(Err(format!("a create was answered {other:?}")));
                return Err(Stop::Broken);
            }
            Err(Stop::Failed(Errno::Again | Errno::Io | Errno::NoSpace)) => {
                self.job().ledger.updates[at].resends = None;
                return Err(Stop::Failed(Errno::Io));
            }
            // The directory was lost since, as its policy allows.
            Err(Stop::Failed(Errno::Stale | Errno::NotFound))
                if !self.job().dirs_shown().contains(&parent) =>
            {
                self.job().ledger.updates[at].resends = None;
                return Err(Stop::Failed(Errno::Stale));
            }
            // A checkpoint had stored the file before a crash took the answer, and no journal names
            // its client. No other client uses the name, so the file exists.
            Err(Stop::Failed(Errno::Exists))
                if !journalled && crashes != self.requests.world.crashes =>
            {
                let update = &mut self.job().ledger.updates[at];
                (update.shown, update.resends) = (Shown::Memory, None);
                return Err(Stop::Failed(Errno::Exists));
            }
            Err(Stop::Failed(errno)) => {
                let text = format!("creating {name} in {parent} failed: {}", errno.symbol());
                self.requests.world.check(Err(text));
                return Err(Stop::Broken);
            }
            Err(stop) => return Err(stop),
        };
        let update = &mut self.job().ledger.updates[at];
        (update.shown, update.ino) = (Shown::Memory, attr.ino);
        if !logged {
            return Ok(());
        }
        let event = created(EntryName::new(parent, name.as_bytes()), &attr, &[]);
        self.log(client, at, &event)
    }

    /// Writes the reply to the machine's disk before the caller gets it.
    pub(super) fn log(&mut self, client: usize, at: usize, event: &Event<'_>) -> Done<()> {
        self.local_step(client)?;
        let (id, since) = (self.requests.world.clients[client].id, self.epoch(client));
        let logs = &mut self.job().machine.logs;
        let mine = logs.iter().position(|log| log.process == client);
        let mine = mine.unwrap_or_else(|| {
            let (blocks, updates) = (Vec::new(), Vec::new());
            logs.push(Log { process: client, client: id, since, blocks, updates, synced: 0 });
            logs.len() - 1
        });
        let log = &mut logs[mine];
        let mut buffer = JournalBuffer::new(Seq(log.blocks.len() as u64 + 1), false);
        buffer.append(Origin::default(), event);
        buffer.close_block();
        log.blocks.push(buffer.blocks().concat());
        log.updates.push(at);
        self.requests.workers[client].logs = true;
        self.persisted(client)?;
        self.local_step(client)?;
        let log = &mut self.job().machine.logs[mine];
        log.synced = log.blocks.len();
        self.job().ledger.updates[at].kept.log = true;
        self.persisted(client)?;
        self.local_step(client)
    }

    /// The content of the subtree that other clients see.
    pub(super) fn listing(&mut self, at: usize) -> super::ledger::Listing {
        let mut seen = super::ledger::Listing::new();
        let mut todo = vec![(self.jobs[at].path.clone(), self.jobs[at].root)];
        while let Some((path, dir)) = todo.pop() {
            for (name, ino) in self.requests.read_names(&path, dir) {
                let place = format!("{path}/{name}");
                let attr = self.requests.ask_at(&place, &CallKind::GetAttr { ino });
                if matches!(attr, Ok(Answer::Attr(attr)) if attr.is_dir()) {
                    todo.push((place, ino));
                }
                seen.insert((dir, name), ino);
            }
            self.notice_crashes();
        }
        seen
    }
}

/// The event that a log has for a new inode, from the reply of the server.
pub(super) fn created<'a>(at: EntryName<'a>, attr: &Attr, data: &'a [u8]) -> Event<'a> {
    Event::Create(Create::of(at, InodeSnapshot { attr: *attr, data, extra: &[] }))
}
