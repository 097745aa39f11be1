//! Signals interrupt programs that wait for a server.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::World;
use crate::mounts::{Mount, cluster, until};

/// The time from a signal to the end of the program.
const SOON: Duration = Duration::from_secs(1);

/// Waits until the program is blocked in the mount.
fn until_it_waits(program: &Child) {
    let at = format!("/proc/{}/wchan", program.id());
    until("it waits for the server", || {
        fs::read_to_string(&at).is_ok_and(|at| at.contains("request_wait_answer"))
    });
}

/// Sends a signal. Returns the time until the program ended, and the signal that ended it.
fn end(mut program: Child, signal: Signal) -> (Duration, Option<i32>) {
    let sent = Instant::now();
    kill_process(Pid::from_child(&program), signal).unwrap();
    until("it has ended", || program.try_wait().unwrap().is_some());
    (sent.elapsed(), program.wait().unwrap().signal())
}

/// A program that SIGINT ends, also if this process ignores it, as in the background of a script.
fn interruptible(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", program]);
    command
}

fn quietly(command: &mut Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Runs more programs than the mount has threads.
fn programs_end(world: &World, options: &str) {
    let mount = Mount::with(world, &["-o", options]);
    fs::create_dir(mount.path("dir")).unwrap();
    fs::write(mount.path("dir/file"), "content").unwrap();
    world.kill_server();
    for signal in [Signal::INT, Signal::KILL, Signal::TERM] {
        let programs: Vec<_> = (0..6)
            .map(|number| {
                quietly(interruptible("stat").arg(mount.path(&format!("dir/new{number}"))))
            })
            .collect();
        programs.iter().for_each(until_it_waits);
        for program in programs {
            let (took, by) = end(program, signal);
            assert_eq!(by, Some(signal.as_raw()), "{options}");
            assert!(took < SOON, "{options}: {signal:?} took {took:?}");
        }
    }
    world.run(&["up"]).done();
    // The mount works as before.
    until("the mount works", || fs::read(mount.path("dir/file")).is_ok());
    assert_eq!(fs::read(mount.path("dir/file")).unwrap(), b"content");
    fs::remove_dir_all(mount.path("dir")).unwrap();
    mount.end();
}

#[test]
fn a_program_that_waits_for_a_server_ends_at_once() {
    let Some(world) = cluster() else { return };
    programs_end(&world, "threads=2");
}

#[test]
fn a_program_that_waits_for_ever_ends_at_once() {
    let Some(world) = cluster() else { return };
    programs_end(&world, "threads=2,hard");
}

/// The exit closes a file with unwritten content, which the mount writes when the server is back.
#[test]
fn a_program_that_has_written_ends_at_once_and_its_content_comes_later() {
    let Some(world) = cluster() else { return };
    let mount = Mount::with(&world, &["-o", "hard"]);
    fs::write(mount.path("file"), "before").unwrap();
    for signal in [Signal::INT, Signal::KILL] {
        let script = "exec 3>>\"$0\"; printf x >&3; echo; exec sleep 1000";
        let mut command = interruptible("sh");
        command.args(["-c", script]).arg(mount.path("file")).stdout(Stdio::piped());
        let mut program = command.spawn().unwrap();
        let mut line = [0];
        std::io::Read::read_exact(program.stdout.as_mut().unwrap(), &mut line).unwrap();
        world.kill_server();
        let (took, _) = end(program, signal);
        assert!(took < SOON, "{signal:?} took {took:?}");
        world.run(&["up"]).done();
        until("what it wrote is there", || {
            fs::read(mount.path("file")).is_ok_and(|content| content.ends_with(b"x"))
        });
    }
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"beforexx");
    mount.end();
}

