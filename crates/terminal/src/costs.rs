//! The costs of mechanisms, out of the rows that `cudele bench mechanisms --json` prints.

use advise::{Costs, Curve};
use serde_json::Value;

/// Seconds from a job's last change to its end, in the rows of mechanisms that complete a journal.
pub const COMPLETION: &str = "completion_seconds";

/// The costs that rows of the benchmark say.
pub fn of_rows(rows: &Value) -> Option<Costs> {
    let rows = rows.as_array()?;
    let named = |name: &'static str| {
        rows.iter().filter(move |row| row["bench"] == "mechanisms" && row["name"] == name)
    };
    let curve_of = |name, figure: &str| {
        let seconds = |row: &Value| row[figure].as_f64().or_else(|| row["median"].as_f64());
        let points: Vec<(f64, f64)> =
            named(name).filter_map(|row| Some((row["files"].as_f64()?, seconds(row)?))).collect();
        (!points.is_empty()).then(|| Curve::through(&points))
    };
    let alone = |name| curve_of(name, "median");
    // A job waits for all of it; rows of older versions have the mechanism only.
    let completion = |name| curve_of(name, COMPLETION);
    Some(Costs {
        append: alone("append_client_journal")?,
        local: completion("local_persist")?,
        global: completion("global_persist")?,
        apply: completion("volatile_apply")?,
        store: completion("nonvolatile_apply")?,
        rpcs: alone("rpcs")?,
        stream: alone("rpcs+stream")?,
        logged: alone("rpcs+local_persist"),
        bytes: named("local_persist").find_map(|row| row["bytes_per_event"].as_f64())?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::of_rows;

    #[test]
    fn costs_are_what_rows_say() {
        let row = |name: &str, files: u64, median: f64| json!({"bench": "mechanisms", "name": name, "files": files, "median": median, "bytes_per_event": 3.5});
        let names = [
            "local_persist",
            "global_persist",
            "volatile_apply",
            "nonvolatile_apply",
            "rpcs",
            "rpcs+stream",
        ];
        let mut rows: Vec<_> = names.iter().map(|name| row(name, 1000, 0.5)).collect();
        assert_eq!(of_rows(&json!(rows)), None, "a mechanism is missing");
        rows.push(row("append_client_journal", 1000, 0.002));
        rows.push(row("append_client_journal", 11_000, 0.012));
        let costs = of_rows(&json!(rows)).unwrap();
        assert!((costs.append.of(6000.0) - 0.007).abs() < 1e-12, "{costs:?}");
        assert!((costs.rpcs.of(2000.0) - 1.0).abs() < 1e-12);
        assert!((costs.local.of(1000.0) - 0.5).abs() < 1e-12);
        for row in &mut rows {
            row["completion_seconds"] = json!(0.75);
        }
        let costs = of_rows(&json!(rows)).unwrap();
        assert!((costs.local.of(1000.0) - 0.75).abs() < 1e-12, "with what is beside it");
        assert!((costs.rpcs.of(1000.0) - 0.5).abs() < 1e-12, "nothing completes requests");
        assert_eq!(of_rows(&json!({})), None);
    }
}
