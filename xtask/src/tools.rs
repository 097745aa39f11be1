//! Third-party programs that test any file system: the tests of the mount run them.
//!
//! Each program is built once, from crates.io, in exactly one version, below the build directory.
//! Programs that a distribution packages are not here: `SUITES` names those.
//!
//! Invariant: a test that needs one of them fails without it, and names this chore.

use std::path::{Path, PathBuf};

use crate::run::{Cargo, Failure, Outcome};

/// Program and version. A newer version may test more: change it here, and read its findings.
const TOOLS: [(&str, &str); 2] = [("pjdfstest", "0.2.2"), ("fsx", "0.3.2")];

/// Debian packages that the longer suites need besides.
const SUITES: [&str; 9] =
    ["stress-ng", "fio", "dbench", "fsmark", "git", "gcc", "make", "sqlite3", "rsync"];

/// Builds the missing programs.
pub(crate) fn install(root: &Path) -> Outcome {
    let place = place(root);
    TOOLS.iter().try_for_each(|tool| build(root, &place, tool))
}

/// The programs' directory: inside the build directory, so that a cache of the latter keeps them.
fn place(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    root.join(target.unwrap_or_else(|| PathBuf::from("target"))).join("tools")
}

fn build(root: &Path, place: &Path, (name, version): &(&str, &str)) -> Outcome {
    let list = std::fs::read_to_string(place.join(".crates.toml")).unwrap_or_default();
    if list.contains(&format!("\"{name} {version} ")) && place.join("bin").join(name).is_file() {
        return Ok(());
    }
    println!("building {name} {version}, once");
    let (at, builds) = (place.display().to_string(), place.join("build").display().to_string());
    let wanted = format!("{name}@={version}");
    Cargo::new(&["install", "--quiet", "--locked", "--force", "--root", &at])
        .and(&["--target-dir", &builds, &wanted])
        .run(root)
}

/// The tests that judge whether a mount is a file system, unless the caller names some: pjdfstest
/// and fsx.
const MOUNT_TESTS: [&str; 2] = ["posix::", "fsx::"];

/// Runs tests of the mount with the object store in a real Ceph cluster, which lives as long as the
/// tests.
pub(crate) fn mount_on_ceph(root: &Path, tests: &[&str]) -> Outcome {
    install(root)?;
    let dir = place(root).with_file_name("ceph-mount");
    let at = dir.display().to_string();
    let ceph = |word: &str| {
        Cargo::new(&["run", "--quiet", "-p", "testceph", "--", word, "--dir", &at]).run(root)
    };
    ceph("up")?;
    let tests = if tests.is_empty() { &MOUNT_TESTS } else { tests };
    let ran = Cargo::new(&["test", "-p", "cli", "--test", "mount", "--", "--test-threads", "1"])
        .and(tests)
        .with("CUDELE_TEST_STORE", format!("rados://test?conf={at}/ceph.conf"))
        .run(root);
    ran.and(ceph("down"))
}

/// Runs the longer suites, or only the suites with the argument in their names.
pub(crate) fn suites(root: &Path, arguments: &[&str]) -> Outcome {
    let missing = |program: &&&str| {
        // A package is not always called as its program is.
        let program = if **program == "fsmark" { "fs_mark" } else { **program };
        !std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
    };
    let missing: Vec<&str> = SUITES.iter().filter(missing).copied().collect();
    if !missing.is_empty() {
        let packages = missing.join(" ");
        return Err(Failure::Failed(format!("missing: apt-get install {packages}")));
    }
    install(root)?;
    Cargo::new(&["test", "-p", "cli", "--test", "mount", "--", "--ignored", "--nocapture"])
        .and(&["--test-threads", "1"])
        .and(arguments)
        .run(root)
}
