//! Several metadata servers: subtrees that move from one to another while clients work there, and
//! servers that are killed during that.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cudele::{AttrChange, Dir, Errno, Fs, Ino, NewFile, Policy, RenameFlags, Subtree};
use rustix::process::{Pid, Signal, kill_process};
use types::{Cred, Rank};

use crate::cluster::{Cluster, eventually};

fn ranks(cluster: &Cluster) -> Vec<serde_json::Value> {
    cluster.json(&["mds", "ls"])["ranks"].as_array().unwrap().clone()
}

fn pin(cluster: &Cluster, path: &str, rank: u16) {
    cluster.run(&["mds", "pin", path, &rank.to_string()]);
}

fn pid_of(cluster: &Cluster, rank: u64) -> Pid {
    let entry = ranks(cluster).into_iter().find(|entry| entry["rank"] == rank).unwrap();
    Pid::from_raw(i32::try_from(entry["pid"].as_i64().unwrap()).unwrap()).unwrap()
}

fn kill(cluster: &Cluster, rank: u64) {
    Cluster::kill_process(pid_of(cluster, rank));
}

#[test]
fn a_subtree_is_served_by_the_rank_it_is_pinned_to_and_looks_the_same() {
    let cluster = Cluster::by_hand(&["--mds", "2", "--set", "pass_directories=0"]);
    cluster.run(&["mkdir", "/a"]);
    cluster.run(&["mkdir", "/a/b"]);
    cluster.run_with_input(&["cp", "-", "/a/b/file"], b"content");
    cluster.run(&["mkdir", "/other"]);
    let before = cluster.json(&["stat", "/a"]);
    pin(&cluster, "/a", 1);
    let listed = ranks(&cluster);
    assert_eq!((listed.len(), &listed[1]["state"]), (2, &"active".into()));
    assert_eq!(listed[1]["subtrees"][0]["path"], "/a");
    let age = listed[1]["subtrees"][0]["seconds_since_move"].as_u64().unwrap();
    assert!(age < 600, "{age} s since the move");
    assert!(cluster.say(&["mds", "ls"]).contains("/a (moved "));
    let after = cluster.json(&["stat", "/a"]);
    for same in ["ino", "mode", "mtime", "ctime", "nlink"] {
        assert_eq!(before[same], after[same], "{same}");
    }
    assert_eq!((&before["rank"], &after["rank"]), (&0.into(), &1.into()));
    assert_eq!(cluster.run(&["cp", "/a/b/file", "-"]), b"content");
    // A rename across the border is refused with the errno that mv expects, and other ones work.
    cluster.run(&["mkdir", "/a/new"]);
    let said = cluster.fails(1, &["mv", "/a/new", "/other/new"]);
    assert!(said.contains("EXDEV"), "{said}");
    let said = cluster.fails(1, &["policy", "set", "/", "posix"]);
    assert!(said.contains("mds.1 serves /a"), "{said}");
    cluster.run(&["mv", "/a/new", "/a/b/new"]);
    // The subtree survives a clean stop, and comes back.
    cluster.run(&["down"]);
    cluster.start();
    assert_eq!(cluster.run(&["cp", "/a/b/file", "-"]), b"content");
    pin(&cluster, "/a", 0);
    assert_eq!(cluster.json(&["stat", "/a"])["rank"], 0);
    cluster.run(&["mv", "/a/b/new", "/other/new"]);
    cluster.run(&["rm", "-r", "/a"]);
    assert_eq!(cluster.say(&["ls", "/"]).trim(), "other");
}

#[test]
fn a_subtree_that_came_back_moves_with_its_parent() {
    let cluster = Cluster::by_hand(&["--mds", "2"]);
    cluster.run(&["mkdir", "/a"]);
    cluster.run(&["mkdir", "/a/b"]);
    cluster.run_with_input(&["cp", "-", "/a/b/file"], b"content");
    for (path, rank) in [("/a/b", 1), ("/a/b", 0), ("/a", 1)] {
        pin(&cluster, path, rank);
    }
    let is_at = |rank: u16| {
        assert_eq!(cluster.run(&["cp", "/a/b/file", "-"]), b"content");
        for path in ["/a", "/a/b", "/a/b/file"] {
            assert_eq!(cluster.json(&["stat", path])["rank"], rank, "{path}");
        }
    };
    is_at(1);
    cluster.run(&["mkdir", "/a/b/new"]);
    // After this neither rank remembers the subtree that it gave away.
    cluster.run(&["down"]);
    cluster.start();
    is_at(1);
    pin(&cluster, "/a", 0);
    is_at(0);
    pin(&cluster, "/a/b", 1);
    assert_eq!(cluster.run(&["cp", "/a/b/file", "-"]), b"content");
    assert_eq!(cluster.json(&["stat", "/a/b"])["rank"], 1);
    assert_eq!(cluster.json(&["stat", "/a"])["rank"], 0);
}

