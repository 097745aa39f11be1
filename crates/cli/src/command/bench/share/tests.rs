use std::process::{Child, Command};

use super::*;

fn sleeper() -> Child {
    Command::new("sleep").arg("60").spawn().unwrap()
}

#[test]
fn a_group_has_its_share_and_is_gone_with_it() {
    let mut child = sleeper();
    let share = Share::of(&[child.id()], 0.1);
    let checked = share.map(|share| {
        share.impose().unwrap();
        let group = &share.groups[0];
        let file = if group.first_version { "cpu.cfs_quota_us" } else { "cpu.max" };
        let text = fs::read_to_string(group.dir.join(file)).unwrap();
        assert_eq!(text.split_whitespace().next(), Some("1000"), "1 ms");
        let period = if group.first_version { "cpu.cfs_period_us" } else { "cpu.max" };
        let text = fs::read_to_string(group.dir.join(period)).unwrap();
        assert_eq!(text.split_whitespace().last(), Some("10000"), "of 10 ms are 10 %");
        let procs = fs::read_to_string(group.dir.join("cgroup.procs")).unwrap();
        assert_eq!(procs.trim(), child.id().to_string());
        share.lift().unwrap();
        group.dir.clone()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    match checked {
        Ok(dir) => assert!(!dir.exists(), "{dir:?}"),
        // Who may not make groups is told what to do about it.
        Err(error) => assert!(error.to_string().contains("/sys/fs/cgroup"), "{error}"),
    }
}

#[test]
fn one_processor_is_enough_while_it_is_asked_for() {
    let before = sched_getaffinity(None).unwrap();
    let one = OneProcessor::here().unwrap();
    assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
    drop(one);
    assert_eq!(sched_getaffinity(None).unwrap(), before);
}

#[test]
fn where_processors_are_not_limited_by_groups_there_is_no_hierarchy() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(hierarchy(root.path()), None);
    fs::write(root.path().join("cgroup.controllers"), "memory pids\n").unwrap();
    assert_eq!(hierarchy(root.path()), None);
    fs::write(root.path().join("cgroup.controllers"), "cpuset cpu memory\n").unwrap();
    assert_eq!(hierarchy(root.path()), Some((root.path().to_owned(), false)));
    let first = root.path().join("cpu");
    fs::create_dir(&first).unwrap();
    fs::write(first.join("cpu.cfs_quota_us"), "-1\n").unwrap();
    assert_eq!(hierarchy(root.path()), Some((first, true)));
}
