//! Policies of directories, and of directories in directories.

use std::fs;

use cudele::{AttrChange, NewFile};
use serde_json::Value;

use crate::fixture::World;
use crate::tools::{cell, mount, seen};

#[test]
fn a_policy_moves_with_its_directory() {
    let world = World::new();
    world.run(&["mkdir", "-p", "/a/b/job/in", "/a/b/plain"]).done();
    world.run(&["policy", "set", "/a/b", "hdfs"]).done();
    world.run(&["policy", "set", "/a/b/job", "deltafs"]).done();
    assert_eq!(cell(&world, "/a/b/plain"), "weak-global");
    world.run(&["mv", "/a", "/z"]).done();
    assert_eq!(cell(&world, "/z/b/job/in"), "invisible-local");
    world.run(&["mv", "/z/b/job", "/job"]).done();
    world.run(&["mv", "/z/b/plain", "/plain"]).done();
    for _ in 0..2 {
        assert_eq!(cell(&world, "/job/in"), "invisible-local");
        assert_eq!(cell(&world, "/z/b"), "weak-global");
        assert_eq!(cell(&world, "/plain"), "strong-global", "it inherits where it is now");
        world.crash();
    }
}

#[test]
fn a_list_of_policies_has_the_paths_of_today() {
    let world = World::new();
    let listed = || -> Vec<(String, String)> {
        let rows = world.json(&["policy", "ls"]);
        let rows = rows.as_array().unwrap().iter();
        let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
        rows.map(|row| (text(row, "path"), text(row, "cell"))).collect()
    };
    let pair = |path: &str, cell: &str| (path.to_owned(), cell.to_owned());
    world.run(&["mkdir", "-p", "/a/b/job", "/gone"]).done();
    world.run(&["policy", "set", "/a/b", "weak-global"]).done();
    world.run(&["policy", "set", "/a/b/job", "invisible-local"]).done();
    world.run(&["policy", "set", "/gone", "weak-none"]).done();
    world.run(&["mv", "/a", "/z"]).done();
    world.run(&["mv", "/z/b/job", "/job"]).done();
    world.run(&["rm", "-r", "/gone"]).done();
    let moved = [pair("/job", "invisible-local"), pair("/z/b", "weak-global")];
    assert_eq!(listed(), moved);
    world.crash();
    assert_eq!(listed(), moved);
    // Also when the server has nothing of it in memory.
    world.run(&["down"]).done();
    world.run(&["up"]).done();
    assert_eq!(listed(), moved);
    // Another directory gets an old name.
    world.run(&["mkdir", "-p", "/a/b"]).done();
    world.run(&["policy", "set", "/a/b", "strong-none"]).done();
    assert_eq!(listed(), [&[pair("/a/b", "strong-none")][..], &moved].concat());
    world.run(&["policy", "rm", "/job"]).done();
    assert_eq!(listed(), [pair("/a/b", "strong-none"), pair("/z/b", "weak-global")]);
}

#[test]
fn a_child_never_weakens_its_parent() {
    let world = World::new();
    world.run(&["mkdir", "-p", "/firm/ram", "/firm/loose"]).done();
    world.run(&["policy", "set", "/firm", "posix"]).done();
    world.run(&["policy", "set", "/firm/ram", "ramdisk"]).done();
    world.run(&["policy", "set", "/firm/loose", "posix-volatile"]).done();
    world.run(&["decouple", "/firm/ram"]).done();
    let fs = mount(&world);
    let loose = fs.open_dir("/firm/loose").unwrap();
    loose.create("lost", &NewFile::default()).unwrap();
    let private = AttrChange { mode: Some(0o700), ..AttrChange::default() };
    fs.set_attr(loose.ino(), &private).unwrap();
    assert_eq!(world.json(&["stat", "/firm/loose"])["mode"], "0700");
    drop((loose, fs));
    fs::remove_dir_all(world.path("state")).unwrap();
    world.crash();
    // The client of the one and the server of the other are gone, and with them their memory.
    assert_eq!(seen(&world, "/firm"), ["loose", "ram"]);
    assert_eq!((seen(&world, "/firm/loose"), seen(&world, "/firm/ram")), (vec![], vec![]));
    assert_eq!(cell(&world, "/firm/ram"), "invisible-none");
    // A directory is governed by its own policy, its name by that of the directory that it is in.
    assert_eq!(world.json(&["stat", "/firm/loose"])["mode"], "0755");
}

#[test]
fn a_rename_keeps_the_stricter_promise_of_its_two_ends() {
    let world = World::new();
    world.run(&["mkdir", "-p", "/firm/from", "/loose"]).done();
    world.run(&["policy", "set", "/loose", "posix-volatile"]).done();
    world.run(&["mkdir", "/loose/from", "/loose/stays"]).done();
    world.run(&["mv", "/firm/from", "/loose/to"]).done();
    world.run(&["mv", "/loose/from", "/firm/to"]).done();
    world.crash();
    assert_eq!(seen(&world, "/firm"), ["to"]);
    assert_eq!(seen(&world, "/loose"), ["to"], "what nobody moved is as loose as before");
}

#[test]
fn a_policy_without_rpcs_says_nothing_about_requests() {
    let world = World::new();
    world.run(&["mkdir", "/job"]).done();
    world.run(&["policy", "set", "/job", "weak-none"]).done();
    world.run(&["mkdir", "/job/by-request"]).done();
    world.crash();
    assert_eq!(seen(&world, "/job"), ["by-request"]);
}