#[test]
fn a_refused_move_names_its_reason() {
    let cluster = Cluster::by_hand(&["--mds", "2"]);
    cluster.run(&["mkdir", "/a"]);
    cluster.run(&["mkdir", "/b"]);
    let fs = cluster.mount();
    let [dir, other] = ["/a", "/b"].map(|path| fs.open_dir(path).unwrap());
    let file = dir.create("one", &NewFile::default()).unwrap();
    other.link(file.ino, "two").unwrap();
    let error = fs.pin(dir.ino(), Rank(1)).unwrap_err();
    assert_eq!(error.errno, Errno::Busy);
    assert!(error.to_string().contains("/a/one"), "{error}");
    assert!(error.to_string().contains("several names"), "{error}");
    other.unlink("two").unwrap();
    let error = fs.pin(dir.ino(), Rank(9)).unwrap_err();
    assert_eq!(error.errno, Errno::Again);
    assert_eq!(fs.pin(Ino::ROOT, Rank(1)).unwrap_err().errno, Errno::Busy);
    cluster.run(&["mkdir", "/a/below"]);
    let below = fs.stat("/a/below").unwrap();
    cluster.run(&["decouple", "/a", "batchfs"]);
    let error = fs.pin(below.ino, Rank(1)).unwrap_err();
    assert!(error.to_string().contains("decoupled a directory above it"), "{error}");
}

#[test]
fn a_file_has_several_names_on_any_rank_but_all_on_the_same() {
    let cluster = Cluster::by_hand(&["--mds", "3"]);
    for (rank, path) in ["/zero", "/one", "/two"].into_iter().enumerate() {
        cluster.run(&["mkdir", path]);
        cluster.run(&["mkdir", &format!("{path}/below")]);
        pin(&cluster, path, u16::try_from(rank).unwrap());
    }
    let fs = cluster.mount();
    for path in ["/zero", "/one", "/two"] {
        let [dir, below] = [path, &format!("{path}/below")].map(|it| fs.open_dir(it).unwrap());
        cluster.run_with_input(&["cp", "-", &format!("{path}/first")], path.as_bytes());
        let file = dir.lookup("first").unwrap();
        below.link(file.ino, "second").unwrap();
        below.link(file.ino, "third").unwrap();
        below.unlink("third").unwrap();
        let change = AttrChange { mode: Some(0o600), ..AttrChange::default() };
        fs.set_attr(file.ino, &change).unwrap();
    }
    let [zero, one] = ["/zero", "/one"].map(|path| fs.open_dir(path).unwrap());
    let error = zero.link(one.lookup("first").unwrap().ino, "astray").unwrap_err();
    assert_eq!(error.errno, Errno::CrossDevice, "{error}");
    fs.sync().unwrap();
    let both = |path: &str| {
        let [first, second] = [format!("{path}/first"), format!("{path}/below/second")];
        let [a, b] = [&first, &second].map(|path| cluster.json(&["stat", path]));
        assert_eq!((&a["ino"], &a["nlink"], &a["mode"]), (&b["ino"], &b["nlink"], &b["mode"]));
        assert_eq!((&a["nlink"], &a["size"]), (&2.into(), &path.len().into()), "{a}");
        [first, second]
            .iter()
            .for_each(|it| assert_eq!(cluster.run(&["cp", it, "-"]), path.as_bytes()));
    };
    // A server that is killed, and ones that stop, find them again, each its own.
    kill(&cluster, 1);
    cluster.start();
    ["/zero", "/one", "/two"].into_iter().for_each(both);
    cluster.run(&["down"]);
    let said = cluster.say(&["fsck"]);
    assert!(said.contains("Everything adds up"), "{said}");
    cluster.start();
    ["/zero", "/one", "/two"].into_iter().for_each(both);
    // They are in a branch, which is read from the store, and move only with the directory that has
    // all of them.
    cluster.run(&["branch", "create", "b", "/one"]);
    let said = cluster.fails(1, &["mds", "pin", "/one/below", "0"]);
    assert!(said.contains("several names"), "{said}");
    pin(&cluster, "/one", 2);
    both("/one");
    cluster.run(&["rm", "/one/first"]);
    let last = cluster.json(&["stat", "/one/below/second"]);
    assert_eq!(last["nlink"], 1);
    cluster.run(&["rm", "/one/below/second"]);
    pin(&cluster, "/one", 0);
    let kept = cluster.json(&["branch", "ls", "b", "/one/below/second"]);
    assert_eq!((&kept[0]["ino"], &kept[0]["nlink"]), (&last["ino"], &2.into()), "{kept}");
    cluster.run(&["down"]);
    let said = cluster.say(&["fsck"]);
    assert!(said.contains("Everything adds up"), "{said}");
}

