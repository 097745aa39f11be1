//! The root of a mount: programs change its attributes as those of any other directory.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::XattrFlags;

use crate::mounts::{Mount, cluster, transcript};

/// Changes mode, owner and times of a root, and checks the result.
fn change_all(root: &Path, mode: u32) {
    fs::set_permissions(root, fs::Permissions::from_mode(mode)).unwrap();
    std::os::unix::fs::chown(root, Some(12), Some(34)).unwrap();
    let then = UNIX_EPOCH + Duration::from_secs(u64::from(mode));
    let times = FileTimes::new().set_accessed(then).set_modified(then);
    File::open(root).unwrap().set_times(times).unwrap();
    check_all(root, mode);
}

fn check_all(root: &Path, mode: u32) {
    let found = fs::metadata(root).unwrap();
    let seen = (found.mode() & 0o7777, found.uid(), found.gid(), found.mtime());
    assert_eq!(seen, (mode, 12, 34, i64::from(mode)), "{}", root.display());
}

#[test]
fn the_root_of_a_mount_is_changed_as_any_directory_is() {
    let Some(world) = cluster() else { return };
    let whole = Mount::new(&world);
    fs::create_dir_all(whole.path("a/b")).unwrap();
    let part = Mount::with(&world, &["--root", "/a/b"]);
    change_all(whole.at(), 0o751);
    change_all(part.at(), 0o2711);
    check_all(&whole.path("a/b"), 0o2711);
    // The mount follows its directory.
    fs::rename(whole.path("a"), whole.path("c")).unwrap();
    change_all(part.at(), 0o700);
    check_all(&whole.path("c/b"), 0o700);
    part.end();
    // The mount itself answers for a decoupled root.
    let part = Mount::with(&world, &["--root", "/c/b"]);
    for (name, value) in [("cudele.dir.policy", &b"batchfs"[..]), ("cudele.dir.state", b"decouple")]
    {
        rustix::fs::setxattr(part.at(), name, value, XattrFlags::empty()).unwrap();
    }
    change_all(part.at(), 0o755);
    part.end();
    whole.end();
}

/// Under a policy that logs requests at the client, the log has the changes.
#[test]
fn a_change_of_a_root_survives_what_the_policy_says() {
    let Some(world) = cluster() else { return };
    let whole = Mount::new(&world);
    fs::create_dir_all(whole.path("a/b")).unwrap();
    let policy = world.path("policy");
    fs::write(&policy, "consistency: rpcs\ndurability: local_persist\n").unwrap();
    world.run(&["policy", "set", "/", policy.to_str().unwrap()]).done();
    // A mount may cache the policy of before for a second.
    whole.end();
    let whole = Mount::new(&world);
    let part = Mount::with(&world, &["--root", "/a/b"]);
    change_all(part.at(), 0o711);
    change_all(whole.at(), 0o715);
    world.kill_server();
    world.run(&["up"]).done();
    check_all(part.at(), 0o711);
    check_all(whole.at(), 0o715);
    part.end();
    whole.end();
}

#[test]
fn trees_are_copied_into_the_root_of_a_mount() {
    let Some(world) = cluster() else { return };
    let source = world.path("source");
    fs::create_dir_all(source.join("dir")).unwrap();
    fs::write(source.join("dir/file"), "content").unwrap();
    change_all(&source, 0o750);
    let mount = Mount::new(&world);
    let (from, to) = (source.display(), mount.at().display());
    let mut copies = vec![
        format!("cp -a {from}/. {to}"),
        format!("tar -C {from} -cf - . | tar -C {to} -xpf -"),
        format!("cp -a {to}/. {}", world.path("back").display()),
    ];
    if Command::new("rsync").arg("--version").output().is_ok() {
        copies.push(format!("rsync -a {from}/ {to}"));
    }
    for copy in copies {
        change_all(mount.at(), 0o755);
        fs::create_dir_all(world.path("back")).unwrap();
        let (done, said) = transcript(Command::new("sh").args(["-euc", &copy]));
        assert!(done && said.is_empty(), "{copy}: {said}");
        if !copy.starts_with(&format!("cp -a {to}")) {
            check_all(mount.at(), 0o750);
            assert_eq!(fs::read(mount.path("dir/file")).unwrap(), b"content", "{copy}");
        }
    }
    mount.end();
}

/// Some programs skip entries with inode number 0.
#[test]
fn nothing_is_above_the_root_of_a_mount() {
    let Some(world) = cluster() else { return };
    let mount = Mount::new(&world);
    let dir = rustix::fs::Dir::new(File::open(mount.at()).unwrap()).unwrap();
    let dots: Vec<_> = dir
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name().to_bytes().starts_with(b"."))
        .map(|entry| (entry.file_name().to_bytes().to_vec(), entry.ino()))
        .collect();
    assert_eq!(dots, [(b".".to_vec(), 1), (b"..".to_vec(), 1)]);
    mount.end();
}
