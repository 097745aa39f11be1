//! fsx, the file system exerciser: random operations on one file, every byte compared.

use std::ffi::OsStr;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::fixture::World;
use crate::mounts::{Mount, cluster, job, new_seed, seed, steps, tool, transcript};

/// All it can do; sizes around where content moves from the inode to the object store and back, and
/// across the border between two objects.
const SETTINGS: [(&str, &str); 2] = [
    ("small", "flen = 16384\n[opsize]\nmax = 6000\n"),
    ("large", "flen = 9437184\n[opsize]\nmax = 262144\n"),
];
const WEIGHTS: &str = "[weights]\nclose_open = 2\nread = 10\nwrite = 10\nmapread = 10\n\
                       mapwrite = 10\ninvalidate = 2\ntruncate = 5\nfsync = 0.2\nfdatasync = 0.2\n\
                       posix_fallocate = 2\npunch_hole = 2\nsendfile = 2\nposix_fadvise = 1\n\
                       copy_file_range = 2\n";
/// A policy under which content leaves the inode at another length, and is in many objects.
const SMALL_STRIPES: &str = "inline_bytes: 9000\nstripe_bytes: 1048576\n";
/// Operations in one go, with one seed.
const GO: u64 = 10_000;
/// Unless told otherwise: so many operations...
const STEPS: u64 = 200_000;
/// ... as long as there is time.
const TIME_MAX: Duration = Duration::from_secs(40);

#[test]
fn fsx_on_a_posix_subtree() {
    on_a_posix_subtree("", seed(1), TIME_MAX);
}

#[test]
fn fsx_where_stripes_are_small() {
    on_a_posix_subtree(SMALL_STRIPES, seed(3), TIME_MAX / 2);
}

#[test]
fn fsx_in_a_decoupled_subtree() {
    in_a_decoupled_subtree(seed(2), TIME_MAX);
}

#[test]
#[ignore = "long: cargo xtask long"]
fn fsx_at_length() {
    on_a_posix_subtree("", new_seed(), Duration::MAX);
    on_a_posix_subtree(SMALL_STRIPES, new_seed(), Duration::MAX);
    in_a_decoupled_subtree(new_seed(), Duration::MAX);
}

fn on_a_posix_subtree(policy: &str, seed: u64, time: Duration) {
    let Some(world) = cluster() else { return };
    let file = world.path("policy.yml");
    fs::write(&file, policy).unwrap();
    world.run(&["policy", "set", "/", file.to_str().unwrap()]).done();
    let mount = Mount::new(&world);
    exercise(&world, (seed, time), &mut |arguments: &[&OsStr]| {
        let mut command = Command::new(tool("fsx"));
        command.args(arguments).arg(mount.path("file"));
        command
    });
    mount.end();
}

fn in_a_decoupled_subtree(seed: u64, time: Duration) {
    let Some(world) = cluster() else { return };
    let tool = tool("fsx");
    exercise(&world, (seed, time), &mut |arguments: &[&OsStr]| {
        let file = [OsStr::new("{}/file")];
        let all = [&[tool.as_os_str()], arguments, &file].concat();
        job(&world, "/job", "exec \"$@\"", &all)
    });
}

/// Goes with one seed after the other, until there were enough operations or the time is over.
fn exercise(
    world: &World,
    (first, time): (u64, Duration),
    command: &mut dyn FnMut(&[&OsStr]) -> Command,
) {
    let (all, start) = (steps().unwrap_or(STEPS), Instant::now());
    let mut made = 0;
    for seed in first.. {
        if made >= all || start.elapsed() > time {
            break;
        }
        let (name, text) = SETTINGS[usize::from(seed % 2 == 0)];
        let (settings, seed) = (world.path(name), seed.to_string());
        fs::write(&settings, format!("{text}{WEIGHTS}")).unwrap();
        let (go, left) = (GO.to_string(), world.path("."));
        let arguments: [&OsStr; 8] = [
            "-N".as_ref(),
            go.as_ref(),
            "-S".as_ref(),
            seed.as_ref(),
            "-P".as_ref(),
            left.as_os_str(),
            "-f".as_ref(),
            settings.as_os_str(),
        ];
        let (well, said) = transcript(&mut command(&arguments));
        assert!(well, "CUDELE_TEST_SEED={seed} ({name}):\n{said}");
        made += GO;
    }
    println!("{made} operations in {:.0?}", start.elapsed());
}
