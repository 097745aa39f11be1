//! Names that are no text, names of extreme length, deep trees, large directories.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use cudele::{Errno, NewFile, RenameFlags};
use serde_json::json;

use crate::cluster::Cluster;

#[test]
fn names_are_bytes() {
    let cluster = Cluster::up();
    let os = OsStr::from_bytes;
    let strange: &[u8] = b"/\xff\xfe d\n\x01";
    cluster.run(&[os(b"mkdir"), os(strange)]);
    let file = [strange, b"/\x80"].concat();
    cluster.run_with_input(&[os(b"cp"), os(b"-"), os(&file)], b"content");
    assert_eq!(cluster.run(&[os(b"cp"), os(&file), os(b"-")]), b"content");
    // Into a pipe names go as they are.
    assert_eq!(cluster.run(&["ls"]), b"\xff\xfe d\n\x01\n");
    assert_eq!(cluster.run(&[os(b"find"), os(strange), os(b"-0")]), {
        [strange, b"\0", &file, b"\0"].concat()
    });
    let rows = cluster.json(&["ls"]);
    assert_eq!(rows[0]["name"], "\u{fffd}\u{fffd} d\n\u{1}");
    assert_eq!(rows[0]["name_hex"], "fffe20640a01");

    let stat = cluster.run(&[os(b"stat"), os(strange)]);
    assert!(
        String::from_utf8(stat).unwrap().starts_with("path     '/'$'\\377\\376'' d'$'\\n\\001'\n")
    );
    cluster.run(&[os(b"policy"), os(b"set"), os(strange), os(b"hdfs")]);
    assert_eq!(cluster.json(&["policy", "ls"])[0]["path_hex"], "2ffffe20640a01");
    let found = cluster.run(&[os(b"find"), os(b"/"), os(b"--name"), os(b"\xff*")]);
    assert_eq!(found, [strange, b"\n"].concat());
    cluster.run(&[os(b"mv"), os(&file), os(b"/plain\xc0")]);
    let missing = cluster.fails(1, &[os(b"stat"), os(b"/\xaa")]);
    assert!(missing.contains("(ENOENT)"), "{missing}");

    cluster.kill("mds");
    cluster.start();
    assert_eq!(cluster.run(&[os(b"cp"), os(b"/plain\xc0"), os(b"-")]), b"content");
    cluster.run(&["down"]);
    cluster.start();
    assert_eq!(cluster.run(&[os(b"cp"), os(b"/plain\xc0"), os(b"-")]), b"content");
    cluster.run(&[os(b"rm"), os(b"-r"), os(strange), os(b"/plain\xc0")]);
    assert_eq!(cluster.run(&["ls"]), b"");
}

#[test]
fn names_have_at_most_255_bytes() {
    let cluster = Cluster::up();
    let longest = format!("/{}", "n".repeat(255));
    let longer = format!("/{}", "n".repeat(256));
    cluster.run(&["mkdir", &longest]);
    cluster.run_with_input(&["cp", "-", &format!("{longest}{longest}")], b"x");
    assert_eq!(cluster.names("/"), [&longest[1..]]);
    for arguments in [
        &["mkdir", &longer][..],
        &["ls", &longer],
        &["stat", &longer],
        &["rm", &longer],
        &["mv", &longest, &longer],
        &["policy", "get", &longer],
    ] {
        let said = cluster.fails(1, arguments);
        assert!(said.contains("(ENAMETOOLONG)"), "{arguments:?}: {said}");
    }
    let fs = cluster.mount();
    let dir = fs.open_dir("/").unwrap();
    let too_long = vec![b'n'; 256];
    let errno = |result: cudele::Result<()>| result.unwrap_err().errno;
    assert_eq!(errno(dir.create(&too_long, &NewFile::default()).map(|_| ())), Errno::NameTooLong);
    assert_eq!(
        errno(dir.rename(&longest[1..], &dir, &too_long, RenameFlags::default())),
        Errno::NameTooLong
    );
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
        let created = dir.create(name, &NewFile::default()).map(|_| ());
        assert_eq!(errno(created), Errno::Invalid, "{name:?}");
    }
}

#[test]
fn dots_and_doubled_slashes_mean_what_they_do_elsewhere() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "-p", "//a/./b//"]);
    assert_eq!(cluster.json(&["stat", "a/b/."])["path"], "/a/b");
    assert_eq!(cluster.json(&["stat", "/"])["name"], "/");
    assert_eq!(cluster.json(&["stat", "."])["path"], "/");
    assert!(cluster.fails(2, &["stat", "/a/b/.."]).contains("(EINVAL)"));
    cluster.run(&["mkdir", "/..."]);
    assert_eq!(cluster.names("/"), ["...", "a"]);
}

