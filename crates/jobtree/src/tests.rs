//! Tests of the region in one process: against a simple model, and with many threads.
#![allow(clippy::disallowed_methods, reason = "I/O edge: the tests share a region among threads")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::*;

struct Always;

impl Host for Always {
    fn is_alive(&self, _: u32, _: u32) -> bool {
        true
    }
    fn pause(&self, _: u32) {
        std::thread::yield_now();
    }
}

/// The odd threads are dead.
struct OddIsDead;

impl Host for OddIsDead {
    fn is_alive(&self, _: u32, tid: u32) -> bool {
        tid.is_multiple_of(2)
    }
    fn pause(&self, _: u32) {
        std::thread::yield_now();
    }
}

/// Bytes of a region in Miri: as few as a region may have.
const REGION_IN_MIRI: usize = 64 << 20;

const ROOT: Identity<'static> = Identity { uid: 0, gid: 0, groups: &[] };

/// How many steps a test makes. Miri, which checks each access, is some thousand times slower.
const fn steps(usual: u32, in_miri: u32) -> u32 {
    if cfg!(miri) { in_miri } else { usual }
}

fn region(len: usize) -> &'static JobRegion {
    let len = if cfg!(miri) { REGION_IN_MIRI } else { len };
    let words = Box::leak(vec![0_u128; len / 16 + 256].into_boxed_slice());
    let base = words.as_mut_ptr().cast::<u8>();
    let offset = base.align_offset(4096);
    // SAFETY: leaked memory, long enough behind the aligned address.
    let region = unsafe { JobRegion::new(base.add(offset), len as u64) };
    region.format(&Format {
        keeper: 1,
        root: JobStat { ino: 100, mode: 0o040_755, mtime: 5, ..JobStat::default() },
        numbers: (1000, 1 << 40),
    });
    assert!(region.is_valid());
    Box::leak(Box::new(region))
}

fn new(mode: u32, now: i64) -> InodeParts<'static> {
    InodeParts { mode, uid: 0, gid: 0, now, target: b"", open: false }
}

#[test]
fn names_are_found_listed_and_removed() {
    let region = region(96 << 20);
    let session = Visit::claim(region, &Always, 1, 2).unwrap();
    let root = region.root();
    let dir = session.create(root, b"dir", &new(0o040_755, 7)).unwrap();
    for at in 0..steps(1000, 60) {
        session.create(dir, format!("name-{at}").as_bytes(), &new(0o100_644, 8)).unwrap();
    }
    let again = session.create(dir, b"name-7", &new(0o100_644, 9));
    assert_eq!(again.unwrap_err(), Denied::Errno(17));
    for at in (0..steps(1000, 60)).step_by(2) {
        session.unlink(dir, format!("name-{at}").as_bytes(), 9, |_| true).unwrap();
    }
    let mut listed = Vec::new();
    let mut from = 0;
    while let Some(entry) = region.list(dir, from) {
        listed.push(String::from_utf8(entry.name().to_vec()).unwrap());
        from = entry.next;
    }
    let left = steps(500, 30);
    assert_eq!(listed.len(), left as usize);
    assert_eq!(listed[0], "name-1");
    assert!(region.lookup(dir, b"name-2").is_none());
    assert_eq!(region.stat(dir).size, u64::from(left));
    assert_eq!(session.rmdir(root, b"dir", 9, |_| true), Err(Denied::Errno(39)));
}

#[test]
fn content_grows_shrinks_and_has_zeros_in_holes() {
    let region = region(96 << 20);
    let session = Visit::claim(region, &Always, 1, 2).unwrap();
    let file = session.create(region.root(), b"f", &new(0o104_755, 7)).unwrap();
    session.write(file, Some(3), b"abc", 8, true).unwrap();
    session.write(file, None, &[b'x'; 5000], 8, false).unwrap();
    assert_eq!(region.mode(file) & 0o7777, 0o755, "a write drops set-user-id");
    session.truncate(file, 5, 9, true).unwrap();
    session.truncate(file, 8, 9, true).unwrap();
    let mut buffer = [1; 20];
    assert_eq!(region.read(file, 0, &mut buffer), 8);
    assert_eq!(&buffer[..8], b"\0\0\0ab\0\0\0");
    assert_eq!(region.content(file), b"\0\0\0ab\0\0\0");
}

