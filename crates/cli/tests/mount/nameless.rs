//! Files and directories that lose their last name while they are open.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::sync::Arc;

use cudele::{Cluster, Fs, Locator};
use rustix::fs::Advice;

use crate::fixture::World;
use crate::mounts::{Mount, cluster, until};

fn client(world: &World) -> Arc<Fs> {
    let locator = Locator { mon: None, dir: Some(world.path("c")) };
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
        // What was removed is deleted when the removal is stored.
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
