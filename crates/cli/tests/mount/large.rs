//! Directories with very many entries, listed through a mount: no name is missing, and none comes
//! twice. The cost is printed, memory as well.
//!
//! `cargo xtask long large_` runs these; `CUDELE_TEST_STEPS` says how many entries there are.

use std::fs::{self, File};
use std::path::Path;
use std::time::Instant;

use cudele::{Cluster, Locator, NewFile};

use crate::fixture::World;
use crate::mounts::{Mount, cluster, script, steps, transcript};

/// The largest amount of memory that a process had, in MiB.
fn memory(pid: u64) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).expect("what procfs says");
    kib.parse::<u64>().expect("a number") / 1024
}

fn report(what: &str, count: u64, start: Instant, world: &World, mount: Option<&Mount>) {
    let seconds = start.elapsed().as_secs_f64();
    let server = world.json(&["status"])["mds"][0]["pid"].as_u64().expect("a server runs");
    let of_mount = mount.map_or(0, |mount| memory(mount.pid().into()));
    println!(
        "{what}: {count} in {seconds:.1} s; server {} MiB, mount {of_mount} MiB",
        memory(server)
    );
}

fn name(number: u64) -> String {
    format!("file.{number:08}")
}

/// Reads a directory in which there are these files and nothing else.
fn check(dir: &Path, count: u64) {
    let mut seen = vec![false; usize::try_from(count).unwrap()];
    for entry in fs::read_dir(dir).unwrap() {
        let found = entry.unwrap().file_name().into_string().unwrap();
        let number = found.strip_prefix("file.").and_then(|number| number.parse::<u64>().ok());
        let number = number.unwrap_or_else(|| panic!("{found} was never made"));
        let place = seen.get_mut(usize::try_from(number).unwrap());
        let before = std::mem::replace(place.unwrap_or_else(|| panic!("{found}")), true);
        assert!(!before, "{found} is listed twice");
    }
    let missing = seen.iter().position(|seen| !seen);
    assert_eq!(missing, None, "a file is not listed");
}

fn list(world: &World, mount: &Mount, dir: &Path, count: u64) {
    let start = Instant::now();
    check(dir, count);
    report("listed", count, start, world, Some(mount));
    let start = Instant::now();
    let (well, said) = transcript(&mut script("ls -U \"$1\" | wc -l", &[dir.as_os_str()]));
    assert!(well && said.trim() == count.to_string(), "{said}");
    report("ls -U", count, start, world, Some(mount));
}

#[test]
#[ignore = "long: cargo xtask long"]
fn large_directory_of_a_job() {
    let Some(world) = cluster() else { return };
    let count = steps().unwrap_or(10_000_000);
    let client = Cluster::connect(&Locator::monitor_of(&world.path("c"))).unwrap();
    let client = client.mount().unwrap();
    client.make_dir("/large", 0o755).unwrap();
    let mut policy = policy::policy_named("batchfs").unwrap();
    policy.allocated_inodes = count + 100;
    let mut job = client.decouple("/large", &policy).unwrap();
    let start = Instant::now();
    let root = job.root();
    for number in 0..count {
        job.create(root, name(number).as_bytes(), &NewFile::default()).unwrap();
    }
    report("created", count, start, &world, None);
    let start = Instant::now();
    job.merge().unwrap();
    job.forget().unwrap();
    report("persisted and merged", count, start, &world, None);
    let mount = Mount::new(&world);
    let dir = mount.path("large");
    list(&world, &mount, &dir, count);
    mount.end();
}

#[test]
#[ignore = "long: cargo xtask long"]
fn large_directory_of_a_mount() {
    let Some(world) = cluster() else { return };
    let count = steps().unwrap_or(1_000_000);
    let mount = Mount::new(&world);
    let dir = mount.path("large");
    fs::create_dir(&dir).unwrap();
    let start = Instant::now();
    for number in 0..count {
        drop(File::create_new(dir.join(name(number))).unwrap());
    }
    report("created", count, start, &world, Some(&mount));
    list(&world, &mount, &dir, count);
    let start = Instant::now();
    let (well, said) = transcript(&mut script("rm -r \"$1\"", &[dir.as_os_str()]));
    assert!(well, "{said}");
    report("removed", count, start, &world, Some(&mount));
    assert_eq!(fs::read_dir(mount.at()).unwrap().count(), 0);
    mount.end();
}
