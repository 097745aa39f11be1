//! The incidents: the trouble of each, and the figure that proves the recovery.
//!
//! Each function makes the trouble, ends the trouble, and waits for the figure that proves the
//! recovery. The rest, health and the names, is judged after every incident alike. Invariant: an
//! incident that returns has taken all its trouble back.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use cudele::Result;
use types::rng::Rng;

use super::schedule::{FAIL_OVER, Incident};
use super::stage::{LARGE, PATIENCE, SEGMENTS_MAX, Stage, WRITERS, fault};
use crate::harness::crew::Crew;
use crate::harness::job::Task;
use crate::harness::process;
use crate::harness::soak::{SoakJob, SoakRole, soak_name};

/// Names of the large directory in a run of 24 hours.
const LARGE_A_DAY: f64 = 20_000_000.0;
/// The fewest names that an incident adds to it.
const LARGE_LEAST: u64 = 8_000;
/// Names of each of two clients in a burst, and the most bursts that fill a journal.
const BURST_EACH: u64 = 20_000;
const BURSTS_MAX: u32 = 10;
/// Directories of a hoarder, and its files in each.
const HOARD_DIRS: u64 = 4;
const HOARD_FILES: u64 = 500;
/// Directories that a rank may move at one tick: the soak has fewer hot ones.
const MOVES_A_TICK: u64 = 32;

