//! The freeze set: all that is served by no rank until a move, a split or a join is decided.

use metastore::PartState;
use namespace::Namespace;
use types::{Ino, Map, Rank};

use super::Authority;

/// Why a directory is frozen, with everything in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The subtree with this root goes to another rank.
    Leaves,
    /// It comes from one.
    Comes,
    /// It, or the directory of which it is a fragment, is split or joined.
    Reshaped,
}

/// The frozen inodes of a rank. Each has the directory under which requests wait.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Frozen {
    dirs: Map<Ino, (Ino, Why)>,
    /// Files with several names, and subtrees that clients have decoupled, which leave or arrive
    /// with a directory.
    apart: Map<Ino, Ino>,
}

impl Frozen {
    /// The freeze set in the present state of all moves.
    pub(super) fn of(authority: &Authority) -> Self {
        let mut frozen = Self::default();
        for import in &authority.imports {
            frozen.dirs.insert(import.root, (import.root, Why::Comes));
            let apart = import.decoupled.iter().chain(&import.linked);
            frozen.apart.extend(apart.map(|ino| (*ino, import.root)));
        }
        for export in authority.exports.iter().filter(|export| export.is_frozen()) {
            frozen.dirs.insert(export.root, (export.root, Why::Leaves));
            frozen.apart.extend(export.linked.iter().map(|ino| (*ino, export.root)));
        }
        // Only rank 0 splits and joins: on another rank the requests that wait for that would never
        // continue.
        if authority.rank == Rank(0) {
            let splits = authority.splits.iter();
            let splits = splits.filter(|(_, split)| split.state != PartState::Stable);
            let reshape = authority.reshape.iter().filter(|reshape| reshape.is_frozen());
            let under_way = reshape.map(|it| (it.dir, it.parts));
            for (dir, parts) in splits.map(|(dir, split)| (*dir, split.parts)).chain(under_way) {
                for it in parts.into_iter().chain([dir]) {
                    frozen.dirs.entry(it).or_insert((dir, Why::Reshaped));
                }
            }
        }
        frozen
    }

    /// The directory under which requests for an inode wait, wherever its name is.
    pub(super) fn apart(&self, ino: Ino) -> Option<Ino> {
        self.apart.get(&ino).copied()
    }

    /// The directory under which requests in a directory wait.
    pub(super) fn below(&self, dir: Ino) -> Option<Ino> {
        self.dirs.get(&dir).map(|(key, _)| *key)
    }

    /// The roots of the subtrees that leave or come.
    pub(super) fn roots(&self) -> impl Iterator<Item = Ino> {
        let dirs = self.dirs.iter().filter(|(_, (_, why))| *why != Why::Reshaped);
        dirs.map(|(root, _)| *root)
    }

    /// Whether a directory leaves with a subtree.
    pub(super) fn is_leaving(&self, namespace: &Namespace, dir: Ino) -> bool {
        let why = |above: Ino| self.dirs.get(&above).map(|(_, why)| *why);
        !self.dirs.is_empty()
            && namespace.ancestors(dir).any(|above| why(above) == Some(Why::Leaves))
    }
}

#[cfg(test)]
mod tests {
    use types::{Frag, Moment};

    use super::super::Export;
    use super::super::fragments::Split;
    use super::*;
    use crate::opens::Opens;

    const DIR: Ino = Ino(300);
    const FILE: Ino = Ino(301);

    fn roots(authority: &Authority) -> Vec<Ino> {
        authority.frozen.roots().collect()
    }

    #[test]
    fn a_subtree_that_leaves_is_frozen_with_its_files_of_several_names() {
        let mut authority = Authority::new(Rank(0));
        authority.exports.push(Export { root: DIR, linked: vec![FILE], ..Export::default() });
        authority.note_plain();
        assert_eq!((roots(&authority), authority.frozen.apart(FILE)), (vec![], None));
        authority.exports[0].frozen = Some(Moment(1));
        authority.note_plain();
        assert_eq!((roots(&authority), authority.frozen.apart(FILE)), (vec![DIR], Some(DIR)));
    }

    #[test]
    fn a_subtree_that_comes_is_frozen_at_once_and_does_not_leave() {
        let mut authority = Authority::new(Rank(1));
        authority.begin_import(&Opens::default(), DIR);
        assert_eq!(roots(&authority), [DIR]);
        assert!(!authority.frozen.is_leaving(&Namespace::new(), DIR));
    }

    #[test]
    fn a_fragment_waits_for_its_directory_on_rank_0_alone() {
        let parts = [FILE; Frag::SPLIT_WAYS];
        let state = PartState::Splitting;
        for rank in [Rank(0), Rank(1)] {
            let mut authority = Authority::new(rank);
            let split = Split { frag: Frag::WHOLE, state, parts, access: (0, 0, 0) };
            authority.splits.insert(DIR, split);
            authority.note_plain();
            let expected = (rank == Rank(0)).then_some(DIR);
            assert_eq!(authority.frozen.below(FILE), expected);
            assert!(roots(&authority).is_empty(), "a split directory stays");
        }
    }
}
