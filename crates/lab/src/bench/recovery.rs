//! `recovery`: the metadata server is killed and started again; how long until it serves, by the
//! number of events in its journal.

use cudele::Result;

use crate::harness::job::Task;
use crate::harness::lab::{Lab, Size, policy, together};
use crate::harness::row::Row;
use crate::harness::stats::{median, real};

const BENCH: &str = "recovery";
/// Nothing is trimmed, so that the whole journal is replayed.
const SETTINGS: [&str; 1] = ["segments_max=100000"];

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let events = lab.files(1_000_000, 5_000);
    let clients = lab.clients(8);
    let settings = SETTINGS.map(str::to_owned);
    let mut empty = Row::new(BENCH, "empty_journal", 0);
    let mut full = Row::new(BENCH, format!("journal_{}", Size(events)), events);
    let mut cluster = lab.cluster(&SETTINGS)?;
    for repetition in 0..lab.repeat {
        lab.progress(BENCH, repetition, "empty journal");
        cluster.kill_mds()?;
        empty.push(cluster.start_mds(&settings)?);
    }
    let policy = policy("posix", events)?;
    let dir = cluster.directory(Some(&policy))?;
    let share = events.div_ceil(u64::from(clients));
    let tasks = (0..u64::from(clients)).map(|client| Task::Create {
        dir: dir.clone(),
        first: client * share,
        files: share,
        sync: true,
        latencies: false,
        alone: false,
    });
    lab.progress(BENCH, 0, &format!("{events} creates"));
    together(&cluster, tasks.collect())?;
    cluster.settle()?;
    for repetition in 0..lab.repeat {
        lab.progress(BENCH, repetition, "full journal");
        cluster.kill_mds()?;
        let seconds = cluster.start_mds(&settings)?;
        let recovered = cluster.counter("recovered_events")?;
        full.push(seconds);
        full.note("server_cpu_us", cluster.server_cpu_seconds()? * 1e6 / real(events));
        full.note("recovered_events", real(recovered));
        full.note("events_per_second", real(recovered) / seconds);
        // Beside the total: without the cost of every start.
        let replay = (seconds - median(&empty.seconds)).max(1e-9);
        full.note("replayed_per_second", real(recovered) / replay);
    }
    let store = cluster.store().to_owned();
    lab.report(&store, [empty, full]);
    Ok(())
}
