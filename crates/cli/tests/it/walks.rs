//! Walks of a namespace that a server does not have in memory: it is larger than its memory, or the
//! server was killed and started again. A walk lists every name that exists all the time.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use cudele::{Dir, Errno, NewFile, RenameFlags};

use crate::cluster::{Cluster, eventually, text};

/// Long, so that the names of a few directories fill a pipe, and a walk waits for its reader.
const LONG: &str = "a-name-that-is-long-enough-to-fill-the-pipe-between-a-walk-and-its-reader-soon";

/// Makes groups of directories with names below `/src`. Returns the paths of all.
fn tree(cluster: &Cluster, (groups, dirs, names): (usize, usize, usize)) -> BTreeSet<String> {
    let source = cluster.home.join("src");
    let mut all = BTreeSet::from(["/src".to_owned()]);
    for group in 0..groups {
        all.insert(format!("/src/g{group:02}"));
        for dir in 0..dirs {
            let dir = format!("g{group:02}/d{dir:02}");
            std::fs::create_dir_all(source.join(&dir)).unwrap();
            all.insert(format!("/src/{dir}"));
            for name in 0..names {
                let name = format!("{dir}/{LONG}-{name:04}");
                std::fs::File::create(source.join(&name)).unwrap();
                all.insert(format!("/src/{name}"));
            }
        }
    }
    cluster.run(&["ingest", source.to_str().unwrap(), "/src"]);
    all
}

fn paths(said: &[u8]) -> BTreeSet<String> {
    text(said).lines().map(str::to_owned).collect()
}

/// Compares by the first difference: thousands of names say nothing.
#[track_caller]
fn assert_same(found: &BTreeSet<String>, wanted: &BTreeSet<String>, what: &str) {
    let missing: Vec<_> = wanted.difference(found).take(3).collect();
    let more: Vec<_> = found.difference(wanted).take(3).collect();
    let counts = (found.len(), wanted.len());
    assert!(missing.is_empty() && more.is_empty(), "{what}: {counts:?} {missing:?} {more:?}");
}

/// Every path below a directory, as the library lists it.
fn walk(dir: &Dir, found: &mut BTreeSet<String>) -> cudele::Result<()> {
    for entry in dir.list()? {
        found.insert(format!("{}/{}", dir.path(), text(&entry.name)));
        if entry.attr.is_dir() {
            walk(&dir.enter(&entry.name, entry.attr.ino)?, found)?;
        }
    }
    Ok(())
}

#[test]
fn a_walk_larger_than_the_memory_of_the_server_lists_every_name() {
    larger_than_memory((6, 12, 40), "inodes_max=150", 6);
}

/// The size at which names were missing first: minutes.
#[test]
#[ignore = "300,201 names: cargo test -p cli --test it walks::large -- --ignored"]
fn large_walks_list_every_name() {
    larger_than_memory((10, 20, 1500), "inodes_max=15000", 3);
}

fn larger_than_memory(size: (usize, usize, usize), memory: &str, rounds: usize) {
    let cluster = Cluster::up_with(&["--set", memory]);
    let all = tree(&cluster, size);
    let directories = 1 + size.0 + size.0 * size.1;
    let counted = format!("{} files, {directories} directories", all.len() - directories);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Another client makes the server load other directories during that, so that those of the
        // walk are evicted.
        let other = scope.spawn(|| {
            let fs = cluster.mount();
            let mut walks = 0;
            while !done.load(Ordering::Relaxed) {
                let mut found = BTreeSet::from(["/src".to_owned()]);
                walk(&fs.open_dir("/src").unwrap(), &mut found).unwrap();
                assert_same(&found, &all, "the library");
                walks += 1;
            }
            walks
        });
        for _ in 0..rounds {
            assert_same(&paths(&cluster.run(&["find", "/src"])), &all, "find");
            let said = cluster.say(&["du", "/src"]);
            assert!(said.contains(&counted), "{said}: not {counted}");
        }
        done.store(true, Ordering::Relaxed);
        assert!(other.join().unwrap() > 0);
    });
    cluster.run(&["rm", "-r", "/src"]);
    assert_eq!(cluster.say(&["ls"]), "");
    cluster.run(&["down"]);
    cluster.run(&["fsck"]);
}

