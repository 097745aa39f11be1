//! Work on a branch, and handing it on.

use std::process::Stdio;
use std::sync::Arc;

use branches::Branches;
use cudele::{Errno, NewFile};
use objstore::{Action, Counting, FaultRules, Faulty, Operation, Rule};
use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::{Cluster, eventually};
use crate::{branch, branch_fails, put, store, tree, write};

/// A cluster that was stopped, and a branch `b` of its `/proj`.
fn at_rest() -> Cluster {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "-p", "/proj/dir"]);
    write(&cluster, "/proj/dir/old", "old");
    write(&cluster, "/proj/both", "trunk");
    cluster.run(&["branch", "create", "b", "/proj"]);
    cluster.run(&["down"]);
    cluster
}

#[test]
fn a_branch_is_worked_on_without_any_server() {
    let cluster = at_rest();
    let large = "0123456789abcdef".repeat(300_000);
    put(&cluster, "b", "/proj/dir/new", "small");
    put(&cluster, "b", "/proj/large", &large);
    put(&cluster, "b", "/proj/both", "branch");
    branch(&cluster, &["mkdir", "-p", "b", "/proj/x/y/z"]);
    branch(&cluster, &["mv", "b", "/proj/dir/old", "/proj/x/y/moved"]);
    let expected = [
        "/proj",
        "/proj/both",
        "/proj/dir",
        "/proj/dir/new",
        "/proj/large",
        "/proj/x",
        "/proj/x/y",
        "/proj/x/y/moved",
        "/proj/x/y/z",
    ];
    assert_eq!(tree(&cluster, "b"), expected);
    assert_eq!(branch(&cluster, &["cat", "b", "/proj/both", "/proj/x/y/moved"]), "branchold");
    assert!(branch(&cluster, &["cat", "b", "/proj/large"]) == large);
    branch(&cluster, &["rm", "-r", "b", "/proj/x", "/proj/dir"]);
    assert_eq!(tree(&cluster, "b"), ["/proj", "/proj/both", "/proj/large"]);
    // A command that breaks a rule changes nothing, and prints why.
    let before = cluster.objects("branches/");
    for (arguments, errno) in [
        (&["mkdir", "b", "/proj/both"][..], "EEXIST"),
        (&["mkdir", "b", "/elsewhere"], "ENOENT"),
        (&["rm", "b", "/proj/nothing"], "ENOENT"),
        (&["mkdir", "none", "/proj/a"], "ENOENT"),
    ] {
        let said = branch_fails(&cluster, 1, arguments);
        assert!(said.contains(errno), "{arguments:?}: {said}");
    }
    let said = branch_fails(&cluster, 2, &["rm", "-r", "b", "/proj"]);
    assert!(said.contains("the directory that a branch is of stays"), "{said}");
    assert_eq!(cluster.objects("branches/"), before);
    // The trunk heard nothing.
    cluster.start();
    assert_eq!(cluster.names("/proj"), ["both", "dir"]);
    assert_eq!(cluster.run(&["cp", "/proj/both", "-"]), b"trunk");
}

#[test]
fn a_branch_is_handed_on() {
    let cluster = at_rest();
    let branches = Branches::open(&store(&cluster)).unwrap();
    let mut work = branches.work_on("b").unwrap();
    let root = work.root();
    work.create(root, b"first", &NewFile::default()).unwrap();
    // Only one process works on it at a time, and all see its commits.
    let said = branch_fails(&cluster, 1, &["mkdir", "b", "/proj/second"]);
    assert!(said.contains("somebody works on this branch"), "{said}");
    assert!(!tree(&cluster, "b").contains(&"/proj/first".into()));
    assert_eq!(work.commit().unwrap(), 1);
    assert!(tree(&cluster, "b").contains(&"/proj/first".into()));
    work.create(root, b"never", &NewFile::default()).unwrap();
    drop(work);
    branch(&cluster, &["mkdir", "b", "/proj/second"]);
    let mut next = branches.work_on("b").unwrap();
    let names: Vec<_> = next.list(root).unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, [&b"both"[..], b"dir", b"first", b"second"]);
}

#[test]
fn a_process_that_lost_its_branch_cannot_commit() {
    let cluster = at_rest();
    let branches = Branches::open(&store(&cluster)).unwrap();
    let mut work = branches.work_on("b").unwrap();
    let root = work.root();
    work.create(root, b"a", &NewFile::default()).unwrap();
    work.commit().unwrap();
    // As if its lock had been taken away while it slept: the object is another one now.
    let name = "branches/named/b";
    let object = objstore::open_existing(&store(&cluster)).unwrap();
    let (bytes, version) = object.get(name).unwrap();
    let mut other = metastore::Branch::decode(name, &bytes).unwrap();
    other.changes += 100;
    let _ = object.put(name, &other.encode(), objstore::Expect::Is(version)).unwrap();
    work.create(root, b"b", &NewFile::default()).unwrap();
    assert_eq!(work.commit().unwrap_err().errno, Errno::Stale);
    drop(work);
    let mut view = branches.view(&["b"]).unwrap();
    let names: Vec<_> = view.list(root).unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, [&b"a"[..], b"both", b"dir"]);
}