/// Appends the creation of so many files to a decoupled subtree's journal.
fn append(job: &mut Subtree, files: &mut BTreeMap<String, Ino>, count: usize) {
    for _ in 0..count {
        let (root, name) = (job.root(), format!("f{}", files.len()));
        let ino = job.create(root, name.as_bytes(), &NewFile::default()).unwrap();
        assert!(files.values().all(|known| *known != ino), "numbers are given once");
        files.insert(name, ino);
    }
}

fn listed(cluster: &Cluster, path: &str) -> BTreeMap<String, Ino> {
    let rows = cluster.json(&["ls", path]);
    let row = |row: &serde_json::Value| {
        (row["name"].as_str().unwrap().to_owned(), Ino(row["ino"].as_u64().unwrap()))
    };
    rows.as_array().unwrap().iter().map(row).collect()
}

#[test]
fn a_decoupled_subtree_moves_along_and_its_client_continues() {
    let cluster = Cluster::by_hand(&["--mds", "2"]);
    cluster.run(&["mkdir", "/a"]);
    cluster.run(&["mkdir", "/a/job"]);
    let fs = cluster.mount();
    let text = "consistency: append_client_journal+volatile_apply\ndurability: global_persist\n\
                allocated_inodes: 100\n";
    let policy = Policy::parse(text).unwrap().policy;
    let (mut job, mut files) = (fs.decouple("/a/job", &policy).unwrap(), BTreeMap::new());
    for rank in [1, 0, 1] {
        append(&mut job, &mut files, 300);
        // A part is being sent for a merge when the subtree leaves, or before, or after.
        let mut moving = cluster.command(&["mds", "pin", "/a", &rank.to_string()]).spawn().unwrap();
        job.sync().unwrap();
        assert!(moving.wait().unwrap().success());
        kill(&cluster, rank);
        cluster.start();
        fs.sync().unwrap();
        assert_eq!(listed(&cluster, "/a/job"), files, "after it went to rank {rank}");
    }
    // Another client takes over the work that was not merged, at the present rank of the subtree.
    append(&mut job, &mut files, 100);
    job.persist().unwrap();
    drop(job);
    let status = cluster.json(&["status"]);
    assert_eq!(status["decoupled"][0]["path"], "/a/job", "{status}");
    cluster.run(&["recover", "/a/job"]);
    cluster.run(&["merge", "/a/job"]);
    assert_eq!(listed(&cluster, "/a/job"), files);
    cluster.run_with_input(&["cp", "-", "/a/job/more"], b"everybody's again");
    pin(&cluster, "/a", 0);
    assert_eq!(listed(&cluster, "/a/job").len(), files.len() + 1);
}

/// The journal of a job is on the disk of its client: the rank that merges it may be any.
#[test]
fn subtrees_of_batch_jobs_move_after_their_merge_and_before() {
    let cluster = Cluster::by_hand(&["--mds", "2"]);
    cluster.run(&["mkdir", "/a"]);
    let fs = cluster.mount();
    let policy = Policy::from_name_or_text("batchfs").unwrap().policy;
    // Below a directory of another rank nothing is decoupled.
    let jobs = [1, 0, 1].into_iter().enumerate().map(|(number, rank)| {
        let path = format!("/a/job{number}");
        cluster.run(&["mkdir", &path]);
        let job = fs.decouple(&path, &policy).unwrap();
        (path, job, rank)
    });
    let jobs: Vec<_> = jobs.collect();
    let mut merged = BTreeMap::new();
    for (path, mut job, rank) in jobs {
        let mut files = BTreeMap::new();
        append(&mut job, &mut files, 300);
        pin(&cluster, "/a", rank);
        append(&mut job, &mut files, 300);
        job.persist().unwrap();
        kill(&cluster, u64::from(rank));
        cluster.start();
        append(&mut job, &mut files, 300);
        job.merge().or_else(|_| job.merge()).unwrap();
        job.forget().unwrap();
        merged.insert(path, files);
        for (path, files) in &merged {
            assert_eq!(&listed(&cluster, path), files, "{path} after the move to rank {rank}");
        }
    }
}

