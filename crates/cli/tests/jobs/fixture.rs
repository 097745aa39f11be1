//! A cluster in a temporary directory, and a tree with everything that is hard to copy.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::Value;

pub(crate) struct World {
    home: tempfile::TempDir,
}

/// The output of a command.
pub(crate) struct Said {
    pub(crate) ok: bool,
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl World {
    /// A running cluster.
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// A running cluster with these options of `up`.
    pub(crate) fn with(options: &[&str]) -> Self {
        let world = Self { home: tempfile::tempdir().expect("temporary directory") };
        let url = world.store_url();
        let store: &[&str] = if options.contains(&"--store") { &[] } else { &["--store", &url] };
        world.run(&[&["up"], store, options].concat()).done();
        world
    }

    /// Ends the metadata server as a crash does.
    pub(crate) fn kill_server(&self) {
        let pid = self.json(&["status"])["mds"][0]["pid"].as_i64().expect("a server runs");
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
        let (store, start) = (self.store(), std::time::Instant::now());
        while store.lock("rank/0000.lock", "test").is_err() {
            assert!(start.elapsed() < Duration::from_secs(120), "still there");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The object store, beside all servers.
    pub(crate) fn store(&self) -> std::sync::Arc<dyn objstore::Store> {
        objstore::open_existing(&self.store_url()).expect("store")
    }

    /// Its address: in the cluster's directory, or in the pool that `CUDELE_TEST_STORE` names.
    pub(crate) fn store_url(&self) -> String {
        match std::env::var("CUDELE_TEST_STORE") {
            Ok(url) => {
                let home = self.home.path().file_name().unwrap_or_default().to_string_lossy();
                objstore::beside(&url, home.trim_start_matches('.'))
            }
            Err(_) => format!("dir:{}", self.path("c").join("store").display()),
        }
    }

    /// A directory for files of the test.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The program with these arguments, as it is run on this machine.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cudele"));
        command
            .args(arguments)
            .env_remove("CUDELE_MON")
            .env("CUDELE_DIR", self.path("c"))
            .env("CUDELE_STATE", self.path("state"))
            .env("HOME", self.home.path())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        said(self.command(arguments).output().expect("the program runs"))
    }

    /// With this on standard input.
    pub(crate) fn run_with_input(&self, arguments: &[&str], input: &Path) -> Said {
        let input = File::open(input).expect("input");
        said(self.command(arguments).stdin(input).output().expect("the program runs"))
    }

    /// As a machine that shares nothing but the cluster.
    pub(crate) fn run_elsewhere(&self, arguments: &[&str]) -> Said {
        let mut command = self.command(arguments);
        said(command.env("CUDELE_STATE", self.path("elsewhere")).output().expect("it runs"))
    }

    /// As another user on another machine. Nothing, with a printed reason, if this process cannot
    /// become that user.
    pub(crate) fn run_as(&self, uid: u32, arguments: &[&str]) -> Option<Said> {
        let state = self.state_of(uid)?;
        let mut command = self.command(arguments);
        match command.uid(uid).gid(uid).env("CUDELE_STATE", state).output() {
            Ok(output) => Some(said(output)),
            Err(error) => {
                println!("skipped: user {uid} cannot run the program: {error}");
                None
            }
        }
    }

    /// The same with a `/dev/fuse` that every user may open. Nothing, with a printed reason, where
    /// there are no namespaces for users.
    #[allow(dead_code, reason = "only tests that mount use it")]
    pub(crate) fn run_with_fuse_as(&self, uid: u32, arguments: &[&str]) -> Option<Said> {
        let (state, id) = (self.state_of(uid)?, uid.to_string());
        let program = self.command(arguments);
        let prepare = "mknod -m 666 \"$0\" c 10 229 && mount --bind \"$0\" /dev/fuse || exit 99; \
                       setpriv --reuid \"$1\" --regid \"$1\" --clear-groups unshare -Um true || exit 99; \
                       id=$1; shift; exec setpriv --reuid \"$id\" --regid \"$id\" --clear-groups \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", prepare]).arg(self.path("fuse")).arg(&id);
        command.arg(program.get_program()).args(program.get_args());
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let output = command.env("CUDELE_STATE", state).stdin(Stdio::null()).output();
        let said = said(output.expect("util-linux is there"));
        if said.code == 99 {
            println!("skipped: no namespaces for users here: {}", said.err);
            return None;
        }
        Some(said)
    }

    /// The same, but the machine allows this user no more than one thread.
    pub(crate) fn run_alone_as(&self, uid: u32, arguments: &[&str]) -> Option<Said> {
        let (state, id) = (self.state_of(uid)?, uid.to_string());
        let program = self.command(arguments);
        let mut command = Command::new("prlimit");
        command.args(["--nproc=1", "setpriv", "--reuid", &id, "--regid", &id, "--clear-groups"]);
        command.arg(program.get_program()).args(program.get_args());
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("CUDELE_STATE", state).stdin(Stdio::null());
        Some(said(command.output().expect("util-linux is there")))
    }

