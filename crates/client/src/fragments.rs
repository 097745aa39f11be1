//! Which directories are split, as far as a client has heard, and where their names are (B-04).
//!
//! A client sends requests about names to a directory until a reply says that the names are in
//! fragments ([`wire::Answer::Fragments`]); from then on it sends them to the fragment that has the
//! name. This map may be out of date: a fragment that was split further replies with its fragments,
//! and a removed fragment is unknown at its rank; then the client drops its map of the directory,
//! and asks the directory again.

use types::{Frag, Ino, Map, Path, name_hash};
use wire::{AdminOp, ChangeOp, Fragments, Op, ReadOp};

/// Fragments of fragments are looked at so deep: more cannot be.
const DEPTH_MAX: usize = (Frag::BITS_MAX / Frag::SPLIT_BITS) as usize;

#[derive(Clone, Copy, Debug)]
struct FragmentTree {
    frag: Frag,
    parts: [Ino; Frag::SPLIT_WAYS],
}

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub struct FragmentMap {
    dirs: Map<Ino, FragmentTree>,
    /// The directory of each fragment.
    whole: Map<Ino, Ino>,
}

impl FragmentMap {
    /// Whether no directory is known to be split.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.dirs.is_empty()
    }

    /// Takes over a server's map of a directory.
    pub fn note(&mut self, fragments: &Fragments) {
        let dir = fragments.attr.ino;
        self.forget_one(dir);
        let parts = fragments.parts.map(|(part, _)| part);
        self.whole.extend(parts.map(|part| (part, dir)));
        self.dirs.insert(dir, FragmentTree { frag: fragments.frag, parts });
    }

    /// Forgets that a directory is split, or the directory of a fragment. Returns whether that was
    /// known.
    pub fn forget(&mut self, dir: Ino) -> bool {
        let dir = if self.dirs.contains_key(&dir) { Some(dir) } else { self.whole_of(dir) };
        dir.is_some_and(|dir| self.forget_one(dir))
    }

    fn forget_one(&mut self, dir: Ino) -> bool {
        let Some(known) = self.dirs.remove(&dir) else { return false };
        for part in known.parts {
            self.whole.remove(&part);
        }
        true
    }

    /// The directory of a fragment.
    #[must_use]
    pub fn whole_of(&self, part: Ino) -> Option<Ino> {
        self.whole.get(&part).copied()
    }

    /// The fragments into which a directory is split, by the hashes of their names.
    #[must_use]
    pub fn parts(&self, dir: Ino) -> Option<[Ino; Frag::SPLIT_WAYS]> {
        self.dirs.get(&dir).map(|known| known.parts)
    }

    /// The directory that has a name of this hash.
    fn home_of_hash(&self, dir: Ino, hash: u32) -> Ino {
        let mut at = dir;
        for _ in 0..DEPTH_MAX {
            let Some(known) = self.dirs.get(&at) else { break };
            at = known.parts[known.frag.place_of(hash)];
        }
        at
    }

    /// The directory that has a name of a directory: itself, or a fragment.
    #[must_use]
    pub fn home(&self, dir: Ino, name: &[u8]) -> Ino {
        if self.dirs.is_empty() { dir } else { self.home_of_hash(dir, name_hash(name)) }
    }

    /// The directories that have the names of a directory, by their hashes: the directory, or its
    /// fragments.
    #[must_use]
    pub fn leaves(&self, dir: Ino) -> Vec<Ino> {
        let mut leaves = vec![dir];
        for _ in 0..DEPTH_MAX {
            if !leaves.iter().any(|leaf| self.dirs.contains_key(leaf)) {
                break;
            }
            let below = |leaf: Ino| match self.dirs.get(&leaf) {
                Some(known) => known.parts.to_vec(),
                None => vec![leaf],
            };
            leaves = leaves.into_iter().flat_map(below).collect();
        }
        leaves
    }

    /// The next fragment of a listing when one fragment of the directory is done.
    #[must_use]
    pub fn leaf_after(&self, dir: Ino, leaf: Ino) -> Option<Ino> {
        self.leaves(dir).into_iter().skip_while(|at| *at != leaf).nth(1)
    }

    /// Rewrites a request for the fragment that has its names.
    #[must_use]
    pub fn aim<'a>(&self, op: Op<'a>) -> Op<'a> {
        if self.dirs.is_empty() {
            return op;
        }
        if let Op::Read(ReadOp::Walk { base, path }) = op {
            let parsed = Path::parse(path).ok();
            let first = parsed.as_ref().and_then(|path| path.components().next());
            return Op::Read(ReadOp::Walk {
                base: first.map_or(base, |name| self.home(base, name)),
                path,
            });
        }
        if let Op::Read(ReadOp::List { dir, after, limit, attrs }) = op {
            let leaf = match after {
                Some(name) => self.home(dir, name),
                None => self.home_of_hash(dir, 0),
            };
            return Op::Read(ReadOp::List { dir: leaf, after, limit, attrs });
        }
        let mut op = op;
        if let Op::Change(ChangeOp::Rename { new_parent, new_name, .. }) = &mut op {
            *new_parent = self.home(*new_parent, new_name);
        }
        if let Op::Read(ReadOp::Lookup { parent, name })
        | Op::Change(
            ChangeOp::Create { parent, name, .. }
            | ChangeOp::Link { parent, name, .. }
            | ChangeOp::Unlink { parent, name }
            | ChangeOp::Rmdir { parent, name }
            | ChangeOp::Discard { parent, name }
            | ChangeOp::Restore { parent, name, .. }
            | ChangeOp::Rename { parent, name, .. },
        )
        | Op::Admin(AdminOp::WriteDown { parent, name }) = &mut op
            && !name.is_empty()
        {
            *parent = self.home(*parent, name);
        }
        op
    }
}

