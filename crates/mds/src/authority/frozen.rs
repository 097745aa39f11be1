//! The freeze set: all that is served by no rank until a move, a rename across ranks, a split or a
//! join is decided.

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
    /// Its name goes to another rank.
    Renamed,
}

/// The place of a directory whose name comes from another rank.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    dir: Ino,
    name: Vec<u8>,
}

/// The frozen inodes of a rank. Each has the directory under which requests wait.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Frozen {
    dirs: Map<Ino, (Ino, Why)>,
    /// Inodes that are frozen without what is in them: files with several names, and subtrees that
    /// clients have decoupled, which leave or arrive with a directory; open and locked files that
    /// arrive; files with names that go to another rank; and the directories that such names leave,
    /// or to which they come.
    apart: Map<Ino, Ino>,
    /// A directory that has such a place now is replaced, and frozen with everything in it.
    targets: Vec<Target>,
}

impl Frozen {
    /// The freeze set in the present state of all moves.
    pub(super) fn of(authority: &Authority) -> Self {
        let mut frozen = Self::default();
        for import in &authority.imports {
            frozen.dirs.insert(import.root, (import.root, Why::Comes));
            let opened = import.opened.iter().map(|(ino, _)| ino);
            let apart = import.decoupled.iter().chain(&import.linked).chain(opened);
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
        for passing in authority.cross_renames.frozen() {
            let (key, record) = (passing.dir, passing.record);
            frozen.apart.entry(key).or_insert(key);
            if passing.leaves {
                frozen.apart.entry(record.ino).or_insert(key);
            }
            if passing.leaves && record.is_dir {
                frozen.dirs.entry(record.ino).or_insert((key, Why::Renamed));
            }
            if !passing.leaves && record.is_dir {
                frozen.targets.push(Target { dir: key, name: record.new_name.clone() });
            }
        }
        frozen
    }

    /// The directory under which requests for an inode wait, wherever its name is.
    pub(super) fn apart(&self, ino: Ino) -> Option<Ino> {
        self.apart.get(&ino).copied()
    }

    /// The directory under which requests wait that are about a directory, or about its child
    /// `within` and what is in that.
    pub(super) fn below(
        &self,
        namespace: &Namespace,
        dir: Ino,
        within: Option<Ino>,
    ) -> Option<Ino> {
        let whole = self.dirs.get(&dir).map(|(key, _)| *key);
        let is_replaced = |target: &&Target| {
            let name = || within.and_then(|child| namespace.name_of(child));
            target.dir == dir && name().is_some_and(|(_, name)| name == target.name)
        };
        whole.or_else(|| self.targets.iter().find(is_replaced).map(|target| target.dir))
    }

    /// The roots of the subtrees that leave or come.
    pub(super) fn roots(&self) -> impl Iterator<Item = Ino> {
        let moves = |why: Why| matches!(why, Why::Leaves | Why::Comes);
        let dirs = self.dirs.iter().filter(move |(_, (_, why))| moves(*why));
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
    use journal::{Create, Event};
    use metastore::MovedName;
    use namespace::Mode;
    use types::{Frag, Moment, Seq};

    use super::super::Export;
    use super::super::fragments::Split;
    use super::*;

    const DIR: Ino = Ino(300);
    const FILE: Ino = Ino(301);
    const OLD: Ino = Ino(302);
    const NEW: Ino = Ino(303);
    const REPLACED: Ino = Ino(304);
    const DIRECTORY: u32 = 0o040_755;

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
        authority.begin_import(DIR);
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
            assert_eq!(authority.frozen.below(&Namespace::new(), FILE, None), expected);
            assert!(roots(&authority).is_empty(), "a split directory stays");
        }
    }

    /// An authority whose list has a directory that is renamed from rank 0 to rank 1.
    fn with_rename(rank: Rank) -> Authority {
        let record = MovedName {
            from: Rank(0),
            number: 1,
            to: Rank(1),
            is_dir: true,
            ino: DIR,
            parent: OLD,
            new_parent: NEW,
            new_name: b"name".to_vec(),
            ..MovedName::default()
        };
        let mut authority = Authority::new(rank);
        authority.list.put_name(record);
        authority.find_names();
        authority.note_plain();
        authority
    }

    #[test]
    fn a_directory_that_is_renamed_away_waits_with_the_directory_that_it_leaves() {
        let authority = with_rename(Rank(0));
        let frozen = &authority.frozen;
        assert_eq!(frozen.below(&Namespace::new(), DIR, None), Some(OLD));
        assert_eq!([DIR, OLD, NEW].map(|ino| frozen.apart(ino)), [Some(OLD), Some(OLD), None]);
        assert!(roots(&authority).is_empty(), "only its name moves");
    }

    #[test]
    fn a_directory_waits_that_is_replaced_by_one_of_another_rank() {
        let authority = with_rename(Rank(1));
        let mut namespace = Namespace::new();
        let names: [(&[u8], Ino, Ino); 3] =
            [(b"dir", Ino::ROOT, NEW), (b"name", NEW, REPLACED), (b"other", NEW, FILE)];
        for (seq, (name, parent, ino)) in (1..).zip(names) {
            let create = Create { parent, name, ino, mode: DIRECTORY, ..Create::default() };
            namespace.apply(Seq(seq), Mode::Live, &Event::Create(create));
        }
        let frozen = &authority.frozen;
        assert_eq!([DIR, OLD, NEW].map(|ino| frozen.apart(ino)), [None, None, Some(NEW)]);
        let below = |child| frozen.below(&namespace, NEW, child);
        assert_eq!([None, Some(REPLACED), Some(FILE)].map(below), [None, Some(NEW), None]);
    }
}
