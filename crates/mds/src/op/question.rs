//! Requests that change nothing.

use namespace::{Hit, Namespace, Refusal, Walked};
use types::quota;
use types::{ClientId, Cred, Errno, Ino, Path};
use wire::{Answer, EffectivePolicy, ReadOp, StateStorage};

use super::Refused;
use crate::Counters;
use crate::admission::is_blocked;
use crate::authority::Authority;
use crate::balance::note_use;
use crate::log::Log;
use crate::session::Sessions;
use crate::tables::Tables;

/// Most entries in one reply to a listing: with attributes they fill about 200 KB.
const LIST_MAX: usize = 4096;

/// Requests that change nothing, with all that answering them may touch.
pub(crate) struct AskCx<'a> {
    pub(crate) namespace: &'a mut Namespace,
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) counters: &'a mut Counters,
    pub(crate) tables: &'a Tables,
    pub(crate) authority: &'a Authority,
    pub(crate) log: &'a Log,
}

impl AskCx<'_> {
    pub(crate) fn question(
        &mut self,
        client: ClientId,
        cred: &Cred,
        op: &ReadOp<'_>,
    ) -> Result<Answer, Refused> {
        if let Some(ino) = op.about().inode {
            let hit = if matches!(op, ReadOp::List { .. }) { Hit::List } else { Hit::Read };
            note_use(self.namespace, ino, hit);
        }
        self.note_shown(client, op);
        Ok(match *op {
            ReadOp::Lookup { parent, name } => {
                self.counters.lookups += 1;
                let attr = self.namespace.lookup(cred, parent, name)?;
                if attr.nlink > 1 && !attr.is_dir() {
                    self.sessions.get_mut(client).shown.note(attr.ino);
                }
                Answer::Attr(attr)
            }
            ReadOp::Walk { base, path } => {
                self.counters.lookups += 1;
                self.walk(client, cred, base, path)?
            }
            // Its fragments know how many names it has.
            ReadOp::GetAttr { ino }
                if self.namespace.is_split(ino) && self.namespace.knows(ino) =>
            {
                return Err(Refusal::Cold(ino).into());
            }
            ReadOp::GetAttr { ino } => Answer::Attr(self.namespace.getattr(ino)?),
            ReadOp::GetXattr { ino, name: quota::REPORT } => self.report_quotas(ino)?,
            ReadOp::GetXattr { ino, name } => {
                Answer::Data(self.namespace.xattr(ino, name)?.to_vec())
            }
            ReadOp::ListXattr { ino } => {
                let names = self.namespace.xattr_names(ino)?;
                Answer::Names(names.into_iter().map(<[u8]>::to_vec).collect())
            }
            ReadOp::GetData { ino } => {
                self.namespace.access(cred, ino, 4)?;
                Answer::Data(self.namespace.data(ino)?.to_vec())
            }
            ReadOp::List { dir, after, limit, attrs } => {
                let limit = (limit as usize).clamp(1, LIST_MAX);
                self.list(cred, dir, after, limit, attrs)?
            }
            ReadOp::GetPolicy { dir } => self.policy_of(dir)?,
            ReadOp::ListTrash { after, limit } => self.list_trash(cred, after, limit)?,
            // `Mds::watch` answers it.
            ReadOp::Watch { .. } => return Err(Errno::NotSupported.into()),
        })
    }

    /// The quotas that hold in a directory, as lines of text.
    fn report_quotas(&self, ino: Ino) -> Result<Answer, Refused> {
        self.namespace.getattr(ino)?;
        let lines: String =
            self.namespace.quotas_of(ino).iter().map(|report| format!("{report}\n")).collect();
        if lines.is_empty() { Err(Errno::NoData.into()) } else { Ok(Answer::Data(lines.into())) }
    }

    /// Keeps the directory that a question looks into from being evicted before the next question.
    fn note_shown(&mut self, client: ClientId, op: &ReadOp<'_>) {
        if let ReadOp::Lookup { parent: dir, .. }
        | ReadOp::List { dir, .. }
        | ReadOp::GetPolicy { dir } = *op
        {
            self.sessions.get_mut(client).shown.note(dir);
        }
    }

    fn walk(
        &mut self,
        client: ClientId,
        cred: &Cred,
        base: Ino,
        path: &[u8],
    ) -> Result<Answer, Refused> {
        let path = Path::parse(path)?;
        let walked = self.namespace.walk(cred, base, &path);
        if !self.tables.decoupled.is_empty()
            && self.leads_to_blocked(client, cred, base, &path, &walked)
        {
            self.counters.busy += 1;
            return Err(Errno::Busy.into());
        }
        let Walked { parent, attr } = walked?;
        if let Some(attr) = attr {
            self.sessions.get_mut(client).shown.note(attr.ino);
        }
        let parent = self.authority.whole_of(parent).unwrap_or(parent);
        Ok(Answer::Walked { parent, attr })
    }

    /// Whether a path leads into a subtree that blocks this client, even if it ends outside: a
    /// missing name there is not reported either, and an inode may have other names outside.
    fn leads_to_blocked(
        &self,
        client: ClientId,
        cred: &Cred,
        base: Ino,
        path: &Path,
        walked: &Result<Walked, Refusal>,
    ) -> bool {
        let blocked = |Walked { parent, attr }: Walked| {
            is_blocked(self.tables, self.namespace, client, parent)
                || attr
                    .is_some_and(|attr| is_blocked(self.tables, self.namespace, client, attr.ino))
        };
        if let Ok(walked) = *walked {
            return blocked(walked);
        }
        // As far as it leads.
        let mut path = path.clone();
        while let Some((shorter, _)) = path.split_last() {
            path = shorter;
            if let Ok(walked) = self.namespace.walk(cred, base, &path) {
                return blocked(walked);
            }
        }
        false
    }

    fn list(
        &mut self,
        cred: &Cred,
        dir: Ino,
        after: Option<&[u8]>,
        limit: usize,
        attrs: bool,
    ) -> Result<Answer, Refusal> {
        if self.namespace.is_split(dir) {
            self.namespace.access(cred, dir, 4)?;
            return Err(Refusal::Cold(dir));
        }
        let entries = self.namespace.list(cred, dir, after, limit, attrs)?;
        let more = entries.len() == limit;
        let entries = entries.into_iter().map(|entry| (entry.name, entry.attr)).collect();
        Ok(Answer::Entries { entries, more })
    }

    fn policy_of(&mut self, dir: Ino) -> Result<Answer, Refused> {
        self.namespace.getattr(dir)?;
        let (source, in_force) = self.namespace.effective_policy(dir);
        let source_path = source.and_then(|source| self.namespace.path_of(source));
        Ok(Answer::Policy(EffectivePolicy {
            policy: source.map(|_| in_force.policy.to_yaml()).unwrap_or_default(),
            source: source.unwrap_or_default(),
            source_path: source_path.map(|path| path.to_bytes()).unwrap_or_default(),
            storage: self.storage_of_fragments(dir, in_force.streams),
            owner: self.holder_of(dir),
        }))
    }

    /// The same for a directory that may be split: the worst case is assumed for fragments of other
    /// ranks.
    fn storage_of_fragments(&self, dir: Ino, streams: bool) -> StateStorage {
        let (parts, all) = self.authority.leaves_here(self.namespace, dir);
        let elsewhere = if streams { StateStorage::Applied } else { StateStorage::Memory };
        let storage = parts.into_iter().map(|part| self.storage(part));
        let storage = storage.chain((!all).then_some(elsewhere));
        storage.max_by_key(|storage| *storage as u8).unwrap_or_default()
    }

    /// Where the entries of a directory are kept now. The answer never claims more than survives
    /// (P-08).
    fn storage(&self, dir: Ino) -> StateStorage {
        match self.namespace.dirs().unstored(dir) {
            (_, true) => StateStorage::Memory,
            (true, false) if self.log.last() > self.log.safe() => StateStorage::Applied,
            (true, false) => StateStorage::Journalled,
            (false, false) => StateStorage::Stored,
        }
    }

    /// The client that has the subtree in which a directory is; 0 for nobody.
    fn holder_of(&self, dir: Ino) -> ClientId {
        let held = self.namespace.ancestors(dir).find_map(|ino| self.tables.owner(ino));
        held.map_or(ClientId(0), |known| known.client)
    }
}
