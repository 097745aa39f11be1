//! Every command of the namespace, as text and as JSON, with its exit codes.

use std::os::unix::ffi::OsStrExt;

use serde_json::{Value, json};

use crate::cluster::{Cluster, text};

#[test]
fn directories_are_made_listed_and_removed() {
    let cluster = Cluster::up();
    assert_eq!(cluster.say(&["ls"]), "");
    cluster.run(&["mkdir", "/a", "/b"]);
    let made = cluster.json(&["mkdir", "-p", "-m", "700", "/a/x/y"]);
    assert_eq!(made[0]["path"], "/a/x/y");
    assert_eq!(made[0]["mode"], "0700");
    assert_eq!(cluster.json(&["stat", "/a/x"])["mode"], "0755");
    cluster.run(&["mkdir", "-p", "/a/x/y"]);
    assert_eq!(cluster.names("/"), ["a", "b"]);

    let said = cluster.fails(1, &["mkdir", "/a"]);
    assert_eq!(
        said,
        "/a: file exists (EEXIST); choose another name, or remove what is there first"
    );
    assert!(cluster.fails(1, &["mkdir", "/none/c"]).contains("(ENOENT)"));
    assert!(cluster.fails(2, &["mkdir", "-m", "9", "/c"]).contains("octal"));

    assert!(cluster.fails(1, &["rm", "/a"]).contains("`cudele rm -r`"));
    let removed = cluster.json(&["rm", "-r", "/a", "/b"]);
    assert_eq!(removed, json!({ "dry_run": false, "files": 0, "directories": 0, "trees": 2 }));
    assert_eq!(cluster.say(&["ls"]), "");
    assert!(cluster.fails(1, &["rm", "/a"]).contains("(ENOENT)"));
    cluster.run(&["rm", "-f", "/a"]);
    assert!(cluster.fails(2, &["rm", "-rf", "/"]).contains("the root cannot be removed"));
}

#[test]
fn ls_shows_rows_sorted_by_name() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "-p", "/d/sub/deep"]);
    for name in ["/d/b", "/d/.hidden", "/d/a b"] {
        cluster.run_with_input(&["cp", "-", name], b"12345");
    }
    assert_eq!(cluster.names("/d"), [".hidden", "a b", "b", "sub"]);
    assert_eq!(cluster.names("/d/b"), ["/d/b"]);
    assert_eq!(cluster.say(&["ls", "-R", "/d/sub"]), "/d/sub:\ndeep\n\n/d/sub/deep:\n");
    assert_eq!(cluster.say(&["ls", "/d/b", "/d/sub"]), "/d/b\n\n/d/sub:\ndeep\n");

    let long = cluster.say(&["ls", "-la", "/d"]);
    let lines: Vec<&str> = long.lines().collect();
    assert!(lines[0].starts_with("-rw-r--r-- 1 ") && lines[0].ends_with(" .hidden"), "{long}");
    assert!(lines[3].starts_with("drwxr-xr-x 3 "), "{long}");

    let rows = cluster.json(&["ls", "/d"]);
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 4);
    let row = &rows[1];
    assert_eq!(
        (&row["name"], &row["path"], &row["type"]),
        (&json!("a b"), &json!("/d/a b"), &json!("file"))
    );
    assert_eq!((&row["size"], &row["mode"], &row["nlink"]), (&json!(5), &json!("0644"), &json!(1)));
    assert!(row["ino"].as_u64().unwrap() > 0);
    assert!(row["mtime"].as_str().unwrap().ends_with('Z'));
    assert!(row["mtime_ns"].as_i64().unwrap() > 0);
    assert_eq!(row["target"], Value::Null);
    assert!(cluster.fails(1, &["ls", "/none"]).starts_with("/none: "));
}

#[test]
fn a_directory_that_the_server_has_not_read_yet_is_listed_with_its_size() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "-p", "/d/e", "/d/f"]);
    cluster.run(&["down"]);
    cluster.start();
    assert_eq!(cluster.json(&["ls", "/"])[0]["size"], 2);
    assert!(cluster.say(&["ls", "-l", "/"]).starts_with("drwxr-xr-x 4 "));
}

