//! From an event to a change with its paths, and with the watchers that may see it.

use journal::{Create, Event};
use namespace::Namespace;
use types::{EntryName, FileType, Ino, Path};
use wire::{ChangeKind, ChangedName, WatchedChange};

use super::ring::Masks;
use super::{Watcher, Watches};
use crate::authority::MoveNews;

/// The permissions to search a directory, and to list it, too.
const SEARCH: u32 = 1;
const LIST: u32 = 5;

/// A name of a change.
struct End {
    dir: Ino,
    path: Path,
}

impl End {
    fn named(self) -> ChangedName {
        ChangedName { dir: self.dir, path: self.path.to_bytes() }
    }
}

/// Where an inode or a directory is.
enum Found<T> {
    /// There.
    Here(T),
    /// Where no path leads: in the trash, or nowhere.
    Hidden,
    /// In no directory that is in memory.
    Unknown,
}

/// The place of a name.
fn find(namespace: &Namespace, entry: EntryName<'_>) -> Found<End> {
    let EntryName { dir, name } = entry;
    match namespace.path_of(dir) {
        Some(path) => Found::Here(End { dir, path: path.join(name) }),
        None if namespace.is_within(dir, Ino::TRASH) => Found::Hidden,
        None => Found::Unknown,
    }
}

/// The place of an inode. `Here(None)` for one with several names.
fn find_inode(namespace: &Namespace, ino: Ino) -> Found<Option<End>> {
    if ino == Ino::ROOT {
        return Found::Here(Some(End { dir: Ino::ROOT, path: Path::root() }));
    }
    let is_known = namespace.knows(ino);
    match (namespace.home_of(ino), namespace.path_of(ino)) {
        (Some(Ino::LINKS), _) => Found::Here(None),
        (Some(dir), Some(path)) => Found::Here(Some(End { dir, path })),
        _ if namespace.is_within(ino, Ino::TRASH) => Found::Hidden,
        // The last name of an open file is gone.
        _ if is_known && !namespace.has_name(ino) => Found::Hidden,
        _ => Found::Unknown,
    }
}

fn type_of(namespace: &Namespace, ino: Ino) -> FileType {
    let mode = namespace.permissions_of(ino).map_or(0, |known| known.mode);
    FileType::from_mode(mode).unwrap_or_default()
}

/// Whether a watcher may see a name; `None` if that cannot be judged.
fn may_see(namespace: &Namespace, watcher: &Watcher, is_of_tree: bool, end: &End) -> Option<bool> {
    let is_above = watcher.path.starts_with(&end.path);
    let concerns = end.path.starts_with(&watcher.path) || (is_above && is_of_tree);
    if !concerns {
        return Some(false);
    }
    if watcher.cred.is_root() {
        return Some(true);
    }
    // The user knows the names of the watched path.
    let (mut want, mut top) = (if is_above { SEARCH } else { LIST }, end.dir);
    for dir in namespace.ancestors(end.dir) {
        if namespace.permissions_of(dir).is_none() {
            break;
        }
        if namespace.access(&watcher.cred, dir, want).is_err() {
            return Some(false);
        }
        (want, top) = (SEARCH, dir);
    }
    (top == Ino::ROOT).then_some(true)
}

impl Watches {
    /// Notes an event that is about to be applied.
    #[cold]
    pub(crate) fn note(&mut self, namespace: &Namespace, event: &Event<'_>) {
        let name = |dir, name| EntryName::new(dir, name);
        let change = |kind, ino, file_type| WatchedChange {
            kind,
            ino,
            file_type,
            ..WatchedChange::default()
        };
        match *event {
            Event::Create(ref create @ Create { parent, ino, .. }) => {
                let file_type = create.file_type();
                let is_dir = file_type == FileType::Directory;
                let kind = if is_dir { ChangeKind::Mkdir } else { ChangeKind::Create };
                let at = find(namespace, name(parent, create.name));
                self.note_at(namespace, at, change(kind, ino, file_type));
            }
            Event::Link { parent, name: new, ino, ref inode, .. } => {
                let at = find(namespace, name(parent, new));
                let file_type = inode.attr.file_type();
                self.note_at(namespace, at, change(ChangeKind::Link, ino, file_type));
            }
            Event::Unlink { parent, name: old, ino, .. } => {
                let at = find(namespace, name(parent, old));
                let file_type = type_of(namespace, ino);
                self.note_at(namespace, at, change(ChangeKind::Unlink, ino, file_type));
            }
            Event::Rmdir { parent, name: old, ino, .. } => {
                let at = find(namespace, name(parent, old));
                self.note_at(namespace, at, change(ChangeKind::Rmdir, ino, FileType::Directory));
            }
            Event::Rename { .. } => self.note_rename(namespace, event),
            Event::SetAttr { ino, change: ref attr, .. } => {
                let kind =
                    if attr.size.is_some() { ChangeKind::Content } else { ChangeKind::SetAttr };
                let number = attr.size.unwrap_or(0);
                let change = change(kind, ino, type_of(namespace, ino));
                self.note_inode(namespace, WatchedChange { number, ..change });
            }
            Event::SetData { ino, size: number, .. } => {
                let change = change(ChangeKind::Content, ino, type_of(namespace, ino));
                self.note_inode(namespace, WatchedChange { number, ..change });
            }
            Event::SetXattr { ino, name, value, .. } => {
                let is_set = value.is_some();
                let kind = if is_set { ChangeKind::SetXattr } else { ChangeKind::RemoveXattr };
                let change = change(kind, ino, type_of(namespace, ino));
                self.note_inode(namespace, WatchedChange { xattr: name.to_vec(), ..change });
            }
            Event::SetPolicy { ino, .. } => self.note_tree(namespace, ChangeKind::Policy, ino, 0),
            Event::Session { .. } | Event::Merged { .. } | Event::Stored { .. } => {}
        }
    }

