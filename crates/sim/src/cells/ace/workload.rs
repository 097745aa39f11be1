//! Workloads: the operations of a number, and the operations that these need before them.
//!
//! A workload begins in an empty subtree. The operations that an operation needs come right before
//! the operation: the directory above a name, the file that gets a second name, the decoupling that
//! ends with a merge.

use std::collections::BTreeMap;

use policy::{Cell, Consistency};

use super::grammar::{ALPHABET, AceOp};

/// The number of workloads of so many operations, among them the impossible ones.
#[must_use]
pub fn workloads(length: u32) -> u64 {
    (ALPHABET.len() as u64).saturating_pow(length)
}

/// The operations of a workload in a cell, with those that they need; nothing if one of them is
/// impossible there.
pub(super) fn operations(length: u32, number: u64, cell: Cell) -> Option<Vec<AceOp>> {
    let mut plan = Expansion::new(cell);
    let mut rest = number;
    for place in (0..length).rev() {
        let power = workloads(place);
        let digit = usize::try_from(rest / power).ok()?;
        plan.add(*ALPHABET.get(digit)?)?;
        rest %= power;
    }
    Some(plan.operations)
}

/// A file of an expansion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Dir,
    Symlink,
    /// Its number: two names may be of one file.
    File(usize),
}

/// The properties of a file on which operations depend.
#[derive(Clone, Copy, Debug, Default)]
struct FileFacts {
    has_content: bool,
    has_xattr: bool,
}

/// Operations, and the subtree after them.
#[derive(Debug)]
struct Expansion {
    operations: Vec<AceOp>,
    entries: BTreeMap<String, Entry>,
    files: Vec<FileFacts>,
    cell: Cell,
    is_decoupled: bool,
}

impl Expansion {
    fn new(cell: Cell) -> Self {
        Self {
            operations: Vec::new(),
            entries: BTreeMap::new(),
            files: Vec::new(),
            cell,
            is_decoupled: cell.consistency != Consistency::Strong,
        }
    }

    /// Adds an operation behind everything that it needs.
    fn add(&mut self, op: AceOp) -> Option<()> {
        match op {
            AceOp::Create(path) | AceOp::Symlink(path) => self.add_new(op, path)?,
            AceOp::Mkdir(path) => {
                self.need_parent(path)?;
                self.clear(path)?;
                self.put(path, Entry::Dir);
            }
            AceOp::Link(from, to) => {
                let file = self.need_file(from)?;
                self.need_parent(to)?;
                self.clear(to)?;
                self.put(to, Entry::File(file));
            }
            AceOp::Rename(from, to) => self.rename(from, to)?,
            AceOp::Exchange(one, two) => {
                let (first, second) = (self.need_file(one)?, self.need_file(two)?);
                self.put(one, Entry::File(second));
                self.put(two, Entry::File(first));
            }
            AceOp::Unlink(path) => {
                self.need_name(path)?;
                self.entries.remove(path);
            }
            AceOp::Rmdir(path) => {
                self.need_dir(path)?;
                self.empty(path)?;
                self.entries.remove(path);
            }
            AceOp::Write(path)
            | AceOp::Append(path)
            | AceOp::Truncate(path)
            | AceOp::Falloc(path) => self.change_content(op, path)?,
            AceOp::SetAttr(path) => self.need_object(path)?,
            AceOp::SetXattr(path) | AceOp::RemoveXattr(path) => self.change_xattr(op, path)?,
            AceOp::Sync | AceOp::Branch => {}
            AceOp::SyncPart => self.need_decoupled()?,
            AceOp::Decouple => {
                if self.is_decoupled {
                    self.add(AceOp::Merge)?;
                }
                self.decouple();
            }
            AceOp::Merge => {
                self.need_decoupled()?;
                self.is_decoupled = false;
            }
            AceOp::Policy(name) => {
                let to = Cell::all().find(|cell| cell.to_string() == name)?;
                if to == self.cell {
                    return None;
                }
                self.cell = to;
                self.is_decoupled &= to.consistency != Consistency::Strong;
            }
        }
        self.operations.push(op);
        Some(())
    }

    fn add_new(&mut self, op: AceOp, path: &'static str) -> Option<()> {
        self.need_parent(path)?;
        self.clear(path)?;
        let entry = if matches!(op, AceOp::Symlink(_)) {
            Entry::Symlink
        } else {
            self.files.push(FileFacts::default());
            Entry::File(self.files.len() - 1)
        };
        self.put(path, entry);
        Some(())
    }

