//! Prints how fast rows are captured, encoded, read and overlaid, and how long they are.
//!
//! `cargo run --release -p metastore --example throughput [rows]`

#![allow(clippy::disallowed_types, reason = "a measurement needs a clock")]
#![allow(clippy::disallowed_methods, reason = "a measurement needs a clock")]
#![allow(clippy::print_stdout, reason = "its output is the point")]

use std::hint::black_box;
use std::time::Instant;

use metastore::{InodeRecord, Manifest, RowValue, Rows, RunId, RunInfo, RunReader, merge};
use types::{Attr, DirFragId, Frag, Ino, Seq, Timestamp};

const DIRFRAG: DirFragId = DirFragId { ino: Ino(1 << 40), frag: Frag::WHOLE };

fn main() {
    let count = std::env::args().nth(1).and_then(|rows| rows.parse().ok()).unwrap_or(1_000_000);
    println!("{count} rows");
    let mut rows = Rows::new();
    timed("capture, into a new buffer", count, || fill(&mut rows, count, 1));
    rows.clear();
    timed("capture, into a warm buffer", count, || fill(&mut rows, count, 1));
    let mut ordered = Rows::new();
    fill(&mut ordered, count, 0);
    timed("encode, captured in order", count, || drop(black_box(encode(ordered, 1))));
    let run = timed("sort and encode, captured at random", count, || encode(rows, 1));
    println!("{:44} {:8.2} bytes", "a row in the run", run.len() as f64 / count as f64);
    let reader = timed("open and verify", count, || RunReader::open(&run)).expect("valid");
    timed("read in order", count, || {
        let mut cursor = reader.iter();
        while let Some(row) = cursor.next_row().expect("valid") {
            black_box(row);
        }
    });
    timed("get, at random", count, || {
        for number in 0..count {
            let name = name(scatter(number, 1));
            assert!(black_box(reader.get(name.as_bytes())).is_ok());
        }
    });
    overlay("load one run", std::slice::from_ref(&run), count);
    overlay("load four runs that interleave", &split(count, |number| number % 4), count);
    overlay("load four runs in stretches", &split(count, |number| number / 1000 % 4), count);
}

fn timed<T>(what: &str, count: u64, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    let seconds = start.elapsed().as_secs_f64();
    let rate = count as f64 / seconds / 1e6;
    println!("{what:44} {rate:8.2} million rows/s  {:7.1} ms", seconds * 1e3);
    result
}

fn overlay(what: &str, runs: &[Vec<u8>], count: u64) {
    let mut manifest = Manifest { next_run: 99, ..Manifest::new(DIRFRAG) };
    for run in runs {
        manifest.runs.push(RunInfo::of(&RunReader::open(run).expect("valid")));
    }
    let rows = timed(what, count, || merge(&manifest, runs)).expect("valid");
    assert_eq!(rows.len() as u64, count);
}

fn split(count: u64, part: impl Fn(u64) -> u64) -> Vec<Vec<u8>> {
    let mut parts: Vec<Rows> = (0..4).map(|_| Rows::new()).collect();
    for number in 0..count {
        let rows = &mut parts[usize::try_from(part(number)).expect("0 to 3")];
        push(rows, number, number);
    }
    parts.into_iter().zip(1..).map(|(rows, id)| encode(rows, id)).collect()
}

fn encode(rows: Rows, id: u64) -> Vec<u8> {
    rows.into_run(DIRFRAG, RunId(id))
}

fn fill(rows: &mut Rows, count: u64, random: u64) {
    for number in 0..count {
        push(rows, scatter(number, random), number);
    }
}

/// A permutation of the numbers below 2^24 if `random`, else the number itself.
fn scatter(number: u64, random: u64) -> u64 {
    if random == 0 { number } else { number.wrapping_mul(0x9E37_79B1) & 0xff_ffff }
}

fn name(number: u64) -> String {
    format!("file.{number:08}")
}

/// A file that a job created: 50 microseconds after the one before, version by version.
fn push(rows: &mut Rows, named: u64, number: u64) {
    let mut bytes = *b"file.00000000";
    let mut rest = named;
    for digit in bytes[5..].iter_mut().rev() {
        *digit = b"0123456789"[(rest % 10) as usize];
        rest /= 10;
    }
    let time = Timestamp(1_700_000_000_000_000_000 + number.cast_signed() * 50_000);
    let attr = Attr {
        ino: Ino((1 << 40) + number),
        mode: 0o100_644,
        uid: 1000,
        gid: 100,
        nlink: 1,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        ..Attr::default()
    };
    let version = Seq(1_000_000 + number);
    rows.push(&bytes, RowValue::Inode(InodeRecord { attr, version, ..InodeRecord::default() }));
}
