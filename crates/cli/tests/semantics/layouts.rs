//! Where the content of files is kept, and that no reader has to know it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use cudele::{Attr, Errno, Fs, Ino, NewFile, Policy, Stripe};
use rustix::fs::XattrFlags;

use crate::fixture::World;
use crate::mounted::{ask_for, said};
use crate::mounts::{Mount, cluster};
use crate::tools::{decouple, eventually, mount, policy_file};

/// Lengths around every border that there is.
const LENGTHS: [usize; 12] =
    [0, 1, 100, 101, 4096, 4097, 65_535, 65_536, 65_537, 131_072, 131_073, 700_001];

/// Bytes that no two stripes share.
fn content(length: usize) -> Vec<u8> {
    (0..u32::MAX).flat_map(u32::to_le_bytes).take(length).collect()
}

/// The lengths of the objects that the store has of a file.
fn objects(world: &World, ino: Ino) -> Vec<u64> {
    let name = metastore::data_name(ino, types::Pool::USUAL, 0);
    let prefix = name.rsplit_once('.').unwrap().0;
    let store = world.store();
    let mut names = store.list(&format!("{prefix}.")).unwrap();
    names.retain(|name| !name.contains(".sums."));
    names.iter().map(|name| store.stat(name).unwrap().size).collect()
}

/// The objects of content that is striped like this.
fn striped(length: usize, stripe: u64) -> Vec<u64> {
    let length = length as u64;
    (0..length.div_ceil(stripe)).map(|number| stripe.min(length - number * stripe)).collect()
}

#[track_caller]
fn assert_content(fs: &Fs, attr: &Attr, expected: &[u8]) {
    let mut read = Vec::new();
    let mut take = |bytes: &[u8]| {
        read.extend_from_slice(bytes);
        Ok(())
    };
    fs.read_file(attr, &mut take).unwrap();
    assert!(
        read == expected,
        "{} bytes of {}, {} were expected",
        read.len(),
        attr.ino,
        expected.len()
    );
}

/// A directory with a policy that says this beside the defaults.
fn made(world: &World, path: &str, policy: &str) {
    world.run(&["mkdir", "-p", path]).done();
    world.run(&["policy", "set", path, &policy_file(world, policy)]).done();
}

/// Creates a file of every length in a directory.
fn filled(fs: &Arc<Fs>, path: &str) -> Vec<(usize, Attr)> {
    let dir = fs.open_dir(path).unwrap();
    let file = |length: &usize| {
        let (name, new) = (length.to_string(), NewFile::default());
        let made = fs.create_file(&dir, name, &new, &mut &*content(*length)).unwrap();
        (*length, made)
    };
    LENGTHS.iter().map(file).collect()
}

#[test]
fn the_policy_says_how_much_content_an_inode_keeps() {
    let world = World::new();
    made(&world, "/none", "inline_bytes: 0");
    made(&world, "/most", "inline_bytes: 65536\nstripe_bytes: 65536");
    made(&world, "/few", "inline_bytes: 100\nstripe_bytes: 131072");
    world.run(&["mkdir", "/few/below", "/usual"]).done();
    let fs = mount(&world);
    let cases = [
        ("/none", 0, Stripe::DEFAULT.bytes()),
        ("/most", 65_536, 65_536),
        ("/few/below", 100, 131_072),
        ("/usual", 4096, Stripe::DEFAULT.bytes()),
    ];
    let files = cases.map(|(path, ..)| filled(&fs, path));
    for time in ["at once", "after a crash"] {
        let fs = mount(&world);
        for ((path, inline, stripe), files) in cases.iter().zip(&files) {
            for (length, made) in files {
                let attr = fs.stat(format!("{path}/{length}")).unwrap();
                assert_eq!((attr.ino, attr.stripe.bytes()), (made.ino, *stripe), "{path} {time}");
                let expected = if length <= inline { vec![] } else { striped(*length, *stripe) };
                assert_eq!(objects(&world, attr.ino), expected, "{path}/{length} {time}");
                assert_content(&fs, &attr, &content(*length));
            }
        }
        world.crash();
    }
    // More than may be inline anywhere is refused, not cut off.
    let (dir, data) = (fs.open_dir("/most").unwrap(), content(65_537));
    let new = NewFile { size: 65_537, data: &data, ..NewFile::default() };
    assert_eq!(dir.create("more", &new).unwrap_err().errno, Errno::TooBig);
    let mut job = decouple(&fs, "/job", "consistency: append_client_journal");
    assert_eq!(job.create(job.root(), b"more", &new).unwrap_err().errno, Errno::TooBig);
    job.discard().unwrap();
}

