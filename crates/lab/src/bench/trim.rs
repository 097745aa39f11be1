//! `trim`: how long a synchronous client waits at worst while the server writes checkpoints and
//! trims its journal (J-04), beside the same without trimming.

use cudele::Result;

use crate::harness::job::Task;
use crate::harness::lab::{Lab, alone, policy};
use crate::harness::row::Row;
use crate::harness::stats::real;

const BENCH: &str = "trim";

const CASES: [(&str, &[&str]); 2] = [
    ("no_trimming", &["segments_max=100000"]),
    ("trimming", &["segment_bytes_max=262144", "segments_max=2"]),
];

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let files = lab.files(300_000, 3_000);
    let mut rows = CASES.map(|(name, _)| Row::new(BENCH, name, files));
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        for (row, (name, settings)) in rows.iter_mut().zip(&CASES) {
            lab.progress(BENCH, repetition, name);
            let cluster = lab.cluster(settings)?;
            let dir = cluster.directory(Some(&policy("posix", files)?))?;
            let task =
                Task::Create { dir, first: 0, files, sync: true, latencies: true, alone: false };
            let outcome = alone(&cluster, task)?;
            row.push(outcome.seconds());
            let [p50, p99, p999, max] = outcome.latencies_us.unwrap_or_default();
            let figures = [("p50_us", p50), ("p99_us", p99), ("p999_us", p999), ("max_us", max)];
            for (figure, value) in figures {
                row.note(figure, value);
            }
            row.note("trimmed_segments", real(cluster.counter("trimmed_segments")?));
            cluster.store().clone_into(&mut store);
        }
    }
    lab.report(&store, rows);
    Ok(())
}
