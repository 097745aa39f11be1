//! `branch`: making a branch of a large tree and looking into it, given the store (E-04). The time
//! must not depend on the size of the tree.

use std::time::Instant;

use branches::Branches;
use cudele::{Cluster, Error, MergeBy, NewFile, Path, Result};

use crate::harness::lab::{Fill, Lab, Size, fill};
use crate::harness::row::Row;
use crate::harness::stats::real;

const BENCH: &str = "branch";
const SIZES: [u64; 3] = [10_000, 1_000_000, 10_000_000];
/// The files are in so many directories.
const DIRS: u64 = 10;
/// Branches that are made one after the other.
const BRANCHES: u32 = 20;

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    for size in lab.sizes(&SIZES, 10_000) {
        let row = |way: &str| Row::new(BENCH, format!("{way}_{}", Size(size)), size);
        let (mut first, mut open, mut write) = (row("first"), row("open"), row("write"));
        let mut store = String::new();
        for repetition in 0..lab.repeat {
            lab.progress(BENCH, repetition, &format!("{size} files"));
            let cluster = lab.cluster(&[])?;
            let dir = cluster.directory(None)?;
            let fs = Cluster::connect(&cluster.address().parse()?)?.mount()?;
            for number in 0..DIRS {
                let dir = format!("{dir}/d{number}");
                fs.make_dir(&dir, 0o755)?;
                let (files, merge_by) = (size / DIRS, MergeBy::Reference);
                fill(&cluster, Fill { dir: &dir, first: 0, files, merge: true, merge_by })?;
            }
            let branches = Branches::open(cluster.store())?;
            let path = Path::parse(&dir).map_err(|errno| Error::of(errno, dir.clone()))?;
            // The server stores its pending changes now.
            let start = Instant::now();
            branches.create("first", &path, Some(&fs))?;
            first.push(start.elapsed().as_secs_f64());
            for number in 0..BRANCHES {
                let name = format!("b{number}");
                let start = Instant::now();
                branches.create(&name, &path, Some(&fs))?;
                let made = start.elapsed().as_secs_f64();
                let mut view = branches.view(&[&name])?;
                let seen = view.list(view.root())?.len() as u64;
                let seconds = start.elapsed().as_secs_f64();
                open.push(seconds);
                open.note("make_seconds", made);
                open.note("entries", real(seen));
                open.note("directories_read", real(view.fetched()));
            }
            // The first thing that is done in one.
            let start = Instant::now();
            let mut work = branches.work_on("first")?;
            let root = work.root();
            work.create(root, b"new", &NewFile::default())?;
            work.commit()?;
            write.push(start.elapsed().as_secs_f64());
            cluster.store().clone_into(&mut store);
        }
        lab.report(&store, [first, open, write]);
    }
    Ok(())
}
