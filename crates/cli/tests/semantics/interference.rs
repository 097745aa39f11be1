//! Other clients at work in a subtree that belongs to one client.

use cudele::{AttrChange, Errno, NewFile, RenameFlags, Result};

use crate::fixture::World;
use crate::tools::{append, decouple, mount, seen};

const BLOCK: &str = "consistency: append_client_journal\ninterfere_policy: block";
const ALLOW: &str = "consistency: append_client_journal\ninterfere_policy: allow";

#[track_caller]
fn busy<T>(result: Result<T>) {
    let errno = result.err().map(|error| error.errno);
    assert_eq!(errno, Some(Errno::Busy));
}

#[test]
fn a_blocked_client_gets_ebusy_at_any_depth() {
    let world = World::new();
    world.run(&["mkdir", "-p", "/job/deep/deeper"]).done();
    let (owner, other) = (mount(&world), mount(&world));
    let deep = other.open_dir("/job/deep").unwrap();
    let inside = deep.create("x", &NewFile::default()).unwrap().ino;
    let mut job = decouple(&owner, "/job", BLOCK);
    append(&mut job, &["made"]);
    // By path.
    for path in ["/job", "/job/deep/deeper", "/job/deep/x", "/job/none/at/all"] {
        busy(other.stat(path));
    }
    busy(other.make_dir("/job/deep/new", 0o755));
    busy(other.open_dir("/job/deep/deeper"));
    // By inode number, as a client that had it open before.
    busy(deep.list());
    busy(deep.lookup("x"));
    busy(deep.create("y", &NewFile::default()));
    busy(deep.unlink("x"));
    busy(other.list_xattr(inside));
    busy(other.set_attr(inside, &AttrChange::default()));
    // The policy does not concern the owner, nor directories beside the subtree.
    owner.stat("/job/deep/x").unwrap();
    assert_eq!(seen(&world, "/"), ["job"]);
}

#[test]
fn both_ends_of_a_rename_are_blocked() {
    let world = World::new();
    world.run(&["mkdir", "-p", "/job/in", "/out"]).done();
    let (owner, other) = (mount(&world), mount(&world));
    let out = other.open_dir("/").unwrap();
    let file = out.create("file", &NewFile::default()).unwrap().ino;
    let job_dir = other.open_dir("/job").unwrap();
    let job = decouple(&owner, "/job", BLOCK);
    let flags = RenameFlags::default();
    busy(job_dir.rename("in", &out, "taken", flags));
    busy(out.rename("out", &job_dir, "given", flags));
    busy(out.rename("job", &out, "moved", flags));
    busy(out.rename("out", &out, "job", flags));
    busy(out.rename("out", &out, "job", RenameFlags { exchange: true, ..flags }));
    busy(job_dir.link(file, "linked"));
    drop(job);
    assert_eq!(seen(&world, "/"), ["file", "job", "out"]);
}

#[test]
fn a_block_is_gone_with_the_subtrees_return() {
    let world = World::new();
    let (owner, other) = (mount(&world), mount(&world));
    let mut job = decouple(&owner, "/job", BLOCK);
    append(&mut job, &["a"]);
    busy(other.stat("/job/a"));
    job.merge().unwrap();
    other.stat("/job/a").unwrap();
    let job = decouple(&owner, "/job", BLOCK);
    busy(other.stat("/job/a"));
    job.discard().unwrap();
    other.stat("/job/a").unwrap();
}

#[test]
fn an_inode_with_a_name_outside_is_not_blocked_itself() {
    let world = World::new();
    let (owner, other) = (mount(&world), mount(&world));
    let root = other.open_dir("/").unwrap();
    let file = root.create("outside", &NewFile::default()).unwrap().ino;
    other.make_dir("/job", 0o755).unwrap();
    other.open_dir("/job").unwrap().link(file, "inside").unwrap();
    let _job = decouple(&owner, "/job", BLOCK);
    busy(other.stat("/job/inside"));
    let change = AttrChange { mode: Some(0o600), ..AttrChange::default() };
    root.set_attr("outside", &change).unwrap();
    assert_eq!(owner.stat("/job/inside").unwrap().mode & 0o7777, 0o600);
}

#[test]
fn a_file_with_several_names_belongs_to_no_subtree() {
    let world = World::new();
    let (owner, other) = (mount(&world), mount(&world));
    other.make_dir("/job", 0o755).unwrap();
    let dir = other.open_dir("/job").unwrap();
    let [one, two] = ["one", "two"].map(|name| dir.create(name, &NewFile::default()).unwrap().ino);
    dir.link(two, "three").unwrap();
    let mut job = decouple(&owner, "/job", BLOCK);
    // By name, and by the number of a file with one name.
    for name in ["one", "two", "three"] {
        busy(other.stat(format!("/job/{name}")));
        busy(dir.lookup(name));
        busy(dir.unlink(name));
    }
    busy(dir.link(two, "four"));
    busy(other.list_xattr(one));
    // By the number of one with several.
    let mode = |mode| AttrChange { mode: Some(mode), ..AttrChange::default() };
    other.list_xattr(two).unwrap();
    other.set_attr(two, &mode(0o600)).unwrap();
    // The owner has no more of it: but files that it makes itself may have several names.
    job.set_attr_blindly(job.root(), two, &mode(0o644));
    let own = append(&mut job, &["own"])[0];
    job.link(own, job.root(), b"again").unwrap();
    job.set_attr_blindly(job.root(), own, &mode(0o640));
    let report = job.merge().unwrap().merge.unwrap();
    assert_eq!((report.created, report.rejected), (1, 1));
    let modes = ["two", "own", "again"].map(|name| dir.lookup(name).unwrap().mode & 0o777);
    assert_eq!(modes, [0o600, 0o640, 0o640]);
}

#[test]
fn with_interfere_policy_allow_the_owner_wins_name_by_name() {
    let world = World::new();
    let (owner, other) = (mount(&world), mount(&world));
    let mut job = decouple(&owner, "/job", ALLOW);
    let own = append(&mut job, &["both", "own"]);
    // Later than the owner, and wins all the same until the merge.
    let dir = other.open_dir("/job").unwrap();
    let loser = dir.create("both", &NewFile::default()).unwrap().ino;
    dir.create("others", &NewFile::default()).unwrap();
    assert_eq!(other.stat("/job/both").unwrap().ino, loser);
    assert_eq!(seen(&world, "/job"), ["both", "others"]);
    let report = job.merge().unwrap().merge.unwrap();
    assert_eq!((report.created, report.replaced, report.rejected), (2, 1, 0));
    assert_eq!(other.stat("/job/both").unwrap().ino, own[0]);
    assert_eq!(seen(&world, "/job"), ["both", "others", "own"]);
    // The inode that lost its name is freed, and its number not given again.
    let gone = other.list_xattr(loser).unwrap_err();
    assert!(matches!(gone.errno, Errno::NotFound | Errno::Stale), "{gone}");
    let new = dir.create("new", &NewFile::default()).unwrap().ino;
    assert!(new != loser && !own.contains(&new));
}
