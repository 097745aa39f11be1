//! A server of a job's own, which several processes share.

use std::process::{Command, Stdio};
use std::sync::Arc;

use branches::Branches;
use cudele::{Errno, NewFile};
use objstore::{Action, FaultRules, Faulty, Operation, Rule};
use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::{Cluster, eventually, text};
use crate::mounted::can_mount;
use crate::{branch, store, tree, write};

/// Longer than the largest inline content.
const LONG: usize = 200_000;

/// A cluster that was stopped, and a branch `b` of its `/deep/proj`.
fn at_rest() -> Cluster {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "-p", "/deep/proj/dir", "/deep/beside"]);
    write(&cluster, "/deep/proj/old", "old");
    write(&cluster, "/deep/proj/long", &"l".repeat(LONG));
    cluster.run(&["branch", "create", "b", "/deep/proj"]);
    cluster.run(&["down"]);
    cluster
}

/// The command that runs a script beside a server of the branch.
fn job(cluster: &Cluster, script: &str) -> Command {
    let store = store(cluster);
    let arguments =
        ["run", "--store", &store, "--branch", "b", "--private", "--", "sh", "-ec", script];
    let mut command = cluster.command(&arguments);
    command.env("CUDELE", env!("CARGO_BIN_EXE_cudele"));
    command
}

fn run(cluster: &Cluster, script: &str) -> String {
    let output = job(cluster, script).output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn layers(cluster: &Cluster) -> u64 {
    cluster.json(&["branch", "--store", &store(cluster), "show", "b"])["layers"].as_u64().unwrap()
}

#[test]
fn the_processes_of_a_job_share_a_branch_and_what_they_did_is_one_layer() {
    let cluster = at_rest();
    let script = r#"
        for job in 1 2 3 4; do
            (for file in 1 2 3; do
                "$CUDELE" mkdir -p "$CUDELE_JOB/new/$job"
                echo "$job.$file" | "$CUDELE" cp - "$CUDELE_JOB/new/$job/$file"
            done) & all="$all $!"
        done
        for one in $all; do wait $one; done
        "$CUDELE" cp /deep/proj/long /deep/proj/copy
        echo new | "$CUDELE" cp - /deep/proj/old
        "$CUDELE" mv /deep/proj/dir /deep/proj/new/moved
        "$CUDELE" rm /deep/proj/new/1/1
        "$CUDELE" find /deep/proj
        refused() {
            errno=$1; shift
            said=$("$CUDELE" "$@" 2>&1) && { echo "$@ is not refused"; exit 9; }
            case $said in *$errno*) ;; *) echo "$said"; exit 8;; esac
        }
        refused EPERM mkdir /deep/other
        refused EPERM mv /deep/proj /deep/other
        refused EOPNOTSUPP policy set /deep/proj batchfs
        refused EOPNOTSUPP decouple /deep/proj/new batchfs
        "$CUDELE" ls /deep
    "#;
    let said = run(&cluster, script);
    let mut lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.pop(), Some("proj"), "nothing is beside the branch");
    assert_eq!(tree(&cluster, "b"), lines, "what the job saw at its end");
    assert_eq!(lines.len(), 1 + 3 + 1 + 4 + 11 + 1, "{lines:?}");
    assert_eq!(layers(&cluster), 1);
    assert_eq!(
        branch(&cluster, &["cat", "b", "/deep/proj/old", "/deep/proj/new/4/2"]),
        "new\n4.2\n"
    );
    // The next job has a server that recovers to where that one ended.
    let second = r#"
        "$CUDELE" cp /deep/proj/new/2/3 -
        "$CUDELE" rm -r /deep/proj/new/3
        "$CUDELE" mv /deep/proj/copy /deep/proj/new/2/3
    "#;
    assert_eq!(run(&cluster, second), "2.3\n");
    assert_eq!(layers(&cluster), 2);
    // One that changes nothing adds nothing.
    run(&cluster, r#""$CUDELE" ls "$CUDELE_JOB" > /dev/null"#);
    assert_eq!(layers(&cluster), 2);
    // It is published and merged like any other.
    let expected = tree(&cluster, "b");
    cluster.start();
    assert_eq!(cluster.run(&["cp", "/deep/proj/old", "-"]), b"old");
    cluster.run(&["publish", "b"]);
    cluster.run(&["branch", "merge"]);
    assert_eq!(cluster.say(&["find", "/deep/proj"]).lines().collect::<Vec<_>>(), expected);
    assert_eq!(cluster.run(&["cp", "/deep/proj/old", "-"]), b"new\n");
    assert_eq!(cluster.run(&["cp", "/deep/proj/new/2/3", "-"]), "l".repeat(LONG).as_bytes());
    cluster.run(&["down"]);
    cluster.run(&["fsck"]);
}

