//! `placement`: the same jobs with the servers' store and the clients' local state placed on a disk
//! or in memory (F-12): the gain of each policy from each piece of hardware.
//!
//! The store has the metadata server's journal, the metadata and all content; the client's place
//! has journals of Local Persist and logs of requests. Memory is a file system in memory that
//! survives processes, as a disk does, and not the machine.

use std::path::Path;

use cudele::{Errno, Error, Result};

use crate::harness::lab::{Lab, create, decoupled, policy};
use crate::harness::row::Row;

const BENCH: &str = "placement";
/// A file system in memory.
const MEMORY: &str = "/dev/shm";
/// Policies that wait for the disk at every request are measured with fewer: one for this many.
const FEWER: u64 = 50;
/// One cell for each way in which something is written down, or nothing is.
const CELLS: [&str; 6] =
    ["weak-none", "weak-local", "weak-global", "strong-none", "strong-local", "strong-global"];
/// Where the store is, and where the client's own state.
const PLACES: [(&str, &str); 4] =
    [("disk", "disk"), ("disk", "memory"), ("memory", "disk"), ("memory", "memory")];

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    if !Path::new(MEMORY).is_dir() {
        let cause = format!("this machine has no file system in memory at {MEMORY}");
        return Err(Error::new(Errno::NotSupported, BENCH, cause).remedy("mount a tmpfs there"));
    }
    let files = lab.files(100_000, 500);
    let of = |cell: &str| if cell == "strong-local" { (files / FEWER).max(1) } else { files };
    let row = |cell: &str, (store, client): (&str, &str)| {
        Row::new(BENCH, format!("{cell}_{store}_{client}"), of(cell))
    };
    let mut rows: Vec<Row> =
        CELLS.iter().flat_map(|cell| PLACES.map(|places| row(cell, places))).collect();
    let usual = lab.place.clone();
    let measured = repetitions(lab, &mut rows, &of);
    lab.place = usual;
    let store = measured?;
    lab.report(&store, rows);
    Ok(())
}

fn repetitions(lab: &mut Lab, rows: &mut [Row], of: &dyn Fn(&str) -> u64) -> Result<String> {
    let usual = lab.place.clone();
    let mut kind = String::new();
    for repetition in 0..lab.repeat {
        for (at, (store, client)) in PLACES.into_iter().enumerate() {
            lab.place = usual.clone();
            if store == "memory" {
                lab.place.store = Some(format!("dir:{MEMORY}"));
            }
            if client == "memory" {
                lab.place.state = Some(MEMORY.into());
            }
            lab.progress(BENCH, repetition, &format!("store in {store}, client's in {client}"));
            let cluster = lab.cluster(&[])?;
            for (number, cell) in CELLS.into_iter().enumerate() {
                let files = of(cell);
                let outcome = if policy(cell, files)?.is_decoupled() {
                    decoupled(&cluster, cell, files)?
                } else {
                    create(&cluster, cell, files)?
                };
                let base = number * PLACES.len();
                let seconds = outcome.seconds();
                rows[base + at].push(seconds);
                let all_on_disk = rows[base].seconds.last().copied().unwrap_or(seconds);
                rows[base + at].note("times_all_on_disk", seconds / all_on_disk.max(1e-9));
            }
            "dir:".clone_into(&mut kind);
        }
    }
    Ok(kind)
}
