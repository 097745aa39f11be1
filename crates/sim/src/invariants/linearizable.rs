//! Promise: in a strong subtree several clients see one namespace, changed by one request after
//! the other (`rpcs`: Table II, strong), and what was applied survives the crash of either side
//! (`stream`, two-phase reply).
//!
//! Judged by what clients saw alone: what that means when servers and clients crash is said in
//! [`linearize::names`].

use linearize::names::{History, Judgement};

/// The work that a history may take. The histories of the simulation take some thousand steps, one in
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
