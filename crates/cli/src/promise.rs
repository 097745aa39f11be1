//! The promise of a policy, for people and in JSON.

use std::fmt::Write as _;

use cudele::Policy;
use serde_json::{Value, json};

/// The policy with everything that follows from it.
pub(crate) fn to_json(policy: &Policy) -> Value {
    let cell = policy.cell();
    json!({
        "policy": policy.to_json(),
        "effective": policy.effective().to_string(),
        "cell": cell.map(|cell| cell.to_string()),
        "guarantee": cell.map(|cell| {
            let promise = cell.guarantee();
            json!({
                "seen_by_others": promise.seen_by_others,
                "client_killed": promise.client_killed,
                "client_gone": promise.client_gone,
                "mds_killed": promise.mds_killed,
                "store_minority_lost": promise.store_minority_lost,
            })
        }),
        "warnings": warnings(policy),
    })
}

/// The warnings, each with its remedy.
pub(crate) fn warnings(policy: &Policy) -> Vec<String> {
    policy.warnings().iter().map(ToString::to_string).collect()
}

/// The promise line by line.
pub(crate) fn lines(policy: &Policy) -> Vec<String> {
    match policy.cell() {
        None => vec!["it promises nothing that one cell of the table describes".to_owned()],
        Some(cell) => {
            let guarantee = cell.guarantee().to_string();
            let promise = guarantee.lines().map(str::to_owned);
            std::iter::once(cell.to_string()).chain(promise).collect()
        }
    }
}

/// The canonical policy, with its promise and warnings as comments: itself a policy file.
pub(crate) fn to_text(policy: &Policy) -> String {
    let mut text = policy.to_yaml();
    let _ = writeln!(text, "# runs {}", policy.effective());
    for line in lines(policy) {
        let _ = writeln!(text, "# {line}");
    }
    for warning in warnings(policy) {
        let _ = writeln!(text, "# warning: {warning}");
    }
    text
}