/// Creates files until `done` is set. Returns the acknowledged ones.
fn work(
    fs: &std::sync::Arc<Fs>,
    path: &str,
    done: &AtomicBool,
    made: &AtomicU64,
) -> BTreeMap<String, Ino> {
    let dir = fs.open_dir(path).unwrap();
    let mut files = BTreeMap::new();
    while !done.load(Ordering::Acquire) {
        let name = format!("f{}", files.len());
        let file = dir.create(&name, &NewFile::default()).unwrap();
        files.insert(name, file.ino);
        if files.len() % 7 == 0 {
            // A name is used twice, so that doing something twice shows.
            let name = format!("f{}", files.len() - 1);
            dir.rename(name.as_bytes(), &dir, b"passing", RenameFlags::default()).unwrap();
            dir.rename(b"passing", &dir, name.as_bytes(), RenameFlags::default()).unwrap();
        }
        made.fetch_add(1, Ordering::Release);
    }
    files
}

#[test]
fn clients_continue_while_their_subtree_moves_and_servers_are_killed() {
    let cluster = Cluster::by_hand(&["--mds", "2"]);
    cluster.run(&["mkdir", "/a"]);
    cluster.run(&["mkdir", "/b"]);
    let (done, made) = (AtomicBool::new(false), AtomicU64::new(0));
    let first = cluster.mount();
    let second = cluster.mount();
    let files = std::thread::scope(|scope| {
        let workers = [(&first, "/a"), (&second, "/b")]
            .map(|(fs, path)| scope.spawn(|| work(fs, path, &done, &made)));
        let progress = || {
            let so_far = made.load(Ordering::Acquire);
            eventually("clients go on", || made.load(Ordering::Acquire) > so_far + 50);
        };
        for round in 0..2 {
            progress();
            pin(&cluster, "/a", 1);
            progress();
            // One of the two sides is killed while the other subtree may be moving.
            let mut moving = cluster.command(&["mds", "pin", "/b", "1"]).spawn().unwrap();
            kill(&cluster, round % 2);
            cluster.start();
            let _ = moving.wait().unwrap();
            progress();
            pin(&cluster, "/a", 0);
            pin(&cluster, "/b", 0);
        }
        done.store(true, Ordering::Release);
        workers.map(|worker| worker.join().unwrap())
    });
    assert!(first.redirected() > 0, "subtrees moved under its hands");
    first.sync().unwrap();
    second.sync().unwrap();
    for (path, files) in ["/a", "/b"].iter().zip(files) {
        assert_eq!(listed(&cluster, path), files, "{path}");
    }
}

#[test]
fn a_standby_takes_over_a_rank_that_lost_its_server() {
    let cluster = Cluster::by_hand(&["--mds", "2", "--standby", "1"]);
    cluster.run(&["mkdir", "/a"]);
    pin(&cluster, "/a", 1);
    let fs = cluster.mount();
    let dir = fs.open_dir("/a").unwrap();
    dir.create("before", &NewFile::default()).unwrap();
    let old = ranks(&cluster)[1]["pid"].clone();
    let without_standby = || cluster.has_condition("NO_STANDBY");
    eventually("the standby waits", || cluster.dir.join("standby.0.lock").exists());
    assert!(!without_standby());
    kill(&cluster, 1);
    // The client waits for the standby, without any other start of a server.
    dir.create("after", &NewFile::default()).unwrap();
    let entry = ranks(&cluster)[1].clone();
    assert_eq!(entry["state"], "active");
    assert_ne!(entry["pid"], old);
    assert_eq!(cluster.json(&["ls", "/a"]).as_array().unwrap().len(), 2);
    assert!(without_standby());
    assert_eq!(cluster.health().1, 1);
    cluster.run(&["down"]);
}

