//! `balancers`: the gain of several ranks over one (Mantle, figures 4, 5, 7 and 8), on ranks that
//! have a small share of a processor each (`rationed`).
//!
//! - `private_N_ranks`: sixteen clients for each rank (`--clients`) create files in directories of
//!   their own, which are pinned evenly. `speedup` is against the same clients with all directories
//!   on one rank; `of_the_best` against the larger rate of one rank: with all of them, or with as
//!   many as each rank has then.
//! - `shared_4_ranks`: the same in one directory, which is split, with its fragments spread evenly.
//! - `tick`: the cost of the balancing logic for a rank, of its processor time: two clusters in
//!   turn, one that decides a hundred times as often as by default, and one that never does; a
//!   hundredth of the difference. Both count hits. Without a share.
//! - `move_100K`: a subtree of 100K inodes goes to another rank while a client creates files in it,
//!   and the time for which no client could work there. Without a share.
//!
//! Published beside it: the paper's ranks answered 1400 to 1475 requests in a second each with
//! separate directories (figure 4), one of them saturated at four clients (figure 5); four clients
//! in *one* directory gained 8 % on two ranks and lost 20 to 40 % on four (figures 7 and 8).

mod freeze;
mod upkeep;

use cudele::Result;
use types::Rank;

use crate::harness::job::Task;
use crate::harness::lab::Lab;
use crate::harness::rationed::{Measured, Rationed};
use crate::harness::row::Row;
use crate::harness::share;
use crate::harness::stats::real;

const BENCH: &str = "balancers";
/// Files of each client: some five seconds for all of them together, and as many for the case of
/// comparison.
const FILES: u64 = 4_000;
/// Clients for each rank. Each waits for every answer: with fewer, a rank has only one or two
/// requests at a time, and the cost of waking it for them would be compared. In one directory each
/// client uses all ranks, so that with fewer most of them wait for one rank while the remaining
/// ranks are idle.
const CLIENTS: u32 = 16;
/// Numbers of ranks, each with its goal against one rank.
const PRIVATE: [(u16, &str, f64); 3] =
    [(2, "private_2_ranks", 1.9), (4, "private_4_ranks", 3.6), (8, "private_8_ranks", 6.8)];
const SHARED_RANKS: u16 = 4;
const SHARED_GOAL: f64 = 2.5;

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let files = lab.files(FILES, 20);
    let clients = lab.clients(if lab.quick { 2 } else { CLIENTS });
    let mut private: Vec<Row> = PRIVATE
        .iter()
        .map(|(ranks, name, goal)| {
            let mut row = Row::new(BENCH, *name, files).clients(u32::from(*ranks) * clients);
            row.goal("speedup", *goal);
            row
        })
        .collect();
    let mut shared =
        Row::new(BENCH, "shared_4_ranks", files).clients(u32::from(SHARED_RANKS) * clients);
    shared.goal("speedup", SHARED_GOAL);
    let mut tick = upkeep::row(lab);
    let mut freeze = freeze::row(lab);
    let mut store = String::new();
    if !lab.quick {
        // The first servers on a machine that ran other work before are slower than all later ones.
        lab.progress(BENCH, 0, "one that does not count");
        in_own_directories(lab, &mut private[0].clone(), PRIVATE[0].0)?;
    }
    for repetition in 0..lab.repeat {
        for (row, (ranks, name, _)) in private.iter_mut().zip(PRIVATE) {
            lab.progress(BENCH, repetition, name);
            store = in_own_directories(lab, row, ranks)?;
        }
        lab.progress(BENCH, repetition, "shared_4_ranks");
        in_one_directory(lab, &mut shared)?;
        lab.progress(BENCH, repetition, "tick");
        upkeep::measure(lab, &mut tick)?;
        lab.progress(BENCH, repetition, "move_100K");
        freeze::measure(lab, &mut freeze)?;
    }
    lab.report(&store, private.into_iter().chain([shared, tick, freeze]));
    Ok(())
}

/// The same, for a run of all experiments: it prints why if it cannot run.
pub(crate) fn run_where_possible(lab: &mut Lab) -> Result<()> {
    match share::possible() {
        Ok(()) => run(lab),
        Err(error) => {
            eprintln!("cudele: {error}");
            Ok(())
        }
    }
}

/// Returns the store that the ranks were on.
fn in_own_directories(lab: &Lab, row: &mut Row, ranks: u16) -> Result<String> {
    let rationed = Rationed::new(lab, ranks, &[])?;
    let dirs = rationed.directories(row.clients)?;
    let one = on_one(&rationed, &dirs, row, ranks)?;
    rationed.spread(&dirs, ranks)?;
    let many = rationed.work(creates(&dirs, row.files, row.files))?;
    against(row, ranks, &one, &many);
    Ok(rationed.cluster.store().to_owned())
}

fn in_one_directory(lab: &Lab, row: &mut Row) -> Result<()> {
    let rationed = Rationed::new(lab, SHARED_RANKS, &[])?;
    let dir = rationed.directories(1)?;
    let dirs = vec![dir[0].clone(); usize::try_from(row.clients).unwrap_or(1)];
    let one = on_one(&rationed, &dirs, row, SHARED_RANKS)?;
    let fs = rationed.cluster.client()?;
    let ranks: Vec<Rank> = (0..SHARED_RANKS).map(Rank).collect();
    fs.split(fs.stat(&dir[0])?.ino, &ranks)?;
    let many = rationed.work(creates(&dirs, row.files, row.files))?;
    against(row, SHARED_RANKS, &one, &many);
    Ok(())
}

/// The rate of one rank that has everything.
struct One {
    /// To all clients.
    all: f64,
    /// To as many as each rank has when there are several.
    few: f64,
}

/// Fewer files for all clients, as it takes longer.
fn on_one(rationed: &Rationed, dirs: &[String], row: &Row, ranks: u16) -> Result<One> {
    let rate = |dirs: &[String], first: u64, files: u64| -> Result<f64> {
        let one = rationed.work(creates(dirs, first, files))?;
        Ok(real(files * dirs.len() as u64) / one.together.seconds.max(1e-9))
    };
    let files = (row.files / u64::from(ranks)).max(1);
    let few = dirs.len() / usize::from(ranks);
    Ok(One { all: rate(dirs, 0, files)?, few: rate(&dirs[..few], 2 * row.files, row.files)? })
}

/// Records the measurement, and its ratio to one rank's rate.
fn against(row: &mut Row, ranks: u16, one: &One, many: &Measured) {
    let rate = real(row.files * u64::from(row.clients)) / many.together.seconds.max(1e-9);
    many.note(row, ranks);
    row.note("one_rank_per_second", one.all);
    row.note("one_rank_with_its_clients_per_second", one.few);
    row.note("speedup", rate / one.all.max(1e-9));
    row.note("of_the_best", rate / one.all.max(one.few).max(1e-9));
    row.note("unevenness", many.unevenness());
}

/// Each client creates files of its own, also where the directory is not its own.
pub(super) fn creates(dirs: &[String], first: u64, files: u64) -> Vec<Task> {
    const APART: u64 = 1_000_000;
    let create = |(dir, number): (&String, u64)| Task::Create {
        dir: dir.clone(),
        first: number * APART + first,
        files,
        sync: false,
        latencies: false,
        alone: false,
    };
    dirs.iter().zip(0..).map(create).collect()
}
