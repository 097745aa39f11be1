//! The client of a case, in a process of its own: this test program, started again with a job in
//! its environment. It says on standard output where it is, and where it was told to stop it waits
//! for a line on standard input. That is how it is killed at exact places, without a clock.

use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cudele::{Cluster, Errno, Fs, NewFile, Path, Recovered, Result, StateDir, Subtree};
use policy::{Cell, Policy};
use serde::{Deserialize, Serialize};

use crate::tree::{self, Known, Tree};

/// The job, as JSON; its presence makes this process a client.
pub(crate) const JOB: &str = "CUDELE_MATRIX_JOB";

/// The task of a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) mon: String,
    /// The subtree.
    pub(crate) path: String,
    pub(crate) task: Task,
    /// The places at which it waits.
    pub(crate) stops: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Work under the policy of a cell: make everything, complete the policy, complete it again,
    /// and in a decoupled subtree merge. So many acts are appended before each of the first two.
    Work { cell: String, parts: [usize; 2] },
    /// Under strong consistency with local durability: create `f`, then remove this name or, if it
    /// is another one, create it.
    Hold { name: String },
    /// Work under the policy of a cell, complete so many acts of it, and change to another one.
    Change { from: String, to: String, completed: usize },
    /// In a decoupled subtree, made or taken up: create a file, and publish it.
    Append { cell: String, name: String },
    /// Set the policy of a cell, or decouple under it.
    Set { cell: String },
    /// Say which policy is in force, and which client has the subtree.
    Policy,
    /// Look at the shared view.
    Look,
    /// Take over the leftovers of an earlier process on this disk, and merge them.
    Recover { end: bool },
    /// The same on a machine that has only the object store.
    TakeOver { end: bool },
}

/// Not a test of its own: a client process runs it.
#[test]
fn the_client() {
    let Ok(job) = std::env::var(JOB) else { return };
    println!(); // The test runner may have begun a line.
    let job: Job = serde_json::from_str(&job).unwrap();
    let line = match perform(job) {
        Ok(tree) => serde_json::to_string(&tree).unwrap(),
        Err(error) => format!("\"{error}\""),
    };
    say(&format!("={line}"));
}

fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").unwrap();
    output.flush().unwrap();
}

/// The places where it waits, each once.
#[derive(Clone, Debug)]
struct Stops(Arc<Mutex<Vec<String>>>);

impl Stops {
    /// Waits here if it was told to.
    fn at(&self, place: &str) {
        {
            let mut stops = self.0.lock().unwrap();
            let Some(at) = stops.iter().position(|stop| stop == place) else { return };
            stops.remove(at);
        }
        say(&format!("@{place}"));
        // If the parent is gone this process has nothing left to do.
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line).unwrap_or(0) == 0 {
            std::process::exit(1);
        }
    }

    /// Reports its place if the test wants a stop there, and continues.
    fn pass(&self, place: &str) {
        let mut stops = self.0.lock().unwrap();
        if let Some(at) = stops.iter().position(|stop| stop == place) {
            stops.remove(at);
            say(&format!("@{place}"));
        }
    }

    fn contains(&self, wanted: impl Fn(&str) -> bool) -> bool {
        self.0.lock().unwrap().iter().any(|stop| wanted(stop))
    }
}

