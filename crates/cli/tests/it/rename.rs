//! The edges of rename, through the client library, and that a crash changes none of them.

use std::sync::Arc;

use cudele::{Attr, Dir, Errno, Fs, NewFile, RenameFlags, Result};

use crate::cluster::Cluster;

const PLAIN: RenameFlags = RenameFlags { no_replace: false, exchange: false };
const NO_REPLACE: RenameFlags = RenameFlags { no_replace: true, exchange: false };
const EXCHANGE: RenameFlags = RenameFlags { no_replace: false, exchange: true };

fn file(dir: &Dir, name: &str) -> Attr {
    let data = name.as_bytes();
    dir.create(name, &NewFile { size: data.len() as u64, data, ..NewFile::default() }).unwrap()
}

fn directory(dir: &Dir, name: &str) -> Dir {
    let made = dir.create(name, &NewFile::directory()).unwrap();
    dir.enter(name.as_bytes(), made.ino).unwrap()
}

#[track_caller]
fn refused(result: Result<()>, errno: Errno) {
    assert_eq!(result.unwrap_err().errno, errno);
}

/// Everything a listing of the whole tree shows.
fn all(fs: &Arc<Fs>) -> Vec<(Vec<u8>, Attr)> {
    let mut found = vec![(b"/".to_vec(), fs.stat("/").unwrap())];
    let mut pending = vec![fs.open_dir("/").unwrap()];
    while let Some(dir) = pending.pop() {
        for entry in dir.list().unwrap() {
            let path = dir.path().join(&entry.name).to_bytes();
            if entry.attr.is_dir() {
                pending.push(dir.enter(&entry.name, entry.attr.ino).unwrap());
            }
            found.push((path.clone(), fs.stat(&path).unwrap()));
        }
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    found
}

#[test]
fn renames_follow_rename_2() {
    let cluster = Cluster::up();
    let fs = cluster.mount();
    let root = fs.open_dir("/").unwrap();
    let (a, b) = (directory(&root, "a"), directory(&root, "b"));
    let inner = directory(&a, "inner");
    let f = file(&a, "f");
    file(&a, "g");
    file(&inner, "x");

    // Onto itself, and between two names of one inode: nothing happens.
    a.rename("f", &a, "f", PLAIN).unwrap();
    b.link(f.ino, "f-too").unwrap();
    a.rename("f", &b, "f-too", PLAIN).unwrap();
    assert_eq!((a.lookup("f").unwrap().nlink, b.lookup("f-too").unwrap().nlink), (2, 2));
    refused(a.rename("f", &b, "f-too", NO_REPLACE), Errno::Exists);

    // A replaced file is gone; a file with further names loses one.
    a.rename("g", &a, "f", PLAIN).unwrap();
    assert_eq!(b.lookup("f-too").unwrap().nlink, 1);
    refused(a.lookup("g").map(|_| ()), Errno::NotFound);

    // Types, fullness, loops.
    refused(root.rename("a", &inner, "loop", PLAIN), Errno::Invalid);
    refused(root.rename("a", &a, "loop", PLAIN), Errno::Invalid);
    refused(a.rename("f", &root, "b", PLAIN), Errno::IsDirectory);
    refused(root.rename("b", &a, "f", PLAIN), Errno::NotDirectory);
    refused(root.rename("b", &a, "inner", PLAIN), Errno::NotEmpty);
    refused(a.rename("none", &b, "none", PLAIN), Errno::NotFound);
    refused(a.rename("f", &b, ".", PLAIN), Errno::Invalid);
    refused(a.rename("f", &b, "..", PLAIN), Errno::Invalid);
    refused(a.rename("f", &b, "", PLAIN), Errno::Invalid);
    refused(fs.rename("/", "/b/root", PLAIN), Errno::Invalid);
    refused(a.rename("f", &b, "f-too", RenameFlags { no_replace: true, exchange: true }), {
        Errno::Invalid
    });

    // A directory over an empty one; links of the directories above follow.
    let empty = directory(&b, "empty");
    let links = |dir: &str| fs.stat(dir).unwrap().nlink;
    assert_eq!((links("/a"), links("/b")), (3, 3));
    a.rename("inner", &b, "empty", PLAIN).unwrap();
    assert_eq!((links("/a"), links("/b")), (2, 3));
    assert_eq!(fs.stat("/b/empty/x").unwrap().size, 1);
    refused(empty.create("late", &NewFile::default()).map(|_| ()), Errno::Stale);

    // Swapping a directory with a file of another directory.
    refused(b.rename("empty", &a, "none", EXCHANGE), Errno::NotFound);
    refused(root.rename("b", &b, "empty", EXCHANGE), Errno::Invalid);
    b.rename("empty", &a, "f", EXCHANGE).unwrap();
    assert_eq!((links("/a"), links("/b")), (3, 2));
    assert!(fs.stat("/a/f/x").is_ok() && !fs.stat("/b/empty").unwrap().is_dir());

    fs.sync().unwrap();
    let before = all(&fs);
    cluster.kill("mds");
    cluster.start();
    assert_eq!(all(&cluster.mount()), before, "replayed from the journal");
    cluster.run(&["down"]);
    cluster.start();
    assert_eq!(all(&cluster.mount()), before, "read from the metadata store");
}

#[test]
fn a_chain_of_renames_survives_a_crash() {
    let cluster = Cluster::up();
    let fs = cluster.mount();
    let root = fs.open_dir("/").unwrap();
    let dirs: Vec<Dir> = (0..4).map(|at| directory(&root, &format!("d{at}"))).collect();
    let moved = file(&dirs[0], "moved");
    for step in 0..200 {
        dirs[step % 4].rename("moved", &dirs[(step + 1) % 4], "moved", PLAIN).unwrap();
        if step == 100 {
            // Half of it is in the metadata store, half in the journal.
            fs.checkpoint().unwrap();
        }
    }
    fs.sync().unwrap();
    cluster.kill("mds");
    cluster.start();
    let fs = cluster.mount();
    let attr = fs.stat("/d0/moved").unwrap();
    assert_eq!((attr.ino, attr.nlink), (moved.ino, 1));
    let names = cluster.say(&["find", "/", "--type", "f"]);
    assert_eq!(names, "/d0/moved\n");
}