#[test]
fn a_walk_goes_on_after_a_kill_of_the_server() {
    let cluster = Cluster::up();
    let all = tree(&cluster, (4, 10, 60));
    // `find` has listed the first directories, and waits for its reader.
    let mut command = cluster.command(&["find", "/src"]);
    let mut find = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut reader = BufReader::new(find.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let mut found = BTreeSet::from([line.trim_end().to_owned()]);
    // The library has listed the directory above, and not those in it.
    let fs = cluster.mount();
    let top = fs.open_dir("/src/g01").unwrap();
    let listed = top.list().unwrap();
    cluster.kill("mds");
    cluster.start();
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    let ended = find.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    found.extend(paths(&rest));
    assert_same(&found, &all, "find");
    for entry in listed {
        let below = top.enter(&entry.name, entry.attr.ino).unwrap();
        assert_eq!(below.list().unwrap().len(), 60, "{}", below.path());
    }
}

#[test]
fn a_walk_skips_removed_directories_and_fails_if_its_start_is_renamed() {
    let cluster = Cluster::up();
    let all = tree(&cluster, (4, 10, 60));
    let start = |path: &str| {
        let mut command = cluster.command(&["find", path]);
        let mut find = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut reader = BufReader::new(find.stdout.take().unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        (find, reader)
    };
    let (find, mut reader) = start("/src");
    let fs = cluster.mount();
    let src = fs.open_dir("/src").unwrap();
    src.rename("g03", &fs.open_dir("/").unwrap(), "elsewhere", RenameFlags::default()).unwrap();
    fs.sync().unwrap();
    cluster.run(&["rm", "-r", "/elsewhere"]);
    cluster.kill("mds");
    cluster.start();
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    let ended = find.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    let mut found = paths(&rest);
    found.insert("/src".to_owned());
    let stays = |path: &&String| !path.starts_with("/src/g03");
    found.retain(|path| stays(&path));
    assert_same(&found, &all.iter().filter(stays).cloned().collect(), "find");

    let (find, mut reader) = start("/src");
    let root = fs.open_dir("/").unwrap();
    root.rename("src", &root, "renamed", RenameFlags::default()).unwrap();
    // After a kill the journal would bring the directories back into memory.
    cluster.run(&["down"]);
    cluster.start();
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    let ended = find.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "names are missing: {}", text(&ended.stderr));
    assert!(text(&ended.stderr).contains("/src"), "{}", text(&ended.stderr));
}

#[test]
fn an_inode_that_was_evicted_is_found_by_its_number() {
    let cluster = Cluster::up_with(&["--set", "inodes_max=40"]);
    let fs = cluster.mount();
    fs.make_dir("/a/b", 0o755).unwrap();
    let (above, dir) = (fs.open_dir("/a").unwrap(), fs.open_dir("/a/b").unwrap());
    let file = dir.create("file", &NewFile::default()).unwrap();
    fs.sync().unwrap();
    // Another client lists more than fits into memory, again and again.
    let other = cluster.mount();
    other.make_dir("/other", 0o755).unwrap();
    let large = other.open_dir("/other").unwrap();
    for number in 0..60 {
        large.create(format!("f{number}"), &NewFile::default()).unwrap();
    }
    eventually("the file is evicted", || {
        assert_eq!(large.list().unwrap().len(), 60);
        let asked = other.list_xattr(file.ino);
        asked.is_err_and(|error| error.errno == Errno::Stale)
    });
    let change = cudele::AttrChange { mode: Some(0o600), ..Default::default() };
    dir.set_attr_of(file.ino, &change).unwrap();
    assert_eq!(dir.lookup("file").unwrap().mode & 0o777, 0o600);
    above.set_attr_of(dir.ino(), &change).unwrap();
    assert_eq!(fs.stat("/a/b").unwrap().mode & 0o777, 0o600);
}
