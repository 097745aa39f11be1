//! The guarantees for programs on a mount.

use std::fs::{self, File, FileTimes};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{Mode, OFlags, XattrFlags, openat};
use serde_json::Value;

use crate::fixture::World;
use crate::mounts::{Mount, cluster, until};

pub(crate) fn said(path: &Path, name: &str) -> String {
    let mut value = vec![0; 4096];
    let length = rustix::fs::getxattr(path, name, &mut value).unwrap();
    value.truncate(length);
    String::from_utf8(value).unwrap()
}

pub(crate) fn ask_for(dir: &Path, name: &str, value: &str) {
    rustix::fs::setxattr(dir, name, value.as_bytes(), XattrFlags::empty()).unwrap();
}

fn made(mount: &Mount, name: &str, policy: &str) -> std::path::PathBuf {
    let dir = mount.path(name);
    fs::create_dir(&dir).unwrap();
    ask_for(&dir, "cudele.dir.policy", policy);
    dir
}

/// Requests that the metadata server has been asked so far, as its last beacon says.
fn requests(world: &World) -> u64 {
    // Beacons come twice a second.
    std::thread::sleep(std::time::Duration::from_millis(700));
    let status = world.run(&["--json", "status"]).done().out;
    let status: Value = serde_json::from_str(&status).unwrap();
    status["mds"][0]["counters"]["requests"].as_u64().unwrap()
}

#[test]
fn each_subtree_of_a_mount_is_as_its_policy_says() {
    let Some(world) = cluster() else { return };
    let mount = Mount::new(&world);
    let strong = made(&mount, "strong", "posix");
    let memory = made(&mount, "memory", "strong-none");
    let job = made(&mount, "job", "batchfs");
    ask_for(&job, "cudele.dir.state", "decouple");
    for dir in [&strong, &memory, &job] {
        fs::write(dir.join("file"), "content").unwrap();
        File::open(dir.join("file")).unwrap().sync_all().unwrap();
    }
    let now = |dir: &Path| {
        let file = dir.join("file");
        [said(&file, "cudele.file.durable"), said(&file, "cudele.file.visible")]
    };
    assert_eq!(now(&strong), ["global", "yes"]);
    assert_eq!(now(&memory), ["none", "yes"]);
    assert_eq!(now(&job), ["local", "no"]);
    assert!(said(&strong, "cudele.dir.policy").ends_with("# set here"));
    fs::create_dir(strong.join("below")).unwrap();
    let below = said(&strong.join("below"), "cudele.dir.policy");
    assert!(below.ends_with("# inherited from /strong"), "{below}");
    let mut open = File::options().append(true).open(strong.join("file")).unwrap();
    open.write_all(b"more").unwrap();
    assert_eq!(now(&strong), ["none", "no"]);
    drop(open);
    ask_for(&job, "cudele.dir.state", "merge");
    assert_eq!(said(&job.join("file"), "cudele.file.visible"), "yes");
    mount.end();
}

