//! The meaning of composed mechanisms.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use cudele::{Mechanism, Progress, Stage};
use serde_json::Value;

use crate::fixture::World;
use crate::tools::{
    FullStore, TREE, append, decouple, ingest, journal_objects, mount, policy_file, seen, tree,
};

/// Names of the steps that a command says it took.
fn steps(value: &Value) -> Vec<&str> {
    let steps = value["steps"].as_array().unwrap().iter();
    steps.map(|step| step["name"].as_str().unwrap()).collect()
}

#[test]
fn plus_means_one_after_the_other() {
    let world = World::new();
    let fs = mount(&world);
    let policy = "consistency: append_client_journal+nonvolatile_apply+volatile_apply";
    let mut job = decouple(&fs, "/job", policy);
    append(&mut job, &["a"]);
    let (told, seen) = (Arc::new(Mutex::new(Vec::new())), [Stage::Begun, Stage::Ended]);
    let telling = told.clone();
    fs.observe(Arc::new(move |progress: Progress| {
        if seen.contains(&progress.stage) && progress.mechanism.applies() {
            telling.lock().unwrap().push((progress.mechanism, progress.stage));
        }
    }));
    job.complete().unwrap();
    let (first, second) = (Mechanism::NonvolatileApply, Mechanism::VolatileApply);
    let expected = [first, second].map(|one| [(one, Stage::Begun), (one, Stage::Ended)]);
    assert_eq!(*told.lock().unwrap(), expected.concat());
}

#[test]
fn bars_mean_at_the_same_time() {
    let world = World::new();
    let fs = mount(&world);
    let policy = "consistency: append_client_journal+nonvolatile_apply||volatile_apply";
    let mut job = decouple(&fs, "/job", policy);
    append(&mut job, &["a"]);
    let begun = Arc::new((Mutex::new(0), Condvar::new()));
    let both = begun.clone();
    // Neither continues before the other has begun.
    fs.observe(Arc::new(move |progress: Progress| {
        if progress.stage == Stage::Begun && progress.mechanism.applies() {
            let (count, changed) = &*both;
            let mut count = count.lock().unwrap();
            *count += 1;
            changed.notify_all();
            let patience = Duration::from_secs(20);
            drop(changed.wait_timeout_while(count, patience, |count| *count < 2).unwrap());
        }
    }));
    let done = job.complete().unwrap();
    assert_eq!(*begun.0.lock().unwrap(), 2);
    assert_eq!(done.steps.len(), 2);
    assert_eq!(seen(&world, "/job"), ["a"]);
}

#[test]
fn changes_are_durable_before_they_are_visible() {
    let world = World::new();
    ingest(&world, "invisible-local", "/job");
    let text = "consistency: append_client_journal+volatile_apply\n\
                durability: local_persist||global_persist\n";
    let policy = policy_file(&world, text);
    let checked = world.json(&["policy", "check", &policy]);
    let effective = "append_client_journal+local_persist||global_persist+volatile_apply";
    assert_eq!(checked["effective"], effective);
    world.run(&["policy", "set", "/job", &policy]).done();
    let merged = world.json(&["merge", "/job"]);
    assert_eq!(steps(&merged).last(), Some(&"volatile_apply"), "{merged}");
    assert_eq!(seen(&world, "/job"), TREE);
}

#[test]
fn pending_updates_have_no_promise() {
    let world = World::new();
    let fs = mount(&world);
    let mut job = decouple(&fs, "/job", "weak-none");
    append(&mut job, &["a", "b"]);
    assert_eq!(job.pending_events(), 2);
    assert_eq!(seen(&world, "/job"), [""; 0]);
    job.complete().unwrap();
    assert_eq!(job.pending_events(), 0);
    append(&mut job, &["c"]);
    assert_eq!((job.pending_events(), seen(&world, "/job")), (1, vec!["a".into(), "b".into()]));
}

#[test]
fn a_member_that_fails_fails_the_composition() {
    let world = World::new();
    let text = "consistency: append_client_journal+volatile_apply\n\
                durability: local_persist+global_persist\n";
    let policy = policy_file(&world, text);
    let full = FullStore::new(&world);
    let tree = tree(&world);
    let ingest = ["ingest", "--policy", &policy, tree.to_str().unwrap(), "/job"];
    world.run(&ingest).refused(&["global_persist"]);
    // The mechanisms after the failed member did not run.
    assert_eq!(seen(&world, "/job"), [""; 0]);
    drop(full);
    // The effects of those before it are kept.
    world.run(&["merge", "/job"]).done();
    assert_eq!(seen(&world, "/job"), TREE);
}

#[test]
fn completing_again_is_harmless() {
    let world = World::new();
    ingest(&world, "invisible-global", "/job");
    let objects = journal_objects(&world);
    for expected in [3, 0, 0] {
        assert_eq!(world.json(&["sync", "/job"])["created"], expected);
        assert_eq!(seen(&world, "/job"), TREE);
    }
    assert!(journal_objects(&world).len() <= objects.len());
    let before = world.json(&["stat", "/job/a"])["ino"].clone();
    world.run(&["merge", "/job"]).done();
    world.crash();
    assert_eq!(seen(&world, "/job"), TREE);
    assert_eq!(world.json(&["stat", "/job/a"])["ino"], before);
}