#[test]
fn a_standby_takes_over_a_rank_that_an_administrator_failed() {
    let cluster = Cluster::up_with(&["--standby", "1"]);
    eventually("the standby waits", || cluster.dir.join("standby.0.lock").exists());
    cluster.run(&["mkdir", "/a"]);
    let before = ranks(&cluster)[0]["pid"].clone();
    cluster.run(&["mds", "fail", "0"]);
    eventually("the standby serves", || {
        let rank = &ranks(&cluster)[0];
        rank["state"] == "active" && rank["pid"] != before
    });
    assert_eq!(cluster.names("/"), ["a"]);
    // A standby that waits while the cluster goes down takes over nothing.
    cluster.start();
    cluster.run(&["down"]);
    eventually("no standby is left", || cluster.daemons("mds").is_empty());
}

#[test]
fn a_restarted_server_whose_rank_is_taken_over_is_the_next_standby() {
    let cluster = Cluster::up_with(&["--standby", "1"]);
    eventually("the standby waits", || cluster.dir.join("standby.0.lock").exists());
    let fs = cluster.mount();
    let dir = fs.open_dir("/").unwrap();
    dir.create("0", &NewFile::default()).unwrap();
    let mut servers = BTreeSet::from([pid_of(&cluster, 0).as_raw_nonzero()]);
    let mut restarted = Vec::new();
    for round in 1..=3 {
        kill_process(pid_of(&cluster, 0), Signal::TERM).unwrap();
        let mut again = cluster.command(&["mds", "--rank", "0", "--or-standby"]);
        restarted.push(again.stderr(Stdio::null()).spawn().unwrap());
        // The standby serves it, or this one; the other waits.
        dir.create(format!("{round}"), &NewFile::default()).unwrap();
        servers.insert(pid_of(&cluster, 0).as_raw_nonzero());
    }
    assert!(servers.len() > 1, "{servers:?}");
    eventually("one waits", || !cluster.has_condition("NO_STANDBY"));
    assert_eq!(cluster.names("/"), ["0", "1", "2", "3"]);
    cluster.run(&["down"]);
    // One that still waits ends when it has not heard of the monitor for long.
    restarted.into_iter().for_each(|mut server| assert!(server.wait().is_ok()));
}

#[test]
fn ranks_are_added_and_ended_while_clients_work() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "/a"]);
    let fs = cluster.mount();
    let dir = fs.open_dir("/a").unwrap();
    dir.create("one", &NewFile::default()).unwrap();
    cluster.run(&["up", "--mds", "3"]);
    assert_eq!(ranks(&cluster).len(), 3);
    pin(&cluster, "/a", 2);
    dir.create("two", &NewFile::default()).unwrap();
    cluster.run(&["mds", "fail", "2"]);
    eventually("the rank has lost its server", || ranks(&cluster)[2]["state"] == "lost");
    cluster.start();
    dir.create("three", &NewFile::default()).unwrap();
    assert_eq!(cluster.json(&["ls", "/a"]).as_array().unwrap().len(), 3);
}

#[test]
fn nested_subtrees_are_served_by_their_own_ranks() {
    let cluster = Cluster::by_hand(&["--mds", "3"]);
    cluster.run(&["mkdir", "/a"]);
    cluster.run(&["mkdir", "/a/b"]);
    cluster.run(&["mkdir", "/a/b/c"]);
    let rank = |path: &str| cluster.json(&["stat", path])["rank"].as_u64().unwrap();
    let ranks_are = |expected: [u64; 3]| {
        assert_eq!(["/a", "/a/b", "/a/b/c"].map(rank), expected);
        for dir in ["/a", "/a/b", "/a/b/c"] {
            let name = format!("{dir}/f{}{}{}", expected[0], expected[1], expected[2]);
            cluster.run_with_input(&["cp", "-", &name], name.as_bytes());
            assert_eq!(cluster.run(&["cp", &name, "-"]), name.as_bytes());
        }
    };
    pin(&cluster, "/a", 1);
    // From the inside, and from one rank to another.
    pin(&cluster, "/a/b", 2);
    ranks_are([1, 2, 2]);
    // The inner subtree stays at its rank, though its name moves.
    pin(&cluster, "/a", 0);
    ranks_are([0, 2, 2]);
    pin(&cluster, "/a/b/c", 1);
    pin(&cluster, "/a", 1);
    ranks_are([1, 2, 1]);
    // A restarted server knows the rank of each subtree.
    kill(&cluster, 1);
    cluster.start();
    ranks_are([1, 2, 1]);
    // An outer subtree moves to the rank of an inner one: the inner one becomes a part of it.
    pin(&cluster, "/a", 2);
    pin(&cluster, "/a/b/c", 2);
    ranks_are([2, 2, 2]);
    pin(&cluster, "/a", 0);
    ranks_are([0, 0, 0]);
    cluster.run(&["rm", "-r", "/a"]);
}

