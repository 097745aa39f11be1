//! `programs`: unchanged programs work in one directory after the other: in memory (tmpfs), on
//! the disk, through the mount as it is by default, in a decoupled subtree, and on the file systems
//! of peers that were named.
//!
//! A program has one row for each place. A row of another place has its ratio to the disk and to
//! memory in the same repetition. Each repetition begins with another place, so that no place
//! always pays for the remains of the one before (ext4 avoids inodes that were deleted in the last
//! minutes). The trees of `tar`, `cp` and `rsync` are compared with the archive: content,
//! permissions, owners and times. A program that this machine lacks has no rows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cudele::Result;
use tempfile::TempDir;
use terminal::io;

use super::untar::task;
use super::untar::tree::Tree;
use crate::harness::cluster::TestCluster;
use crate::harness::job::Served;
use crate::harness::lab::{Lab, alone, policy};
use crate::harness::mounting::{self, Mount};
use crate::harness::peers::juicefs::Metadata;
use crate::harness::peers::{Fuse, cephfs, juicefs, seaweedfs};
use crate::harness::sheet::Sheet;

const BENCH: &str = "programs";
/// The inodes of the job's subtree.
const INODES: u64 = 500_000;
/// A decoupled subtree takes at most so many times the seconds of the disk.
const DECOUPLED_AT_MOST: f64 = 1.5;
const TIMES_LOCAL: &str = "times_local";

/// A program and the work that it does. In shell commands `$0` is the archive and `$1` the
/// directory.
struct Program {
    name: &'static str,
    /// Succeeds where the program can run.
    needs: &'static str,
    work: &'static str,
    /// Compares the result with the archive, without being measured.
    check: Option<&'static str>,
    /// Left out with `--quick`.
    is_slow: bool,
}

const fn program(name: &'static str, needs: &'static str, work: &'static str) -> Program {
    Program { name, needs, work, check: None, is_slow: false }
}

const fn checked(
    name: &'static str,
    needs: &'static str,
    work: &'static str,
    check: &'static str,
) -> Program {
    Program { name, needs, work, check: Some(check), is_slow: false }
}

const fn slow(name: &'static str, needs: &'static str, work: &'static str) -> Program {
    Program { name, needs, work, check: None, is_slow: true }
}

