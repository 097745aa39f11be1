//! Several clients on few names of one strong directory, while the metadata server is killed again
//! and again: their answers are the history of one namespace.
//!
//! Each client is a session of its own, in a thread of its own. A seed decides the steps of each;
//! the interleaving of the threads is not decided. `CUDELE_TEST_SEED` chooses another seed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use cudele::{Attr, Dir, Errno, Error, Ino, NewFile, RenameFlags};
use linearize::names::{
    Act, CallOutcome, Crash, History, Judgement, Place, PlaceContent, RecordedCall, Seen,
};
use types::rng::Rng;

use crate::cluster::{Cluster, eventually};

const CLIENTS: u64 = 6;
const NAMES: u64 = 4;
const KILLS: usize = 4;
/// Requests between two kills, by all clients together.
const REQUESTS: u64 = 700;
/// Far more than such a history takes.
const STEPS_MAX: u64 = 20_000_000;

/// Much is unsafe at any time, and a small journal is checkpointed now and then.
const SETTINGS: [&str; 4] = ["--set", "commit_interval_ms=50", "--set", "commit_bytes=100000000"];

fn thing(attr: &Attr) -> PlaceContent {
    PlaceContent { ino: attr.ino, dir: attr.is_dir() }
}

/// The claim of an error: no change happened, or unknown.
#[allow(clippy::wildcard_enum_match_arm, reason = "few errors say what holds in a place")]
fn refused(error: &Error) -> CallOutcome {
    match error.errno {
        errno @ (Errno::NotFound
        | Errno::Exists
        | Errno::IsDirectory
        | Errno::NotDirectory
        | Errno::NotEmpty
        | Errno::Invalid) => CallOutcome::Refused(errno),
        _ => CallOutcome::Unknown,
    }
}

/// A client at work.
struct Worker<'a> {
    dirs: [Dir; 2],
    start: &'a Instant,
    choice: Rng,
    calls: Vec<RecordedCall>,
}

impl Worker<'_> {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap()
    }

    fn record(&mut self, act: Act, perform: impl FnOnce(&[Dir; 2]) -> cudele::Result<Seen>) {
        let start = self.now();
        let result = perform(&self.dirs);
        let outcome = result.map_or_else(|error| refused(&error), CallOutcome::Did);
        let end = self.now();
        self.calls.push(RecordedCall::new(act, start).ended(end, outcome));
    }

    fn place(&mut self) -> (usize, String, Place) {
        let dir = usize::from(self.choice.below(3) == 0);
        let name = format!("n{}", self.choice.below(NAMES));
        let place = Place::new(self.dirs[dir].ino(), &name);
        (dir, name, place)
    }

    fn work(&mut self) {
        let (dir, name, at) = self.place();
        match self.choice.below(10) {
            0..=2 => self.record(Act::Look(at), |dirs| {
                dirs[dir].lookup(&name).map(|attr| Seen::PlaceContent(thing(&attr)))
            }),
            3 | 4 => self.record(Act::Make { at, dir: false }, |dirs| {
                let made = dirs[dir].create(&name, &NewFile::default());
                made.map(|attr| Seen::PlaceContent(thing(&attr)))
            }),
            5 => self.record(Act::Make { at, dir: true }, |dirs| {
                let made = dirs[dir].create(&name, &NewFile::directory());
                made.map(|attr| Seen::PlaceContent(thing(&attr)))
            }),
            6 => self.record(Act::Remove { at, dir: false }, |dirs| {
                dirs[dir].unlink(&name).map(|()| Seen::Done)
            }),
            7 => self.record(Act::Remove { at, dir: true }, |dirs| {
                dirs[dir].rmdir(&name).map(|()| Seen::Done)
            }),
            8 => {
                let ino = self.dirs[dir].ino();
                self.record(Act::List(ino), |dirs| {
                    let entries = dirs[dir].list()?;
                    let names = entries.into_iter();
                    Ok(Seen::All(names.map(|entry| (entry.name, thing(&entry.attr))).collect()))
                });
            }
            _ => {
                let (to_dir, to_name, to) = self.place();
                let flags = RenameFlags { no_replace: false, exchange: self.choice.below(3) == 0 };
                let RenameFlags { exchange, no_replace } = flags;
                let act = Act::Move { from: at, to, exchange, no_replace };
                self.record(act, |dirs| {
                    let moved = dirs[dir].rename(&name, &dirs[to_dir], &to_name, flags);
                    moved.map(|()| Seen::Done)
                });
            }
        }
    }
}

