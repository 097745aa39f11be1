//! `cudele watch`: a model that is built from a first look and from lines is the namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cudele::{AttrChange, Dir, Fs, NewFile, Policy, RenameFlags};
use serde_json::Value;
use types::rng::Rng;

use crate::cluster::{Cluster, eventually, text};

/// A running `cudele watch --json`. Dropping it ends it.
struct Watching {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Watching {
    fn begin(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn from(cluster: &Cluster, path: &str, position: &str) -> Self {
        Self::begin(&mut cluster.command(&["watch", "--json", "--from", position, path]))
    }

    fn next(&mut self) -> Option<Value> {
        let line = self.lines.next()?.unwrap();
        Some(serde_json::from_str(&line).unwrap())
    }

    /// The lines up to that of a path.
    fn until(&mut self, path: &str) -> Vec<Value> {
        let mut lines = Vec::new();
        loop {
            let Some(line) = self.next() else {
                let mut error = String::new();
                std::io::Read::read_to_string(self.child.stderr.as_mut().unwrap(), &mut error)
                    .unwrap();
                panic!("it ended: {error}");
            };
            let is_last = line["path"] == path;
            lines.push(line);
            if is_last {
                return lines;
            }
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Stops writers at its end, also after a failed assertion.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn position(cluster: &Cluster, path: &str) -> String {
    cluster.say(&["watch", "--position", path]).trim().to_owned()
}

/// The bytes of a path in a line.
fn bytes(line: &Value, key: &str) -> Option<Vec<u8>> {
    let digits = line[format!("{key}_hex")].as_str();
    let exact = digits.map(|digits| types::hex::decode(digits).unwrap());
    exact.or_else(|| Some(line[key].as_str()?.as_bytes().to_vec()))
}

fn name(line: &Value, key: &str) -> Vec<u8> {
    let path = bytes(line, key).unwrap();
    path[path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1)..].to_vec()
}

type Names = BTreeMap<Vec<u8>, u64>;

/// The state of an indexer: for each directory its names.
struct Model {
    fs: Arc<Fs>,
    root: u64,
    names: BTreeMap<(u64, Vec<u8>), u64>,
    /// Directories whose names are known.
    known: BTreeSet<u64>,
    /// Directories that were not at the path of their line any more.
    missed: BTreeSet<u64>,
    applied: usize,
}

impl Model {
    fn new(fs: Arc<Fs>, root: &str) -> Self {
        let root = fs.stat(root).unwrap().ino.0;
        let known = BTreeSet::from([root]);
        Self { fs, root, names: BTreeMap::new(), known, missed: BTreeSet::new(), applied: 0 }
    }

    /// Takes the names of a dump.
    fn take_dump(&mut self, dump: &[u8]) {
        let text = String::from_utf8(zstd::decode_all(dump).unwrap()).unwrap();
        let mut inos: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for line in text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            let (Some(path), Some(ino)) = (bytes(&line, "path"), line["ino"].as_u64()) else {
                continue;
            };
            if line["type"] == "directory" {
                self.known.insert(ino);
            }
            if path.is_empty() {
                assert_eq!(ino, self.root);
            } else {
                let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                let parent = inos[&path[..end]];
                self.names.insert((parent, name(&line, "path")), ino);
            }
            inos.insert(path, ino);
        }
    }

    /// Reads a directory and everything below it.
    fn read(&mut self, dir: &Dir) {
        let parent = dir.ino().0;
        let Ok(entries) = dir.list() else {
            // It is gone, which a later line says, or a client has it for itself.
            self.missed.insert(parent);
            return;
        };
        self.names.retain(|(other, _), _| *other != parent);
        self.known.insert(parent);
        for entry in entries {
            self.names.insert((parent, entry.name.clone()), entry.attr.ino.0);
            if entry.attr.is_dir() {
                match dir.enter(&entry.name, entry.attr.ino) {
                    Ok(below) => self.read(&below),
                    Err(_) => drop(self.missed.insert(entry.attr.ino.0)),
                }
            }
        }
    }

    /// Reads the directory of a line, if it is still the one at the path.
    fn read_again(&mut self, path: &[u8], ino: u64) {
        self.known.remove(&ino);
        if let Ok(dir) = self.fs.open_dir(path)
            && dir.ino().0 == ino
        {
            self.missed.remove(&ino);
            self.read(&dir);
        } else {
            self.missed.insert(ino);
        }
    }

    /// Reads the directories that were not at the path of their line, where the lines say now.
    fn read_missed(&mut self) {
        for (path, ino) in self.paths() {
            if self.missed.contains(&ino) {
                self.read_again(&[&b"/proj"[..], &path].concat(), ino);
            }
        }
    }

    fn apply(&mut self, line: &Value) {
        self.applied += 1;
        let ino = line["ino"].as_u64().unwrap();
        let key = |parent: &str, path: &str| Some((line[parent].as_u64()?, name(line, path)));
        let (at, to) = (key("parent", "path"), key("to_parent", "to"));
        let is_dir = line["type"] == "directory";
        match line["kind"].as_str().unwrap() {
            "mkdir" => {
                self.known.insert(ino);
                self.names.insert(at.unwrap(), ino);
            }
            "create" | "link" | "moved_to" | "restore" => {
                self.names.insert(at.unwrap(), ino);
            }
            "unlink" | "rmdir" | "moved_from" | "remove_tree" => {
                self.names.remove(&at.unwrap());
            }
            "rename" => {
                self.names.remove(&at.unwrap());
                self.names.insert(to.unwrap(), ino);
            }
            "exchange" => {
                self.names.insert(at.unwrap(), line["other_ino"].as_u64().unwrap());
                self.names.insert(to.unwrap(), ino);
            }
            "merge" | "setattr" | "content" | "setxattr" | "removexattr" | "policy"
            | "decouple" | "release" => {}
            other => panic!("{other}"),
        }
        let end = bytes(line, "to").or_else(|| bytes(line, "path"));
        if let Some(path) = end
            && (line["read"] == true || (is_dir && !self.known.contains(&ino)))
            && !matches!(line["kind"].as_str(), Some("moved_from" | "remove_tree" | "rmdir"))
        {
            self.read_again(&path, ino);
        }
    }

    /// All names, by their paths below the root.
    fn paths(&self) -> Names {
        let mut children: BTreeMap<u64, Vec<(&[u8], u64)>> = BTreeMap::new();
        for ((parent, name), ino) in &self.names {
            children.entry(*parent).or_default().push((name, *ino));
        }
        let mut paths = Names::new();
        let mut left = vec![(Vec::new(), self.root)];
        while let Some((path, dir)) = left.pop() {
            for (name, ino) in children.remove(&dir).into_iter().flatten() {
                let path = [&path, &b"/"[..], name].concat();
                paths.insert(path.clone(), ino);
                left.push((path, ino));
            }
        }
        paths
    }
}

/// The names as a client sees them that knows nothing of the lines.
fn walk(cluster: &Cluster, root: &str) -> Names {
    let found = cluster.run(&["find", "--json", root]);
    let lines = std::str::from_utf8(&found).unwrap().lines();
    let lines = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let name = |line: Value| {
        (bytes(&line, "path").unwrap()[root.len()..].to_vec(), line["ino"].as_u64().unwrap())
    };
    lines.map(name).filter(|(path, _)| !path.is_empty()).collect()
}

/// A client that changes names at random below the directories `d0` to `d3` until it is stopped.
fn change(fs: &Arc<Fs>, seed: u64, stop: &AtomicBool) {
    let mut rng = Rng::new(seed);
    let dirs: Vec<Dir> = (0..4).map(|it| fs.open_dir(format!("/proj/d{it}")).unwrap()).collect();
    let names = [&b"a"[..], b"b", b"c\n", b"d\xff", b"e", b"f"];
    while !stop.load(Ordering::Relaxed) {
        let [one, two] = [0, 0].map(|_| &dirs[rng.index(4)]);
        let [name, other] = [0, 0].map(|_| names[rng.index(6)]);
        let sub = |dir: &Dir| {
            let attr = dir.lookup(other).ok().filter(cudele::Attr::is_dir)?;
            dir.enter(other, attr.ino).ok()
        };
        // Other clients are faster, and have made what is in the way: errors are expected.
        let _ = match rng.below(14) {
            0..=2 => one.create(name, &NewFile::default()).map(drop),
            3 => one.create(name, &NewFile::directory()).map(drop),
            4 => sub(one).map_or(Ok(()), |sub| sub.create(name, &NewFile::default()).map(drop)),
            5 => one.unlink(name),
            6 => one.rmdir(name),
            7 | 8 => one.rename(name, two, other, RenameFlags::default()),
            9 => {
                sub(two).map_or(Ok(()), |sub| one.rename(name, &sub, name, RenameFlags::default()))
            }
            10 => one.rename(
                name,
                two,
                other,
                RenameFlags { exchange: true, ..RenameFlags::default() },
            ),
            11 => one.lookup(name).and_then(|attr| two.link(attr.ino, other)),
            12 => one.set_attr(name, &AttrChange { mode: Some(0o700), ..AttrChange::default() }),
            _ if rng.below(4) == 0 => one.remove_tree(name).map(drop),
            _ => Ok(()),
        };
    }
}

/// Decouples a directory, makes names in it and merges them.
fn job(fs: &Arc<Fs>, number: u64) {
    let path = format!("/proj/job{number}");
    fs.make_dir(&path, 0o755).unwrap();
    let policy = Policy::from_name_or_text("batchfs").unwrap().policy;
    let mut job = fs.decouple(&path, &policy).unwrap();
    let root = job.root();
    let sub = job.create(root, b"sub", &NewFile::directory()).unwrap();
    for file in 0..200 {
        let parent = if file % 2 == 0 { root } else { sub };
        job.create(parent, format!("f{file}").as_bytes(), &NewFile::default()).unwrap();
    }
    if number % 4 == 3 {
        job.discard().unwrap();
    } else {
        job.merge().unwrap();
    }
}

fn make_dirs(fs: &Arc<Fs>) {
    for dir in 0..4 {
        fs.make_dir(format!("/proj/d{dir}"), 0o755).unwrap();
    }
}

/// Runs writers beside the steps of an indexer, and compares at the end.
fn index(cluster: &Cluster, first_look: impl FnOnce(&mut Model), beside: impl Fn(u64) + Sync) {
    let fs = cluster.mount();
    make_dirs(&fs);
    let stop = &AtomicBool::new(false);
    let beside = &beside;
    std::thread::scope(|scope| {
        let stops = Stops(stop);
        let writers: Vec<_> = (1..=3)
            .map(|seed| {
                let fs = cluster.mount();
                scope.spawn(move || change(&fs, seed, stop))
            })
            .collect();
        let jobs = cluster.mount();
        let worker = scope.spawn(move || {
            for number in 0.. {
                job(&jobs, number);
                beside(number);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        std::thread::sleep(Duration::from_millis(300));
        let position = position(cluster, "/proj");
        let mut model = Model::new(cluster.mount(), "/proj");
        first_look(&mut model);
        let mut watching = Watching::from(cluster, "/proj", &position);
        for _ in 0..2000 {
            model.apply(&watching.next().expect("a line"));
        }
        drop(stops);
        worker.join().unwrap();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        let end = cluster.mount();
        // Of each rank that has a part, the last change.
        for dir in ["/proj", "/proj/d1"] {
            end.open_dir(dir).unwrap().create("end", &NewFile::default()).unwrap();
            for line in watching.until(&format!("{dir}/end")) {
                model.apply(&line);
            }
        }
        model.read_missed();
        assert_eq!(model.paths(), walk(cluster, "/proj"), "{} lines", model.applied);
    });
}

#[test]
fn a_dump_and_the_lines_behind_a_position_are_the_namespace() {
    let cluster = Cluster::up();
    let policies = |number: u64| {
        let policy = ["posix", "deltafs", "ramdisk"][(number % 3) as usize];
        // It waits for a moment without a rename, perhaps in vain.
        let _ = cluster.command(&["policy", "set", "/proj/d2", policy]).output();
    };
    index(&cluster, |model| model.take_dump(&cluster.run(&["dump", "/proj", "-"])), policies);
}

#[test]
fn a_subtree_that_moves_between_ranks_loses_no_line() {
    let cluster = Cluster::by_hand(&["--mds", "2"]);
    let fs = cluster.mount();
    fs.make_dir("/proj", 0o755).unwrap();
    let look = |model: &mut Model| {
        let dir = model.fs.open_dir("/proj").unwrap();
        model.read(&dir);
    };
    let moves = |number: u64| {
        let _ = cluster.command(&["mds", "pin", "/proj/d1", &(number % 2).to_string()]).output();
    };
    index(&cluster, look, moves);
}

#[test]
fn a_killed_watcher_continues_without_a_lost_or_a_doubled_line() {
    let cluster = Cluster::up();
    let fs = cluster.mount();
    fs.make_dir("/proj", 0o755).unwrap();
    let mut from = position(&cluster, "/proj");
    let dir = fs.open_dir("/proj").unwrap();
    let writer = std::thread::spawn(move || {
        for file in 0..3000 {
            dir.create(format!("f{file}"), &NewFile::default()).unwrap();
        }
    });
    let mut seen = Vec::new();
    while seen.len() < 3000 {
        let mut watching = Watching::from(&cluster, "/proj", &from);
        for _ in 0..(3000 - seen.len()).min(700) {
            let line = watching.next().unwrap();
            from = line["position"].as_str().unwrap().to_owned();
            seen.push(line["path"].as_str().unwrap().to_owned());
        }
    }
    writer.join().unwrap();
    let expected: Vec<String> = (0..3000).map(|file| format!("/proj/f{file}")).collect();
    assert_eq!(seen, expected);
}

#[test]
fn a_restarted_server_ends_a_watch_with_a_code_and_a_position() {
    let cluster = Cluster::up();
    let fs = cluster.mount();
    fs.make_dir("/proj", 0o755).unwrap();
    let from = position(&cluster, "/proj");
    let arguments = ["watch", "--json", "--keep-going", "--from", &from, "/proj"];
    let mut going = Watching::begin(&mut cluster.command(&arguments));
    fs.open_dir("/proj").unwrap().create("a", &NewFile::default()).unwrap();
    assert_eq!(going.next().unwrap()["path"], "/proj/a");
    drop(fs);
    cluster.run(&["down"]);
    cluster.start();
    let said = cluster.fails(3, &["watch", "--once", "--from", &from, "/proj"]);
    assert!(said.contains("ESTALE") && said.contains("cudele dump"), "{said}");
    let next = said.split("--from ").nth(1).unwrap().split('`').next().unwrap();
    let fs = cluster.mount();
    fs.open_dir("/proj").unwrap().create("b\n", &NewFile::default()).unwrap();
    let lines = cluster.say(&["watch", "--json", "--once", "--from", next, "/proj"]);
    let lines: Vec<Value> = lines.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!((&lines[0]["path"], &lines[0]["kind"]), (&"/proj/b\n".into(), &"create".into()));
    assert_eq!((lines.len(), &lines[1]["kind"]), (2, &"end".into()));
    assert_eq!(lines[0]["position"], lines[1]["position"]);
    assert_eq!(going.next().unwrap()["kind"], "lost");
    fs.open_dir("/proj").unwrap().create("c", &NewFile::default()).unwrap();
    assert_eq!(going.until("/proj/c").last().unwrap()["kind"], "create");
    let said = cluster.fails(2, &["watch", "--from", "nonsense", "/proj"]);
    assert!(said.contains("EINVAL"), "{said}");
    let said = cluster.fails(1, &["watch", "/proj/c"]);
    assert!(said.contains("ENOTDIR"), "{said}");
}

#[test]
fn a_decoupled_subtree_shows_nothing_before_its_merge_which_is_one_line() {
    let cluster = Cluster::up();
    let fs = cluster.mount();
    fs.make_dir("/proj", 0o755).unwrap();
    let from = position(&cluster, "/proj");
    job(&fs, 0);
    job(&fs, 3);
    let lines = cluster.say(&["watch", "--json", "--once", "--from", &from, "/proj"]);
    let lines: Vec<Value> = lines.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let kinds: Vec<_> = lines.iter().map(|line| line["kind"].as_str().unwrap()).collect();
    let merged = ["mkdir", "policy", "decouple", "merge", "release"];
    let discarded = ["mkdir", "policy", "decouple", "release", "end"];
    assert_eq!(kinds, [&merged[..], &discarded].concat());
    assert_eq!((&lines[3]["path"], &lines[3]["names"]), (&"/proj/job0".into(), &201.into()));
    // For people, a line without quotes of JSON.
    let said = cluster.say(&["watch", "--once", "--from", &from, "/proj"]);
    assert!(said.contains("merge        /proj/job0  201 new names\n"), "{said}");
}

#[test]
fn another_user_sees_only_names_that_the_user_may_list() {
    const USER: u32 = 4242;
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    let cluster = Cluster::up_with(&["--group", &USER.to_string()]);
    let state = cluster.home.join("theirs");
    std::fs::create_dir(&state).unwrap();
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(&cluster.home, 0o711);
    open(&state, 0o777);
    let fs = cluster.mount();
    fs.make_dir("/private", 0o700).unwrap();
    fs.make_dir("/open", 0o755).unwrap();
    let as_user = |arguments: &[&str]| {
        let mut command = cluster.command(arguments);
        command.uid(USER).gid(USER).env("CUDELE_STATE", &state).current_dir(&state);
        command
    };
    let output = as_user(&["watch", "--position", "/"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let from = text(&output.stdout).trim().to_owned();
    fs.open_dir("/private").unwrap().create("secret", &NewFile::default()).unwrap();
    fs.open_dir("/open").unwrap().create("shown", &NewFile::default()).unwrap();
    let output = as_user(&["watch", "--json", "--once", "--from", &from, "/"]).output().unwrap();
    let said = text(&output.stdout);
    assert!(said.contains("/open/shown") && !said.contains("secret"), "{said}");
    let output = as_user(&["watch", "--position", "/private"]).output().unwrap();
    assert!(output.status.success(), "the name itself is no secret: {}", text(&output.stderr));
    // The position of root is no key to the changes of root.
    let theirs = position(&cluster, "/");
    fs.open_dir("/private").unwrap().create("secret2", &NewFile::default()).unwrap();
    let output = as_user(&["watch", "--json", "--once", "--from", &theirs, "/"]).output().unwrap();
    assert!(!text(&output.stdout).contains("secret"), "{}", text(&output.stdout));
}

/// The program of the guide.
fn guide() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/watching.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, below) = page.split_once("```python\n").unwrap();
    below.split_once("```").unwrap().0.to_owned()
}

#[test]
fn the_indexer_of_the_guide_ends_with_the_present_names() {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: there is no python3");
        return;
    }
    let cluster = Cluster::up();
    let fs = cluster.mount();
    make_dirs(&fs);
    let script = cluster.home.join("index.py");
    std::fs::write(&script, guide()).unwrap();
    let file = cluster.home.join("names");
    let program = Path::new(env!("CARGO_BIN_EXE_cudele")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut indexer = Command::new("python3");
    indexer.arg(&script).arg("/proj").arg(&file).env("PATH", path);
    indexer.env("CUDELE_DIR", &cluster.dir).env("CUDELE_STATE", cluster.home.join("state"));
    let mut indexer = indexer.env("CUDELE_CONFIG", "/dev/null").spawn().unwrap();
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stops = Stops(stop);
        let writer = cluster.mount();
        scope.spawn(move || change(&writer, 7, stop));
        eventually("the indexer has written its file twice", || {
            let first = std::fs::metadata(&file).and_then(|file| file.modified());
            std::thread::sleep(Duration::from_millis(300));
            let later = std::fs::metadata(&file).and_then(|file| file.modified());
            first.is_ok_and(|first| later.is_ok_and(|later| later > first))
        });
        job(&fs, 1);
        drop(stops);
    });
    fs.open_dir("/proj").unwrap().create(".stop", &NewFile::default()).unwrap();
    assert!(indexer.wait().unwrap().success());
    let names = std::fs::read(&file).unwrap();
    let names: BTreeSet<&[u8]> =
        names.split(|byte| *byte == 0).filter(|it| !it.is_empty()).collect();
    let present = walk(&cluster, "/proj");
    let present: BTreeSet<Vec<u8>> =
        present.into_keys().map(|path| [b"/proj", &path[..]].concat()).collect();
    let mut expected: BTreeSet<&[u8]> = present.iter().map(Vec::as_slice).collect();
    expected.insert(b"/proj");
    assert_eq!(names, expected);
}
