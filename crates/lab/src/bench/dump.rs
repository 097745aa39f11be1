//! `dump`: the names of a directory of many names into a file, and from the file into another
//! directory, beside the job that made them.

use std::time::Instant;

use branches::Branches;
use cudele::{NewFile, Result};
use ingest::dump::{DUMP_VERSION, DumpFile, DumpHeader, DumpSource, dump};
use ingest::intake::{self, IntakeOptions};
use ingest::source::Source;

use crate::harness::cluster::TestCluster;
use crate::harness::lab::{Lab, policy};
use crate::harness::row::Row;
use crate::harness::stats::real;

const BENCH: &str = "dump";
/// Names of one directory of the tree.
const NAMES_PER_DIR: u64 = 1_000;
/// Names a minute.
const GOAL: f64 = 1e7;
const PER_MINUTE: &str = "names_per_minute";

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let names = lab.files(1_000_000, 5_000);
    let row = |name: &str| Row::new(BENCH, name, names);
    let (mut job, mut dumped, mut loaded) = (row("job"), row("dump"), row("load"));
    for row in [&mut dumped, &mut loaded] {
        row.goal(PER_MINUTE, GOAL);
    }
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        lab.progress(BENCH, repetition, &format!("{names} names"));
        let cluster = lab.cluster(&[])?;
        let start = Instant::now();
        make(&cluster, "/tree", names)?;
        let alone = start.elapsed().as_secs_f64();
        job.push(alone);
        cluster.checkpoint()?;
        let place = tempfile::tempdir().map_err(|error| terminal::io("dump".as_ref(), &error))?;
        let file = place.path().join("tree.dump");
        let start = Instant::now();
        let bytes = write(&cluster, &file)?;
        note(&mut dumped, start, names, alone);
        dumped.note("bytes_per_name", real(bytes) / real(names));
        let start = Instant::now();
        let options = IntakeOptions::default();
        let (fs, source) = (cluster.client()?, Source::open_dump(&file)?);
        intake::decoupled(&fs, "/copy", &policy("batchfs", names)?, &source, &options)?;
        note(&mut loaded, start, names, alone);
        cluster.store().clone_into(&mut store);
    }
    lab.report(&store, [job, dumped, loaded]);
    Ok(())
}

fn note(row: &mut Row, start: Instant, names: u64, base: f64) {
    let seconds = start.elapsed().as_secs_f64();
    row.push(seconds);
    row.note(PER_MINUTE, real(names) / seconds * 60.0);
    row.against(base);
}

/// Makes the names by the job of one client, merged and seen by all.
fn make(cluster: &TestCluster, path: &str, names: u64) -> Result<()> {
    cluster.make_dir(path)?;
    let fs = cluster.client()?;
    let mut subtree = fs.decouple(path, &policy("batchfs", names + names / NAMES_PER_DIR + 1)?)?;
    let root = subtree.root();
    let mut dir = root;
    for number in 0..names {
        if number % NAMES_PER_DIR == 0 {
            let name = format!("d{:05}", number / NAMES_PER_DIR);
            dir = subtree.create(root, name.as_bytes(), &NewFile::directory())?;
        }
        let name = format!("file.{number:08}");
        subtree.create(dir, name.as_bytes(), &NewFile::default())?;
    }
    subtree.merge().map(drop)
}

/// Dumps as the command does: the snapshot, the names, and the snapshot is removed. Returns the
/// length of the file.
fn write(cluster: &TestCluster, file: &std::path::Path) -> Result<u64> {
    let fs = cluster.client()?;
    let branches = Branches::of(fs.store().clone());
    let info = branches.create(BENCH, &cudele::parse_path("/tree")?, Some(&fs))?;
    let mut to = DumpFile::create(file)?;
    to.begin(&DumpHeader {
        cudele_dump: DUMP_VERSION,
        path: info.path.to_string(),
        branch: info.name.clone(),
        branch_is_temporary: true,
        time_ns: info.branch.time.0,
    })?;
    dump(&DumpSource { branches: branches.clone(), name: info.name }, &mut to, None)?;
    branches.remove(BENCH)?;
    branches.collect(false)?;
    Ok(to.bytes)
}
