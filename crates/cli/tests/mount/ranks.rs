//! A mount of a namespace that several metadata servers serve.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal};

use crate::fixture::World;
use crate::mounts::{Mount, cluster, until};

fn number(dir: &Path, name: &str) -> u64 {
    let mut value = [0; 64];
    let length = rustix::fs::getxattr(dir, format!("cudele.dir.{name}"), &mut value[..]).unwrap();
    let text = std::str::from_utf8(&value[..length]).unwrap();
    text.split('.').next().unwrap().parse().unwrap()
}

#[test]
fn recursive_sums_count_all_ranks() {
    // `cluster` prints the reason where nothing can be mounted.
    if cluster().is_none() {
        return;
    }
    let world = World::with(&["--mds", "3"]);
    world.run(&["balancer", "set", "static"]).done();
    let mount = Mount::new(&world);
    let job = mount.path("job");
    // Each of the five directories is in the one before.
    let mut at = job.clone();
    for depth in 0..5_u16 {
        fs::create_dir(&at).unwrap();
        for file in 0..10 {
            fs::write(at.join(format!("file{file}")), vec![b'x'; 1000 + usize::from(depth)])
                .unwrap();
        }
        if depth > 0 {
            let path = format!("/{}", at.strip_prefix(mount.at()).unwrap().display());
            world.run(&["mds", "pin", &path, &(depth % 3).to_string()]).done();
        }
        at = at.join("below");
    }
    let sums = |dir: &Path| ["rfiles", "rsubdirs", "rentries", "rbytes"].map(|it| number(dir, it));
    assert_eq!(sums(&job), [50, 4, 54, 50_000 + 100]);
    let below = job.join("below/below");
    assert_eq!(sums(&below), [30, 2, 32, 30_000 + 90]);
    // A question to one rank counts the changes on another one.
    let changed = number(&job, "rctime");
    let deep = below.join("below/below");
    fs::write(deep.join("more"), b"12345").unwrap();
    fs::remove_file(deep.join("file0")).unwrap();
    assert_eq!(sums(&job), [50, 4, 54, 50_000 + 100 - 1004 + 5]);
    assert!(number(&job, "rctime") >= changed);
    let all = world.json(&["du", "/job"]);
    assert_eq!((&all["files"], &all["bytes"]), (&50.into(), &(50_100 - 1004 + 5).into()), "{all}");
    mount.end();
}

#[test]
fn a_directory_is_renamed_from_one_rank_to_another_by_mv_without_a_copy() {
    // `cluster` prints the reason where nothing can be mounted.
    if cluster().is_none() {
        return;
    }
    let world = World::with(&["--mds", "2"]);
    world.run(&["balancer", "set", "static"]).done();
    let mount = Mount::new(&world);
    for dir in ["a", "a/dir", "a/dir/sub", "b"] {
        fs::create_dir(mount.path(dir)).unwrap();
    }
    fs::write(mount.path("a/dir/sub/file"), vec![b'x'; 100_000]).unwrap();
    world.run(&["mds", "pin", "/a", "1"]).done();
    let inos = |top: &str| {
        ["", "/sub", "/sub/file"]
            .map(|below| fs::metadata(mount.path(&format!("{top}{below}"))).unwrap().ino())
    };
    let before = inos("a/dir");
    let mv = |from: &str, to: &str| {
        let mv = Command::new("mv").arg(mount.path(from)).arg(mount.path(to)).output().unwrap();
        let said = String::from_utf8_lossy(&mv.stderr).into_owned();
        assert!(mv.status.success() || said.contains("busy"), "{said}");
        mv.status.success()
    };
    assert!(mv("a/dir", "b/other"));
    assert_eq!(inos("b/other"), before);
    assert_eq!(fs::read_dir(mount.path("a")).unwrap().count(), 0);
    assert_eq!(fs::read(mount.path("b/other/sub/file")).unwrap(), vec![b'x'; 100_000]);
    // When it has followed its name it goes back, with the files that came since.
    fs::write(mount.path("b/other/sub/more"), b"more").unwrap();
    until("it has followed its name", || mv("b/other", "a/dir"));
    assert_eq!(inos("a/dir"), before);
    assert_eq!(fs::read(mount.path("a/dir/sub/more")).unwrap(), b"more");
    mount.end();
}

#[test]
fn a_file_gets_a_name_in_a_directory_of_another_rank_by_ln() {
    // `cluster` prints the reason where nothing can be mounted.
    if cluster().is_none() {
        return;
    }
    let world = World::with(&["--mds", "2"]);
    let mount = Mount::new(&world);
    for dir in ["a", "b"] {
        fs::create_dir(mount.path(dir)).unwrap();
    }
    world.run(&["mds", "pin", "/a", "1"]).done();
    // The mount that links has both directories, and files in them, open and cached.
    fs::write(mount.path("a/file"), b"content").unwrap();
    fs::write(mount.path("b/other"), b"another").unwrap();
    let open = fs::File::open(mount.path("a/file")).unwrap();
    assert_eq!(fs::read_dir(mount.path("b")).unwrap().count(), 1);
    fs::hard_link(mount.path("a/file"), mount.path("b/name")).unwrap();
    let [file, name] = ["a/file", "b/name"].map(|it| fs::metadata(mount.path(it)).unwrap());
    assert_eq!((file.ino(), file.nlink(), name.nlink()), (name.ino(), 2, 2));
    assert_eq!(fs::read(mount.path("b/name")).unwrap(), b"content");
    assert_eq!(fs::read(mount.path("b/other")).unwrap(), b"another");
    drop(open);
    // The directory that went is removed as any other.
    fs::remove_dir_all(mount.path("b")).unwrap();
    assert_eq!(fs::metadata(mount.path("a/file")).unwrap().nlink(), 1);
    mount.end();
}

