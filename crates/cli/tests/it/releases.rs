//! Data of every version is read by all later ones: stores, journals of servers and of clients,
//! logs, branches, the trash, and dumps.
//!
//! `testdata/releases/VERSION.tar.zst` is a cluster whose daemons and clients were killed, with
//! the expected result in `expected`. [`record`] makes it, once for each version.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use cudele::{Fs, NewFile};
use serde_json::{Value, json};
use types::acl::{self, ACCESS_LIST};

use crate::cluster::{Cluster, text};

/// Files that a cluster makes by itself, or needs on the machine of its daemons only.
const NOT_KEPT: [&str; 7] = [
    "c/store/reserve",
    "c/store/locks",
    "c/store/tmp",
    "c/log",
    "c/keys",
    "state/clusters",
    "many",
];
/// The directory that the dump has.
const DUMPED: &str = "/plain";
const LARGE: usize = 100_000;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/releases")
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The names below a directory, one a line, with attributes, extended attributes and content.
fn tree(cluster: &Cluster, root: &str) -> Vec<Value> {
    let fs = cluster.mount();
    let said = cluster.say(&["find", "--json", root]);
    said.lines().map(|line| entry(cluster, &fs, serde_json::from_str(line).unwrap())).collect()
}

fn entry(cluster: &Cluster, fs: &Fs, mut entry: Value) -> Value {
    let path = entry["path"].as_str().unwrap().to_owned();
    let ino = cudele::Ino(entry["ino"].as_u64().unwrap());
    let mut names = fs.list_xattr(ino).unwrap();
    names.sort_unstable();
    let xattr = |name: Vec<u8>| {
        json!([text(&name), types::hex::encode(&fs.get_xattr(ino, &name).unwrap())])
    };
    let xattrs: Vec<Value> = names.into_iter().map(xattr).collect();
    let content = match entry["type"].as_str().unwrap() {
        "file" if entry["size"] != 0 => {
            let content = cluster.run(&["cp", &path, "-"]);
            json!(format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&content)))
        }
        "symlink" => json!(text(&fs.read_link(ino).unwrap())),
        _ => Value::Null,
    };
    let object = entry.as_object_mut().unwrap();
    // The number of directories in a directory is known only after the directory was listed.
    if object["type"] == "directory" {
        object.remove("nlink");
    }
    object.insert("xattrs".into(), xattrs.into());
    object.insert("content".into(), content);
    entry
}

fn expected(home: &Path, name: &str) -> PathBuf {
    home.join("expected").join(name)
}

fn lines(entries: &[Value]) -> String {
    entries.iter().map(|entry| format!("{entry}\n")).collect()
}

/// Everything that a store, a server and a client keep, in the ways in which each is made.
fn fill(cluster: &Cluster) {
    let fs = cluster.mount();
    fs.make_dir(DUMPED, 0o2750).unwrap();
    let plain = fs.open_dir(DUMPED).unwrap();
    let small = NewFile { permissions: 0o4755, ..NewFile::default() };
    let small = plain.create("small", &small).unwrap().ino;
    plain.set_data(small, b"in the inode", 12).unwrap();
    fs.set_xattr(small, b"user.kept", Some(b"value")).unwrap();
    let list = acl::linux_form(&[
        (acl::USER_OBJ, 7, acl::NO_NUMBER),
        (acl::USER, 4, 4711),
        (acl::GROUP_OBJ, 5, acl::NO_NUMBER),
        (acl::MASK, 5, acl::NO_NUMBER),
        (acl::OTHER, 5, acl::NO_NUMBER),
    ]);
    fs.set_xattr(small, ACCESS_LIST, Some(&list)).unwrap();
    plain.create("link", &NewFile::symlink(b"../plain/small")).unwrap();
    plain.create(b"name \xff\n", &NewFile::default()).unwrap();
    fs.make_dir("/plain/below", 0o755).unwrap();
    let linked = plain.create("linked", &NewFile::default()).unwrap().ino;
    fs.open_dir("/plain/below").unwrap().link(linked, "second").unwrap();
    drop((plain, fs));
    cluster.run_with_input(&["cp", "-", "/plain/large"], &vec![b'x'; LARGE]);
    cluster.run(&["quota", "set", DUMPED, "--inodes", "1000", "--bytes", "1000000"]);
    cluster.run_with_input(&["policy", "set", "/plain/below", "-"], b"trash: 3650d\n");
    cluster.run(&["mkdir", "-p", "/plain/below/removed/tree"]);
    cluster.run(&["rm", "-r", "/plain/below/removed"]);
    // Many names, merged by reference: their runs become those of the directory.
    let many = cluster.home.join("many");
    fs::create_dir(&many).unwrap();
    (0..500).for_each(|number| drop(File::create(many.join(format!("f{number}"))).unwrap()));
    let many = many.to_str().unwrap();
    cluster.run(&["ingest", "--policy", "batchfs", many, "/many"]);
    cluster.run(&["branch", "create", "nightly", DUMPED]);
    let note = cluster.home.join("note");
    fs::write(&note, "in the branch").unwrap();
    cluster.run(&["branch", "put", "nightly", note.to_str().unwrap(), "/plain/note"]);
    fs::remove_file(note).unwrap();
    // The store has all of this, and the server's journal the rest.
    cluster.run(&["down"]);
    cluster.start();
    cluster.run(&["mv", "/plain/large", "/plain/below/large"]);
    cluster.run(&["rm", "/many/f7"]);
    cluster.run(&["mkdir", "/local", "/strong"]);
    cluster.run(&["policy", "set", "/strong", "strong-local"]);
}