/// The handler of a signal runs, and the call fails with EINTR.
#[test]
fn a_call_that_a_handler_interrupts_says_so() {
    let Some(world) = cluster() else { return };
    let mount = Mount::with(&world, &["-o", "hard"]);
    world.kill_server();
    let script = "
import os, signal, sys
signal.signal(signal.SIGINT, lambda *_: None)
signal.signal(signal.SIGCHLD, lambda *_: None)
try:
    os.stat(sys.argv[1])
except InterruptedError:
    sys.exit(7)
";
    let program = quietly(interruptible("python3").args(["-c", script]).arg(mount.path("file")));
    until_it_waits(&program);
    // The end of a child does not interrupt the call.
    let pid = Pid::from_child(&program);
    kill_process(pid, Signal::CHILD).unwrap();
    let (sent, mut program) = (Instant::now(), program);
    kill_process(pid, Signal::INT).unwrap();
    until("it has ended", || program.try_wait().unwrap().is_some());
    assert!(sent.elapsed() < SOON, "{:?}", sent.elapsed());
    assert_eq!(program.wait().unwrap().code(), Some(7));
    world.run(&["up"]).done();
    mount.end();
}

/// An interrupted request may take effect later, but leaves nothing open or locked.
#[test]
fn an_interrupted_call_leaves_nothing_open_or_locked() {
    let Some(world) = cluster() else { return };
    let mount = Mount::with(&world, &["-o", "hard"]);
    let path = mount.path("file");
    fs::write(&path, "content").unwrap();
    world.kill_server();
    for shell in ["exec 3<\"$0\"", "exec 3>\"$0.new\"", "exec flock \"$0\" sleep 1000"] {
        let program = quietly(interruptible("sh").args(["-c", shell]).arg(&path));
        until_it_waits(&program);
        end(program, Signal::INT);
    }
    world.run(&["up"]).done();
    let held = File::options().read(true).write(true).open(&path).unwrap();
    until("nobody has it locked", || held.try_lock().is_ok());
    (&held).write_all(b"changed").unwrap();
    drop(held);
    assert_eq!(fs::read(&path).unwrap(), b"changed");
    mount.end();
}

/// A program that executes another one closes its files first: the mount must continue to answer
/// other programs' signals during that. The file is open in a process of its own: children of this
/// process would inherit it, also those of the other tests, and wait for the server.
#[test]
fn a_program_that_waits_in_exec_delays_no_other() {
    let Some(world) = cluster() else { return };
    let mount = Mount::with(&world, &["-o", "hard"]);
    fs::write(mount.path("file"), "content").unwrap();
    let script = "
import os, subprocess, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
os.write(file, b'more')
print(flush=True)
sys.stdin.readline()
sys.exit(subprocess.run(['true'], close_fds=False).returncode)
";
    let mut command = Command::new("python3");
    command.args(["-c", script]).arg(mount.path("file"));
    let mut program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Read::read_exact(program.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    world.kill_server();
    program.stdin.take().unwrap().write_all(b"\n").unwrap();
    let other = quietly(interruptible("stat").arg(mount.path("new")));
    until_it_waits(&other);
    let (took, by) = end(other, Signal::INT);
    assert_eq!(by, Some(Signal::INT.as_raw()));
    assert!(took < SOON, "{took:?}");
    world.run(&["up"]).done();
    assert!(program.wait().unwrap().success());
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"contentmore");
    mount.end();
}

/// A command on a terminal reports the server for which it waits.
#[test]
fn a_command_says_for_which_server_it_waits() {
    let Some(world) = cluster() else { return };
    world.run(&["mkdir", "/dir"]).done();
    world.kill_server();
    let mut command = Command::new("script");
    let program = world.command(&["ls", "/dir"]);
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let line = format!("exec {} ls /dir", program.get_program().display());
    let start = Instant::now();
    let said = world.path("said");
    command.args(["-q", "-f", "-c", &line]).arg(&said).stdin(Stdio::null());
    let mut running = quietly(&mut command);
    until("it says so", || {
        fs::read_to_string(&said).is_ok_and(|said| said.contains("waiting for the metadata server"))
    });
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    world.run(&["up"]).done();
    until("it goes on", || running.try_wait().unwrap().is_some());
    let said = fs::read_to_string(&said).unwrap();
    assert!(said.contains("mds.0"), "{said}");
}
