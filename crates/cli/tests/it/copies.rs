//! `cudele cp` in all directions.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use serde_json::json;

use crate::cluster::Cluster;

/// Bytes that no two stripes share.
fn content(length: u32) -> Vec<u8> {
    (0..length.div_ceil(4)).flat_map(u32::to_le_bytes).take(length as usize).collect()
}

#[test]
fn files_of_every_size_come_back_as_they_were() {
    let cluster = Cluster::up();
    let stripe = u32::try_from(cudele::STRIPE_BYTES).unwrap();
    for length in [0, 1, 4096, 4097, stripe, stripe + 1, 2 * stripe + 12_345] {
        let data = content(length);
        let file = cluster.home.join("file");
        fs::write(&file, &data).unwrap();
        cluster.run(&["cp", "local:file", "/file"]);
        assert_eq!(cluster.json(&["stat", "/file"])["size"], length);
        assert!(cluster.run(&["cp", "/file", "-"]) == data, "{length} bytes to standard output");
        cluster.run(&["cp", "/file", "/copy"]);
        cluster.run(&["cp", "/copy", "local:back"]);
        assert!(fs::read(cluster.home.join("back")).unwrap() == data, "{length} bytes and back");
        let done = cluster.run_with_input(&["cp", "--json", "-", "/copy"], &data);
        let done: serde_json::Value = serde_json::from_slice(&done).unwrap();
        assert_eq!((&done["files"], &done["bytes"]), (&json!(1), &json!(length)));
        assert!(cluster.run(&["cp", "/copy", "-"]) == data, "{length} bytes from standard input");
    }
    let names = cluster.names("/");
    assert_eq!(names, ["copy", "file"], "nothing temporary is left");

    cluster.kill("mds");
    cluster.start();
    assert!(cluster.run(&["cp", "/copy", "-"]) == content(2 * stripe + 12_345));
}

#[test]
fn trees_are_copied_with_what_was_asked_for() {
    let cluster = Cluster::up();
    let tree = cluster.home.join("tree");
    fs::create_dir_all(tree.join("sub/empty")).unwrap();
    fs::write(tree.join("f"), "file").unwrap();
    fs::write(tree.join("sub/big"), content(10_000)).unwrap();
    symlink("f", tree.join("link")).unwrap();
    fs::set_permissions(tree.join("f"), fs::Permissions::from_mode(0o4711)).unwrap();
    fs::set_permissions(tree.join("sub"), fs::Permissions::from_mode(0o555)).unwrap();
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(1_000_000_000_123_456_789);
    for name in ["sub/big", "f", "sub"] {
        fs::File::open(tree.join(name)).unwrap().set_modified(old).unwrap();
    }

    assert!(cluster.fails(1, &["cp", "local:tree", "/"]).contains("`cudele cp -r`"));
    let done = cluster.json(&["cp", "-rp", "local:tree", "/"]);
    assert_eq!(done, json!({ "files": 2, "directories": 3, "others": 1, "bytes": 10_004 }));
    cluster.run(&["cp", "-rp", "/tree", "/again"]);
    cluster.run(&["cp", "-rp", "/again", "local:back"]);
    cluster.run(&["cp", "-r", "/again", "/plain"]);

    for (path, mode) in [("f", "4711"), ("sub", "0555"), ("sub/big", "0644"), ("link", "0777")] {
        let facts = cluster.json(&["stat", &format!("/again/{path}")]);
        assert_eq!(facts["mode"], mode, "{path}");
        if path != "link" {
            assert_eq!(facts["mtime_ns"], 1_000_000_000_123_456_789_i64, "{path}");
        }
    }
    let plain = cluster.json(&["stat", "/plain/f"]);
    assert_eq!(plain["mode"], "0711", "set-id bits are for those who ask");
    assert_ne!(plain["mtime_ns"], 1_000_000_000_123_456_789_i64);
    assert_eq!(cluster.json(&["stat", "/again/link"])["target"], "f");

    let back = cluster.home.join("back");
    assert_eq!(fs::read(back.join("sub/big")).unwrap(), content(10_000));
    assert_eq!(fs::read_link(back.join("link")).unwrap().to_str(), Some("f"));
    let meta = fs::metadata(back.join("f")).unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.mtime()), (0o4711, 1_000_000_000));
    assert_eq!(fs::metadata(back.join("sub")).unwrap().mode() & 0o7777, 0o555);

    // A second copy over existing names: files are replaced, directories are kept.
    cluster.run(&["cp", "-rp", "/tree", "/again"]);
    assert_eq!(cluster.names("/again"), ["f", "link", "sub", "tree"]);
    assert!(cluster.fails(2, &["cp", "-r", "/again", "/again/sub"]).contains("into itself"));
    fs::set_permissions(tree.join("sub"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(back.join("sub"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn copies_refuse_what_makes_no_sense() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "/d"]);
    cluster.run_with_input(&["cp", "-", "/f"], b"old");
    let cases: [(i32, &[&str], &str); 10] = [
        (2, &["cp", "local:a", "local:b"], "neither is in the namespace"),
        (2, &["cp", "-", "local:b"], "neither is in the namespace"),
        (2, &["cp", "local:", "/a"], "no path follows"),
        (1, &["cp", "local:none", "/a"], "No such file"),
        (1, &["cp", "/none", "-"], "/none: no such file"),
        (1, &["cp", "/d", "-"], "`cudele cp -r`"),
        (1, &["cp", "-r", "/d", "-"], "standard output takes one file"),
        (1, &["cp", "-", "/d"], "name a file in it"),
        (1, &["cp", "-n", "/f", "/f"], "leave -n out"),
        (1, &["cp", "/f", "/d", "/none"], "several sources"),
    ];
    for (code, arguments, expected) in cases {
        let said = cluster.fails(code, arguments);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    assert_eq!(cluster.run(&["cp", "/f", "-"]), b"old");
    cluster.run(&["cp", "/f", "/f"]);
    assert_eq!(cluster.run(&["cp", "/f", "-"]), b"old", "a file copied to itself stays");
}
