//! A namespace as one comparable value: paths, and their objects.

use std::collections::BTreeMap;

use journal::{Create, Event, InodeSnapshot};
use model::Model;
use types::acl::{self, AccessList};
use types::{Attr, AttrChange, Ino, Timestamp};

/// All that can be seen of an inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// Attributes.
    pub attr: Attr,
    /// Content, or target of a symbolic link.
    pub data: Vec<u8>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Paths and their objects.
pub type Tree = BTreeMap<String, Item>;

/// The tree of a model.
#[must_use]
pub(crate) fn of_model(model: &Model) -> Tree {
    let mut tree = Tree::new();
    let mut todo = vec![(String::new(), Ino::ROOT)];
    while let Some((path, ino)) = todo.pop() {
        let Some(node) = model.node(ino) else { continue };
        let attr = model.getattr(ino).unwrap_or_default();
        for (name, ino) in model.entries(ino) {
            todo.push((format!("{path}/{}", String::from_utf8_lossy(name)), ino));
        }
        let item = Item { attr, data: node.data.clone(), xattrs: node.xattrs.clone() };
        tree.insert(path, item);
    }
    tree
}

/// A model of a tree.
#[must_use]
pub(crate) fn to_model(tree: &Tree) -> Model {
    let born = tree.get("").map_or(Timestamp(0), |root| root.attr.btime);
    let mut model = Model::with_root(born);
    let nothing = |_: &[u8], _: &mut model::Node| {};
    for (path, item) in tree.iter().filter(|(path, _)| !path.is_empty()) {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = tree.get(parent).map_or(Ino::ROOT, |item| item.attr.ino);
        let Attr { ino, mode, uid, gid, rdev, stripe, size, atime, mtime, btime, .. } = item.attr;
        let name = name.as_bytes();
        let time = btime;
        if model.node(ino).is_some() {
            let (home, inode) = (parent, InodeSnapshot { attr: item.attr, data: &[], extra: &[] });
            model.apply(&Event::Link { parent, name, ino, home, inode, time }, nothing);
            continue;
        }
        let data = item.data.as_slice();
        let create =
            Create { parent, name, ino, mode, uid, gid, rdev, stripe, ..Create::default() };
        let create = Create { size, time, mtime, atime, data, ..create };
        model.apply(&Event::Create(create), nothing);
    }
    for item in tree.values() {
        let Attr { ino, mode, atime, mtime, ctime: time, .. } = item.attr;
        let home = ino;
        for (name, value) in &item.xattrs {
            // An event has a list as its record.
            let list = Some(value).filter(|_| acl::is_list(name));
            let list = list.and_then(|list| AccessList::from_linux(list).ok());
            let value = list.map_or_else(|| value.clone(), |list| list.encode());
            let value = Some(value.as_slice());
            model.apply(&Event::SetXattr { ino, home, name, value, time }, nothing);
        }
        let (mtime, atime) = (Some(mtime), Some(atime));
        let change = AttrChange { mode: Some(mode), mtime, atime, ..AttrChange::default() };
        model.apply(&Event::SetAttr { ino, home, change, time }, nothing);
    }
    model
}

/// The paths of inodes that the tree has at more paths than they have names: directories at two
/// paths, and files of one link at two paths. A model cannot have them.
#[must_use]
pub(crate) fn doubled(tree: &Tree) -> Vec<&str> {
    let mut paths = BTreeMap::<Ino, Vec<&str>>::new();
    for (path, item) in tree.iter().filter(|(_, item)| item.attr.is_dir() || item.attr.nlink == 1) {
        paths.entry(item.attr.ino).or_default().push(path);
    }
    paths.into_values().filter(|paths| paths.len() > 1).flatten().collect()
}

/// The differences between two trees, as text; empty if there are none. Paths for which `ignore`
/// holds are left out.
#[must_use]
pub(crate) fn differences(expected: &Tree, actual: &Tree, ignore: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    let paths = expected.keys().chain(actual.keys().filter(|path| !expected.contains_key(*path)));
    for path in paths.filter(|path| !ignore(path)) {
        let (expected, actual) = (expected.get(path), actual.get(path));
        if expected != actual {
            text += &format!("\n{path}\n  expected: {expected:?}\n  actual:   {actual:?}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(ino: u64, mode: u32, nlink: u32) -> Item {
        Item { attr: Attr { ino: Ino(ino), mode, nlink, ..Attr::default() }, ..Item::default() }
    }

    #[test]
    fn a_moved_inode_in_two_places_is_doubled_and_a_linked_file_is_not() {
        let (dir, file) = (0o040_755, 0o100_644);
        let tree = Tree::from([
            (String::new(), item(1, dir, 4)),
            ("/a".into(), item(20, dir, 3)),
            ("/a/moved".into(), item(22, dir, 2)),
            ("/a/file".into(), item(23, file, 1)),
            ("/a/linked".into(), item(24, file, 2)),
            ("/b".into(), item(21, dir, 3)),
            ("/b/moved".into(), item(22, dir, 2)),
            ("/b/renamed".into(), item(23, file, 1)),
            ("/b/linked".into(), item(24, file, 2)),
        ]);
        assert_eq!(doubled(&tree), ["/a/moved", "/b/moved", "/a/file", "/b/renamed"]);
    }
}
