//! `check: merge`: journals with events that no request could cause, merged under a policy that
//! judges every event. The journals are made by hand, as a hostile client would.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use cudele::{Attr, AttrChange, Cluster, FileType, Fs, Ino, Locator, NewFile, Timestamp};
use journal::{Create, Event, InodeSnapshot, JournalBuffer, SegmentHeader, Writer};
use serde_json::{Value, json};
use types::rng::Rng;
use types::{ClientId, Epoch, Origin, Seq};

use crate::fixture::{Said, World};

const USER: u32 = 4242;
const LOCAL: &str = "consistency: append_client_journal+volatile_apply\ndurability: local_persist";
const GLOBAL: &str =
    "consistency: append_client_journal+volatile_apply\ndurability: global_persist";

fn mount(world: &World) -> Arc<Fs> {
    let cluster = Cluster::connect(&Locator::monitor_of(&world.path("c"))).unwrap();
    cluster.mount().unwrap()
}

/// A decoupled subtree and the journal that is made up for it.
struct Forged<'w> {
    world: &'w World,
    path: String,
    user: Option<u32>,
    root: Ino,
    header: SegmentHeader,
    state: PathBuf,
    next: u64,
    events: u64,
    journal: JournalBuffer,
}

impl<'w> Forged<'w> {
    /// Nothing if this process cannot become the user.
    fn new(world: &'w World, path: &str, user: Option<u32>, policy: &str) -> Option<Self> {
        let file = world.path("policy.yml");
        let terms = "interfere_policy: allow\nallocated_inodes: 1000\n";
        fs::write(&file, format!("{policy}\ncheck: merge\n{terms}")).unwrap();
        let file = file.to_str().unwrap();
        let said = run(world, user, &["--json", "decouple", path, file])?.done();
        let owner: Value = serde_json::from_str(&said.out).unwrap();
        let number = |key: &str| owner[key].as_u64().unwrap();
        let root = Ino(number("ino"));
        let writer = Writer::Client { client: ClientId(number("client")), subtree: root };
        Some(Self {
            world,
            path: path.to_owned(),
            user,
            root,
            header: SegmentHeader { writer, epoch: Epoch(number("epoch")), first_seq: Seq(1) },
            state: PathBuf::from(owner["state"].as_str().unwrap()),
            next: owner["inodes"][0][0].as_u64().unwrap(),
            events: 0,
            journal: JournalBuffer::new(Seq(1), false),
        })
    }

    fn time(&self) -> Timestamp {
        Timestamp(1_000_000_000_000_000_000 + self.events.cast_signed())
    }

    fn add(&mut self, event: &Event<'_>) {
        self.events += 1;
        self.journal.append(Origin::default(), event);
    }

    fn create_as(&mut self, parent: Ino, name: &str, mode: u32, (uid, gid): (u32, u32)) -> Ino {
        let (ino, time) = (Ino(self.next), self.time());
        self.next += 1;
        let name = name.as_bytes();
        let times = Create { time, mtime: time, atime: time, ..Create::default() };
        self.add(&Event::Create(Create { parent, name, ino, mode, uid, gid, ..times }));
        ino
    }

    fn create(&mut self, parent: Ino, name: &str) -> Ino {
        let uid = self.user.unwrap_or_default();
        self.create_as(parent, name, FileType::Regular.mode_bits() | 0o644, (uid, uid))
    }

    fn mkdir(&mut self, parent: Ino, name: &str) -> Ino {
        let uid = self.user.unwrap_or_default();
        self.create_as(parent, name, FileType::Directory.mode_bits() | 0o755, (uid, uid))
    }

    fn unlink(&mut self, parent: Ino, name: &str, ino: Ino) {
        self.add(&Event::Unlink { parent, name: name.as_bytes(), ino, time: self.time() });
    }

    fn rmdir(&mut self, parent: Ino, name: &str, ino: Ino) {
        self.add(&Event::Rmdir { parent, name: name.as_bytes(), ino, time: self.time() });
    }

    fn rename(&mut self, from: (Ino, &str), to: (Ino, &str), ino: Ino, mode: u32) {
        let attr = Attr { ino, mode, nlink: 1, ..Attr::default() };
        self.add(&Event::Rename {
            parent: from.0,
            name: from.1.as_bytes(),
            new_parent: to.0,
            new_name: to.1.as_bytes(),
            moved: InodeSnapshot { attr, ..InodeSnapshot::default() },
            exchanged: None,
            replaced: Ino(0),
            time: self.time(),
        });
    }

