//! `cudele health`: what somebody should know of the cluster, and do about it.

use std::fmt::Write as _;

use clap::Args as ClapArgs;
use cudele::{ClusterMap, MdsState, Result, Warning};
use serde_json::{Value, json};

use crate::context::Context;

/// Show what is wrong with the cluster: a code for each finding, what it means, and a remedy.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele health --json")]
pub(crate) struct Args {}

pub(crate) fn run(context: &Context, _: &Args) -> Result<()> {
    let map = context.cluster()?.status()?;
    let found = checks(&map);
    let state = if found.is_empty() { "ok" } else { "warning" };
    let value = json!({ "health": state, "checks": to_json(&found) });
    context.print(&value, || {
        let mut text = String::new();
        if found.is_empty() {
            text.push_str("All is well.\n");
        }
        found.iter().for_each(|warning| to_text(&mut text, warning));
        text
    })
}

/// All findings, as JSON.
pub(crate) fn to_json(found: &[Warning]) -> Value {
    let rows = found.iter().map(
        |warning| json!({ "code": warning.code, "text": warning.text, "remedy": warning.remedy }),
    );
    Value::Array(rows.collect())
}

/// One finding, for people.
pub(crate) fn to_text(text: &mut String, warning: &Warning) {
    let Warning { code, text: what, remedy } = warning;
    let _ = writeln!(text, "{code}  {what}; {remedy}");
}

/// What the map says, and what the servers warn of.
pub(crate) fn checks(map: &ClusterMap) -> Vec<Warning> {
    let mut found = Vec::new();
    for entry in &map.mds {
        let (code, what, remedy) = match entry.state {
            MdsState::Active => continue,
            MdsState::Lost => ("MDS_LOST", "has no server", "`cudele up` starts one"),
            MdsState::Replaying => {
                ("MDS_REPLAYING", "reads its journal", "wait; clients wait for it, too")
            }
            MdsState::Stopping => {
                ("MDS_STOPPING", "is stopping", "`cudele up` starts it when it has stopped")
            }
        };
        let text = format!("{} {what}", entry.rank);
        found.push(Warning { code: code.into(), text, remedy: remedy.into() });
    }
    if let [.., before, current] = &map.balancers[..]
        && before.failed
    {
        found.push(Warning {
            code: "BALANCER_REVERTED".into(),
            text: format!(
                "balancer policy {} (version {}) was given up, and {} is in force again: {}",
                before.name, before.version, current.name, current.why
            ),
            remedy: "correct the policy and `cudele balancer set` it".into(),
        });
    }
    for (rank, warning) in &map.warnings {
        found.push(Warning { text: format!("{rank}: {}", warning.text), ..warning.clone() });
    }
    found
}
