use types::{DirFragId, Frag, Ino, Moment, Span};

use super::*;

fn id(ino: u64) -> DirFragId {
    DirFragId { ino: Ino(ino), frag: Frag::WHOLE }
}

fn seconds(seconds: u64) -> Moment {
    Moment(seconds * 1_000_000_000)
}

#[test]
fn half_of_every_count_is_gone_after_a_half_life() {
    let mut table = LoadTable::new(LoadTable::HALF_LIFE);
    table.hit(&[id(9), id(1)], HitKind::InodeWrite, 8.0, seconds(1));
    assert_eq!(table.nested(id(9), seconds(6)).inode_writes, 4.0);
    assert_eq!(table.nested(id(9), seconds(16)).inode_writes, 1.0);
    // Half of the first count is left when the second one comes.
    table.hit(&[id(9), id(1)], HitKind::InodeWrite, 1.0, seconds(6));
    assert_eq!(table.nested(id(9), seconds(6)).inode_writes, 5.0);
}

#[test]
fn a_hit_counts_for_the_fragment_and_for_all_above_it() {
    let mut table = LoadTable::new(LoadTable::HALF_LIFE);
    table.hit(&[id(30), id(3), id(1)], HitKind::InodeRead, 1.0, seconds(0));
    table.hit(&[id(3), id(1)], HitKind::ReadDir, 1.0, seconds(0));
    table.hit(&[id(30), id(3), id(1)], HitKind::Fetch, 2.0, seconds(0));
    table.hit(&[id(1)], HitKind::Store, 4.0, seconds(0));
    let root = table.nested(id(1), seconds(0));
    assert_eq!(root.named().map(|(_, value)| value), [1.0, 0.0, 1.0, 2.0, 4.0]);
    assert_eq!(table.own(id(1), seconds(0)).sum(), 4.0);
    assert_eq!(table.own(id(3), seconds(0)).named()[2], ("READDIR", 1.0));
    assert_eq!(table.nested(id(3), seconds(0)).sum(), 4.0);
    assert_eq!(table.nested(id(77), seconds(0)), Counts::default());
}

#[test]
fn fragments_share_what_their_directory_had_and_give_it_back() {
    let mut table = LoadTable::new(LoadTable::HALF_LIFE);
    table.hit(&[id(5), id(1)], HitKind::InodeWrite, 80.0, seconds(0));
    table.hit(&[id(50), id(5), id(1)], HitKind::InodeWrite, 4.0, seconds(0));
    let parts: Vec<_> = (60..68).map(id).collect();
    table.split(id(5), &parts);
    // The hits below the directory belong to no fragment.
    assert_eq!(table.nested(parts[3], seconds(0)).inode_writes, 10.0);
    assert_eq!(table.own(id(5), seconds(0)).inode_writes, 0.0);
    assert_eq!(table.nested(id(5), seconds(0)).inode_writes, 84.0);
    table.join(&parts, id(5), seconds(5));
    assert_eq!(table.own(id(5), seconds(5)).inode_writes, 40.0);
    assert_eq!(table.nested(id(5), seconds(5)).inode_writes, 42.0);
    assert_eq!(table.len(), 3);
}

#[test]
fn an_exported_directory_leaves_the_counts_of_its_ancestors() {
    let mut table = LoadTable::new(LoadTable::HALF_LIFE);
    table.hit(&[id(7), id(1)], HitKind::InodeWrite, 6.0, seconds(0));
    table.hit(&[id(8), id(1)], HitKind::InodeWrite, 2.0, seconds(0));
    table.left(id(7), &[id(1)], seconds(0));
    assert_eq!(table.nested(id(1), seconds(0)).inode_writes, 2.0);
    assert_eq!(table.nested(id(7), seconds(0)), Counts::default());
}

#[test]
fn the_table_forgets_what_has_faded_and_nothing_else() {
    let mut table = LoadTable::new(LoadTable::HALF_LIFE);
    table.hit(&[id(7)], HitKind::InodeWrite, 1.0, seconds(0));
    table.hit(&[id(8)], HitKind::InodeWrite, 1.0, seconds(60));
    table.forget(seconds(60));
    assert_eq!(table.len(), 1);
    assert!(!table.is_empty());
    table.forget(seconds(600));
    assert!(table.is_empty());
}

#[test]
fn strange_hits_and_times_change_nothing() {
    let mut counts = DecayingCounts::default();
    counts.hit(HitKind::Fetch, f64::NAN, seconds(2), Span(0));
    counts.hit(HitKind::Fetch, -5.0, seconds(2), Span(0));
    counts.hit(HitKind::Fetch, f64::INFINITY, seconds(2), Span(0));
    assert_eq!(counts.at(seconds(9), Span(0)).sum(), 0.0);
    // Clocks that step back do not make counts grow.
    counts.hit(HitKind::Fetch, 1.0, seconds(9), LoadTable::HALF_LIFE);
    counts.hit(HitKind::Fetch, 1.0, seconds(4), LoadTable::HALF_LIFE);
    assert_eq!(counts.at(seconds(1), LoadTable::HALF_LIFE).fetches, 2.0);
    assert_eq!(counts.at(seconds(14), LoadTable::HALF_LIFE).fetches, 1.0);
}