    fn link(&mut self, ino: Ino, home: Ino, (parent, name): (Ino, &str)) {
        let mode = FileType::Regular.mode_bits() | 0o6777;
        let attr = Attr { ino, mode, nlink: 2, ..Attr::default() };
        let inode = InodeSnapshot { attr, ..InodeSnapshot::default() };
        let (name, time) = (name.as_bytes(), self.time());
        self.add(&Event::Link { parent, name, ino, home, inode, time });
    }

    fn set(&mut self, ino: Ino, home: Ino, change: AttrChange) {
        self.add(&Event::SetAttr { ino, home, change, time: self.time() });
    }

    fn bytes(&mut self) -> Vec<u8> {
        self.journal.close_block();
        [&self.header.encode()[..], &self.journal.blocks().concat()].concat()
    }

    fn run(&self, arguments: &[&str]) -> Said {
        run(self.world, self.user, &[arguments, &[self.path.as_str()]].concat()).unwrap().done()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[&["--json"], arguments].concat()).out).unwrap()
    }

    /// Puts the journal where its client keeps it.
    fn save(&mut self) {
        let bytes = self.bytes();
        fs::write(self.state.join(format!("journal.{:016x}", 1)), bytes).unwrap();
    }

    /// The report of a dry run and then the merge, which must be the same.
    fn merge(&mut self) -> Value {
        self.save();
        let [planned, done] = [&["merge", "--dry-run"][..], &["merge"]].map(|run| {
            let mut report = self.json(run);
            let report = report.as_object_mut().unwrap();
            let facts = ["events", "created", "replaced", "rejected", "conflicts"];
            facts.map(|key| (key, report[key].take())).into_iter().collect::<BTreeMap<_, _>>()
        });
        assert_eq!(planned, done);
        json!(done)
    }
}

fn run(world: &World, user: Option<u32>, arguments: &[&str]) -> Option<Said> {
    match user {
        Some(uid) => world.run_as(uid, arguments),
        None => Some(world.run(arguments)),
    }
}

fn conflicts(report: &Value) -> Vec<(&str, &str)> {
    let word = |sample: &Value, key: &str| sample[key].as_str().map(str::to_owned);
    assert!(report["conflicts"].as_array().unwrap().iter().all(|c| word(c, "path").is_some()));
    let all = report["conflicts"].as_array().unwrap().iter();
    all.map(|sample| (sample["errno"].as_str().unwrap(), sample["path"].as_str().unwrap()))
        .collect()
}

/// Every name below a directory with its kind, owner, mode, size and links.
fn tree(fs: &Arc<Fs>, path: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for entry in fs.open_dir(path).unwrap().list().unwrap() {
        let below = format!("{path}/{}", String::from_utf8(entry.name).unwrap());
        // A listing need not know how many directories there are in a directory.
        let attr = if entry.attr.is_dir() { fs.stat(&below).unwrap() } else { entry.attr };
        let Attr { mode, uid, gid, nlink, size, mtime, .. } = attr;
        if entry.attr.is_dir() {
            all.extend(tree(fs, &below));
        }
        all.insert(below, format!("{mode:o} {uid}:{gid} {nlink} {size} {mtime:?}"));
    }
    all
}

/// Objects of other users in the user's directory: a directory, a sticky one, one below a private
/// one, one that is not empty, and files in the first two.
fn others(fs: &Arc<Fs>) -> [Ino; 6] {
    let job = fs.make_dir("/job", 0o755).unwrap();
    let to_user = AttrChange { uid: Some(USER), gid: Some(USER), ..AttrChange::default() };
    fs.set_attr(job.ino, &to_user).unwrap();
    let theirs = fs.make_dir("/job/theirs", 0o755).unwrap().ino;
    let sticky = fs.make_dir("/job/sticky", 0o1777).unwrap().ino;
    fs.make_dir("/job/private", 0o700).unwrap();
    let inner = fs.make_dir("/job/private/inner", 0o777).unwrap().ino;
    fs.make_dir("/job/full/x", 0o755).unwrap();
    let full = fs.stat("/job/full").unwrap().ino;
    for dir in ["/job/theirs", "/job/sticky"] {
        fs.open_dir(dir).unwrap().create("f", &NewFile::default()).unwrap();
    }
    let inode_of = |path: &str| fs.stat(path).unwrap().ino;
    let [their_file, sticky_file] = ["/job/theirs/f", "/job/sticky/f"].map(inode_of);
    [theirs, sticky, inner, full, their_file, sticky_file]
}