#[test]
fn paths_follow_links_and_leave_at_the_root() {
    let region = region(96 << 20);
    let session = Visit::claim(region, &Always, 1, 2).unwrap();
    let root = region.root();
    let dir = session.create(root, b"dir", &new(0o040_755, 7)).unwrap();
    let link = InodeParts { target: b"../dir/./f", ..new(0o120_777, 7) };
    session.create(dir, b"link", &link).unwrap();
    let out = InodeParts { target: b"/etc", ..new(0o120_777, 7) };
    session.create(dir, b"out", &out).unwrap();
    let around = InodeParts { target: b"around", ..new(0o120_777, 7) };
    session.create(dir, b"around", &around).unwrap();
    let file = session.create(dir, b"f", &new(0o100_644, 7)).unwrap();
    let mut buffer = PathBuffer::new();
    let mut walk = |path: &str, follow| -> String {
        let how = Walk { from: root, follow, cred: ROOT };
        buffer.fill(path.as_bytes()).unwrap();
        let walked = region.walk(&how, &mut buffer);
        let rest = String::from_utf8_lossy(buffer.rest());
        match walked {
            Ok(WalkEnd::Inside(place)) => {
                let name = String::from_utf8_lossy(buffer.name(&place));
                let what = place.inode.map_or(0, |it| region.ino(it));
                format!("{} {name} {what}", region.ino(place.dir))
            }
            Ok(WalkEnd::Above) => format!("above {rest}"),
            Ok(WalkEnd::Absolute) => format!("absolute {rest}"),
            Err(denied) => format!("{denied:?}"),
        }
    };
    let (d, f) = (region.ino(dir), region.ino(file));
    assert_eq!(walk("dir//link", true), format!("{d} f {f}"));
    assert_eq!(walk("dir/link/x", true), "Errno(20)");
    assert_eq!(walk("dir/../dir/new", true), format!("{d} new 0"));
    assert_eq!(walk("dir/../../a/b", true), "above a/b");
    assert_eq!(walk("dir/out/passwd", true), "absolute /etc/passwd");
    assert_eq!(walk("dir/around", true), "Errno(40)");
    assert!(walk("dir/around", false).starts_with(&d.to_string()));
    assert_eq!(walk("none/x", true), "Errno(2)");
    assert_eq!(region.path_of(dir, &mut PathBuffer::new()), Some(&b"dir"[..]));
}

#[test]
fn a_dead_thread_is_replaced_everywhere() {
    let region = region(96 << 20);
    let dead = Visit::claim(region, &OddIsDead, 1, 3).unwrap();
    // It dies inside, with the bucket of a name locked and a rename committed.
    std::mem::forget(dead.enter().unwrap());
    dead.create(region.root(), b"a", &new(0o100_644, 1)).unwrap();
    let bucket = region.word(dead.bucket_of(region.root(), b"b") + 8);
    std::mem::forget(dead.lock(bucket).unwrap());
    let session = Visit::claim(region, &OddIsDead, 1, 2).unwrap();
    {
        let _guard = session.enter().unwrap();
        session.create(region.root(), b"b", &new(0o100_644, 1)).unwrap();
    }
    session.rename((region.root(), b"a"), (region.root(), b"c"), false, 2, |_, _| true).unwrap();
    assert!(region.lookup(region.root(), b"c").is_some());
    let late = Visit::claim(region, &OddIsDead, 1, 5).unwrap();
    std::mem::forget(late.exclude().unwrap());
    let _guard = session.enter().unwrap();
    assert!(region.lookup(region.root(), b"a").is_none());
}

/// A small generator of numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// The paths of the model: `None` for a directory, content for a file.
type Model = BTreeMap<String, Option<Vec<u8>>>;

fn at<'a>(region: &JobRegion, path: &'a str) -> Option<(Inode, &'a [u8])> {
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut at = region.root();
    for part in dir.split('/').filter(|part| !part.is_empty()) {
        at = region.inode_of(region.lookup(at, part.as_bytes())?);
    }
    Some((at, name.as_bytes()))
}

fn parent_is_dir(model: &Model, path: &str) -> bool {
    path.rsplit_once('/').is_none_or(|(dir, _)| model.get(dir).is_some_and(Option::is_none))
}

fn has_children(model: &Model, path: &str) -> bool {
    model.keys().any(|other| other.starts_with(&format!("{path}/")))
}

#[test]
fn the_tree_agrees_with_a_model() {
    for seed in 1..u64::from(steps(40, 3)) {
        let region = region(96 << 20);
        let session = Visit::claim(region, &Always, 1, 2).unwrap();
        let mut dice = Dice(seed * 0x9e37_79b9);
        let mut model = Model::new();
        for now in 0..i64::from(steps(1500, 100)) {
            let path = |dice: &mut Dice| {
                let depth = 1 + dice.roll(3);
                let parts: Vec<_> = (0..depth).map(|_| format!("n{}", dice.roll(5))).collect();
                parts.join("/")
            };
            let (one, other) = (path(&mut dice), path(&mut dice));
            step(&session, &mut model, dice.roll(6), &one, &other, now);
        }
        let mut seen = Model::new();
        walk_all(region, region.root(), "", &mut seen);
        assert_eq!(seen, model, "seed {seed}");
    }
}