#[test]
fn a_rank_that_is_away_does_not_delay_files_of_other_ranks() {
    let cluster = Cluster::by_hand(&["--mds", "3"]);
    let fs = cluster.mount();
    fs.set_patience(None);
    for (dir, rank) in [("/away", 1), ("/here", 0), ("/moves", 0)] {
        fs.make_dir(dir, 0o755).unwrap();
        let made = fs.open_dir(dir).unwrap().create("file", &NewFile::default()).unwrap();
        pin(&cluster, dir, rank);
        fs.open_as(&Cred::root(), made.ino, true).unwrap();
    }
    fs.listen(|_| {}).unwrap();
    let ino = |path: &str| fs.stat(path).unwrap().ino;
    let (here, moves) = (ino("/here/file"), ino("/moves/file"));
    ino("/away/file");
    kill(&cluster, 1);
    let waiting = fs.clone();
    let waits = std::thread::spawn(move || waiting.stat("/away/file").map(|attr| attr.ino));
    eventually("the client looks for the server", || cudele::longest_wait().is_some());
    // The state of a file goes to another rank meanwhile.
    pin(&cluster, "/moves", 2);
    fs.close_file(here, true);
    let other = fs.open_dir("/here").unwrap().create("other", &NewFile::default()).unwrap();
    fs.open_as(&Cred::root(), other.ino, true).unwrap();
    fs.close_file(other.ino, true);
    fs.close_file(moves, true);
    fs.stat("/moves/file").unwrap();
    assert!(!waits.is_finished(), "all of that while the other rank was away");
    cluster.start();
    waits.join().unwrap().unwrap();
}

#[test]
fn a_rank_is_removed_while_clients_work() {
    let cluster = Cluster::by_hand(&["--mds", "3"]);
    cluster.run(&["mkdir", "/a"]);
    cluster.run(&["mkdir", "/b"]);
    let fs = cluster.mount();
    pin(&cluster, "/a", 2);
    pin(&cluster, "/b", 1);
    let said = cluster.fails(1, &["mds", "remove", "1"]);
    assert!(said.contains("mds.2 is removed first"), "{said}");
    let (done, made) = (AtomicBool::new(false), AtomicU64::new(0));
    let files = std::thread::scope(|scope| {
        let worker = scope.spawn(|| work(&fs, "/a", &done, &made));
        for left in [2, 1] {
            let so_far = made.load(Ordering::Acquire);
            eventually("clients go on", || made.load(Ordering::Acquire) > so_far + 50);
            cluster.run(&["mds", "remove", &left.to_string()]);
            assert_eq!(ranks(&cluster).len() as u64, left);
        }
        done.store(true, Ordering::Release);
        worker.join().unwrap()
    });
    fs.sync().unwrap();
    assert_eq!(listed(&cluster, "/a"), files);
    // Numbers that the ranks gave, of which there is nothing left, are found.
    for ino in files.values().step_by(20) {
        fs.as_user(fs.cred()).attr(*ino).unwrap();
    }
    let said = cluster.fails(1, &["mds", "remove", "0"]);
    assert!(said.contains("root"), "{said}");
}

#[test]
fn no_rename_across_ranks_puts_a_directory_below_itself() {
    let cluster = Cluster::by_hand(&["--mds", "2"]);
    for path in ["/a", "/a/b", "/a/b/c", "/other"] {
        cluster.run(&["mkdir", path]);
    }
    pin(&cluster, "/a/b", 1);
    pin(&cluster, "/a/b/c", 0);
    let said = cluster.fails(1, &["mv", "/a", "/a/b/c/a"]);
    assert!(said.contains("EBUSY") && said.contains("/a/b"), "{said}");
    let fs = cluster.mount();
    let [top, c] = ["/", "/a/b/c"].map(|path| fs.open_dir(path).unwrap());
    c.create("x", &NewFile::directory()).unwrap();
    let exchange = RenameFlags { exchange: true, ..RenameFlags::default() };
    let error = c.rename("x", &top, "a", exchange).unwrap_err();
    assert_eq!(error.errno, Errno::Busy, "{error}");
    // Within its tree it may move anywhere, with its content.
    cluster.run(&["mv", "/a", "/other/a"]);
    assert_eq!(cluster.json(&["stat", "/other/a/b/c/x"])["rank"], 0);
    drop((top, c, fs));
    cluster.run(&["down"]);
    let said = cluster.say(&["fsck"]);
    assert!(said.contains("Everything adds up"), "{said}");
}

