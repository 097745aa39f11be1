//! Reading a directory from the object store, past the metadata server's memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudele::{
    AdminOp, Attr, ChangeOp, Cred, EntryName, Errno, Fs, NewFile, Op, ReadOp, RenameFlags, Result,
};

use crate::fixture::World;
use crate::tools::{decouple, mount};

/// Enough for a client to read them from the store on its own.
const FILES: usize = 20_000;

/// A directory with so many files, by a merge.
fn filled(world: &World, path: &str) -> Arc<Fs> {
    let fs = mount(world);
    let policy = "consistency: append_client_journal+volatile_apply\nallocated_inodes: 30000";
    let mut job = decouple(&fs, path, policy);
    let root = job.root();
    for number in 0..FILES {
        let data = format!("content {number}").into_bytes();
        let new = NewFile { data: &data, size: data.len() as u64, ..NewFile::default() };
        job.create(root, format!("f{number}").as_bytes(), &new).unwrap();
    }
    job.merge().unwrap();
    job.forget().unwrap();
    fs
}

/// The attributes of sub-directories without a look into them.
fn told(attr: &Attr) -> Attr {
    if attr.is_dir() { Attr { size: 0, nlink: 1, ..*attr } } else { *attr }
}

fn scanned(fs: &Fs, path: &str) -> Vec<(Vec<u8>, Attr)> {
    let mut all = Vec::new();
    let take = |name: &[u8], attr: &Attr| -> Result<()> {
        all.push((name.to_vec(), told(attr)));
        Ok(())
    };
    assert_eq!(fs.scan(path, take).unwrap().entries, all.len() as u64);
    assert!(all.is_sorted_by(|one, next| one.0 < next.0), "in order of name");
    all
}