#[test]
fn stat_tells_attributes_policy_and_promise() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "-p", "/job/in"]);
    cluster.run_with_input(&["cp", "-", "/job/in/f"], b"four");
    cluster.run(&["policy", "set", "/job", "hdfs"]);
    let facts = cluster.json(&["stat", "/job/in/f"]);
    assert_eq!((&facts["size"], &facts["type"]), (&json!(4), &json!("file")));
    assert_eq!(facts["policy"]["cell"], "weak-global");
    assert_eq!(facts["policy"]["source"], "/job");
    assert_eq!(facts["policy"]["guarantee"]["client_gone"], "kept");

    let said = cluster.say(&["stat", "/job/in/f"]);
    for part in [
        "path     /job/in/f\n",
        "type     file, mode 0644 (-rw-r--r--)\n",
        "size     4 bytes (4 B)\n",
        ", 1 link\n",
        ", inherited from /job\n",
        "promise  weak-global\n",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(cluster.say(&["stat", "/job"]).contains(", set here\n"));
    assert!(cluster.say(&["stat", "/"]).contains("rpcs+stream, the default\n"));
    assert!(cluster.fails(1, &["stat", "/job/none"]).contains("/job/none: no such file"));
    assert!(cluster.fails(1, &["stat", "/job/in/f/x"]).contains("(ENOTDIR)"));
}

#[test]
fn moves_replace_swap_and_refuse() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "-p", "/d/sub", "/e"]);
    cluster.run_with_input(&["cp", "-", "/f"], b"f");
    cluster.run_with_input(&["cp", "-", "/g"], b"g");

    assert!(cluster.fails(1, &["mv", "-n", "/f", "/g"]).starts_with("/g: file exists (EEXIST)"));
    cluster.run(&["mv", "--exchange", "/f", "/g"]);
    assert_eq!(cluster.run(&["cp", "/f", "-"]), b"g");
    let moved = cluster.json(&["mv", "/f", "/g"]);
    assert_eq!(moved["moved"], json!([{ "from": "/f", "to": "/g" }]));
    assert_eq!(cluster.run(&["cp", "/g", "-"]), b"g");
    cluster.run(&["mv", "/g", "/e", "/d"]);
    assert_eq!(cluster.names("/d"), ["e", "g", "sub"]);

    assert!(cluster.fails(2, &["mv", "/d", "/d/sub"]).contains("a directory into itself"));
    assert!(cluster.fails(1, &["mv", "-T", "/d/g", "/d/sub"]).contains("(EISDIR)"));
    assert!(cluster.fails(1, &["mv", "-T", "/d/e", "/d/g"]).contains("(ENOTDIR)"));
    assert!(cluster.fails(1, &["mv", "/none", "/x"]).starts_with("/none: "));
    assert!(cluster.fails(1, &["mv", "/d/e", "/d/sub", "/x"]).contains("several sources"));
    assert!(cluster.fails(2, &["mv", "/d"]).contains("Usage"));
}

#[test]
fn dry_runs_change_nothing_and_foresee_refusals() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "-p", "/d/sub/deep", "/e/full"]);
    cluster.run_with_input(&["cp", "-", "/d/f"], b"f");
    let before = cluster.say(&["ls", "-R"]);

    let said = cluster.say(&["rm", "-r", "--dry-run", "/d"]);
    assert_eq!(said, "/d/f\n/d/sub/deep\n/d/sub\n/d\n");
    let said = cluster.json(&["rm", "-r", "--dry-run", "/d"]);
    assert_eq!(said["would_remove"][0]["path"], "/d/f");
    assert_eq!((&said["files"], &said["directories"]), (&json!(1), &json!(3)));
    assert_eq!(cluster.say(&["mv", "--dry-run", "/d", "/e"]), "/d -> /e/d\n");

    // A dry run fails with the same words as the real command.
    for arguments in [
        &["mv", "/d", "/d/sub"][..],
        &["mv", "-T", "/d/sub", "/e"],
        &["mv", "-T", "/d/f", "/e"],
        &["mv", "-T", "/e", "/d/f"],
        &["mv", "-n", "-T", "/d", "/e"],
        &["mv", "--exchange", "/d", "/none"],
        &["mv", "--exchange", "/d/sub", "/d"],
        &["mv", "/none", "/d"],
    ] {
        let mut dry = arguments.to_vec();
        dry.push("--dry-run");
        let code = |arguments: &[&str]| cluster.command(arguments).output().unwrap().status.code();
        assert_eq!(code(&dry), code(arguments), "{arguments:?}");
        assert_ne!(code(&dry), Some(0), "{arguments:?}");
    }
    assert_eq!(cluster.say(&["ls", "-R"]), before);
}

