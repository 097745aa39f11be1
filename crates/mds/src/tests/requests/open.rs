use types::Errno;
use wire::{Access, Answer, ChangeOp, Op, Opened, SessionOp};

use crate::tests::cluster::{Notice, chmod, user};
use crate::tests::fixture::{NOTHING, Tree};

fn opened(answer: Result<Answer, Errno>) -> Opened {
    match answer {
        Ok(Answer::Opened(opened)) => opened,
        other => panic!("{other:?} is no open file"),
    }
}

/// A second client of the tree.
fn second(tree: &mut Tree) -> u64 {
    tree.connect(2);
    2
}

#[test]
fn an_opened_file_is_private_to_its_only_client() {
    let mut tree = Tree::new();
    let ino = tree.file;
    let file = opened(tree.answer(Op::Session(SessionOp::Open { ino, write: true })));
    assert_eq!((file.attr.ino, file.data.as_slice(), file.shared), (ino, &b"abc"[..], false));
}

#[test]
fn a_file_that_two_clients_read_is_private() {
    let mut tree = Tree::new();
    let (ino, other) = (tree.file, second(&mut tree));
    tree.answer(Op::Session(SessionOp::Open { ino, write: false })).unwrap();
    let tid = tree.ask(other, Op::Session(SessionOp::Open { ino, write: false }));
    let Ok(Answer::Opened(file)) = tree.reply(other, tid).result else { panic!() };
    assert!(!file.shared);
    assert!(!tree.notices.contains(&(1, Notice::Recall(ino))));
}

#[test]
fn a_second_writer_waits_until_the_first_gives_its_cache_up() {
    let mut tree = Tree::new();
    let (ino, other) = (tree.file, second(&mut tree));
    tree.answer(Op::Session(SessionOp::Open { ino, write: true })).unwrap();
    let tid = tree.ask(other, Op::Session(SessionOp::Open { ino, write: true }));
    tree.pass(100);
    assert!(!tree.is_answered(other, tid), "client 1 has not answered");
    assert!(tree.notices.contains(&(1, Notice::Recall(ino))));
    tree.answer(Op::Session(SessionOp::Yield { ino })).unwrap();
    let Ok(Answer::Opened(file)) = tree.reply(other, tid).result else { panic!() };
    assert!(file.shared && file.data.is_empty(), "content is in the object store");
}

#[test]
fn the_content_of_a_shared_file_moves_to_the_object_store() {
    let mut tree = Tree::new();
    let (ino, other) = (tree.file, second(&mut tree));
    let before = tree.attr(ino);
    tree.pass(3);
    tree.answer(Op::Session(SessionOp::Open { ino, write: true })).unwrap();
    let tid = tree.ask(other, Op::Session(SessionOp::Open { ino, write: false }));
    tree.answer(Op::Session(SessionOp::Yield { ino })).unwrap();
    tree.reply(other, tid);
    assert_eq!(tree.attr(ino), before, "a reader changes nothing");
    let pool = tree.attr(ino).stripe.pool();
    let object = metastore::data_name(ino, pool, 0);
    assert_eq!(tree.store.object(&object), Some(&b"abc"[..]));
}

#[test]
fn an_open_is_answered_when_the_silent_holder_of_the_file_is_evicted() {
    let mut tree = Tree::new();
    let (ino, other) = (tree.file, second(&mut tree));
    tree.answer(Op::Session(SessionOp::Open { ino, write: true })).unwrap();
    let tid = tree.ask(other, Op::Session(SessionOp::Open { ino, write: true }));
    let waited = tree.until(|tree| tree.is_answered(other, tid));
    assert_eq!((waited, tree.closed.as_slice()), (30_000, &[1][..]), "it had 30 seconds");
    assert!(tree.log.iter().any(|event| event.name == "client.silent"), "{:?}", tree.log);
}

