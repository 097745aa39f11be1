//! `journal-size`: bytes of journal per create (Fig 7, J-06), for names that count and for real
//! names with their attributes.

use cudele::Result;

use crate::harness::job::{JobOutcome, Task};
use crate::harness::lab::{Lab, Size, alone, decoupled, policy};
use crate::harness::row::Row;
use crate::harness::stats::real;

const BENCH: &str = "journal-size";
const SIZES: [u64; 6] = [10, 100, 1_000, 10_000, 100_000, 1_000_000];

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let cluster = lab.cluster(&[])?;
    let mut rows = Vec::new();
    for files in lab.sizes(&SIZES, 10_000) {
        lab.progress(BENCH, 0, &format!("{files} files"));
        let outcome = decoupled(&cluster, "invisible-none", files)?;
        rows.push(row(format!("numbered_{}", Size(files)), &outcome, 0.0));
    }
    let mut before = 0;
    for limit in lab.sizes(&SIZES, 10_000) {
        lab.progress(BENCH, 0, &format!("{limit} real names"));
        let dir = cluster.directory(None)?;
        let policy = policy("invisible-none", limit)?.to_yaml();
        let source = lab.names.clone();
        let outcome = alone(&cluster, Task::Walk { dir, policy, source, limit })?;
        // A tree that is smaller than the size asked for is measured once, as a whole.
        if outcome.events > before {
            before = outcome.events;
            rows.push(row(format!("real_{}", Size(limit)), &outcome, outcome.seconds()));
        }
    }
    let store = cluster.store().to_owned();
    lab.report(&store, rows);
    Ok(())
}

fn row(name: String, outcome: &JobOutcome, seconds: f64) -> Row {
    let mut row = Row::new(BENCH, name, outcome.events);
    let append = outcome.part("append_client_journal");
    row.push(if append > 0.0 { append } else { seconds });
    row.bytes_per_event = Some(real(outcome.bytes) / real(outcome.events.max(1)));
    row.note("journal_bytes", real(outcome.bytes));
    row
}