/// In the order in which they run.
const PROGRAMS: [Program; 17] = [
    checked(
        "tar_x",
        "command -v tar",
        "mkdir \"$1/tree\" && tar xf \"$0\" -C \"$1/tree\"",
        "tar df \"$0\" -C \"$1/tree\"",
    ),
    program("find", "command -v find", "find \"$1/tree\" > /dev/null"),
    program("find_again", "command -v find", "find \"$1/tree\" > /dev/null"),
    program("du", "command -v du", "du -s \"$1/tree\" > /dev/null"),
    program("ls_lR", "command -v ls", "ls -lR \"$1/tree\" > /dev/null"),
    program("grep_r", "command -v grep", "grep -r include \"$1/tree\" > /dev/null"),
    checked(
        "cp_a",
        "command -v cp",
        "cp -a \"$1/tree\" \"$1/copy\"",
        "tar df \"$0\" -C \"$1/copy\"",
    ),
    checked(
        "rsync",
        "command -v rsync",
        "rsync -a \"$1/tree/\" \"$1/synced/\"",
        "tar df \"$0\" -C \"$1/synced\"",
    ),
    program("tar_c", "command -v tar", "tar cf - -C \"$1\" tree | cat > /dev/null"),
    program(
        "git_add",
        "command -v git",
        "cd \"$1/tree\" && git init -q . && git -c gc.auto=0 add -A",
    ),
    program(
        "git_commit",
        "command -v git",
        "cd \"$1/tree\" && git -c user.name=bench -c user.email=bench@localhost -c gc.auto=0 \
         commit -q -m all",
    ),
    program("git_status", "command -v git", "cd \"$1/tree\" && git status > /dev/null"),
    program(
        "compile",
        "command -v cc && command -v make",
        "cd \"$(ls -d \"$1\"/copy/*/ | head -n 1)\" && if [ -x configure ]; then ./configure && make -j2; fi",
    ),
    slow(
        "cargo_build",
        "command -v cargo",
        "cargo init -q --vcs none --name hello \"$1/hello\" && cd \"$1/hello\" && \
         CARGO_TARGET_DIR=target cargo build -q --offline",
    ),
    program(
        "sqlite",
        "python3 -c 'import sqlite3'",
        "python3 -c '\
import sqlite3, sys
base = sqlite3.connect(sys.argv[1])
base.execute(\"create table t (k integer primary key, v text)\")
for k in range(100):
    with base:
        base.execute(\"insert into t values (?, ?)\", (k, \"v\" * 100))
assert base.execute(\"select count(*) from t\").fetchone() == (100,)
' \"$1/base.db\"",
    ),
    slow(
        "venv",
        "python3 -c 'import ensurepip, venv'",
        "python3 -m venv \"$1/venv\" && \"$1/venv/bin/python\" -c 'import pip'",
    ),
    program("rm_rf", "command -v rm", "rm -rf \"$1\"/*"),
];

/// A directory in which the programs work. Dropping it unmounts its file system.
struct Place {
    name: &'static str,
    dir: PathBuf,
    behind: Behind,
}

enum Behind {
    Local { _dir: TempDir },
    Ours { mount: Mount, merges: bool },
    Peer { _fuse: Fuse },
}

impl Place {
    fn local(name: &'static str, at: &Path) -> Result<Self> {
        let dir = tempfile::tempdir_in(at).map_err(|error| io(at, &error))?;
        Ok(Self { name, dir: dir.path().to_owned(), behind: Behind::Local { _dir: dir } })
    }

    fn ours(cluster: &TestCluster) -> Result<Self> {
        let path = cluster.directory(Some(&policy("posix", INODES)?))?;
        let mount = Mount::new(cluster, Served::Namespace)?;
        let dir = mount.dir(&path);
        Ok(Self { name: "mount", dir, behind: Behind::Ours { mount, merges: false } })
    }

    fn decoupled(cluster: &TestCluster) -> Result<Self> {
        let (mount, dir) = mounting::decoupled(cluster, INODES, true)?;
        Ok(Self { name: "decoupled", dir, behind: Behind::Ours { mount, merges: true } })
    }

    fn peer(name: &'static str, fuse: Fuse, repetition: u32) -> Result<Self> {
        let dir = fuse.dir().join(format!("{BENCH}.{}.{repetition}", std::process::id()));
        std::fs::create_dir(&dir).map_err(|error| io(&dir, &error))?;
        Ok(Self { name, dir, behind: Behind::Peer { _fuse: fuse } })
    }

    /// Ends it; returns the seconds of a merge.
    fn end(self) -> Result<Option<f64>> {
        match self.behind {
            Behind::Ours { mount, merges } => {
                let outcome = mount.end()?;
                Ok(merges.then(|| outcome.part("merge")))
            }
            Behind::Local { .. } | Behind::Peer { .. } => Ok(None),
        }
    }
}

/// The places that this machine has, by name; each is opened when it is its turn.
fn names(lab: &Lab) -> Vec<&'static str> {
    let memory = Path::new("/dev/shm").is_dir().then_some("tmpfs");
    let cephfs = lab.cephfs.is_some().then_some("cephfs");
    let badger = lab.juicefs.is_some().then_some("juicefs_badger");
    let redis = (lab.juicefs.is_some() && juicefs::has_redis()).then_some("juicefs_redis");
    let seaweedfs = lab.seaweedfs.is_some().then_some("seaweedfs");
    let ours = [Some("mount"), Some("decoupled")];
    let all = [memory, Some("local")].into_iter().chain(ours);
    all.chain([cephfs, badger, redis, seaweedfs]).flatten().collect()
}

fn open(lab: &Lab, cluster: &TestCluster, name: &'static str, repetition: u32) -> Result<Place> {
    match name {
        "tmpfs" => Place::local(name, Path::new("/dev/shm")),
        "local" => Place::local(name, &lab.place.parent),
        "mount" => Place::ours(cluster),
        "decoupled" => Place::decoupled(cluster),
        peer => Place::peer(name, peer_mount(lab, peer)?, repetition),
    }
}

/// Mounts the file system of a peer.
fn peer_mount(lab: &Lab, name: &str) -> Result<Fuse> {
    let (parent, none) = (&lab.place.parent, Path::new(""));
    let [ceph, juice, weed] =
        [&lab.cephfs, &lab.juicefs, &lab.seaweedfs].map(|path| path.as_deref().unwrap_or(none));
    match name {
        "cephfs" => cephfs::Peer::new(ceph).mount(),
        "juicefs_badger" => juicefs::mount(juice, parent, Metadata::Badger),
        "juicefs_redis" => juicefs::mount(juice, parent, Metadata::Redis),
        _ => seaweedfs::mount(weed, parent),
    }
}

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    mounting::possible()?;
    let tree = Tree::of(lab)?;
    let wanted = |program: &&Program| !(lab.quick && program.is_slow) && is_here(program);
    let programs: Vec<&Program> = PROGRAMS.iter().filter(wanted).collect();
    let names = names(lab);
    let mut sheet = Sheet::new(BENCH);
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        let cluster = lab.cluster(&[])?;
        cluster.store().clone_into(&mut store);
        let (mut seconds, mut merge) = (BTreeMap::new(), None);
        let first = usize::try_from(repetition).unwrap_or_default();
        for turn in 0..names.len() {
            let at = (first + turn) % names.len();
            let place = open(lab, &cluster, names[at], repetition)?;
            for (number, program) in programs.iter().enumerate() {
                lab.progress(BENCH, repetition, &format!("{} in {}", program.name, place.name));
                let took = alone(&cluster, task(program.work, &tree, &place.dir))?.seconds();
                seconds.insert((number, at), took);
                if let Some(check) = program.check {
                    alone(&cluster, task(check, &tree, &place.dir))?;
                }
            }
            merge = place.end()?.or(merge);
        }
        for ((number, at), took) in &seconds {
            let name = format!("{}_{}", programs[*number].name, names[*at]);
            let row = sheet.row(&name, tree.entries());
            row.push(*took);
            for (base, ratio) in [("tmpfs", "times_tmpfs"), ("local", TIMES_LOCAL)] {
                let base = names.iter().position(|name| *name == base).filter(|base| base != at);
                if let Some(base) = base.and_then(|base| seconds.get(&(*number, base))) {
                    row.note(ratio, took / base.max(1e-9));
                }
            }
        }
        if let Some(merge) = merge {
            sheet.row("rm_rf_decoupled", tree.entries()).note("merge_seconds", merge);
        }
    }
    for row in &mut sheet.rows {
        if row.name.ends_with("_decoupled") {
            row.limit(TIMES_LOCAL, DECOUPLED_AT_MOST);
        }
    }
    lab.report(&store, sheet.rows);
    Ok(())
}

/// Whether this machine has a program.
fn is_here(program: &Program) -> bool {
    let mut needs = Command::new("sh");
    needs.arg("-c").arg(program.needs);
    let needs = needs.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    needs.status().is_ok_and(|status| status.success())
}
