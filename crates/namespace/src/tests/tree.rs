//! A namespace as one comparable value.

use std::collections::BTreeMap;

use model::Model;
use types::{Attr, Cred, Ino};

use crate::{Namespace, Refusal};

/// All that can be seen of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) attr: Attr,
    data: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    policy: Vec<u8>,
}

/// Paths and their objects.
pub(super) type Tree = BTreeMap<String, Item>;

/// Brings a directory into memory.
pub(super) type Fetch<'a> = &'a mut dyn FnMut(&mut Namespace, Ino);

/// For namespaces that are in memory as a whole.
pub(super) fn no_fetch(namespace: &mut Namespace, dir: Ino) {
    namespace.store().finish_load(dir, types::Seq(0), Default::default());
}

/// Asks until nothing has to be fetched any more.
pub(super) fn warm<T>(
    namespace: &mut Namespace,
    fetch: Fetch<'_>,
    mut ask: impl FnMut(&mut Namespace) -> Result<T, Refusal>,
) -> Result<T, types::Errno> {
    for _ in 0..1000 {
        match ask(namespace) {
            Ok(answer) => return Ok(answer),
            Err(Refusal::Errno(errno)) => return Err(errno),
            Err(Refusal::Cold(dir)) => fetch(namespace, dir),
        }
    }
    panic!("fetching does not make the answer known");
}

/// Everything below the root, and the root itself.
pub(super) fn of_namespace(namespace: &mut Namespace, fetch: Fetch<'_>) -> Tree {
    let mut tree = Tree::new();
    if !namespace.knows(Ino::ROOT) {
        fetch(namespace, Ino::ANCHOR);
    }
    let mut todo = vec![(String::new(), Ino::ROOT)];
    while let Some((path, ino)) = todo.pop() {
        let attr = warm(namespace, fetch, |namespace| namespace.getattr(ino));
        let attr =
            attr.unwrap_or_else(|errno| panic!("{path} names {ino}: {errno:?}, of {tree:#?}"));
        let data = namespace.data(ino).unwrap().to_vec();
        let names = namespace.xattr_names(ino).unwrap();
        let xattrs = names
            .iter()
            .map(|name| (name.to_vec(), namespace.xattr(ino, name).expect("listed").to_vec()));
        let xattrs = xattrs.collect();
        let policy = namespace.own_policy(ino).unwrap().unwrap_or_default().to_vec();
        if attr.is_dir() {
            let list = |namespace: &mut Namespace| {
                namespace.list(&Cred::root(), ino, None, usize::MAX, true)
            };
            for entry in warm(namespace, fetch, list).expect("a directory") {
                let name = String::from_utf8_lossy(&entry.name).into_owned();
                todo.push((format!("{path}/{name}"), entry.attr.ino));
            }
        }
        let before = tree.insert(path.clone(), Item { attr, data, xattrs, policy });
        assert!(before.is_none(), "{path} is there twice");
    }
    tree
}

/// As [`of_namespace`].
pub(super) fn of_model(model: &Model) -> Tree {
    let mut tree = Tree::new();
    let mut todo = vec![(String::new(), Ino::ROOT)];
    while let Some((path, ino)) = todo.pop() {
        let node = model.node(ino).expect("named").clone();
        let attr = model.getattr(ino).expect("named");
        for (name, ino) in model.entries(ino) {
            todo.push((format!("{path}/{}", String::from_utf8_lossy(name)), ino));
        }
        let (data, xattrs, policy) = (node.data, node.xattrs, node.policy);
        tree.insert(path, Item { attr, data, xattrs, policy });
    }
    tree
}

/// Compares, and prints the differences rather than two trees.
pub(super) fn assert_same(left: &Tree, right: &Tree, what: &str) {
    let mut differences = String::new();
    for path in left.keys().chain(right.keys().filter(|path| !left.contains_key(*path))) {
        let (a, b) = (left.get(path), right.get(path));
        if a != b {
            differences += &format!("\n{path}\n  left:  {a:?}\n  right: {b:?}");
        }
    }
    assert!(differences.is_empty(), "{what}:{differences}");
}
