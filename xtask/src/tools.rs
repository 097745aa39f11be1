//! Third-party programs: those that test any file system, which the tests of the mount run, and
//! mdBook, which builds the book.
//!
//! Each program is built once, from crates.io, in exactly one version, below the build directory.
//! Programs that a distribution packages are not here: `PACKAGES` names those.
//!
//! Invariant: a test that needs one of them fails without it, and names this chore.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Cargo, Failure, Outcome};

/// A program in one version.
struct Tool {
    name: &'static str,
    version: &'static str,
    /// Options of `cargo install`.
    options: &'static [&'static str],
}

/// A newer version may test more: change it here, and read its findings.
const TOOLS: [Tool; 2] = [
    Tool { name: "pjdfstest", version: "0.2.2", options: &[] },
    Tool { name: "fsx", version: "0.3.2", options: &[] },
];

/// Without the server of `mdbook serve` and without optimization: each would double the time of the
/// build.
const MDBOOK: Tool = Tool {
    name: "mdbook",
    version: "0.5.4",
    options: &["--debug", "--no-default-features", "--features", "search"],
};

/// The writers of packages. Little optimization: without any, the checksums of a package take
/// minutes, and with all of it the build of the writers does.
const PACKAGERS: [Tool; 2] = [
    Tool { name: "cargo-deb", version: "3.8.0", options: &LITTLE_OPTIMIZED },
    Tool { name: "cargo-generate-rpm", version: "0.21.1", options: &LITTLE_OPTIMIZED },
];
const LITTLE_OPTIMIZED: [&str; 3] = ["--debug", "--config", "profile.dev.opt-level=1"];

/// Debian packages that the long tests need besides.
const PACKAGES: [&str; 6] = ["fsmark", "git", "gcc", "make", "sqlite3", "rsync"];

/// Builds the missing programs.
pub(crate) fn install(root: &Path) -> Outcome {
    let place = place(root);
    TOOLS.iter().chain([&MDBOOK]).try_for_each(|tool| build(root, &place, tool))
}

/// A writer of packages, which is built if it is missing.
pub(crate) fn packager(root: &Path, name: &str) -> Result<PathBuf, Failure> {
    let place = place(root);
    let tool = PACKAGERS.iter().find(|tool| tool.name == name);
    let tool = tool.ok_or_else(|| Failure::Failed(format!("{name} is no known tool")))?;
    build(root, &place, tool)?;
    Ok(place.join("bin").join(name))
}

/// Builds the book of `docs/SUMMARY.md` into `book/` of the build directory.
pub(crate) fn book(root: &Path) -> Outcome {
    let place = place(root);
    build(root, &place, &MDBOOK)?;
    let (program, into) = (place.join("bin/mdbook"), place.with_file_name("book"));
    let mut command = Command::new(&program);
    command.args(["build", "docs", "--dest-dir"]).arg(&into).current_dir(root);
    match command.status() {
        Ok(status) if status.success() => {
            println!("the book: {}", into.join("index.html").display());
            Ok(())
        }
        Ok(_) => Err(Failure::Failed("mdbook cannot build docs; its output is above".into())),
        Err(error) => Err(Failure::Failed(format!("cannot start {}: {error}", program.display()))),
    }
}

/// The build directory of cargo.
pub(crate) fn target(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    root.join(target.unwrap_or_else(|| PathBuf::from("target")))
}

/// The programs' directory: inside the build directory, so that a cache of the latter keeps them.
fn place(root: &Path) -> PathBuf {
    target(root).join("tools")
}

/// Puts a program into the directory: from this user's cache, where it is built if it is missing.
/// A second checkout builds nothing: five programs take ten minutes.
fn build(root: &Path, place: &Path, tool: &Tool) -> Outcome {
    let Tool { name, version, options } = tool;
    let (program, stamp) = (place.join("bin").join(name), place.join(format!("{name}.version")));
    let is_there = std::fs::read_to_string(&stamp).is_ok_and(|found| found == *version);
    if is_there && program.is_file() {
        return Ok(());
    }
    let cache = cache(place).join(format!("{name}-{version}"));
    let cached = cache.join("bin").join(name);
    if !cached.is_file() {
        println!("building {name} {version}, once");
        let (at, builds) = (cache.display().to_string(), place.join("build").display().to_string());
        let wanted = format!("{name}@={version}");
        Cargo::new(&["install", "--quiet", "--locked", "--force", "--root", &at])
            .and(&["--target-dir", &builds])
            .and(options)
            .and(&[&wanted])
            .run(root)?;
    }
    // Cargo links instead of copying, so an old program may be the cached file itself: a copy over
    // that file would empty both.
    let new = place.join("bin").join(format!("{name}.new"));
    let copied = std::fs::create_dir_all(place.join("bin"))
        .and_then(|()| std::fs::copy(&cached, &new))
        .and_then(|_| std::fs::rename(&new, &program))
        .and_then(|()| std::fs::write(&stamp, version));
    copied.map_err(|error| Failure::Failed(format!("cannot copy {}: {error}", cached.display())))
}

/// The directory of this user for built programs, or one in the build directory.
fn cache(place: &Path) -> PathBuf {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    cache.map_or_else(|| place.join("cache"), |cache| cache.join("cudele/tools"))
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

/// Runs the long tests of the mount, or only the tests with the argument in their names.
pub(crate) fn long(root: &Path, arguments: &[&str]) -> Outcome {
    let missing = |program: &&&str| {
        // A package is not always called as its program is.
        let program = if **program == "fsmark" { "fs_mark" } else { **program };
        !std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
    };
    let missing: Vec<&str> = PACKAGES.iter().filter(missing).copied().collect();
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