    /// A directory for another user's state of the cluster, which that user may use from now on.
    fn state_of(&self, uid: u32) -> Option<PathBuf> {
        if !rustix::process::getuid().is_root() {
            println!("skipped: only root can become user {uid}");
            return None;
        }
        let state = self.path(&format!("state.{uid}"));
        fs::create_dir_all(&state).expect("state");
        chown(&state, Some(uid), Some(uid)).expect("state");
        open_to_all(self.home.path());
        Some(state)
    }

    /// Waits until the cluster says that nothing is decoupled: it hears of that twice a second.
    pub(crate) fn await_released(&self) {
        let start = std::time::Instant::now();
        while self.json(&["status"])["decoupled"] != serde_json::json!([]) {
            assert!(start.elapsed() < Duration::from_secs(120), "still decoupled");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends the metadata server without a warning, and starts another.
    pub(crate) fn crash(&self) {
        // While something of it is left, nothing would be started.
        self.kill_server();
        self.run(&["up"]).done();
    }

    /// The facts that a command prints.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let said = self.run(&[&["--json"], arguments].concat());
        let value = serde_json::from_str(&said.out);
        value.unwrap_or_else(|error| panic!("{arguments:?}: {error}: {} {}", said.out, said.err))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.command(&["down"]).output();
    }
}

#[allow(clippy::needless_pass_by_value, reason = "the output ends here")]
fn said(output: Output) -> Said {
    Said {
        ok: output.status.success(),
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Said {
    /// It worked.
    pub(crate) fn done(self) -> Self {
        assert!(self.ok, "failed: {} {}", self.out, self.err);
        self
    }

    /// It did not, and said this.
    pub(crate) fn refused(self, words: &[&str]) -> Self {
        assert!(!self.ok, "worked: {}", self.out);
        for word in words {
            assert!(self.err.contains(word), "`{word}` is not in: {}", self.err);
        }
        self
    }
}

/// Every user may use the cluster's files: its servers judge requests, not the machine.
fn open_to_all(path: &Path) {
    let metadata = fs::symlink_metadata(path).expect("there");
    // The daemons' logs stay closed: only the user that starts the daemons writes them.
    if metadata.is_symlink() || path.ends_with("log") {
        return;
    }
    let bits = if metadata.is_dir() { 0o777 } else { 0o666 };
    let mode = metadata.permissions().mode() | bits;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("root may");
    for entry in metadata.is_dir().then(|| fs::read_dir(path).expect("there")).into_iter().flatten()
    {
        open_to_all(&entry.expect("entry").path());
    }
}

fn set_mtime(path: &Path, seconds: i64, nanos: u32) {
    let time = if seconds < 0 {
        SystemTime::UNIX_EPOCH - Duration::from_secs(seconds.unsigned_abs())
    } else {
        SystemTime::UNIX_EPOCH + Duration::new(seconds.unsigned_abs(), nanos)
    };
    File::open(path).and_then(|file| file.set_modified(time)).expect("mtime");
}

/// Makes the tree.
pub(crate) fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("a/b/c")).unwrap();
    fs::create_dir_all(root.join("empty")).unwrap();
    for number in 0..300 {
        fs::write(root.join(format!("a/file.{number:03}")), format!("content {number}")).unwrap();
    }
    fs::write(root.join("a/b/nothing"), b"").unwrap();
    fs::write(root.join("a/b/limit"), vec![7; 4096]).unwrap();
    fs::write(root.join("a/b/over"), vec![8; 4097]).unwrap();
    let mut large = File::create(root.join("large")).unwrap();
    for number in 0_u32..5 * 1024 * 256 {
        large.write_all(&number.to_le_bytes()).unwrap();
    }
    fs::write(root.join(OsStr::from_bytes(b"not utf-8 \xff\xfe")), b"bytes").unwrap();
    fs::hard_link(root.join("a/file.000"), root.join("a/b/hard")).unwrap();
    fs::hard_link(root.join("a/file.000"), root.join("hard too")).unwrap();
    symlink("../../../etc/passwd", root.join("a/b/c/link")).unwrap();
    symlink("a", root.join("to-directory")).unwrap();
    symlink("nowhere", root.join("broken")).unwrap();
    let fifo = Command::new("mkfifo").arg(root.join("fifo")).status().expect("mkfifo");
    assert!(fifo.success());
    fs::set_permissions(root.join("a/file.001"), fs::Permissions::from_mode(0o4711)).unwrap();
    fs::set_permissions(root.join("a/b/c"), fs::Permissions::from_mode(0o555)).unwrap();
    set_mtime(&root.join("a/file.002"), -86_400, 0);
    set_mtime(&root.join("a/file.003"), 4_102_444_800, 123_456_789);
    set_mtime(&root.join("a/b"), 1_000_000_000, 1);
    set_mtime(&root.join("a"), 1_100_000_000, 999_999_999);
    set_mtime(root, 1_200_000_000, 0);
}

/// Names below the root of the tree, without the root.
/// Files, directories, odd files, hard links, symbolic links, the FIFO.
pub(crate) const ENTRIES: u64 = 300 + 4 + 5 + 2 + 3 + 1;
