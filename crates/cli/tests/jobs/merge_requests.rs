//! `merge: on_demand` (BF-04): the work stays invisible until a client asks, and that client sees
//! all of it.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use cudele::{
    AttrChange, Cluster, Errno, Fs, Ino, Locator, NewFile, Policy, ServerNotice, Subtree,
};

use crate::fixture::World;

const FILES: u64 = 1_000;
const PATIENCE: Duration = Duration::from_secs(60);

fn connect(world: &World) -> Arc<Cluster> {
    Cluster::connect(&Locator::monitor_of(&world.path("c"))).unwrap()
}

/// A job that holds some files, and its client.
fn job(cluster: &Arc<Cluster>) -> (Arc<Fs>, Subtree) {
    let fs = cluster.mount().unwrap();
    let subtree = job_of(&fs);
    (fs, subtree)
}

fn job_of(fs: &Arc<Fs>) -> Subtree {
    fs.make_dir("/job", 0o755).unwrap();
    let text = "consistency: append_client_journal+volatile_apply\nmerge: on_demand";
    let mut subtree = fs.decouple("/job", &Policy::parse(text).unwrap().policy).unwrap();
    for number in 0..FILES {
        append(&mut subtree, number);
    }
    subtree
}

/// The merge requests to the client.
fn listen(fs: &Fs) -> mpsc::Receiver<Ino> {
    let (tell, told) = mpsc::channel();
    fs.listen(move |notice| {
        if let ServerNotice::Recall { ino } = notice {
            let _ = tell.send(ino);
        }
    })
    .unwrap();
    told
}

fn append(subtree: &mut Subtree, number: u64) {
    let root = subtree.root();
    subtree.create(root, format!("f{number}").as_bytes(), &NewFile::default()).unwrap();
}

#[test]
fn the_first_lookup_waits_until_the_job_has_merged() {
    let world = World::new();
    let cluster = connect(&world);
    let (_fs, mut subtree) = job(&cluster);
    assert_eq!(subtree.pending_events(), FILES, "nobody has asked");
    let (seen, done) = mpsc::channel();
    let looker = std::thread::spawn(move || {
        let fs = cluster.mount().unwrap();
        seen.send(fs.stat("/job/f999").map(|_| ())).unwrap();
        // A cached absence would hide later merges.
        assert_eq!(fs.stat("/job/later").unwrap_err().errno, Errno::NotFound);
        fs.open_dir("/job").unwrap().list().unwrap().len() as u64
    });
    // The job continues, and merges in between.
    let (mut files, begin) = (FILES, Instant::now());
    while !looker.is_finished() && begin.elapsed() < PATIENCE {
        append(&mut subtree, files);
        files += 1;
        std::thread::sleep(Duration::from_micros(100));
    }
    assert_eq!(done.recv_timeout(PATIENCE).unwrap(), Ok(()));
    let listed = looker.join().unwrap();
    assert!((FILES..=files).contains(&listed), "{listed} of {files}");
    assert!(subtree.pending_events() < files, "it is merged");
    let report = subtree.merge().unwrap();
    assert_eq!(report.merge.unwrap().replaced, 0);
    assert_eq!(world.json(&["stat", "/job"])["size"], files, "each once");
}

#[test]
fn a_paused_job_gets_the_merge_request_and_merges() {
    let world = World::new();
    let cluster = connect(&world);
    let fs = cluster.mount().unwrap();
    let told = listen(&fs);
    fs.make_dir("/job", 0o755).unwrap();
    let text = "consistency: append_client_journal+volatile_apply\nmerge: on demand";
    let mut subtree = fs.decouple("/job", &Policy::parse(text).unwrap().policy).unwrap();
    append(&mut subtree, 0);
    let looker = std::thread::spawn({
        let cluster = cluster.clone();
        move || cluster.mount().unwrap().stat("/job/f0").map(|attr| attr.ino)
    });
    assert_eq!(told.recv_timeout(PATIENCE), Ok(subtree.root()));
    assert!(!looker.is_finished(), "it waits");
    assert_eq!(subtree.pending_events(), 1);
    assert_eq!(subtree.answer_merge_request(), Ok(true));
    assert_eq!(subtree.pending_events(), 0);
    assert!(looker.join().unwrap().is_ok());
    assert_eq!(subtree.answer_merge_request(), Ok(false), "nobody waits any more");
    // Without new work there is nothing to merge, and no client waits long.
    let fs = cluster.mount().unwrap();
    let looker = std::thread::spawn(move || fs.stat("/job/f1").map(|attr| attr.ino));
    while !looker.is_finished() {
        let _ = subtree.answer_merge_request().unwrap();
    }
    assert_eq!(looker.join().unwrap().unwrap_err().errno, Errno::NotFound);
}

#[test]
fn the_rank_that_has_the_subtree_sends_the_merge_request() {
    let world = World::with(&["--mds", "3"]);
    let cluster = connect(&world);
    let fs = cluster.mount().unwrap();
    let told = listen(&fs);
    fs.make_dir("/jobs", 0o755).unwrap();
    fs.make_dir("/jobs/job", 0o755).unwrap();
    let text = "consistency: append_client_journal+volatile_apply\nmerge: on demand";
    let mut subtree = fs.decouple("/jobs/job", &Policy::parse(text).unwrap().policy).unwrap();
    // On each once: one that was just told of a merge asks for no other one for a moment.
    for round in 1..=3 {
        append(&mut subtree, round);
        world.run(&["mds", "pin", "/jobs", &(round % 3).to_string()]).done();
        let looker = std::thread::spawn({
            let cluster = cluster.clone();
            move || cluster.mount().unwrap().stat(format!("/jobs/job/f{round}"))
        });
        assert_eq!(told.recv_timeout(PATIENCE), Ok(subtree.root()), "round {round}");
        assert_eq!(subtree.answer_merge_request(), Ok(true));
        assert!(looker.join().unwrap().is_ok(), "round {round}");
    }
}

#[test]
fn a_revoked_root_does_not_answer_a_merge_request() {
    let world = World::new();
    let cluster = connect(&world);
    let fs = cluster.mount().unwrap();
    let (tell, told) = mpsc::channel();
    fs.listen(move |notice| {
        let _ = tell.send(notice);
    })
    .unwrap();
    let mut subtree = job_of(&fs);
    // Its client has the root cached.
    assert_eq!(fs.open_dir("/job").unwrap().list().unwrap().len(), 0);
    let others = cluster.mount().unwrap();
    let looker = std::thread::spawn(move || cluster.mount().unwrap().stat("/job/f0").map(|_| ()));
    let recall = ServerNotice::Recall { ino: subtree.root() };
    assert_eq!(told.recv_timeout(PATIENCE), Ok(recall));
    // That is taken from it before this is answered.
    let change = AttrChange { mode: Some(0o700), ..AttrChange::default() };
    others.set_attr(subtree.root(), &change).unwrap();
    assert_eq!(subtree.answer_merge_request(), Ok(true));
    assert_eq!(looker.join().unwrap(), Ok(()));
}

#[test]
fn no_lookup_waits_for_a_job_that_has_ended() {
    let world = World::new();
    let cluster = connect(&world);
    let (fs, subtree) = job(&cluster);
    drop((subtree, fs));
    let looker = cluster.mount().unwrap();
    assert_eq!(looker.stat("/job/f0").unwrap_err().errno, Errno::NotFound);
    assert!(looker.stat("/job").is_ok());
}
