//! Promise: checkpoint and journal together are the state (J-02): a server that recovered shows the
//! tree that its predecessor showed, down to every attribute.

use crate::region::Region;
use crate::tree::{Tree, differences};

/// Compares the tree that the server shows with the one expected.
///
/// # Errors
/// The differences outside unknown regions.
pub fn check(expected: &Tree, actual: &Tree, regions: &[Region], when: &str) -> Result<(), String> {
    let unknown = |path: &str| regions.iter().any(|region| !region.known && region.holds(path));
    let differences = differences(&blur(expected, regions), &blur(actual, regions), unknown);
    if differences.is_empty() {
        Ok(())
    } else {
        Err(format!("the tree is another one {when}:{differences}"))
    }
}

fn blur(tree: &Tree, regions: &[Region]) -> Tree {
    let mut tree = tree.clone();
    for item in tree.values_mut() {
        for region in regions {
            item.attr = region.blur(&item.attr);
        }
    }
    tree
}
