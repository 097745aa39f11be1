use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::fixture::{ENTRIES, World, make_tree};

/// The lines of a dump, as `zstdcat` prints them.
fn lines(file: &Path) -> Vec<String> {
    let text = zstd::decode_all(fs::File::open(file).unwrap()).expect("frames of zstd");
    String::from_utf8(text).expect("UTF-8").lines().map(str::to_owned).collect()
}

/// The names of a directory and what `load` must bring back of them.
fn facts(world: &World, root: &str) -> Vec<Value> {
    let said = world.run(&["find", "--json", root]).done();
    let mut facts: Vec<Value> = Vec::new();
    for line in said.out.lines() {
        let mut fact: Value = serde_json::from_str(line).unwrap();
        let path = fact["path"].as_str().unwrap().replacen(root, "", 1);
        let object = fact.as_object_mut().unwrap();
        for key in ["ino", "ctime", "ctime_ns", "btime", "btime_ns", "name", "path_hex"] {
            object.remove(key);
        }
        if path.is_empty() {
            // The number of directories and the times of the root are the destination's.
            continue;
        }
        if object["type"] == "directory" {
            // The number of its directories is not always known.
            object.remove("nlink");
        }
        object.insert("path".to_owned(), path.into());
        facts.push(fact);
    }
    facts
}

fn tree_of(world: &World) -> String {
    make_tree(&world.path("tree"));
    let tree = world.path("tree").to_str().unwrap().to_owned();
    world.run(&["ingest", &tree, "/in"]).done();
    tree
}

#[test]
fn a_dump_is_loaded_as_the_directory_was() {
    let world = World::new();
    tree_of(&world);
    world.run(&["policy", "set", "/in/empty", "indexfs"]).done();
    let file = world.path("in.dump");
    let file = file.to_str().unwrap();
    let report = world.json(&["dump", "/in", file]);
    assert_eq!((&report["entries"], &report["skipped"]), (&json!(ENTRIES + 1), &json!(0)));
    assert_eq!(world.run(&["branch", "ls"]).done().out, "", "the snapshot is removed");
    let mode = fs::metadata(file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "other users do not read the dump");
    // The content of two files is in the object store only.
    world.run(&["load", file, "/copy"]).refused(&["ENODATA", "--hollow", "nothing was brought in"]);
    world.run(&["stat", "/copy"]).refused(&["ENOENT"]);
    let dry = world.json(&["load", "--hollow", "--dry-run", file, "/copy"]);
    assert_eq!(dry["entries"], json!(ENTRIES), "{dry:#}");
    world.run(&["stat", "/copy"]).refused(&["ENOENT"]);
    let loaded = world.json(&["load", "--hollow", file, "/copy"]);
    assert_eq!((&loaded["entries"], &loaded["hollow"]), (&json!(ENTRIES), &json!(2)));
    world.await_released();
    let (copy, source) = (facts(&world, "/copy"), facts(&world, "/in"));
    assert_eq!(copy.len(), source.len());
    copy.iter().zip(&source).for_each(|(copy, source)| assert_eq!(copy, source));
    let ino = |path: &str| world.json(&["stat", path])["ino"].clone();
    assert_eq!(ino("/copy/a/b/hard"), ino("/copy/a/file.000"), "hard links name one inode");
    assert_eq!(world.run(&["cp", "/copy/a/file.007", "-"]).done().out, "content 7");
    let policy = world.json(&["policy", "get", "/copy/empty"]);
    assert_eq!(policy["source"], json!("/copy/empty"), "{policy:#}");
    // A second load of the same brings nothing.
    let again = world.json(&["load", "--resume", "--hollow", file, "/copy"]);
    assert_eq!((&again["files"], &again["updated"]), (&json!(0), &json!(0)), "{again:#}");
    world.run(&["dump", "/in", file]).refused(&["EEXIST", "--resume"]);
    let other = world.path("other.dump");
    world.run(&["dump", "/in/a/file.001", other.to_str().unwrap()]).refused(&["ENOTDIR"]);
    assert!(!other.exists(), "a dump that does not begin leaves no file");
    assert_eq!(world.run(&["branch", "ls"]).done().out, "", "nor a branch");
    world.run(&["dump", "--resume", "/in", file]).refused(&["the dump is complete"]);
}

#[test]
fn a_dump_goes_through_a_pipe_and_a_branch_has_one_too() {
    let world = World::new();
    tree_of(&world);
    world.run(&["branch", "create", "then", "/in"]).done();
    world.run(&["rm", "-r", "/in/a"]).done();
    let mut dump = world.command(&["dump", "--branch", "then", "-"]);
    let mut dump = dump.stdout(Stdio::piped()).spawn().unwrap();
    let mut load = world.command(&["load", "--hollow", "-", "/then"]);
    let status = load.stdin(dump.stdout.take().unwrap()).status().unwrap();
    assert!(status.success() && dump.wait().unwrap().success());
    world.await_released();
    world.run(&["stat", "/then/a/b/c/link"]).done();
    assert_eq!(world.run(&["branch", "ls"]).done().out.lines().count(), 1, "the branch stays");
}

