//! `persist`: a large journal goes into the object store, and right after it Ceph's own benchmark
//! writes as much with objects of the same size, as many at a time. On a store that is not in a
//! Ceph cluster there is no peer, and `mechanisms` has the speed of its disk.

use cudele::Result;

use crate::harness::lab::{Lab, decoupled};
use crate::harness::peers::rados::rados_bench;
use crate::harness::row::Row;
use crate::harness::stats::real;

const BENCH: &str = "persist";
/// The least share of the rate of `rados bench`.
const GOAL: f64 = 0.8;

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let files = lab.files(40_000_000, 50_000);
    let mut ours = Row::new(BENCH, "global_persist", files);
    let mut peer = Row::new(BENCH, "rados_bench", files);
    ours.goal("of_rados_bench", GOAL);
    let cluster = lab.cluster(&[])?;
    for repetition in 0..lab.repeat {
        lab.progress(BENCH, repetition, &format!("{files} files"));
        let done = decoupled(&cluster, "invisible-global", files)?;
        let seconds = done.part("global_persist");
        ours.push(seconds);
        ours.bytes_per_event = Some(real(done.bytes) / real(done.events.max(1)));
        ours.note("MB_per_second", real(done.bytes) / 1e6 / seconds);
        if let Some(rate) = rados_bench(cluster.store(), done.bytes)? {
            let theirs = real(done.bytes) / 1e6 / rate;
            peer.push(theirs);
            peer.note("MB_per_second", rate);
            ours.note("of_rados_bench", theirs / seconds);
        }
    }
    let store = cluster.store().to_owned();
    let rows = [ours, peer].into_iter().filter(|row| !row.seconds.is_empty());
    lab.report(&store, rows);
    Ok(())
}