/// Forbidden events of a user, and some that are allowed.
fn misbehave(job: &mut Forged<'_>, others: [Ino; 6]) {
    let root = job.root;
    let [theirs, sticky, inner, full, their_file, sticky_file] = others;
    let own = job.create(root, "own");
    job.create(root, "name");
    job.create(theirs, "x");
    job.create(inner, "x");
    let regular = FileType::Regular.mode_bits();
    job.create_as(root, "of root", regular | 0o4755, (0, USER));
    job.create_as(root, "of group", regular | 0o2755, (USER, 0));
    job.unlink(root, "missing", Ino(0));
    job.unlink(theirs, "f", their_file);
    job.unlink(sticky, "f", sticky_file);
    job.rename((sticky, "f"), (root, "taken"), sticky_file, regular);
    job.rename((root, "missing"), (root, "moved"), own, regular);
    job.rename((root, "own"), (root, "name"), own, regular);
    job.rename((root, "own"), (theirs, "own"), own, regular);
    job.link(own, root, (root, "name"));
    job.unlink(root, "name", own);
    job.unlink(root, "full", full);
    job.rmdir(root, "own", own);
    job.rmdir(root, "missing", Ino(0));
    let mode = |mode| AttrChange { mode: Some(mode), ..AttrChange::default() };
    job.set(their_file, theirs, mode(0o4777));
    let time = AttrChange { mtime: Some(Timestamp(1)), ..AttrChange::default() };
    job.set(their_file, theirs, time);
    job.set(own, root, AttrChange { uid: Some(0), ..AttrChange::default() });
    job.set(own, root, AttrChange { gid: Some(0), ..AttrChange::default() });
    let dir = job.mkdir(theirs, "d");
    let below = job.mkdir(dir, "e");
    job.create(below, "f");
    // These are as they should be, but for the set-id bits that a change of the group takes away.
    job.set(own, root, mode(0o4755));
    job.set(own, root, AttrChange { gid: Some(USER), ..AttrChange::default() });
    job.link(own, root, (root, "second"));
}

const MISBEHAVIOUR: [(&str, &str); 24] = [
    ("EEXIST", "/job/name"),
    ("EACCES", "/job/theirs/x"),
    ("EACCES", "/job/private/inner/x"),
    ("EPERM", "/job/of root"),
    ("EPERM", "/job/of group"),
    ("ENOENT", "/job/missing"),
    ("EACCES", "/job/theirs/f"),
    ("EPERM", "/job/sticky/f"),
    ("EPERM", "/job/sticky/f"),
    ("ENOENT", "/job/missing"),
    ("EEXIST", "/job/own"),
    ("EACCES", "/job/own"),
    ("EEXIST", "/job/name"),
    ("ESTALE", "/job/name"),
    ("EISDIR", "/job/full"),
    ("ENOTDIR", "/job/own"),
    ("ENOENT", "/job/missing"),
    ("EPERM", "/job/theirs/f"),
    ("EPERM", "/job/theirs/f"),
    ("EPERM", "/job/own"),
    ("EPERM", "/job/own"),
    ("EACCES", "/job/theirs/d"),
    ("EACCES", "/job/theirs/d/e"),
    ("EACCES", "/job/theirs/d/e/f"),
];

#[test]
fn events_beyond_the_users_permissions_are_rejected_with_an_errno() {
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root makes files of several users");
        return;
    }
    let world = World::new();
    let fs = mount(&world);
    let others = others(&fs);
    let Some(mut job) = Forged::new(&world, "/job", Some(USER), LOCAL) else { return };
    fs.open_dir("/job").unwrap().create("name", &NewFile::default()).unwrap();
    misbehave(&mut job, others);
    job.save();
    let diff = job.run(&["diff"]).out;
    assert!(diff.contains("rejected /job/name: file exists (EEXIST)"), "{diff}");
    let report = job.merge();
    assert_eq!(conflicts(&report), MISBEHAVIOUR);
    assert_eq!((&report["created"], &report["rejected"]), (&json!(1), &json!(24)));
    let own = fs.stat("/job/own").unwrap();
    assert_eq!((own.mode, own.uid, own.nlink), (FileType::Regular.mode_bits() | 0o755, USER, 2));
    assert_eq!(fs.stat("/job/theirs/f").unwrap().mode & 0o7777, 0o644);
    assert_eq!(fs.stat("/job/name").unwrap().uid, 0);
}

