//! A job under each policy ends as the policy promises.

use std::process::Command;

use serde_json::Value;

use crate::fixture::World;
use crate::mounts::{Mount, cluster, script, transcript};

/// Names, links, content in the inode and in the object store.
const WORK: &str = "mkdir -p \"$1/d/e\"; echo small > \"$1/d/small\"; \
                    dd if=/dev/zero bs=64k count=80 2>/dev/null | tr '\\0' x > \"$1/d/large\"; \
                    ln \"$1/d/small\" \"$1/d/e/hard\"; ln -s ../small \"$1/d/e/soft\"; \
                    mv \"$1/d/large\" \"$1/d/e/\"; touch \"$1/gone\"; rm \"$1/gone\"";

fn work(world: &World, policy: &str) -> Value {
    let mut command = world.command(&["--json", "run", "--policy", policy, "/job", "--"]);
    command.args(["sh", "-euc", WORK, "sh", "{}"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// All clients see the work, through a new mount.
fn assert_there(world: &World) {
    let mount = Mount::new(world);
    let job = mount.path("job");
    let text = "test \"$(cat \"$1/d/e/soft\")\" = small && \
                test \"$(stat -c %h \"$1/d/e/hard\")\" = 2 && \
                test \"$(tr -d x < \"$1/d/e/large\" | wc -c)\" = 0 && \
                test \"$(stat -c %s \"$1/d/e/large\")\" = 5242880 && ! test -e \"$1/gone\"";
    let (well, said) = transcript(&mut script(text, &[job.as_os_str()]));
    assert!(well, "{said}");
    mount.end();
}

fn assert_not_there(world: &World) {
    world.run(&["stat", "/job/d"]).refused(&[]);
}

#[test]
fn policies_that_apply_show_the_work() {
    let Some(world) = cluster() else { return };
    for policy in ["batchfs", "hdfs", "weak-none", "weak-local", "weak-global"] {
        let done = work(&world, policy);
        assert_eq!(done["ending"], "merge", "{policy}");
        assert_there(&world);
        world.run(&["rm", "-r", "/job"]).done();
    }
    // Merged work is as durable as the namespace.
    work(&world, "batchfs");
    world.crash();
    assert_there(&world);
}

#[test]
fn an_invisible_job_appears_at_its_merge() {
    let Some(world) = cluster() else { return };
    for policy in ["deltafs", "invisible-local", "invisible-global"] {
        assert_eq!(work(&world, policy)["ending"], "complete", "{policy}");
        assert_not_there(&world);
        world.crash();
        world.run(&["merge", "/job"]).done();
        assert_there(&world);
        world.run(&["rm", "-r", "/job"]).done();
    }
}

#[test]
fn a_job_without_durability_ends_without_a_trace() {
    let Some(world) = cluster() else { return };
    for policy in ["ramdisk", "invisible-none"] {
        assert_eq!(work(&world, policy)["ending"], "discard", "{policy}");
        assert_not_there(&world);
        world.run(&["merge", "/job"]).refused(&[]);
    }
    world.await_released();
    assert_eq!(stored(&world), 0, "content of what is gone is still in the store");
}

#[test]
fn a_discarded_job_loses_only_its_own_content() {
    let Some(world) = cluster() else { return };
    work(&world, "batchfs");
    let merged = stored(&world);
    assert!(merged > 0);
    for crash in [false, true] {
        let fails = format!("{WORK}; exit 1").replace("$1/d", "$1/other");
        for failed in ["discard", "keep"] {
            let mut command = world.command(&["run", "--on-failure", failed, "/job", "--"]);
            command.args(["sh", "-euc", &fails, "sh", "{}"]);
            assert_eq!(command.status().unwrap().code(), Some(1));
        }
        assert!(stored(&world) > merged);
        world.run(&["discard", "/job"]).done();
        assert_eq!(stored(&world), merged);
        assert_there(&world);
        if !crash {
            world.crash();
        }
    }
}

/// Large objects in the store: content.
fn stored(world: &World) -> usize {
    let left =
        Command::new("find").arg(world.path("c/store/objects")).args(["-size", "+900k"]).output();
    left.unwrap().stdout.split(|byte| *byte == b'\n').count() - 1
}

#[test]
fn policies_that_are_not_for_jobs_are_refused() {
    let Some(world) = cluster() else { return };
    for policy in ["posix", "strong-global", "no-such-policy"] {
        let said = world.run(&["run", "--policy", policy, "/job", "--", "true"]);
        said.refused(&[]);
        assert_eq!(world.json(&["status"])["decoupled"], serde_json::json!([]), "{policy}");
    }
}