fn step(
    session: &Visit<'_, Always>,
    model: &mut Model,
    what: u64,
    one: &str,
    other: &str,
    now: i64,
) {
    let region = session.region();
    let Some((dir, name)) = at(region, one) else {
        assert!(!parent_is_dir(model, one));
        return;
    };
    let known = parent_is_dir(model, one);
    match what {
        0 | 1 => {
            let mode = if what == 0 { 0o100_644 } else { 0o040_755 };
            let made = session.create(dir, name, &new(mode, now));
            assert_eq!(made.is_ok(), known && !model.contains_key(one), "create {one}");
            if let Ok(inode) = made {
                let content = (what == 0).then(|| one.as_bytes().to_vec());
                if let Some(content) = &content {
                    session.write(inode, None, content, now, true).unwrap();
                }
                model.insert(one.to_owned(), content);
            }
        }
        2 => {
            let done = session.unlink(dir, name, now, |_| true);
            assert_eq!(done.is_ok(), matches!(model.get(one), Some(Some(_))), "unlink {one}");
            if done.is_ok() {
                model.remove(one);
            }
        }
        3 => {
            let done = session.rmdir(dir, name, now, |_| true);
            let may = matches!(model.get(one), Some(None)) && !has_children(model, one);
            assert_eq!(done.is_ok(), may, "rmdir {one}");
            if may {
                model.remove(one);
            }
        }
        _ => rename(session, model, (dir, name), one, other, now),
    }
}

fn rename(
    session: &Visit<'_, Always>,
    model: &mut Model,
    from: (Inode, &[u8]),
    one: &str,
    other: &str,
    now: i64,
) {
    let Some(to) = at(session.region(), other) else { return };
    let done = session.rename(from, to, false, now, |_, _| true).is_ok();
    let below = other.starts_with(&format!("{one}/"));
    let may = match (model.get(one), model.get(other)) {
        (None, _) => false,
        (Some(_), None) => !below && parent_is_dir(model, other),
        (Some(None), Some(None)) => !below && (one == other || !has_children(model, other)),
        (Some(Some(_)), Some(Some(_))) => true,
        (Some(_), Some(_)) => false,
    };
    assert_eq!(done, may, "rename {one} {other}");
    if !may || one == other {
        return;
    }
    let prefix = format!("{one}/");
    let moved: Vec<_> =
        model.keys().filter(|path| *path == one || path.starts_with(&prefix)).cloned().collect();
    for path in moved {
        if let Some(value) = model.remove(&path) {
            model.insert(format!("{other}{}", &path[one.len()..]), value);
        }
    }
}

fn walk_all(region: &JobRegion, dir: Inode, prefix: &str, seen: &mut Model) {
    let mut from = 0;
    let mut count = 0;
    while let Some(entry) = region.list(dir, from) {
        from = entry.next;
        count += 1;
        let path = format!("{prefix}{}", String::from_utf8_lossy(entry.name()));
        assert_eq!(region.lookup(dir, entry.name()), Some(entry.entry));
        if region.kind(entry.inode) == Kind::Directory {
            assert_eq!(region.parent(entry.inode), dir);
            seen.insert(path.clone(), None);
            walk_all(region, entry.inode, &format!("{path}/"), seen);
        } else {
            seen.insert(path, Some(region.content(entry.inode).to_vec()));
        }
    }
    assert_eq!(region.stat(dir).size, count);
}

#[test]
fn threads_share_a_directory() {
    let region = region(512 << 20);
    let made = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let made = &made;
            scope.spawn(move || {
                let session = Visit::claim(region, &Always, 1, 10 + thread).unwrap();
                let root = region.root();
                for at in 0..steps(20_000, 40) {
                    // Half of the names are wanted by all threads.
                    let name =
                        if at % 2 == 0 { format!("s{at}") } else { format!("{thread}-{at}") };
                    let guard = session.enter().unwrap();
                    let file = session.create(root, name.as_bytes(), &new(0o100_644, 1));
                    if let Ok(file) = file {
                        made.fetch_add(1, Ordering::Relaxed);
                        session.write(file, None, name.as_bytes(), 1, true).unwrap();
                    }
                    drop(guard);
                    if at % 3 == 0 {
                        let guard = session.enter().unwrap();
                        if session.unlink(root, name.as_bytes(), 2, |_| true).is_ok() {
                            made.fetch_sub(1, Ordering::Relaxed);
                        }
                        drop(guard);
                    }
                    if at % 20 == 17 && at % 3 != 0 {
                        let to = format!("moved-{thread}-{at}");
                        let moved = (root, name.as_bytes());
                        session
                            .rename(moved, (root, to.as_bytes()), false, 3, |_, _| true)
                            .unwrap();
                    }
                }
            });
        }
    });
    let mut from = 0;
    let mut count = 0;
    while let Some(entry) = region.list(region.root(), from) {
        assert_eq!(region.lookup(region.root(), entry.name()), Some(entry.entry));
        let content = region.content(entry.inode);
        assert!(content == entry.name() || entry.name().starts_with(b"moved-"));
        from = entry.next;
        count += 1;
    }
    assert_eq!(count, made.load(Ordering::Relaxed));
    assert_eq!(region.stat(region.root()).size, count);
}

#[test]
fn a_stand_in_is_found_by_its_former_name() {
    let prefix = crate::stand_in_prefix(Inode(0x1f40));
    let link = format!("/var/tmp/{prefix}aB3 (deleted)");
    assert_eq!(crate::inode_of_link(link.as_bytes()), Some(Inode(0x1f40)));
    for other in ["/tmp/file (deleted)", "socket:[7]", "/tmp/cudele-stand-in-", ""] {
        assert_eq!(crate::inode_of_link(other.as_bytes()), None, "{other}");
    }
}