/// Everything that is hot goes to the next rank, at every tick of every rank.
const CIRCLES: &str = "-- Circles: each rank gives all its load to the next one.
-- Metadata load
metaload = IRD + IWR
-- When policy
if MDSs[whoami][\"load\"] > 0 then
-- Where policy
targets[whoami % #MDSs + 1] = MDSs[whoami][\"load\"]
-- Howmuch policy
{\"big_small\", \"half\"}
";

/// Plays an incident; returns a note with its figures. `seconds` have passed in the run.
pub(super) fn play(
    stage: &mut Stage,
    incident: Incident,
    random: &mut Rng,
    seconds: f64,
) -> Result<String> {
    match incident {
        Incident::UntrimmedJournal => untrimmed_journal(stage, random),
        Incident::Hoarder => hoarder(stage, random),
        Incident::LargeDirectory => large_directory(stage, seconds),
        Incident::BalancerCircles => balancer_circles(stage, random),
        Incident::FullJournalRestart => full_journal_restart(stage),
        Incident::KillMds => kill_mds(stage, random),
        Incident::KillClient => kill_client(stage, random),
        Incident::KillMon => kill_mon(stage, random),
        Incident::FullDisk => full_disk(stage, random),
        Incident::StopMds => stop_mds(stage, random),
        Incident::PowerCut => power_cut(stage, random),
        Incident::ClientPowerCut => client_power_cut(stage, random),
    }
}

fn millis(random: &mut Rng, low: u64, high: u64) -> Duration {
    Duration::from_millis(random.between(low, high))
}

/// Creates until the journal of rank 0 is this long, or for some bursts. Returns the names.
fn fill_journal(stage: &Stage, dir: &str, segments: u64) -> Result<u64> {
    let mut names = 0;
    for _ in 0..BURSTS_MAX {
        if stage.cluster.counter_of(0, "journal_segments")? >= segments {
            break;
        }
        stage.burst(dir, 2, names, BURST_EACH)?;
        names += 2 * BURST_EACH;
    }
    Ok(names)
}

fn untrimmed_journal(stage: &mut Stage, random: &mut Rng) -> Result<String> {
    let (dir, store) = (stage.scratch()?, store_dir(stage)?);
    let Some(disk) = &mut stage.disk else { return Err(fault("the store has no disk of its own")) };
    disk.refuse(&store)?;
    let filled = fill_journal(stage, &dir, SEGMENTS_MAX + 2);
    stage.wait(millis(random, 1000, 3000));
    let longest = stage.cluster.counter_of(0, "journal_segments");
    let conditions = stage.health()?;
    if let Some(disk) = &mut stage.disk {
        disk.accept()?;
    }
    let (names, longest) = (filled?, longest?);
    let took = stage.until("the journal is trimmed", |stage| {
        Ok(stage.cluster.counter_of(0, "journal_segments")? <= SEGMENTS_MAX)
    })?;
    expect_names(stage, &dir, names)?;
    stage.remove(&dir)?;
    Ok(format!(
        "{names} names, the journal grew to {longest} segments, health said {conditions:?}; \
         trimmed {:.1} s after the store worked again",
        took.as_secs_f64()
    ))
}

fn expect_names(stage: &Stage, dir: &str, names: u64) -> Result<()> {
    let found = stage.count(dir)?;
    if found == names {
        return Ok(());
    }
    Err(fault(format!("names: {dir} has {found} names, and {names} were acknowledged")))
}

/// The directory of the store.
pub(super) fn store_dir(stage: &Stage) -> Result<PathBuf> {
    let store = stage.cluster.store().strip_prefix("dir:").map(PathBuf::from);
    store.ok_or_else(|| fault("the store is no directory"))
}

fn hoarder(stage: &mut Stage, random: &mut Rng) -> Result<String> {
    let above = stage.scratch()?;
    let dirs: Vec<String> = (0..HOARD_DIRS).map(|number| format!("{above}/{number}")).collect();
    for dir in &dirs {
        stage.cluster.make_dir(dir)?;
    }
    let job = SoakJob {
        number: 0,
        role: SoakRole::Hoard { files: HOARD_FILES },
        dirs: dirs.clone(),
        record: PathBuf::new(),
        pace: Duration::ZERO,
    };
    let job = stage.cluster.job(Task::Soak(job));
    let crew = Crew::ready(&[job], &stage.cluster.state())?;
    let pid = crew.pid().unwrap_or_default();
    let files = HOARD_DIRS * HOARD_FILES;
    stage.until("the hoarder's files are counted as open", |stage| {
        Ok(stage.cluster.counter_of_all("open_files")? >= files)
    })?;
    let held = stage.cluster.counter_of_all("caps")?;
    process::suspend(pid)?;
    let begin = Instant::now();
    let others = stage.burst(&dirs[0], 2, 0, 200).map(|_| begin.elapsed());
    stage.wait(millis(random, 1000, 4000));
    process::resume(pid)?;
    let others = others?;
    let killed = random.percent(50);
    if killed {
        drop(crew);
    } else {
        crew.go()?;
    }
    let took = stage.until("the hoarder's files are closed", |stage| {
        Ok(stage.cluster.counter_of_all("open_files")? == 0)
    })?;
    stage.remove(&above)?;
    Ok(format!(
        "{files} open files and {held} capabilities; 400 creates beside the stopped client took {:.2} s; it {}, its files \
         were closed {:.1} s later",
        others.as_secs_f64(),
        if killed { "was killed" } else { "continued" },
        took.as_secs_f64()
    ))
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a day has 20 million names"
)]
fn large_directory(stage: &mut Stage, seconds: f64) -> Result<String> {
    let Some(watched) = stage.watched.clone() else { return Ok(String::new()) };
    let order = std::sync::atomic::Ordering::Relaxed;
    let so_far = watched.large_names.load(order);
    let due = (LARGE_A_DAY * (seconds - watched.before) / 86_400.0) as u64;
    let writers = u64::from(WRITERS);
    let each = due.saturating_sub(so_far).max(LARGE_LEAST).div_ceil(writers);
    // The bound of the store's objects grows with the names.
    watched.large_names.store(so_far + each * writers, order);
    let together = stage.burst(LARGE, writers, so_far, each)?;
    expect_names(stage, LARGE, so_far + each * writers)?;
    Ok(format!(
        "{} names by eight writers in {:.1} s, {} in all",
        each * writers,
        together.seconds,
        so_far + each * writers
    ))
}

fn balancer_circles(stage: &mut Stage, random: &mut Rng) -> Result<String> {
    let moves = |stage: &Stage| stage.cluster.counter_of_all("exports");
    let ticks = |stage: &Stage| stage.cluster.counter_of_all("balancer_ticks");
    let before = (moves(stage)?, ticks(stage)?);
    stage.cluster.set_balancer("circles", CIRCLES)?;
    stage.wait(millis(random, 6000, 12_000));
    stage.cluster.shipped_balancer(balancer::NO_POLICY)?;
    let mut last = u64::MAX;
    let calm = stage.until("nothing moves without a policy that moves", |stage| {
        let now = (moves(stage)?, stage.cluster.counter_of_all("heartbeats_sent")?);
        stage.wait(Duration::from_millis(2500));
        Ok(std::mem::replace(&mut last, now.0) == now.0)
    })?;
    let after = (moves(stage)?, ticks(stage)?);
    let (moved, ticked) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
    if moved > ticked * MOVES_A_TICK {
        return Err(fault(format!("moves: {moved} subtrees moved in {ticked} ticks")));
    }
    Ok(format!("{moved} subtrees moved in {ticked} ticks; calm after {:.1} s", calm.as_secs_f64()))
}

fn full_journal_restart(stage: &mut Stage) -> Result<String> {
    let dir = stage.scratch()?;
    let names = fill_journal(stage, &dir, SEGMENTS_MAX)?;
    let segments = stage.cluster.counter_of(0, "journal_segments")?;
    for pid in stage.all_servers()? {
        stage.kill(pid)?;
    }
    let begin = Instant::now();
    stage.up()?;
    stage.until("all ranks are active", Stage::is_active)?;
    let took = begin.elapsed();
    let replayed = stage.cluster.counter_of_all("recovered_events")?;
    expect_names(stage, &dir, names)?;
    stage.remove(&dir)?;
    Ok(format!(
        "{segments} segments, all servers killed; active after {:.2} s, {replayed} events replayed",
        took.as_secs_f64()
    ))
}

fn kill_mds(stage: &mut Stage, random: &mut Rng) -> Result<String> {
    let rank = u16::try_from(random.below(u64::from(stage.ranks))).unwrap_or(0);
    let before = stage.server(rank)?;
    let begin = Instant::now();
    stage.kill(before)?;
    stage.until("a standby serves the rank", |stage| {
        Ok(stage.server(rank)? != before && stage.is_active()?)
    })?;
    let took = begin.elapsed();
    stage.up()?;
    Ok(format!("rank {rank} was served again after {:.2} s", took.as_secs_f64()))
}

fn kill_client(stage: &mut Stage, random: &mut Rng) -> Result<String> {
    let name = format!("writer.{}", random.below(u64::from(WRITERS)));
    stage.kill_client(&name);
    stage.wait(millis(random, 0, 2000));
    stage.start_client(&name)?;
    Ok(format!("{name} was killed and started again"))
}

fn kill_mon(stage: &mut Stage, random: &mut Rng) -> Result<String> {
    stage.kill(stage.monitor()?)?;
    let pause = millis(random, 0, 3000);
    stage.wait(pause);
    stage.up()?;
    let took = stage.until("all ranks are active", Stage::is_active)?;
    Ok(format!(
        "{:.1} s without a monitor; its map was complete after {:.2} s",
        pause.as_secs_f64(),
        took.as_secs_f64()
    ))
}

fn full_disk(stage: &mut Stage, random: &mut Rng) -> Result<String> {
    let Some(disk) = &mut stage.disk else { return Err(fault("the store has no disk of its own")) };
    let bytes = disk.fill()?;
    stage.wait(millis(random, 2000, 5000));
    let conditions = stage.health();
    if let Some(disk) = &mut stage.disk {
        disk.empty()?;
    }
    Ok(format!("{} MiB taken by another program; health said {:?}", bytes >> 20, conditions?))
}

fn power_cut(stage: &mut Stage, random: &mut Rng) -> Result<String> {
    let dir = stage.scratch()?;
    let names = 2 * BURST_EACH;
    let burst = stage.begin_burst(&dir, 2, 0, BURST_EACH)?;
    stage.wait(millis(random, 0, 600));
    let begin = Instant::now();
    let pids = [stage.all_servers()?, vec![stage.monitor()?]].concat();
    let Some(disk) = &mut stage.disk else { return Err(fault("the store has no disk of its own")) };
    let cut = disk.cut_power(&pids, PATIENCE, random)?;
    stage.up()?;
    stage.until("all ranks are active", Stage::is_active)?;
    let took = begin.elapsed();
    burst.ended()?;
    expect_names(stage, &dir, names)?;
    stage.remove(&dir)?;
    Ok(format!("{cut}; active after {:.2} s", took.as_secs_f64()))
}

fn client_power_cut(stage: &mut Stage, random: &mut Rng) -> Result<String> {
    let dir = stage.scratch()?;
    let none = || fault("there is no disk of a client's machine");
    let state = stage.client_disk.as_ref().ok_or_else(none)?.path().join("state");
    let record = stage.cluster.own_dir()?.join("decoupled.record");
    let job = |role| {
        let (dirs, pace) = (vec![dir.clone()], Duration::ZERO);
        Task::Soak(SoakJob { number: 0, role, dirs, record: record.clone(), pace })
    };
    let mut crew = Crew::ready(&[stage.cluster.job(job(SoakRole::Decouple))], &state)?;
    crew.release()?;
    stage.until("names are durable", |_| Ok(durable_names(&record)? > 0))?;
    stage.wait(millis(random, 0, 1500));
    let pids: Vec<u32> = crew.pid().into_iter().collect();
    let disk = stage.client_disk.as_mut().ok_or_else(none)?;
    let cut = disk.cut(&pids, PATIENCE, random)?;
    drop(crew);
    let durable = durable_names(&record)?;
    Crew::ready(&[stage.cluster.job(job(SoakRole::Resume))], &state)?.go()?;
    let found = stage.count(&dir)?;
    if found < durable {
        let sentence = format!("names: {dir} has {found} names, and {durable} were durable");
        return Err(fault(sentence));
    }
    let last = soak_name(0, found - 1);
    stage.client()?.stat(format!("{dir}/{last}")).map_err(|error| {
        fault(format!("names: {dir} has {found} names, and not the first ones: {error}"))
    })?;
    stage.remove(&dir)?;
    Ok(format!("{durable} names were durable, {found} survived; {cut}"))
}

/// The last line of the record of a client with a decoupled subtree.
fn durable_names(record: &std::path::Path) -> Result<u64> {
    let text = super::judge::tail(record, 0)?;
    Ok(text.lines().last().and_then(|line| line.parse().ok()).unwrap_or(0))
}

fn stop_mds(stage: &mut Stage, random: &mut Rng) -> Result<String> {
    let rank = u16::try_from(random.below(u64::from(stage.ranks))).unwrap_or(0);
    let before = stage.server(rank)?;
    let pause = millis(random, 500, 9000);
    // In a store that is a directory, a stopped process keeps the lock of its rank: no standby
    // takes over before it ends.
    stage.announce(pause + FAIL_OVER);
    process::suspend(before)?;
    stage.wait(pause);
    let after = stage.server(rank);
    process::resume(before)?;
    let taken = if after? == before { "kept its rank" } else { "lost its rank to the standby" };
    stage.wait(Duration::from_millis(500));
    stage.up()?;
    Ok(format!("rank {rank} stopped for {:.1} s and {taken}", pause.as_secs_f64()))
}
