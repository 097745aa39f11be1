//! Taking a subtree over from another rank (B-03).
//!
//! The list of subtrees names this rank as the authority, and has the inode of the subtree's root.
//! The rank journals that inode, and when it is safe, replaces the list again without the inode:
//! from then on a recovery finds the root in this rank's journal or store. Only then are requests
//! answered. If a server crashes before, the import is repeated, and no client has seen anything of
//! it.
//!
//! Directories are fetched when they are needed, and all of them in the background, because clients
//! name inodes by their numbers.

use std::collections::BTreeSet;

use metastore::{MovedSubtree, Subtrees};
use namespace::Namespace;
use types::{ClientId, Clock, EntryName, Errno, Error, Ino, Moment, Path, Seq};

use super::preload::Goal;
use super::{Authority, RETRY, handover};
use crate::contexts::lend;
use crate::fetch::Fetches;
use crate::locks::Locks;
use crate::log::Log;
use crate::merge::Merges;
use crate::opens::Opens;
use crate::session::Sessions;
use crate::store::StoreOps;
use crate::tables::{Moved, Tables, TablesCx};
use crate::transfer::{Fence, ListView, Record, TransferAction, TransferEvent, TransferState};
use crate::{Counters, MdsEffects, MdsNotice, ReplyTo, Settings};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImportStage {
    /// It is to be put into the namespace.
    Begin,
    /// The journal has it up to here.
    Journal(Seq),
    /// The list is being replaced.
    Acknowledge,
    /// That is tried again at this time.
    Retry(Moment),
}

/// A subtree that became this rank's and is not served yet.
#[derive(Debug)]
pub(crate) struct Import {
    pub(crate) root: Ino,
    /// The subtrees that clients have decoupled in it.
    pub(super) decoupled: Vec<Ino>,
    /// The inodes with several names that come with it, in order.
    pub(super) linked: Vec<Ino>,
    /// The files that clients have open in it, from the list.
    pub(super) opened: BTreeSet<(Ino, ClientId)>,
    /// Reports that are still missing.
    pub(super) awaited: BTreeSet<(ClientId, Ino)>,
    /// Connected clients were asked.
    pub(super) asked: bool,
    /// Since when nothing else is waited for.
    pub(super) asks_since: Option<Moment>,
    stage: ImportStage,
    /// The transfer: the list has its record.
    transfer: TransferState,
    /// The list may be replaced, as was found in this step.
    ready: bool,
}

impl Import {
    /// Whether its root is in the namespace: then the directories in it may be read.
    pub(super) fn is_taken_in(&self) -> bool {
        self.stage != ImportStage::Begin
    }
}

impl Authority {
    /// Sets the path and policy above a subtree whose name is not here.
    pub(super) fn set_above_stub(&self, namespace: &mut Namespace, subtree: &MovedSubtree) {
        if self.list.named_by(subtree) == self.rank {
            return;
        }
        let path = Path::parse(&subtree.path).unwrap_or_else(|_| Path::root());
        namespace.handover().set_above_stub(subtree.root, path, subtree.policy.as_bytes());
    }

    fn import_of(&self, root: Ino) -> Option<&Import> {
        self.imports.iter().find(|it| it.root == root)
    }

    fn import_mut(&mut self, root: Ino) -> Option<&mut Import> {
        self.imports.iter_mut().find(|it| it.root == root)
    }

    fn set_import_stage(&mut self, root: Ino, stage: ImportStage) {
        if let Some(import) = self.import_mut(root) {
            import.stage = stage;
        }
    }

    pub(super) fn begin_import(&mut self, root: Ino) {
        if !self.is_importing(root) {
            let moved = self.list.get(root).map(|it| Moved::decode(&it.decoupled));
            // Unreadable bytes are reported when the subtree is taken in.
            let moved = moved.and_then(Result::ok).unwrap_or_default();
            let decoupled = moved.into_iter().map(|moved| moved.root).collect();
            let linked = self.list.get(root).map(handover::linked);
            let linked = linked.unwrap_or_default();
            let opened = self.list.get(root).map(handover::opened);
            let awaited: BTreeSet<_> = opened.unwrap_or_default().into_iter().collect();
            let opened = awaited.iter().map(|(client, ino)| (*ino, *client)).collect();
            let transfer = self.reservations.taken(root);
            self.imports.push(Import {
                root,
                decoupled,
                linked,
                opened,
                awaited,
                asked: false,
                asks_since: None,
                stage: ImportStage::Begin,
                transfer,
                ready: false,
            });
            self.note_plain();
        }
    }

