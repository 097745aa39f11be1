//! pjdfstest, a suite for the POSIX rules of file systems, passes as a whole: no test of it is
//! expected to fail, and none is skipped that is not skipped on tmpfs.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use crate::mounts::{Mount, cluster, job, script, tool, transcript};

/// Every optional feature of the suite that Linux has; two users of every Debian.
const SETTINGS: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}
[settings]
naptime = 0.01
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// The suite builds paths of greatest length, and fails itself where the rest of the length behind
/// two directories of its own, with names of 10 letters, is a multiple of 127: then the name of the
/// given directory is longer by one. Not by more: addresses of sockets are short.
const SCRIPT: &str = r#"
name=p
test $(( (4095 - ${#1} - 2 - 22) % 127 )) != 0 || name=pp
mkdir -p -m 755 "$1/$name"
exec "$2" -c "$3" -p "$1/$name"
"#;

/// The fewest tests that must pass: the suite is the whole suite.
const PASSED_MIN: usize = 380;

#[test]
fn pjdfstest_passes_on_a_posix_subtree() {
    let Some(world) = cluster() else { return };
    let mount = Mount::new(&world);
    let directory = mount.path("posix");
    fs::create_dir(&directory).unwrap();
    let settings = settings(&world.path("pjdfstest.toml"));
    judge(&transcript(&mut script(
        SCRIPT,
        &[directory.as_os_str(), tool("pjdfstest").as_os_str(), settings.as_os_str()],
    )));
    mount.end();
}

#[test]
fn pjdfstest_passes_in_a_decoupled_subtree() {
    let Some(world) = cluster() else { return };
    let settings = settings(&world.path("pjdfstest.toml"));
    let arguments = [OsStr::new("{}"), tool("pjdfstest").as_os_str(), settings.as_os_str()]
        .map(OsStr::to_owned);
    let arguments: Vec<&OsStr> = arguments.iter().map(AsRef::as_ref).collect();
    judge(&transcript(&mut job(&world, "/job", SCRIPT, &arguments)));
}

fn settings(path: &std::path::Path) -> PathBuf {
    fs::write(path, SETTINGS).unwrap();
    path.to_owned()
}

/// No test failed, and a skipped one is skipped on tmpfs, too.
fn judge((well, said): &(bool, String)) {
    let ended = |verdict: &str| names(said, verdict);
    println!("{}", said.lines().find(|line| line.starts_with("Summary")).unwrap_or("no summary"));
    assert!(*well && ended("FAILED").is_empty(), "{said}");
    assert!(ended("ok").len() >= PASSED_MIN, "only {} passed:\n{said}", ended("ok").len());
    let memory = tempfile::tempdir_in("/dev/shm").expect("a tmpfs");
    let settings = settings(&memory.path().join("pjdfstest.toml"));
    let directory = memory.path().join("tmpfs");
    fs::create_dir(&directory).unwrap();
    let open = rustix::fs::Mode::from_raw_mode(0o755);
    rustix::fs::chmod(memory.path(), open).unwrap();
    let (_, there) = transcript(&mut script(
        SCRIPT,
        &[directory.as_os_str(), tool("pjdfstest").as_os_str(), settings.as_os_str()],
    ));
    let (here, there) = (ended("skipped"), names(&there, "skipped"));
    let more: Vec<_> = here.difference(&there).collect();
    assert!(more.is_empty(), "skipped here and not on tmpfs: {more:?}");
}

/// The tests that ended so.
fn names(said: &str, verdict: &str) -> BTreeSet<String> {
    let line = |line: &str| {
        let (name, rest) = line.split_once(char::is_whitespace)?;
        (rest.trim() == verdict && name.contains("::")).then(|| name.to_owned())
    };
    said.lines().filter_map(line).collect()
}
