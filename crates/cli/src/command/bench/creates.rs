//! `creates`: creates by RPC, by one client and by several at once (U-01). Every client is a
//! process; each works in a directory of its own unless the row says otherwise.

use cudele::Result;

use super::cluster::TestCluster;
use super::job::Task;
use super::lab::{Lab, policy, together};
use super::row::Row;
use super::stats::real;

const BENCH: &str = "creates";

struct Case {
    name: String,
    preset: &'static str,
    clients: u32,
    one_directory: bool,
    alone: bool,
}

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let files = lab.files(100_000, 1_000);
    let many = lab.clients(8);
    let case = |name: String, preset, clients| Case {
        name,
        preset,
        clients,
        one_directory: false,
        alone: false,
    };
    let cases = [
        case("rpcs_1_client".into(), "posix-volatile", 1),
        case("sync_1_client".into(), "posix", 1),
        case(format!("rpcs_{many}_clients"), "posix-volatile", many),
        case(format!("sync_{many}_clients"), "posix", many),
        Case { one_directory: true, ..case("two_clients_one_directory".into(), "posix", 2) },
        Case { alone: true, ..case("async_1_client".into(), "posix", 1) },
        Case { alone: true, ..case("async_rpcs_1_client".into(), "posix-volatile", 1) },
    ];
    let row = |case: &Case| Row::new(BENCH, &case.name, files).clients(case.clients);
    let mut rows: Vec<_> = cases.iter().map(row).collect();
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        let cluster = lab.cluster(&[])?;
        for (case, row) in cases.iter().zip(&mut rows) {
            lab.progress(BENCH, repetition, &case.name);
            measure(&cluster, case, files, row)?;
        }
        cluster.store().clone_into(&mut store);
    }
    lab.report(&store, rows);
    Ok(())
}

fn measure(cluster: &TestCluster, case: &Case, files: u64, row: &mut Row) -> Result<()> {
    let policy = policy(case.preset, files)?;
    let sync = policy.streams();
    let shared = case.one_directory.then(|| cluster.directory(Some(&policy))).transpose()?;
    let mut tasks = Vec::new();
    for client in 0..u64::from(case.clients) {
        let (dir, first) = match &shared {
            Some(dir) => (dir.clone(), client * files),
            None => (cluster.directory(Some(&policy))?, 0),
        };
        let alone = case.alone;
        tasks.push(Task::Create { dir, first, files, sync, latencies: false, alone });
    }
    let result = together(cluster, tasks)?;
    row.push(result.seconds);
    row.cpu(&result.outcomes);
    let requests: u64 = result.outcomes.iter().map(|outcome| outcome.requests).sum();
    row.note("requests_per_create", real(requests) / real(files * u64::from(case.clients)));
    Ok(())
}
