//! Random steps in one directory through two mounts at once, and the same steps on tmpfs: the
//! answers are equal, and so is the tree after every step.
//!
//! Content is as close-to-open promises: while a file is open, only the mount where it is open
//! touches its content and takes its names away. Everything else happens on either side.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use types::rng::Rng;

use crate::mounts::{Mount, cluster, new_seed, seed, steps};
use crate::steps::{Answer, Files, How, Name, OPEN_MAX, Step, Use, take, tree};

const STEPS: u64 = 1500;
/// Where the child of the second test finds its directories: the job's, and the reference.
const DIRECTORY: &str = "CUDELE_JOB";
const REFERENCE: &str = "CUDELE_TEST_REFERENCE";

/// Few names, so that they meet; some are directories above other ones.
const NAMES: [Name; 16] = [
    "a", "b", "c", "d", "e", "d/a", "d/b", "d/c", "d/d", "e/a", "e/b", "e/d", "d/d/a", "d/d/b",
    "e/d/a", "d/d/e",
];
/// Around where content moves from the inode to the object store, and between two objects.
const LENGTHS: [u64; 8] = [0, 1, 100, 4095, 4096, 4097, 10_000, 4_194_300];

#[test]
fn two_mounts_do_as_tmpfs_does() {
    two_mounts("", seed(1));
}

#[test]
fn two_mounts_do_as_tmpfs_does_where_stripes_are_small() {
    two_mounts("inline_bytes: 10000\nstripe_bytes: 1048576\n", seed(3));
}

#[test]
fn a_job_does_as_tmpfs_does_and_is_merged_like_that() {
    a_job(seed(2));
}

#[test]
#[ignore = "long: cargo xtask long"]
fn the_model_at_length() {
    let first = new_seed();
    for seed in first..first + 20 {
        let policies = ["", "inline_bytes: 0\n", "inline_bytes: 65536\nstripe_bytes: 65536\n"];
        two_mounts(policies[usize::try_from(seed % 3).unwrap()], seed);
        a_job(seed);
    }
}

fn two_mounts(policy: &str, seed: u64) {
    let Some(world) = cluster() else { return };
    let file = world.path("policy.yml");
    fs::write(&file, policy).unwrap();
    world.run(&["policy", "set", "/", file.to_str().unwrap()]).done();
    let (one, two) = (Mount::new(&world), Mount::new(&world));
    fs::create_dir(one.path("model")).unwrap();
    let memory = tempfile::tempdir_in("/dev/shm").expect("a tmpfs");
    let mut pair = Pair::new(vec![one.path("model"), two.path("model")], memory.path());
    pair.go(seed, steps().unwrap_or(STEPS));
    drop(pair);
    one.end();
    two.end();
}

fn a_job(seed: u64) {
    let Some(world) = cluster() else { return };
    let memory = tempfile::tempdir_in("/dev/shm").expect("a tmpfs");
    let mut job = world.command(&["run", "--policy", "batchfs", "/job", "--"]);
    job.arg(std::env::current_exe().unwrap()).args(["--exact", "model::child", "--ignored"]);
    job.env(REFERENCE, memory.path()).env("CUDELE_TEST_SEED", seed.to_string());
    assert!(job.status().expect("the program runs").success());
    let mount = Mount::new(&world);
    let all = |_: &fs::Metadata| false;
    assert_eq!(tree(&mount.path("job"), &all), tree(memory.path(), &all));
    mount.end();
}

/// The job of the test before runs this.
#[test]
#[ignore = "only within a job"]
fn child() {
    let (Some(directory), Some(reference)) =
        (std::env::var_os(DIRECTORY), std::env::var_os(REFERENCE))
    else {
        return;
    };
    Pair::new(vec![directory.into()], Path::new(&reference)).go(seed(2), steps().unwrap_or(STEPS));
}

/// The directory as one or two mounts show it, and the reference.
struct Pair {
    sides: Vec<PathBuf>,
    reference: PathBuf,
    files: Files,
    twins: Files,
    /// On which side each file is open.
    side: [usize; OPEN_MAX],
    chance: Rng,
}

