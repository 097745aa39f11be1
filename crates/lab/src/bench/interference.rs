//! `interference`: the cost of a second client in a directory for the first one (Fig 3b, S-02,
//! S-03).
//!
//! A program that creates a file first looks for an existing one. Alone in a directory a client
//! knows the answer itself, and a create is one request; once another client creates there, too, it
//! must ask. Published for 98,000 creates: 0 to 1 lookups and 783 to 808 creates a second alone;
//! 212,000 to 214,000 lookups and 432 to 440 creates a second beside another client.
//!
//! The first client stops in the middle until the second is at work, which works until the first
//! has ended: so the second half is entirely beside it, at any speed of either.

use std::time::Duration;

use cudele::Result;

use crate::harness::cluster::TestCluster;
use crate::harness::crew::Crew;
use crate::harness::job::{Job, JobOutcome, Task};
use crate::harness::lab::{Lab, alone, policy};
use crate::harness::peers::cephfs::Peer;
use crate::harness::row::{PER_SECOND, Row};
use crate::harness::stats::real;

const BENCH: &str = "interference";
/// The server reports its counters every half second.
const REPORTED: Duration = Duration::from_millis(600);
/// Names of the second client begin behind those of the first.
const FIRST_OF_OTHER: u64 = 1_000_000_000;
/// Files that are looked up; small enough that no client forgets one.
const STAT_FILES: u64 = 1_000;
/// Lookups per create of a lone client: one when it comes, and one whenever it heard nothing for a
/// second.
const GOAL_LOOKUPS: f64 = 0.01;
/// Lookups in a second: out of memory, and asking every time.
const GOAL_CACHED: f64 = 5_000_000.0;
const GOAL_ASKED: f64 = 25_000.0;

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let files = lab.files(100_000, 1_000);
    let passes = (files / STAT_FILES).max(1);
    let looked = STAT_FILES.min(files);
    let row = |name: &str| Row::new(BENCH, name, files);
    let mut rows = [row("lone"), row("interfered")];
    rows[0].limit("lookups_per_create", GOAL_LOOKUPS);
    let mut stats =
        ["stat_cached", "stat_uncached"].map(|name| Row::new(BENCH, name, looked * passes));
    stats[0].goal(PER_SECOND, GOAL_CACHED);
    stats[1].goal(PER_SECOND, GOAL_ASKED);
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        let cluster = lab.cluster(&[])?;
        for (row, interfered) in rows.iter_mut().zip([false, true]) {
            lab.progress(BENCH, repetition, &row.name);
            halves(&cluster, files, interfered, row)?;
        }
        for (row, remember) in stats.iter_mut().zip([true, false]) {
            lab.progress(BENCH, repetition, &row.name);
            let dir = cluster.directory(Some(&policy("posix", looked)?))?;
            let outcome = alone(&cluster, Task::Stat { dir, files: looked, passes, remember })?;
            row.push(outcome.seconds());
            row.note("requests_per_stat", real(outcome.requests) / real(outcome.events));
        }
        cluster.store().clone_into(&mut store);
    }
    lab.report(&store, rows.into_iter().chain(stats));
    if let Some(conf) = lab.cephfs.clone() {
        beside(lab, &Peer::new(&conf), files)?;
    }
    Ok(())
}

/// The same two cases in a CephFS, with a tenth of the files.
fn beside(lab: &mut Lab, peer: &Peer, files: u64) -> Result<()> {
    let files = (files / 10).max(2);
    let mut rows = ["cephfs_lone", "cephfs_interfered"].map(|name| Peer::row(BENCH, name, files));
    // Of this cluster only the place for its clients' state is used.
    let cluster = lab.cluster(&[])?;
    for repetition in 0..lab.repeat {
        for (row, interfered) in rows.iter_mut().zip([false, true]) {
            lab.progress(BENCH, repetition, &row.name);
            peer_halves(&cluster, peer, files, interfered, row)?;
        }
    }
    lab.report("", rows);
    Ok(())
}

