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

pub(super) use size::Sizes;

use metastore::{PartState, Subtrees};
use namespace::Namespace;
use types::{
    AttrChange, ClientId, Cred, Frag, Ino, Map, Origin, Path, Rank, Set, Timestamp, name_hash,
};
use wire::{Answer, Fragments, Op, ReadOp};

use super::Authority;
use super::preload::Goal;
use crate::admission::Incoming;
use crate::{Mds, MdsEffects};

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
    pub(super) access: (u32, u32, u32),
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
    /// The directory that is being split or joined, if `dir` is that directory or one of its
    /// fragments.
    pub(super) fn reshaping(&self, dir: Ino) -> Option<Ino> {
        if let Some(reshape) = &self.reshape
            && reshape.is_frozen()
            && reshape.is_about(dir)
        {
            return Some(reshape.dir);
        }
        let moves = |dir: Ino| {
            let split = self.splits.get(&dir)?;
            (split.state != PartState::Stable).then_some(dir)
        };
        let part = || self.list.get(dir)?.part.and_then(|part| moves(part.dir));
        moves(dir).or_else(part)
    }

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

impl Mds {
    /// Takes the split directories from the list that was just read or written.
    pub(super) fn note_fragments(&mut self) {
        let any = self.authority.list.iter().any(|it| it.part.is_some());
        if !any && self.authority.splits.is_empty() {
            return;
        }
        self.authority.splits = splits(&self.authority.list);
        let stable = self.authority.splits.iter();
        let stable = stable.filter(|(_, split)| split.state == PartState::Stable);
        self.namespace.set_split(stable.map(|(dir, _)| *dir).collect());
        self.authority.note_plain();
    }

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
            self.fetches.park_until_returned(&mut self.sessions, from, missing);
            self.preload(Goal::Find(missing));
            self.authority_step(effects);
            return true;
        }
        let Ok(attr) = self.namespace.getattr(dir) else { return false };
        let rank = |part: Ino| self.authority.list.get(part).map_or(Rank(0), |it| it.rank);
        let parts = split.parts.map(|part| (part, rank(part)));
        let rest = if let Op::Read(ReadOp::Walk { base, path }) = request.op {
            self.rest_below(base, path, dir)
        } else {
            Vec::new()
        };
        let answer = Answer::Fragments(Box::new(Fragments { attr, frag: split.frag, parts, rest }));
        self.send_on(from, answer, effects);
        true
    }

    /// Whether a fragment is rank 0's, and not in memory since a restart. It exists as long as the
    /// list names it.
    pub(super) fn is_unfound_part(&self, ino: Ino) -> bool {
        let part = self.authority.list.get(ino).filter(|subtree| subtree.part.is_some());
        self.rank == Rank(0)
            && part.is_some_and(|part| part.rank == Rank(0) && part.inode.is_empty())
            && !self.namespace.knows(ino)
    }

    /// The part of a path behind a directory through which the path leads.
    fn rest_below(&self, base: Ino, path: &[u8], dir: Ino) -> Vec<u8> {
        let Ok(path) = Path::parse(path) else { return Vec::new() };
        let mut names = path.components();
        let mut at = base;
        while at != dir {
            let Some(name) = names.next() else { return Vec::new() };
            let Ok(Some(next)) = self.namespace.peek(at, name) else { return Vec::new() };
            at = next;
        }
        names.collect::<Vec<_>>().join(&b'/')
    }

    /// Fetches the fragments that are served here before requests need them, and gives them the
    /// permissions of their directories.
    pub(super) fn fragments_tick(&mut self, effects: &mut MdsEffects) {
        if self.authority.splits.is_empty() || !self.is_active() {
            return;
        }
        let splits: Vec<(Ino, Split)> =
            self.authority.splits.iter().map(|(dir, split)| (*dir, *split)).collect();
        for (dir, split) in splits {
            if split.state != PartState::Stable {
                self.resume_reshape(dir, &split);
                continue;
            }
            for part in self.authority.parts_here(dir) {
                if self.rank == Rank(0) && !self.namespace.is_anchored(part) {
                    self.preload(Goal::Find(part));
                } else {
                    self.permit_the_same(part, split.access, effects);
                }
            }
            self.say_what_is_permitted(dir, &split, effects);
        }
    }

    /// Whether it is a fragment without names: a client that removes the directory has it brought
    /// back.
    pub(super) fn is_empty_part(&self, root: Ino) -> bool {
        let part = self.authority.list.get(root).is_some_and(|subtree| subtree.part.is_some());
        part && self.namespace.is_complete(root) && self.namespace.dirs().names_here(root) == 0
    }

    /// The permissions of a directory.
    pub(super) fn access_of(&self, dir: Ino) -> Option<(u32, u32, u32)> {
        let attr = self.namespace.getattr(dir).ok()?;
        Some((attr.mode, attr.uid, attr.gid))
    }

    /// Gives a fragment the permissions of its directory.
    fn permit_the_same(&mut self, part: Ino, access: (u32, u32, u32), effects: &mut MdsEffects) {
        let importing = self.authority.imports.iter().any(|import| import.root == part);
        let moving = importing || self.authority.export_of(part).is_some();
        if moving || self.access_of(part).is_none_or(|known| known == access) {
            return;
        }
        if self.refusing().is_some()
            || self.capabilities().revoke(ClientId(0), part, effects).is_some()
        {
            return;
        }
        self.set_access(part, access);
    }

    fn set_access(&mut self, part: Ino, (mode, uid, gid): (u32, u32, u32)) {
        let mode = Some(mode & types::MODE_PERMISSIONS);
        let change = AttrChange { mode, uid: Some(uid), gid: Some(gid), ..AttrChange::default() };
        self.set_quietly(part, change, self.clock.time);
    }

    /// Changes attributes on behalf of no client.
    pub(super) fn set_quietly(&mut self, ino: Ino, change: AttrChange, time: Timestamp) {
        let Ok(planned) = self.namespace.plan().setattr(&Cred::root(), ino, &change, time) else {
            return;
        };
        let event = planned.event();
        let seq = self.log.append(self.clock.now, Origin::default(), &event);
        self.namespace.apply(seq, namespace::Mode::Live, &event);
    }

    /// The permissions of a directory have changed: its fragments here follow at once, the other
    /// ones when their ranks read the list.
    pub(crate) fn spread_access(&mut self, dir: Ino) {
        let Some(access) = self.access_of(dir) else { return };
        for part in self.authority.parts_here(dir) {
            if self.access_of(part).is_some_and(|known| known != access) {
                self.set_access(part, access);
            }
        }
    }

    fn say_what_is_permitted(&mut self, dir: Ino, split: &Split, effects: &mut MdsEffects) {
        if !self.authority.is_served_here(&self.namespace, dir)
            || self.authority.is_busy()
            || self.authority.reshape.is_some()
        {
            return;
        }
        let Some(access) = self.access_of(dir).filter(|known| *known != split.access) else {
            return;
        };
        let mut list = self.authority.list.clone();
        for part in split.parts {
            if let Some(mut subtree) = list.get(part).cloned() {
                subtree.part = subtree.part.map(|part| metastore::FragmentOf { access, ..part });
                list.put(subtree);
            }
        }
        self.put_list(list, effects);
    }
}

impl Authority {
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
