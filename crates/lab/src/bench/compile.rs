//! `compile`: clients that unpack, configure and compile source trees, on ranks that have a small
//! share of a processor each (`rationed`; Mantle, figures 9 and 10).
//!
//! The requests of such a job, without its compiler: a tree of directories is made with its files,
//! read through, and then compiled file by file, which looks headers up in a few directories that
//! are hot for a while, by name and by path, makes an object file and now and then a temporary one.
//! The compiler's work is a wait. Each client has a tree of its own, and all begin on one rank.
//!
//! `speedup` is that of the slowest client against all of them on one rank of the same cluster.
//! Rows `…_second_N` have the answers of each rank in each second of the first repetition.
//!
//! Published: 3 clients +0.7 % and +5 % on two and three ranks; 5 clients +2.4, 7.8, 7.5 and 9 % on
//! two to five; conservative on five +8 %, too aggressive +5 %, with 60 times the forwards.

use cudele::Result;

use crate::harness::job::{Compile, Task};
use crate::harness::lab::Lab;
use crate::harness::rationed::Rationed;
use crate::harness::row::Row;

const BENCH: &str = "compile";
/// Directories of a tree.
pub(super) const DIRECTORIES: u64 = 16;
/// The compiler's time for a file.
const THINK_MICROS: u64 = 4_000;
/// The most ranks; with `--clients` that number of clients is looked at on so many only.
const RANKS_MAX: u16 = 5;
/// Clients, ranks, policy.
const CASES: [(u32, u16, &str); 8] = [
    (3, 2, "adaptable"),
    (3, 3, "adaptable"),
    (5, 2, "adaptable"),
    (5, 3, "adaptable"),
    (5, 4, "adaptable"),
    (5, 5, "adaptable"),
    (5, 5, "adaptable-conservative"),
    (5, 5, "adaptable-too-aggressive"),
];

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let files = lab.files(80, 2);
    let row = |(clients, ranks, policy): &(u32, u16, &str)| {
        let name = format!("{policy}_{clients}_clients_{ranks}_ranks");
        Row::new(BENCH, name, files * DIRECTORIES).clients(*clients)
    };
    // In small sizes the first and the last say whether everything works.
    let asked = |clients: u32| lab.clients.is_none_or(|asked| asked == clients);
    let cases: Vec<_> = CASES
        .into_iter()
        .step_by(if lab.quick { 7 } else { 1 })
        .filter(|(clients, ranks, _)| {
            asked(*clients) && (lab.clients.is_none() || *ranks == RANKS_MAX)
        })
        .collect();
    let mut rows: Vec<Row> = cases.iter().map(row).collect();
    let mut one_rank: Vec<Row> =
        [3, 5].into_iter().filter(|it| asked(*it)).map(|it| row(&(it, 1, "static"))).collect();
    let mut seconds = Vec::new();
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        let mut alone = Vec::new();
        for row in &mut one_rank {
            lab.progress(BENCH, repetition, &row.name);
            let rationed = Rationed::new(lab, 1, &[])?;
            let took = rationed.work(tasks(&rationed, row.clients, files)?)?;
            took.note(row, 1);
            alone.push((row.clients, took.together.seconds));
            if repetition == 0 {
                seconds.extend(took.rows(BENCH, &row.name, row.clients));
            }
            rationed.cluster.store().clone_into(&mut store);
        }
        for (row, it) in rows.iter_mut().zip(&cases) {
            let (clients, ranks, policy) = *it;
            lab.progress(BENCH, repetition, &row.name);
            let rationed = Rationed::new(lab, ranks, &[])?;
            let tasks = tasks(&rationed, clients, files)?;
            rationed.policy(policy)?;
            let took = rationed.work(tasks)?;
            took.note(row, ranks);
            let one = alone.iter().find(|it| it.0 == clients).map_or(0.0, |it| it.1);
            row.note("speedup", one / took.together.seconds.max(1e-9));
            row.note("unevenness", took.unevenness());
            if repetition == 0 {
                seconds.extend(took.rows(BENCH, &row.name, clients));
            }
        }
    }
    lab.report(&store, one_rank.into_iter().chain(rows).chain(seconds));
    Ok(())
}

fn tasks(rationed: &Rationed, clients: u32, files: u64) -> Result<Vec<Task>> {
    Ok(jobs(rationed.directories(clients)?, files))
}

/// A job for each of the directories.
pub(super) fn jobs(dirs: Vec<String>, files: u64) -> Vec<Task> {
    let task = |(dir, client)| {
        Task::Compile(Compile {
            dir,
            client,
            directories: DIRECTORIES,
            files,
            think_micros: THINK_MICROS,
        })
    };
    dirs.into_iter().zip(0..).map(task).collect()
}