fn listed(fs: &Arc<Fs>, path: &str) -> Vec<(Vec<u8>, Attr)> {
    let entries = fs.open_dir(path).unwrap().list().unwrap().into_iter();
    let mut all: Vec<_> = entries.map(|entry| (entry.name, told(&entry.attr))).collect();
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

#[test]
fn a_large_directory_is_read_from_the_object_store() {
    let world = World::new();
    let fs = filled(&world, "/big");
    assert_eq!(scanned(&fs, "/big").len(), FILES);
    // Changes that only the server's memory has are written first.
    let dir = fs.open_dir("/big").unwrap();
    for number in 0..9 {
        dir.create(format!("new{number}"), &NewFile::default()).unwrap();
        dir.unlink(format!("f{number}")).unwrap();
        let change = cudele::AttrChange { mode: Some(0o600), ..cudele::AttrChange::default() };
        dir.set_attr(format!("f{}", number + 100), &change).unwrap();
        assert_eq!(scanned(&fs, "/big"), listed(&fs, "/big"), "after {number} changes");
    }
    fs.make_dir("/big/below", 0o700).unwrap();
    fs.open_dir("/big/below").unwrap().create("file", &NewFile::default()).unwrap();
    let one = dir.lookup("f50").unwrap();
    fs.call(Op::Change(ChangeOp::Link { ino: one.ino, parent: dir.ino(), name: b"other" }))
        .unwrap();
    fs.rename("/big/f51", "/big/g51", RenameFlags::default()).unwrap();
    let all = scanned(&fs, "/big");
    assert_eq!(all.len(), FILES + 2);
    assert_eq!(all, listed(&fs, "/big"));
    assert!(all.iter().any(|(name, attr)| name == b"other" && attr.nlink == 2));
    world.crash();
    let fs = mount(&world);
    assert_eq!(scanned(&fs, "/big"), all, "by a server that has none of it in memory");
    assert_eq!(scanned(&fs, "/").len(), 1);
    assert_eq!(scanned(&fs, "/big/below").len(), 1);
}

#[test]
fn a_scan_of_the_object_store_needs_read_permission() {
    let world = World::new();
    let fs = mount(&world);
    let closed = fs.make_dir("/closed", 0o700).unwrap();
    let nobody = Cred { uid: 4242, gid: 4242, ..Cred::default() };
    let ask = |parent, name: &[u8]| {
        let asked = fs.call_as(&nobody, Op::Admin(AdminOp::WriteDown { parent, name }));
        asked.map(drop).map_err(|error| error.errno)
    };
    assert_eq!(ask(closed.ino, b""), Err(Errno::Access));
    let root = fs.stat("/").unwrap().ino;
    assert_eq!(ask(root, b"closed"), Err(Errno::Access));
    assert_eq!(ask(root, b"none"), Err(Errno::NotFound));
    assert_eq!(ask(root, b""), Ok(()));
    fs.open_dir("/").unwrap().create("file", &NewFile::default()).unwrap();
    assert_eq!(ask(root, b"file"), Err(Errno::NotDirectory));
    // A blocked subtree of another client is not shown, either.
    let other = mount(&world);
    let policy = "consistency: append_client_journal+volatile_apply\ninterfere_policy: block";
    let job = decouple(&other, "/mine", policy);
    assert_eq!(fs.scan("/mine", |_, _| Ok(())).unwrap_err().errno, Errno::Busy);
    job.discard().unwrap();
    assert_eq!(fs.scan("/mine", |_, _| Ok(())).unwrap().entries, 0);
}

#[test]
fn names_that_exist_throughout_a_scan_are_read_once() {
    let world = World::new();
    let fs = filled(&world, "/big");
    let (other, done) = (mount(&world), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let dir = other.open_dir("/big").unwrap();
            let mut number = 0;
            while !done.load(Ordering::Relaxed) {
                dir.create(format!("g{number}"), &NewFile::default()).unwrap();
                if number >= 50 {
                    dir.unlink(format!("g{}", number - 50)).unwrap();
                }
                // Every time a run, and every few times all of them rewritten.
                other.call(Op::Admin(AdminOp::WriteDown { parent: dir.ino(), name: b"" })).unwrap();
                number += 1;
            }
        });
        for _ in 0..40 {
            let mut names = 0;
            let mut last = Vec::new();
            let take = |name: &[u8], _: &Attr| {
                assert!(*last < *name, "each once and in order");
                last = name.to_vec();
                names += usize::from(name.starts_with(b"f"));
                Ok(())
            };
            fs.scan("/big", take).unwrap();
            assert_eq!(names, FILES);
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_decoupled_client_continues_in_a_scanned_directory() {
    let world = World::new();
    filled(&world, "/big").checkpoint().unwrap();
    world.crash();
    let fs = mount(&world);
    let policy = "consistency: append_client_journal+volatile_apply\ncheck: client";
    let mut job = decouple(&fs, "/big", policy);
    let (root, before) = (job.root(), fs.requests());
    assert_eq!(job.list(root).unwrap().len(), FILES);
    assert!(fs.requests() - before <= 1, "the server is asked once");
    let new = NewFile::default();
    assert_eq!(job.create(root, b"f7", &new).unwrap_err().errno, Errno::Exists);
    job.create(root, b"mine", &new).unwrap();
    job.unlink(root, b"f8").unwrap();
    let file = job.lookup(root, b"f9").unwrap();
    assert_eq!(job.data(file.ino).unwrap(), b"content 9");
    job.set_data(file.ino, b"changed", 7).unwrap();
    job.rename(EntryName::new(root, b"f10"), EntryName::new(root, b"g10"), RenameFlags::default())
        .unwrap();
    assert!(fs.requests() - before <= 3, "{}", fs.requests() - before);
    assert_eq!(job.merge().unwrap().merge.unwrap().rejected, 0);
    let dir = fs.open_dir("/big").unwrap();
    assert_eq!(dir.list().unwrap().len(), FILES);
    assert_eq!(dir.lookup("f9").unwrap().size, 7);
    assert_eq!(dir.lookup("g10").map(|_| ()).map_err(|error| error.errno), Ok(()));
    assert_eq!(dir.lookup("f8").unwrap_err().errno, Errno::NotFound);
}

#[test]
fn a_decoupled_client_takes_a_whole_subtree_from_the_object_store() {
    let world = World::new();
    let fs = mount(&world);
    let policy = "consistency: append_client_journal+volatile_apply\nallocated_inodes: 3000";
    let mut first = decouple(&fs, "/tree", policy);
    let (root, mut dirs) = (first.root(), 1);
    for number in 0..8 {
        let dir = first.create(root, format!("d{number}").as_bytes(), &NewFile::directory());
        let deep = first.create(dir.unwrap(), b"deep", &NewFile::directory()).unwrap();
        dirs += 2;
        for file in 0..100 {
            let data = format!("{number}.{file}").into_bytes();
            let new = NewFile { data: &data, size: data.len() as u64, ..NewFile::default() };
            first.create(deep, format!("f{file}").as_bytes(), &new).unwrap();
        }
    }
    first.merge().unwrap();
    first.forget().unwrap();
    // Some of it is in the server's memory only when it is asked for.
    fs.open_dir("/tree/d3/deep").unwrap().create("late", &NewFile::default()).unwrap();
    let other = mount(&world);
    let mut job = decouple(&other, "/tree", policy);
    let own = job.create(root, b"own", &NewFile::directory()).unwrap();
    job.create(own, b"file", &NewFile::default()).unwrap();
    let before = other.requests();
    let loaded = job.materialise().unwrap();
    assert_eq!((loaded.directories, loaded.entries), (dirs, 8 + 8 + 8 * 100 + 1));
    let mut seen = 0;
    let mut pending = vec![root];
    while let Some(dir) = pending.pop() {
        for entry in job.list(dir).unwrap() {
            seen += 1;
            if entry.attr.is_dir() {
                pending.push(entry.attr.ino);
            }
        }
    }
    assert_eq!(seen, loaded.entries + 2);
    let d5 = job.lookup(root, b"d5").unwrap().ino;
    let deep = job.lookup(d5, b"deep").unwrap().ino;
    let file = job.lookup(deep, b"f42").unwrap().ino;
    assert_eq!(job.data(file).unwrap(), b"5.42");
    job.create(deep, b"mine", &NewFile::default()).unwrap();
    job.rename(EntryName::new(deep, b"f1"), EntryName::new(own, b"moved"), RenameFlags::default())
        .unwrap();
    job.unlink(deep, b"f2").unwrap();
    assert_eq!(other.requests() - before, 1, "one, whatever was there");
    assert_eq!(job.materialise().unwrap().directories, 0, "what is in the view stays");
    assert_eq!(job.merge().unwrap().merge.unwrap().rejected, 0);
    job.forget().unwrap();
    let names = |path: &str| fs.open_dir(path).unwrap().list().unwrap().len();
    assert_eq!((names("/tree/d5/deep"), names("/tree/own")), (99, 2));
    assert_eq!(names("/tree/d3/deep"), 101);
}

/// Content that is neither in the rows that the client read nor in objects of its own is requested
/// where the server can find it, whether or not the view still has the file.
#[test]
fn content_missing_in_a_view_comes_from_the_server_after_a_restart() {
    let world = World::new();
    let fs = mount(&world);
    let content = |number: u8| vec![number; 4097 + 7919 * usize::from(number)];
    fs.make_dir("/tree", 0o755).unwrap();
    for (number, path) in (0..7).zip(["a", "b", "c", "d", "e/deep", "f", "g"]) {
        let path = format!("/tree/{path}");
        fs.make_dir(&path, 0o755).unwrap();
        let dir = fs.open_dir(&path).unwrap();
        fs.create_file(&dir, "file", &NewFile::default(), &mut &*content(number)).unwrap();
    }
    let twice = fs.stat("/tree/f/file").unwrap().ino;
    fs.open_dir("/tree/g").unwrap().link(twice, "twice").unwrap();
    fs.checkpoint().unwrap();
    let policy = "consistency: append_client_journal+volatile_apply";
    let mut job = decouple(&fs, "/tree", policy);
    job.materialise().unwrap();
    let root = job.root();
    let mut find = |path: &str| {
        path.split('/').fold(root, |dir, name| job.lookup(dir, name.as_bytes()).unwrap().ino)
    };
    let files =
        ["a/file", "b/file", "c/file", "d/file", "e/deep/file", "f/file", "g/file"].map(&mut find);
    let [b, e] = ["b", "e"].map(&mut find);
    // Nothing is left in a journal that would bring it back.
    world.run(&["down"]).done();
    world.run(&["up"]).done();
    let asked = fs.call_as(&Cred::root(), Op::Read(ReadOp::GetData { ino: files[0] }));
    assert_eq!(asked.unwrap_err().errno, Errno::Stale, "the server knows of nothing");
    // The base has none of this.
    let to = RenameFlags::default();
    job.rename(EntryName::new(b, b"file"), EntryName::new(root, b"moved"), to).unwrap();
    job.rename(EntryName::new(root, b"c"), EntryName::new(root, b"renamed"), to).unwrap();
    job.rename(EntryName::new(e, b"deep"), EntryName::new(root, b"deep"), to).unwrap();
    job.rmdir(root, b"e").unwrap();
    job.rename(EntryName::new(root, b"moved"), EntryName::new(root, b"e"), to).unwrap();
    job.rename(
        EntryName::new(root, b"d"),
        EntryName::new(root, b"g"),
        RenameFlags { exchange: true, ..to },
    )
    .unwrap();
    for (number, file) in (0..).zip(files) {
        let mut read = Vec::new();
        let attr = job.attr(file).unwrap();
        assert_eq!(job.data(file).unwrap(), Vec::<u8>::new(), "it is not inline");
        let mut take = |bytes: &[u8]| {
            read.extend_from_slice(bytes);
            Ok(())
        };
        fs.read_file(&attr, &mut take).unwrap();
        assert!(read == content(number), "file {number}");
    }
    job.merge().unwrap();
    assert_eq!(fs.stat("/tree/renamed/file").unwrap().ino, files[2]);
}
