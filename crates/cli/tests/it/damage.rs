//! Clusters with damaged or missing objects, or with a damaged marker.

use std::fs;

use crate::cluster::{Cluster, eventually};

/// A power loss after the first `up` once left the marker empty; a restore may leave it out.
#[test]
fn a_marker_that_is_empty_or_gone_is_written_again() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "/a"]);
    let id = cluster.json(&["status"])["cluster"].clone();
    let marker = cluster.dir.join("cudele-cluster");
    let whole = fs::read(&marker).unwrap();
    for damage in [Some(&whole[..0]), Some(&whole[..20]), Some(&whole[..whole.len() - 3]), None] {
        cluster.run(&["down"]);
        match damage {
            Some(bytes) => fs::write(&marker, bytes).unwrap(),
            None => fs::remove_file(&marker).unwrap(),
        }
        if damage.is_some_and(|bytes| !bytes.is_empty()) {
            cluster.run(&["fsck", "--repair"]);
        }
        cluster.start();
        assert_eq!(fs::read(&marker).unwrap(), whole);
        assert_eq!(cluster.json(&["status"])["cluster"], id);
        assert_eq!(cluster.names("/"), ["a"]);
    }
}

fn objects(cluster: &Cluster) -> std::sync::Arc<dyn objstore::Store> {
    objstore::open_existing(cluster.dir.join("store").to_str().unwrap()).unwrap()
}

/// A failed start leaves the monitor, unless that failed.
fn end_monitor(cluster: &Cluster) {
    for pid in cluster.daemons("mon") {
        Cluster::kill_process(pid);
    }
}

/// The same numbers once gave old files other content, and two clients one name.
#[test]
fn no_server_starts_without_its_table_and_no_monitor_without_its_map() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "/a"]);
    cluster.run_with_input(&["cp", "-", "/a/old"], b"what was there");
    let ino = cluster.mount().stat("/a/old").unwrap().ino;
    for lost in ["rank/0000", "mon/map"] {
        for copy in [true, false] {
            cluster.run(&["down"]);
            let store = objects(&cluster);
            assert!(store.delete(lost).unwrap(), "{lost}");
            assert!(store.stat(&format!("copy/{lost}")).is_ok(), "{lost} has a copy");
            if !copy {
                store.delete(&format!("copy/{lost}")).unwrap();
            }
            drop(store);
            let said = cluster.fails(1, &["up"]);
            assert!(said.contains("fsck --repair"), "{lost}: {said}");
            end_monitor(&cluster);
            cluster.run(&["fsck", "--repair"]);
            cluster.start();
            let fs = cluster.mount();
            assert_eq!(fs.stat("/a/old").unwrap().ino, ino);
            cluster.run_with_input(&["cp", "-", &format!("/a/{copy}.{}", lost.len())], b"new");
            let new = fs.stat(format!("/a/{copy}.{}", lost.len())).unwrap().ino;
            assert!(new.0 > ino.0, "{new:?} after {ino:?}");
            assert_eq!(cluster.run(&["cp", "/a/old", "-"]), b"what was there");
        }
    }
}

/// The objects of a directory: its manifest, or its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Manifest,
    Runs,
}

/// Flips a bit in the middle of the objects of a directory.
fn damage(cluster: &Cluster, dir: types::Ino, part: Part) {
    let store = objects(cluster);
    let dirfrag = types::DirFragId { ino: dir, ..types::DirFragId::default() };
    let manifest = metastore::manifest_name(dirfrag);
    let mut names = store.list(&metastore::prefix(dirfrag)).unwrap();
    names.retain(|name| (*name == manifest) == (part == Part::Manifest));
    assert!(!names.is_empty(), "{part:?}");
    for name in names {
        let (mut bytes, _) = store.get(&name).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        let _ = store.put(&name, &bytes, objstore::Expect::Any).unwrap();
    }
}

fn health(cluster: &Cluster) -> String {
    String::from_utf8(cluster.command(&["health"]).output().unwrap().stdout).unwrap()
}

