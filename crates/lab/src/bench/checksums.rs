//! `checksums`: the cost of content checksums for a file that is written and read in order.
//!
//! The benchmark writes a file through the library in pieces of 1 MiB and syncs it, alternately
//! with and without checksums. Then it reads the file twice: from the disk, if the store is a
//! directory, and from memory. Each figure is the ratio of two consecutive measurements.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use cudele::{Checksums, Errno, Error, Fs, NewFile, Policy, Result, Seal, StripedFile};
use rustix::fs::Advice;

use crate::harness::cluster::TestCluster;
use crate::harness::lab::Lab;
use crate::harness::row::Row;

const BENCH: &str = "checksums";
/// The size of a piece equals the size in which the mount passes content on.
const PIECE_BYTES: usize = 1 << 20;
/// The largest permitted ratio of the time with checksums to the time without.
const LIMIT: f64 = 1.03;

/// Seconds of each step.
struct Seconds {
    write: f64,
    cold: f64,
    warm: f64,
}

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let pieces = lab.files(512, 8);
    let cluster = lab.cluster(&[])?;
    let store = cluster.store().to_owned();
    let client = cluster.client()?;
    let row = |name: &str| Row::new(BENCH, name, pieces);
    let mut rows = ["write", "read_disk", "read_memory"].map(row);
    let mut plain = ["write_plain", "read_disk_plain", "read_memory_plain"].map(row);
    rows[0].limit("ratio", LIMIT);
    rows[1].limit("ratio", LIMIT);
    for repetition in 0..lab.repeat {
        lab.progress(BENCH, repetition, "with and without");
        let without = measure(&cluster, &client, Checksums::Off, pieces)?;
        let with = measure(&cluster, &client, Checksums::On, pieces)?;
        let each =
            [(with.write, without.write), (with.cold, without.cold), (with.warm, without.warm)];
        for ((row, plain), (with, without)) in rows.iter_mut().zip(&mut plain).zip(each) {
            row.push(with);
            row.note("ratio", with / without);
            plain.push(without);
        }
    }
    lab.report(&store, rows.into_iter().chain(plain));
    Ok(())
}

fn measure(
    cluster: &TestCluster,
    fs: &Arc<Fs>,
    checksums: Checksums,
    pieces: u64,
) -> Result<Seconds> {
    let path = cluster.directory(Some(&Policy { checksums, ..Policy::default() }))?;
    let dir = fs.open_dir(&path)?;
    let place = dir.create("file", &NewFile::default())?.striped();
    let ino = place.ino;
    let piece: Vec<u8> = (0..PIECE_BYTES).map(|at| at.to_le_bytes()[0]).collect();
    let size = pieces * PIECE_BYTES as u64;
    fs.begin_sums(ino);
    fs.want_sums(ino, checksums == Checksums::On);
    let start = Instant::now();
    for number in 0..pieces {
        fs.write_at(place, number * PIECE_BYTES as u64, &piece)?;
    }
    fs.sync_file(place, size)?;
    fs.seal(place, Seal::Durable, true);
    let write = start.elapsed().as_secs_f64();
    let expected = if checksums == Checksums::On { piece.as_slice() } else { &[] };
    drop_from_memory(cluster, ino.0);
    let cold = read(fs, place, pieces, expected)?;
    let warm = read(fs, place, pieces, expected)?;
    fs.delete_data(place, size)?;
    Ok(Seconds { write, cold, warm })
}

fn read(fs: &Fs, file: StripedFile, pieces: u64, expected: &[u8]) -> Result<f64> {
    fs.forget_sums(file.ino);
    let mut buffer = vec![0; PIECE_BYTES];
    let start = Instant::now();
    for number in 0..pieces {
        fs.read_into(file, number * PIECE_BYTES as u64, &mut buffer)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    if !expected.is_empty() && buffer != expected {
        return Err(Error::new(Errno::Io, BENCH, "what was read is not what was written"));
    }
    Ok(seconds)
}

/// Evicts the file from the page cache, so that the next read goes to the disk. Does nothing if the
/// store is not a directory.
fn drop_from_memory(cluster: &TestCluster, ino: u64) {
    let Some(root) = cluster.store().strip_prefix("dir:") else { return };
    let part = format!("{ino:016x}.");
    for entry in walkdir::WalkDir::new(root).into_iter().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(&part) {
            continue;
        }
        if let Ok(file) = std::fs::File::open(entry.path()) {
            let _ = rustix::fs::fadvise(file.as_fd(), 0, None, Advice::DontNeed);
        }
    }
}