#[test]
fn an_open_is_answered_when_the_holder_of_the_file_closes_it() {
    let mut tree = Tree::new();
    let (ino, other) = (tree.file, second(&mut tree));
    tree.answer(Op::Session(SessionOp::Open { ino, write: true })).unwrap();
    let tid = tree.ask(other, Op::Session(SessionOp::Open { ino, write: true }));
    tree.answer(Op::Session(SessionOp::Close { ino, write: true })).unwrap();
    let Ok(Answer::Opened(file)) = tree.reply(other, tid).result else { panic!() };
    assert!(!file.shared, "no other client has the file open");
}

#[test]
fn an_open_is_answered_when_the_holder_of_the_file_is_gone() {
    let mut tree = Tree::new();
    let (ino, other) = (tree.file, second(&mut tree));
    tree.answer(Op::Session(SessionOp::Open { ino, write: true })).unwrap();
    let tid = tree.ask(other, Op::Session(SessionOp::Open { ino, write: true }));
    tree.disconnect(1);
    assert!(tree.reply(other, tid).result.is_ok());
}

#[test]
fn an_open_fails_when_the_content_cannot_be_moved() {
    let mut tree = Tree::new();
    let (ino, other) = (tree.file, second(&mut tree));
    tree.answer(Op::Session(SessionOp::Open { ino, write: true })).unwrap();
    let tid = tree.ask(other, Op::Session(SessionOp::Open { ino, write: true }));
    tree.fails = |op| {
        let is_data = matches!(op, metastore::request::StoreOp::Put { object, .. }
            if object.starts_with("data/"));
        is_data.then_some(Errno::NoSpace)
    };
    let told = tree.ask(1, Op::Session(SessionOp::Yield { ino }));
    assert_eq!(tree.reply(1, told).result.unwrap_err().errno, Errno::NoSpace);
    assert_eq!(tree.reply(other, tid).result.unwrap_err().errno, Errno::NoSpace);
}

#[test]
fn an_open_of_a_directory_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Session(SessionOp::Open { ino: tree.sub, write: false });
    assert_eq!(tree.refusal(op), Some(Errno::IsDirectory));
}

#[test]
fn an_open_of_a_symbolic_link_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Session(SessionOp::Open { ino: tree.link, write: false });
    assert_eq!(tree.refusal(op), Some(Errno::Invalid));
}

#[test]
fn an_open_of_an_unknown_file_is_stale() {
    let mut tree = Tree::new();
    assert_eq!(
        tree.refusal(Op::Session(SessionOp::Open { ino: NOTHING, write: false })),
        Some(Errno::Stale)
    );
}

#[test]
fn an_open_without_permission_is_refused() {
    let mut tree = Tree::new();
    let ino = tree.file;
    assert_eq!(
        tree.guest_refusal(Op::Session(SessionOp::Open { ino, write: true })),
        Some(Errno::Access)
    );
    tree.answer(Op::Change(ChangeOp::SetAttr { ino, change: chmod(0o600) })).unwrap();
    assert_eq!(
        tree.guest_refusal(Op::Session(SessionOp::Open { ino, write: false })),
        Some(Errno::Access)
    );
}

#[test]
fn a_program_that_may_be_executed_may_be_opened_for_reading() {
    let mut tree = Tree::new();
    let ino = tree.file;
    tree.answer(Op::Change(ChangeOp::SetAttr { ino, change: chmod(0o711) })).unwrap();
    assert_eq!(tree.guest_refusal(Op::Session(SessionOp::Open { ino, write: false })), None);
}

#[test]
fn an_owner_opens_its_file_whatever_the_mode_is() {
    let mut tree = Tree::new();
    let open = tree.open;
    assert_eq!(tree.create_refusal(&user(7), open, b"mine"), None);
    let ino = tree.lookup(open, "mine").unwrap();
    tree.answer(Op::Change(ChangeOp::SetAttr { ino, change: chmod(0) })).unwrap();
    assert_eq!(tree.guest_refusal(Op::Session(SessionOp::Open { ino, write: true })), None);
}

