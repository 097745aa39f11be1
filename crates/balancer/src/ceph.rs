//! Ceph's dialect: one script that returns its targets; `mds` is counted from 0.

use mlua::{Function, Lua, Value};

use crate::mantle::read_targets;
use crate::script::{Machine, number, shown};
use crate::view::is_load;
use crate::{BalancerView, Counts, Fault, FaultKind};

/// Fills the globals in.
pub(crate) fn build(lua: &Lua, view: &BalancerView) -> mlua::Result<()> {
    let globals = lua.globals();
    globals.set("whoami", view.whoami.0)?;
    let mds = lua.create_table()?;
    for (rank, metrics) in view.ranks.iter().enumerate() {
        let one = lua.create_table()?;
        one.set("auth.meta_load", metrics.auth)?;
        one.set("all.meta_load", metrics.all)?;
        one.set("req_rate", metrics.requests_per_second)?;
        one.set("queue_len", metrics.queue)?;
        // A load average of 1 is one processor that is busy.
        one.set("cpu_load_avg", metrics.cpu_percent / 100.0)?;
        mds.raw_set(rank, one)?;
    }
    globals.set("mds", mds)
}

/// Runs the script: its loads, as far as it stored them in `mds`, and its targets.
pub(crate) fn run(
    machine: &Machine,
    script: &Function,
    view: &BalancerView,
) -> Result<(Vec<f64>, Vec<f64>), Fault> {
    let ranks = view.ranks.len();
    let result = machine.call(script)?;
    if let Value::Table(table) = &result {
        let entries = table.pairs::<Value, Value>().count();
        if entries != ranks {
            let message = format!("returns {entries} targets for {ranks} ranks");
            return Err(Fault::new(FaultKind::Result, message));
        }
    } else {
        let message = format!("returns {}, not a table of targets", shown(&result));
        return Err(Fault::new(FaultKind::Result, message));
    }
    let targets = read_targets(&result, ranks, 0)?;
    Ok((loads(machine, ranks), targets))
}

/// The values that the script stored as `load`, for the log of decisions; nothing depends on them.
fn loads(machine: &Machine, ranks: usize) -> Vec<f64> {
    let of = |rank: usize| -> Option<f64> {
        let mds: mlua::Table = machine.lua.globals().get("mds").ok()?;
        let one: mlua::Table = mds.raw_get(rank).ok()?;
        let load: Value = one.raw_get("load").ok()?;
        number(&load).filter(|load| is_load(*load))
    };
    (0..ranks).map(|rank| of(rank).unwrap_or(0.0)).collect()
}

/// The load of a fragment, which Ceph's scripts do not choose: CephFS's own.
pub(crate) fn metaload(counts: &Counts) -> f64 {
    counts.inode_reads
        + 2.0 * counts.inode_writes
        + counts.readdirs
        + 2.0 * counts.fetches
        + 4.0 * counts.stores
}
