//! Machines that number their users differently, and mounts whose callers are all one user.

use std::process::Command;

use crate::mounts::{Mount, cluster, transcript};

/// A script of this user, in a directory.
fn as_user(user: u32, dir: &std::path::Path, text: &str) -> Command {
    let id = user.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &id, "--regid", &id, "--groups", "1200", "sh", "-uc", text]);
    command.current_dir(dir);
    command
}

fn is_root() -> bool {
    let is_root = rustix::process::getuid().is_root();
    if !is_root {
        println!("skipped: only root can become other users");
    }
    is_root
}

#[test]
fn a_mount_translates_the_numbers_of_a_machine() {
    let Some(world) = cluster().filter(|_| is_root()) else { return };
    world.run(&["mkdir", "-m", "1777", "/open"]).done();
    let map = "allow_other,uidmap=0:100000:1,uidmap=1000:101000:500,\
               gidmap=0:100000:1,gidmap=1000:101000:500";
    let mount = Mount::with(&world, &["-o", map]);
    let open = mount.path("open");
    let text = "umask 022; echo text > f && chmod 640 f && stat -c '%u %g' f
        mkdir -m 770 shared && chgrp 1200 shared && stat -c '%g' shared
        setfacl -m u:1001:r f && getfacl -cn f | grep 1001
        chown 1001 f 2>&1 | grep -o 'not permitted'";
    let (_, said) = transcript(&mut as_user(1000, &open, text));
    assert_eq!(said, "1000 1000\n1200\nuser:1001:r--\nnot permitted\n");
    // In the cluster they are the users of these numbers, and the list is theirs, too.
    let told = world.json(&["stat", "/open/f"]);
    assert_eq!((told["uid"].as_u64(), told["gid"].as_u64()), (Some(101_000), Some(101_000)));
    assert_eq!(world.json(&["stat", "/open/shared"])["gid"].as_u64(), Some(101_200));
    // Permissions count by the cluster's numbers: of a list, and of a further group.
    let text = "cat f; touch shared/by1001; stat -c '%u' shared/by1001; : > f; rm -f f";
    let (_, said) = transcript(&mut as_user(1001, &open, text));
    assert!(said.starts_with("text\n1001\n") && said.contains("Permission denied"), "{said}");
    assert!(open.join("f").exists(), "a sticky directory");
    // Without a number in the cluster a user is nobody there, and an owner nobody here.
    let text = "cat f; umask 022; : > nobodys; stat -c %u nobodys";
    let (_, said) = transcript(&mut as_user(5000, &open, text));
    assert!(said.contains("Permission denied") && said.ends_with("65534\n"), "{said}");
    assert_eq!(world.json(&["stat", "/open/nobodys"])["uid"].as_u64(), Some(65_534));
    // Root of the machine is one of the cluster's users: no root.
    let (well, said) = transcript(Command::new("chown").arg("1001").arg(open.join("f")));
    assert!(!well && said.contains("not permitted"), "{said}");
    mount.end();
    let overlaps = ["mount", "-o", "uidmap=0:5:9,uidmap=3:90:1", "/proc/self"];
    world.run(&overlaps).refused(&["EINVAL", "overlaps"]);
}

#[test]
fn all_users_of_a_mount_may_be_one_user() {
    let Some(world) = cluster().filter(|_| is_root()) else { return };
    world.run(&["mkdir", "-m", "700", "/secret"]).done();
    world.run(&["mkdir", "-m", "777", "/open"]).done();
    let mount = Mount::with(&world, &["-o", "allow_other,all_squash=3000:3001"]);
    let open = mount.path("open");
    let (well, said) = transcript(&mut as_user(
        1000,
        &open,
        "echo one > f && chmod 600 f && mkdir -m 700 d && echo in > d/g && stat -c '%u %g' f",
    ));
    assert!(well && said == "3000 3001\n", "{said}");
    let text = "echo two >> f && cat f d/g && chmod 640 f && rm d/g && rmdir d && ls";
    for user in [2000, 0] {
        if user == 0 {
            let (_, said) = transcript(&mut as_user(1000, &open, "mkdir d && : > d/g; cat f"));
            assert_eq!(said, "one\ntwo\n");
        }
        let (well, said) = transcript(&mut as_user(user, &open, text));
        assert!(well && said.ends_with("f\n"), "{user}: {said}");
    }
    // Root of the machine is that user as well.
    for user in [1000, 0] {
        let (well, said) = transcript(&mut as_user(user, &open, "ls ../secret"));
        assert!(!well && said.contains("Permission denied"), "{user}: {said}");
    }
    let told = world.json(&["stat", "/open/f"]);
    assert_eq!((told["uid"].as_u64(), told["gid"].as_u64()), (Some(3000), Some(3001)));
    mount.end();
}