    /// Whether the imports want the journal to be written without delay.
    pub(super) fn imports_want_journal(&self) -> bool {
        !self.imports.is_empty()
    }

    /// The given list, with the subtree marked as taken in.
    fn list_without_inode(&self, mut list: Subtrees, root: Ino) -> Subtrees {
        let Some(subtree) = list.get(root).cloned() else { return list };
        let joined = self.is_named_here(&subtree) && subtree.part.is_none();
        if joined {
            // The subtrees in it now belong to the subtree of which it became a part.
            let inside = list.unjoined().filter(|it| it.outer == root).cloned();
            for inner in inside.collect::<Vec<_>>() {
                list.put(MovedSubtree { outer: subtree.outer, ..inner });
            }
        }
        let (inode, decoupled) = (Vec::new(), Vec::new());
        list.put(MovedSubtree { inode, decoupled, joined, ..subtree });
        list
    }

    /// The record of an import in the list: the mark of the taker is that the inode is gone.
    fn view_of_import(&self, root: Ino) -> ListView {
        let entry = self.list.get(root).filter(|it| it.rank == self.rank);
        let record = match entry {
            None => Record::Absent,
            Some(entry) if entry.inode.is_empty() => Record::Marked,
            Some(_) => Record::Committed,
        };
        ListView { record, fence: Fence::NONE }
    }
}

/// The subtrees that come from other ranks, with all that their moves may touch.
pub(crate) struct ImportCx<'a> {
    pub(crate) authority: &'a mut Authority,
    pub(crate) namespace: &'a mut Namespace,
    pub(crate) log: &'a mut Log,
    pub(crate) tables: &'a mut Tables,
    pub(crate) merges: &'a mut Merges,
    pub(crate) fetches: &'a mut Fetches,
    pub(crate) opens: &'a mut Opens,
    pub(crate) locks: &'a mut Locks<ReplyTo>,
    pub(crate) store: &'a mut StoreOps,
    pub(crate) counters: &'a mut Counters,
    pub(crate) sessions: &'a Sessions,
    pub(crate) settings: &'a Settings,
    pub(crate) clock: Clock,
}

