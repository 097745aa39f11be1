//! Performs the operations of a workload: in the journal of the client while it has the subtree,
//! by requests otherwise, and by the steps of the library for policies, merges and syncs.

use namespace::{PlannedInode, Refusal};
use policy::{Cell, Consistency, Durability};
use types::{
    AttrChange, Cred, EntryName, Errno, Ino, RenameFlags, Timestamp, XattrChange, XattrFlags,
};

use super::grammar::AceOp;
use super::step::{AceStep, StepWay, last_event};
use super::{AceRun, TakenBranch};
use crate::call::CallKind;
use crate::cells::ledger::{Kept, Update};
use crate::cells::{Done, Stop};
use crate::invariants::merges;

/// The name of the extended attribute, and the change of an owner.
const XATTR: &str = "user.ace";
const OWNER: u32 = 7;
/// So many bytes *falloc* adds.
const FALLOC_BYTES: u64 = 4096;

impl AceRun {
    /// Performs an operation.
    pub(super) fn perform(&mut self, op: AceOp) -> Done<()> {
        self.cells.requests.world.note(format_args!("$ ace: {op}"));
        match op {
            AceOp::Sync => self.sync()?,
            AceOp::SyncPart => {
                self.cells.sync_part()?;
                self.note_merge();
            }
            AceOp::Decouple => self.decouple()?,
            AceOp::Merge => {
                self.cells.merge()?;
                self.note_merge();
            }
            AceOp::Policy(name) => {
                let to = Cell::all().find(|cell| cell.to_string() == name);
                self.cells.change(to.ok_or(Stop::Broken)?)?;
                self.note_merge();
            }
            AceOp::Branch => self.branch()?,
            op => {
                let call = self.call_of(op).ok_or(Stop::Failed(Errno::NotFound))?;
                if self.cells.holding().is_ok() {
                    self.append(call)?;
                } else {
                    self.request(call)?;
                }
            }
        }
        let client = self.cells.client()?;
        self.cells.persisted(client)
    }

    /// Completes the policy, or makes the requests durable.
    pub(super) fn sync(&mut self) -> Done<()> {
        let client = self.cells.client()?;
        if self.cells.holding().is_ok() {
            self.cells.complete()?;
            self.note_merge();
        } else if self.is_journalled() {
            self.cells.sync_requests(client)?;
        } else {
            self.cells.request(client, CallKind::Sync)?;
        }
        self.cells.persisted(client)
    }

    /// Takes the subtree: under the policy in force, or its weak neighbour.
    pub(super) fn decouple(&mut self) -> Done<()> {
        let mut cell = self.cells.job().cell;
        if cell.consistency == Consistency::Strong {
            cell.consistency = Consistency::Weak;
        }
        self.cells.decouple(cell)?;
        self.merged = self.steps.len();
        Ok(())
    }

    /// Takes a snapshot of the subtree, and notes the changes that it must and may have.
    fn branch(&mut self) -> Done<()> {
        let client = self.cells.client()?;
        let (dir, id) = (self.cells.job().root, self.branches.len() as u64 + 1);
        let paths = vec![(self.cells.job().path.clone(), dir)];
        self.cells.request_at(client, CallKind::Snapshot { dir, id }, paths)?;
        let (statuses, executed) = (self.statuses(), self.cells.requests.executed.len());
        self.branches.push(TakenBranch { id, statuses, executed });
        Ok(())
    }

    /// All events so far may be merged: a later change of a file to which they gave a second name
    /// is left out.
    fn note_merge(&mut self) {
        let merges = self.cells.holding().map_or(true, |holding| {
            holding.policy.effective().mechanisms().any(policy::Mechanism::applies)
        });
        if merges {
            self.merged = self.steps.len();
        }
    }

    /// Whether requests in the subtree are journalled: a policy without `rpcs` says nothing about
    /// them.
    pub(super) fn is_journalled(&mut self) -> bool {
        let cell = self.cells.job().cell;
        cell.consistency != Consistency::Strong || cell.durability == Durability::Global
    }

    pub(super) fn is_logged(&mut self) -> bool {
        let cell = self.cells.job().cell;
        cell.consistency == Consistency::Strong && cell.durability == Durability::Local
    }

    /// A time that no other change has.
    pub(super) fn next_time(&mut self) -> Timestamp {
        let now = self.cells.requests.world.clock().time;
        self.time = Timestamp(self.time.0 + 1).max(now);
        self.time
    }

