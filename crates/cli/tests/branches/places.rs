//! Branches of unusual places: the root, subtrees of other ranks, files with several names.

use crate::cluster::Cluster;
use crate::{branch, put, tree, write};

#[test]
fn the_whole_namespace_has_branches_too() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "-p", "/a/b"]);
    write(&cluster, "/a/file", "base");
    cluster.run(&["branch", "create", "all", "/"]);
    cluster.run(&["rm", "-r", "/a/b"]);
    write(&cluster, "/a/file", "trunk");
    assert_eq!(tree(&cluster, "all"), ["/", "/a", "/a/b", "/a/file"]);
    branch(&cluster, &["mkdir", "-p", "all", "/new/below"]);
    put(&cluster, "all", "/new/file", "branch");
    cluster.run(&["publish", "all"]);
    let done = cluster.json(&["branch", "merge", "all", "--conflict", "fail"]);
    assert_eq!(done["merged"], true);
    let all = cluster.say(&["find", "/"]);
    assert_eq!(
        all.lines().collect::<Vec<_>>(),
        ["/", "/a", "/a/file", "/new", "/new/below", "/new/file"]
    );
    assert_eq!(cluster.run(&["cp", "/a/file", "-"]), b"trunk");
}

#[test]
fn a_subtree_of_another_rank_is_branched_where_it_is() {
    let cluster = Cluster::by_hand(&["--mds", "2"]);
    cluster.run(&["mkdir", "-p", "/proj/dir"]);
    write(&cluster, "/proj/dir/file", "base");
    cluster.run(&["mds", "pin", "/proj", "1"]);
    write(&cluster, "/proj/dir/late", "also base");
    cluster.run(&["branch", "create", "b", "/proj"]);
    write(&cluster, "/proj/dir/file", "trunk");
    cluster.run(&["rm", "/proj/dir/late"]);
    cluster.mount().checkpoint().unwrap();
    assert_eq!(tree(&cluster, "b"), ["/proj", "/proj/dir", "/proj/dir/file", "/proj/dir/late"]);
    assert_eq!(
        branch(&cluster, &["cat", "b", "/proj/dir/file", "/proj/dir/late"]),
        "basealso base"
    );
    // Another rank serves a part of the directory above it.
    let said = cluster.fails(1, &["branch", "create", "all", "/"]);
    assert!(said.contains("mds.1 serves /proj"), "{said}");
    put(&cluster, "b", "/proj/dir/new", "branch");
    cluster.run(&["publish", "b"]);
    let said = cluster.fails(1, &["branch", "merge", "b"]);
    assert!(said.contains("mds.1 serves /proj"), "{said}");
    cluster.run(&["mds", "pin", "/proj", "0"]);
    assert_eq!(cluster.json(&["branch", "merge", "b"])["merged"], true);
    assert_eq!(cluster.names("/proj/dir"), ["file", "new"]);
}

#[test]
fn files_with_several_names_are_in_a_branch_as_they_were() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "-p", "/proj/dir"]);
    write(&cluster, "/proj/first", "base");
    let fs = cluster.mount();
    let (ino, dir) = (fs.stat("/proj/first").unwrap().ino, fs.open_dir("/proj/dir").unwrap());
    dir.link(ino, "second").unwrap();
    dir.link(ino, "third").unwrap();
    cluster.run(&["branch", "create", "b", "/proj"]);
    fs.set_attr(ino, &cudele::AttrChange { mode: Some(0o600), ..Default::default() }).unwrap();
    cluster.run(&["rm", "/proj/dir/third"]);
    cluster.mount().checkpoint().unwrap();
    let listed = branch(&cluster, &["ls", "-l", "b", "/proj/dir"]);
    assert!(listed.lines().all(|line| line.starts_with("-rw-r--r-- 3")), "{listed}");
    assert_eq!(listed.lines().count(), 2);
    let both = ["cat", "b", "/proj/first", "/proj/dir/second", "/proj/dir/third"];
    assert_eq!(branch(&cluster, &both), "basebasebase");
    branch(&cluster, &["rm", "b", "/proj/dir/second"]);
    put(&cluster, "b", "/proj/dir/third", "own");
    assert_eq!(branch(&cluster, &["cat", "b", "/proj/first", "/proj/dir/third"]), "baseown");
    let listed = branch(&cluster, &["ls", "-l", "b", "/proj/first"]);
    assert!(listed.starts_with("-rw-r--r-- 1"), "{listed}");
    cluster.run(&["publish", "b"]);
    assert_eq!(cluster.json(&["branch", "merge", "b"])["merged"], true);
    assert_eq!(cluster.names("/proj/dir"), ["third"]);
    assert_eq!(cluster.run(&["cp", "/proj/first", "-"]), b"base");
    assert_eq!(cluster.run(&["cp", "/proj/dir/third", "-"]), b"own");
    assert_eq!(cluster.json(&["stat", "/proj/first"])["nlink"], 1);
}