    /// Notes a rename, or the way of a tree into the trash or out of it.
    fn note_rename(&mut self, namespace: &Namespace, event: &Event<'_>) {
        let Event::Rename {
            parent,
            name,
            new_parent,
            new_name,
            ref moved,
            exchanged,
            replaced,
            ..
        } = *event
        else {
            return;
        };
        let (at, to) = (EntryName::new(parent, name), EntryName::new(new_parent, new_name));
        let (ino, file_type) = (moved.attr.ino, moved.attr.file_type());
        let other = exchanged.map_or(replaced, |back| back.attr.ino);
        let kind = match (parent == Ino::TRASH, new_parent == Ino::TRASH) {
            (true, true) => return,
            (true, false) => ChangeKind::Restore,
            (false, true) => ChangeKind::RemoveTree,
            (false, false) if exchanged.is_some() => ChangeKind::Exchange,
            (false, false) => ChangeKind::Rename,
        };
        let number = exchanged.map_or(0, |back| back.attr.file_type() as u64);
        let change = WatchedChange { kind, ino, file_type, ..WatchedChange::default() };
        let change = WatchedChange { other, number, ..change };
        if kind == ChangeKind::Restore {
            return self.note_at(namespace, find(namespace, to), change);
        }
        if kind == ChangeKind::RemoveTree {
            return self.note_at(namespace, find(namespace, at), change);
        }
        match (find(namespace, at), find(namespace, to)) {
            (Found::Here(at), Found::Here(to)) => {
                self.note_ends(namespace, Some(at), Some(to), change);
            }
            (Found::Hidden, Found::Hidden) => {}
            (Found::Here(_) | Found::Hidden | Found::Unknown, _) => self.lose_all(),
        }
    }

    /// Notes half of a rename between two ranks: the name that goes, or the one that comes.
    pub(crate) fn note_half(
        &mut self,
        namespace: &Namespace,
        kind: ChangeKind,
        entry: EntryName<'_>,
        event: &Event<'_>,
    ) {
        if let Event::Rename { moved, .. } = event
            && self.is_any()
        {
            let (ino, file_type) = (moved.attr.ino, moved.attr.file_type());
            let change = WatchedChange { kind, ino, file_type, ..WatchedChange::default() };
            self.note_at(namespace, find(namespace, entry), change);
        }
    }

    /// Notes a change of a subtree as a whole: of its policy, its owner, or its content by a merge.
    pub(crate) fn note_tree(
        &mut self,
        namespace: &Namespace,
        kind: ChangeKind,
        root: Ino,
        number: u64,
    ) {
        if self.is_any() {
            let file_type = FileType::Directory;
            let change = WatchedChange { kind, ino: root, file_type, ..WatchedChange::default() };
            self.note_inode(namespace, WatchedChange { number, ..change });
        }
    }

    /// Notes that a subtree left this rank, or came to it.
    pub(crate) fn note_move(&mut self, news: MoveNews) {
        let MoveNews { root, path, moves, other, is_here } = news;
        let Ok(path) = Path::parse(&path) else { return self.lose_all() };
        let kind = if is_here { ChangeKind::Arrived } else { ChangeKind::Departed };
        let bits = self.all().filter(|(_, watcher)| {
            path.starts_with(&watcher.path) || watcher.path.starts_with(&path)
        });
        let mask = bits.fold(0, |mask, (at, _)| mask | (1 << at));
        let change = WatchedChange {
            kind,
            ino: root,
            file_type: FileType::Directory,
            // The path may be one that the user may not see.
            other: Ino(u64::from(other.0)),
            number: moves,
            ..WatchedChange::default()
        };
        if mask != 0 {
            self.ring.push(Masks { at: mask, to: 0 }, change);
        }
    }

    fn note_inode(&mut self, namespace: &Namespace, change: WatchedChange) {
        match find_inode(namespace, change.ino) {
            Found::Here(Some(end)) => self.note_at(namespace, Found::Here(end), change),
            Found::Here(None) => {
                let roots = self.all().filter(|(_, watcher)| watcher.cred.is_root());
                let mask = roots.fold(0, |mask, (at, _)| mask | (1 << at));
                if mask != 0 {
                    self.ring.push(Masks { at: mask, to: 0 }, change);
                }
            }
            Found::Hidden => {}
            Found::Unknown => self.lose_all(),
        }
    }

    fn note_at(&mut self, namespace: &Namespace, at: Found<End>, change: WatchedChange) {
        match at {
            Found::Here(at) => self.note_ends(namespace, Some(at), None, change),
            Found::Hidden => {}
            Found::Unknown => self.lose_all(),
        }
    }

    fn note_ends(
        &mut self,
        namespace: &Namespace,
        at: Option<End>,
        to: Option<End>,
        change: WatchedChange,
    ) {
        let is_of_tree = change.kind.is_of_tree() && change.file_type == FileType::Directory;
        let mut masks = Masks::default();
        for (bit, slot) in self.watchers.iter_mut().enumerate() {
            let Some(watcher) = slot else { continue };
            for (end, mask) in [(&at, &mut masks.at), (&to, &mut masks.to)] {
                let Some(end) = end else { continue };
                match may_see(namespace, watcher, is_of_tree, end) {
                    Some(true) => *mask |= 1 << bit,
                    Some(false) => {}
                    None => watcher.is_blind = true,
                }
            }
        }
        if masks != Masks::default() {
            let (at, to) = (at.map(End::named), to.map(End::named));
            self.ring.push(masks, WatchedChange { at, to, ..change });
        }
    }
}
