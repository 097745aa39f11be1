//! `cudele run --preload`: unmodified programs whose system calls are answered in their own
//! process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::fixture::World;
use crate::full::Small;
use crate::mounts::{Mount, cluster};

/// A directory's tree, without times: they differ between two runs.
const LIST: &str = "find . -type d -printf '%P/ %m %U %G\\n' -o -type f -printf \
    '%P %y %m %n %U %G %s ' -exec sh -c 'cksum < \"$1\"' sh {} \\; -o -printf '%P %y %l\\n' | \
    LC_ALL=C sort";

/// A directory's tree with numbers and times: they are the same in a job and after its merge.
const TIMES: &str = "find . -mindepth 1 -printf '%P %i %T@\\n' | LC_ALL=C sort";

/// Programs, as scripts of the shell in an empty directory.
const SCRIPTS: [(&str, &str); 15] = [
    (
        "redirections share their offset",
        "echo a > f; (echo b; echo c) >> f; cat f; cat < f | wc -c; exec 5> five; echo in >&5; \
         sh -c 'echo more >&5'; exec 5>&-; cat five; exec 6< five; read a <&6; echo $a; \
         read a <&6; echo $a; { echo one; sh -c 'echo two'; echo three; } > g; cat g",
    ),
    (
        "names",
        "mkdir -p x/y/z; echo f > f; mv f x/y/g; ln -s y/g x/l; cat x/l; ln x/l x/h; ln x/y/g x/h2; \
         cd x; ls -1R; cd ..; rm x/h2; mv x/y/z x/z; rmdir x/z; ! rmdir x/y; ! mkdir x; \
         readlink x/l; test -e x/nope || echo none; ! cat none; ! mv x x/y",
    ),
    (
        "attributes",
        "echo f > f; chmod 4751 f; touch -d @1000000000 f; stat -c '%Y %a %s' f; chown 7:8 f; \
         stat -c '%a %u %g' f; mkdir d; chmod 1777 d; umask 077; echo g > d/g; stat -c %a d d/g; \
         truncate -s 100 f; wc -c f; test -r f; test -x f",
    ),
    (
        "tar",
        "mkdir -p t/a/b; for n in 1 2 3 4 5; do echo $n > t/a/$n; head -c ${n}00000 /dev/zero > \
         t/a/b/$n; done; ln t/a/1 t/hard; ln -s a/1 t/soft; chmod 511 t/a/2; find t -exec touch -h -d @88888 {} +; \
         touch -d @77777 t/a/3; \
         tar cf t.tar --sort=name t; mkdir u; tar xf t.tar -C u; tar tvf t.tar | wc -l; \
         diff -r t u/t && stat -c '%a %Y %h' u/t/a/1 u/t/a/2 u/t/a/3",
    ),
    (
        "cp and du",
        "mkdir -p s/d; seq 20000 > s/seq; echo x > s/d/x; ln -s ../seq s/d/l; cp -a s copy; \
         diff -r s copy; cp -r s other; cp s/seq big; cmp s/seq big; du --apparent-size -s -b s/d/x; \
         find copy -type f | sort; find . -name x -exec cat {} +",
    ),
    (
        "grep, sed and sort",
        "seq 5000 > n; mkdir d; cp n d/m; grep -r 4999 . | sort; grep -c 7 n; sed -i s/1/one/ d/m; \
         grep -c one d/m; sort -rn n -o r; head -3 r; tail -2 n; split -l 2000 n part.; ls; \
         dd if=n of=o bs=100 count=3 seek=2 2> /dev/null; cksum o; comm -12 n n | wc -l; xxd n | \
         tail -1 || true",
    ),
    (
        "removing",
        "mkdir -p a/b/c/d; seq 9 | while read n; do echo $n > a/b/$n; echo > a/b/c/$n; \
         done; rm -r a/b/c; ls a/b; rm a/b/[1-4]; ls a/b; rm -rf a; ls; mkdir -p a/b; ls -A a",
    ),
    (
        "scripts",
        "printf '#!/bin/sh\\necho \"$0\" \"$1\"; exit 3\\n' > sc; chmod +x sc; ./sc hi || echo $?; \
         mkdir bin; mv sc bin/tool; PATH=$PWD/bin:$PATH tool x || echo $?; ! ./bin; echo 'echo in \
         $1' > plain; sh plain y; chmod 644 bin/tool; ./bin/tool 2> /dev/null || echo $?",
    ),
    (
        "reading without the library",
        "mkdir -p d/e; seq 300 > d/f; ln -s f d/l; ln d/f d/h; printf '#!/bin/sh\\necho in $0\\n' > s; \
         chmod +x s; env -u LD_PRELOAD sh -c 'cat d/f | cksum; cat d/l | wc -l; readlink d/l; \
         stat -c \"%n %s %a %h %F\" d/f d/l; stat -c \"%a %h\" d/e; find . | LC_ALL=C sort; ls d; ./s; test -w d/f; \
         grep -rl 299 . | LC_ALL=C sort; ! cat d/none; tail -c 4 d/h'; echo more >> d/f; \
         env -u LD_PRELOAD tail -n 1 d/h; mv d/f d/g; env -u LD_PRELOAD ls d; rm d/h; \
         env -u LD_PRELOAD sh -c 'cat d/g | wc -c; ! test -e d/h; ls -A d/e; exec 4< d/g; read a <&4; \
         echo $a'",
    ),
    (
        "git",
        "export GIT_AUTHOR_DATE=@1 GIT_COMMITTER_DATE=@1 GIT_CONFIG_GLOBAL=/dev/null; git init -q -b \
         m .; git config user.email a@b; git config user.name n; echo hi > f; mkdir d; echo g > d/g; \
         git add .; git status --short; git commit -qm one; git status --short; echo more >> f; \
         git diff --stat; git commit -qam two; git log --format=%h%s; git fsck --strict; \
         git checkout -q -b other HEAD~1; cat f; git merge -q m; cat f; rm -rf .git/logs .git/index",
    ),
    (
        "make and a compiler",
        "printf 'int main(void){return 0;}' > m.c; printf 'all: m a\\nm: m.c\\n\\tcc -o m m.c\\na:\\n\
         \\techo A > a\\n' > Makefile; make -s -j2; ./m; echo $?; cat a; make; strip m; ./m; rm m",
    ),
    (
        "a program that the library cannot serve",
        "echo before > f; env -u LD_PRELOAD sh -c 'cat f; echo beside >> f; mkdir d; echo g > d/g'; \
         cat f d/g; echo after >> f; env -u LD_PRELOAD cat f; ls -A . d; mv d e; env -u LD_PRELOAD \
         cat e/g",
    ),
    (
        "an open file without a name when the programs go over to the mount",
        "perl -e 'open(F, \"+>\", \"f\"); syswrite(F, \"one\\n\"); unlink(\"f\"); system(\"env -u \
         LD_PRELOAD sh -c \\\"echo g > g\\\"\"); syswrite(F, \"two\\n\") or die $!; sysseek(F, 0, 0); \
         sysread(F, $read, 100); print $read, -s F, (stat F)[3], \"\\n\"'; ls -A",
    ),
    (
        "a copy from an open file without a name after the programs went over to the mount",
        "python3 -c 'import os, subprocess; a = open(\"a\", \"w+\"); a.write(\"x\" * 20000); a.flush(); \
         os.unlink(\"a\"); subprocess.run([\"env\", \"-u\", \"LD_PRELOAD\", \"sh\", \"-c\", \"echo > g\"]); \
         b = open(\"b\", \"w+\"); print(os.copy_file_range(a.fileno(), b.fileno(), 30000, 100, 5)); \
         print(os.path.getsize(\"b\"))'; cksum b",
    ),
    (
        "an open file that the mount sees as well",
        "exec 7> log; echo one >&7; env -u LD_PRELOAD cat log; echo two >&7; env -u LD_PRELOAD sh -c \
         'cat log; echo three >> log'; cat log; rm log; echo gone >&7; exec 7>&-; ls -A",
    ),
];