/// Events on few names, most of which another user has made, moved or removed.
fn gamble(job: &mut Forged<'_>, dice: &mut Rng, known: &[(Ino, bool)]) {
    const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
    let mut dirs = vec![job.root];
    dirs.extend(known.iter().filter(|(_, is_dir)| *is_dir).map(|(ino, _)| *ino));
    let mut files: Vec<Ino> =
        known.iter().filter(|(_, is_dir)| !is_dir).map(|(ino, _)| *ino).collect();
    for _ in 0..60 {
        let (dir, to) = (dirs[dice.index(dirs.len())], dirs[dice.index(dirs.len())]);
        let (name, new) = (NAMES[dice.index(5)], NAMES[dice.index(5)]);
        let named = files.get(dice.index(files.len() + 1)).copied().unwrap_or_default();
        let directory = dirs[dice.index(dirs.len())];
        let (regular, folder) = (FileType::Regular.mode_bits(), FileType::Directory.mode_bits());
        match dice.index(9) {
            0 | 1 => files.push(job.create(dir, name)),
            2 => dirs.push(job.mkdir(dir, name)),
            3 => job.unlink(dir, name, Ino(0)),
            4 => job.rmdir(dir, name, Ino(0)),
            5 if named.0 != 0 => job.rename((dir, name), (to, new), named, regular),
            6 if directory != job.root => job.rename((dir, name), (to, new), directory, folder),
            7 if named.0 != 0 => job.link(named, dir, (to, new)),
            8 if named.0 != 0 => {
                job.set(named, dir, AttrChange { mode: Some(0o600), ..AttrChange::default() });
            }
            _ => job.unlink(dir, name, named),
        }
    }
}

/// Existing objects, and the interfering changes.
fn interfere(fs: &Arc<Fs>, path: &str) -> Vec<(Ino, bool)> {
    let mut known = Vec::new();
    for name in ["a", "d"] {
        let below = format!("{path}/{name}");
        known.push((fs.make_dir(&below, 0o755).unwrap().ino, true));
        let below = fs.open_dir(&below).unwrap();
        known.push((below.create("b", &NewFile::default()).unwrap().ino, false));
    }
    known
}

#[test]
fn a_dry_run_reports_what_the_merge_then_does() {
    let world = World::new();
    let fs = mount(&world);
    for seed in 0..12 {
        let path = format!("/job{seed}");
        fs.make_dir(&path, 0o755).unwrap();
        let mut known = interfere(&fs, &path);
        let policy = if seed % 2 == 0 { LOCAL } else { GLOBAL };
        let mut job = Forged::new(&world, &path, None, policy).unwrap();
        let dir = fs.open_dir(&path).unwrap();
        known.push((dir.create("c", &NewFile::default()).unwrap().ino, false));
        if seed % 3 == 0 {
            fs.open_dir(format!("{path}/a")).unwrap().unlink("b").unwrap();
            dir.rename("d", &dir, "b", cudele::RenameFlags::default()).unwrap();
        }
        gamble(&mut job, &mut Rng::new(seed), &known);
        let report = job.merge();
        assert_eq!(report["events"], json!(60), "{report}");
        assert_eq!(report["replaced"], json!(0), "nobody loses anything: {report}");
        assert!(report["rejected"].as_u64().unwrap() > 0, "{report}");
    }
}

#[test]
fn recovery_does_not_repeat_rejected_events() {
    let world = World::new();
    let fs = mount(&world);
    for seed in 0..4 {
        let path = format!("/job{seed}");
        fs.make_dir(&path, 0o755).unwrap();
        let known = interfere(&fs, &path);
        let mut job = Forged::new(&world, &path, None, GLOBAL).unwrap();
        fs.open_dir(&path).unwrap().create("c", &NewFile::default()).unwrap();
        let root = job.root;
        // Rejected events between accepted ones, which they would hinder.
        job.create(root, "one");
        job.create(root, "c");
        let lost = job.mkdir(root, "a");
        job.create(lost, "below");
        job.create(root, "two");
        gamble(&mut job, &mut Rng::new(100 + seed), &known);
        let report = job.merge();
        assert!(report["rejected"].as_u64().unwrap() > 3, "{report}");
    }
    let before: Vec<_> = (0..4).map(|seed| tree(&fs, &format!("/job{seed}"))).collect();
    assert!(before[0].len() > 4);
    world.crash();
    let fs = mount(&world);
    for (seed, before) in before.iter().enumerate() {
        assert_eq!(&tree(&fs, &format!("/job{seed}")), before);
    }
}

#[test]
fn the_policy_has_a_journal_checked_whatever_its_client_asks_for() {
    let world = World::new();
    let fs = mount(&world);
    fs.make_dir("/job", 0o755).unwrap();
    let mut job = Forged::new(&world, "/job", None, LOCAL).unwrap();
    let Writer::Client { client, subtree } = job.header.writer else { panic!("a client's") };
    let theirs = fs.open_dir("/job").unwrap().create("name", &NewFile::default()).unwrap();
    job.create(subtree, "name");
    let owner = fs.cluster().mount_as(client).unwrap();
    // This asks for no check.
    let report = owner.apply_journal(subtree, &job.bytes(), false).unwrap();
    assert_eq!((report.created, report.replaced, report.rejected), (0, 0, 1));
    assert_eq!(report.samples[0].errno, Some(cudele::Errno::Exists));
    assert_eq!(fs.stat("/job/name").unwrap().ino, theirs.ino);
}
