//! Locks of all kinds that Linux has, on a mount.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::mounts::{Mount, MountPoint, cluster, transcript, until};

/// The beginning of all programs of these tests.
const PYTHON: &str = "
import fcntl, os, struct, sys, errno
path = sys.argv[1]
def ofd(file, kind, command=fcntl.F_OFD_SETLK):
    fcntl.fcntl(file, command, struct.pack('hhqqi4x', kind, os.SEEK_SET, 0, 0, 0))
def refused(lock, *arguments):
    try:
        lock(*arguments)
    except OSError as error:
        return error.errno in (errno.EAGAIN, errno.EACCES)
    return False
";

fn python(script: &str, path: &Path) -> Command {
    let mut command = Command::new("python3");
    command.arg("-c").arg(format!("{PYTHON}{script}")).arg(path);
    command
}

fn runs(script: &str, path: &Path) {
    let (done, said) = transcript(&mut python(script, path));
    assert!(done, "{said}");
}

/// Whether another process can lock the whole file, with all kinds of locks.
fn is_free(path: &Path) -> bool {
    let script = "
file = open(path, 'r+')
ofd(file, fcntl.F_WRLCK)
ofd(file, fcntl.F_UNLCK)
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
";
    transcript(&mut python(script, path)).0
}

#[test]
fn a_program_that_takes_both_kinds_of_locks_has_both() {
    let Some(world) = cluster() else { return };
    let mount = Mount::new(&world);
    let path = mount.path("file");
    fs::write(&path, "content").unwrap();
    let script = "
one, two = open(path, 'r+'), open(path, 'r+')
fcntl.flock(one, fcntl.LOCK_EX)
fcntl.lockf(one, fcntl.LOCK_EX)
# The same process through another open file: only the lock of the process is shared.
fcntl.lockf(two, fcntl.LOCK_EX | fcntl.LOCK_NB)
assert refused(fcntl.flock, two, fcntl.LOCK_EX | fcntl.LOCK_NB)
assert refused(ofd, two, fcntl.F_WRLCK)
if os.fork() == 0:
    file = open(path, 'r+')
    assert refused(fcntl.flock, file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    assert refused(fcntl.lockf, file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    # The inherited descriptor is the same open file.
    fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os._exit(0)
assert os.wait()[1] == 0
# Closing any descriptor releases the locks of the process, and no other.
two.close()
if os.fork() == 0:
    file = open(path, 'r+')
    assert refused(fcntl.flock, file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os._exit(0)
assert os.wait()[1] == 0
";
    runs(script, &path);
    until("nobody has it locked", || is_free(&path));
    mount.end();
}

/// One program on each of two mounts takes a lock of one kind.
#[test]
fn the_kinds_are_two_also_for_another_mount() {
    let Some(world) = cluster() else { return };
    let (one, two) = (Mount::new(&world), Mount::new(&world));
    fs::write(one.path("file"), "content").unwrap();
    let holds = |script: &str, path: &Path| {
        let whole = format!("{script}\nprint('has it', flush=True)\nsys.stdin.read()\n");
        let mut command = python(&whole, path);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = [0; 7];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
        child
    };
    let flock = "file = open(path, 'r+'); fcntl.flock(file, fcntl.LOCK_EX)";
    let posix = "file = open(path, 'r+'); fcntl.lockf(file, fcntl.LOCK_EX)";
    let no_flock =
        "file = open(path, 'r+'); assert refused(fcntl.flock, file, fcntl.LOCK_EX | fcntl.LOCK_NB)";
    let no_posix =
        "file = open(path, 'r+'); assert refused(fcntl.lockf, file, fcntl.LOCK_EX | fcntl.LOCK_NB)";
    for (first, second, refused) in [(flock, posix, no_flock), (posix, flock, no_posix)] {
        let mut holder = holds(first, &one.path("file"));
        runs(second, &two.path("file"));
        runs(refused, &two.path("file"));
        drop(holder.stdin.take());
        assert!(holder.wait().unwrap().success());
        until("nobody has it locked", || is_free(&two.path("file")));
    }
    two.end();
    one.end();
}

#[test]
fn a_lock_of_an_open_file_ends_with_it() {
    let Some(world) = cluster() else { return };
    let (mount, other) = (Mount::new(&world), Mount::new(&world));
    let path = mount.path("file");
    fs::write(&path, "content").unwrap();
    let script = "
one, two = open(path, 'r+'), open(path, 'r+')
ofd(one, fcntl.F_WRLCK)
assert refused(ofd, two, fcntl.F_WRLCK)
copy = os.dup(one.fileno())
one.close()
# The copy is the same open file, so the lock stays.
open(path).close()
assert refused(ofd, two, fcntl.F_WRLCK)
os.close(copy)
ofd(two, fcntl.F_WRLCK, fcntl.F_OFD_SETLKW)
two.close()
";
    runs(script, &path);
    until("nobody has it locked", || is_free(&other.path("file")));
    // The lock of a killed process ends, too.
    let script = "
file = open(path, 'r+')
ofd(file, fcntl.F_WRLCK)
os.kill(os.getpid(), 9)
";
    assert!(!transcript(&mut python(script, &path)).0);
    until("nobody has it locked", || is_free(&path) && is_free(&other.path("file")));
    other.end();
    mount.end();
}

#[test]
fn a_wait_for_a_lock_ends_with_a_signal() {
    let Some(world) = cluster() else { return };
    let mount = Mount::new(&world);
    let path = mount.path("file");
    fs::write(&path, "content").unwrap();
    let script = "
import signal, time
class Late(Exception): pass
def late(*_): raise Late
signal.signal(signal.SIGALRM, late)
file, other = open(path, 'r+'), open(path, 'r+')
if os.fork() == 0:
    fcntl.lockf(file, fcntl.LOCK_EX)
    fcntl.flock(file, fcntl.LOCK_EX)
    os.write(1, b'x')
    time.sleep(1000)
waits = [
    lambda: fcntl.lockf(other, fcntl.LOCK_EX),
    lambda: fcntl.flock(other, fcntl.LOCK_EX),
    lambda: ofd(other, fcntl.F_WRLCK, fcntl.F_OFD_SETLKW),
]
while not refused(fcntl.flock, other, fcntl.LOCK_EX | fcntl.LOCK_NB):
    fcntl.flock(other, fcntl.LOCK_UN)
for wait in waits:
    start = time.time()
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        wait()
        sys.exit('it has the lock')
    except Late:
        assert time.time() - start < 1, time.time() - start
os.killpg(0, 15)
";
    let mut command = python(script, &path);
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let ended = command.stdout(Stdio::null()).status().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(15), "{ended:?}");
    until("nobody has it locked", || is_free(&path));
    mount.end();
}

/// For the bare type `fuse`, `mount(8)` runs the source as a shell command.
#[test]
fn a_mount_has_a_type_of_its_own() {
    let Some(world) = cluster() else { return };
    let mount = Mount::new(&world);
    let mut command = Command::new("findmnt");
    command.args(["-n", "-o", "FSTYPE,SOURCE"]).arg(mount.at());
    let (done, said) = transcript(&mut command);
    assert!(done && said.split_whitespace().eq(["fuse.cudele", "cudele:/"]), "{said}");
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.contains(mount.point().text())).unwrap();
    assert!(line.contains(" - fuse.cudele cudele:/ "), "{line}");
    let has = |option: &str| {
        let options = mount.point().options().unwrap();
        options.split(',').any(|one| one == option)
    };
    let (_, said) = transcript(Command::new("mount").args(["-o", "remount,ro"]).arg(mount.at()));
    assert!(!said.contains("sh:") && !said.contains("not found"), "{said}");
    world.run(&["mount", "-o", "remount,rw,noexec", mount.point().text()]).done();
    assert!(has("rw") && has("noexec") && !has("nosuid"));
    world.run(&["mount", "-o", "remount,ro", mount.point().text()]).done();
    assert!(has("ro") && has("noexec") && fs::write(mount.path("file"), "content").is_err());
    world.run(&["mount", "-o", "remount", "/"]).refused(&["no mount of cudele", "EINVAL"]);
    mount.end();
}

/// A set-user-id program mounts for users.
#[test]
fn a_mount_of_a_user_has_the_same_type() {
    let Some(world) = cluster() else { return };
    if Command::new("fusermount3").arg("-V").stdout(Stdio::null()).status().is_err() {
        println!("skipped: there is no fusermount3");
        return;
    }
    let point = MountPoint::new();
    std::os::unix::fs::chown(point.path(), Some(65534), Some(65534)).unwrap();
    let Some(said) = world.run_as(65534, &["mount", point.text()]) else { return };
    if !said.ok {
        // The helper is not set-user-id, or only root may open /dev/fuse.
        println!("skipped: {}", said.err);
        return;
    }
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.contains(point.text())).unwrap();
    assert!(line.contains(" - fuse.cudele cudele:/ "), "{line}");
    world.run_as(65534, &["umount", point.text()]).unwrap().done();
}