/// A stand-in keeps no attributes, so a descriptor of one must not take them.
#[test]
fn attributes_of_an_open_file_are_refused_and_not_lost() {
    const SCRIPT: &str = r#"
import os
f = open("f", "w")
os.setxattr("f", "user.path", b"1")
try:
    os.setxattr(f.fileno(), "user.open", b"2")
    print("set")
except OSError as error:
    print(error.errno)
os.setxattr("f", "user.path", b"3", os.XATTR_REPLACE)
print(os.listxattr("f"), os.getxattr("f", "user.path"))
"#;
    let Some(world) = cluster() else { return };
    let file = world.path("script");
    fs::write(&file, SCRIPT).unwrap();
    let file = file.to_str().unwrap();
    let run = world.run(&["run", "--preload", "on", "-C", "/job", "--", "python3", file]).done();
    assert!(run.out.starts_with("95\n['user.path'] b'3'\n"), "{}", run.out);
}

/// Runs a script in a directory of this machine.
fn plainly(dir: &Path, script: &str) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec 2>&1; {script}")]).current_dir(dir);
    command.output().expect("a shell")
}

/// The outcome of a script: the end of the job, its output, and the trees that it saw.
struct Outcome {
    report: Value,
    said: String,
    list: String,
    times: String,
}

