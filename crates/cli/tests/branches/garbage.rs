//! The cost of branches, and the deletion of unneeded objects.

use branches::Branches;

use crate::cluster::Cluster;
use crate::{branch, put, store, tree, write};

/// The sizes of all objects but those that servers keep for themselves.
fn bytes(cluster: &Cluster) -> u64 {
    let objects = objstore::open_existing(&store(cluster)).unwrap();
    let all = objects.list("").unwrap().into_iter();
    let kept = all.filter(|name| !name.starts_with("rank/") && !name.starts_with("mon/"));
    kept.map(|name| objects.stat(&name).unwrap().size).sum()
}

fn at_rest(files: usize) -> Cluster {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "-p", "/proj/many", "/proj/few"]);
    let fs = cluster.mount();
    let dir = fs.open_dir("/proj/many").unwrap();
    for number in 0..files {
        dir.create(format!("file-{number:06}"), &cudele::NewFile::default()).unwrap();
    }
    write(&cluster, "/proj/few/a", "a");
    cluster.run(&["down"]);
    cluster
}

#[test]
fn a_branch_takes_room_for_its_changes_only() {
    let cluster = at_rest(3000);
    let (before, objects) = (bytes(&cluster), cluster.objects("").len());
    let mut last = before;
    for number in 0..10 {
        branch(&cluster, &["create", &format!("b{number}"), "/proj"]);
        let now = bytes(&cluster);
        assert!(now - last < 600, "branch {number}: {last} to {now}");
        last = now;
    }
    // An object for each branch, and the table.
    assert_eq!(cluster.objects("").len(), objects + 11);
    put(&cluster, "b0", "/proj/few/new", "twelve bytes");
    assert!(bytes(&cluster) - last < 1000, "one change is one small layer");
    // The trunk changes a little: the directory that changed is kept, and no other.
    let before = cluster.objects("dirs/").len();
    cluster.start();
    write(&cluster, "/proj/few/b", "b");
    cluster.run(&["down"]);
    let grown = cluster.objects("dirs/").len() - before;
    assert!(grown <= 6, "{grown} objects for two directories");
    assert!(bytes(&cluster) - last < 4000, "{} bytes", bytes(&cluster) - last);
}

#[test]
fn garbage_collection_deletes_exactly_the_unneeded_objects() {
    let cluster = at_rest(20);
    let base = cluster.objects("dirs/").len();
    branch(&cluster, &["create", "a", "/proj"]);
    put(&cluster, "a", "/proj/few/large", &"x".repeat(200_000));
    cluster.start();
    write(&cluster, "/proj/few/a", "changed");
    cluster.run(&["branch", "create", "b", "/proj"]);
    for round in 0..12 {
        write(&cluster, &format!("/proj/few/n{round}"), "n");
        cluster.mount().checkpoint().unwrap();
    }
    cluster.run(&["cp", "/proj/few/a", "/proj/few/copy"]);
    cluster.run(&["rm", "-r", "/proj/many"]);
    cluster.run(&["down"]);
    let (of_a, of_b) = (tree(&cluster, "a"), tree(&cluster, "b"));
    let check = |name: &str, expected: &[String]| {
        assert_eq!(tree(&cluster, name), expected);
        let text = if name == "a" { "a" } else { "changed" };
        assert_eq!(branch(&cluster, &["cat", name, "/proj/few/a"]), text);
    };
    let branches = Branches::open(&store(&cluster)).unwrap();
    // While both are there nothing is deleted that they need.
    branches.collect(false).unwrap();
    check("a", &of_a);
    check("b", &of_b);
    branch(&cluster, &["delete", "a"]);
    assert_eq!(cluster.objects("data/"), [""; 0], "content that only it had");
    let would = branches.collect(true).unwrap();
    let all = cluster.objects("");
    assert!(would.objects.iter().all(|name| all.contains(name)), "{:?}", would.objects);
    assert_eq!((would.snapshots, would.layers), (1, 1));
    let done = branches.collect(false).unwrap();
    assert_eq!(done, would);
    assert_eq!(cluster.objects("").len(), all.len() - done.objects.len());
    check("b", &of_b);
    branch(&cluster, &["delete", "b"]);
    branches.collect(false).unwrap();
    assert_eq!(branches.collect(true).unwrap(), branches::Collected::default(), "nothing is left");
    assert_eq!(cluster.objects("branches/"), ["branches/table"]);
    let kept: Vec<_> =
        cluster.objects("dirs/").into_iter().filter(|it| it.contains("/at.")).collect();
    assert_eq!(kept, [""; 0]);
    assert!(cluster.objects("dirs/").len() <= base + 10, "runs that are not listed are gone");
    // And the trunk is unchanged.
    cluster.start();
    assert_eq!(cluster.names("/proj"), ["few"]);
    assert_eq!(cluster.names("/proj/few").len(), 14);
    assert_eq!(cluster.run(&["cp", "/proj/few/copy", "-"]), b"changed");
}

#[test]
fn garbage_is_collected_while_others_work() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "-p", "/proj/dir"]);
    write(&cluster, "/proj/dir/file", "first");
    cluster.run(&["branch", "create", "keep", "/proj"]);
    let branches = Branches::open(&store(&cluster)).unwrap();
    let (fs, path) = (cluster.mount(), cudele::Path::parse("/proj").unwrap());
    std::thread::scope(|scope| {
        let collector = scope.spawn(|| {
            for _ in 0..60 {
                branches.collect(false).unwrap();
            }
        });
        let mut round = 0;
        while !collector.is_finished() || round < 20 {
            let name = format!("t{round}");
            branches.create(&name, &path, Some(&fs)).unwrap();
            let mut work = branches.work_on(&name).unwrap();
            let root = work.root();
            work.create(root, b"mine", &cudele::NewFile::default()).unwrap();
            work.commit().unwrap();
            write(&cluster, "/proj/dir/file", &format!("round {round}"));
            fs.checkpoint().unwrap();
            let mut view = branches.view(&[&name]).unwrap();
            assert!(view.list(view.root()).unwrap().iter().any(|entry| entry.name == b"mine"));
            drop(work);
            // The collector may look at its layers just now.
            while branches.remove(&name).is_err() {
                std::thread::yield_now();
            }
            round += 1;
        }
    });
    assert_eq!(branch(&cluster, &["cat", "keep", "/proj/dir/file"]), "first");
}