#[test]
fn a_program_uses_its_open_files_while_their_directory_moves() {
    // `cluster` prints the reason where nothing can be mounted.
    if cluster().is_none() {
        return;
    }
    let world = World::with(&["--mds", "3"]);
    world.run(&["balancer", "set", "static"]).done();
    let mount = Mount::new(&world);
    fs::create_dir(mount.path("job")).unwrap();
    let mut log = fs::File::create_new(mount.path("job/log")).unwrap();
    log.write_all(b"line 0\n").unwrap();
    log.lock().unwrap();
    let reader = fs::File::open(mount.path("job/log")).unwrap();
    let other = fs::File::open(mount.path("job/log")).unwrap();
    for round in 1..=9 {
        world.run(&["mds", "pin", "/job", &(round % 3).to_string()]).done();
        log.write_all(format!("line {round}\n").as_bytes()).unwrap();
        if round % 2 == 0 {
            log.sync_all().unwrap();
        }
        assert_eq!(reader.metadata().unwrap().len(), 7 * (round + 1));
        assert!(matches!(other.try_lock(), Err(fs::TryLockError::WouldBlock)), "round {round}");
        // Other clients see the synced lines.
        if round % 2 == 0 {
            let lines = world.run(&["cp", "/job/log", "-"]).done().out;
            assert_eq!(lines.lines().count() as u64, round + 1, "{lines}");
        }
    }
    // It has no name any more, and stays where it was.
    fs::remove_file(mount.path("job/log")).unwrap();
    world.run(&["mds", "pin", "/job", "1"]).done();
    log.write_all(b"the end").unwrap();
    assert_eq!(io::read_to_string(&reader).unwrap().lines().count(), 11);
    log.unlock().unwrap();
    other.lock().unwrap();
    drop((log, reader, other));
    world.run(&["mds", "pin", "/job", "0"]).done();
    fs::remove_dir(mount.path("job")).unwrap();
    mount.end();
}

/// Appends numbered lines of 16 bytes to a file, until there is another one, and says how many.
const APPENDS: &str = r#"exec 3>>"$1"; n=0
until [ -e "$3" ]; do printf '%s %013d\n' "$2" $n >&3 || exit 1; n=$((n + 1)); done
echo $n"#;
const LINE: u64 = 16;

#[test]
fn programs_on_two_mounts_append_to_one_log_while_it_moves_and_servers_are_killed() {
    // `cluster` prints the reason where nothing can be mounted.
    if cluster().is_none() {
        return;
    }
    let world = World::with(&["--mds", "3"]);
    world.run(&["balancer", "set", "static"]).done();
    let mounts = [Mount::new(&world), Mount::new(&world)];
    fs::create_dir(mounts[0].path("job")).unwrap();
    fs::write(mounts[0].path("job/log"), "").unwrap();
    let stop = world.path("stop");
    let programs = [0, 1].map(|program: usize| {
        let log = mounts[program].path("job/log");
        let mut shell = Command::new("sh");
        shell.args(["-c", APPENDS, "sh"]).arg(log).arg(program.to_string()).arg(&stop);
        shell.stdout(Stdio::piped()).spawn().unwrap()
    });
    for round in 0..9_usize {
        let before = fs::metadata(mounts[0].path("job/log")).unwrap().len();
        let mut moves =
            world.command(&["mds", "pin", "/job", &(round % 3).to_string()]).spawn().unwrap();
        // Once it is the one that it goes to, once the one that it comes from, once another one.
        let killed = round / 3 % 3;
        let pid = world.json(&["mds", "ls"])["ranks"][killed]["pid"].as_i64().unwrap();
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
        until("it is missed", || world.json(&["mds", "ls"])["ranks"][killed]["state"] != "active");
        world.run(&["up"]).done();
        let _ = moves.wait().unwrap();
        until("the programs go on", || {
            let after = fs::metadata(mounts[1].path("job/log"));
            after.is_ok_and(|after| after.len() >= before + 20 * LINE)
        });
    }
    fs::write(&stop, "").unwrap();
    let counts = programs.map(|program| {
        let ended = program.wait_with_output().unwrap();
        assert!(ended.status.success());
        String::from_utf8(ended.stdout).unwrap().trim().parse::<usize>().unwrap()
    });
    let log = fs::read_to_string(mounts[0].path("job/log")).unwrap();
    assert!(log == fs::read_to_string(mounts[1].path("job/log")).unwrap());
    for (program, count) in counts.into_iter().enumerate() {
        let own: Vec<&str> =
            log.lines().filter(|line| line.starts_with(&program.to_string())).collect();
        let all: Vec<String> = (0..count).map(|number| format!("{program} {number:013}")).collect();
        assert!(own == all, "program {program}: {} of {count} lines", own.len());
    }
    mounts.into_iter().for_each(Mount::end);
}
