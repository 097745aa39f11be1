//! Where a branch begins: a directory as it was.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use branches::Branches;
use cudele::NewFile;

use crate::cluster::{Cluster, eventually};
use crate::{branch, branch_fails, store, tree, write};

/// Has the threads of a scope end, also when a test fails: the scope waits for them.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn base(cluster: &Cluster) {
    cluster.run(&["mkdir", "-p", "/proj/src/deep", "/other"]);
    write(cluster, "/proj/src/main.c", "int main;");
    write(cluster, "/proj/src/gone.c", "gone");
    write(cluster, "/proj/src/deep/leaf", "leaf");
    write(cluster, "/proj/notes", "as it was");
}

fn as_it_was() -> Vec<&'static str> {
    let all = ["", "/notes", "/src", "/src/deep", "/src/deep/leaf", "/src/gone.c", "/src/main.c"];
    let at = |path: &'static str| match path {
        "" => "/proj",
        "/notes" => "/proj/notes",
        "/src" => "/proj/src",
        "/src/deep" => "/proj/src/deep",
        "/src/deep/leaf" => "/proj/src/deep/leaf",
        "/src/gone.c" => "/proj/src/gone.c",
        _ => "/proj/src/main.c",
    };
    all.map(at).to_vec()
}

#[test]
fn a_branch_is_its_directory_as_it_was() {
    let cluster = Cluster::up();
    base(&cluster);
    let made = cluster.json(&["branch", "create", "b", "/proj"]);
    assert_eq!((&made["state"], &made["path"]), (&"open".into(), &"/proj".into()));
    assert_eq!(tree(&cluster, "b"), as_it_was());
    // Later changes of all kinds: names, content, attributes, directories.
    write(&cluster, "/proj/notes", "as it is now");
    cluster.run(&["rm", "/proj/src/gone.c"]);
    cluster.run(&["mv", "/proj/src/deep", "/other/deep"]);
    write(&cluster, "/other/deep/leaf", "changed elsewhere");
    cluster.run(&["rm", "-r", "/proj/src"]);
    cluster.run(&["mkdir", "/proj/src"]);
    for round in 0..12 {
        // Each is written to the store, so that runs are merged and replaced.
        write(&cluster, &format!("/proj/n{round}"), "new");
        write(&cluster, &format!("/other/deep/n{round}"), "new");
        cluster.mount().checkpoint().unwrap();
    }
    let check = |cluster: &Cluster| {
        assert_eq!(tree(cluster, "b"), as_it_was());
        assert_eq!(
            branch(cluster, &["cat", "b", "/proj/notes", "/proj/src/deep/leaf"]),
            "as it wasleaf"
        );
    };
    check(&cluster);
    // A later one has a later state, and both stay unchanged when the server is killed.
    cluster.run(&["branch", "create", "later", "/proj"]);
    let later = tree(&cluster, "later");
    assert!(later.contains(&"/proj/n11".into()) && !later.contains(&"/proj/src/main.c".into()));
    cluster.kill("mds");
    cluster.start();
    write(&cluster, "/proj/after", "the crash");
    cluster.run(&["down"]);
    check(&cluster);
    assert_eq!(tree(&cluster, "later"), later);
    let said = branch_fails(&cluster, 1, &["cat", "b", "/other/deep/leaf"]);
    assert!(said.contains("the branch is of /proj"), "{said}");
}

#[test]
fn a_snapshot_has_all_that_was_answered_before_and_nothing_that_was_asked_later() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "/busy"]);
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let branches = Branches::open(&store(&cluster)).unwrap();
    std::thread::scope(|scope| {
        let _ends = Ends(&stop);
        let worker = scope.spawn(|| {
            let dir = cluster.mount().open_dir("/busy").unwrap();
            let mut number = 0u64;
            while !stop.load(Ordering::Relaxed) {
                // A file, and then its mark: a reader that sees the mark sees the file.
                dir.create(format!("f{number:06}"), &NewFile::default()).unwrap();
                dir.create(format!("g{number:06}"), &NewFile::default()).unwrap();
                number += 1;
                done.store(number, Ordering::SeqCst);
            }
            number
        });
        let fs = cluster.mount();
        for round in 0..5 {
            let before = done.load(Ordering::SeqCst);
            let name = format!("b{round}");
            let path = cudele::Path::parse("/busy").unwrap();
            branches.create(&name, &path, Some(&fs)).unwrap();
            let after = done.load(Ordering::SeqCst);
            let mut view = branches.view(&[&name]).unwrap();
            let names: Vec<_> = view.list(view.root()).unwrap();
            let of = |first: u8| names.iter().filter(|entry| entry.name[0] == first).count() as u64;
            let (files, marks) = (of(b'f'), of(b'g'));
            // No gap: all up to a point, and the file before its mark.
            assert!(before <= marks && marks <= files, "{before} {marks} {files}");
            assert!(files <= marks + 1 && marks <= after + 1, "{marks} {files} {after}");
        }
        stop.store(true, Ordering::Relaxed);
        assert!(worker.join().unwrap() > 0);
    });
    // The observed state holds still.
    let counts: Vec<usize> =
        (0..5).map(|round| tree(&cluster, &format!("b{round}")).len()).collect();
    assert!(counts.is_sorted(), "{counts:?}");
}

