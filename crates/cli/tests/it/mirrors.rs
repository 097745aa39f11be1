//! `cudele sync PATH COPY`: a copy on this machine, or in another cluster, is the directory.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudele::{AttrChange, Dir, FileType, Fs, NewFile, RenameFlags};
use serde_json::Value;
use types::Timestamp;
use types::rng::Rng;

use crate::cluster::Cluster;

/// What a copy shares with its source.
#[derive(Debug, PartialEq, Eq)]
struct Facts {
    mode: u32,
    owner: (u32, u32),
    mtime: i64,
    content: Vec<u8>,
    /// The first of the names of the same file.
    first_name: String,
}

type Tree = BTreeMap<String, Facts>;

/// A directory of this machine, the directory itself under the name "".
fn local(root: &Path) -> std::io::Result<Tree> {
    let (mut tree, mut first) = (Tree::new(), BTreeMap::new());
    let mut left = vec![(root.to_owned(), String::new())];
    while let Some((path, name)) = left.pop() {
        let meta = path.symlink_metadata()?;
        let content = if meta.is_dir() {
            let below = fs::read_dir(&path)?.map(|entry| entry.map(|entry| entry.path()));
            let mut below = below.collect::<std::io::Result<Vec<PathBuf>>>()?;
            below.sort();
            for path in below.into_iter().rev() {
                let last = path.file_name().unwrap().to_str().unwrap();
                left.push((path.clone(), format!("{name}/{last}")));
            }
            Vec::new()
        } else if meta.is_symlink() {
            fs::read_link(&path)?.into_os_string().into_vec()
        } else {
            fs::read(&path)?
        };
        let first_name = first.entry(meta.ino()).or_insert_with(|| name.clone()).clone();
        let (owner, mtime) =
            ((meta.uid(), meta.gid()), meta.mtime() * 1_000_000_000 + meta.mtime_nsec());
        tree.insert(name, Facts { mode: meta.mode(), owner, mtime, content, first_name });
    }
    Ok(tree)
}

/// A directory of a namespace.
fn space(fs: &Arc<Fs>, root: &str) -> Tree {
    let (mut tree, mut first) = (Tree::new(), BTreeMap::new());
    let mut left = vec![(String::new(), fs.stat(root).unwrap())];
    while let Some((name, attr)) = left.pop() {
        let mut content = Vec::new();
        match attr.file_type() {
            FileType::Directory => {
                let mut below = fs.open_dir(format!("{root}{name}")).unwrap().list().unwrap();
                below.sort_by(|a, b| b.name.cmp(&a.name));
                left.extend(below.into_iter().map(|entry| {
                    let last = String::from_utf8(entry.name).unwrap();
                    (format!("{name}/{last}"), entry.attr)
                }));
            }
            FileType::Symlink => content = fs.read_link(attr.ino).unwrap(),
            FileType::Regular
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharDevice
            | FileType::BlockDevice => fs
                .read_file(&attr, &mut |piece| {
                    content.extend_from_slice(piece);
                    Ok(())
                })
                .unwrap(),
        }
        let first_name = first.entry(attr.ino).or_insert_with(|| name.clone()).clone();
        let owner = (attr.uid, attr.gid);
        // Linux has no permissions of symbolic links.
        let mode = if attr.file_type() == FileType::Symlink { 0o120_777 } else { attr.mode };
        let facts = Facts { mode, owner, mtime: attr.mtime.0, content, first_name };
        tree.insert(name, facts);
    }
    tree
}

/// The same without the knowledge which names are of one file: a file that gets a second name is
/// one file in the copy after the next comparison of everything.
fn apart(mut tree: Tree) -> Tree {
    for (name, facts) in &mut tree {
        facts.first_name.clone_from(name);
    }
    tree
}

/// The first difference, for a message.
fn difference(a: &Tree, b: &Tree) -> Option<String> {
    let names = a.keys().chain(b.keys());
    let mut differing = names.filter(|name| a.get(*name) != b.get(*name));
    differing.next().map(|name| {
        let shown = |tree: &Tree| {
            let facts = tree.get(name)?;
            let Facts { mode, owner, mtime, content, first_name } = facts;
            let start = String::from_utf8_lossy(&content[..content.len().min(8)]).into_owned();
            Some(format!("{mode:o} {owner:?} {mtime} {} {start} {first_name}", content.len()))
        };
        format!("{name}: {:?} became {:?}", shown(a), shown(b))
    })
}

/// A user at work: any change of names, content and attributes.
struct Worker {
    fs: Arc<Fs>,
    root: &'static str,
    rng: Rng,
    /// Gives files times of which many are equal, as archives that are built reproducibly do.
    has_equal_times: bool,
}