fn perform(job: Job) -> Result<Tree> {
    let cluster = Cluster::connect(&job.mon.parse()?)?;
    let stops = Stops(Arc::new(Mutex::new(job.stops)));
    match job.task {
        Task::Work { cell, parts } => {
            let cell = Cell::from_name(&cell).expect("the parent names a cell");
            let fs = cluster.mount()?;
            let policy = Policy::of_cell(cell);
            if policy.is_decoupled() {
                decoupled(&fs, &job.path, (&policy, parts), &stops)?;
                // The next process of this user, for which nothing may be left to do.
                cluster.mount()?;
            } else {
                strong(&fs, &job.path, &policy, &stops)?;
            }
            Ok(Tree::new())
        }
        Task::Hold { name } => {
            let fs = cluster.mount()?;
            fs.make_dir(&job.path, 0o755)?;
            let policy = Policy::of_cell(Cell::from_name("strong-local").expect("a cell"));
            cluster.set_policy(job.path.as_bytes(), Some(&policy.to_yaml()))?;
            fs.sync()?;
            let dir = fs.open_dir(&job.path)?;
            dir.create("f", &NewFile::default())?;
            stops.at("created");
            if name == "f" {
                dir.unlink(name)?;
            } else {
                dir.create(name, &NewFile::default())?;
            }
            Ok(Tree::new())
        }
        Task::Change { from, to, completed } => {
            let [from, to] = [from, to].map(|name| Cell::from_name(&name).expect("a cell"));
            let policies = [from, to].map(Policy::of_cell);
            change(&cluster, &job.path, &policies, completed, &stops)?;
            Ok(Tree::new())
        }
        Task::Set { cell } => {
            let fs = cluster.mount()?;
            let policy = Policy::of_cell(Cell::from_name(&cell).expect("a cell"));
            stops.at("mounted");
            if policy.is_decoupled() {
                persevere(|| fs.decouple(&job.path, &policy))?;
            } else {
                persevere(|| cluster.set_policy(job.path.as_bytes(), Some(&policy.to_yaml())))?;
            }
            Ok(Tree::new())
        }
        Task::Append { cell, name } => append(&cluster, &job.path, &cell, &name),
        Task::Policy => {
            let (policy, in_force) = cluster.mount()?.policy(&job.path)?;
            let cell = policy.cell().map(|cell| cell.to_string()).unwrap_or_default();
            let owner = in_force.owner.0.to_string();
            Ok(Tree::from([("cell".into(), cell), ("owner".into(), owner)]))
        }
        Task::Look => tree::look(&cluster.mount()?, &job.path),
        Task::Recover { end } => {
            let fs = cluster.mount()?;
            let path = Path::parse(&job.path).expect("the parent names a path");
            if let Some(owner) = StateDir::owner_at(fs.cluster_id(), &path)? {
                let subtree = cluster.mount_as(owner.client())?.attach(&job.path)?;
                merge(subtree, end)?;
            }
            Ok(Tree::new())
        }
        Task::TakeOver { end } => {
            take_over(&cluster, &job.path, end)?;
            Ok(Tree::new())
        }
    }
}

fn merge(mut subtree: Subtree, end: bool) -> Result<()> {
    match subtree.merge() {
        // The one before gave the subtree back, and nothing of it can be lost any more.
        Err(error) if end && error.errno == Errno::Stale => {}
        done => drop(done?),
    }
    if end { subtree.forget() } else { Ok(()) }
}

/// Repeats a repeatable call as often as a user would.
fn insist<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..2 {
        if let Ok(value) = attempt() {
            return Ok(value);
        }
    }
    attempt()
}

fn decoupled(
    fs: &Arc<Fs>,
    path: &str,
    (policy, [first, second]): (&Policy, [usize; 2]),
    stops: &Stops,
) -> Result<()> {
    fs.make_dir(path, 0o755)?;
    let mut subtree = fs.decouple(path, policy)?;
    // A completion that is repeated says its stages again, as those of the second time.
    let round = Arc::new(AtomicUsize::new(1));
    let (current, observed) = (round.clone(), stops.clone());
    fs.observe(Arc::new(move |progress| match current.load(Ordering::Relaxed) {
        1 => observed.at(&progress.to_string()),
        _ => observed.at(&format!("again {progress}")),
    }));
    let mut known = Known::from([(String::new(), subtree.root())]);
    let acts = tree::acts();
    for act in &acts[..first] {
        tree::append(act, &mut subtree, &mut known)?;
    }
    stops.at("appended");
    insist(|| {
        let completion = subtree.complete();
        round.store(2, Ordering::Relaxed);
        completion
    })?;
    stops.at("completed");
    for act in &acts[first..second] {
        tree::append(act, &mut subtree, &mut known)?;
    }
    insist(|| subtree.complete())?;
    stops.at("repeated");
    for act in &acts[second..] {
        tree::append(act, &mut subtree, &mut known)?;
    }
    insist(|| subtree.merge())?;
    stops.at("merged");
    subtree.forget()?;
    stops.at("forgotten");
    Ok(())
}

/// Repeats it until the test has started the server again.
fn persevere<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(_) if start.elapsed() < Duration::from_secs(10) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            done => return done,
        }
    }
}