/// One damaged byte of one directory once kept the whole namespace from starting.
#[test]
fn a_damaged_directory_is_all_that_is_not_served() {
    for part in [Part::Manifest, Part::Runs] {
        let small = ["--set", "segments_max=2", "--set", "segment_bytes_max=4096"];
        let cluster = Cluster::up_with(&small);
        for dir in ["/good", "/bad", "/bad/sub"] {
            cluster.run(&["mkdir", dir]);
        }
        for file in ["/bad/stays", "/bad/moves", "/bad/goes", "/good/stays"] {
            cluster.run_with_input(&["cp", "-", file], file.as_bytes());
        }
        let bad = cluster.mount().stat("/bad").unwrap().ino;
        cluster.run(&["down"]);
        cluster.start();
        // Only the journal has these changes.
        cluster.run_with_input(&["cp", "-", "/bad/new"], b"new");
        cluster.run(&["mv", "/bad/moves", "/good/moved"]);
        cluster.run(&["rm", "/bad/goes"]);
        cluster.run(&["mkdir", "/bad/sub/below"]);
        cluster.run_with_input(&["cp", "-", "/good/new"], b"new");
        cluster.kill("mds");
        damage(&cluster, bad, part);
        for round in 0..2 {
            cluster.start();
            let said = cluster.fails(1, &["ls", "/bad"]);
            assert!(said.contains("/bad"), "{part:?}: {said}");
            eventually("health says so", || {
                let said = health(&cluster);
                said.contains("DIRECTORY_DAMAGED") && said.contains("/bad cannot be read")
            });
            // More than the journal holds usually.
            let good = cluster.mount().open_dir("/good").unwrap();
            for number in 0..200 {
                good.create(format!("{round}.{number}"), &cudele::NewFile::default()).unwrap();
            }
            drop(good);
            let names = cluster.names("/good");
            for name in ["stays", "new", "moved"] {
                assert!(names.iter().any(|known| known == name), "{part:?}: {names:?}");
            }
            assert_eq!(cluster.run(&["cp", "/good/moved", "-"]), b"/bad/moves");
            cluster.run(&["down"]);
            assert!(!cluster.objects("journal/mds.").is_empty(), "the journal is kept");
        }
        cluster.run(&["fsck", "--repair"]);
        cluster.start();
        assert_eq!(cluster.health(), (vec![], 0));
        let names = cluster.names("/bad");
        match part {
            Part::Manifest => assert_eq!(names, ["new", "stays", "sub"]),
            // Only the names in the damaged run are lost.
            Part::Runs => assert_eq!(names, ["new"]),
        }
        assert_eq!(cluster.run(&["cp", "/bad/new", "-"]), b"new");
        cluster.run(&["down"]);
        assert!(cluster.objects("journal/mds.").is_empty(), "it has been carried out");
        cluster.run(&["fsck", "--repair"]);
        cluster.run(&["fsck"]);
    }
}