/// Runs a script as a job, and lists its tree there.
fn preloaded(world: &World, path: &str, script: &str) -> Outcome {
    let to = |name: &str| world.path(name).to_str().expect("plain").to_owned();
    let (said, list, times) = (to("said"), to("list"), to("times"));
    let text = format!(
        "{{ sh -c 'exec 2>&1; {}'; echo \"exit $?\"; }} > {said}; {{ {LIST}; }} > {list}; \
         {{ {TIMES}; }} > {times}",
        script.replace('\'', "'\\''")
    );
    // In a file: in an argument, `cudele run` puts the directory in the place of `{}`.
    let file = to("script");
    fs::write(&file, text).expect("a script");
    let options = ["--json", "run", "--preload", "on", "-C", path, "--", "sh", &file];
    let run = world.run(&options).done();
    let read = |path: &String| fs::read_to_string(path).expect("written by the job");
    let report = run.out.lines().last().and_then(|line| serde_json::from_str(line).ok());
    Outcome {
        report: report.unwrap_or_else(|| serde_json::from_str(&run.out).expect("a report")),
        said: read(&said),
        list: read(&list),
        times: read(&times),
    }
}

fn listed(dir: &Path, what: &str) -> String {
    String::from_utf8(plainly(dir, what).stdout).expect("plain names")
}

/// `$PWD` differs: what a script says of it does not count.
fn without(said: &str, dirs: &[&str]) -> String {
    dirs.iter().fold(said.to_owned(), |said, dir| said.replace(dir, "DIR"))
}

#[test]
fn preloaded_programs_do_what_they_do_elsewhere() {
    let Some(world) = cluster() else { return };
    let mount = Mount::new(&world);
    for (at, (what, script)) in SCRIPTS.iter().enumerate() {
        let plain = tempfile::tempdir().expect("a directory");
        let output = plainly(plain.path(), script);
        let code = output.status.code().expect("no signal");
        let said = String::from_utf8_lossy(&output.stdout);
        let path = format!("/job{at}");
        let found = preloaded(&world, &path, script);
        let wanted = format!("{said}exit {code}\n");
        let plain_dir = plain.path().to_str().expect("plain");
        let said = without(&found.said, &[]);
        assert_eq!(without(&wanted, &[plain_dir]), job_named(&said), "{what}");
        assert_eq!(listed(plain.path(), LIST), found.list, "{what}, in the job");
        let merged = mount.path(path.trim_start_matches('/'));
        assert_eq!(listed(&merged, LIST), found.list, "{what}, merged");
        assert_eq!(listed(&merged, TIMES), found.times, "{what}, merged");
        let passed_on = &found.report["preload"]["passed_on"];
        let in_memory = at < 11;
        assert_eq!(passed_on.is_null(), in_memory, "{what}: {passed_on}");
    }
}

