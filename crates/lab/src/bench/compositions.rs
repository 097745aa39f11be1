//! `compositions`: a job's creates and the completion of its policy, end to end, for every preset
//! and for all nine cells of Table II (Fig 6, right).

use cudele::Result;
use policy::{Cell, Preset};

use crate::harness::lab::{Lab, MORE, create, decoupled, policy};
use crate::harness::row::Row;
use crate::harness::stats::real;

const BENCH: &str = "compositions";

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let files = lab.files(100_000, 1_000);
    let presets = Preset::ALL.iter().map(|preset| preset.name.to_owned());
    let cells = Cell::all().map(|cell| cell.to_string());
    let more = MORE.iter().map(|(name, _)| (*name).to_owned());
    let names: Vec<_> = presets.chain(cells).chain(more).collect();
    let mut base = Row::new(BENCH, "append_client_journal", files);
    let mut rows: Vec<_> = names.iter().map(|name| Row::new(BENCH, name, files)).collect();
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        let cluster = lab.cluster(&[])?;
        let append = decoupled(&cluster, "invisible-none", files)?;
        let seconds = append.part("append_client_journal");
        base.push(seconds);
        base.against(seconds);
        for (name, row) in names.iter().zip(&mut rows) {
            lab.progress(BENCH, repetition, name);
            let policy = policy(name, files)?;
            if policy.is_decoupled() {
                let outcome = decoupled(&cluster, name, files)?;
                row.push(outcome.seconds());
                row.bytes_per_event = Some(real(outcome.bytes) / real(outcome.events.max(1)));
            } else {
                row.push(create(&cluster, name, files)?.seconds());
            }
            row.against(seconds);
        }
        cluster.store().clone_into(&mut store);
    }
    lab.report(&store, std::iter::once(base).chain(rows));
    Ok(())
}