#[test]
fn a_stripe_is_fixed_when_a_file_is_made() {
    let world = World::new();
    made(&world, "/small", "inline_bytes: 10\nstripe_bytes: 65536");
    made(&world, "/large", "inline_bytes: 65536\nstripe_bytes: 8388608");
    let fs = mount(&world);
    let files = filled(&fs, "/small");
    let (small, large) = (fs.open_dir("/small").unwrap(), fs.open_dir("/large").unwrap());
    for (length, attr) in &files {
        if length % 2 == 0 {
            let name = length.to_string();
            small.rename(&name, &large, &name, Default::default()).unwrap();
        } else {
            large.link(attr.ino, length.to_string()).unwrap();
        }
    }
    made(&world, "/small", "stripe_bytes: 1048576");
    for time in ["at once", "after a crash", "after a stop"] {
        let fs = mount(&world);
        for (length, made) in &files {
            let attr = fs.stat(format!("/large/{length}")).unwrap();
            assert_eq!((attr.ino, attr.stripe), (made.ino, Stripe::MIN), "{length} {time}");
            assert_content(&fs, &attr, &content(*length));
        }
        let new = fs.open_dir("/small").unwrap().create(time, &NewFile::default()).unwrap();
        assert_eq!(new.stripe.bytes(), 1 << 20);
        if time == "at once" {
            world.crash();
        } else {
            world.run(&["down"]).done();
            world.run(&["up"]).done();
        }
    }
    // A copy is a new file.
    world.run(&["cp", "/large/700001", "/small/copy"]).done();
    let copy = mount(&world).stat("/small/copy").unwrap();
    assert_eq!(copy.stripe.bytes(), 1 << 20);
    assert_eq!(objects(&world, copy.ino), striped(700_001, 1 << 20));
}

#[test]
fn a_decoupled_subtree_has_one_layout() {
    let world = World::new();
    let fs = mount(&world);
    let policy = "consistency: append_client_journal+volatile_apply\n\
                  inline_bytes: 100\nstripe_bytes: 65536";
    let mut job = decouple(&fs, "/job", policy);
    let (root, new) = (job.root(), NewFile::default());
    let below = job.create(root, b"below", &NewFile::directory()).unwrap();
    let mut made = Vec::new();
    for dir in [root, below] {
        for length in LENGTHS {
            let name = length.to_string();
            let source = content(length);
            let (ino, _) = job.create_file(dir, name.as_bytes(), &new, &mut &*source).unwrap();
            made.push((length, ino));
        }
    }
    let strict = |fs: &Fs| {
        for (place, (length, ino)) in made.iter().enumerate() {
            let path = if place < LENGTHS.len() { "/job" } else { "/job/below" };
            let attr = fs.stat(format!("{path}/{length}")).unwrap();
            assert_eq!((attr.ino, attr.stripe), (*ino, Stripe::MIN));
            let expected = if *length <= 100 { vec![] } else { striped(*length, 65_536) };
            assert_eq!(objects(&world, *ino), expected, "{path}/{length}");
            assert_content(fs, &attr, &content(*length));
        }
    };
    job.merge().unwrap();
    job.forget().unwrap();
    strict(&fs);
    fs.checkpoint().unwrap();
    world.crash();
    strict(&mount(&world));
}

#[test]
fn a_discarded_job_leaves_no_content() {
    let world = World::new();
    let fs = mount(&world);
    let policy = "consistency: append_client_journal+volatile_apply\n\
                  inline_bytes: 0\nstripe_bytes: 65536";
    let mut job = decouple(&fs, "/job", policy);
    let (root, new) = (job.root(), NewFile::default());
    for length in LENGTHS {
        let source = content(length);
        job.create_file(root, length.to_string().as_bytes(), &new, &mut &*source).unwrap();
    }
    assert!(!world.store().list("data/").unwrap().is_empty());
    job.discard().unwrap();
    assert_eq!(world.store().list("data/").unwrap(), Vec::<String>::new());
}

#[test]
fn a_discard_by_a_later_process_leaves_no_content() {
    let world = World::new();
    let tree = world.path("tree");
    fs::create_dir_all(&tree).unwrap();
    fs::write(tree.join("large"), content(100_000)).unwrap();
    // Its journal is on this machine's disk only, and the process that wrote it has ended.
    world.run(&["ingest", "--policy", "deltafs", tree.to_str().unwrap(), "/in"]).done();
    assert!(!world.store().list("data/").unwrap().is_empty());
    world.run(&["discard", "/in"]).done();
    assert_eq!(world.store().list("data/").unwrap(), Vec::<String>::new());
}