#[test]
fn find_filters_and_du_counts() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "-p", "/s/lib", "/s/empty"]);
    for (name, content) in [("/s/a.c", "12"), ("/s/lib/b.c", "345"), ("/s/lib/b.h", "")] {
        cluster.run_with_input(&["cp", "-", name], content.as_bytes());
    }
    let fs = cluster.mount();
    let dir = fs.open_dir("/s").unwrap();
    dir.create("link", &cudele::NewFile::symlink(b"a.c")).unwrap();
    dir.link(dir.lookup("a.c").unwrap().ino, "again.c").unwrap();

    let all = "/s\n/s/a.c\n/s/again.c\n/s/empty\n/s/lib\n/s/lib/b.c\n/s/lib/b.h\n/s/link\n";
    assert_eq!(cluster.say(&["find", "/s"]), all);
    let found = cluster.say(&["find", "/s", "--name", "*.c"]);
    assert_eq!(found, "/s/a.c\n/s/again.c\n/s/lib/b.c\n");
    assert_eq!(cluster.say(&["find", "/s", "--type", "d"]), "/s\n/s/empty\n/s/lib\n");
    assert_eq!(cluster.say(&["find", "/s", "--type", "l", "-0"]), "/s/link\0");
    assert_eq!(cluster.say(&["find", "/s/a.c"]), "/s/a.c\n");
    let lines = cluster.say(&["find", "/s", "--json", "--type", "l"]);
    let row: Value = serde_json::from_str(lines.trim()).unwrap();
    assert_eq!((&row["path"], &row["target"]), (&json!("/s/link"), &json!("a.c")));
    assert!(cluster.fails(2, &["find", "/s", "--type", "x"]).contains("possible values"));
    assert!(cluster.fails(1, &["find", "/none"]).starts_with("/none: "));

    let count = cluster.json(&["du", "/s"]);
    let expected = json!({ "path": "/s", "files": 3, "directories": 3, "symlinks": 1, "others": 0,
        "bytes": 5 });
    assert_eq!(count, expected, "a file with two names counts once");
    let said = cluster.say(&["du", "/s/lib"]);
    assert_eq!(said, "/s/lib: 2 files, 1 directories, 3 bytes (3 B)\n");
}

#[test]
fn find_and_du_report_unreadable_directories_and_show_the_rest() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "-p", "/d/a", "/d/b/c"]);
    let fs = cluster.mount();
    let private = "consistency: append_client_journal\ninterfere_policy: block\n";
    let policy = cudele::Policy::from_name_or_text(private).unwrap().policy;
    let _subtree = fs.decouple("/d/b", &policy).unwrap();
    let busy = cluster.fails(1, &["ls", "/d/b"]);
    assert!(busy.contains("(EBUSY)") && busy.contains("another client works here"), "{busy}");
    for command in ["find", "du"] {
        let output = cluster.command(&[command, "/d"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("/d/b: "), "{}", text(&output.stderr));
        assert!(text(&output.stdout).starts_with("/d"), "{}", text(&output.stdout));
    }
}

#[test]
fn every_command_refuses_wrong_use_and_explains_itself() {
    let cluster = Cluster::up();
    for command in ["ls", "stat", "mkdir", "rm", "mv", "cp", "find", "du", "policy"] {
        let help = cluster.say(&[command, "--help"]);
        assert!(help.contains("Example"), "{command}: {help}");
        cluster.fails(2, &[command, "--no-such-option"]);
    }
    for arguments in [
        &["ls", "/a/../b"][..],
        &["stat", ".."],
        &["mkdir", "-p", "/a/.."],
        &["rm", "../a"],
        &["mv", "/a", "/.."],
        &["cp", "/..", "-"],
        &["find", "/.."],
        &["du", "/.."],
        &["policy", "get", "/.."],
    ] {
        let said = cluster.fails(2, arguments);
        assert!(said.contains("`..`") && said.contains("(EINVAL)"), "{arguments:?}: {said}");
    }
    let output = cluster.command(&["stat", "/none", "--json"]).output().unwrap();
    let error: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(error["error"]["errno"], "ENOENT");
    assert_eq!(error["error"]["subject"], "/none");
    assert!(error["error"]["remedy"].as_str().unwrap().contains("cudele ls"));
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let cluster = Cluster::up();
    let fs = cluster.mount();
    let dir = fs.open_dir("/").unwrap();
    for number in 0..2000 {
        let name = format!("{number:0200}");
        dir.create(&name, &cudele::NewFile::default()).unwrap();
    }
    for command in ["ls", "find"] {
        let mut command = cluster.command(&[command, "/"]);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    }
    let raw = std::ffi::OsStr::from_bytes(b"/");
    assert!(!cluster.run(&[std::ffi::OsStr::new("find"), raw]).is_empty());
}