#[test]
fn a_store_at_rest_needs_no_server_for_a_snapshot() {
    let cluster = Cluster::up();
    base(&cluster);
    let said = branch_fails(&cluster, 1, &["create", "b", "/proj"]);
    assert!(said.contains("a metadata server uses the store"), "{said}");
    cluster.kill("mds");
    let said = branch_fails(&cluster, 1, &["create", "b", "/proj"]);
    assert!(said.contains("not at rest"), "{said}");
    cluster.start();
    cluster.run(&["down"]);
    branch(&cluster, &["create", "b", "/proj"]);
    assert_eq!(tree(&cluster, "b"), as_it_was());
    let said = branch_fails(&cluster, 1, &["create", "b", "/proj"]);
    assert!(said.contains("EEXIST"), "{said}");
    let said = branch_fails(&cluster, 1, &["create", "c", "/proj/nothing"]);
    assert!(said.contains("ENOENT"), "{said}");
    cluster.start();
    write(&cluster, "/proj/notes", "as it is now");
    cluster.run(&["down"]);
    assert_eq!(branch(&cluster, &["cat", "b", "/proj/notes"]), "as it was");
}

#[test]
fn no_crash_of_the_server_takes_anything_from_a_snapshot() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "/proj"]);
    let mut taken: Vec<(String, Vec<String>, String)> = Vec::new();
    for round in 0..8u64 {
        let fs = cluster.mount();
        fs.make_dir(format!("/proj/d{round}"), 0o755).unwrap();
        for file in 0..5 {
            write(&cluster, &format!("/proj/d{round}/f{file}"), &format!("round {round}"));
        }
        write(&cluster, "/proj/round", &round.to_string());
        let name = format!("b{round}");
        cluster.run(&["branch", "create", &name, "/proj"]);
        let at = branch(&cluster, &["cat", &name, "/proj/round"]);
        assert_eq!(at, round.to_string());
        taken.push((name.clone(), tree(&cluster, &name), at));
        // Directories are written, merged and removed while the server is killed.
        let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            // Also where something below fails: the scope waits for its threads.
            let _ends = Ends(&stop);
            scope.spawn(|| {
                let Ok(dir) = fs.open_dir("/proj") else { return };
                let mut number = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    let name = format!("n{round}-{number}");
                    let _ = dir.create(&name, &NewFile::default());
                    let _ = dir.rename(&name, &dir, "last", cudele::RenameFlags::default());
                    if number.is_multiple_of(3) && fs.checkpoint().is_ok() {
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                    number += 1;
                }
            });
            eventually("the store has some of it", || written.load(Ordering::Relaxed) > round * 2);
            cluster.kill("mds");
            cluster.start();
        });
        if round % 3 == 2 {
            cluster.run(&["rm", "-r", &format!("/proj/d{}", round - 1)]);
        }
        for (name, paths, at) in &taken {
            assert_eq!(tree(&cluster, name), *paths, "{name} in round {round}");
            assert_eq!(branch(&cluster, &["cat", name, "/proj/round"]), *at, "{name}");
        }
    }
}

#[test]
fn making_a_branch_may_be_interrupted_and_done_again() {
    let cluster = Cluster::up();
    base(&cluster);
    let mut begun = 0;
    for round in 0..12u64 {
        let name = format!("b{round}");
        let object = format!("branches/named/{name}");
        let taken = || {
            let objects = objstore::open_existing(&store(&cluster)).unwrap();
            engine::read_snapshots(&*objects).unwrap().0.taken
        };
        let before = taken();
        let mut child = cluster
            .command(&["branch", "create", &name, "/proj"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually("it has begun", || match round % 3 {
            0 => !cluster.objects(&object).is_empty(),
            1 => taken() > before,
            _ => child.try_wait().unwrap().is_some(),
        });
        if round % 4 == 3 {
            cluster.kill("mds");
        }
        let _ = child.kill();
        child.wait().unwrap();
        if round % 4 == 3 {
            cluster.start();
        }
        let state = cluster.json(&["branch", "ls"]);
        let made =
            state.as_array().unwrap().iter().any(|it| it["name"] == *name && it["state"] == "open");
        begun += u64::from(!made);
        if made {
            cluster.fails(1, &["branch", "create", &name, "/proj"]);
        } else {
            cluster.run(&["branch", "create", &name, "/proj"]);
        }
        assert_eq!(tree(&cluster, &name), as_it_was());
    }
    println!("{begun} of 12 were interrupted");
    // The snapshots of interrupted creations are unneeded, and are deleted.
    let branches = Branches::open(&store(&cluster)).unwrap();
    branches.collect(false).unwrap();
    let objects = objstore::open_existing(&store(&cluster)).unwrap();
    assert_eq!(engine::read_snapshots(&*objects).unwrap().0.live().len(), 12);
}
