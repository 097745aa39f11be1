//! Changes by requests, and the log that a client keeps of them under strong consistency with local
//! durability.

use journal::{Event, InodeSnapshot};
use types::{EntryName, Errno, Ino};
use wire::Answer;

use super::AceRun;
use super::step::{AceStep, StepWay, journal_with};
use crate::call::{Call, CallKind};
use crate::cells::ledger::{Shown, Update};
use crate::cells::strong::created;
use crate::cells::{Done, Stop};
use crate::expect;

impl AceRun {
    /// Makes a change by a request.
    pub(super) fn request(&mut self, call: CallKind) -> Done<()> {
        let client = self.cells.client()?;
        let (journalled, logged) = (self.is_journalled(), self.is_logged());
        let update = Update {
            shown: Shown::Perhaps,
            resends: journalled.then_some(client),
            ordered: usize::from(journalled) * client,
            ..Update::new(self.cells.job().root, &format!("{call:?}"), false)
        };
        let place = self.cells.job().ledger.add(update);
        let id = self.cells.requests.world.clients[client].id;
        let before = self.cells.requests.executed.len();
        let way = StepWay::Request { client: id, before, logged: None };
        self.steps.push(AceStep { place, call: call.clone(), way, left_out: false });
        let paths = self.paths_of(&call);
        let answer = match self.cells.request_at(client, call.clone(), paths) {
            Ok(answer) => answer,
            Err(Stop::Failed(errno)) => return self.request_failed(place, &call, errno),
            Err(stop) => return Err(stop),
        };
        let update = &mut self.cells.job().ledger.updates[place];
        update.shown = Shown::Memory;
        if let (CallKind::Create { .. }, Answer::Attr(attr)) = (&call, &answer) {
            update.ino = attr.ino;
        }
        let executed = self.cells.requests.executed[before..].iter().rev();
        let executed = executed.copied().find(|it| it.client == id);
        if let Some(it) = executed {
            let _ = expect::perform(&mut self.view, &Call::root(call.clone()), it.time, it.ino);
        }
        if logged { self.log(client, place, &call, &answer) } else { Ok(()) }
    }

    /// A request failed: its server may have executed it before a crash took the answer.
    fn request_failed(&mut self, place: usize, call: &CallKind, errno: Errno) -> Done<()> {
        let update = &mut self.cells.job().ledger.updates[place];
        update.resends = None;
        update.torn |= update.ordered == 0;
        if matches!(errno, Errno::Again | Errno::Io | Errno::NoSpace) {
            return Err(Stop::Failed(errno));
        }
        let durable = self.cells.job().ledger.updates[place].ordered > 0;
        if durable && !self.is_in_lost_dir(call) {
            return self.refused(call, errno);
        }
        Err(Stop::Failed(errno))
    }

    /// Whether a request is about something that a crash may have taken.
    fn is_in_lost_dir(&mut self, _: &CallKind) -> bool {
        let ledger = &self.cells.job().ledger;
        ledger.updates.iter().any(|update| update.torn)
    }

    /// An operation that must succeed was refused.
    pub(super) fn refused(&mut self, call: &CallKind, errno: Errno) -> Done<()> {
        if !self.cells.points.struck {
            let text = format!("{call:?} failed: {}", errno.symbol());
            self.cells.requests.world.check(Err(text));
        }
        Err(Stop::Failed(errno))
    }

    /// Logs an answered request on the disk of the client, as the library does
    /// (`cudele::StrongLog`).
    fn log(&mut self, client: usize, place: usize, call: &CallKind, answer: &Answer) -> Done<()> {
        let time = self.next_time();
        let (ino, home) = (Ino(0), self.home_of(call));
        let mut snapshots = Vec::new();
        let looked_up = match call {
            CallKind::Link { parent, name, .. } => vec![(*parent, name.clone())],
            CallKind::Rename { from, to, flags } if flags.exchange => {
                vec![to.clone(), from.clone()]
            }
            CallKind::Rename { to, .. } => vec![to.clone()],
            _ => Vec::new(),
        };
        for (parent, name) in looked_up {
            let paths = self.path_of(parent).map(|path| (path, parent)).into_iter().collect();
            let found = self.cells.request_at(client, CallKind::Lookup { parent, name }, paths)?;
            let Answer::Attr(attr) = found else { return Err(Stop::Broken) };
            snapshots.push(InodeSnapshot { attr, data: &[], extra: &[] });
        }
        let event = match (call, answer) {
            (CallKind::Create { parent, name, data, .. }, Answer::Attr(attr)) => {
                created(EntryName::new(*parent, name.as_bytes()), attr, data)
            }
            (CallKind::Link { ino, parent, name }, _) => {
                let (home, name, inode) = (Ino::LINKS, name.as_bytes(), snapshots[0]);
                let (ino, time) = (*ino, inode.attr.ctime);
                Event::Link { parent: *parent, name, ino, home, inode, time }
            }
            (CallKind::Unlink { parent, name }, _) => {
                Event::Unlink { parent: *parent, name: name.as_bytes(), ino, time }
            }
            (CallKind::Rmdir { parent, name }, _) => {
                Event::Rmdir { parent: *parent, name: name.as_bytes(), ino, time }
            }
            (CallKind::Rename { from, to, .. }, _) => Event::Rename {
                parent: from.0,
                name: from.1.as_bytes(),
                new_parent: to.0,
                new_name: to.1.as_bytes(),
                moved: snapshots[0],
                exchanged: snapshots.get(1).copied(),
                replaced: Ino(0),
                time,
            },
            (CallKind::SetAttr { ino, change }, _) => {
                Event::SetAttr { ino: *ino, home, change: *change, time }
            }
            (CallKind::SetData { ino, data, size }, _) => {
                Event::SetData { ino: *ino, home, data, size: *size, time }
            }
            (CallKind::SetXattr { ino, name, value, .. }, _) => {
                let (name, value) = (name.as_bytes(), value.as_deref());
                Event::SetXattr { ino: *ino, home, name, value, time }
            }
            _ => Event::NOTHING,
        };
        if let Some(AceStep { way: StepWay::Request { logged, .. }, .. }) = self.steps.last_mut()
            && !event.is_nothing()
        {
            *logged = Some(journal_with(&event));
        }
        self.cells.log(client, place, &event)
    }

    /// The directory that stores the inode of a request.
    fn home_of(&self, call: &CallKind) -> Ino {
        let (CallKind::SetAttr { ino, .. }
        | CallKind::SetXattr { ino, .. }
        | CallKind::SetData { ino, .. }) = call
        else {
            return Ino(0);
        };
        self.view.names_of(*ino).first().map_or(Ino(0), |(parent, _)| *parent)
    }
}