#[test]
fn a_command_changes_a_branch_completely_or_not_at_all() {
    let cluster = at_rest();
    let local = cluster.home.join("tree");
    for dir in 0..10 {
        let dir = local.join(format!("d{dir}"));
        std::fs::create_dir_all(&dir).unwrap();
        for file in 0..30 {
            std::fs::write(dir.join(format!("f{file}")), "x".repeat(file * 300)).unwrap();
        }
    }
    let store = store(&cluster);
    let objects = |prefix| cluster.objects(prefix).len() as u64;
    let mut whole = 0;
    for round in 0..40u64 {
        let dest = format!("/proj/r{round}");
        let local = local.to_str().unwrap();
        let arguments = ["branch", "--store", &store, "put", "b", local, &dest];
        let mut child = cluster
            .command(&arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // At another moment each time: how much work was done tells, not a clock.
        let (before, layers) = (objects("data/"), objects("branches/layers/"));
        eventually("some of it is done", || {
            objects("data/") >= before + round * 4
                || objects("branches/layers/") > layers
                || child.try_wait().unwrap().is_some()
        });
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        let _ = kill_process(pid, Signal::KILL);
        child.wait().unwrap();
        let found = tree(&cluster, "b");
        let count = found.iter().filter(|path| path.starts_with(&format!("{dest}/"))).count();
        assert!(count == 0 || count == 310, "round {round}: {count}");
        whole += u64::from(count > 0);
        // The next process continues as if nothing had happened.
        branch(&cluster, &["mkdir", "b", &format!("/proj/after{round}")]);
    }
    println!("{whole} of 40 were there as a whole");
    // Content of the killed processes is garbage: a file of more than 4 KiB has an object of
    // content and an object of checksums.
    Branches::open(&store).unwrap().collect(false).unwrap();
    assert_eq!(objects("data/"), whole * 160 * 2);
    assert!(whole < 40, "some were killed in the middle");
}

#[test]
fn a_branch_of_a_branch_shares_all_of_it() {
    let cluster = at_rest();
    put(&cluster, "b", "/proj/one", "one");
    branch(&cluster, &["create", "c", "--from", "b"]);
    let objects = cluster.objects("branches/layers/");
    assert_eq!(objects.len(), 1, "nothing is copied");
    put(&cluster, "c", "/proj/two", "two");
    put(&cluster, "b", "/proj/three", "three");
    branch(&cluster, &["rm", "c", "/proj/one"]);
    let paths = |name| {
        let all = tree(&cluster, name).into_iter();
        all.filter(|path| ["one", "two", "three"].iter().any(|end| path.ends_with(end))).collect()
    };
    let (b, c): (Vec<String>, Vec<String>) = (paths("b"), paths("c"));
    assert_eq!(
        (&b[..], &c[..]),
        (&["/proj/one".into(), "/proj/three".into()][..], &["/proj/two".into()][..])
    );
    let said = branch_fails(&cluster, 1, &["delete", "b"]);
    assert!(said.contains("the branch c goes out from it"), "{said}");
}

#[test]
fn several_branches_are_read_as_one() {
    let cluster = at_rest();
    branch(&cluster, &["create", "c", "/proj"]);
    branch(&cluster, &["mkdir", "b", "/proj/new"]);
    put(&cluster, "b", "/proj/new/of-b", "b");
    put(&cluster, "b", "/proj/both", "by b");
    branch(&cluster, &["mkdir", "c", "/proj/new"]);
    put(&cluster, "c", "/proj/new/of-c", "c");
    put(&cluster, "c", "/proj/both", "by c");
    branch(&cluster, &["rm", "c", "/proj/dir/old"]);
    let expected =
        ["/proj", "/proj/both", "/proj/dir", "/proj/new", "/proj/new/of-b", "/proj/new/of-c"];
    for (names, both) in [("b,c", "by c"), ("c,b", "by b")] {
        assert_eq!(tree(&cluster, names), expected, "{names}");
        assert_eq!(branch(&cluster, &["cat", names, "/proj/both"]), both);
        assert_eq!(branch(&cluster, &["cat", names, "/proj/new/of-b", "/proj/new/of-c"]), "bc");
    }
    // Nothing was merged, and each branch is unchanged.
    assert_eq!(branch(&cluster, &["cat", "b", "/proj/both"]), "by b");
    assert!(tree(&cluster, "b").contains(&"/proj/dir/old".into()));
    cluster.start();
    assert_eq!(cluster.names("/proj"), ["both", "dir"]);
}

/// Creates a file in a branch, as a command of its own.
fn work(branches: &Branches, name: &str, file: &str) -> cudele::Result<u64> {
    let mut work = branches.work_on(name)?;
    let root = work.root();
    work.create(root, file.as_bytes(), &NewFile::default())?;
    work.commit()
}

#[test]
fn many_commands_leave_few_layers_and_branches_of_the_branch_keep_theirs() {
    let cluster = at_rest();
    let branches = Branches::open(&store(&cluster)).unwrap();
    for number in 0..30 {
        work(&branches, "b", &format!("n{number:02}")).unwrap();
        if number == 10 {
            branch(&cluster, &["create", "c", "--from", "b"]);
        }
        if number % 9 == 8 {
            branches.collect(false).unwrap();
        }
    }
    branch(&cluster, &["rm", "b", "/proj/n03"]);
    branches.collect(false).unwrap();
    let layers = |name| branches.get(name).unwrap().branch.layers.len();
    assert!(layers("b") < 8, "{} layers", layers("b"));
    assert_eq!(layers("c"), 4, "eight that were joined before, and three");
    // Only `c` lists the joined layer.
    assert_eq!(cluster.objects("branches/layers/").len(), layers("b") + layers("c"));
    work(&branches, "c", "of-c").unwrap();
    let names = |all: &str| {
        let all = tree(&cluster, all).into_iter().filter(|path| path.starts_with("/proj/n"));
        all.map(|path| path["/proj/n".len()..].parse().unwrap()).collect::<Vec<u32>>()
    };
    assert_eq!(names("c"), (0..=10).collect::<Vec<_>>());
    let of_b: Vec<_> = (0..30).filter(|number| *number != 3).collect();
    for all in ["b", "b,c", "c,b"] {
        // Shared content counts once, although one of them has joined it since.
        assert_eq!(names(all), of_b, "{all}");
    }
    assert!(tree(&cluster, "c,b").contains(&"/proj/of-c".into()));
    cluster.start();
    for name in ["b", "c"] {
        cluster.run(&["publish", name]);
        cluster.run(&["branch", "merge", name]);
    }
    let merged = cluster.names("/proj");
    assert_eq!(merged.len(), 2 + of_b.len() + 1, "{merged:?}");
    assert!(!merged.contains(&"n03".into()), "what c inherited was merged with b");
}

#[test]
fn layers_are_joined_by_one_change_wherever_that_fails() {
    let cluster = at_rest();
    let plain = objstore::open_existing(&store(&cluster)).unwrap();
    let faults = FaultRules::default();
    let branches = Branches::of(Arc::new(Faulty::new(plain, faults.clone())));
    for number in 0..7 {
        work(&branches, "b", &format!("n{number}")).unwrap();
    }
    let before = tree(&cluster, "b");
    for step in 0.. {
        let mut work = branches.work_on("b").unwrap();
        let root = work.root();
        work.create(root, b"last", &NewFile::default()).unwrap();
        faults.add(Rule::new(Action::Fail(Errno::Io)).on(Operation::Put).after(step).times(1));
        let committed = work.commit();
        faults.clear();
        drop(work);
        let after = tree(&cluster, "b");
        if committed.is_ok() {
            assert_eq!(step, 3, "the layer, the one that has them all, the branch");
            assert_eq!(after.len(), before.len() + 1);
            break;
        }
        assert_eq!(after, before, "step {step}");
    }
    branches.collect(false).unwrap();
    assert_eq!(cluster.objects("branches/layers/").len(), 1);
    assert_eq!(tree(&cluster, "b").len(), before.len() + 1);
}

#[test]
fn publishing_is_one_change_of_one_object() {
    let cluster = at_rest();
    put(&cluster, "b", "/proj/long", &"0123456789abcdef".repeat(100_000));
    let counting = Counting::new(objstore::open_existing(&store(&cluster)).unwrap());
    let counters = counting.counters();
    let branches = Branches::of(Arc::new(counting));
    for number in 0..100 {
        work(&branches, "b", &format!("f{number}")).unwrap();
    }
    let before = counters.counts();
    branches.publish("b").unwrap();
    let done = counters.counts().since(&before);
    assert_eq!(done.of(Operation::Put).calls, 1);
    assert!(done.bytes_written() < 2000, "{} bytes", done.bytes_written());
    let others = [Operation::Append, Operation::WriteRange, Operation::Delete];
    assert_eq!(others.map(|other| done.of(other).calls), [0; 3]);
}