/// A job that fails, so that its changes stay on the machine.
fn work(cluster: &Cluster) {
    let script = "mkdir d && echo text > d/file && ln -s file d/link && ln d/file hard && exit 7";
    let run = ["run", "-C", "--preload", "off", "--policy", "weak-local", "--on-failure", "keep"];
    let arguments: Vec<&str> =
        run.into_iter().chain(["/local", "--", "sh", "-c", script]).collect();
    assert_eq!(cluster.command(&arguments).status().unwrap().code(), Some(7));
}

#[test]
#[ignore = "keeps the data of this version for all later ones"]
fn record() {
    assert!(is_root(), "files of root are kept");
    let version = env!("CARGO_PKG_VERSION");
    let file = folder().join(format!("{version}.tar.zst"));
    assert!(!file.exists(), "{}: each version is recorded once", file.display());
    let cluster = Cluster::by_hand(&[]);
    fill(&cluster);
    work(&cluster);
    cluster.run(&["dump", DUMPED, cluster.home.join("plain.dump").to_str().unwrap()]);
    fs::create_dir(cluster.home.join("expected")).unwrap();
    let list = |name: &str, root: &str| {
        fs::write(expected(&cluster.home, name), lines(&tree(&cluster, root))).unwrap();
    };
    list("plain", DUMPED);
    list("many", "/many");
    cluster.run(&["mkdir", "/strong/a"]);
    cluster.kill("mds");
    cluster.kill("mon");
    let is_log =
        |entry: walkdir::DirEntry| entry.file_name().to_string_lossy().starts_with("strong.");
    let mut files = walkdir::WalkDir::new(cluster.home.join("state")).into_iter();
    assert!(files.any(|entry| is_log(entry.unwrap())), "the log of a strong-local client");
    let mut kept = tar::Builder::new(zstd::Encoder::new(File::create(&file).unwrap(), 19).unwrap());
    for entry in walkdir::WalkDir::new(&cluster.home).sort_by_file_name() {
        let entry = entry.unwrap();
        let name = entry.path().strip_prefix(&cluster.home).unwrap();
        let is_dropped = NOT_KEPT.iter().any(|dropped| name.starts_with(dropped));
        let file_type = entry.file_type();
        let is_kept = file_type.is_dir() || (file_type.is_file() && !is_dropped);
        if is_kept && !name.as_os_str().is_empty() {
            kept.append_path_with_name(entry.path(), name).unwrap();
        }
    }
    kept.into_inner().unwrap().finish().unwrap();
}

/// The cluster of another version, started by this one.
fn taken_over(file: &Path) -> Cluster {
    let cluster = Cluster::down();
    let kept = zstd::Decoder::new(File::open(file).unwrap()).unwrap();
    let mut kept = tar::Archive::new(kept);
    kept.set_preserve_permissions(true);
    kept.unpack(&cluster.home).unwrap();
    for private in ["c/store", "state"] {
        let mode = fs::metadata(cluster.home.join(private)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{private}");
    }
    cluster.start();
    cluster
}

#[test]
fn data_of_every_version_is_read() {
    if !is_root() {
        return;
    }
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort_unstable();
    assert!(!files.is_empty());
    for file in files {
        println!("{}", file.display());
        let cluster = taken_over(&file);
        let same = |name: &str, root: &str| {
            let before = fs::read_to_string(expected(&cluster.home, name)).unwrap();
            let now = lines(&tree(&cluster, root));
            before.lines().zip(now.lines()).for_each(|(before, now)| assert_eq!(before, now));
            assert_eq!(before.lines().count(), now.lines().count(), "{root}");
        };
        same("plain", DUMPED);
        same("many", "/many");
        assert_eq!(cluster.names("/strong"), ["a"], "the log of a strong-local client");
        cluster.run(&["merge", "/local"]);
        assert_eq!(cluster.names("/local"), ["d", "hard"]);
        assert_eq!(cluster.run(&["cp", "/local/hard", "-"]), b"text\n");
        assert_eq!(cluster.json(&["stat", "/local/d/file"])["nlink"], 2);
        assert_eq!(cluster.run(&["branch", "cat", "nightly", "/plain/note"]), b"in the branch");
        cluster.run(&["trash", "restore", "/plain/below/removed"]);
        assert_eq!(cluster.names("/plain/below/removed"), ["tree"]);
        let limits = cluster.json(&["quota", "get", DUMPED]);
        assert_eq!(limits["quotas"][0]["inodes"]["limit"], 1000, "{limits:#}");
        let dump = cluster.home.join("plain.dump");
        cluster.run(&["load", "--hollow", dump.to_str().unwrap(), "/loaded"]);
        assert_eq!(cluster.run(&["cp", "/loaded/small", "-"]), b"in the inode");
        assert_eq!(cluster.health(), (Vec::new(), 0));
        cluster.run(&["down"]);
        cluster.run(&["fsck"]);
    }
}
