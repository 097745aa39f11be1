use types::Attr;

use super::*;
use crate::tree::Item;

const REGIONS: [(u64, &str); 2] = [(20, "/s"), (21, "/v")];

/// The simulation learns a tree in which the directory of inode 30 has these paths. A crash has
/// undone changes in `/v`. Returns whether the model knows the regions `/s` and `/v` then, and
/// whether the tree breaks a promise.
fn look(paths: [&str; 2]) -> ([bool; 2], bool) {
    let mut rng = Rng::new(0);
    let plan = Plan::draw(&mut rng);
    let mut run = Requests::new(plan, rng, false);
    let region = |(root, path)| Region::new(Ino(root), path, RegionKind::Strong);
    run.oracle.regions = REGIONS.map(region).into();
    run.oracle.regions[1].known = false;
    let item = |ino| {
        let attr = Attr { ino: Ino(ino), mode: 0o040_755, ..Attr::default() };
        Item { attr, ..Item::default() }
    };
    let mut tree = Tree::from([(String::new(), item(1))]);
    tree.extend(REGIONS.map(|(root, path)| (path.to_owned(), item(root))));
    tree.extend(paths.map(|path| (path.to_owned(), item(30))));
    run.learn(&tree);
    let known = [0, 1].map(|at: usize| run.oracle.regions[at].known);
    (known, run.world.violation.is_some())
}

#[test]
fn a_region_in_which_an_inode_is_in_two_places_stays_unknown() {
    assert_eq!(look(["/v/a", "/v/b"]), ([true, false], false));
    assert_eq!(look(["/v/a", "/v/a"]), ([true, true], false), "one place");
}

#[test]
fn an_inode_in_two_places_of_a_known_region_breaks_a_promise() {
    assert!(look(["/s/a", "/s/b"]).1);
    assert!(look(["/s/a", "/v/b"]).1);
}
