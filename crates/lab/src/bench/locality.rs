//! `locality`: one rank that has everything against three that share it (Mantle, figure 3).
//!
//! Five clients unpack, configure and compile (`compile`) on ranks with a small share of a
//! processor each (`rationed`). There is no balancer: before the jobs begin, each directory of
//! their trees is pinned to a rank. `even` gives one third to each, in turn; `uneven` leaves half
//! of them in place. So nothing moves while clients work, and only the ranks of requests differ:
//! `forwards` were sent to another rank than the one that answers, `hits` were not.
//!
//! Published: one server that has everything was 18 to 19 % faster than three.

use cudele::Result;
use types::Rank;

use super::compile::{DIRECTORIES, jobs};
use crate::harness::job::Compile;
use crate::harness::lab::Lab;
use crate::harness::rationed::Rationed;
use crate::harness::row::Row;

const BENCH: &str = "locality";
const CLIENTS: u32 = 5;
/// Its name, and the ranks that get directories in turn.
const SETUPS: [(&str, &[u16]); 3] =
    [("one_rank", &[0]), ("three_even", &[0, 1, 2]), ("three_uneven", &[0, 1, 0, 2])];

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let files = lab.files(40, 2);
    let clients = lab.clients(CLIENTS);
    let row = |(name, _)| Row::new(BENCH, name, files * DIRECTORIES).clients(clients);
    let mut rows = SETUPS.map(row);
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        let mut one_rank = 0.0;
        for (row, (_, turn)) in rows.iter_mut().zip(SETUPS) {
            lab.progress(BENCH, repetition, &row.name);
            let ranks = turn.iter().max().map_or(1, |last| last + 1);
            let rationed = Rationed::new(lab, ranks, &[])?;
            let dirs = rationed.directories(clients)?;
            place(&rationed, &dirs, turn)?;
            let took = rationed.work(jobs(dirs, files))?;
            took.note(row, ranks);
            if ranks == 1 {
                one_rank = took.together.seconds;
            }
            row.note("speedup", one_rank / took.together.seconds.max(1e-9));
            rationed.cluster.store().clone_into(&mut store);
        }
    }
    lab.report(&store, rows);
    Ok(())
}

/// Makes the directories of the trees, and gives them to ranks in turn.
fn place(rationed: &Rationed, trees: &[String], turn: &[u16]) -> Result<()> {
    let fs = rationed.cluster.client()?;
    for tree in trees {
        for (number, rank) in (0..DIRECTORIES).zip(turn.iter().cycle()) {
            let path = format!("{tree}/{}", Compile::part(number));
            rationed.cluster.make_dir(&path)?;
            if *rank != 0 {
                fs.pin(fs.stat(&path)?.ino, Rank(*rank))?;
            }
        }
    }
    Ok(())
}