impl Pair {
    fn new(sides: Vec<PathBuf>, reference: &Path) -> Self {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        let open = rustix::fs::Mode::from_raw_mode(0o755);
        rustix::fs::chmod(reference, open).unwrap();
        Self {
            sides,
            reference: reference.to_owned(),
            files: Files::default(),
            twins: Files::default(),
            side: [0; OPEN_MAX],
            chance: Rng::new(0),
        }
    }

    fn go(&mut self, seed: u64, steps: u64) {
        println!("seed {seed}");
        self.chance = Rng::new(seed);
        let mut done: Vec<String> = Vec::new();
        for number in 0..steps {
            let step = self.choose();
            let side = self.side_of(step);
            let expected = take(&self.reference, &mut self.twins, step);
            let answer = self.answer(side, step);
            done.push(format!("{number} on {side}: {step:?} {:?}", expected.as_ref().err()));
            let told = || done[done.len().saturating_sub(40)..].join("\n");
            assert!(
                same(&answer, &expected),
                "{}\nanswered {:?}, expected {:?}",
                told(),
                short(&answer),
                short(&expected)
            );
            if let Step::Open(slot, ..) = step {
                self.side[slot] = side;
            }
            let looked = self.chance.index(self.sides.len());
            if let Some(difference) = self.difference(looked) {
                panic!("{}\nthen side {looked} shows {difference}", told());
            }
        }
        (self.files, self.twins) = (Files::default(), Files::default());
        for side in 0..self.sides.len() {
            assert_eq!(self.difference(side), None, "at the end, side {side}");
        }
        println!("{steps} steps agree");
    }

    /// The answer of a side. During a rename, Linux overlooks that another mount has just moved a
    /// directory (`__d_unalias`), and returns `ESTALE`: then the directory is looked up before.
    fn answer(&mut self, side: usize, step: Step) -> rustix::io::Result<Answer> {
        let root = &self.sides[side];
        let answer = take(root, &mut self.files, step);
        let (Step::Rename(old, new) | Step::Move(old, new) | Step::Exchange(old, new)) = step
        else {
            return answer;
        };
        if answer != Err(rustix::io::Errno::STALE) {
            return answer;
        }
        let _ = (fs::symlink_metadata(root.join(old)), fs::symlink_metadata(root.join(new)));
        take(root, &mut self.files, step)
    }

    /// A difference between one side and the reference. Files that are open on the other side
    /// exist; their content is not promised.
    fn difference(&self, side: usize) -> Option<String> {
        let elsewhere: Vec<u64> =
            self.open().filter(|(_, at)| *at != side).map(|of| of.0).collect();
        let mirrored = self.open_here(side);
        let expected = tree(&self.reference, &|found| elsewhere.contains(&found.ino()));
        let shown = tree(&self.sides[side], &|found| mirrored.contains(&found.ino()));
        let differs = |(one, other): &(&_, &_)| one != other;
        let pair = shown.iter().zip(&expected).find(differs);
        let text = |entry: &(String, Answer, Answer)| {
            format!("{} {:?} {:?}", entry.0, entry.1, short(&Ok(entry.2.clone())))
        };
        match pair {
            Some((one, other)) => Some(format!("{}, expected {}", text(one), text(other))),
            None if shown.len() == expected.len() => None,
            None => Some(format!("{} entries, expected {}", shown.len(), expected.len())),
        }
    }

    /// Inodes of the reference that are open, and where.
    fn open(&self) -> impl Iterator<Item = (u64, usize)> {
        let slots = self.twins.iter().zip(self.side);
        slots.filter_map(|(file, side)| Some((file.as_ref()?.metadata().ok()?.ino(), side)))
    }

    /// Inodes of the namespace that are open on another side than this.
    fn open_here(&self, side: usize) -> Vec<u64> {
        let slots = self.files.iter().zip(self.side).filter(|(_, at)| *at != side);
        slots.filter_map(|(file, _)| Some(file.as_ref()?.metadata().ok()?.ino())).collect()
    }

