//! A subtree's files in a pool of its own (E-03).

use std::fs;

use crate::cluster::eventually;
use crate::{OnCeph, up};

/// Everything in a pool, in all its namespaces.
fn in_pool(on: &OnCeph, pool: &str) -> Vec<String> {
    let mut rados = std::process::Command::new("rados");
    rados.arg("-c").arg(on.ceph.conf()).args(["-p", pool, "ls", "--all"]);
    let output = rados.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut names: Vec<String> =
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    names.sort();
    names
}

/// A policy file with these lines.
fn policy(on: &OnCeph, name: &str, lines: &str) -> String {
    let path = on.cluster.home.join(name);
    fs::write(&path, lines).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn a_subtree_pinned_to_a_pool_writes_no_object_in_another() {
    let pools = ["test", "fast", "bulk"].map(str::to_owned).to_vec();
    let Some(on) = up(&[], |settings| settings.pools = pools) else { return };
    let tree = on.cluster.home.join("tree");
    fs::create_dir(&tree).unwrap();
    let content: Vec<u8> = (0..1_500_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(tree.join("large"), &content).unwrap();
    fs::write(tree.join("small"), b"in its inode").unwrap();
    let tree = tree.to_str().unwrap();

    let strong = policy(&on, "strong", "data_pool: fast\nstripe_bytes: 1048576\n");
    let job = "consistency: append_client_journal+volatile_apply\ndurability: global_persist\n";
    let job = policy(&on, "job", &format!("{job}data_pool: bulk\n"));
    on.cluster.run(&["mkdir", "/a", "/b"]);
    on.cluster.run(&["policy", "set", "/a", &strong]);
    let said = on.cluster.say(&["policy", "get", "/a"]);
    assert!(said.contains("fast#1"), "{said}");
    // By request, where the policy is inherited.
    on.cluster.run(&["mkdir", "/a/below"]);
    on.cluster.run_with_input(&["cp", "-", "/a/below/large"], &content);
    on.cluster.run_with_input(&["cp", "-", "/a/below/small"], b"in its inode");
    let fast = in_pool(&on, "fast");
    // Six stripes, and one object of checksums.
    assert_eq!(fast.len(), 7, "{fast:?}");
    assert!(fast.iter().all(|name| name.contains("cudele.data\tdata/pool01/")), "{fast:?}");
    assert_eq!(in_pool(&on, "bulk"), Vec::<String>::new());
    // As a job with its journal in the store's own pools.
    on.cluster.run(&["ingest", "--policy", &job, tree, "/b/job"]);
    let bulk = in_pool(&on, "bulk");
    assert_eq!(bulk.len(), 3, "{bulk:?}");
    assert!(bulk.iter().all(|name| name.contains("cudele.data\tdata/pool02/")), "{bulk:?}");
    assert_eq!(in_pool(&on, "fast"), fast);
    let others = in_pool(&on, "test");
    assert!(!others.iter().any(|name| name.contains("\tdata/")), "{others:?}");

    let swept = on.cluster.json(&["sweep"]);
    assert_eq!((&swept["removed"], &swept["young"]), (&0.into(), &0.into()), "{swept}");

    // Where a file is, is its own: a rename moves no data, nor does a crash.
    on.cluster.run(&["mv", "/a/below/large", "/b/large"]);
    on.cluster.kill("mds");
    on.cluster.start();
    for path in ["/b/large", "/b/job/large"] {
        assert!(on.cluster.run(&["cp", path, "-"]) == content, "{path}");
    }
    assert_eq!((in_pool(&on, "fast"), in_pool(&on, "bulk")), (fast, bulk));
    on.cluster.run(&["rm", "-r", "/a", "/b"]);
    on.cluster.mount().checkpoint().unwrap();
    eventually("everything is gone", || {
        in_pool(&on, "fast").is_empty() && in_pool(&on, "bulk").is_empty()
    });
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn a_pool_that_is_not_there_is_refused_when_a_policy_is_set() {
    let Some(on) = up(&[], |_| {}) else { return };
    let none = policy(&on, "none", "data_pool: none-such\n");
    on.cluster.run(&["mkdir", "/a"]);
    let said = on.cluster.fails(1, &["policy", "set", "/a", &none]);
    assert!(said.contains("the cluster has no pool named none-such (ENOENT)"), "{said}");
    assert!(said.contains("ceph osd pool create none-such"), "{said}");
    let said = on.cluster.say(&["policy", "get", "/a"]);
    assert!(!said.contains("none-such"), "{said}");
}