#[test]
fn a_file_that_goes_takes_all_of_its_objects_along() {
    let world = World::new();
    made(&world, "/small", "inline_bytes: 0\nstripe_bytes: 65536");
    let fs = mount(&world);
    let files = filled(&fs, "/small");
    let dir = fs.open_dir("/small").unwrap();
    let kept = files.last().unwrap().1;
    for (length, attr) in &files {
        if attr.ino != kept.ino {
            dir.unlink(length.to_string()).unwrap();
        }
    }
    fs.checkpoint().unwrap();
    // Eleven stripes, and one object of checksums.
    eventually("the content is gone", || world.store().list("data/").unwrap().len() == 12);
    assert_eq!(objects(&world, kept.ino), striped(700_001, 65_536));
    assert_content(&fs, &kept, &content(700_001));
    dir.unlink("700001").unwrap();
    fs.checkpoint().unwrap();
    eventually("the content is gone", || world.store().list("data/").unwrap().is_empty());
}

fn layout(dir: &Path) -> String {
    said(dir, "cudele.dir.layout")
}

#[test]
fn a_layout_is_shown_and_set_through_a_mount() {
    let Some(world) = cluster() else { return };
    made(&world, "/job", "consistency: rpcs\ndurability: none\nallocated_inodes: 7");
    let at = Mount::new(&world);
    let job = at.path("job");
    let below = job.join("below");
    fs::create_dir(&below).unwrap();
    assert_eq!(layout(&below), "inline_bytes=4096 stripe_bytes=4194304");
    ask_for(&job, "cudele.dir.layout", "stripe_bytes=65536");
    assert_eq!(layout(&below), "inline_bytes=4096 stripe_bytes=65536");
    ask_for(&below, "cudele.dir.layout", "inline_bytes=10");
    assert_eq!(layout(&below), "inline_bytes=10 stripe_bytes=65536");
    assert_eq!(layout(&job), "inline_bytes=4096 stripe_bytes=65536");
    // Nothing else of the policy has changed.
    for path in ["/job", "/job/below"] {
        let policy = world.json(&["policy", "get", path]);
        assert_eq!(policy["cell"], "strong-none", "{path}");
        let text = said(&at.path(&path[1..]), "cudele.dir.policy");
        let policy = Policy::parse(&text).unwrap().policy;
        assert_eq!((policy.allocated_inodes, policy.stripe), (7, Stripe::MIN));
    }
    for bad in ["", "inline_bytes=65537", "stripe_bytes=100000", "object_size=1"] {
        let set = |value: &str| {
            let name = "cudele.dir.layout";
            rustix::fs::setxattr(&below, name, value.as_bytes(), XattrFlags::empty())
        };
        assert_eq!(set(bad).unwrap_err(), rustix::io::Errno::INVAL, "{bad}");
    }
    // In a subtree that the mount has decoupled there is one layout: that of the root.
    ask_for(&job, "cudele.dir.state", "decouple batchfs");
    assert_eq!(layout(&below), "inline_bytes=4096 stripe_bytes=4194304");
    ask_for(&job, "cudele.dir.layout", "inline_bytes=20");
    assert_eq!(layout(&below), "inline_bytes=20 stripe_bytes=4194304");
    let refused =
        rustix::fs::setxattr(&below, "cudele.dir.layout", b"inline_bytes=1", XattrFlags::empty());
    assert_eq!(refused.unwrap_err(), rustix::io::Errno::OPNOTSUPP);
    fs::write(below.join("few"), content(20)).unwrap();
    fs::write(below.join("more"), content(21)).unwrap();
    assert_eq!(said(&below.join("few"), "cudele.file.layout"), "kept=inline stripe_bytes=4194304");
    assert_eq!(
        said(&below.join("more"), "cudele.file.layout"),
        "kept=striped stripe_bytes=4194304"
    );
    ask_for(&job, "cudele.dir.state", "merge");
    assert_eq!(fs::read(below.join("few")).unwrap(), content(20));
    assert_eq!(fs::read(below.join("more")).unwrap(), content(21));
    at.end();
}

