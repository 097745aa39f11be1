//! Broken invariants are found: each test breaks one.

use metastore::request::StoreOp;
use types::{ClientId, Ino, InoRange};

use super::fixture::Tree;
use crate::{MdsEffects, Waiting};

/// The invariants of a server hold before the state is changed.
fn valid() -> Tree {
    let tree = Tree::new();
    tree.mds(0).validate();
    tree
}

/// A part of the server waits for an operation that it does not know of.
fn waits(tree: &mut Tree, waiting: Waiting) {
    let op = StoreOp::Delete { objects: Vec::new() };
    tree.mds_mut().store.begin(waiting, op, &mut MdsEffects::default());
}

#[test]
#[should_panic(expected = "deletions are counted")]
fn a_deletion_that_is_not_counted_is_found() {
    let mut tree = valid();
    waits(&mut tree, Waiting::Forget);
    tree.mds(0).validate();
}

#[test]
#[should_panic(expected = "the fetch is known to be under way")]
fn a_fetch_that_is_not_known_is_found() {
    let mut tree = valid();
    waits(&mut tree, Waiting::Fetch(Ino(9)));
    tree.mds(0).validate();
}

#[test]
#[should_panic(expected = "writes of the journal are under way")]
fn a_write_of_the_journal_that_is_not_known_is_found() {
    let mut tree = valid();
    waits(&mut tree, Waiting::Log);
    tree.mds(0).validate();
}

#[test]
#[should_panic(expected = "requests were forwarded")]
fn more_forwards_than_requests_are_found() {
    let mut tree = valid();
    tree.mds_mut().counters.forwards = 1 << 40;
    tree.mds(0).validate();
}

#[test]
#[should_panic(expected = "no request of an absent client")]
fn a_request_of_an_absent_client_that_does_not_end_is_found() {
    let mut tree = valid();
    tree.mds_mut().sessions.act_for(Some(ClientId(3)));
    tree.mds(0).validate();
}

#[test]
#[should_panic(expected = "the server awaits absent clients only")]
fn a_connected_client_that_resends_nothing_is_not_awaited() {
    let mut tree = valid();
    tree.mds_mut().sessions.recovered(ClientId(1), types::Tid(5));
    tree.mds(0).validate();
}

#[test]
#[should_panic(expected = "are also")]
fn numbers_that_two_clients_have_are_found() {
    let mut tree = valid();
    let mds = tree.mds_mut();
    let range = mds.tables.grant(10).unwrap();
    let policy = policy::Policy::default();
    let cred = types::Cred::root();
    for (client, root) in [(1, 70), (2, 80)] {
        let (client, epoch) = (ClientId(client), types::Epoch(1));
        let known = crate::tables::Tables::decoupling(client, &policy, range, epoch, &cred);
        mds.tables.decoupled.insert(Ino(root), known);
    }
    tree.mds(0).validate();
}

#[test]
#[should_panic(expected = "are also")]
fn numbers_of_the_server_that_a_client_has_are_found() {
    let mut tree = valid();
    let mds = tree.mds_mut();
    let start = mds.tables.take_ino().unwrap().0 + 1;
    let range = InoRange { start, end: start + 1 };
    let (client, epoch) = (ClientId(1), types::Epoch(1));
    let (policy, cred) = (policy::Policy::default(), types::Cred::root());
    let known = crate::tables::Tables::decoupling(client, &policy, range, epoch, &cred);
    mds.tables.decoupled.insert(Ino(70), known);
    tree.mds(0).validate();
}

#[test]
#[should_panic(expected = "the directory alone, and others have leases")]
fn a_lease_of_an_exclusive_directory_is_found() {
    let mut tree = valid();
    let (now, dir) = (tree.clock().now, tree.dir);
    let mds = tree.mds_mut();
    assert!(mds.caps.grant(ClientId(1), dir, now) && mds.caps.grant_exclusive(ClientId(1), dir));
    mds.leases.give(dir, now);
    tree.mds(0).validate();
}