#[test]
fn under_lazy_sharing_a_write_is_seen_when_it_is_flushed() {
    let Some(world) = cluster() else { return };
    let (one, other) = (Mount::new(&world), Mount::new(&world));
    let at = |mount: &Mount, dir: &str| {
        let path = mount.path(dir).join("file");
        File::options().read(true).write(true).open(path).unwrap()
    };
    let read = |file: &File, offset: u64| {
        let mut bytes = [0; 4];
        let read = file.read_at(&mut bytes, offset).unwrap();
        bytes[..read].to_vec()
    };
    let begin = |dir: &str, policy: &str| {
        let dir = made(&one, dir, policy);
        fs::write(dir.join("file"), [b'-'; 8192]).unwrap();
    };
    begin("strict", "sharing: strict");
    let (here, there) = (at(&one, "strict"), at(&other, "strict"));
    here.write_all_at(b"here", 0).unwrap();
    assert_eq!(read(&there, 0), b"here", "at once");
    drop((here, there));

    begin("lazy", "sharing: lazy");
    let (here, there) = (at(&one, "lazy"), at(&other, "lazy"));
    assert_eq!((read(&here, 0), read(&there, 0)), (b"----".to_vec(), b"----".to_vec()));
    let before = requests(&world);
    for page in 0..500 {
        here.write_all_at(b"here", 1000 + page * 4096).unwrap();
        there.write_all_at(b"more", 2000 + page * 4096).unwrap();
    }
    // Under strict sharing each of these writes is at least one.
    let asked = requests(&world) - before;
    assert!(asked < 500, "{asked} requests for 1000 writes");
    assert_eq!(read(&here, 1000), b"here", "its own write is seen by who wrote it");
    assert_eq!(there.metadata().unwrap().len(), 2000 + 499 * 4096 + 4);
    here.sync_all().unwrap();
    drop(there);
    // Opened again, all clients see everything.
    for mount in [&one, &other] {
        let file = at(mount, "lazy");
        assert_eq!(file.metadata().unwrap().len(), 2000 + 499 * 4096 + 4);
        for page in 0..500 {
            assert_eq!(read(&file, 1000 + page * 4096), b"here", "page {page}");
            assert_eq!(read(&file, 2000 + page * 4096), b"more", "page {page}");
        }
    }
    let mut append = File::options().append(true).open(one.path("lazy").join("file")).unwrap();
    here.write_all_at(b"long", 5_000_000).unwrap();
    append.write_all(b"end").unwrap();
    drop((here, append));
    let file = at(&other, "lazy");
    assert_eq!(file.metadata().unwrap().len(), 5_000_007);
    assert_eq!((read(&file, 5_000_000), read(&file, 5_000_004)), (b"long".into(), b"end".into()));
    drop(file);
    one.end();
    other.end();
}

#[test]
fn a_mount_sends_no_requests_in_its_decoupled_subtree() {
    let Some(world) = cluster() else { return };
    let (mount, other) = (Mount::new(&world), Mount::new(&world));
    let job = made(&mount, "job", "batchfs");
    fs::write(mount.path("outside"), "").unwrap();
    ask_for(&job, "cudele.dir.state", "decouple");
    let before = requests(&world);
    // From the directory on: the directories above are not in the subtree, and are requested.
    let dir = File::open(&job).unwrap();
    for number in 0..500 {
        let open = |flags| openat(&dir, format!("f{number}"), flags, Mode::from(0o644)).unwrap();
        let mut file = File::from(open(OFlags::CREATE | OFlags::WRONLY));
        file.write_all(b"content").unwrap();
        drop(file);
        let mut read = String::new();
        File::from(open(OFlags::RDONLY)).read_to_string(&mut read).unwrap();
        assert_eq!(read, "content");
    }
    drop(dir);
    assert_eq!(fs::read_dir(&job).unwrap().count(), 500);
    let asked = requests(&world) - before;
    assert!(asked < 100, "{asked} requests for 500 files: the subtree is not alone");
    // `batchfs` blocks others.
    let refused = fs::read_dir(other.path("job")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(16), "{refused}");
    let across = fs::rename(mount.path("outside"), job.join("inside")).unwrap_err();
    assert_eq!(across.raw_os_error(), Some(18), "{across}");
    ask_for(&job, "cudele.dir.state", "merge");
    assert_eq!(fs::read_dir(other.path("job")).unwrap().count(), 500);
    assert_eq!(fs::read(other.path("job/f77")).unwrap(), b"content");
    mount.end();
    other.end();
}

