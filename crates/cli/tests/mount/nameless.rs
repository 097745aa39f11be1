//! Files and directories that lose their last name while they are open.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};
use std::sync::Arc;

use cudele::{Cluster, Fs, Locator};
use rustix::fs::Advice;

use crate::fixture::World;
use crate::mounts::{Mount, cluster, until};

fn client(world: &World) -> Arc<Fs> {
    let locator = Locator { dir: Some(world.path("c")), ..Locator::default() };
    let cluster = Cluster::find(&locator).unwrap();
    cluster.mount_as(cluster.register().unwrap()).unwrap()
}

#[test]
fn a_file_without_a_name_may_be_opened_again() {
    let Some(world) = cluster() else { return };
    let (mount, fs) = (Mount::new(&world), client(&world));
    let content = vec![b'x'; 300_000];
    let (mut reading, mut writing) = (File::options(), File::options());
    reading.read(true);
    writing.read(true).write(true);
    let stored = || {
        // Content is deleted when the removal is stored.
        fs.checkpoint().unwrap();
        world.store().list("data").unwrap().len()
    };
    for (first, again) in [(&writing, &writing), (&writing, &reading), (&reading, &writing)] {
        fs::write(mount.path("file"), &content).unwrap();
        let file = first.open(mount.path("file")).unwrap();
        fs::remove_file(mount.path("file")).unwrap();
        let others = [(); 2].map(|()| again.open(format!("/proc/self/fd/{}", file.as_raw_fd())));
        for other in others {
            let other = other.unwrap();
            assert_eq!(other.metadata().unwrap().len(), 300_000);
            drop(other);
            // The kernel closes it a moment later.
            std::thread::sleep(std::time::Duration::from_millis(100));
            assert!(stored() > 0);
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
            let mut found = vec![0; content.len()];
            file.read_exact_at(&mut found, 0).unwrap();
            assert!(found == content);
        }
        drop(file);
        until("its content is gone", || stored() == 0);
    }
    mount.end();
}

/// The server deletes all that the store has of a file, not as much as it was long when it lost its
/// name.
#[test]
fn content_written_to_an_unlinked_file_is_deleted_with_it() {
    let Some(world) = cluster() else { return };
    let (one, two, fs) = (Mount::new(&world), Mount::new(&world), client(&world));
    let mut options = File::options();
    options.read(true).write(true);
    for (before, shared, by_other) in
        [(10, false, false), (300_000, false, true), (10, true, false), (300_000, true, true)]
    {
        let what = format!("{before} {shared} {by_other}");
        fs::write(one.path("file"), vec![b'x'; before]).unwrap();
        let file = options.open(one.path("file")).unwrap();
        let other = shared.then(|| options.open(two.path("file")).unwrap());
        fs::remove_file(if by_other { two.path("file") } else { one.path("file") }).unwrap();
        file.write_all_at(&[b'y'; 9 << 20], 20).unwrap();
        if let Some(other) = &other {
            other.write_all_at(&[b'z'; 100_000], 40 << 20).unwrap();
        }
        file.sync_all().unwrap();
        fs.checkpoint().unwrap();
        assert!(!world.store().list("data").unwrap().is_empty(), "{what}");
        drop((file, other));
        until("its content is gone", || {
            fs.checkpoint().unwrap();
            world.store().list("data").unwrap().is_empty()
        });
    }
    two.end();
    one.end();
}

#[test]
fn a_directory_that_is_removed_while_it_is_open_is_empty() {
    let Some(world) = cluster() else { return };
    let mount = Mount::new(&world);
    let job = mount.path("job");
    fs::create_dir(&job).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&job, "cudele.dir.policy", b"batchfs", flags).unwrap();
    rustix::fs::setxattr(&job, "cudele.dir.state", b"decouple", flags).unwrap();
    for dir in [mount.at(), &job] {
        for replaced in [false, true] {
            let (path, other) = (dir.join("dir"), dir.join("other"));
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
            let open = File::open(&path).unwrap();
            let before = open.metadata().unwrap();
            if replaced {
                fs::create_dir(&other).unwrap();
                fs::rename(&other, &path).unwrap();
            } else {
                fs::remove_dir(&path).unwrap();
            }
            let found = open.metadata().unwrap();
            assert_eq!((found.nlink(), found.ino()), (0, before.ino()));
            assert_eq!(found.mode(), 0o040_750);
            let mut entries = rustix::fs::Dir::read_from(&open).unwrap();
            assert!(entries.next().is_none(), "not even itself");
            if replaced {
                assert_ne!(fs::metadata(&path).unwrap().ino(), before.ino());
                fs::remove_dir(&path).unwrap();
            }
        }
    }
    mount.end();
}

#[test]
fn a_file_that_another_mount_removes_while_it_is_written_is_closed_as_any_other() {
    let Some(world) = cluster() else { return };
    let (one, two) = (Mount::new(&world), Mount::new(&world));
    for (length, made_here) in [(100, true), (100_000, true), (100, false), (100_000, false)] {
        let path = one.path("file");
        if !made_here {
            fs::write(two.path("file"), vec![b'x'; length]).unwrap();
        }
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        file.write_all_at(&vec![b'a'; length], 0).unwrap();
        // `cat` reports an error when it cannot close its output.
        let mut writer = Command::new("cat");
        writer.stdin(Stdio::piped()).stdout(file.try_clone().unwrap());
        let mut writer = writer.spawn().unwrap();
        writer.stdin.as_mut().unwrap().write_all(b"begin").unwrap();
        until("it has written", || {
            let mut found = [0; 5];
            file.read_at(&mut found, 0).unwrap() == 5 && &found == b"begin"
        });
        fs::remove_file(two.path("file")).unwrap();
        assert!(writer.wait().unwrap().success(), "{length} {made_here}");
        file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
        let found = file.metadata().unwrap();
        assert_eq!((found.nlink(), found.len()), (0, length as u64), "{length} {made_here}");
        assert_eq!(found.mode(), 0o100_600);
        let mut read = vec![0; length];
        file.read_exact_at(&mut read, 0).unwrap();
        assert!(read.starts_with(b"beginaaa"), "{length} {made_here}");
        file.write_all_at(b"end", 0).unwrap();
        file.sync_all().unwrap();
        drop(file);
        assert!(!path.exists());
    }
    two.end();
    one.end();
}