fn peer_halves(
    cluster: &TestCluster,
    peer: &Peer,
    files: u64,
    interfered: bool,
    row: &mut Row,
) -> Result<()> {
    let (conf, dir) = (peer.conf().to_owned(), peer.directory(BENCH));
    let task = Task::CephLookAndCreate { conf: conf.clone(), dir: dir.clone(), first: 0, files };
    let mut tasks = vec![task];
    if interfered {
        tasks.push(Task::CephIntrude { conf, dir, first: FIRST_OF_OTHER });
    }
    let jobs: Vec<Job> = tasks.into_iter().map(|task| cluster.job(task)).collect();
    let mut counted = Vec::new();
    let result = Crew::ready(&jobs, &cluster.state())?.go_halves(|| {
        counted.push(peer.counted()?);
        Ok(())
    })?;
    let [at_begin, in_middle, at_end] = counted[..] else { return Ok(()) };
    let first = result.first()?;
    let (before, after) = (real(files / 2), real(files - files / 2));
    let (lone, together) = (in_middle.since(at_begin), at_end.since(in_middle));
    row.push(first.part("before") + first.part("after"));
    if !interfered {
        let all = at_end.since(at_begin);
        row.note("lookups_per_create", all.lookups / (before + after));
        row.note("requests_per_create", all.requests / (before + after));
        return Ok(());
    }
    // The server counts the requests of both; the second client does not look.
    row.note("lookups_per_create_before", lone.lookups / before);
    row.note("lookups_per_create_after", together.lookups / after);
    row.note("creates_per_second_before", before / first.part("before").max(1e-9));
    row.note("creates_per_second_after", after / first.part("after").max(1e-9));
    row.note("others", 1.0);
    row.note("other_creates_per_second", result.outcomes.get(1).map_or(0.0, rate));
    Ok(())
}

fn halves(cluster: &TestCluster, files: u64, interfered: bool, row: &mut Row) -> Result<()> {
    let dir = cluster.directory(Some(&policy("posix", files)?))?;
    let mut tasks = vec![Task::LookAndCreate { dir: dir.clone(), first: 0, files }];
    if interfered {
        tasks.push(Task::Intrude { dir, first: FIRST_OF_OTHER });
    }
    let jobs: Vec<Job> = tasks.into_iter().map(|task| cluster.job(task)).collect();
    // The server's own count, at the beginning, in the middle and at the end.
    let mut lookups = Vec::new();
    let result = Crew::ready(&jobs, &cluster.state())?.go_halves(|| {
        std::thread::sleep(REPORTED);
        lookups.push(cluster.counter("lookups")?);
        Ok(())
    })?;
    let first = result.first()?;
    let (before, after) = (real(files / 2), real(files - files / 2));
    row.push(first.part("before") + first.part("after"));
    let per = |from: usize, to: usize, creates: f64| {
        let asked = lookups.get(to).zip(lookups.get(from)).map_or(0, |(to, from)| to - from);
        real(asked) / creates.max(1.0)
    };
    if !interfered {
        row.note("lookups", per(0, 2, 1.0));
        row.note("lookups_per_create", per(0, 2, before + after));
        row.note("requests_per_create", real(first.requests) / (before + after));
        return Ok(());
    }
    row.note("lookups_per_create_before", per(0, 1, before));
    row.note("lookups_per_create_after", per(1, 2, after));
    row.note("requests_per_create_before", first.part("requests_before") / before.max(1.0));
    row.note("requests_per_create_after", first.part("requests_after") / after.max(1.0));
    row.note("creates_per_second_before", before / first.part("before").max(1e-9));
    row.note("creates_per_second_after", after / first.part("after").max(1e-9));
    let other = result.outcomes.get(1).map_or(0.0, rate);
    row.note("others", 1.0);
    row.note("other_creates_per_second", other);
    Ok(())
}

fn rate(outcome: &JobOutcome) -> f64 {
    real(outcome.events) / outcome.seconds().max(1e-9)
}
