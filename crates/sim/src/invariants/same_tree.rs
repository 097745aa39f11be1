//! Promise: checkpoint and journal together are the state (J-02): a server that recovered shows the
//! tree that its predecessor showed, down to every attribute.

use crate::region::Region;
use crate::tree::{Tree, differences};

/// Compares the tree that the server shows with the one expected.
///
/// # Errors
/// What differs, outside regions of which nothing is known.
pub fn check(expected: &Tree, actual: &Tree, regions: &[Region], when: &str) -> Result<(), String> {
    let unknown =
        |path: &str| regions.iter().any(|region| !region.known && region.holds(path));
    let differences = differences(expected, actual, unknown);
    if differences.is_empty() {
        Ok(())
    } else {
        Err(format!("the tree is another one {when}:{differences}"))
    }
}