impl Worker {
    fn new(fs: Arc<Fs>, root: &'static str, seed: u64) -> Self {
        Self { fs, root, rng: Rng::new(seed), has_equal_times: false }
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.rng.below(limit as u64)).unwrap()
    }

    fn dir(&mut self) -> Dir {
        let mut dir = self.fs.open_dir(self.root).unwrap();
        while self.rng.below(3) > 0 {
            let below = dir.list().unwrap().into_iter().filter(|entry| entry.attr.is_dir());
            let below: Vec<_> = below.collect();
            if below.is_empty() {
                break;
            }
            let entry = &below[self.below(below.len())];
            dir = dir.enter(&entry.name, entry.attr.ino).unwrap();
        }
        dir
    }

    fn name(&mut self) -> String {
        format!("n{}", self.rng.below(6))
    }

    fn write(&mut self, dir: &Dir, name: &str) {
        // Few lengths, so that files of equal length meet; some are not inline.
        let length = [0, 3, 3, 3, 20_000][self.below(5)];
        let byte = b"abcdefghijklmnop"[self.below(16)];
        let mtime = self.has_equal_times.then_some(Timestamp(1_000_000_000));
        let new = NewFile { mtime, permissions: 0o640, ..NewFile::default() };
        let data = vec![byte; length];
        let _ = dir.unlink(name);
        let _ = self.fs.create_file(dir, name, &new, &mut &*data);
    }

    /// One change, which may fail as changes by users do.
    fn change(&mut self) {
        let (dir, other) = (self.dir(), self.dir());
        let (name, new) = (self.name(), self.name());
        match self.rng.below(11) {
            0..=2 => self.write(&dir, &name),
            3 => drop(dir.create(&name, &NewFile::directory())),
            4 => drop(dir.create(&name, &NewFile::symlink(b"n1"))),
            5 => drop(dir.rename(&name, &other, &new, RenameFlags::default())),
            6 => {
                let exchange = RenameFlags { exchange: true, ..RenameFlags::default() };
                drop(dir.rename(&name, &other, &new, exchange));
            }
            7 => {
                if let Ok(attr) = dir.lookup(&name) {
                    let _ = other.link(attr.ino, &new);
                }
            }
            8 => drop(dir.unlink(&name)),
            9 => drop(dir.remove_tree(&name)),
            _ => {
                let mode = Some([0o600, 0o644, 0o755][self.below(3)]);
                let uid = Some([0, 1, 2][self.below(3)]);
                drop(dir.set_attr(&name, &AttrChange { mode, uid, ..AttrChange::default() }));
            }
        }
    }
}

fn sync(cluster: &Cluster, options: &[&str], to: &str) -> Value {
    let arguments = [&["sync"], options, &["/proj", to]].concat();
    cluster.json(&arguments)
}

/// Nothing that a second run would copy.
fn is_quiet(done: &Value) -> bool {
    ["copied", "attributes", "moved", "removed", "failed", "vanished"]
        .iter()
        .all(|key| done[*key] == 0)
}

#[test]
fn a_copy_is_the_directory_after_each_run() {
    let cluster = Cluster::up();
    let fs = cluster.mount();
    fs.make_dir("/proj", 0o750).unwrap();
    let mut worker = Worker::new(fs.clone(), "/proj", 5);
    let copy = cluster.home.join("copy");
    for round in 0..12 {
        // Names with equal times and lengths are told apart by their content only.
        worker.has_equal_times = round % 3 == 2;
        (0..60).for_each(|_| worker.change());
        let options: &[&str] =
            if round % 3 == 2 { &["--delete", "--checksum"] } else { &["--delete"] };
        sync(&cluster, options, "local:copy");
        let (there, here) = (space(&fs, "/proj"), local(&copy).unwrap());
        assert!(there.len() > 1, "the worker made names");
        assert_eq!(difference(&there, &here), None, "round {round}");
        let again = sync(&cluster, options, "local:copy");
        assert!(is_quiet(&again), "round {round}: {again}");
        // The next rounds would have to tell them apart.
        if worker.has_equal_times {
            fs.remove_tree("/proj").unwrap();
            fs.make_dir("/proj", 0o755).unwrap();
        }
    }
}

#[test]
fn a_copy_in_another_cluster_is_the_directory() {
    let (cluster, other) = (Cluster::up(), Cluster::up());
    let fs = cluster.mount();
    fs.make_dir("/proj", 0o755).unwrap();
    let mut worker = Worker::new(fs.clone(), "/proj", 6);
    let dir = other.dir.to_str().unwrap();
    for round in 0..4 {
        (0..60).for_each(|_| worker.change());
        let options = ["--delete", "--to-dir", dir];
        sync(&cluster, &options, "/backup/proj");
        let (there, copy) = (space(&fs, "/proj"), space(&other.mount(), "/backup/proj"));
        assert_eq!(difference(&there, &copy), None, "round {round}");
        let again = sync(&cluster, &options, "/backup/proj");
        assert!(is_quiet(&again), "round {round}: {again}");
    }
    assert!(cluster.fails(2, &["sync", "/proj", "/proj/copy"]).contains("lies in the other"));
}

