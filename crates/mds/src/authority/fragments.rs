//! Directories that are split by the hashes of their names (B-04).
//!
//! The names of a fragment are in a hidden directory of their own, which is a child of the split
//! directory under a name that no client can look up. The list of subtrees names these hidden
//! directories: each is a subtree, and so a fragment moves to another rank, and survives a crash
//! during the move, like any subtree. A fragment that is split again is a directory like any other.
//!
//! A client that asks for a name in a split directory gets the places of all its fragments
//! ([`Answer::Fragments`]), and from then on asks the fragment that has the name. The list also has
//! the directory's permissions, and every rank gives its fragments the same permissions.

mod size;

pub(super) use size::{ITSELF, Resize, Sizes};

use metastore::{PartState, Subtrees};
use namespace::Namespace;
use types::{AttrChange, Cred, Frag, Ino, Map, Origin, Rank, Set, Timestamp, name_hash};
use wire::{Answer, Fragments, Op, ReadOp};

use super::Authority;
use super::place::{FRAGMENTED, PlaceCx, busy};
use super::preload::Goal;
use super::reshape::ReshapeCx;
use super::view::Places;
use crate::MdsEffects;
use crate::admission::Incoming;
use crate::op::Refused;

/// How often a fragment can be split.
const DEPTH_MAX: usize = (Frag::BITS_MAX / Frag::SPLIT_BITS) as usize;
/// A directory that is split, or is about to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    /// What was split: all of a directory, or a fragment.
    pub(super) frag: Frag,
    pub(super) state: PartState,
    /// The hidden directories, by the hashes of their names.
    pub(super) parts: [Ino; Frag::SPLIT_WAYS],
    /// The directory's permissions, as in the list.
    pub(super) access: Access,
}

impl super::Authority {
    /// Directories that are split.
    pub(crate) fn split_dirs(&self) -> impl Iterator<Item = Ino> {
        self.splits.keys().copied()
    }

    /// Whether a directory is a fragment of another one.
    pub(crate) fn is_part(&self, dir: Ino) -> bool {
        self.list.get(dir).is_some_and(|it| it.part.is_some())
    }
}

/// The directories of a list that are split.
pub(super) fn splits(list: &Subtrees) -> Map<Ino, Split> {
    let dirs: Set<Ino> = list.iter().filter_map(|it| Some(it.part?.dir)).collect();
    let mut splits = Map::default();
    for dir in dirs {
        let parts = list.parts_of(dir);
        let Some((_, first)) = parts.first() else { continue };
        let bits = first.frag.bits.saturating_sub(Frag::SPLIT_BITS);
        let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
        let frag = Frag { bits, value: first.frag.value & mask };
        let roots: Vec<Ino> = parts.iter().map(|(root, _)| *root).collect();
        // The list is written as a whole: there are all or none.
        if let Ok(parts) = <[Ino; Frag::SPLIT_WAYS]>::try_from(roots) {
            let (state, access) = (first.state, first.access);
            splits.insert(dir, Split { frag, state, parts, access });
        }
    }
    splits
}

impl Authority {
    /// The directory to which a fragment's hidden directory belongs.
    pub(crate) fn whole_of(&self, ino: Ino) -> Option<Ino> {
        let mut whole = None;
        let mut at = ino;
        for _ in 0..DEPTH_MAX {
            let Some(part) = self.list.get(at).and_then(|subtree| subtree.part) else {
                break;
            };
            at = part.dir;
            whole = Some(at);
        }
        whole
    }

    /// Whether a directory is split, or is the hidden directory of a fragment: no client gets
    /// exclusive access to it.
    pub(crate) fn is_fragmented(&self, dir: Ino) -> bool {
        !self.splits.is_empty() && (self.splits.contains_key(&dir) || self.whole_of(dir).is_some())
    }

    /// `EBUSY` for a directory that is split, or is about to be: the fragments have the permissions
    /// of the directory, and can have no access control list.
    pub(crate) fn check_whole(&self, dir: Ino) -> Result<(), Refused> {
        let is_split = self.is_split_or_about_to(dir) || self.is_fragmented(dir);
        if is_split { Err(busy(FRAGMENTED)) } else { Ok(()) }
    }