    /// The side that must take a step: content of an open file belongs to the side that opened it.
    fn side_of(&mut self, step: Step) -> usize {
        let name = match step {
            Step::With(slot, _) => return self.side[slot],
            Step::Open(_, name, _)
            | Step::Read(name)
            | Step::Stat(name)
            | Step::Truncate(name, _)
            | Step::Times(name, _)
            | Step::Unlink(name)
            | Step::Rename(_, name) => name,
            Step::Create(..)
            | Step::MakeDir(..)
            | Step::Symlink(..)
            | Step::Fifo(_)
            | Step::Link(..)
            | Step::RemoveDir(_)
            | Step::Move(..)
            | Step::Exchange(..)
            | Step::Mode(..)
            | Step::Owner(..)
            | Step::List(_) => return self.chance.index(self.sides.len()),
        };
        let path = self.reference.join(name);
        let found = [fs::metadata(&path), fs::symlink_metadata(&path)];
        let inodes = found.iter().flatten().map(MetadataExt::ino).collect::<Vec<_>>();
        let place = self.open().find(|(ino, _)| inodes.contains(ino));
        place.map_or_else(|| self.chance.index(self.sides.len()), |(_, side)| side)
    }

    fn choose(&mut self) -> Step {
        let chance = &mut self.chance;
        let (one, two) = (chance.pick(&NAMES), chance.pick(&NAMES));
        let slot = chance.index(OPEN_MAX);
        let offset = chance.pick(&LENGTHS) + chance.index(3) as u64;
        let length = chance.pick(&[1, 10, 4096, 5000, 200_000]);
        let is_open = self.twins[slot].is_some();
        match chance.index(if is_open { 34 } else { 24 }) {
            0 | 1 => Step::Create(one, chance.pick(&[0o600, 0o644, 0o755, 0o4755])),
            2..=4 => Step::MakeDir(chance.pick(&["d", "e", "d/d", "e/d", one]), 0o755),
            5 => Step::Symlink(two, one),
            6 => Step::Fifo(one),
            7 => Step::Link(one, two),
            8 | 9 => Step::Unlink(one),
            10 => Step::RemoveDir(one),
            11 | 12 => Step::Rename(one, two),
            13 => Step::Move(one, two),
            14 => Step::Exchange(one, two),
            15 => Step::Mode(one, chance.pick(&[0o600, 0o640, 0o755, 0o2755, 0o1777])),
            16 => Step::Owner(one, chance.pick(&[0, 1, 65534])),
            17 => Step::Times(one, chance.pick(&[0, -5, 1_000_000_000, 4_102_444_800])),
            18 => Step::Truncate(one, offset),
            19 => Step::Read(one),
            20 => Step::List(one),
            21 => Step::Stat(one),
            22..=24 if !is_open => {
                let ways = [How::Read, How::Write, How::Create, How::Truncate, How::Append];
                Step::Open(slot, one, chance.pick(&ways))
            }
            22..=26 => Step::With(slot, Use::Write(offset, length, chance.pick(b"abcdefgh"))),
            27 | 28 => Step::With(slot, Use::Read(offset, length)),
            29 => Step::With(slot, Use::Resize(offset)),
            30 => Step::With(slot, Use::Sync),
            31 => Step::With(slot, Use::Stat),
            _ => Step::With(slot, Use::Close),
        }
    }
}

fn same(one: &rustix::io::Result<Answer>, other: &rustix::io::Result<Answer>) -> bool {
    one == other
}

/// Without content of megabytes.
fn short(answer: &rustix::io::Result<Answer>) -> String {
    match answer {
        Ok(Answer::Bytes(bytes)) => {
            let digest = xxhash_rust::xxh3::xxh3_64(bytes);
            let begin = String::from_utf8_lossy(&bytes[..bytes.len().min(16)]).into_owned();
            format!("{} bytes {begin:?}... {digest:016x}", bytes.len())
        }
        other => format!("{other:?}"),
    }
}
