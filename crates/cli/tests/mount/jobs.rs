//! `cudele run`: any program as a batch job.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::World;
use crate::mounts::{Mount, MountPoint, cluster, script, transcript, until};

/// A job that creates `ready` when it is at work, and works until the file `go` exists.
const WAITS: &str = "touch \"$1/ready\"; while ! [ -e \"$1/go\" ]; do sleep 0.02; done";

/// A command that runs a script as a job; the script's first argument is a directory of this
/// machine.
fn run(world: &World, options: &[&str], path: &str, text: &str) -> Command {
    let mut command = world.command(&[&["run"], options, &[path, "--"]].concat());
    command.args(["sh", "-euc", text, "sh"]).arg(world.path("."));
    command
}

/// A job that does not outlive a test that fails: its mounts would stay, and with them the other
/// mounts that it sees.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let ended = self.0.try_wait();
        if matches!(ended, Ok(None)) {
            // Its mount namespace ends with the one and the other.
            let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
            until_ended(&mut self.0);
        }
    }
}

/// Waits for a process that was told to end, and ends it if it does not.
fn until_ended(child: &mut Child) {
    for _ in 0..100 {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// The same, begun and at work.
fn begin(world: &World, path: &str, text: &str) -> Child {
    let mut command = run(world, &[], path, text);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the job is at work", || world.path("ready").exists());
    child
}

fn has(world: &World, path: &str) -> bool {
    world.run(&["stat", path]).ok
}

#[test]
fn a_job_behind_a_mount_merges_at_the_first_lookup() {
    let Some(world) = cluster() else { return };
    let policy = world.path("policy.yaml");
    let text = "consistency: append_client_journal+volatile_apply\nmerge: on_demand\n";
    fs::write(&policy, text).unwrap();
    let text = format!("echo work > \"$CUDELE_JOB/first\"; {WAITS}");
    let mut command = run(&world, &["--policy", policy.to_str().unwrap()], "/job", &text);
    let mut child = Ended(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    until("the job is at work", || world.path("ready").exists());
    // The job waits, and its mount answers for it.
    world.run(&["stat", "/job/first"]).done();
    fs::write(world.path("go"), "").unwrap();
    assert!(child.0.wait().unwrap().success());
    assert_eq!(world.json(&["stat", "/job/first"])["size"], 5);
}

#[test]
fn the_exit_code_is_the_commands() {
    let Some(world) = cluster() else { return };
    let code = |text: &str| run(&world, &[], "/job", text).status().unwrap().code();
    assert_eq!(code("exit 0"), Some(0));
    for (text, wanted) in [("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143)] {
        assert_eq!(code(text), Some(wanted), "{text}");
        world.run(&["discard", "/job"]).done();
    }
}

#[test]
fn a_command_that_is_not_there_leaves_the_path_free() {
    let Some(world) = cluster() else { return };
    let said = world.run(&["run", "/job", "--", "no-such-program"]);
    assert_eq!(said.refused(&["no-such-program", "ENOENT"]).code, 127, "as a shell has it");
    let file = world.path("no-program");
    fs::write(&file, "text").unwrap();
    let said = world.run(&["run", "/job", "--", file.to_str().unwrap()]);
    assert_eq!(said.refused(&["no-program", "EACCES"]).code, 126, "as a shell has it");
    assert!(run(&world, &[], "/job", "true").status().unwrap().success());
    world.await_released();
}

/// A program whose interpreter is named by its path, as in a virtual environment; the job runs it.
const SELF_NAMED: &str = "cp -L /bin/sh \"$CUDELE_JOB/sh\"; cd \"$CUDELE_JOB\"; \
    printf '#!%s/sh\\necho \"$0\"\\n' \"$PWD\" > tool; chmod +x tool; test \"$(\"$PWD/tool\")\" = \"$PWD/tool\"; \
    ! touch ../beside";

fn tool_says(at: &Path) -> String {
    let output = Command::new(at.join("tool")).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

/// A program that contains its own path works after the merge.
#[test]
fn a_job_has_the_path_that_it_will_have_after_the_merge() {
    let Some(world) = cluster() else { return };
    let point = MountPoint::new();
    let at = |name: &str| point.path().join(name);
    let job = |name: &str, text: &str| {
        let at = at(name);
        transcript(&mut run(&world, &["--at", at.to_str().unwrap()], &format!("/{name}"), text))
    };
    // Where the namespace will be mounted.
    let (well, said) = job("first/env", SELF_NAMED);
    assert!(well, "{said}");
    assert!(fs::read_dir(point.path()).unwrap().next().is_none(), "nothing is left on the disk");
    world.run(&["mount", "-o", "allow_other,suid,dev", point.text()]).done();
    assert_eq!(tool_says(&at("first/env")), at("first/env/tool").to_str().unwrap());
    // At the path where the namespace is mounted: the job sees the rest, and no other process sees
    // anything of the job.
    let text =
        SELF_NAMED.replace("! touch ../beside", "test -e ../first/env/tool; touch ../beside");
    let (well, said) = job("second", &text);
    assert!(well, "{said}");
    assert_eq!(tool_says(&at("second")), at("second/tool").to_str().unwrap());
    assert!(at("beside").exists(), "what is done beside the job is everybody's");
    let elsewhere = at("elsewhere");
    let said = world.run(&["run", "--at", elsewhere.to_str().unwrap(), "/third", "--", "true"]);
    said.refused(&["EINVAL", at("third").to_str().unwrap(), "name the path"]);
    world.run(&["umount", point.text()]).done();
}

#[test]
fn a_job_is_shown_at_a_directory_and_nowhere_where_it_cannot_be() {
    let Some(world) = cluster() else { return };
    let dir = world.path("shown");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("hidden"), "").unwrap();
    let text = "echo work > \"$CUDELE_JOB/file\"; ! test -e \"$CUDELE_JOB/hidden\"; pwd";
    let mut command = run(&world, &["-C", "--at", dir.to_str().unwrap()], "/job", text);
    let (well, said) = transcript(&mut command);
    assert!(well && said.contains(dir.to_str().unwrap()), "{said}");
    assert!(has(&world, "/job/file") && !dir.join("file").exists() && dir.join("hidden").exists());
    for at in ["/no-such-cudele/env", "/"] {
        let said = world.run(&["run", "--at", at, "/other", "--", "true"]);
        assert!(said.refused(&["EINVAL", "--at"]).err.contains("; "), "with a remedy");
    }
    assert!(!has(&world, "/other"), "nothing was begun");
}

/// As on a desktop, where every user may open `/dev/fuse` and have namespaces.
#[test]
fn a_user_without_rights_gives_a_job_its_path_too() {
    let Some(world) = cluster() else { return };
    world.run(&["mkdir", "/mine"]).done();
    world.run(&["policy", "set", "/mine", "posix"]).done();
    let point = MountPoint::new();
    chown(point.path(), Some(1000), Some(1000)).unwrap();
    let mount = Mount::new(&world);
    chown(mount.path("mine"), Some(1000), Some(1000)).unwrap();
    mount.end();
    let at = point.path().join("mine/env");
    let arguments =
        ["run", "--at", at.to_str().unwrap(), "/mine/env", "--", "sh", "-euc", SELF_NAMED];
    let Some(said) = world.run_with_fuse_as(1000, &arguments) else { return };
    said.done();
    world.run(&["mount", "-o", "allow_other,suid,dev", point.text()]).done();
    assert_eq!(tool_says(&at), at.join("tool").to_str().unwrap());
    world.run(&["umount", point.text()]).done();
}

#[test]
fn a_job_whose_server_is_lost_is_kept_and_the_way_to_merge_it_is_named() {
    let Some(world) = cluster() else { return };
    let text = format!("echo work > \"$CUDELE_JOB/file\"; {WAITS}");
    let mut command = run(&world, &["--timeout", "1"], "/job", &text);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("the job is at work", || world.path("ready").exists());
    world.kill_server();
    fs::write(world.path("go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    for words in ["kept on this machine", "`cudele merge /job`", "`cudele discard /job`"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    world.run(&["up"]).done();
    world.run(&["merge", "/job"]).done();
    assert!(has(&world, "/job/file"));
}

/// Whether this process ignores a signal, and with it every program that it starts: so does a
/// background job of a script.
fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
    (mask >> (signal.as_raw() - 1)) & 1 == 1
}

#[test]
fn signals_are_handed_on() {
    let Some(world) = cluster() else { return };
    let text = "trap 'touch \"$CUDELE_JOB/seen\"; exit 0' TERM INT; touch \"$1/ready\"; \
                while :; do sleep 0.02; done";
    for (signal, path) in [(Signal::TERM, "/term"), (Signal::INT, "/int")] {
        if is_ignored(signal) {
            println!("{signal:?} is ignored here, so a shell cannot trap it: skipped");
            continue;
        }
        let mut child = begin(&world, path, text);
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{signal:?}");
        assert!(has(&world, &format!("{path}/seen")), "what it did is merged");
        fs::remove_file(world.path("ready")).unwrap();
    }
}

#[test]
fn a_command_that_fails_leaves_what_was_asked_for() {
    let Some(world) = cluster() else { return };
    let text = "echo work > \"$CUDELE_JOB/file\"; exit 3";
    let fails = |options: &[&str], path: &str| {
        assert_eq!(run(&world, options, path, text).status().unwrap().code(), Some(3));
    };
    fails(&[], "/kept");
    assert!(!has(&world, "/kept/file"));
    world.run(&["merge", "/kept"]).done();
    assert!(has(&world, "/kept/file"));
    fails(&["--on-failure", "keep"], "/given-up");
    world.run(&["discard", "/given-up"]).done();
    assert!(!has(&world, "/given-up/file"));
    fails(&["--on-failure", "merge"], "/merged");
    assert!(has(&world, "/merged/file"));
    fails(&["--on-failure", "discard"], "/discarded");
    assert!(!has(&world, "/discarded/file"));
    world.await_released();
}

#[test]
fn one_path_has_one_job() {
    let Some(world) = cluster() else { return };
    let mut first = begin(&world, "/job", &format!("{WAITS}; touch \"$CUDELE_JOB/first\""));
    let mut second = run(&world, &[], "/job", "touch \"$CUDELE_JOB/second\"");
    let (well, said) = transcript(&mut second);
    assert!(!well && said.contains("EBUSY") && said.contains("/job"), "{said}");
    fs::write(world.path("go"), "").unwrap();
    assert!(first.wait().unwrap().success());
    assert!(has(&world, "/job/first") && !has(&world, "/job/second"));
}

#[test]
fn the_directory_is_where_the_command_looks() {
    let Some(world) = cluster() else { return };
    let text = "echo 1 > \"$CUDELE_JOB/variable\"; echo 2 > \"$2/argument\"; echo 3 > here";
    let mut command = run(&world, &["-C"], "/a/job", text);
    assert!(command.arg("{}").status().unwrap().success());
    for name in ["variable", "argument", "here"] {
        assert!(has(&world, &format!("/a/job/{name}")), "{name}");
    }
}

#[test]
fn the_path_itself_is_the_directory_where_there_is_one() {
    let Some(world) = cluster() else { return };
    let local = MountPoint::new();
    let path = local.text();
    world.run(&["mkdir", "-p", Path::new(path).parent().unwrap().to_str().unwrap()]).done();
    let text = format!("{WAITS}; echo work > \"$2/file\"; cmp \"$2/file\" \"$CUDELE_JOB/file\"");
    let mut command = run(&world, &[], path, &text);
    let mut child = command.arg(path).spawn().unwrap();
    until("the job is at work", || world.path("ready").exists());
    assert!(!local.is_mounted(), "nobody else sees it");
    fs::write(world.path("go"), "").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(fs::read_dir(path).unwrap().count(), 0, "nothing came to this machine's directory");
    assert!(has(&world, &format!("{path}/file")));
}

#[test]
fn a_job_leaves_no_temporary_directory() {
    let Some(world) = cluster() else { return };
    let place = MountPoint::new();
    for text in ["true", "false"] {
        run(&world, &["--on-failure", "discard"], "/job", text)
            .env("TMPDIR", place.path())
            .status()
            .unwrap();
    }
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

/// A user that can open `/dev/fuse` (everywhere but in some containers) runs jobs without root.
#[test]
fn a_user_runs_jobs_without_root() {
    const USER: u32 = 1;
    let Some(world) = cluster() else { return };
    let mount = Mount::new(&world);
    fs::create_dir(mount.path("theirs")).unwrap();
    chown(mount.path("theirs"), Some(USER), Some(USER)).unwrap();
    mount.end();
    // Opens the cluster's files to the user, and checks that the user is able to run the program.
    if world.run_as(USER, &["status"]).is_none() {
        return;
    }
    // A device that every user may open, in the place of this machine's for these processes only.
    let text = "mknod \"$1\" c 10 229; chmod 666 \"$1\"; \
                exec setpriv --reuid=1 --regid=1 --clear-groups unshare --user --mount true";
    let device = world.path("fuse");
    let (well, said) = transcript(&mut script(text, &[device.as_os_str()]));
    if !well {
        println!("skipped: users of this machine have no namespaces of their own: {said}");
        return;
    }
    let text = "mount --bind \"$1\" /dev/fuse; shift; \
                exec setpriv --reuid=1 --regid=1 --clear-groups \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-euc", text, "sh"]).arg(&device);
    let inner = "id -u > \"$CUDELE_JOB/user\"; echo work > \"$CUDELE_JOB/file\"";
    let job = world.command(&["run", "/theirs/job", "--", "sh", "-euc", inner]);
    command.arg(job.get_program()).args(job.get_args());
    for (name, value) in job.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let state = world.path(&format!("state.{USER}"));
    let (well, said) = transcript(command.env("CUDELE_STATE", state));
    assert!(well, "{said}");
    let mount = Mount::new(&world);
    assert_eq!(fs::read_to_string(mount.path("theirs/job/user")).unwrap(), "1\n");
    assert_eq!(fs::metadata(mount.path("theirs/job/file")).unwrap().uid(), USER);
    mount.end();
}