fn change(
    cluster: &Arc<Cluster>,
    path: &str,
    [from, to]: &[Policy; 2],
    completed: usize,
    stops: &Stops,
) -> Result<()> {
    let (fs, acts) = (cluster.mount()?, tree::acts());
    fs.make_dir(path, 0o755)?;
    fs.sync()?;
    if !from.is_decoupled() {
        cluster.set_policy(path.as_bytes(), Some(&from.to_yaml()))?;
        acts.iter().try_for_each(|act| tree::request(act, &fs, path))?;
        fs.sync()?;
        stops.at("held");
        stops.pass("changing");
        persevere(|| cluster.set_policy(path.as_bytes(), Some(&to.to_yaml())))?;
        // It hears that the server was restarted, if it was.
        persevere(|| fs.sync())?;
        stops.at("changed");
        return persevere(|| fs.sync()).map(drop);
    }
    let mut subtree = fs.decouple(path, from)?;
    let mut known = Known::from([(String::new(), subtree.root())]);
    for act in &acts[..completed] {
        tree::append(act, &mut subtree, &mut known)?;
    }
    subtree.complete()?;
    for act in &acts[completed..] {
        tree::append(act, &mut subtree, &mut known)?;
    }
    stops.at("held");
    let observed = stops.clone();
    fs.observe(Arc::new(move |progress| observed.at(&progress.to_string())));
    stops.pass("changing");
    persevere(|| match subtree.set_policy(to) {
        // It was given back, and only the answer was lost.
        Err(error) if error.errno == Errno::Stale && !to.is_decoupled() => Ok(()),
        done => done.map(drop),
    })?;
    stops.at("changed");
    if to.is_decoupled() {
        persevere(|| subtree.merge())?;
    }
    subtree.forget()
}

fn append(cluster: &Arc<Cluster>, path: &str, cell: &str, name: &str) -> Result<Tree> {
    let fs = cluster.mount()?;
    let place = Path::parse(path).expect("the parent names a path");
    let mut subtree = if let Some(owner) = StateDir::owner_at(fs.cluster_id(), &place)? {
        cluster.mount_as(owner.client())?.attach(path)?
    } else {
        fs.make_dir(path, 0o755)?;
        let policy = Policy::of_cell(Cell::from_name(cell).expect("the parent names a cell"));
        let subtree = fs.decouple(path, &policy)?;
        subtree.remember()?;
        subtree
    };
    let ino = subtree.create(subtree.root(), name.as_bytes(), &NewFile::default())?;
    subtree.sync()?;
    // Merged journals are deleted when the metadata store has their events.
    fs.checkpoint()?;
    Ok(Tree::from([(name.to_owned(), ino.to_string())]))
}

fn strong(fs: &Arc<Fs>, path: &str, policy: &Policy, stops: &Stops) -> Result<()> {
    fs.make_dir(path, 0o755)?;
    fs.cluster().set_policy(path.as_bytes(), Some(&policy.to_yaml()))?;
    fs.sync()?;
    let number = Arc::new(AtomicUsize::new(0));
    let (current, observed) = (number.clone(), stops.clone());
    fs.observe(Arc::new(move |progress| {
        observed.at(&format!("act {} {progress}", current.load(Ordering::Relaxed)));
    }));
    let mut last = stops.contains(|stop| stop == "act 0");
    stops.at("act 0");
    for (before, act) in tree::acts().iter().enumerate() {
        // Later steps would only blur the state after the crash.
        if last {
            break;
        }
        number.store(before + 1, Ordering::Relaxed);
        let here = format!("act {}", before + 1);
        let inside = format!("{here} ");
        last = stops.contains(|stop| stop == here || stop.starts_with(&inside));
        tree::request(act, fs, path)?;
        stops.at(&here);
    }
    fs.sync()?;
    stops.at("completed");
    // Completing again is asking again: the client hears that the server was restarted.
    fs.sync()?;
    stops.at("repeated");
    Ok(())
}

/// Takes the subtree over from the client that is gone, if that one had it and left a journal, and
/// merges.
fn take_over(cluster: &Arc<Cluster>, path: &str, end: bool) -> Result<()> {
    // The server reports the owners to the monitor twice a second.
    let start = Instant::now();
    let known = loop {
        let decoupled = cluster.status()?.decoupled;
        match decoupled.into_iter().find(|known| known.path == path.as_bytes()) {
            Some(known) => break known,
            None if start.elapsed() > Duration::from_millis(1_200) => return Ok(()),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let place = Path::parse(path).expect("a path");
    match cluster.recover(&place, &known, None, false) {
        Ok(Recovered { subtree: Some(subtree), .. }) => merge(subtree, end),
        Ok(_) => Ok(()),
        // The monitor's state may be older than the end of the decoupling.
        Err(error) if matches!(error.errno, Errno::NotFound | Errno::Stale) => Ok(()),
        Err(error) => Err(error),
    }
}