    /// The inode at a path of the subtree, as the client sees it.
    fn ino_of(&mut self, path: &str) -> Option<Ino> {
        let root = self.cells.job().root;
        path.split('/').try_fold(root, |dir, name| self.view.peek(dir, name.as_bytes()))
    }

    /// The directory and the name of a path.
    fn entry_of(&mut self, path: &str) -> Option<(Ino, String)> {
        match path.rsplit_once('/') {
            Some((parent, name)) => Some((self.ino_of(parent)?, name.to_owned())),
            None => Some((self.cells.job().root, path.to_owned())),
        }
    }

    /// An operation as a request about the inodes that the client sees.
    fn call_of(&mut self, op: AceOp) -> Option<CallKind> {
        let number = self.steps.len() as u64;
        let new = |(parent, name): (Ino, String), mode, data: &[u8]| {
            let (size, data) = (data.len() as u64, data.to_vec());
            CallKind::Create { parent, name, mode, size, data }
        };
        let content = |ino, data: Vec<u8>| {
            let size = data.len() as u64;
            CallKind::SetData { ino, data, size }
        };
        let attr = |ino, change| CallKind::SetAttr { ino, change };
        let exchange = matches!(op, AceOp::Exchange(..));
        Some(match op {
            AceOp::Create(path) => new(self.entry_of(path)?, 0o100_644, &[]),
            AceOp::Mkdir(path) => new(self.entry_of(path)?, 0o040_755, &[]),
            AceOp::Symlink(path) => new(self.entry_of(path)?, 0o120_777, b"foo"),
            AceOp::Link(from, to) => {
                let (ino, (parent, name)) = (self.ino_of(from)?, self.entry_of(to)?);
                CallKind::Link { ino, parent, name }
            }
            AceOp::Rename(from, to) | AceOp::Exchange(from, to) => {
                let flags = RenameFlags { exchange, ..RenameFlags::default() };
                CallKind::Rename { from: self.entry_of(from)?, to: self.entry_of(to)?, flags }
            }
            AceOp::Unlink(path) => {
                let (parent, name) = self.entry_of(path)?;
                CallKind::Unlink { parent, name }
            }
            AceOp::Rmdir(path) => {
                let (parent, name) = self.entry_of(path)?;
                CallKind::Rmdir { parent, name }
            }
            AceOp::Write(path) => {
                content(self.ino_of(path)?, format!("content {number}").into_bytes())
            }
            AceOp::Append(path) => {
                let ino = self.ino_of(path)?;
                let mut data = self.view.node(ino)?.data.clone();
                data.extend(format!("more {number}").bytes());
                content(ino, data)
            }
            AceOp::Truncate(path) | AceOp::Falloc(path) => {
                let ino = self.ino_of(path)?;
                let before = self.view.getattr(ino).ok()?.size;
                let shorter = matches!(op, AceOp::Truncate(_));
                let size = Some(if shorter { before / 2 } else { before + FALLOC_BYTES });
                attr(ino, AttrChange { size, ..AttrChange::default() })
            }
            AceOp::SetAttr(path) => {
                let ino = self.ino_of(path)?;
                let is_dir = self.view.is_dir(ino);
                let (mode, uid) = (Some(if is_dir { 0o711 } else { 0o600 }), Some(OWNER));
                let mtime = Some(Timestamp(1_000 + self.steps.len() as i64));
                attr(ino, AttrChange { mode, uid, mtime, ..AttrChange::default() })
            }
            AceOp::SetXattr(path) | AceOp::RemoveXattr(path) => {
                let (ino, name) = (self.ino_of(path)?, XATTR.to_owned());
                let sets = matches!(op, AceOp::SetXattr(_));
                let value = sets.then(|| format!("value {number}").into_bytes());
                CallKind::SetXattr { ino, name, value, flags: XattrFlags::default() }
            }
            AceOp::Sync
            | AceOp::SyncPart
            | AceOp::Decouple
            | AceOp::Merge
            | AceOp::Policy(_)
            | AceOp::Branch => return None,
        })
    }

