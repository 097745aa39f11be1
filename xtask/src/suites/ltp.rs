//! The Linux Test Project, installed by its user: its tests of file systems, and its tests of the
//! system calls that take a path or a file.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::case::{Case, Reading, SKIPPED};
use super::catalog::{Place, Suite};
use crate::run::Failure;

/// The runtest files besides the system calls.
const FILES: [&str; 9] = [
    "fs",
    "fs_perms_simple",
    "dio",
    "fcntl-locktests",
    "ltp-aio-stress",
    "ltp-aiodio.part1",
    "ltp-aiodio.part2",
    "ltp-aiodio.part3",
    "ltp-aiodio.part4",
];

/// The file of the system calls.
const CALLS_FILE: &str = "syscalls";

/// System calls that take a path or a file. A test is of the call with the longest name with which
/// the test's name begins.
const CALLS: &str = "access chdir chmod chown chroot close close_range copy_file_range creat \
    dup dup2 dup3 execl execle execlp execv execve execveat execvp faccessat faccessat2 \
    fadvise posix_fadvise fallocate fanotify fchdir fchmod fchmodat fchmodat2 fchown fchownat \
    fcntl fdatasync fgetxattr file_attr file_getattr file_setattr flistxattr flock fremovexattr \
    fsetxattr fstat fstatat fstatfs fsync ftruncate futimesat getcwd getdents getxattr getxattrat \
    inotify io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit io_uring lchown \
    lgetxattr link linkat listxattr listxattrat llistxattr llseek lremovexattr lseek lsetxattr \
    lstat mincore mkdir mkdirat mknod mknodat mmap msync munmap name_to_handle_at \
    open open_by_handle_at openat openat2 pathconf fpathconf poll ppoll pread preadv preadv2 \
    pselect pwrite pwritev pwritev2 read readahead readdir readlink readlinkat readv realpath \
    remap_file_pages removexattr removexattrat rename renameat renameat2 rmdir select sendfile \
    setxattr setxattrat splice stat statfs statmount statvfs statx symlink symlinkat sync \
    sync_file_range syncfs tee truncate umask unlink unlinkat utime utimensat utimes vmsplice \
    write writev";

/// Programs of `fs` that test another file system or the machine: devices, quotas of a device,
/// kernels' own trees.
const ELSEWHERE: [&str; 6] =
    ["binfmt_misc", "isofs", "quota_remount", "proc01", "read_all", "squashfs"];

/// The limit of one test of a system call, and of the other files.
const CALL_TIME_MAX: Duration = Duration::from_secs(120);
const FILE_TIME_MAX: Duration = Duration::from_secs(900);

/// The suites of an installation: one for each file.
///
/// # Errors
/// The directory has no `runtest` and `testcases/bin`.
pub(super) fn suites(at: &Path) -> Result<Vec<Suite>, Failure> {
    let (version, shown) = (version(at), at.display());
    let mut suites = Vec::new();
    for file in FILES.into_iter().chain([CALLS_FILE]) {
        let path = at.join("runtest").join(file);
        let text = fs::read_to_string(&path).map_err(|error| {
            let what = "it is no installed LTP (make install)";
            Failure::Failed(format!(
                "cannot use --ltp {shown}: {what}: {}: {error}",
                path.display()
            ))
        })?;
        let cases = cases(at, file, &text);
        let name = format!("ltp-{}", file.trim_start_matches("ltp-"));
        suites.push(Suite { name, version: version.clone(), cases, place: Place::Any });
    }
    Ok(suites)
}

/// The cases of a runtest file: `NAME COMMAND`, with comments.
pub(super) fn cases(at: &Path, file: &str, text: &str) -> Vec<Case> {
    let calls: BTreeSet<&str> = CALLS.split_whitespace().collect();
    let mut seen = BTreeSet::new();
    let mut cases = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let Some((name, command)) = line.split_once(char::is_whitespace) else { continue };
        let is_of_files = file != CALLS_FILE || is_of(name, &calls);
        let elsewhere = ELSEWHERE.iter().any(|prefix| name.starts_with(prefix));
        if !is_of_files || elsewhere || !seen.insert(name.to_owned()) {
            continue;
        }
        let root = at.display();
        // The shell's code 127 means that the program is not built. Without loop devices, LTP skips
        // the tests that make file systems of their own on them.
        let script = format!(
            "export LTPROOT='{root}' TMPDIR=\"$1\" PATH='{root}/testcases/bin':\"$PATH\"\n\
             export LTP_COLORIZE_OUTPUT=0 KCONFIG_SKIP_CHECK=1 LTP_TIMEOUT_MUL=4\n\
             test ! -e /dev/loop-control || mount --bind /dev/null /dev/loop-control\n\
             for loop in /dev/loop[0-9]*; do\n\
             test ! -e \"$loop\" || mount --bind /dev/null \"$loop\"; done\n\
             cd \"$1\"; set +eu; {command}\n\
             code=$?; test $code != 127 || code={SKIPPED}; exit $code"
        );
        let time_max = if file == CALLS_FILE { CALL_TIME_MAX } else { FILE_TIME_MAX };
        cases.push(Case { name: name.into(), script, time_max, reading: Reading::Ltp });
    }
    cases
}

/// Whether a test is of one of the calls: `fcntl14_64`, `open01A`, `fanotify05`, `readlinkat02`.
pub(super) fn is_of(test: &str, calls: &BTreeSet<&str>) -> bool {
    let digits = test.find(|c: char| c.is_ascii_digit()).unwrap_or(test.len());
    // Names such as `dup201`, `preadv203` and `accept4_01` have digits of the call, too.
    let ends = [digits, digits + 1].into_iter().filter(|end| *end <= test.len());
    let mut stems = ends.map(|end| test.get(..end).unwrap_or(test).trim_end_matches('_'));
    stems.any(|stem| calls.contains(stem))
}

fn version(at: &Path) -> String {
    let text = fs::read_to_string(at.join("Version")).unwrap_or_default();
    let first = text.lines().next().unwrap_or_default().trim().to_owned();
    if first.is_empty() { revision(at) } else { first }
}

/// The revision of a checkout.
pub(super) fn revision(at: &Path) -> String {
    let mut command = Command::new("git");
    let output = command.arg("-C").arg(at).args(["log", "-1", "--format=%h of %cs"]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.ok().filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".into())
}
