//! Quotas as programs in a mount meet them.

use std::fs;

use serde_json::json;

use crate::mounts::{Mount, cluster, job, script, transcript, until};

#[test]
fn programs_in_a_mount_see_and_keep_to_their_quota() {
    let Some(world) = cluster() else { return };
    world.run(&["mkdir", "-p", "/users/ada"]).done();
    let mount = Mount::new(&world);
    let home = mount.path("users/ada");
    // An administrator sets the limits in a mount as well.
    let limits = b"inodes=10 bytes=3145728";
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&home, "cudele.dir.quota", limits, flags).unwrap();
    until("the use is counted", || {
        let said = world.run(&["quota", "get", "/users/ada"]).done().out;
        !said.contains("still counting")
    });
    let text = "cd \"$1\"
        df --output=itotal,size . | tail -1 | tr -s ' '
        for number in 1 2 3 4 5 6 7 8 9 10; do touch f$number; done
        ! touch f11
        ! head -c 4000000 /dev/zero > f1
        head -c 1048576 /dev/zero > f2
        df --output=iavail,avail . | tail -1 | tr -s ' '
        rm f3
        mkdir tree && rm f4 f5 && touch tree/a tree/b
        mv tree \"$2\"
        ls \"$2/tree\" && test ! -e tree
        df --output=iavail . | tail -1 | tr -s ' '";
    let (well, said) = transcript(&mut script(text, &[home.as_os_str(), mount.at().as_os_str()]));
    assert!(well, "{said}");
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    let errors: Vec<_> = lines.iter().filter(|line| line.contains("quota exceeded")).collect();
    assert_eq!(errors.len(), 2, "{said}");
    let values: Vec<_> =
        lines.iter().filter(|line| !line.contains("quota exceeded")).copied().collect();
    // A tree is copied out of its quota, and its room given back.
    assert_eq!(values, ["10 3072", "0 2048", "a", "b", "3"], "{said}");
    mount.end();
}

#[test]
fn a_merge_over_a_limit_says_by_how_much() {
    let Some(world) = cluster() else { return };
    world.run(&["mkdir", "/users"]).done();
    world.run(&["quota", "set", "/users", "--inodes", "200000"]).done();
    // The job is kept because it fails, and the limits become lower.
    let text =
        "cd \"$1\"; for n in 1 2 3 4 5 6 7 8 9; do head -c 1000 /dev/zero > f$n; done; exit 1";
    let (well, said) = transcript(&mut job(&world, "/users/job", text, &["{}".as_ref()]));
    assert!(!well && said.contains("kept on this machine"), "{said}");
    world.run(&["quota", "set", "/users", "--inodes", "6", "--bytes", "5000"]).done();
    let told = world.json(&["merge", "/users/job"]);
    let exceeded = &told["exceeded_quotas"][0];
    assert_eq!(exceeded["inodes"], json!({ "used": 10, "limit": 6 }), "{told:#}");
    assert_eq!(exceeded["bytes"], json!({ "used": 9000, "limit": 5000 }));
    assert_eq!(world.run(&["ls", "/users/job"]).done().out.lines().count(), 9);
    let said = world.run(&["quota", "get", "/users"]).done().out;
    assert!(said.contains("4 inodes over the limit"), "{said}");
    world.run(&["mkdir", "/users/more"]).refused(&["EDQUOT"]);
    world.run(&["rm", "-r", "/users/job"]).done();
    until("the room is given back", || world.run(&["mkdir", "-p", "/users/more"]).ok);
    // A job that ends well says the same.
    let policy = world.path("policy.yaml");
    let keys = "consistency: append_client_journal+volatile_apply\nallocated_inodes: 5\n";
    fs::write(&policy, keys).unwrap();
    let text = "cd \"$1\"; head -c 6000 /dev/zero > large";
    let mut command = world.command(&["run", "--policy"]);
    command.arg(&policy).args(["/users/next", "--", "sh", "-euc", text, "sh", "{}"]);
    world.run(&["quota", "set", "/users", "--inodes", "100"]).done();
    let (well, said) = transcript(&mut command);
    assert!(well && said.contains("1000 B over the limit"), "{said}");
}
