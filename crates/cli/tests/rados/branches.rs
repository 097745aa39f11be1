//! Branches in a pool.

use crate::up;

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn a_branch_in_a_pool_is_worked_on_published_and_merged() {
    let Some(on) = up(&[], |_| {}) else { return };
    let store = on.ceph.url("test");
    // More than one object of the pool has.
    let long: Vec<u8> = (0..1_500_000_u32).flat_map(u32::to_le_bytes).collect();
    on.cluster.run(&["mkdir", "-p", "/proj/dir"]);
    on.cluster.run_with_input(&["cp", "-", "/proj/old"], b"old");
    on.cluster.run_with_input(&["cp", "-", "/proj/both"], b"trunk");
    on.cluster.run(&["branch", "create", "b", "/proj"]);
    let branch = |arguments: &[&str]| {
        let mut all = vec!["branch", "--store", &store];
        all.extend_from_slice(arguments);
        on.cluster.say(&all)
    };
    // The trunk changes, and the directory's old state is kept.
    on.cluster.run_with_input(&["cp", "-", "/proj/since"], b"since");
    on.cluster.mount().checkpoint().unwrap();
    let put = ["branch", "--store", &store, "put", "b", "-", "/proj/long"];
    on.cluster.run_with_input(&put, &long);
    branch(&["mv", "b", "/proj/old", "/proj/dir/moved"]);
    branch(&["create", "c", "--from", "b"]);
    assert_eq!(branch(&["cat", "b", "/proj/dir/moved"]), "old");
    // Several processes, with a server of their own, which needs none of the cluster's.
    let script = r#"
        for one in 1 2 3; do
            (echo "$one" | "$CUDELE" cp - "/proj/dir/$one"; "$CUDELE" mkdir "/proj/d$one") &
            all="$all $!"
        done
        for one in $all; do wait $one; done
        echo job | "$CUDELE" cp - /proj/both
        "$CUDELE" cp /proj/long /proj/copy
    "#;
    let arguments =
        ["run", "--store", &store, "--branch", "b", "--private", "--", "sh", "-ec", script];
    let mut job = on.cluster.command(&arguments);
    let output = job.env("CUDELE", env!("CARGO_BIN_EXE_cudele")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let in_branch = branch(&["find", "b"]);
    assert_eq!(in_branch.lines().count(), 1 + 4 + 4 + 3, "{in_branch}");
    assert_eq!(branch(&["find", "c"]).lines().count(), 5, "who went out from it has it as it was");
    on.cluster.run(&["publish", "--store", &store, "b"]);
    on.cluster.run(&["branch", "merge"]);
    // A crash later the namespace has both.
    on.cluster.kill("mds");
    on.cluster.start();
    let mut expected: Vec<_> = in_branch.lines().chain(["/proj/since"]).collect();
    expected.sort_unstable();
    let mut merged: Vec<_> =
        on.cluster.say(&["find", "/proj"]).lines().map(str::to_owned).collect();
    merged.sort_unstable();
    assert_eq!(merged, expected);
    assert_eq!(on.cluster.run(&["cp", "/proj/both", "-"]), b"job\n");
    for path in ["/proj/long", "/proj/copy"] {
        assert!(on.cluster.run(&["cp", path, "-"]) == long, "{path}");
    }
    for name in ["c", "b"] {
        branch(&["delete", name]);
    }
    branch(&["gc"]);
    assert_eq!(on.store().list("branches/").unwrap(), ["branches/table"]);
}