impl ImportCx<'_> {
    fn storing_tables(&mut self) -> TablesCx<'_> {
        lend!(self => TablesCx {
            mut: tables, log, store, fetches;
            ref:;
            copy:;
            rank: self.authority.rank,
            now: self.clock.now,
        })
    }

    pub(super) fn step(&mut self, effects: &mut MdsEffects) {
        self.ask_for_opens(effects);
        let roots: Vec<Ino> = self.authority.imports.iter().map(|import| import.root).collect();
        for root in roots {
            while let Some(stage) = self.authority.import_of(root).map(|it| it.stage)
                && let Some(next) = self.next(root, stage, effects)
            {
                self.authority.set_import_stage(root, next);
            }
        }
        self.acknowledge_ready(effects);
    }

    /// Replaces the list once for all subtrees that may be served then.
    fn acknowledge_ready(&mut self, effects: &mut MdsEffects) {
        let mut ready = Vec::new();
        for import in &mut self.authority.imports {
            if std::mem::take(&mut import.ready) {
                let has = matches!(import.stage, ImportStage::Journal(_));
                assert!(has, "{}: the journal has a subtree that is served", import.root);
                ready.push(import.root);
            }
        }
        // A replacement of the list is under way; the next step checks again.
        if ready.is_empty() || self.authority.is_busy() {
            return;
        }
        let mut list = self.authority.list.clone();
        for root in ready {
            list = self.authority.list_without_inode(list, root);
            self.take_in_event(root, TransferEvent::Safe);
            self.authority.set_import_stage(root, ImportStage::Acknowledge);
        }
        self.authority.put_list(list, self.store, effects);
    }

    fn next(
        &mut self,
        root: Ino,
        stage: ImportStage,
        effects: &mut MdsEffects,
    ) -> Option<ImportStage> {
        match stage {
            ImportStage::Begin => {
                let subtree = self.authority.list.get(root)?.clone();
                // A name that left may come back with it: first it leaves.
                if !self.authority.cross_renames.are_ended() {
                    return None;
                }
                // A subtree waits until this rank has the subtree around it for good.
                if self.authority.is_importing(subtree.outer) {
                    return None;
                }
                if self.authority.is_named_here(&subtree) && !self.namespace.is_anchored(root) {
                    self.authority.preload(Goal::Find(root));
                    return None;
                }
                // Directories of it that were read before it left are outdated.
                if self.fetches.is_fetching_below(self.namespace, root) {
                    return None;
                }
                if self.is_being_written(root) {
                    return None;
                }
                match self.take_in(&subtree) {
                    Ok(seq) => {
                        let path = String::from_utf8_lossy(&subtree.path).into_owned();
                        effects.notices.push(MdsNotice::Took { root, path });
                        Some(ImportStage::Journal(seq))
                    }
                    Err(error) => {
                        effects.fatal = Some(error);
                        None
                    }
                }
            }
            ImportStage::Journal(seq) => {
                if self.log.safe() < seq || self.authority.list.get(root).is_none() {
                    return None;
                }
                if !self.has_taken_decoupled(root, effects) {
                    return None;
                }
                // The list may forget soon how often it was moved.
                if !self.tables.is_gone_stored() {
                    self.storing_tables().tick(effects);
                    return None;
                }
                let (now, patience) = (self.clock.now, self.settings.reconnect);
                let import = self.authority.import_mut(root)?;
                if import.awaits(now, patience) {
                    return None;
                }
                let missing = import.awaited.len() as u64;
                let is_late = import.asks_since.is_some_and(|since| now.since(since) >= patience);
                if !self.are_holders_expected(root, is_late) {
                    self.storing_tables().tick(effects);
                    return None;
                }
                self.counters.missing_reclaims += missing;
                self.authority.import_mut(root)?.ready = true;
                None
            }
            ImportStage::Acknowledge => None,
            ImportStage::Retry(until) => {
                // A read of the list tells whether the last attempt succeeded.
                if self.clock.now < until || self.authority.is_busy() {
                    return None;
                }
                self.authority.look_at_list(self.store, effects);
                Some(ImportStage::Acknowledge)
            }
        }
    }

    /// Whether the store knows that the next server must wait for the clients that have something
    /// open or locked in the subtree, and believes their reports. A client that does not end its
    /// reports here does not keep the subtree for ever (`is_late`).
    fn are_holders_expected(&mut self, root: Ino, is_late: bool) -> bool {
        let import = self.authority.import_of(root);
        let holders = import.into_iter().flat_map(|import| &import.opened);
        let holders: BTreeSet<ClientId> = holders.map(|(_, client)| *client).collect();
        let mut are_expected = true;
        // Open files and locks end with the connection.
        for client in holders.into_iter().filter(|it| self.sessions.conn_of(*it).is_some()) {
            are_expected &= self.tables.expect_back(client);
            are_expected &= is_late || !self.tables.is_marked(client);
        }
        are_expected
    }

    /// Whether the store executes a write of the directory that holds the root here, or of a
    /// directory in the subtree: an earlier term of this rank took the subtree in, and its journal
    /// repeated that. The subtree is taken out of memory first, and a second write would not know
    /// of the first.
    fn is_being_written(&self, root: Ino) -> bool {
        let dirs = self.namespace.dirs();
        let is_its =
            |dir: &Ino| *dir == Ino::mount_stub(root) || self.namespace.is_within(*dir, root);
        let mut unstored = dirs.unstored_directories().into_iter();
        unstored.any(|dir| dirs.is_flushing(dir) && is_its(&dir))
    }

    /// Whether the store knows the owners of the decoupled subtrees that came, and this rank their
    /// places.
    fn has_taken_decoupled(&mut self, root: Ino, effects: &mut MdsEffects) -> bool {
        let import = self.authority.import_of(root);
        let decoupled = import.map(|import| import.decoupled.clone()).unwrap_or_default();
        let looked_for = |it: &super::Preload| match it.goal {
            Goal::Find(ino) => decoupled.contains(&ino),
            Goal::All(_) => false,
        };
        if decoupled.is_empty() {
            return true;
        }
        self.storing_tables().tick(effects);
        self.tables.is_idle() && !self.authority.preloads.iter().any(looked_for)
    }

    /// Puts the root into the namespace, and the inodes with several names. Returns the position of
    /// the last of these events.
    fn take_in(&mut self, subtree: &MovedSubtree) -> Result<Seq, Error> {
        let MovedSubtree { root, path, .. } = subtree;
        let out = self.namespace.handover().take_out(*root);
        self.namespace.handover().forget_out(out);
        self.authority.set_above_stub(self.namespace, subtree);
        let (home, name) = if self.authority.is_named_here(subtree) {
            self.namespace.name_of(*root).ok_or_else(|| {
                let cause = "the name of a subtree that comes is not known here";
                Error::new(Errno::BadMessage, metastore::SUBTREES_NAME, cause)
                    .about(String::from_utf8_lossy(path).into_owned())
            })?
        } else {
            (Ino::mount_stub(*root), super::export::ROOT_NAME.to_vec())
        };
        let seq = self.take_inodes(subtree, EntryName::new(home, &name))?;
        self.take_decoupled(subtree)?;
        self.counters.imports += 1;
        Ok(seq)
    }

    /// The list was replaced for imports. Returns whether there were any.
    pub(super) fn list_replaced(&mut self) -> bool {
        let done = self.authority.imports.iter().filter(|it| it.stage == ImportStage::Acknowledge);
        let done: Vec<Ino> = done.map(|import| import.root).collect();
        for root in &done {
            self.take_in_event(*root, TransferEvent::Replaced);
        }
        !done.is_empty()
    }

    /// Passes an event to the transfer of an import, and executes its actions.
    fn take_in_event(&mut self, root: Ino, event: TransferEvent) {
        let Some(import) = self.authority.import_mut(root) else {
            return;
        };
        let (state, actions) = import.transfer.step(event, Fence::NONE);
        import.transfer = state;
        for action in actions {
            match action {
                // `acknowledge_ready` marks all imports that are ready.
                TransferAction::Mark => {
                    self.authority.set_import_stage(root, ImportStage::Journal(Seq(0)))
                }
                TransferAction::ReadList => {
                    let until = self.clock.now + RETRY;
                    self.authority.set_import_stage(root, ImportStage::Retry(until));
                }
                TransferAction::Thaw => self.imported(root),
                TransferAction::Send(_)
                | TransferAction::Prepare
                | TransferAction::Commit(_)
                | TransferAction::Drop
                | TransferAction::Release
                | TransferAction::Freeze
                | TransferAction::RaiseFence
                | TransferAction::Take => debug_assert!(false, "{action:?} of an import"),
            }
        }
    }

    /// The list differs from the proposed one, or its state is unknown.
    pub(super) fn list_again(&mut self, is_read: bool) {
        let all = self.authority.imports.iter();
        let under_way = all.filter(|it| it.stage == ImportStage::Acknowledge);
        let roots: Vec<Ino> = under_way.map(|it| it.root).collect();
        for root in roots {
            let event = if is_read {
                TransferEvent::List(self.authority.view_of_import(root))
            } else {
                TransferEvent::Unknown
            };
            self.take_in_event(root, event);
        }
    }

    /// The subtree is served from now on.
    fn imported(&mut self, root: Ino) {
        self.authority.imports.retain(|import| import.root != root);
        self.authority.note_move(root, self.authority.rank);
        // An inode that came with it may have left with another subtree before.
        self.authority.moved.clear();
        self.authority.preload(Goal::All(root));
        self.authority.note_came(root, self.settings, self.clock.now);
        self.authority.note_ended(&[]);
        self.fetches.wake_returned(root);
    }
}
