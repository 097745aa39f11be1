//! Directories that other ranks serve, or served.

use journal::{Create, Event};
use types::{Ino, Seq, Timestamp};

use crate::{Mode, Namespace};

fn made(ino: Ino) -> Event<'static> {
    let name = b"name".as_slice();
    let (parent, mode) = (Ino::ROOT, 0o040_755);
    Event::Create(Create { parent, name, ino, mode, ..Create::default() })
}

#[test]
fn replay_fetches_no_inode_that_got_the_name_later() {
    let mut namespace = Namespace::with_root(Timestamp(1));
    let (first, later) = (Ino(20), Ino(21));
    // The store was ahead: the content of the later one may be another rank's by now.
    namespace.apply(Seq(10), Mode::Replay, &made(later));
    assert_eq!(namespace.needs().again(Seq(5), &made(first)), None);
    namespace.apply(Seq(5), Mode::Replay, &made(first));
    namespace.apply(Seq(10), Mode::Replay, &made(later));
    assert_eq!(namespace.peek(Ino::ROOT, b"name"), Ok(Some(later)));
    assert!(namespace.knows(later));
    // The former directory of the name must be known to be empty.
    assert_eq!(namespace.needs().again(Seq(11), &made(Ino(22))), Some(later));
}

#[test]
fn an_inode_of_unknown_place_does_not_leave_with_a_subtree() {
    let mut namespace = Namespace::with_root(Timestamp(1));
    let (root, inner, elsewhere, astray) = (Ino(20), Ino(21), Ino(30), Ino(31));
    namespace.apply(Seq(5), Mode::Live, &made(root));
    for (seq, parent, ino) in [(6, root, inner), (7, elsewhere, astray)] {
        let (name, mode) = (b"file".as_slice(), 0o100_644);
        let create = Create { parent, name, ino, mode, ..Create::default() };
        namespace.apply(Seq(seq), Mode::Replay, &Event::Create(create));
    }
    assert!(namespace.knows(astray) && !namespace.is_anchored(astray));
    for dir in [Ino::ROOT, root, elsewhere] {
        namespace.store().begin_capture(dir).expect("the directory has changes");
        namespace.store().end_capture(dir);
    }
    let out = namespace.handover().take_out(root);
    assert_eq!(
        namespace.handover().forget_out(out),
        [inner],
        "the rank of the other one is unknown"
    );
    assert!(!namespace.knows(astray), "its directory may have been in the subtree");
}
