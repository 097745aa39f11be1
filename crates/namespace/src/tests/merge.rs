//! The journal of a decoupled client, merged into a namespace that other clients changed since.

use std::collections::{BTreeMap, BTreeSet};

use journal::{Event, JournalBuffer};
use model::{Model, Node};
use proptest::prelude::*;
use types::{Ino, Origin, Seq, Timestamp};

use super::tree::{self, Tree, no_fetch, warm};
use super::world::{Op, change_op, cred, peek, plan, resolve};
use crate::{ApplyOutcome, Extra, Mode, Namespace};

/// Where a side's inode numbers start, and by how much its clock is ahead.
const BASE: u64 = 1000;
const CLIENT: u64 = 100_000;
const INTERFERER: u64 = 10_000;

/// Runs operations of root's on a namespace: the events that `each` agrees to.
fn run(
    namespace: &mut Namespace,
    ops: &[Op],
    start: u64,
    mut each: impl FnMut(&Event<'_>) -> bool,
) {
    for (number, op) in (start..).zip(ops) {
        let (one, two) = op.places();
        let targets = (
            resolve(one, |dir, name| peek(namespace, &mut no_fetch, dir, name)),
            resolve(two, |dir, name| peek(namespace, &mut no_fetch, dir, name)),
        );
        let fresh = (Ino(number), Timestamp(number.cast_signed()));
        let planned = warm(namespace, &mut no_fetch, |namespace| {
            plan(namespace, &cred(0), *op, targets, fresh)
        });
        if let Ok(Some(planned)) = planned
            && each(&planned.event())
        {
            namespace.apply(Seq(number), Mode::Live, &planned.event());
        }
    }
}

/// Runs operations and keeps a journal of them.
fn journal_of(
    namespace: &mut Namespace,
    ops: &[Op],
    start: u64,
    mut wanted: impl FnMut(&Event<'_>) -> bool,
) -> JournalBuffer {
    let mut journal = JournalBuffer::new(Seq(1), false);
    run(namespace, ops, start, |event| {
        let wanted = wanted(event);
        if wanted {
            journal.append(Origin::default(), event);
        }
        wanted
    });
    journal.close_block();
    journal
}

/// Rejects events that give a name which an earlier one gave or took, and renames of directories,
/// which may take over names that an earlier event gave and took. A journal without them can be
/// merged any number of times: no event finds its name given by a later event.
fn names_once() -> impl FnMut(&Event<'_>) -> bool {
    let mut used = BTreeSet::new();
    move |event| {
        let own = event.dentry().map(|(dir, name)| (dir, name.to_vec()));
        let (given, taken) = match *event {
            Event::Create(_) | Event::Link { .. } => (own, None),
            Event::Rename { new_parent, new_name, moved, exchanged: None, .. }
                if !moved.attr.is_dir() =>
            {
                (Some((new_parent, new_name.to_vec())), own)
            }
            Event::Rename { .. } => return false,
            Event::Unlink { .. }
            | Event::Rmdir { .. }
            | Event::SetAttr { .. }
            | Event::SetXattr { .. }
            | Event::SetData { .. }
            | Event::SetPolicy { .. }
            | Event::Session { .. }
            | Event::Merged { .. }
            | Event::Stored { .. } => (None, own),
        };
        let fresh = given.as_ref().is_none_or(|name| !used.contains(name));
        if fresh {
            used.extend(given.into_iter().chain(taken));
        }
        fresh
    }
}

fn for_each(journal: &JournalBuffer, mut each: impl FnMut(Seq, &Event<'_>)) {
    for block in journal.blocks() {
        let (block, _) = journal::Block::read(block, 0).expect("written just now");
        let mut events = block.events();
        while let Some(record) = events.next_event().expect("written just now") {
            each(record.seq, &record.event);
        }
    }
}

fn on_model(model: &mut Model, event: &Event<'_>) -> ApplyOutcome {
    let outcome = model.apply(event, |encoded, node: &mut Node| {
        let extra = Extra::from_parts(&[], encoded);
        extra.xattrs().for_each(|(name, value)| node.load_xattr(name, value));
        node.policy = extra.policy().unwrap_or_default().to_vec();
    });
    match outcome {
        model::ModelOutcome::Done => ApplyOutcome::Done,
        model::ModelOutcome::Replaced(ino) => ApplyOutcome::Replaced(ino),
        model::ModelOutcome::Rejected => ApplyOutcome::Rejected,
    }
}

fn merge(namespace: &mut Namespace, model: &mut Model, journal: &JournalBuffer) {
    for_each(journal, |_, event| {
        while let Some(dir) = namespace.needs().of(event) {
            namespace.store().finish_load(dir, types::Seq(0), Default::default());
        }
        let outcome = namespace.apply(Seq(1 << 32), Mode::Merge, event);
        assert_eq!(outcome, on_model(model, event), "{event:?}");
    });
}

/// The tree without the change of a repeated merge: the time of an inode's last change.
fn without_ctime(mut tree: Tree) -> Tree {
    for item in tree.values_mut() {
        item.attr.ctime = Timestamp(0);
    }
    tree
}

fn ops(most: usize) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(change_op(), 0..most)
}

fn takes_a_name(event: &Event<'_>) -> bool {
    match event {
        Event::Unlink { .. } | Event::Rmdir { .. } | Event::Rename { .. } => true,
        Event::Create(_)
        | Event::Link { .. }
        | Event::SetAttr { .. }
        | Event::SetXattr { .. }
        | Event::SetData { .. }
        | Event::SetPolicy { .. }
        | Event::Session { .. }
        | Event::Merged { .. }
        | Event::Stored { .. } => false,
    }
}

/// A server, its model, and the work of a client that starts from the same tree. If they are
/// `careful`, the client gives no name twice and the remaining clients take none away.
fn diverge([base, client, others]: [&[Op]; 3], careful: bool) -> (Namespace, Model, JournalBuffer) {
    let mut server = Namespace::with_root(Timestamp(1));
    let mut model = Model::with_root(Timestamp(1));
    run(&mut server, base, BASE, |event| on_model(&mut model, event) != ApplyOutcome::Rejected);
    run(&mut server, others, INTERFERER, |event| {
        let wanted = !careful || !takes_a_name(event);
        wanted && on_model(&mut model, event) != ApplyOutcome::Rejected
    });
    let mut view = Namespace::with_root(Timestamp(1));
    run(&mut view, base, BASE, |_| true);
    let mut fresh = names_once();
    let journal = journal_of(&mut view, client, CLIENT, |event| !careful || fresh(event));
    (server, model, journal)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn a_journal_read_from_its_bytes_gives_the_tree_again(ops in ops(150)) {
        let mut namespace = Namespace::with_root(Timestamp(1));
        let journal = journal_of(&mut namespace, &ops, BASE, |_| true);
        let mut again = Namespace::with_root(Timestamp(1));
        let mut model = Model::with_root(Timestamp(1));
        for_each(&journal, |seq, event| {
            let outcome = again.apply(Seq(BASE + seq.0), Mode::Replay, event);
            assert!(outcome != ApplyOutcome::Rejected, "{event:?}");
            on_model(&mut model, event);
        });
        let tree = tree::of_namespace(&mut namespace, &mut no_fetch);
        let replayed = tree::of_namespace(&mut again, &mut no_fetch);
        tree::assert_same(&tree, &replayed, "live and replayed");
        tree::assert_same(&tree, &tree::of_model(&model), "live and model");
    }

    #[test]
    fn merging_agrees_with_the_model(base in ops(30), client in ops(40), others in ops(30)) {
        let (mut server, mut model, journal) = diverge([&base, &client, &others], false);
        for time in ["once", "twice"] {
            merge(&mut server, &mut model, &journal);
            let merged = tree::of_namespace(&mut server, &mut no_fetch);
            tree::assert_same(&merged, &tree::of_model(&model), time);
        }
    }

    #[test]
    fn merging_a_journal_of_fresh_names_twice_is_merging_it_once(base in ops(30), client in ops(40), others in ops(30)) {
        let (mut server, mut model, journal) = diverge([&base, &client, &others], true);
        merge(&mut server, &mut model, &journal);
        let once = tree::of_namespace(&mut server, &mut no_fetch);
        merge(&mut server, &mut model, &journal);
        let twice = tree::of_namespace(&mut server, &mut no_fetch);
        tree::assert_same(&without_ctime(once), &without_ctime(twice), "once and twice");
    }

    #[test]
    fn without_interference_merging_gives_the_clients_tree(base in ops(30), client in ops(60)) {
        let (mut server, mut model, journal) = diverge([&base, &client, &[]], false);
        merge(&mut server, &mut model, &journal);
        let mut view = Namespace::with_root(Timestamp(1));
        run(&mut view, &base, BASE, |_| true);
        run(&mut view, &client, CLIENT, |_| true);
        let view = tree::of_namespace(&mut view, &mut no_fetch);
        let merged = tree::of_namespace(&mut server, &mut no_fetch);
        tree::assert_same(&view, &merged, "the client's view and the server's");
    }
}

#[test]
fn the_interferers_other_names_stay_in_a_directory_that_both_made() {
    let mut server = Namespace::with_root(Timestamp(1));
    let mut create = |mode, parent, name: &str, ino, bits| {
        let event = Event::Create(journal::Create {
            parent,
            name: name.as_bytes(),
            ino: Ino(ino),
            mode: bits,
            ..journal::Create::default()
        });
        server.apply(Seq(ino), mode, &event)
    };
    create(Mode::Live, Ino::ROOT, "d", 10, 0o040_755);
    create(Mode::Live, Ino(10), "theirs", 11, 0o100_644);
    create(Mode::Live, Ino(10), "both", 12, 0o100_644);
    let outcome = create(Mode::Merge, Ino::ROOT, "d", 20, 0o040_755);
    assert_eq!(outcome, ApplyOutcome::Replaced(Ino(10)));
    assert_eq!(
        create(Mode::Merge, Ino(20), "both", 21, 0o100_644),
        ApplyOutcome::Replaced(Ino(12))
    );
    let tree = tree::of_namespace(&mut server, &mut no_fetch);
    let found: BTreeMap<_, _> =
        tree.iter().map(|(path, item)| (path.as_str(), item.attr.ino.0)).collect();
    assert_eq!(found, BTreeMap::from([("", 1), ("/d", 20), ("/d/both", 21), ("/d/theirs", 11)]));
}

#[test]
fn a_directory_that_is_gone_is_not_fetched_for_what_was_in_it() {
    let mut server = Namespace::with_root(Timestamp(1));
    let (dir, file, time) = (Ino(20), Ino(21), Timestamp(2));
    let change = types::AttrChange { mode: Some(0o600), ..types::AttrChange::default() };
    let inode = journal::InodeSnapshot {
        attr: types::Attr { ino: file, mode: 0o100_644, nlink: 1, ..types::Attr::default() },
        data: &[],
        extra: &[],
    };
    let events = [
        Event::SetAttr { ino: file, home: dir, change, time },
        Event::SetXattr { ino: file, home: dir, name: b"user.x", value: Some(b"1"), time },
        Event::SetData { ino: file, home: dir, data: b"1", size: 1, time },
        Event::Link { parent: Ino::ROOT, name: b"f", ino: file, home: dir, inode, time },
    ];
    let needs = |server: &Namespace| {
        events.each_ref().map(|event| server.needs().in_merge(event, |_| false))
    };
    assert_eq!(needs(&server), [None; 4]);
    let (name, mode) = (b"d".as_slice(), 0o040_755);
    let create = journal::Create { parent: Ino::ROOT, name, ino: dir, mode, ..Default::default() };
    server.apply(Seq(1), Mode::Merge, &Event::Create(create));
    assert_eq!(needs(&server), [Some(dir); 4], "it is there, but not all that is in it");
}
