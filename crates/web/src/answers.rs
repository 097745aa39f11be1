//! The answers about the servers, the findings and the decoupled subtrees.

use std::collections::BTreeMap;

use cudele::{ClusterMap, Policy};
use httpserver::HttpRequest;
use serde_json::{Map, Value, json};
use wire::DecoupledSubtree;

use crate::ROWS_MAX;

/// The servers with their counters, the findings, and how much there is of the rest.
pub(crate) fn cluster(map: &ClusterMap) -> Value {
    let servers = map.mds.iter().map(|entry| {
        let counters = entry.counters.iter().map(|(name, value)| (name.clone(), json!(value)));
        json!({
            "rank": entry.rank.0, "state": entry.state.word(), "term": entry.epoch.0,
            "address": entry.address, "pid": entry.pid,
            "counters": Value::Object(counters.collect::<Map<_, _>>()),
        })
    });
    let findings = mon::conditions(map).into_iter().map(|found| {
        let severity = if mon::is_error(&found.code) { "error" } else { "warning" };
        json!({ "code": found.code, "severity": severity, "text": found.text, "remedy": found.remedy })
    });
    let balancer = map.balancer();
    json!({
        "cluster": map.cluster,
        "map": map.epoch.0,
        "store": map.store,
        "version": env!("CARGO_PKG_VERSION"),
        "servers": servers.collect::<Vec<_>>(),
        "findings": findings.collect::<Vec<_>>(),
        "balancer": { "version": balancer.version, "policy": balancer.name, "why": balancer.why },
        "policies": map.policies.len(),
        "decoupled": map.decoupled_count(),
        "listed": map.decoupled.len(),
        "promises": promises(map),
    })
}

/// How many decoupled subtrees have which promise, most first.
fn promises(map: &ClusterMap) -> Vec<Value> {
    let mut by_policy: BTreeMap<&str, u64> = BTreeMap::new();
    for subtree in &map.decoupled {
        *by_policy.entry(&subtree.policy).or_default() += 1;
    }
    let mut by_cell: BTreeMap<String, u64> = BTreeMap::new();
    for (policy, count) in by_policy {
        *by_cell.entry(cell(policy)).or_default() += count;
    }
    let mut all: Vec<_> = by_cell.into_iter().collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    all.into_iter().map(|(cell, count)| json!({ "promise": cell, "subtrees": count })).collect()
}

/// The promise to a subtree once its client has completed its policy.
fn cell(policy: &str) -> String {
    let parsed = Policy::parse(policy).ok().and_then(|parsed| parsed.policy.cell());
    parsed.map_or_else(|| "no single promise".to_owned(), |cell| cell.to_string())
}

/// The wanted rows of the list of decoupled subtrees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SubtreeQuery {
    /// So many rows are left out.
    pub(crate) from: usize,
    /// Only paths with this text.
    pub(crate) find: Vec<u8>,
}

impl SubtreeQuery {
    pub(crate) fn of(request: &HttpRequest<'_>) -> Self {
        let from = request.parameter("from").and_then(|from| from.parse().ok());
        let find = request.parameter("find").map(decoded);
        Self { from: from.unwrap_or_default(), find: find.unwrap_or_default() }
    }

    fn is_found(&self, subtree: &DecoupledSubtree) -> bool {
        let find = &self.find[..];
        find.is_empty() || subtree.path.windows(find.len()).any(|part| part == find)
    }
}

/// A value of a query as the browser meant it (`application/x-www-form-urlencoded`).
fn decoded(value: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), value.as_bytes());
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digits = std::str::from_utf8(&[*high, *low]).ok().map(types::hex::decode);
                if let Some(Some(decoded)) = digits {
                    bytes.extend(decoded);
                    rest = after;
                } else {
                    bytes.push(b'%');
                }
            }
            (b'+', _) => bytes.push(b' '),
            (byte, _) => bytes.push(*byte),
        }
    }
    bytes
}

/// A part of the list of decoupled subtrees.
pub(crate) fn decoupled(map: &ClusterMap, query: &SubtreeQuery) -> Value {
    let mut found = map.decoupled.iter().filter(|subtree| query.is_found(subtree));
    let mut cells: BTreeMap<&str, String> = BTreeMap::new();
    let rows: Vec<Value> = found
        .by_ref()
        .skip(query.from)
        .take(ROWS_MAX)
        .map(|subtree| {
            let DecoupledSubtree { path, ino, client, range, policy, next } = subtree;
            let promise = cells.entry(policy).or_insert_with(|| cell(policy));
            json!({
                "path": String::from_utf8_lossy(path), "ino": ino.0, "client": client.0,
                "numbers": range.end.saturating_sub(range.start), "policy": policy,
                "promise": promise, "next_policy": next,
            })
        })
        .collect();
    let before = query.from.min(map.decoupled.len());
    let total = match query.find.is_empty() {
        true => map.decoupled.len(),
        false => map.decoupled.iter().filter(|subtree| query.is_found(subtree)).count(),
    };
    json!({ "total": total, "from": before, "rows": rows })
}
