//! Promise: when nothing fails any more, every request is answered soon.

use types::Span;

/// How long a cluster may take, in simulated time, from the last fault to the last answer.
pub const ANSWERED_WITHIN: Span = Span::from_millis(30_000);

/// Turns the requests that are left into a violation.
///
/// # Errors
/// If there are any.
pub fn check<'a>(left: impl Iterator<Item = String> + 'a) -> Result<(), String> {
    let left: Vec<_> = left.collect();
    if left.is_empty() {
        return Ok(());
    }
    Err(format!("never answered: {}", left.join("; ")))
}