#[test]
fn a_file_is_renamed_from_a_directory_of_one_rank_to_one_of_another() {
    let cluster = Cluster::by_hand(&["--mds", "2"]);
    cluster.run(&["mkdir", "/a"]);
    cluster.run(&["mkdir", "/b"]);
    pin(&cluster, "/a", 1);
    let large: Vec<u8> = (0..300_000_u32).map(|at| at.to_le_bytes()[0]).collect();
    cluster.run_with_input(&["cp", "-", "/a/small"], b"small");
    cluster.run_with_input(&["cp", "-", "/a/large"], &large);
    let before = cluster.json(&["stat", "/a/large"]);
    cluster.run(&["mv", "/a/small", "/b/small"]);
    cluster.run(&["mv", "/a/large", "/b/other"]);
    let after = cluster.json(&["stat", "/b/other"]);
    for same in ["ino", "mode", "mtime", "size"] {
        assert_eq!(before[same], after[same], "{same}");
    }
    assert_eq!((&before["rank"], &after["rank"]), (&1.into(), &0.into()));
    assert_eq!(listed(&cluster, "/a").len(), 0);
    assert_eq!(cluster.run(&["cp", "/b/other", "-"]), large);
    assert_eq!(cluster.run(&["cp", "/b/small", "-"]), b"small");
    // A file with the new name is replaced, and its content goes; or the rename fails with an
    // error.
    let fs = cluster.mount();
    let [a, b] = ["/a", "/b"].map(|path| fs.open_dir(path).unwrap());
    b.create("kept", &NewFile::default()).unwrap();
    a.create("new", &NewFile::default()).unwrap();
    let no_replace = RenameFlags { no_replace: true, ..RenameFlags::default() };
    let error = a.rename("new", &b, "kept", no_replace).unwrap_err();
    assert_eq!(error.errno, Errno::Exists);
    assert!(a.lookup("new").is_ok(), "it stays where it is");
    a.rename("new", &b, "other", RenameFlags::default()).unwrap();
    assert_eq!(fs.stat("/b/other").unwrap().size, 0);
    assert_eq!(
        a.rename("none", &b, "x", RenameFlags::default()).unwrap_err().errno,
        Errno::NotFound
    );
    cluster.run(&["mkdir", "/a/dir"]);
    assert!(cluster.fails(1, &["mv", "/b/small", "/a/dir/none/x"]).contains("ENOENT"));
    // Nothing is left of all that, and everything adds up.
    fs.sync().unwrap();
    drop((a, b, fs));
    cluster.run(&["down"]);
    let said = cluster.say(&["fsck"]);
    assert!(said.contains("Everything adds up"), "{said}");
}

#[test]
fn a_directory_is_renamed_from_a_directory_of_one_rank_to_one_of_another() {
    let cluster = Cluster::by_hand(&["--mds", "2"]);
    for dir in ["/a", "/b", "/a/dir", "/a/dir/sub", "/b/empty", "/b/full", "/b/full/x"] {
        cluster.run(&["mkdir", dir]);
    }
    pin(&cluster, "/a", 1);
    cluster.run_with_input(&["cp", "-", "/a/dir/sub/file"], b"content");
    let before = cluster.json(&["stat", "/a/dir"]);
    assert!(cluster.fails(1, &["mv", "/b/full", "/a/dir/sub/file"]).contains("ENOTDIR"));
    cluster.run(&["mv", "--no-target-directory", "/a/dir", "/b/empty"]);
    let after = cluster.json(&["stat", "/b/empty"]);
    for same in ["ino", "mode", "mtime"] {
        assert_eq!(before[same], after[same], "{same}");
    }
    assert_eq!(cluster.run(&["cp", "/b/empty/sub/file", "-"]), b"content");
    assert_eq!(listed(&cluster, "/a").len(), 0);
    // It follows its name, and then is a directory as any other.
    eventually("it is where its name is", || cluster.json(&["stat", "/b/empty"])["rank"] == 0);
    cluster.run(&["mv", "/b/empty", "/b/other"]);
    cluster.run(&["mv", "/b/other", "/a/back"]);
    assert_eq!(cluster.run(&["cp", "/a/back/sub/file", "-"]), b"content");
    assert_eq!(listed(&cluster, "/b").len(), 1);
    cluster.run(&["down"]);
    let said = cluster.say(&["fsck"]);
    assert!(said.contains("Everything adds up"), "{said}");
}

