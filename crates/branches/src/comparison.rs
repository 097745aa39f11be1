//! The snapshot of a branch as it was, and the trunk as it is: for comparing names.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use client::{BranchConflicts, Sides};
use cudele::{Fs, WALKS_MAX};
use engine::{load_dir_at, read_snapshots};
use metastore::{Branch, RowValue};
use types::{Attr, Cred, Errno, Error, Ino, Path, Result};

use crate::{Branches, lost};

/// See the module documentation.
pub(crate) struct BranchComparison<'a> {
    branches: &'a Branches,
    fs: &'a Fs,
    number: u64,
    /// Directories of the snapshot that were looked into.
    listed: BTreeMap<Ino, Listed>,
    /// Directories of the snapshot with known paths, and directories to search for more.
    paths: BTreeMap<Ino, Path>,
    unseen: VecDeque<Ino>,
    root: Path,
    /// Directories that the trunk has no more where they were.
    gone: BTreeSet<Ino>,
}

/// A directory of the snapshot.
#[derive(Default)]
struct Listed {
    names: BTreeMap<Vec<u8>, Attr>,
    inodes: BTreeMap<Ino, Vec<u8>>,
}

impl<'a> BranchComparison<'a> {
    pub(crate) fn new(
        branches: &'a Branches,
        fs: &'a Fs,
        name: &str,
        branch: &Branch,
    ) -> Result<Self> {
        let (snapshots, _) = read_snapshots(&**branches.store())?;
        let snapshot = snapshots.get(branch.snapshot).ok_or_else(|| lost(name))?;
        let root = cudele::parse_path(&snapshot.path)?;
        Ok(Self {
            branches,
            fs,
            number: snapshot.number,
            listed: BTreeMap::new(),
            paths: BTreeMap::from([(branch.root, root.clone())]),
            unseen: VecDeque::from([branch.root]),
            root,
            gone: BTreeSet::new(),
        })
    }

    /// A directory of the snapshot; an empty one if there is none of this number.
    fn listed(&mut self, dir: Ino) -> Result<&Listed> {
        if !self.listed.contains_key(&dir) {
            let (mut listed, mut linked) = (Listed::default(), Vec::new());
            if let Some(loaded) = load_dir_at(&**self.branches.store(), dir, self.number)? {
                for row in loaded.rows.iter() {
                    match row.value {
                        RowValue::Removed => {}
                        RowValue::Remote { ino, .. } => linked.push((row.name.to_vec(), ino)),
                        RowValue::Inode(record) => {
                            listed.inodes.insert(record.attr.ino, row.name.to_vec());
                            listed.names.insert(row.name.to_vec(), record.attr);
                        }
                    }
                }
            }
            for (name, ino) in linked {
                let links = self.listed(Ino::LINKS)?;
                let attr = links.inodes.get(&ino).and_then(|name| links.names.get(name));
                listed.names.extend(attr.map(|attr| (name, *attr)));
            }
            self.listed.insert(dir, listed);
        }
        Ok(self.listed.entry(dir).or_default())
    }

    /// The path of a directory of the snapshot, which is searched for it.
    fn path_of(&mut self, dir: Ino) -> Result<Option<Path>> {
        while !self.paths.contains_key(&dir)
            && let Some(at) = self.unseen.pop_front()
        {
            let above = self.paths.get(&at).cloned().unwrap_or_default();
            let Some(loaded) = load_dir_at(&**self.branches.store(), at, self.number)? else {
                continue;
            };
            for row in loaded.rows.iter() {
                if let RowValue::Inode(record) = row.value
                    && record.attr.is_dir()
                {
                    self.paths.insert(record.attr.ino, above.join(row.name));
                    self.unseen.push_back(record.attr.ino);
                }
            }
        }
        Ok(self.paths.get(&dir).cloned())
    }

    /// The path of a directory of the branch, which may have made it. As it was called first.
    pub(crate) fn path_in(&mut self, dir: Ino, found: &BranchConflicts) -> Result<Path> {
        let (mut names, mut at) = (Vec::new(), dir);
        while let Some((above, name)) = found.made.get(&at) {
            names.push(name);
            at = *above;
        }
        let above = self.path_of(at)?.unwrap_or_else(|| self.root.clone());
        Ok(names.iter().rev().fold(above, |path, name| path.join(name)))
    }
}

impl Sides for BranchComparison<'_> {
    type Error = Error;

    fn base(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Attr>> {
        Ok(self.listed(dir)?.names.get(name).copied())
    }

    fn trunk(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Attr>> {
        if self.gone.contains(&dir) {
            return Ok(None);
        }
        for _ in 0..WALKS_MAX {
            match self.fs.as_user(&Cred::root()).lookup(dir, name) {
                Ok(attr) => return Ok(Some(attr)),
                Err(error) if matches!(error.errno, Errno::NotFound | Errno::NotDirectory) => {
                    return Ok(None);
                }
                Err(error) if error.errno == Errno::Stale => {}
                Err(error) => return Err(error),
            }
            // Not in the server's memory, or not there any more: walking to where it was tells.
            let path = self.path_of(dir)?;
            let is_there = |path| self.fs.walk_to_as(&Cred::root(), Ino::ROOT, path, dir);
            if !path.as_ref().map_or(Ok(false), is_there)? {
                self.gone.insert(dir);
                return Ok(None);
            }
        }
        Err(Error::of(Errno::Stale, dir.to_string()))
    }

    fn base_name(&mut self, dir: Ino, ino: Ino) -> Result<Option<Vec<u8>>> {
        Ok(self.listed(dir)?.inodes.get(&ino).cloned())
    }
}