    /// The fragments of a directory that are served here, if it is split.
    pub(crate) fn parts_here(&self, dir: Ino) -> Vec<Ino> {
        let Some(split) = self.splits.get(&dir) else { return Vec::new() };
        let here =
            |part: &Ino| self.list.get(*part).is_some_and(|subtree| subtree.rank == self.rank);
        split.parts.into_iter().filter(here).collect()
    }

    /// Whether clients may get capabilities and leases of a directory.
    pub(crate) fn may_grant(&self, namespace: &Namespace, dir: Ino) -> bool {
        if self.is_split_or_about_to(dir) || self.cross_renames.is_about(dir) {
            return false;
        }
        let cross_renames = &self.cross_renames;
        if !self.is_exporting() && cross_renames.is_empty() {
            return true;
        }
        let goes = |above| self.export_of(above).is_some() || cross_renames.is_leaving(above);
        !namespace.ancestors(dir).any(goes)
    }

    fn is_split_or_about_to(&self, dir: Ino) -> bool {
        self.splits.contains_key(&dir)
            || self.reshape.as_ref().is_some_and(|reshape| reshape.is_about(dir))
    }
}

impl PlaceCx<'_> {
    /// Redirects a request for a name in a split directory to its fragments. Returns `false` if the
    /// directory is not split, or if a fragment of it is not in memory yet.
    #[cold]
    pub(super) fn send_fragments(
        &mut self,
        from @ Incoming { request, .. }: Incoming<'_>,
        dir: Ino,
        effects: &mut MdsEffects,
    ) -> bool {
        let Some(split) = self.authority.splits.get(&dir).copied() else { return false };
        let here = self.authority.parts_here(dir);
        if let Some(missing) = here.into_iter().find(|part| !self.namespace.is_anchored(*part)) {
            self.park(from, missing);
            self.authority.preload(Goal::Find(missing));
            return true;
        }
        let Ok(attr) = self.namespace.getattr(dir) else { return false };
        let rank = |part: Ino| self.authority.list.get(part).map_or(Rank(0), |it| it.rank);
        let parts = split.parts.map(|part| (part, rank(part)));
        let rest = if let Op::Read(ReadOp::Walk { base, path }) = request.op {
            let below = self.places().rest_of_walk(base, path, dir);
            below.map_or(if base == dir { path.to_vec() } else { Vec::new() }, |(_, rest)| rest)
        } else {
            Vec::new()
        };
        let answer = Answer::Fragments(Box::new(Fragments { attr, frag: split.frag, parts, rest }));
        self.send_on(from, answer, effects);
        true
    }
}

impl Places<'_> {
    /// Whether a fragment is rank 0's, and not in memory since a restart. It exists as long as the
    /// list names it.
    pub(super) fn is_unfound_part(&self, ino: Ino) -> bool {
        let part = self.authority.list.get(ino).filter(|subtree| subtree.part.is_some());
        self.authority.rank == Rank(0)
            && part.is_some_and(|part| part.rank == Rank(0) && part.inode.is_empty())
            && !self.namespace.knows(ino)
    }

    /// Whether it is a fragment without names: a client that removes the directory has it brought
    /// back.
    pub(super) fn is_empty_part(&self, root: Ino) -> bool {
        let part = self.authority.list.get(root).is_some_and(|subtree| subtree.part.is_some());
        part && self.namespace.is_complete(root) && self.namespace.dirs().names_here(root) == 0
    }
}

/// The permissions of a directory: its mode, and its owners.
type Access = (u32, u32, u32);

pub(super) fn access_of(namespace: &Namespace, dir: Ino) -> Option<Access> {
    let attr = namespace.getattr(dir).ok()?;
    Some((attr.mode, attr.uid, attr.gid))
}