#[test]
fn several_mounts_of_a_job_see_each_other_and_the_snapshot_stays_as_it_is() {
    if !can_mount() {
        return;
    }
    let cluster = at_rest();
    let script = r#"
        mkdir m1 m2
        "$CUDELE" mount m1 > /dev/null
        "$CUDELE" mount m2 > /dev/null
        trap '("$CUDELE" umount m1; "$CUDELE" umount m2) > /dev/null' EXIT
        echo more >> m1/deep/proj/long
        tail -c 5 m2/deep/proj/long
        echo and more >> m2/deep/proj/long
        tail -c 14 m1/deep/proj/long
        printf X | dd of=m2/deep/proj/old bs=1 seek=1 conv=notrunc 2>/dev/null
        cat m1/deep/proj/old
        truncate -s 3 m1/deep/proj/long
        cat m2/deep/proj/long
        echo in > m1/deep/proj/dir/one
        mv m2/deep/proj/dir/one m2/deep/proj/dir/two
        cat m1/deep/proj/dir/two
    "#;
    assert_eq!(run(&cluster, script), "more\nmore\nand more\noXdlllin\n");
    let cat = |path: &str| branch(&cluster, &["cat", "b", path]);
    assert_eq!((cat("/deep/proj/long"), cat("/deep/proj/old")), ("lll".into(), "oXd".into()));
    // Committed content is not overwritten either: a failed job changes nothing.
    let script = r#"
        mkdir -p m1
        "$CUDELE" mount m1 > /dev/null
        trap '"$CUDELE" umount m1 > /dev/null' EXIT
        dd if=/dev/zero bs=100000 count=1 >> m1/deep/proj/dir/two 2>/dev/null
        echo again >> m1/deep/proj/long
    "#;
    run(&cluster, script);
    let (two, long) = (cat("/deep/proj/dir/two"), cat("/deep/proj/long"));
    assert_eq!((two.len(), &*long), (100_003, "lllagain\n"));
    let failing = format!("{script}\necho lost >> m1/deep/proj/dir/two; kill -9 $PPID; sleep 1");
    assert!(!job(&cluster, &failing).output().unwrap().status.success());
    assert_eq!(cat("/deep/proj/dir/two"), two);
    assert_eq!(tree(&cluster, "b").len(), 5, "no copy is left");
    cluster.start();
    assert_eq!(cluster.run(&["cp", "/deep/proj/long", "-"]), "l".repeat(LONG).as_bytes());
}

