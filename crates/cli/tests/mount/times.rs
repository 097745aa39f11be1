//! The time of a file's last access.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::XattrFlags;

use crate::mounts::{Mount, cluster, until};

const HOUR: Duration = Duration::from_secs(3600);

/// A time of the last access that is as old as said; that of the last change is before it.
fn set_accessed(path: &Path, age: Duration) -> SystemTime {
    let now = SystemTime::now();
    let (accessed, modified) = (now - age, now - 1000 * HOUR);
    let file = File::options().write(true).open(path).unwrap();
    file.set_times(FileTimes::new().set_accessed(accessed).set_modified(modified)).unwrap();
    accessed
}

fn accessed(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().accessed().unwrap()
}

/// The time of an access after `time`. The kernel does not wait for the end of a close, which sends
/// the time to the inode, so a request of the next call may overtake it.
fn accessed_after(path: &Path, time: SystemTime) -> SystemTime {
    let mut found = time;
    until("the close has sent the time", || {
        found = accessed(path);
        found > time
    });
    found
}

fn changed(path: &Path) -> (i64, i64) {
    let found = fs::metadata(path).unwrap();
    (found.ctime(), found.ctime_nsec())
}

#[test]
fn reading_changes_the_time_of_the_last_access_after_a_change_and_once_a_day() {
    let Some(world) = cluster() else { return };
    let (mount, other) = (Mount::new(&world), Mount::new(&world));
    for (name, length) in [("small", 100), ("large", 100_000)] {
        let (path, there) = (mount.path(name), other.path(name));
        let start = SystemTime::now();
        fs::write(&path, vec![b'x'; length]).unwrap();
        set_accessed(&path, 2 * HOUR);
        let before = changed(&path);
        // A file that was changed since it was last read.
        assert_eq!(fs::read(&path).unwrap().len(), length);
        let read = accessed_after(&path, start);
        until("the other mount sees it", || accessed(&there) == read);
        assert_eq!(changed(&path), before, "{name}: nothing was changed");
        // Again, and nothing was changed since.
        for mount in [&mount, &other] {
            assert_eq!(fs::read(mount.path(name)).unwrap().len(), length);
            assert_eq!(accessed(&mount.path(name)), read, "{name}");
        }
        // While it is open, with the time that its reader sets.
        let file = File::open(&path).unwrap();
        std::os::unix::fs::FileExt::read_at(&file, &mut [0; 10], 0).unwrap();
        let long_ago = UNIX_EPOCH + HOUR;
        let times = FileTimes::new().set_accessed(long_ago);
        File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
        drop(file);
        assert_eq!(accessed(&path), long_ago, "{name}");
    }
    other.end();
    mount.end();
}

#[test]
fn which_reads_count_is_an_option() {
    let Some(world) = cluster() else { return };
    let mount = Mount::new(&world);
    let path = mount.path("file");
    fs::write(&path, "content").unwrap();
    for options in ["noatime", "ro", "ro,strictatime"] {
        let before = set_accessed(&path, 100 * HOUR);
        let other = Mount::with(&world, &["-o", options]);
        assert_eq!(fs::read(other.path("file")).unwrap(), b"content");
        assert_eq!(accessed(&other.path("file")), before, "{options}");
        other.end();
        assert_eq!(accessed(&path), before, "{options}");
    }
    let other = Mount::with(&world, &["-o", "strictatime"]);
    let mut last = accessed(&path);
    for _ in 0..3 {
        assert_eq!(fs::read(other.path("file")).unwrap(), b"content");
        last = accessed_after(&other.path("file"), last);
    }
    other.end();
    mount.end();
}

#[test]
fn a_read_by_any_user_changes_the_access_time() {
    let Some(world) = cluster() else { return };
    let mount = Mount::new(&world);
    let job = mount.path("job");
    fs::create_dir(&job).unwrap();
    rustix::fs::setxattr(&job, "cudele.dir.policy", b"batchfs", XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(&job, "cudele.dir.state", b"decouple", XattrFlags::empty()).unwrap();
    for path in [mount.path("file"), job.join("file")] {
        fs::write(&path, "content").unwrap();
        let before = set_accessed(&path, 2 * HOUR);
        // Nothing is in the kernel's memory that it would read instead.
        let dropped = File::open(&path).unwrap();
        rustix::fs::fadvise(&dropped, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        drop(dropped);
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "cat"]).arg(&path);
        assert_eq!(command.output().unwrap().stdout, b"content");
        assert!(accessed(&path) > before, "{}", path.display());
    }
    mount.end();
}