#[test]
fn a_close_of_a_file_that_is_not_open_changes_nothing() {
    let mut tree = Tree::new();
    let ino = tree.file;
    assert_eq!(tree.answer(Op::Session(SessionOp::Close { ino, write: false })), Ok(Answer::Done));
    assert_eq!(tree.counted(0, "open_files"), 0);
}

#[test]
fn a_file_is_open_until_reading_and_writing_are_closed() {
    let mut tree = Tree::new();
    let ino = tree.file;
    tree.answer(Op::Session(SessionOp::Open { ino, write: false })).unwrap();
    tree.answer(Op::Session(SessionOp::Open { ino, write: true })).unwrap();
    tree.answer(Op::Session(SessionOp::Close { ino, write: true })).unwrap();
    assert_eq!(tree.counted(0, "open_files"), 1);
    tree.answer(Op::Session(SessionOp::Close { ino, write: false })).unwrap();
    assert_eq!(tree.counted(0, "open_files"), 0);
}

#[test]
fn a_reported_open_file_is_open() {
    let mut tree = Tree::new();
    let access = Access { read: true, write: false, shared: false };
    let ino = tree.file;
    tree.answer(Op::Session(SessionOp::Reopen { ino, access })).unwrap();
    assert_eq!(tree.counted(0, "open_files"), 1);
}

#[test]
fn a_report_of_a_closed_file_opens_nothing() {
    let mut tree = Tree::new();
    let ino = tree.file;
    tree.answer(Op::Session(SessionOp::Reopen { ino, access: Access::default() })).unwrap();
    assert_eq!(tree.counted(0, "open_files"), 0);
}

#[test]
fn reports_of_two_writers_share_the_file() {
    let mut tree = Tree::new();
    let (ino, other) = (tree.file, second(&mut tree));
    let access = Access { read: false, write: true, shared: false };
    tree.answer(Op::Session(SessionOp::Reopen { ino, access })).unwrap();
    let tid = tree.ask(other, Op::Session(SessionOp::Reopen { ino, access }));
    tree.reply(other, tid);
    assert!(tree.notices.contains(&(1, Notice::Recall(ino))));
    assert!(tree.notices.contains(&(other, Notice::Recall(ino))));
}

#[test]
fn an_open_waits_until_writers_that_reported_the_file_give_it_up() {
    let mut tree = Tree::new();
    let (ino, other) = (tree.file, second(&mut tree));
    let access = Access { read: false, write: true, shared: false };
    for client in [1, other] {
        tree.answer_to(client, Op::Session(SessionOp::Reopen { ino, access })).unwrap();
    }
    tree.connect(3);
    let waiting = tree.ask(3, Op::Session(SessionOp::Open { ino, write: false }));
    for client in [1, other] {
        tree.pass(10);
        assert!(!tree.is_answered(3, waiting), "client {client} may have cached writes");
        tree.ask(client, Op::Session(SessionOp::Yield { ino }));
    }
    let answer = tree.reply(3, waiting).result.map_err(|failure| failure.errno);
    assert!(opened(answer).shared);
}

#[test]
fn a_yield_of_a_file_that_no_other_client_wants_shares_it() {
    let mut tree = Tree::new();
    let ino = tree.file;
    tree.answer(Op::Session(SessionOp::Open { ino, write: true })).unwrap();
    assert_eq!(tree.answer(Op::Session(SessionOp::Yield { ino })), Ok(Answer::Done));
    assert!(opened(tree.answer(Op::Session(SessionOp::Open { ino, write: false }))).shared);
}

#[test]
fn a_yield_of_a_file_that_is_not_open_changes_nothing() {
    let mut tree = Tree::new();
    let ino = tree.file;
    assert_eq!(tree.answer(Op::Session(SessionOp::Yield { ino })), Ok(Answer::Done));
    assert!(!opened(tree.answer(Op::Session(SessionOp::Open { ino, write: false }))).shared);
}
