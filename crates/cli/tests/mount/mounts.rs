//! Mounts of a test's own, and the programs that are run on them.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::fixture::World;

/// Set where mounting is not possible and that is no fault.
const WITHOUT_FUSE: &str = "CUDELE_TESTS_WITHOUT_FUSE";
/// Repeats a random test.
const SEED: &str = "CUDELE_TEST_SEED";
/// How many steps a random test makes.
const STEPS: &str = "CUDELE_TEST_STEPS";

/// A running cluster, if tests can mount here.
pub(crate) fn cluster() -> Option<World> {
    let missing = if !Path::new("/dev/fuse").exists() {
        "there is no /dev/fuse: load the module `fuse`, or give the container the device"
    } else if !rustix::process::getuid().is_root() {
        "these tests act as several users: run them as root"
    } else {
        return Some(World::new());
    };
    assert!(std::env::var_os(WITHOUT_FUSE).is_some(), "{missing}; {WITHOUT_FUSE}=1 skips them");
    println!("skipped, because {WITHOUT_FUSE} is set: {missing}");
    None
}

/// A number that may be given.
fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}

/// The seed of a random test, printed: always the same, unless another is asked for.
pub(crate) fn seed(default: u64) -> u64 {
    let seed = variable(SEED).unwrap_or(default);
    println!("{SEED}={seed}");
    seed
}

/// A seed that is new every time, printed.
pub(crate) fn new_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    seed(now.map_or(1, |now| now.as_secs()))
}

/// The length of a random test, if the environment sets it.
pub(crate) fn steps() -> Option<u64> {
    variable(STEPS)
}

/// A program that `cargo xtask tools` builds.
pub(crate) fn tool(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a build directory");
    let program = target.join("tools/bin").join(name);
    assert!(program.is_file(), "{} is missing: run `cargo xtask tools`", program.display());
    program
}

/// A directory to mount on. It is never removed with its content: that might be mounted.
#[derive(Debug)]
pub(crate) struct MountPoint(PathBuf);

impl MountPoint {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("cudele-at-").tempdir().expect("directory");
        // Other users come here, too.
        rustix::fs::chmod(dir.path(), rustix::fs::Mode::from_raw_mode(0o755)).expect("its mode");
        Self(dir.keep())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn text(&self) -> &str {
        self.0.to_str().expect("plain")
    }

    /// Whether something is mounted on it.
    pub(crate) fn is_mounted(&self) -> bool {
        self.options().is_some()
    }

    /// How it is mounted, as the kernel says.
    pub(crate) fn options(&self) -> Option<String> {
        let table = fs::read_to_string("/proc/self/mountinfo").expect("procfs");
        let line = table.lines().find(|line| line.split(' ').nth(4) == Some(self.text()))?;
        line.split(' ').nth(5).map(str::to_owned)
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// The namespace, mounted by a process of its own.
#[derive(Debug)]
pub(crate) struct Mount {
    process: Child,
    point: MountPoint,
}

impl Mount {
    pub(crate) fn new(world: &World) -> Self {
        Self::with(world, &[])
    }

    /// With these arguments of `cudele mount`.
    pub(crate) fn with(world: &World, arguments: &[&str]) -> Self {
        let point = MountPoint::new();
        let all = ["mount", "--foreground", "-o", "allow_other,suid,dev"];
        let mut command = world.command(&[&all, arguments].concat());
        let process = command.arg(point.path()).spawn().expect("the program runs");
        let mut mount = Self { process, point };
        let start = Instant::now();
        while !mount.point.is_mounted() {
            let ended = mount.process.try_wait().expect("a child");
            assert!(ended.is_none(), "cudele mount ended: {ended:?}");
            let is_late = start.elapsed() > PATIENCE;
            assert!(!is_late, "not mounted in {PATIENCE:?}; {}", threads_of(mount.pid()));
            std::thread::sleep(Duration::from_millis(5));
        }
        mount
    }

    pub(crate) fn at(&self) -> &Path {
        self.point.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.at().join(name)
    }

    pub(crate) fn point(&self) -> &MountPoint {
        &self.point
    }

    /// Its process.
    #[allow(dead_code, reason = "other tests share this module")]
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Ends its process as a crash does.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("a child");
        self.process.wait().expect("a child");
    }

    /// Unmounts it, which must work, and waits until its process has ended.
    pub(crate) fn end(mut self) {
        // The kernel may use it for a moment, to forget inodes as it was ordered to.
        until("nobody uses it", || mount::unmount(self.at(), false).is_ok());
        assert!(self.process.wait().expect("a child").success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.point.is_mounted() {
            let _ = mount::unmount(self.point.path(), true);
        }
        // Processes with open files in it have ended by now; if not, the mount must not outlive its
        // cluster.
        let start = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) {
            if start.elapsed() > Duration::from_secs(5) {
                let _ = self.process.kill();
                let _ = self.process.wait();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// How long a test waits for a condition.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where the threads of a process wait: the name of each, the system call with its arguments, and
/// the function of the kernel.
fn threads_of(pid: u32) -> String {
    let read = |task: &Path, name: &str| {
        let text = fs::read_to_string(task.join(name)).unwrap_or_default();
        text.trim_end().replace('\n', "; ")
    };
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let tasks = tasks.map(|task| {
        let task = task.path();
        let known = ["comm", "syscall", "wchan", "stack"].map(|name| read(&task, name));
        known.join(" | ")
    });
    format!("threads of {pid}:\n{}", tasks.collect::<Vec<_>>().join("\n"))
}

/// Waits for a condition.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not in {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a program; returns whether it did well, and all it said.
pub(crate) fn transcript(command: &mut Command) -> (bool, String) {
    let (mut reader, writer) = std::io::pipe().expect("pipe");
    command.stdin(Stdio::null()).stdout(writer.try_clone().expect("pipe")).stderr(writer);
    let mut child = command.spawn().expect("the program runs");
    // The command holds the writing end, too.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut said = Vec::new();
    reader.read_to_end(&mut said).expect("pipe");
    let status = child.wait().expect("a child");
    (status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// A shell script, run with these arguments in a mounted directory.
pub(crate) fn script(text: &str, arguments: &[&OsStr]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-euc", text, "sh"]).args(arguments);
    command
}

/// The same as a job in a subtree of its own; `{}` among the arguments is its directory.
pub(crate) fn job(world: &World, path: &str, text: &str, arguments: &[&OsStr]) -> Command {
    let mut command = world.command(&["run", "--policy", "batchfs", path, "--"]);
    command.args(["sh", "-euc", text, "sh"]).args(arguments);
    command
}
