use std::process::{Child, Command};
use std::time::Instant;

use super::*;

/// The longest time that a machine is too busy to give processes their turns.
const PATIENCE: Duration = Duration::from_secs(60);

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
        let quota: u128 = text.split_whitespace().next().unwrap().parse().unwrap();
        assert!(quota >= 1000, "a millisecond at least");
        let period = if group.first_version { "cpu.cfs_period_us" } else { "cpu.max" };
        let text = fs::read_to_string(group.dir.join(period)).unwrap();
        let period: u128 = text.split_whitespace().last().unwrap().parse().unwrap();
        assert_eq!(period, 10 * quota, "10 %");
        assert_eq!(period % turns::Tick::of_this_machine().every.as_micros(), 0, "whole ticks");
        let procs = fs::read_to_string(group.dir.join("cgroup.procs")).unwrap();
        assert_eq!(procs.trim(), child.id().to_string());
        share.lift().unwrap();
        group.dir.clone()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    match checked {
        Ok(dir) => assert!(!dir.exists(), "{dir:?}"),
        // A user without the right to make groups gets a remedy.
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

#[test]
fn groups_use_their_shares_one_after_the_other() {
    let mut children: Vec<Child> = (0..4).map(|_| sleeper()).collect();
    let pids: Vec<u32> = children.iter().map(Child::id).collect();
    let tick = turns::Tick::of_this_machine().every;
    let are_near = |share: &Share| {
        let phases = turns::phases(&share.groups).unwrap();
        let period = share.groups[0].period;
        let turn = tick * u32::try_from(period.as_micros() / tick.as_micros() / 4).unwrap();
        let behind = |pair: &[Duration]| turns::remainder(pair[1] + period - pair[0], period);
        phases.windows(2).all(|pair| behind(pair).abs_diff(turn) < tick / 4)
    };
    // A busy machine may look too late, but not always.
    let (mut near, start) = (None, Instant::now());
    while start.elapsed() < PATIENCE {
        let Ok(share) = Share::of(&pids, 0.02) else { break };
        near = Some(are_near(&share));
        if near == Some(true) {
            break;
        }
    }
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // A user without the right to make groups gets an error (above).
    assert_ne!(near, Some(false));
}

#[test]
fn periods_are_whole_ticks_and_have_a_turn_for_everybody() {
    let tick = turns::Tick { every: Duration::from_millis(4), at: Duration::ZERO };
    let period = |groups, least| tick.period(groups, Duration::from_millis(least)).as_millis();
    assert_eq!((period(1, 20), period(8, 20)), (32, 32), "the same, for comparison");
    assert_eq!((period(10, 20), period(2, 50)), (40, 52));
}
