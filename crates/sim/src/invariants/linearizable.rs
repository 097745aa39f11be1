//! Promise: in a strong subtree several clients see one namespace, changed by one request after the
//! other (`rpcs`: Table II, strong), and an applied change survives the crash of either side
//! (`stream`, two-phase reply).
//!
//! Judged by the clients' view alone: [`linearize::names`] defines its meaning when servers and
//! clients crash.

use linearize::names::{History, Judgement};

/// The most steps for a history. The histories of the simulation take some thousand steps, one in
/// some thousand simulations takes millions, in a second or two.
pub const STEPS_MAX: u64 = 20_000_000;

/// Judges a history.
///
/// # Errors
/// If no order of the requests explains the answers, or none was found in time.
pub fn check(history: &History) -> Result<(), String> {
    match history.judge(STEPS_MAX) {
        Judgement::Linearizable => Ok(()),
        Judgement::Violation(text) => Err(format!("not linearizable: {text}")),
        Judgement::Unknown(text) => Err(format!("linearizable or not: {text}")),
    }
}
