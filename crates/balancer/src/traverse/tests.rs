use types::{Frag, Ino};

use super::*;
use crate::{Counts, Unit};

/// A tree of (name, parent, load); names are places.
fn view(tree: &[(Option<usize>, f64)]) -> BalancerView {
    let unit = |(at, (parent, load)): (usize, &(Option<usize>, f64))| Unit {
        id: DirFragId { ino: Ino(at as u64 + 10), frag: Frag::WHOLE },
        parent: *parent,
        counts: Counts { inode_writes: *load, ..Counts::default() },
        inodes: 1,
        movable: at > 0,
        pin: None,
    };
    BalancerView {
        whoami: Rank(0),
        ranks: vec![crate::Metrics::default(); 4],
        units: tree.iter().enumerate().map(unit).collect(),
        ..BalancerView::default()
    }
}

fn walk(
    view: &BalancerView,
    targets: &[(u16, f64)],
    selectors: &[Selector],
) -> (Vec<(usize, u16)>, Selection) {
    let settings = BalancerSettings::default();
    let mut walk = Walk::new(view, &settings, selectors);
    let load = &mut |counts: &Counts| Ok(counts.inode_writes);
    walk.pins(load).unwrap();
    for (rank, target) in targets {
        walk.fill(Rank(*rank), *target, load).unwrap();
    }
    let found = walk.found();
    (found.exports.iter().map(|export| (export.unit, export.to.0)).collect(), found)
}

const BIG: &[Selector] = &[Selector::BigFirst];

/// A root with two directories; the first has a hot leaf and a cold one.
fn hot_leaf() -> BalancerView {
    view(&[(None, 60.0), (Some(0), 41.0), (Some(1), 40.0), (Some(1), 1.0), (Some(0), 19.0)])
}

#[test]
fn a_parent_that_fits_is_never_divided() {
    assert_eq!(walk(&hot_leaf(), &[(1, 41.0)], BIG).0, [(1, 1)]);
    assert_eq!(walk(&hot_leaf(), &[(1, 40.0)], BIG).0, [(1, 1)], "a fifth too much fits");
}

#[test]
fn a_too_popular_unit_is_divided_and_the_smallest_that_fits_is_sent() {
    let deep = view(&[
        (None, 100.0),
        (Some(0), 100.0),
        (Some(1), 60.0),
        (Some(2), 30.0),
        (Some(2), 30.0),
        (Some(1), 40.0),
    ]);
    assert_eq!(walk(&deep, &[(1, 30.0)], BIG).0, [(3, 1)]);
    assert_eq!(walk(&deep, &[(1, 60.0)], BIG).0, [(2, 1)]);
}

#[test]
fn a_leaf_that_is_too_popular_stays_and_is_named() {
    let (sent, found) = walk(&hot_leaf(), &[(1, 5.0)], BIG);
    assert_eq!(sent, [(3, 1)], "the cold one is all that fits");
    assert_eq!(
        found.indivisible,
        [
            DirFragId { ino: Ino(12), frag: Frag::WHOLE },
            DirFragId { ino: Ino(14), frag: Frag::WHOLE }
        ]
    );
}

#[test]
fn tiny_units_are_sent_last() {
    let mut tree = vec![(None, 200.0), (Some(0), 100.0), (Some(1), 50.0), (Some(1), 50.0)];
    tree.extend([(Some(0), 0.1); 20]);
    let (sent, _) = walk(&view(&tree), &[(1, 50.0)], BIG);
    assert_eq!(sent, [(2, 1)], "and twenty small moves are saved");
}

#[test]
fn several_targets_share_and_nothing_goes_twice() {
    let tree: Vec<_> = std::iter::once((None, 80.0)).chain([(Some(0), 10.0); 8]).collect();
    let (sent, found) = walk(&view(&tree), &[(1, 20.0), (2, 20.0), (3, 20.0)], BIG);
    assert_eq!(sent, [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3)]);
    assert_eq!(found.exports.iter().map(|export| export.load).sum::<f64>(), 60.0);
}

#[test]
fn a_divided_unit_is_not_sent_as_a_whole() {
    // Rank 1 gets the hot leaf; for rank 2 the rest of its parent would fit, but part of it is
    // gone.
    let tree = view(&[(None, 50.0), (Some(0), 50.0), (Some(1), 30.0), (Some(1), 20.0)]);
    assert_eq!(walk(&tree, &[(1, 30.0), (2, 20.0)], BIG).0, [(2, 1), (3, 2)]);
    assert_eq!(walk(&tree, &[(1, 30.0), (2, 60.0)], BIG).0, [(2, 1), (3, 2)]);
}

#[test]
fn pins_come_first_and_hold() {
    let mut view = hot_leaf();
    view.units[2].pin = Some(Rank(3));
    view.units[4].pin = Some(Rank(0));
    let (sent, found) = walk(&view, &[(1, 60.0)], BIG);
    assert_eq!(sent, [(2, 3), (3, 1)], "what holds a pinned part is not sent whole");
    assert_eq!(found.exports[0].selector, None);
    view.units[1].pin = Some(Rank(0));
    assert_eq!(walk(&view, &[(1, 60.0)], BIG).0, [(2, 3)], "the innermost pin holds");
    view.units[2].pin = Some(Rank(9));
    assert_eq!(walk(&view, &[(1, 60.0)], BIG).0, [], "a rank that is not there");
}

#[test]
fn an_unmovable_unit_is_divided() {
    let mut view = hot_leaf();
    view.units[1].movable = false;
    assert_eq!(walk(&view, &[(1, 40.0)], BIG).0, [(2, 1)]);
}

#[test]
fn units_without_load_are_not_sent() {
    let idle = view(&[(None, 0.0), (Some(0), 0.0)]);
    assert_eq!(walk(&idle, &[(1, 5.0)], &[Selector::Half]).0, []);
}