/// Writes, grows, cuts and punches a file, and compares every byte.
fn worked_on(path: &Path) -> Vec<u8> {
    let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    let mut model: Vec<u8> = Vec::new();
    let write = |model: &mut Vec<u8>, at: usize, data: &[u8]| {
        file.write_all_at(data, at as u64).unwrap();
        model.resize(model.len().max(at + data.len()), 0);
        model[at..at + data.len()].copy_from_slice(data);
    };
    let check = |model: &[u8]| assert!(fs::read(path).unwrap() == model, "{} bytes", model.len());
    write(&mut model, 0, &content(50));
    check(&model);
    write(&mut model, 65_530, &content(12));
    check(&model);
    write(&mut model, 300_000, &content(200_000));
    check(&model);
    for length in [400_000_usize, 262_144, 262_143, 262_145, 65_536, 1_000_000, 70_000, 30, 5] {
        file.set_len(length as u64).unwrap();
        model.resize(length, 0);
        check(&model);
        write(&mut model, length / 2, b"in the middle, and perhaps longer");
        check(&model);
    }
    write(&mut model, 0, &content(400_000));
    let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 60_000, 150_000).unwrap();
    model[60_000..210_000].fill(0);
    check(&model);
    file.sync_all().unwrap();
    model
}

#[test]
fn programs_on_a_mount_notice_nothing_of_a_layout() {
    let Some(world) = cluster() else { return };
    made(&world, "/none", "inline_bytes: 0\nstripe_bytes: 65536");
    made(&world, "/most", "inline_bytes: 65536\nstripe_bytes: 131072");
    made(&world, "/usual", "");
    let at = Mount::new(&world);
    let mut files = Vec::new();
    for name in ["none", "most", "usual"] {
        let path = at.path(name).join("file");
        files.push((name, worked_on(&path), fs::metadata(&path).unwrap().len()));
        let stripe = layout(&at.path(name)).split_once("stripe_bytes=").unwrap().1.to_owned();
        let kept = said(&path, "cudele.file.layout");
        assert_eq!(kept, format!("kept=striped stripe_bytes={stripe}"));
    }
    // In another directory the file keeps its layout, and can be changed: even if content that was
    // inline there is not here.
    for (name, model, _) in &mut files {
        let (from, to) = (at.path(name).join("file"), at.path("usual").join(name));
        fs::rename(&from, &to).unwrap();
        let file = File::options().write(true).open(&to).unwrap();
        file.write_all_at(b"once more", 131_070).unwrap();
        model[131_070..131_079].copy_from_slice(b"once more");
    }
    let small = at.path("most").join("small");
    fs::write(&small, content(60_000)).unwrap();
    assert_eq!(said(&small, "cudele.file.layout"), "kept=inline stripe_bytes=131072");
    let moved = at.path("usual").join("small");
    fs::rename(&small, &moved).unwrap();
    let file = File::options().append(true).open(&moved).unwrap();
    std::io::Write::write_all(&mut &file, b"more").unwrap();
    drop(file);
    assert_eq!(said(&moved, "cudele.file.layout"), "kept=striped stripe_bytes=131072");
    files.push(("small", [content(60_000), b"more".to_vec()].concat(), 0));
    for time in ["at once", "elsewhere"] {
        for (name, model, _) in &files {
            let read = fs::read(at.path("usual").join(name)).unwrap();
            assert!(read == *model, "{name} {time}");
        }
        rustix::fs::syncfs(File::open(at.path("usual")).unwrap()).unwrap();
        world.crash();
    }
    let again = Mount::new(&world);
    for (name, model, _) in &files {
        assert!(fs::read(again.path("usual").join(name)).unwrap() == *model, "{name}");
        fs::remove_file(again.path("usual").join(name)).unwrap();
    }
    at.end();
    again.end();
    let fs = mount(&world);
    fs.checkpoint().unwrap();
    eventually("the content is gone", || world.store().list("data/").unwrap().is_empty());
}

#[test]
fn a_store_without_pools_refuses_a_policy_that_names_one() {
    let world = World::new();
    world.run(&["mkdir", "/a"]).done();
    let pinned = policy_file(&world, "data_pool: fast");
    let no_pools = ["the object store has no pools to choose from (EOPNOTSUPP)"];
    world.run(&["policy", "set", "/a", &pinned]).refused(&no_pools);
    let fs = mount(&world);
    assert_eq!(fs.policy("/a").unwrap().0, Policy::default());
    let job = Policy::from_name_or_text("consistency: append_client_journal\ndata_pool: fast");
    let refused = fs.decouple("/a", &job.unwrap().policy).unwrap_err();
    assert_eq!(refused.errno, Errno::NotSupported, "{refused}");
    // A pool with an invented number is refused, too.
    let made_up = policy_file(&world, "data_pool: fast#3");
    world.run(&["policy", "set", "/a", &made_up]).refused(&no_pools);
}
