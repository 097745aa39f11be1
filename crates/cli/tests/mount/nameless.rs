//! Files and directories that lose their last name while they are open.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
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
