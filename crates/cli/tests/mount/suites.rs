//! Longer runs of programs that people work with, in a posix subtree and as a job each. The scripts
//! are in `suites/`; each gets a directory, and fails if something is wrong in it.
//!
//! `cargo xtask long` runs them all, `cargo xtask long git` one; they need Debian packages.

use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::mounts::{Mount, cluster, job, script, transcript};

/// Runs a script in both kinds of subtree.
fn both(name: &str, text: &str) {
    let Some(world) = cluster() else { return };
    let mount = Mount::new(&world);
    let directory = mount.path("suite");
    fs::create_dir(&directory).unwrap();
    let local = world.path("local");
    fs::create_dir(&local).unwrap();
    report(name, "posix subtree", || {
        transcript(&mut script(text, &[directory.as_os_str(), local.as_os_str()]))
    });
    mount.end();
    let again = world.path("again");
    fs::create_dir(&again).unwrap();
    report(name, "decoupled subtree", || {
        let mut command = job(&world, "/job", text, &["{}".as_ref(), again.as_os_str()]);
        // The home of a job of these tests is its cluster's: cargo's downloads are in another one.
        let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
        let cargo = std::env::var_os("CARGO_HOME").or(home.map(Into::into));
        transcript(command.env("CARGO_HOME", cargo.unwrap_or_default()))
    });
}

fn report(name: &str, place: &str, run: impl FnOnce() -> (bool, String)) {
    let start = Instant::now();
    let (well, said) = run();
    assert!(well, "{name} in a {place}:\n{said}");
    println!("{name} in a {place}: {:.1} s", start.elapsed().as_secs_f64());
    let last = said.lines().rev().take(12).collect::<Vec<_>>();
    last.into_iter().rev().for_each(|line| println!("    {line}"));
}

macro_rules! suites {
    ($($name:ident),*) => {$(
        #[test]
        #[ignore = "long: cargo xtask long"]
        fn $name() {
            let name = stringify!($name);
            both(name, include_str!(concat!("suites/", stringify!($name), ".sh")));
        }
    )*};
}

suites!(fsmark, git, build, rust, sqlite, rsync, tar, kernel);

/// Every script is run by a test.
#[test]
fn every_script_is_a_test() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mount/suites");
    assert_eq!(fs::read_dir(scripts).unwrap().count(), 8);
}