#[test]
fn the_next_open_sees_all_closed_writes() {
    let Some(world) = cluster() else { return };
    let (mount, other) = (Mount::new(&world), Mount::new(&world));
    for length in [5, 5_000, 5_000_000, 50] {
        let content = vec![b'a' + u8::try_from(length % 7).unwrap(); length];
        fs::write(mount.path("file"), &content).unwrap();
        assert!(fs::read(other.path("file")).unwrap() == content, "{length} bytes");
    }
    // While both have it open, every write is seen.
    let mut writer = File::options().write(true).open(mount.path("file")).unwrap();
    let mut reader = File::open(other.path("file")).unwrap();
    for round in 0..20u8 {
        writer.rewind().unwrap();
        writer.write_all(&[round; 10]).unwrap();
        let mut read = [0; 10];
        reader.rewind().unwrap();
        reader.read_exact(&mut read).unwrap();
        assert_eq!(read, [round; 10]);
    }
    drop((writer, reader));
    mount.end();
    other.end();
}

#[test]
fn fsync_waits_until_the_policys_promise_holds() {
    let Some(world) = cluster() else { return };
    let mut mount = Mount::new(&world);
    let strong = made(&mount, "strong", "posix");
    let job = made(&mount, "job", "batchfs");
    ask_for(&job, "cudele.dir.state", "decouple");
    let synced = |dir: &Path, name: &str, content: &[u8]| {
        let mut file = File::create(dir.join(name)).unwrap();
        file.write_all(content).unwrap();
        file.sync_all().unwrap();
        // Not closed: that would flush it.
        file
    };
    let large = vec![b'x'; 300_000];
    let open = [
        synced(&strong, "small", b"content"),
        synced(&strong, "large", &large),
        synced(&job, "small", b"content"),
        synced(&job, "large", &large),
    ];
    mount.kill();
    world.crash();
    drop(open);
    drop(mount);
    world.run(&["merge", "/job"]).done();
    let mount = Mount::new(&world);
    for dir in ["strong", "job"] {
        assert_eq!(fs::read(mount.path(dir).join("small")).unwrap(), b"content", "{dir}");
        assert!(fs::read(mount.path(dir).join("large")).unwrap() == large, "{dir}");
    }
    mount.end();
}

#[test]
fn reading_is_noted_after_a_change_and_once_a_day() {
    let Some(world) = cluster() else { return };
    let (mount, other) = (Mount::new(&world), Mount::new(&world));
    let (path, there) = (mount.path("file"), other.path("file"));
    let accessed = || fs::metadata(&path).unwrap().accessed().unwrap();
    let day = Duration::from_secs(24 * 3600);
    let set = |age| {
        let now = SystemTime::now();
        let times = FileTimes::new().set_modified(now - 9 * day).set_accessed(now - age);
        File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
    };
    let read = || assert_eq!(fs::read(&there).unwrap(), b"content");
    fs::write(&path, "content").unwrap();
    read();
    until("it was noted", || accessed() > fs::metadata(&path).unwrap().modified().unwrap());
    let first = accessed();
    read();
    assert_eq!(accessed(), first);
    set(2 * day);
    let before = accessed();
    read();
    until("it was noted", || accessed() > before);
    mount.end();
    other.end();
}

#[test]
fn a_file_without_a_name_lives_until_it_is_closed() {
    let Some(world) = cluster() else { return };
    let (mount, other) = (Mount::new(&world), Mount::new(&world));
    let job = made(&mount, "job", "batchfs");
    ask_for(&job, "cudele.dir.state", "decouple");
    for dir in [mount.at(), &job] {
        let path = dir.join("file");
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all(b"before").unwrap();
        fs::remove_file(&path).unwrap();
        file.write_all(&vec![b'x'; 100_000]).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        assert_eq!(file.metadata().unwrap().size(), 100_006);
        let mut read = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut read).unwrap();
        assert!(read.starts_with(b"beforexxx") && read.len() == 100_006);
    }
    // Another client takes the name.
    fs::write(mount.path("shared"), "content").unwrap();
    let mut reader = File::open(mount.path("shared")).unwrap();
    fs::remove_file(other.path("shared")).unwrap();
    let mut read = String::new();
    reader.read_to_string(&mut read).unwrap();
    assert_eq!(read, "content");
    drop(reader);
    assert!(File::open(mount.path("shared")).is_err());
    mount.end();
    other.end();
}