    fn change_content(&mut self, op: AceOp, path: &'static str) -> Option<()> {
        let file = self.need_file(path)?;
        if matches!(op, AceOp::Truncate(_)) && !self.files[file].has_content {
            self.add(AceOp::Write(path))?;
        }
        self.files[file].has_content = true;
        Some(())
    }

    fn change_xattr(&mut self, op: AceOp, path: &'static str) -> Option<()> {
        self.need_object(path)?;
        let Some(Entry::File(file)) = self.entries.get(path).copied() else { return Some(()) };
        let sets = matches!(op, AceOp::SetXattr(_));
        if !sets && !self.files[file].has_xattr {
            self.add(AceOp::SetXattr(path))?;
        }
        self.files[file].has_xattr = sets;
        Some(())
    }

    fn rename(&mut self, from: &'static str, to: &'static str) -> Option<()> {
        self.need_parent(to)?;
        let is_dir = DIRS.contains(&from);
        if is_dir {
            self.need_dir(from)?;
        } else {
            self.need_name(from)?;
        }
        let (moved, replaced) = (*self.entries.get(from)?, self.entries.get(to).copied());
        match replaced {
            Some(Entry::Dir) if is_dir => self.empty(to)?,
            Some(Entry::Dir) => return None,
            Some(_) if is_dir => return None,
            // A rename to another name of the same file does nothing.
            Some(Entry::File(file)) if moved == Entry::File(file) => return Some(()),
            Some(_) | None => {}
        }
        let below = format!("{from}/");
        let inside = self.entries.iter().filter(|(path, _)| path.starts_with(&below));
        let inside: Vec<_> = inside.map(|(path, entry)| (path.clone(), *entry)).collect();
        self.entries.remove(from);
        self.entries.insert(to.to_owned(), moved);
        for (path, entry) in inside {
            self.entries.remove(&path);
            self.entries.insert(format!("{to}/{}", &path[below.len()..]), entry);
        }
        Some(())
    }

    fn decouple(&mut self) {
        if self.cell.consistency == Consistency::Strong {
            self.cell.consistency = Consistency::Weak;
        }
        self.is_decoupled = true;
    }

    fn need_decoupled(&mut self) -> Option<()> {
        if self.is_decoupled { Some(()) } else { self.add(AceOp::Decouple) }
    }

    fn need_parent(&mut self, path: &'static str) -> Option<()> {
        match path.rsplit_once('/') {
            Some((parent, _)) => self.need_dir(parent),
            None => Some(()),
        }
    }

    fn need_dir(&mut self, path: &'static str) -> Option<()> {
        match self.entries.get(path) {
            Some(Entry::Dir) => Some(()),
            Some(_) => None,
            None => self.add(AceOp::Mkdir(path)),
        }
    }

    /// A name of anything but a directory.
    fn need_name(&mut self, path: &'static str) -> Option<()> {
        self.need_parent(path)?;
        match self.entries.get(path) {
            Some(Entry::Dir) => None,
            Some(_) => Some(()),
            None => self.add(AceOp::Create(path)),
        }
    }

    fn need_file(&mut self, path: &'static str) -> Option<usize> {
        self.need_name(path)?;
        match self.entries.get(path) {
            Some(Entry::File(file)) => Some(*file),
            Some(_) | None => None,
        }
    }

    fn need_object(&mut self, path: &'static str) -> Option<()> {
        if DIRS.contains(&path) { self.need_dir(path) } else { self.need_file(path).map(drop) }
    }

    /// Frees a name.
    fn clear(&mut self, path: &'static str) -> Option<()> {
        match self.entries.get(path) {
            None => Some(()),
            Some(Entry::Dir) => self.add(AceOp::Rmdir(path)),
            Some(_) => self.add(AceOp::Unlink(path)),
        }
    }

    /// Removes the entries of a directory.
    fn empty(&mut self, dir: &'static str) -> Option<()> {
        let below = format!("{dir}/");
        while let Some(path) = self.entries.keys().find(|path| path.starts_with(&below)) {
            let known = DIRS.iter().chain(&FILES).find(|known| *known == path)?;
            self.clear(known)?;
        }
        Some(())
    }

    fn put(&mut self, path: &str, entry: Entry) {
        self.entries.insert(path.to_owned(), entry);
    }
}

/// The directories and files of the grammar.
const DIRS: [&str; 3] = ["A", "B", "A/C"];
const FILES: [&str; 3] = ["A/foo", "A/bar", "B/foo"];