#[test]
fn a_job_that_is_killed_leaves_the_branch_as_it_was() {
    let cluster = at_rest();
    run(
        &cluster,
        r#""$CUDELE" mkdir "$CUDELE_JOB/first"; "$CUDELE" cp "$CUDELE_JOB/long" "$CUDELE_JOB/kept""#,
    );
    let content = cluster.objects("data/");
    let (before, object) = (tree(&cluster, "b"), cluster.objects("branches/layers/"));
    let script = r#"
        "$CUDELE" mkdir /deep/proj/second
        "$CUDELE" cp /deep/proj/long /deep/proj/second/long
        "$CUDELE" rm -r /deep/proj/first
        echo $$ > pid.tmp && mv pid.tmp pid
        exec sleep 60
    "#;
    let mut child = job(&cluster, script).stderr(Stdio::null()).spawn().unwrap();
    let noted = cluster.home.join("pid");
    eventually("the job has worked", || noted.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    let left = std::fs::read_to_string(&noted).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(left).unwrap(), Signal::KILL).unwrap();
    assert_eq!(tree(&cluster, "b"), before);
    assert_eq!(cluster.objects("branches/layers/"), object);
    assert_eq!(
        cluster.objects("data/").len(),
        content.len() + 2,
        "content that nobody has, and its checksums"
    );
    assert_eq!(Branches::open(&store(&cluster)).unwrap().collect(false).unwrap().contents, 1);
    assert_eq!(cluster.objects("data/"), content);
    // And the next one has it.
    run(&cluster, r#""$CUDELE" mkdir /deep/proj/third"#);
    let mut expected = before;
    expected.push("/deep/proj/third".to_owned());
    assert_eq!(tree(&cluster, "b"), expected);
}

#[test]
fn a_job_is_in_the_branch_as_a_whole_or_not_at_all_wherever_its_end_fails() {
    let cluster = at_rest();
    let before = tree(&cluster, "b");
    let sockets = cluster.home.join("sockets");
    std::fs::create_dir(&sockets).unwrap();
    for step in 0.. {
        let (faults, plain) = (FaultRules::default(), objstore::open_existing(&store(&cluster)));
        let faulty = Arc::new(Faulty::new(plain.unwrap(), faults.clone()));
        let branches = Branches::of(faulty);
        let server = jobserver::serve(&branches, "b", &store(&cluster), &sockets).unwrap();
        let fs = cudele::Cluster::connect(server.address()).unwrap().mount().unwrap();
        let dir = fs.open_dir("/deep/proj").unwrap();
        for number in 0..50 {
            dir.create(format!("f{number}"), &NewFile::default()).unwrap();
        }
        dir.unlink("old").unwrap();
        let fail = Rule::new(Action::Fail(Errno::Io)).on(Operation::Put).after(step).times(1);
        faults.add(fail);
        let finished = server.finish();
        faults.clear();
        let after = tree(&cluster, "b");
        if let Ok(events) = finished {
            assert_eq!((events, step), (51, 2), "a layer and the branch are put");
            assert_eq!(after.len(), before.len() + 50 - 1);
            break;
        }
        assert_eq!(after, before, "step {step}");
    }
    // The next collection deletes unreferenced objects.
    Branches::open(&store(&cluster)).unwrap().collect(false).unwrap();
    assert_eq!(cluster.objects("branches/layers/").len(), 1);
}

#[test]
fn content_beside_the_rows_is_read_as_it_was_whatever_the_trunk_does() {
    let cluster = Cluster::up();
    let fs = cluster.mount();
    fs.make_dir("/deep/proj", 0o755).unwrap();
    let dir = fs.open_dir("/deep/proj").unwrap();
    let content = |number: usize, round: usize| vec![b"abcdefghijklm"[(number + round) % 13]; 3000];
    let create = |round| {
        for number in 0..64 {
            let data = content(number, round);
            let new = NewFile { data: &data, size: 3000, ..NewFile::default() };
            dir.create(format!("f{number}"), &new).unwrap();
        }
        fs.checkpoint().unwrap();
    };
    create(0);
    let values = || cluster.objects("dirs/").iter().filter(|it| it.contains("/values.")).count();
    assert!(values() > 0, "{:?}", cluster.objects("dirs/"));
    cluster.run(&["branch", "create", "b", "/deep/proj"]);
    for round in 1..6 {
        (0..64).for_each(|number| dir.unlink(format!("f{number}")).unwrap());
        create(round);
    }
    drop((dir, fs));
    cluster.run(&["down"]);
    let script = r#"
        for file in 0 31 63; do "$CUDELE" cp "$CUDELE_JOB/f$file" -; done
        "$CUDELE" mv "$CUDELE_JOB/f31" "$CUDELE_JOB/moved"
    "#;
    let expected: Vec<u8> = [0, 31, 63].into_iter().flat_map(|number| content(number, 0)).collect();
    assert_eq!(run(&cluster, script).into_bytes(), expected);
    assert_eq!(branch(&cluster, &["cat", "b", "/deep/proj/moved"]).into_bytes(), content(31, 0));
    assert_eq!(tree(&cluster, "b").len(), 65);
}