impl ReshapeCx<'_> {
    /// Looks for the fragments that are served here before requests need them, and returns those
    /// that get the permissions of their directories, when no client caches anything of them.
    pub(super) fn fragments_tick(&mut self, effects: &mut MdsEffects) -> Vec<(Ino, Access)> {
        let mut differing = Vec::new();
        let splits: Vec<(Ino, Split)> =
            self.authority.splits.iter().map(|(dir, split)| (*dir, *split)).collect();
        for (dir, split) in splits {
            if split.state != PartState::Stable {
                self.authority.resume_reshape(dir, &split);
                continue;
            }
            for part in self.authority.parts_here(dir) {
                if self.authority.rank == Rank(0) && !self.apply.namespace.is_anchored(part) {
                    self.authority.preload(Goal::Find(part));
                } else if self.differs(part, split.access) {
                    differing.push((part, split.access));
                }
            }
            self.say_what_is_permitted(dir, &split, effects);
        }
        differing
    }

    /// Whether a fragment has other permissions than its directory, and may get those.
    fn differs(&self, part: Ino, access: Access) -> bool {
        let moves = self.authority.is_importing(part) || self.authority.export_of(part).is_some();
        let known = access_of(self.apply.namespace, part);
        !moves && self.refusing.is_none() && known.is_some_and(|known| known != access)
    }

    pub(super) fn set_access(&mut self, part: Ino, access: Access) {
        let (mode, uid, gid) = access;
        let mode = Some(mode & types::MODE_PERMISSIONS);
        let change = AttrChange { mode, uid: Some(uid), gid: Some(gid), ..AttrChange::default() };
        self.set_quietly(part, change, self.time);
    }

    /// Changes attributes on behalf of no client.
    pub(super) fn set_quietly(&mut self, ino: Ino, change: AttrChange, time: Timestamp) {
        let Ok(planned) = self.apply.namespace.plan().setattr(&Cred::root(), ino, &change, time)
        else {
            return;
        };
        let event = planned.event();
        let seq = self.apply.log.append(self.apply.now, Origin::default(), &event);
        self.apply.namespace.apply(seq, namespace::Mode::Live, &event);
    }

    /// The permissions of a directory have changed: its fragments here follow at once, the other
    /// ones when their ranks read the list.
    pub(crate) fn spread_access(&mut self, dir: Ino) {
        let Some(access) = access_of(self.apply.namespace, dir) else { return };
        for part in self.authority.parts_here(dir) {
            if access_of(self.apply.namespace, part).is_some_and(|known| known != access) {
                self.set_access(part, access);
            }
        }
    }

    fn say_what_is_permitted(&mut self, dir: Ino, split: &Split, effects: &mut MdsEffects) {
        if !self.authority.is_served_here(self.apply.namespace, dir)
            || self.authority.is_busy()
            || self.authority.reshape.is_some()
        {
            return;
        }
        let Some(access) =
            access_of(self.apply.namespace, dir).filter(|known| *known != split.access)
        else {
            return;
        };
        let mut list = self.authority.list.clone();
        for part in split.parts {
            if let Some(mut subtree) = list.get(part).cloned() {
                subtree.part = subtree.part.map(|part| metastore::FragmentOf { access, ..part });
                list.put(subtree);
            }
        }
        self.authority.put_list(list, self.store, effects);
    }
}

impl Authority {
    /// Takes the split directories from the list that was just read or written.
    pub(super) fn note_fragments(&mut self, namespace: &mut Namespace) {
        let any = self.list.iter().any(|it| it.part.is_some());
        if !any && self.splits.is_empty() {
            return;
        }
        self.splits = splits(&self.list);
        let stable = self.splits.iter();
        let stable = stable.filter(|(_, split)| split.state == PartState::Stable);
        namespace.set_split(stable.map(|(dir, _)| *dir).collect());
        self.note_plain();
    }

    /// The directories here that have the names of a directory: itself, or its fragments. The
    /// second value tells whether these are all.
    pub(crate) fn leaves_here(&self, namespace: &Namespace, dir: Ino) -> (Vec<Ino>, bool) {
        let (mut leaves, mut all) = (vec![dir], true);
        for _ in 0..DEPTH_MAX {
            if !leaves.iter().any(|leaf| namespace.is_split(*leaf)) {
                break;
            }
            let mut below = Vec::new();
            for leaf in leaves {
                if namespace.is_split(leaf) {
                    let parts = self.parts_here(leaf);
                    all &= parts.len() == Frag::SPLIT_WAYS;
                    below.extend(parts);
                } else {
                    below.push(leaf);
                }
            }
            leaves = below;
        }
        (leaves, all)
    }

    /// The directory that has a name of a directory: itself, or one of its fragments, on any rank.
    pub(crate) fn leaf_of(&self, namespace: &Namespace, dir: Ino, name: &[u8]) -> Ino {
        let mut leaf = dir;
        for _ in 0..DEPTH_MAX {
            let split = self.splits.get(&leaf);
            let Some(split) = split.filter(|_| namespace.is_split(leaf)) else { break };
            leaf = split.parts[split.frag.place_of(name_hash(name))];
        }
        leaf
    }
}