    /// Appends a change to the journal of the client.
    fn append(&mut self, call: CallKind) -> Done<()> {
        let client = self.cells.client()?;
        let time = self.next_time();
        for ino in call.touched().0 {
            self.look(client, ino)?;
        }
        let before = self.cells.holding()?.inner.events();
        let created = loop {
            if self.cells.holding()?.inner.inodes_left() == 0 {
                self.cells.extend(client)?;
            }
            match plan(&mut self.cells.holding()?.inner, &call, time) {
                Ok(created) => break created,
                Err(Refusal::Cold(dir)) => self.fetch(client, dir)?,
                Err(Refusal::Errno(errno)) => return self.refused(&call, errno),
            }
        };
        if self.cells.holding()?.inner.events() == before {
            // A rename to another name of the same file.
            return Ok(());
        }
        let journal = last_event(&crate::cells::job::journal_of(self.cells.holding()?));
        let left_out = self.is_left_out(&call);
        let update = Update {
            ino: created.unwrap_or(Ino(0)),
            time: created.is_none().then_some(time),
            kept: Kept { memory: true, ..Kept::default() },
            ..Update::new(self.cells.job().root, &format!("{call:?}"), false)
        };
        let place = self.cells.job().ledger.add(update);
        let root = self.cells.job().root;
        let applied = merges::apply(&mut self.view, root, &journal);
        self.cells.requests.world.check(applied);
        self.steps.push(AceStep { place, call, way: StepWay::Journal(journal), left_out });
        self.cells.local_step(client)
    }

    /// A change of a file that had several names at the last merge belongs to no subtree.
    fn is_left_out(&self, call: &CallKind) -> bool {
        let (CallKind::SetAttr { ino, .. }
        | CallKind::SetXattr { ino, .. }
        | CallKind::SetData { ino, .. }) = call
        else {
            return false;
        };
        self.steps[..self.merged]
            .iter()
            .any(|step| matches!(&step.call, CallKind::Link { ino: linked, .. } if linked == ino))
    }

    /// The paths of the inodes of a request.
    pub(super) fn paths_of(&mut self, call: &CallKind) -> Vec<(String, Ino)> {
        let inos = call.touched().0;
        let known: Vec<_> =
            inos.iter().filter_map(|ino| Some((self.path_of(*ino)?, *ino))).collect();
        if known.len() < inos.len() { Vec::new() } else { known }
    }

    /// The path of an inode that the client sees.
    pub(super) fn path_of(&mut self, ino: Ino) -> Option<String> {
        if ino == self.cells.job().root {
            return Some(self.cells.job().path.clone());
        }
        let (parent, name) = self.view.names_of(ino).into_iter().next()?;
        Some(format!("{}/{}", self.path_of(parent)?, String::from_utf8_lossy(&name)))
    }
}

/// Plans a change against the view of a client, and appends it to the journal. Returns the inode
/// that it creates.
fn plan(
    inner: &mut client::ClientSubtree,
    call: &CallKind,
    time: Timestamp,
) -> Result<Option<Ino>, Refusal> {
    let cred = Cred::root();
    match call {
        CallKind::Create { parent, name, mode, size, data } => {
            let new =
                PlannedInode { mode: *mode, size: *size, data, time, ..PlannedInode::default() };
            return Ok(Some(inner.create(&cred, *parent, name.as_bytes(), &new)?));
        }
        CallKind::Link { ino, parent, name } => {
            inner.link(&cred, *ino, EntryName::new(*parent, name.as_bytes()), time)?;
        }
        CallKind::Unlink { parent, name } => {
            inner.unlink(&cred, *parent, name.as_bytes(), time)?;
        }
        CallKind::Rmdir { parent, name } => inner.rmdir(&cred, *parent, name.as_bytes(), time)?,
        CallKind::Rename { from, to, flags } => {
            let from = EntryName::new(from.0, from.1.as_bytes());
            inner.rename(&cred, from, EntryName::new(to.0, to.1.as_bytes()), *flags, time)?;
        }
        CallKind::SetAttr { ino, change } => inner.setattr(&cred, *ino, change, time)?,
        CallKind::SetData { ino, data, size } => inner.setdata(&cred, *ino, data, *size, time)?,
        CallKind::SetXattr { ino, name, value, flags } => {
            let (name, value) = (name.as_bytes(), value.as_deref());
            inner.setxattr(&cred, *ino, XattrChange { name, value, flags: *flags }, time)?;
        }
        _ => {}
    }
    Ok(None)
}
