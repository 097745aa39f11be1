use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::fixture::{ENTRIES, World, make_tree};

/// Packs the fixture's tree with the system's tar.
fn packed(world: &World, options: &[&str], name: &str) -> PathBuf {
    let tree = world.path("tree");
    if !tree.exists() {
        make_tree(&tree);
    }
    let archive = world.path(name);
    let done = Command::new("tar")
        .args(options)
        .arg("-cf")
        .arg(&archive)
        .arg("-C")
        .arg(&tree)
        .arg(".")
        .status()
        .expect("tar");
    assert!(done.success());
    archive
}

/// An archive with these entries: path, and the target of a link.
fn crafted(path: &Path, entries: &[(&str, tar::EntryType, &str)]) {
    let mut builder = tar::Builder::new(File::create(path).unwrap());
    for (name, kind, target) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1);
        header.set_size(if kind.is_file() { 4 } else { 0 });
        // The builder would reject this name.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_cksum();
        let data: &[u8] = if kind.is_file() { b"evil" } else { b"" };
        builder.append(&header, data).unwrap();
    }
    builder.finish().unwrap();
}

#[test]
fn archives_of_every_compression_come_in_whole() {
    let world = World::new();
    for (options, name) in [
        (&["--format=pax"][..], "t.tar"),
        (&["--format=gnu", "-z"], "t.tar.gz"),
        (&["--format=pax", "-J"], "t.tar.xz"),
    ] {
        let archive = packed(&world, options, name);
        let dir = world.path("demo");
        let value =
            world.json(&["demo", archive.to_str().unwrap(), "--dir", dir.to_str().unwrap()]);
        assert_eq!(value["equal"], json!(true), "{name}: {value:#}");
        assert_eq!(value["trees"][1]["ingest"]["entries"], json!(ENTRIES), "{name}");
    }
    let plain = fs::read(world.path("t.tar")).unwrap();
    fs::write(world.path("t.tar.zst"), zstd::encode_all(&plain[..], 1).unwrap()).unwrap();
    let said = world.run_with_input(&["ingest", "-", "/z"], &world.path("t.tar.zst")).done();
    assert!(said.out.contains("standard input"));
    world.run(&["stat", "/z/a/file.299"]).done();
}

#[test]
fn an_archive_cannot_leave_the_destination() {
    use tar::EntryType::{Directory, Link, Regular, Symlink};
    let world = World::new();
    let file = world.path("bad.tar");
    type Entries<'a> = &'a [(&'a str, tar::EntryType, &'a str)];
    let cases: [(Entries<'_>, &[&str]); 7] = [
        (&[("good", Regular, ""), ("/etc/passwd", Regular, "")], &["/etc/passwd", "absolute"]),
        (&[("good", Regular, ""), ("a/../../x", Regular, "")], &["a/../../x", ".."]),
        (&[("good", Regular, ""), ("l", Link, "/etc/passwd")], &["entry l", "absolute"]),
        (&[("good", Regular, ""), ("l", Link, "../x")], &["entry l", ".."]),
        (&[("good", Regular, ""), ("l", Link, "elsewhere")], &["hard link to elsewhere"]),
        (&[("s", Symlink, "/etc"), ("s/passwd", Regular, "")], &["s: ", "no directory"]),
        (&[("d", Directory, ""), ("d", Regular, "")], &["d: ", "twice"]),
    ];
    for (entries, words) in cases {
        crafted(&file, entries);
        let archive = file.to_str().unwrap();
        let words = &[words, &["nothing was brought in"]].concat();
        let said = world.run(&["ingest", "--policy", "batchfs", archive, "/bad"]).refused(words);
        assert_eq!(said.code, 1);
        world.run(&["stat", "/bad"]).refused(&["ENOENT"]);
        world.run(&["ingest", archive, "/strong"]).refused(&["brought in before"]);
        world.run(&["ingest", "--dry-run", archive, "/bad"]).refused(&[]);
        world.await_released();
    }
}

#[test]
fn a_truncated_archive_is_refused_before_anything_is_merged() {
    let world = World::new();
    for name in ["t.tar", "t.tar.gz", "t.tar.xz"] {
        let compression = match name {
            "t.tar.gz" => &["-z"][..],
            "t.tar.xz" => &["-J"],
            _ => &[],
        };
        let whole = fs::read(packed(&world, compression, name)).unwrap();
        let cut = world.path("cut");
        for keep in [0, 300, 512, 1024, whole.len() / 3, whole.len() * 2 / 3] {
            fs::write(&cut, &whole[..keep]).unwrap();
            let arguments = ["ingest", "--policy", "batchfs", cut.to_str().unwrap(), "/cut"];
            let said = world.run(&arguments).refused(&["nothing was brought in"]);
            assert!(said.err.contains("EBADMSG"), "{name} {keep}: {}", said.err);
            world.run(&["stat", "/cut"]).refused(&["ENOENT"]);
        }
    }
}

#[test]
fn the_later_of_two_equal_names_counts_and_unknown_types_are_skipped() {
    use tar::EntryType::{Link, Regular, Symlink};
    let world = World::new();
    let file = world.path("odd.tar");
    crafted(
        &file,
        &[
            ("x", Regular, ""),
            ("y", Link, "x"),
            ("x", Symlink, "y"),
            ("deep/er/file", Regular, ""),
            ("strange", tar::EntryType::new(b'V'), ""),
        ],
    );
    for arguments in [&["ingest"][..], &["ingest", "--policy", "batchfs"]] {
        let name = format!("/odd{}", arguments.len());
        let report = world.json(&[arguments, &[file.to_str().unwrap(), name.as_str()]].concat());
        assert_eq!(report["skipped"], json!(1), "{report:#}");
        assert_eq!(report["replaced"], json!(1));
        let link = world.json(&["stat", &format!("{name}/x")]);
        assert_eq!(link["type"], json!("symlink"), "{link:#}");
        let kept = world.json(&["stat", &format!("{name}/y")]);
        assert_eq!((kept["type"].clone(), kept["size"].clone()), (json!("file"), json!(4)));
        world.run(&["stat", &format!("{name}/deep/er/file")]).done();
    }
}
