//! Promise: a subtree without `stream` writes no journal (M-02, P-05).

/// Compares the bytes that were appended to journals before and after.
///
/// # Errors
/// If there are more.
pub fn check(before: u64, after: u64) -> Result<(), String> {
    if before == after {
        return Ok(());
    }
    Err(format!("{} bytes were journalled for a subtree without stream", after - before))
}