/// A running `cudele sync --follow`. Dropping it ends it.
struct Following(Child);

impl Following {
    fn begin(cluster: &Cluster) -> Self {
        let arguments = ["sync", "--json", "--follow", "--delete", "/proj", "local:copy"];
        let mut command = cluster.command(&arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // The first line follows the first comparison; the others are read so that none blocks.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        lines.next().unwrap().unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        Self(child)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_copy_follows_changes_merges_and_a_restarted_server() {
    let cluster = Cluster::up();
    let fs = cluster.mount();
    fs.make_dir("/proj", 0o755).unwrap();
    let mut worker = Worker::new(fs.clone(), "/proj", 7);
    // Files of equal lengths and times change places, too.
    worker.has_equal_times = true;
    (0..100).for_each(|_| worker.change());
    let mut following = Following::begin(&cluster);
    assert!(cluster.fails(1, &["sync", "/proj", "local:copy"]).contains("another `cudele sync`"));
    let copy = cluster.home.join("copy");
    let becomes_equal = |following: &mut Following, what: &str| {
        let mut last = None;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(30) {
            assert!(following.0.try_wait().unwrap().is_none(), "{what}: it ended");
            let there = apart(space(&fs, "/proj"));
            // A name may go while the copy is read.
            let here = local(&copy).ok().map(apart);
            let Some(here) = here else { continue };
            last = difference(&there, &here);
            if last.is_none() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("waited in vain until {what}: {last:?}");
    };
    for round in 0..8 {
        for _ in 0..100 {
            worker.change();
        }
        becomes_equal(&mut following, &format!("the copy has round {round}"));
    }
    cluster.mount().make_dir("/proj/job", 0o755).unwrap();
    let policy = policy::policy_named("batchfs").unwrap();
    let mut job = cluster.mount().decouple("/proj/job", &policy).unwrap();
    for file in 0..500 {
        job.create(job.root(), format!("f{file}").as_bytes(), &NewFile::default()).unwrap();
    }
    job.merge().unwrap();
    becomes_equal(&mut following, "the copy has the merged job");
    assert!(copy.join("job/f499").exists());

    cluster.kill("mds");
    cluster.start();
    for _ in 0..50 {
        worker.change();
    }
    becomes_equal(&mut following, "the copy has the changes after a restart");
    drop(following);
    sync(&cluster, &["--delete", "--checksum"], "local:copy");
    assert_eq!(difference(&space(&fs, "/proj"), &local(&copy).unwrap()), None);
}

#[test]
fn nothing_outside_of_a_copy_and_nothing_unasked_is_changed() {
    let cluster = Cluster::up();
    let fs = cluster.mount();
    fs.make_dir("/proj/sub", 0o755).unwrap();
    let dir = fs.open_dir("/proj").unwrap();
    fs.open_dir("/proj/sub").unwrap().create("secret", &NewFile::default()).unwrap();
    dir.create("file", &NewFile { size: 3, data: b"new", ..NewFile::default() }).unwrap();
    let (copy, outside) = (cluster.home.join("copy"), cluster.home.join("outside"));
    fs::create_dir_all(&copy).unwrap();
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("target"), "old").unwrap();
    // Links that a user left in a copy: to a directory, and to a file.
    symlink(&outside, copy.join("sub")).unwrap();
    symlink(outside.join("target"), copy.join("file")).unwrap();
    fs::create_dir(copy.join("extra")).unwrap();
    fs::write(copy.join(".cudele-sync.1"), "of a killed run").unwrap();

    let planned = cluster.say(&["sync", "--dry-run", "/proj", "local:copy"]);
    assert!(planned.contains("replace     sub\n"), "{planned}");
    assert!(copy.join("sub").is_symlink() && copy.join(".cudele-sync.1").exists());

    sync(&cluster, &[], "local:copy");
    assert_eq!(fs::read(outside.join("target")).unwrap(), b"old");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert!(copy.join("sub/secret").exists() && !copy.join("sub").is_symlink());
    assert_eq!(fs::read(copy.join("file")).unwrap(), b"new");
    assert!(copy.join("extra").exists() && !copy.join(".cudele-sync.1").exists());

    // A directory is removed only if that was asked for.
    dir.create("extra", &NewFile::default()).unwrap();
    assert!(cluster.fails(1, &["sync", "/proj", "local:copy"]).contains("--delete"));
    assert!(copy.join("extra").is_dir());
    sync(&cluster, &["--delete"], "local:copy");
    assert!(copy.join("extra").is_file());

    // Without a source nothing is removed.
    let said = cluster.fails(1, &["sync", "--delete", "/none", "local:copy"]);
    assert!(said.contains("/none") && copy.join("file").exists(), "{said}");
}
