//! Objects of removed files and directories are deleted, also if a daemon or client is killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cudele::{Attr, Cred, Dir, Fs, NewFile};
use types::DirFragId;

use crate::cluster::{Cluster, eventually};

/// Bytes of a file that is never inline.
const CONTENT: usize = 100_000;
/// Objects of such a file: one stripe, and one object of checksums.
const OBJECTS: usize = 2;

/// Makes a file with its content in data objects, which need not be durable.
fn make(fs: &Arc<Fs>, dir: &Dir, name: &str) -> Attr {
    let attr = dir.create(name, &NewFile::default()).unwrap();
    let content = vec![7; CONTENT];
    let size = fs.write_large(attr.striped(), &content, &mut std::io::empty()).unwrap();
    dir.set_data(attr.ino, &[], size).unwrap();
    attr
}

/// Checks that the store has no leak and no damage.
fn adds_up(cluster: &Cluster) {
    cluster.run(&["down"]);
    let found = cluster.json(&["fsck"]);
    assert_eq!(found["findings"].as_array().map(Vec::len), Some(0), "{found:#}");
    assert!(found["incomplete"].is_null(), "{found:#}");
    assert_eq!(cluster.objects("removed/"), [""; 0]);
}

/// Removes many files while the server is killed again and again.
fn removed_under_fire(options: &[&str]) {
    const FILES: usize = 1200;
    let cluster = Cluster::up_with(options);
    let fs = cluster.mount();
    let dir = fs.open_dir("/").unwrap();
    for number in 0..FILES {
        make(&fs, &dir, &format!("f{number:04}"));
    }
    make(&fs, &dir, "stays");
    fs.sync().unwrap();
    assert_eq!(cluster.objects("data/").len(), OBJECTS * (FILES + 1));
    let removed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..FILES {
                dir.unlink(format!("f{number:04}")).unwrap();
                removed.fetch_add(1, Ordering::Relaxed);
            }
        });
        for kill in [400, 800, FILES] {
            eventually("some are removed", || removed.load(Ordering::Relaxed) >= kill);
            cluster.kill("mds");
            cluster.start();
        }
    });
    // A client without a request to send does not notice that the server was restarted: with this
    // one, it repeats the removals that were not yet durable.
    fs.sync().unwrap();
    eventually("their content is deleted", || cluster.objects("data/").len() == OBJECTS);
    adds_up(&cluster);
}

#[test]
fn a_server_that_is_killed_while_files_are_removed_leaves_no_content() {
    removed_under_fire(&[]);
}

/// Small segments: the server trims the journal and writes the directory without the names.
#[test]
fn a_server_killed_after_writing_the_directory_leaves_no_content() {
    removed_under_fire(&["--set", "segments_max=2", "--set", "segment_bytes_max=16384"]);
}

#[test]
fn directories_that_are_removed_leave_nothing_when_the_server_is_killed() {
    let cluster =
        Cluster::up_with(&["--set", "segments_max=2", "--set", "segment_bytes_max=16384"]);
    let fs = cluster.mount();
    let root = fs.open_dir("/").unwrap();
    let mut manifests = Vec::new();
    for number in 0..200 {
        let name = format!("d{number:03}");
        let ino = fs.make_dir(format!("/{name}"), 0o755).unwrap().ino;
        manifests.push(metastore::manifest_name(DirFragId { ino, ..DirFragId::default() }));
        let dir = fs.open_dir(format!("/{name}")).unwrap();
        dir.create("file", &NewFile::default()).unwrap();
    }
    fs.checkpoint().unwrap();
    let left = || {
        let all = cluster.objects("dirs/");
        manifests.iter().filter(|manifest| all.contains(manifest)).count()
    };
    assert_eq!(left(), 200);
    for number in 0..200 {
        let dir = fs.open_dir(format!("/d{number:03}")).unwrap();
        dir.unlink("file").unwrap();
        root.rmdir(format!("d{number:03}")).unwrap();
    }
    fs.sync().unwrap();
    cluster.kill("mds");
    drop((root, fs));
    cluster.start();
    eventually("they are deleted", || left() == 0);
    adds_up(&cluster);
}

#[test]
fn a_removed_file_that_is_open_keeps_its_content_over_a_crash_until_it_is_closed() {
    let cluster = Cluster::up();
    let fs = cluster.mount();
    let dir = fs.open_dir("/").unwrap();
    let (open, other) = (make(&fs, &dir, "open"), make(&fs, &dir, "other"));
    fs.open_as(&Cred::root(), open.ino, true).unwrap();
    dir.unlink("open").unwrap();
    dir.unlink("other").unwrap();
    fs.sync().unwrap();
    cluster.kill("mds");
    cluster.start();
    // The client has connected again and reported its open files.
    fs.sync().unwrap();
    let prefix = |attr: &Attr| metastore::data_prefix(attr.ino, attr.stripe.pool());
    eventually("the other is deleted", || cluster.objects(&prefix(&other)).is_empty());
    assert_eq!(cluster.objects(&prefix(&open)).len(), OBJECTS);
    assert_eq!(fs.read_at(open.striped(), 0, CONTENT).unwrap(), vec![7; CONTENT]);
    fs.close_file(open.ino, true);
    eventually("it is deleted", || cluster.objects("data/").is_empty());
    adds_up(&cluster);
}

#[test]
fn a_removed_file_that_a_killed_client_had_open_is_deleted() {
    let cluster = Cluster::up();
    let fs = cluster.mount();
    let dir = fs.open_dir("/").unwrap();
    let open = make(&fs, &dir, "open");
    fs.open_as(&Cred::root(), open.ino, true).unwrap();
    dir.unlink("open").unwrap();
    fs.sync().unwrap();
    assert_eq!(cluster.objects("data/").len(), OBJECTS);
    // The client ends as well, so the next server hears of no open file.
    cluster.kill("mds");
    drop((dir, fs));
    cluster.start();
    eventually("it is deleted", || cluster.objects("data/").is_empty());
    adds_up(&cluster);
}