mod validate;

#[cfg(test)]
mod tests {
    use types::{Attr, Rank};

    use super::*;

    fn fragments(dir: u64, frag: Frag, first: u64) -> Fragments {
        let parts =
            [0_u16, 1, 2, 3, 4, 5, 6, 7].map(|at| (Ino(first + u64::from(at)), Rank(at % 2)));
        let attr = Attr { ino: Ino(dir), ..Attr::default() };
        Fragments { attr, frag, parts, rest: Vec::new() }
    }

    #[test]
    fn a_name_is_in_the_fragment_of_its_hash_however_often_it_was_split() {
        let mut map = FragmentMap::default();
        assert_eq!(map.home(Ino(1), b"name"), Ino(1));
        map.note(&fragments(1, Frag::WHOLE, 10));
        let hash = name_hash(b"name");
        let place = Frag::WHOLE.place_of(hash);
        let at = u64::from(hash >> 29);
        assert_eq!(map.home(Ino(1), b"name"), Ino(10 + at));
        let frag = Frag::WHOLE.split().unwrap()[place];
        assert!(frag.contains(hash));
        map.note(&fragments(10 + at, frag, 20));
        assert_eq!(map.home(Ino(1), b"name"), Ino(20 + u64::from(hash >> 26 & 7)));
        assert_eq!(map.leaves(Ino(1)).len(), 15);
        assert!(map.forget(Ino(20)), "a fragment that is gone");
        assert_eq!(map.home(Ino(1), b"name"), Ino(10 + at));
        assert!(map.forget(Ino(1)) && map.is_empty() && !map.forget(Ino(1)));
    }

    #[test]
    fn the_fragments_of_a_large_directory_have_about_as_many_names_each() {
        let mut map = FragmentMap::default();
        map.note(&fragments(1, Frag::WHOLE, 10));
        let parts = map.leaves(Ino(1));
        let mut names = [0_u32; Frag::SPLIT_WAYS];
        for number in 0..50_001 {
            let home = map.home(Ino(1), format!("file.{number}").as_bytes());
            names[parts.iter().position(|part| *part == home).unwrap()] += 1;
        }
        assert!(names.iter().all(|of_one| (5000..=7500).contains(of_one)), "{names:?}");
    }

    #[test]
    fn a_listing_goes_through_all_fragments_in_the_order_of_hashes() {
        let mut map = FragmentMap::default();
        map.note(&fragments(1, Frag::WHOLE, 10));
        map.note(&fragments(10, Frag::WHOLE.split().unwrap()[0], 20));
        let list =
            |after| map.aim(Op::Read(ReadOp::List { dir: Ino(1), after, limit: 9, attrs: true }));
        let Op::Read(ReadOp::List { dir: mut at, .. }) = list(None) else { panic!() };
        let mut all = vec![at.0];
        while let Some(next) = map.leaf_after(Ino(1), at) {
            all.push(next.0);
            at = next;
        }
        assert_eq!(all, [20, 21, 22, 23, 24, 25, 26, 27, 11, 12, 13, 14, 15, 16, 17]);
        let Op::Read(ReadOp::List { dir, .. }) = list(Some(b"name")) else { panic!() };
        assert_eq!(dir, map.home(Ino(1), b"name"));
    }
}