/// Inodes with several names are in a directory of their own.
#[test]
fn files_with_several_names_are_all_that_is_not_served_without_their_directory() {
    for part in [Part::Manifest, Part::Runs] {
        let small = ["--set", "segments_max=2", "--set", "segment_bytes_max=4096"];
        let cluster = Cluster::up_with(&small);
        cluster.run(&["mkdir", "/a"]);
        for file in ["one", "two", "three"] {
            cluster.run_with_input(&["cp", "-", &format!("/a/{file}")], file.as_bytes());
        }
        let link = |from: &str, to: &str| {
            let fs = cluster.mount();
            let ino = fs.stat(format!("/a/{from}")).unwrap().ino;
            fs.open_dir("/a").unwrap().link(ino, to)
        };
        link("one", "one.second").unwrap();
        link("one", "one.third").unwrap();
        cluster.run(&["down"]);
        cluster.start();
        // Only the journal has these changes.
        link("two", "two.second").unwrap();
        cluster.run(&["rm", "/a/one.third"]);
        cluster.run_with_input(&["cp", "-", "/a/new"], b"new");
        cluster.kill("mds");
        damage(&cluster, types::Ino::LINKS, part);
        for _ in 0..2 {
            cluster.start();
            assert_eq!(cluster.run(&["cp", "/a/new", "-"]), b"new");
            assert_eq!(cluster.run(&["cp", "/a/three", "-"]), b"three");
            for file in ["/a/one", "/a/two.second"] {
                let failed = cluster.mount().stat(file).unwrap_err();
                assert_eq!(failed.errno, cudele::Errno::Io, "{file}: {failed}");
            }
            assert_eq!(link("three", "four").unwrap_err().errno, cudele::Errno::Io);
            eventually("health says so", || health(&cluster).contains("DIRECTORY_DAMAGED"));
            cluster.run(&["down"]);
            assert!(!cluster.objects("journal/mds.").is_empty(), "the journal is kept");
        }
        cluster.run(&["fsck", "--repair"]);
        cluster.start();
        assert_eq!(cluster.health(), (vec![], 0));
        let fs = cluster.mount();
        assert_eq!(cluster.run(&["cp", "/a/two", "-"]), b"two");
        assert_eq!(fs.stat("/a/two.second").unwrap().nlink, 2, "{part:?}");
        if part == Part::Manifest {
            assert_eq!(fs.stat("/a/one").unwrap().nlink, 2);
            assert_eq!(cluster.run(&["cp", "/a/one.second", "-"]), b"one");
        }
        drop(fs);
        cluster.run(&["down"]);
        // Names of lost inodes.
        cluster.run(&["fsck", "--repair"]);
        cluster.run(&["fsck"]);
    }
}

/// The journal has no changes of this directory, so nothing is withheld.
#[test]
fn a_directory_that_cannot_be_read_is_an_error_of_input_and_output() {
    let cluster = Cluster::up();
    for dir in ["/good", "/bad"] {
        cluster.run(&["mkdir", dir]);
        cluster.run_with_input(&["cp", "-", &format!("{dir}/file")], b"content");
    }
    let bad = cluster.mount().stat("/bad").unwrap().ino;
    cluster.run(&["down"]);
    damage(&cluster, bad, Part::Runs);
    cluster.start();
    let fs = cluster.mount();
    let failed = fs.stat("/bad/file").unwrap_err();
    assert_eq!(failed.errno, cudele::Errno::Io, "{failed}");
    assert_eq!(cluster.names("/good"), ["file"]);
    eventually("health says so", || health(&cluster).contains("DIRECTORY_DAMAGED"));
    drop(fs);
    cluster.run(&["down"]);
    assert!(cluster.objects("journal/mds.").is_empty(), "nothing has to be kept");
}

/// An administrator may want a copy of the namespace before the repair.
#[test]
fn up_read_only_serves_a_damaged_cluster_and_changes_nothing() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "/a"]);
    cluster.run_with_input(&["cp", "-", "/a/file"], b"content");
    cluster.run(&["down"]);
    let store = objects(&cluster);
    for damaged in ["rank/0000", "mon/map"] {
        let _ = store.put(damaged, b"damaged", objstore::Expect::Any).unwrap();
    }
    let all = || -> Vec<_> {
        let names = store.list("").unwrap();
        names.into_iter().map(|name| (store.get(&name).unwrap(), name)).collect()
    };
    let before = all();
    cluster.fails(1, &["up"]);
    end_monitor(&cluster);
    cluster.run(&["up", "--read-only"]);
    assert_eq!(cluster.run(&["cp", "/a/file", "-"]), b"content");
    let said = cluster.fails(1, &["mkdir", "/b"]);
    assert!(said.contains("EROFS"), "{said}");
    let fs = cluster.mount();
    let refused = fs.open_dir("/a").unwrap().create("new", &cudele::NewFile::default());
    assert_eq!(refused.unwrap_err().errno, cudele::Errno::ReadOnly);
    drop(fs);
    eventually("health says so", || health(&cluster).contains("READ_ONLY"));
    cluster.run(&["down"]);
    assert_eq!(all(), before, "nothing was changed");
    cluster.run(&["fsck", "--repair"]);
    cluster.start();
    cluster.run(&["mkdir", "/b"]);
}