/// A job names its directory by a path that this test does not know: everything up to `/bin`.
fn job_named(said: &str) -> String {
    let mut text = String::new();
    for line in said.lines() {
        let at = line.find("/cudele-").map(|at| line[..at].rfind(' ').map_or(0, |at| at + 1));
        match at {
            Some(start) => {
                let rest = &line[start..];
                let end = rest.find("/bin").unwrap_or(rest.len());
                text.push_str(&line[..start]);
                text.push_str("DIR");
                text.push_str(&rest[end..]);
            }
            None => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

/// Compiles a C program of this directory.
fn compiled(world: &World, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mount/preload").join(name);
    let program = world.path(name.trim_end_matches(".c"));
    let done = Command::new("cc").args(["-O1", "-w", "-o"]).arg(&program).arg(&source).status();
    assert!(done.expect("a C compiler").success());
    program
}

#[test]
fn a_killed_preloaded_process_leaves_what_its_finished_calls_did() {
    let Some(world) = cluster() else { return };
    let churn = compiled(&world, "churn.c");
    let (churn, said) = (churn.to_str().unwrap(), world.path("said"));
    let script = format!(
        "for w in a b c d; do {churn} . $w 400 > {0}.$w & eval P$w=$!; done; sleep 0.3; kill -9 $Pb; \
         wait $Pa && wait $Pc && wait $Pd",
        said.to_str().unwrap()
    );
    let options = ["run", "--preload", "on", "-C", "/job", "--", "sh", "-c", &script];
    world.run(&options).done();
    let mount = Mount::new(&world);
    let mut names = Vec::new();
    for entry in fs::read_dir(mount.path("job")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let content = fs::read_to_string(mount.path("job").join(&name)).unwrap();
        let last = name.trim_end_matches(".moved");
        // Of the killed process, the last call may be unfinished.
        assert!(content == last || (content.is_empty() && name.starts_with("b-")), "{name}");
        names.push(name);
    }
    for who in ["a", "c", "d"] {
        let count = names.iter().filter(|name| name.starts_with(&format!("{who}-"))).count();
        assert_eq!(count, 400 * 12, "of {who}");
    }
    let rounds = fs::read_to_string(world.path("said.b")).unwrap().lines().count();
    let count = names.iter().filter(|name| name.starts_with("b-")).count();
    assert!(count >= rounds * 12, "{count} files of {rounds} rounds");
}

#[test]
fn a_job_in_memory_answers_no_process_of_another_user() {
    let Some(world) = cluster() else { return };
    if !rustix::process::geteuid().is_root() {
        // Only root can start a process of another user.
        return;
    }
    let stranger = compiled(&world, "stranger.c");
    let (stranger, said) = (stranger.to_str().unwrap(), world.path("said"));
    // The shell's parent is the keeper.
    let script =
        format!("echo kept > f; env -u LD_PRELOAD {stranger} $PPID > {}", said.to_str().unwrap());
    let options = ["--json", "run", "--preload", "on", "-C", "/job", "--", "sh", "-c", &script];
    let run = world.run(&options).done();
    // EPERM to each of the requests, and the programs stay in memory.
    assert_eq!(fs::read_to_string(said).unwrap(), "1 1 1 1 ");
    let report: Value = serde_json::from_str(&run.out).unwrap();
    assert!(report["preload"]["passed_on"].is_null(), "{report}");
    assert_eq!(world.json(&["stat", "/job/f"])["size"], 5);
}

#[test]
fn preload_says_why_it_is_impossible() {
    let Some(world) = cluster() else { return };
    world.run(&["mkdir", "/full"]).done();
    world.run(&["mkdir", "/full/d"]).done();
    let run = |when: &str| world.run(&["run", "--preload", when, "/full", "--", "true"]);
    run("on").refused(&["--preload on", "entries", "--preload off"]);
    // The refusal leaves the directory free.
    world.await_released();
    run("auto").done();
}

#[test]
fn fsync_of_a_preloaded_program_keeps_the_policys_promise() {
    let Some(world) = cluster() else { return };
    let script = "echo kept > f; sync f; kill -9 $PPID; sleep 5";
    let mut command = world.command(&["run", "--preload", "on", "-C", "/job", "--"]);
    let _ = command.args(["sh", "-c", script]).output().unwrap();
    world.run(&["merge", "/job"]).done();
    assert_eq!(world.json(&["stat", "/job/f"])["size"], 5);
}

/// Beginnings of the names of functions that take a path or a descriptor of a file.
const ABOUT_FILES: &str = "open creat close read write pread pwrite lseek llseek stat fstat lstat \
    xstat fxstat lxstat access faccess eaccess euidaccess mkdir mknod xmknod mkfifo rmdir unlink \
    remove rename link symlink chmod fchmod lchmod chown fchown lchown utime futime lutime truncate \
    ftruncate fallocate posix_fa dirfd fdopen scandir rewinddir seekdir telldir getdents getdirent \
    ftw nftw fts glob realpath canonic getcwd getwd get_current chdir fchdir chroot dup fcntl flock \
    lockf ioctl isatty fsync fdatasync sync sendfile copy_file splice tee vmsplice mmap exec fexec \
    posix_spawn system popen fopen freopen fileno tmpfile tempnam mkstemp mkostemp mkdtemp mktemp \
    getxattr lgetxattr fgetxattr listxattr llist flist setxattr lsetx fsetx removex lrem frem \
    pathconf fpathconf readahead name_to_handle open_by inotify_add fanotify dlopen dlmopen shm_open \
    fork vfork clone umask aio_ lio_";

/// The functions of a shared library for programs.
fn functions(library: &Path) -> Vec<String> {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output();
    let text = String::from_utf8(output.expect("binutils").stdout).unwrap();
    let mut names: Vec<_> = text
        .lines()
        .filter(|line| !line.ends_with("GLIBC_PRIVATE"))
        .filter_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            [_, "T" | "W" | "i", name] => name.split('@').next().map(str::to_owned),
            _ => None,
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn every_function_of_libc_about_files_is_covered_or_listed() {
    let library = std::env::current_exe().unwrap().with_file_name("libpreload.so");
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.lines().find_map(|line| {
        line.split_whitespace().nth(5).filter(|path| path.ends_with("/libc.so.6"))
    });
    let Some(libc) = libc else { return };
    let covered = functions(&library);
    let listed = include_str!("../../../preload/functions.txt");
    let is_listed = |name: &str| listed.lines().any(|line| line.split(':').next() == Some(name));
    let about_files = |name: &str| {
        ABOUT_FILES.split_whitespace().any(|start| name.trim_start_matches('_').starts_with(start))
    };
    let missing: Vec<_> = functions(Path::new(libc))
        .into_iter()
        .filter(|name| about_files(name) && !covered.contains(name) && !is_listed(name))
        .collect();
    assert!(missing.is_empty(), "neither in the library nor in functions.txt: {missing:?}");
    let twice = covered.iter().filter(|name| is_listed(name));
    assert_eq!(twice.collect::<Vec<_>>(), Vec::<&String>::new(), "listed, and in the library");
}

#[test]
fn a_job_that_does_not_fit_into_the_store_is_saved_on_this_machine() {
    if cluster().is_none() {
        return;
    }
    let small = Small::new();
    let ballast = small.ballast();
    let world = small.world();
    let saved = tempfile::tempdir().expect("a directory");
    let script = "umask 027; mkdir d; head -c 60000000 /dev/zero > d/large; echo x > d/f; ln d/f h; \
                  ln -s d/f l; chmod 4711 d/f; touch -d @77777 d/f; chmod 750 d";
    let options = ["run", "--preload", "on", "-C", "/job", "--", "sh", "-c", script];
    let output = world.command(&options).env("TMPDIR", saved.path()).output().expect("it runs");
    // Without room no server ends.
    fs::remove_file(&ballast).unwrap();
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("ENOSPC") && error.contains("cudele ingest"), "{error}");
    let mut found = fs::read_dir(saved.path()).unwrap();
    let dir = found.next().expect("the files of the job").unwrap().path();
    assert!(error.contains(dir.to_str().unwrap()), "{error}");
    let plain = tempfile::tempdir().expect("a directory");
    assert!(plainly(plain.path(), script).status.success());
    assert_eq!(listed(plain.path(), LIST), listed(&dir, LIST));
    let mtime = |dir: &Path| fs::metadata(dir.join("d/f")).unwrap().modified().unwrap();
    assert_eq!(mtime(plain.path()), mtime(&dir));
    drop(world);
}