/// An archive of many files of no content.
fn archive(path: &Path, files: u32) {
    let mut builder = tar::Builder::new(fs::File::create(path).unwrap());
    for number in 0..files {
        let mut header = tar::Header::new_ustar();
        header.set_path(format!("d{:03}/file.{number:06}", number / 1000)).unwrap();
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(u64::from(number));
        header.set_size(0);
        header.set_entry_type(tar::EntryType::Regular);
        header.set_cksum();
        builder.append(&header, &b""[..]).unwrap();
    }
    builder.finish().unwrap();
}

#[test]
fn a_killed_dump_continues_with_the_same_moment() {
    const FILES: u32 = 70_000;
    let world = World::new();
    archive(&world.path("many.tar"), FILES);
    world.run(&["ingest", "--policy", "batchfs", world.path("many.tar").to_str().unwrap(), "/in"]);
    world.await_released();
    let (whole, part) = (world.path("whole.dump"), world.path("part.dump"));
    world.run(&["dump", "/in", whole.to_str().unwrap()]).done();
    let length = fs::metadata(&whole).unwrap().len();
    // The system kills the dump where its file would grow beyond the limit.
    let dump = world.command(&["dump", "/in", part.to_str().unwrap()]);
    let mut limited = Command::new("prlimit");
    limited.arg(format!("--fsize={}", length / 2)).arg(dump.get_program()).args(dump.get_args());
    for (name, value) in dump.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let output = limited.stdin(Stdio::null()).output().expect("util-linux is there");
    assert!(!output.status.success(), "it was not killed");
    let has = fs::metadata(&part).unwrap().len();
    assert!(has > 0 && has < length, "{has} of {length}");
    world.run(&["load", part.to_str().unwrap(), "/copy"]).refused(&["EBADMSG", "truncated"]);
    world.run(&["stat", "/copy"]).refused(&["ENOENT"]);
    world.run(&["rm", "-r", "/in/d000", "/in/d069"]).done();
    world.run(&["dump", "--resume", "/", part.to_str().unwrap()]).refused(&["a dump of /in"]);
    let report = world.json(&["dump", "--resume", "/in", part.to_str().unwrap()]);
    assert_eq!(report["entries"], json!(FILES + 71), "{report:#}");
    let (whole, part) = (lines(&whole), lines(&part));
    assert_eq!(part.len(), whole.len());
    let names = |lines: &[String]| -> BTreeSet<String> { lines[1..].iter().cloned().collect() };
    assert!(names(&part) == names(&whole), "the lines are those of the moment");
    assert_eq!(world.run(&["branch", "ls"]).done().out, "", "the snapshot is removed");
}

#[test]
fn a_forged_dump_leaves_its_destination_nowhere() {
    let world = World::new();
    tree_of(&world);
    let header =
        r#"{"cudele_dump":1,"path":"/in","branch":"b","branch_is_temporary":true,"time_ns":0}"#;
    let line = |path: &str, more: &str| {
        format!(
            r#"{{"path":"{path}","type":"file","mode":"0644","uid":0,"gid":0,"size":0,"ino":1,"nlink":1,"mtime_ns":0,"atime_ns":0,"ctime_ns":0,"btime_ns":0{more}}}"#
        )
    };
    let end = |entries: u32| format!(r#"{{"entries":{entries},"skipped":0,"end":true}}"#);
    let digits = types::hex::encode(b"../in/x");
    let cases = [
        ("absolute", line("/etc/x", ""), "absolute path"),
        ("above", line("a/../../x", ""), "leaves the destination"),
        ("digits", line("x", &format!(r#","path_hex":"{digits}""#)), "leaves the destination"),
        ("link", line("x", r#","same_as":"../in/a/file.001""#), "leaves the destination"),
        ("unknown", line("x", r#","same_as":"y""#), "does not contain before it"),
        ("content", line("x", r#","data_hex":"00""#), "another length"),
        ("mode", line("x", "").replace("0644", "100644"), "no mode"),
        ("type", line("x", "").replace("file", "door"), "no type"),
        ("text", "{}".to_owned(), "line 2"),
    ];
    for (name, line, words) in cases {
        let path = world.path(name);
        let text = format!("{header}\n{line}\n{}\n", end(1));
        fs::write(&path, zstd::encode_all(text.as_bytes(), 1).unwrap()).unwrap();
        let said = world.run(&["load", path.to_str().unwrap(), "/copy"]);
        said.refused(&["EBADMSG", words, "nothing was brought in"]);
        world.run(&["stat", "/copy"]).refused(&["ENOENT"]);
    }
    // A dump removes its branch at the end, but no other one.
    world.run(&["branch", "create", "kept", "/in"]).done();
    let (path, header) = (world.path("begun"), header.replace(r#""b""#, r#""kept""#));
    fs::write(&path, zstd::encode_all(format!("{header}\n").as_bytes(), 1).unwrap()).unwrap();
    let said = world.run(&["dump", "--resume", "/in", path.to_str().unwrap()]);
    said.refused(&["a part of a dump"]);
    assert_eq!(world.run(&["branch", "ls"]).done().out.lines().count(), 1, "the branch is there");
}
