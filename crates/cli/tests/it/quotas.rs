//! Quotas with real servers that are killed.

use std::sync::Arc;

use cudele::{AttrChange, Errno, Fs, NewFile, RenameFlags};
use serde_json::Value;
use types::rng::Rng;

use crate::cluster::{Cluster, eventually};

/// The inodes and bytes that the innermost quota of a directory has, once they are counted.
fn counted(cluster: &Cluster, path: &str) -> (u64, u64) {
    let mut used = (0, 0);
    eventually("the use is counted", || {
        let told = cluster.json(&["quota", "get", path]);
        let quota = &told["quotas"][0];
        let number = |key: &str| quota[key]["used"].as_u64().unwrap();
        used = (number("inodes"), number("bytes"));
        quota["counted"] == Value::Bool(true)
    });
    used
}

/// The same by a walk of a client. `cudele du` counts the directory itself, too.
fn walked(cluster: &Cluster, path: &str) -> (u64, u64) {
    let told = cluster.json(&["du", path]);
    let number = |key: &str| told[key].as_u64().unwrap();
    (number("files") + number("directories") - 1, number("bytes"))
}

#[test]
fn a_request_over_a_limit_is_refused_and_changes_nothing() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "-p", "/users/ada/src"]);
    cluster.run(&["quota", "set", "/users/ada", "--inodes", "3", "--bytes", "10K"]);
    assert_eq!(counted(&cluster, "/users/ada"), (1, 0));
    let fs = cluster.mount();
    let src = fs.open_dir("/users/ada/src").unwrap();
    let large = NewFile { size: 10_000, data: &[7; 10_000], ..NewFile::default() };
    let kept = src.create("kept", &large).unwrap();
    let errno = |error: cudele::Error| error.errno;
    assert_eq!(src.create("larger", &large).map_err(errno).unwrap_err(), Errno::Quota);
    let grow = AttrChange { size: Some(10_241), ..AttrChange::default() };
    assert_eq!(fs.set_attr(kept.ino, &grow).map_err(errno), Err(Errno::Quota));
    src.create("empty", &NewFile::default()).unwrap();
    assert_eq!(src.create("fourth", &NewFile::default()).map_err(errno).unwrap_err(), Errno::Quota);
    fs.sync().unwrap();
    assert_eq!(cluster.names("/users/ada/src"), ["empty", "kept"]);
    assert_eq!(fs.stat("/users/ada/src/kept").unwrap().size, 10_000);
    assert_eq!(counted(&cluster, "/users/ada"), (3, 10_000));
    let said = cluster.fails(1, &["mkdir", "/users/ada/another"]);
    assert!(said.contains("EDQUOT") && said.contains("cudele quota get"), "{said}");
    // Below a higher limit there is room, and without one as well.
    cluster.run(&["quota", "set", "/users/ada", "--inodes", "4"]);
    cluster.run(&["mkdir", "/users/ada/another"]);
    cluster.run(&["quota", "rm", "/users/ada"]);
    cluster.run(&["mkdir", "/users/ada/more"]);
    assert_eq!(cluster.json(&["quota", "get", "/users/ada"])["quotas"], Value::Array(Vec::new()));
}

/// Random changes below `/users`; some of them fail.
fn change(fs: &Arc<Fs>, rng: &mut Rng) {
    let dirs = ["/users", "/users/a", "/users/b", "/users/a/c"];
    let (dir, other) = (rng.pick(&dirs), rng.pick(&dirs));
    let name = format!("f{}", rng.below(40));
    let Ok(open) = fs.open_dir(dir) else { return };
    match rng.below(12) {
        0..6 => {
            let size = rng.below(5000);
            let data = vec![7; usize::try_from(size).unwrap()];
            let _ = open.create(&name, &NewFile { size, data: &data, ..NewFile::default() });
        }
        6 => drop(open.unlink(&name)),
        7 => drop(fs.make_dir(other, 0o755)),
        8 => {
            let _ = fs.stat(format!("{other}/f{}", rng.below(40))).map(|file| {
                let _ = open.link(file.ino, &name);
            });
        }
        9 => {
            let _ = fs.stat(format!("{dir}/{name}")).map(|file| {
                let size = Some(rng.below(9000));
                fs.set_attr(file.ino, &AttrChange { size, ..AttrChange::default() })
            });
        }
        _ => {
            let to = format!("f{}", rng.below(40));
            let _ =
                fs.rename(format!("{dir}/{name}"), format!("{other}/{to}"), RenameFlags::default());
        }
    }
}

#[test]
fn the_use_of_a_quota_is_exact_after_a_crash() {
    let seed = 0x71_0a7a;
    println!("seed {seed:#x}");
    let rng = &mut Rng::new(seed);
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "/users", "/users/a", "/users/b", "/users/a/c"]);
    cluster.run(&["quota", "set", "/users", "/users/a", "--inodes", "1M"]);
    for round in 0..4 {
        let fs = cluster.mount();
        for _ in 0..400 {
            change(&fs, rng);
        }
        if round % 2 == 0 {
            // Some changes are in the store, and some in the journal only.
            fs.checkpoint().unwrap();
            (0..100).for_each(|_| change(&fs, rng));
        }
        fs.sync().unwrap();
        drop(fs);
        for path in ["/users", "/users/a"] {
            assert_eq!(counted(&cluster, path), walked(&cluster, path), "{path}, round {round}");
        }
        cluster.kill("mds");
        cluster.start();
        for path in ["/users", "/users/a"] {
            assert_eq!(counted(&cluster, path), walked(&cluster, path), "{path}, round {round}");
        }
    }
    // The objects of the stopped cluster say the same.
    let used = ["/users", "/users/a"].map(|path| counted(&cluster, path));
    cluster.run(&["down"]);
    let told = cluster.json(&["fsck", "--metadata-only"]);
    let numbers = |quota: &Value, key: &str| quota[key]["used"].as_u64().unwrap();
    let checked = told["quotas"].as_array().unwrap().iter();
    let checked: Vec<_> = checked.map(|it| (numbers(it, "inodes"), numbers(it, "bytes"))).collect();
    assert_eq!(checked, used, "{told:#}");
    assert!(used[0] > used[1] && used[1].0 > 5, "{used:?}");
}