#[test]
fn symbolic_links_are_not_followed_on_the_way() {
    let cluster = Cluster::up();
    let fs = cluster.mount();
    cluster.run(&["mkdir", "/d"]);
    let dir = fs.open_dir("/").unwrap();
    dir.create("link", &NewFile::symlink(b"/d")).unwrap();
    assert_eq!(cluster.json(&["stat", "/link"])["target"], "/d");
    let said = cluster.fails(1, &["stat", "/link/x"]);
    assert!(said.contains("(ELOOP)") && said.contains("path of their target"), "{said}");
    assert!(cluster.say(&["ls", "-l", "/link"]).ends_with(" /link -> /d\n"));
}

#[test]
fn trees_may_be_as_deep_as_paths_are_long() {
    let cluster = Cluster::up();
    // 2,047 levels of two bytes each: 4,094 bytes.
    let deepest = "/d".repeat(2047);
    cluster.run(&["mkdir", "-p", &deepest]);
    assert_eq!(cluster.json(&["stat", &deepest])["type"], "directory");
    assert_eq!(cluster.json(&["du", "/"])["directories"], 2048);
    let too_long = cluster.fails(1, &["mkdir", &format!("{deepest}/d")]);
    assert!(too_long.contains("(ENAMETOOLONG)"), "{too_long}");
    cluster.kill("mds");
    cluster.start();
    assert_eq!(cluster.json(&["stat", &deepest])["size"], 0);
    assert_eq!(cluster.json(&["rm", "-r", "/d"])["trees"], 1);
    assert_eq!(cluster.say(&["ls"]), "");
}

#[test]
fn deep_trees_are_found_again_directory_by_directory() {
    let cluster = Cluster::up();
    let deep = "/d".repeat(200);
    cluster.run(&["mkdir", "-p", &deep]);
    cluster.run_with_input(&["cp", "-", &format!("{deep}/file")], b"content");
    cluster.run(&["down"]);
    cluster.start();
    assert_eq!(cluster.run(&["cp", &format!("{deep}/file"), "-"]), b"content");
    cluster.run(&["cp", "-r", "/d/d", "/copy"]);
    assert_eq!(cluster.say(&["find", "/copy"]).lines().count(), 200);
    let count = cluster.json(&["du", "/"]);
    assert_eq!((&count["directories"], &count["files"]), (&json!(400), &json!(2)));
}

#[test]
fn twenty_thousand_names_are_listed_exactly_once() {
    const COUNT: usize = 20_000;
    let cluster = Cluster::up();
    let fs = cluster.mount();
    let dir = fs.open_dir("/").unwrap();
    let big = dir.create("big", &NewFile::directory()).unwrap();
    let big = dir.enter(b"big", big.ino).unwrap();
    for number in 0..COUNT {
        big.create(format!("file.{number:05}"), &NewFile::default()).unwrap();
    }
    let check = || {
        let names = cluster.names("/big");
        assert_eq!(names.len(), COUNT);
        assert!(names.iter().enumerate().all(|(at, name)| *name == format!("file.{at:05}")));
    };
    check();
    assert_eq!(cluster.json(&["stat", "/big"])["size"], json!(COUNT));
    // Half of the names are removed during a listing: it has no name twice, and every name that
    // stays.
    let listing = std::thread::spawn({
        let fs = cluster.mount();
        move || fs.open_dir("/big").unwrap().list().unwrap()
    });
    for number in (0..COUNT).step_by(2) {
        big.unlink(format!("file.{number:05}")).unwrap();
    }
    let seen: Vec<Vec<u8>> = listing.join().unwrap().into_iter().map(|e| e.name).collect();
    let distinct: BTreeSet<&Vec<u8>> = seen.iter().collect();
    assert_eq!(distinct.len(), seen.len());
    for number in (1..COUNT).step_by(2) {
        assert!(distinct.contains(&format!("file.{number:05}").into_bytes()));
    }
    fs.sync().unwrap();
    cluster.kill("mds");
    cluster.start();
    assert_eq!(cluster.names("/big").len(), COUNT / 2);
    let gone = OsString::from_vec(b"/big/file.00000".to_vec());
    assert!(cluster.fails(1, &[OsStr::new("stat"), &gone]).contains("(ENOENT)"));
}
