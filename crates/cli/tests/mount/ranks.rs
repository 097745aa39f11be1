//! A mount of a namespace that several metadata servers serve.

use std::fs;
use std::path::Path;

use crate::fixture::World;
use crate::mounts::{Mount, cluster};

fn number(dir: &Path, name: &str) -> u64 {
    let mut value = [0; 64];
    let length = rustix::fs::getxattr(dir, format!("cudele.dir.{name}"), &mut value[..]).unwrap();
    let text = std::str::from_utf8(&value[..length]).unwrap();
    text.split('.').next().unwrap().parse().unwrap()
}

#[test]
fn sums_of_everything_below_are_those_of_all_ranks() {
    // For what it says where nothing can be mounted.
    if cluster().is_none() {
        return;
    }
    let world = World::with(&["--mds", "3"]);
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
    // What is done on one rank is counted by whoever asks another one.
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