/// Moves everything from one directory to the other and back, again and again, while each server is
/// killed three times, in turn: whenever so many more were moved. Returns how often everything was
/// moved.
fn to_and_fro(
    cluster: &Cluster,
    dirs: &[Dir; 2],
    between: u64,
    move_all: impl Fn(&Dir, &Dir, &AtomicU64) + Sync,
) -> usize {
    let (done, made) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut turn = 0;
            while !done.load(Ordering::Acquire) {
                move_all(&dirs[turn % 2], &dirs[(turn + 1) % 2], &made);
                turn += 1;
            }
            turn
        });
        for number in 0..6 {
            let so_far = made.load(Ordering::Acquire);
            eventually("moving goes on", || made.load(Ordering::Acquire) > so_far + between);
            kill(cluster, number % 2);
            cluster.start();
        }
        done.store(true, Ordering::Release);
        worker.join().unwrap()
    })
}

#[test]
fn files_move_between_ranks_while_servers_are_killed() {
    let cluster = Cluster::by_hand(&["--mds", "2"]);
    cluster.run(&["mkdir", "/a"]);
    cluster.run(&["mkdir", "/b"]);
    pin(&cluster, "/a", 1);
    let fs = cluster.mount();
    let dirs = ["/a", "/b"].map(|path| fs.open_dir(path).unwrap());
    let inos: Vec<Ino> = (0..10)
        .map(|number| dirs[0].create(format!("f{number}"), &NewFile::default()).unwrap().ino)
        .collect();
    fs.sync().unwrap();
    let turns = to_and_fro(&cluster, &dirs, 15, |from, to, made| {
        for number in 0..inos.len() {
            let name = format!("f{number}");
            from.rename(&name, to, &name, RenameFlags::default()).unwrap();
            made.fetch_add(1, Ordering::Release);
        }
    });
    let names = inos.iter().enumerate();
    let files: BTreeMap<String, Ino> =
        names.map(|(number, ino)| (format!("f{number}"), *ino)).collect();
    let [here, gone] = if turns % 2 == 0 { ["/a", "/b"] } else { ["/b", "/a"] };
    assert_eq!(listed(&cluster, here), files);
    assert_eq!(listed(&cluster, gone).len(), 0);
}

/// Renames until no other operation is in the way: a directory follows its name to the other rank.
fn rename_again(from: &Dir, to: &Dir, name: &str) {
    eventually("it has followed its name", || {
        match from.rename(name, to, name, RenameFlags::default()) {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.errno, Errno::Busy, "{error}");
                false
            }
        }
    });
}

#[test]
fn directories_move_between_ranks_while_servers_are_killed() {
    let cluster = Cluster::by_hand(&["--mds", "2"]);
    cluster.run(&["mkdir", "/a"]);
    cluster.run(&["mkdir", "/b"]);
    pin(&cluster, "/a", 1);
    let fs = cluster.mount();
    let dirs = ["/a", "/b"].map(|path| fs.open_dir(path).unwrap());
    let mut inos = BTreeMap::new();
    for name in (0..4).map(|number| format!("d{number}")) {
        let ino = dirs[0].create(&name, &NewFile::directory()).unwrap().ino;
        let inside = fs.open_dir(format!("/a/{name}")).unwrap();
        let sub = inside.create("sub", &NewFile::directory()).unwrap().ino;
        let file = inside.create("file", &NewFile::default()).unwrap().ino;
        let within = BTreeMap::from([("sub".to_owned(), sub), ("file".to_owned(), file)]);
        inos.insert(name, (ino, within));
    }
    fs.sync().unwrap();
    let turns = to_and_fro(&cluster, &dirs, 4, |from, to, made| {
        for name in inos.keys() {
            rename_again(from, to, name);
            made.fetch_add(1, Ordering::Release);
        }
    });
    let [here, gone] = if turns % 2 == 0 { ["/a", "/b"] } else { ["/b", "/a"] };
    let named = inos.iter().map(|(name, (ino, _))| (name.clone(), *ino)).collect();
    assert_eq!(listed(&cluster, here), named);
    assert_eq!(listed(&cluster, gone).len(), 0);
    for (name, (_, within)) in &inos {
        assert_eq!(listed(&cluster, &format!("{here}/{name}")), *within, "{name}");
    }
    drop((dirs, fs));
    cluster.run(&["down"]);
    let said = cluster.say(&["fsck"]);
    assert!(said.contains("Everything adds up"), "{said}");
}
