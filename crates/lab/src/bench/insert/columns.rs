//! Small files with their content, in random order into one directory: the bytes written for each
//! byte that comes (I-08, I-09).
//!
//! Measured on a server that has to write and evict all the time, and also on the store alone,
//! where the same batches are committed and merged with and without value segments: there the
//! written bytes are counted, and nothing of it depends on the machine.

use cudele::{Errno, Error, FileType, Ino, Result};
use engine::{Executor, Tuning};
use metastore::request::{StoreOp, StoreResult};
use metastore::{InodeRecord, RowValue, Rows};
use objstore::Memory;
use types::{Attr, Seq};

use super::{BENCH, WRITTEN_MAX};
use crate::harness::job::{Entries, Insert, Task};
use crate::harness::lab::{Lab, Size, alone, policy};
use crate::harness::numbered::{Shuffled, content_bytes};
use crate::harness::row::Row;
use crate::harness::stats::real;

const FILES: u64 = 100_000;
const FILES_QUICK: u64 = 2_000;
/// Bytes of content: from so many to so many.
const CONTENT: [u32; 2] = [1024, 4096];
/// Files that are merged together. The server has room for twice as many.
const BATCH: u64 = 2_500;
const INODES_MAX: &str = "inodes_max=5000";

/// The row, with all repetitions.
pub(super) fn row(lab: &mut Lab) -> Result<Row> {
    let files = lab.files(FILES, FILES_QUICK).min(FILES);
    let mut row = Row::new(BENCH, format!("content_{}", Size(files)), files);
    row.limit("written_per_byte", WRITTEN_MAX);
    for repetition in 0..lab.repeat {
        lab.progress(BENCH, repetition, &row.name);
        let cluster = lab.cluster(&[INODES_MAX])?;
        let dir = cluster.directory(None)?;
        let entries = Entries { files, directories: 1 };
        let policy = policy("weak-none", files + 1)?.to_yaml();
        let before = cluster.disk_bytes()?;
        let task = Insert { dir, policy, entries, batch: BATCH, content: Some(CONTENT) };
        let outcome = alone(&cluster, Task::Insert(task))?;
        let written = real(cluster.disk_bytes()? - before) + outcome.part("disk_bytes");
        row.push(outcome.seconds());
        row.note("written_per_byte", written / outcome.part("inserted_bytes").max(1.0));
        row.note("written_mb", written / 1e6);
        row.note("server_peak_mb", real(cluster.peak_bytes()?) / 1e6);
        row.cpu(std::slice::from_ref(&outcome));
    }
    row.note("store_per_byte", amplification(files, Tuning::default())?);
    let inline = Tuning { segment_bytes_min: u64::MAX, ..Tuning::default() };
    row.note("store_per_byte_without_segments", amplification(files, inline)?);
    Ok(row)
}

/// Bytes that a store is given for each byte of names and content.
fn amplification(files: u64, tuning: Tuning) -> Result<f64> {
    let (store, executor) = (Memory::new(), Executor::new(tuning));
    let (mut came, mut written) = (0, 0);
    let mut names = Shuffled::new(files);
    let content = vec![0x5a; CONTENT[1] as usize];
    let dir = Ino(Ino::FIRST_FREE);
    let execute = |op| match executor.execute(&store, op) {
        Ok(StoreResult::Written { compact, bytes }) => Ok((compact, bytes.0)),
        Ok(other) => Err(Error::new(Errno::Io, BENCH, format!("{other:?}"))),
        Err(failure) => Err(failure.error),
    };
    let mut place = 0;
    while place < files {
        let mut rows = Rows::new();
        for _ in 0..BATCH.min(files - place) {
            let number = names.at(place);
            let data = &content[..content_bytes(number, CONTENT)];
            let (ino, mode) = (Ino(dir.0 + 1 + number), FileType::Regular.mode_bits() | 0o644);
            let attr = Attr { ino, mode, size: data.len() as u64, nlink: 1, ..Attr::default() };
            let name = names.name(number);
            let record = InodeRecord { attr, data, ..InodeRecord::default() };
            rows.push(name, RowValue::Inode(record));
            came += (name.len() + data.len()) as u64;
            place += 1;
        }
        let (counts, position, touched) = ((0, 0, false), Seq(1), Default::default());
        let op = StoreOp::CommitDir { ino: dir, rows, counts, position, touched, attach: None };
        let (mut compact, mut bytes) = execute(op)?;
        written += bytes;
        while compact {
            (compact, bytes) = execute(StoreOp::CompactDir { ino: dir })?;
            written += bytes;
        }
    }
    Ok(real(written) / real(came.max(1)))
}