fn seed() -> u64 {
    let given = std::env::var("CUDELE_TEST_SEED").ok();
    given.map_or(0x5eed, |text| text.parse().unwrap())
}

#[test]
fn several_clients_see_one_namespace_while_the_server_is_killed() {
    let seed = seed();
    println!("CUDELE_TEST_SEED={seed}");
    let cluster = Cluster::up_with(&SETTINGS);
    cluster.run(&["mkdir", "-p", "/a", "/b"]);
    let (start, done, count) = (Instant::now(), AtomicBool::new(false), AtomicU64::new(0));
    let now = || u64::try_from(start.elapsed().as_nanos()).unwrap();
    let mut history = History::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=CLIENTS)
            .map(|client| {
                let fs = cluster.mount();
                let dirs = [fs.open_dir("/a").unwrap(), fs.open_dir("/b").unwrap()];
                let choice = Rng::new(seed.wrapping_mul(2 * client + 1));
                let mut worker = Worker { dirs, start: &start, choice, calls: Vec::new() };
                let (done, count) = (&done, &count);
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        worker.work();
                        count.fetch_add(1, Ordering::Relaxed);
                        // Kills would be rare among the requests of clients that never rest.
                        std::thread::sleep(std::time::Duration::from_micros(500));
                    }
                    worker.calls
                })
            })
            .collect();
        for _ in 0..KILLS {
            let before = count.load(Ordering::Relaxed);
            eventually("much was done", || count.load(Ordering::Relaxed) >= before + REQUESTS);
            let start = now();
            cluster.kill("mds");
            history.crashes.push(Crash { start, end: now(), hint: start });
            cluster.start();
        }
        let before = count.load(Ordering::Relaxed);
        eventually("all work again", || count.load(Ordering::Relaxed) >= before + REQUESTS);
        done.store(true, Ordering::Relaxed);
        history.calls = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    });
    println!("{} requests, {:?}", history.calls.len(), start.elapsed());
    look_at_all(&cluster, &mut history, now);
    let unknown = history.calls.iter().filter(|call| {
        call.end.as_ref().is_some_and(|(_, outcome)| *outcome == CallOutcome::Unknown)
    });
    assert!(unknown.count() < history.calls.len() / 10, "most answers say something");
    assert_eq!(history.judge(STEPS_MAX), Judgement::Linearizable, "CUDELE_TEST_SEED={seed}");
    must_notice(history);
}

/// In the end a client that saw nothing of all this looks at everything.
fn look_at_all(cluster: &Cluster, history: &mut History, now: impl Fn() -> u64) {
    let fs = cluster.mount();
    for path in ["/a", "/b"] {
        let dir = fs.open_dir(path).unwrap();
        let start = now();
        let names = dir.list().unwrap().into_iter();
        let seen = Seen::All(names.map(|entry| (entry.name, thing(&entry.attr))).collect());
        history.calls.push(
            RecordedCall::new(Act::List(dir.ino()), start).ended(now(), CallOutcome::Did(seen)),
        );
    }
}

/// The same history with one answer that is not true.
fn must_notice(mut history: History) {
    let mut looks = history.calls.iter_mut().filter_map(|call| match &mut call.end {
        Some((_, CallOutcome::Did(Seen::PlaceContent(thing))))
            if matches!(call.act, Act::Look(_)) =>
        {
            Some(thing)
        }
        _ => None,
    });
    // A number that no client can have seen: that of the root.
    looks.nth(20).unwrap().ino = Ino::ROOT;
    let judgement = history.judge(STEPS_MAX);
    assert_ne!(judgement, Judgement::Linearizable);
}
