use metastore::request::{Condition, StoreOp};
use types::{ClientId, Cred, Errno, Ino, InoRange, Seq, Tid};
use wire::{
    AdminOp, Answer, ChangeOp, Decoupled, JobOp, MergeFlags, MergeReport, Message, NewInode, Op,
    ReadOp, Request, SessionOp, UnusedNumbers,
};

use crate::MdsInput;
use crate::tests::cluster::{FILE, Notice};
use crate::tests::fixture::{NOTHING, Tree};
use crate::tests::transcripts::journal_of;

const BLOCKS: &str = "consistency: append_client_journal+volatile_apply\ndurability: none\n\
                      interfere_policy: block\n";
const ALLOWS: &str = "consistency: append_client_journal+volatile_apply\ndurability: none\n\
                      interfere_policy: allow\n";

fn decouple(tree: &mut Tree, path: &str, client: u64, policy: &str) -> Result<Decoupled, Errno> {
    let (path, policy) = (path.as_bytes(), policy.as_bytes());
    match tree.monitor(Op::Job(JobOp::Decouple { path, client: ClientId(client), policy }))? {
        Answer::Decoupled(given) => Ok(given),
        other => panic!("{other:?} is no decoupling"),
    }
}

/// Client 1 has the subtree `/dir/sub`, and client 2 is connected.
fn decoupled(policy: &str) -> (Tree, Decoupled) {
    let mut tree = Tree::new();
    tree.connect(2);
    let given = decouple(&mut tree, "/dir/sub", 1, policy).unwrap();
    (tree, given)
}

/// How a request of a client is answered.
fn answer_of(tree: &mut Tree, client: u64, op: Op<'_>) -> Result<Answer, Errno> {
    tree.answer_to(client, op)
}

/// Begins a merge of a journal, and sends the journal.
fn begin_merge(tree: &mut Tree, client: u64, bytes: &[u8], flags: MergeFlags) -> Tid {
    let subtree = tree.sub;
    let (length, unused) = (bytes.len() as u64, UnusedNumbers::default());
    let tid = tree
        .ask(client, Op::Job(JobOp::Merge { subtree, bytes: length, object: b"", flags, unused }));
    let conn = tree.conn(client, 0);
    tree.input(0, MdsInput::Message(conn, Message::Chunk { tid, bytes }));
    tree.settle();
    tid
}

fn merge(tree: &mut Tree, bytes: &[u8], flags: MergeFlags) -> Result<MergeReport, Errno> {
    let tid = begin_merge(tree, 1, bytes, flags);
    match tree.reply(1, tid).result {
        Ok(Answer::Merged(report)) => Ok(*report),
        Ok(other) => panic!("{other:?} is no merge"),
        Err(failure) => Err(failure.errno),
    }
}

fn files(tree: &Tree, given: &Decoupled, names: &[&str]) -> Vec<u8> {
    let numbered: Vec<_> =
        names.iter().zip(given.range.start..).map(|(name, ino)| (*name, ino)).collect();
    journal_of(tree.sub, 1, given.epoch, &numbered)
}

const PLAIN: MergeFlags = MergeFlags {
    dry_run: false,
    release: false,
    check: false,
    strong_log: false,
    store: false,
    by_reference: false,
    in_term: types::Epoch(0),
};
const RELEASE: MergeFlags = MergeFlags { release: true, ..PLAIN };

#[test]
fn a_decoupled_subtree_comes_with_inode_numbers() {
    let (tree, given) = decoupled(BLOCKS);
    assert_eq!((given.root.ino, given.range.len(), given.empty), (tree.sub, 100, true));
}

#[test]
fn a_decoupled_subtree_is_held_by_its_client() {
    let (mut tree, given) = decoupled(BLOCKS);
    let ino = tree.sub;
    let client = 1_u64.to_le_bytes().to_vec();
    assert_eq!(tree.answer(Op::Session(SessionOp::Held { ino })), Ok(Answer::Data(client.clone())));
    let ino = Ino(given.range.start + 5);
    assert_eq!(tree.answer(Op::Session(SessionOp::Held { ino })), Ok(Answer::Data(client)));
}

#[test]
fn a_client_that_decouples_again_gets_further_numbers() {
    let (mut tree, given) = decoupled(BLOCKS);
    let again = decouple(&mut tree, "/dir/sub", 1, BLOCKS).unwrap();
    assert!(again.range.start >= given.range.end && again.epoch == given.epoch);
}

#[test]
fn a_subtree_of_another_client_is_not_decoupled() {
    let (mut tree, _) = decoupled(ALLOWS);
    assert_eq!(decouple(&mut tree, "/dir/sub", 2, ALLOWS), Err(Errno::Busy));
}

#[test]
fn a_subtree_around_a_decoupled_one_is_not_decoupled() {
    let (mut tree, _) = decoupled(ALLOWS);
    assert_eq!(decouple(&mut tree, "/dir", 2, ALLOWS), Err(Errno::Busy));
}

#[test]
fn a_subtree_beside_a_decoupled_one_is_decoupled() {
    let (mut tree, _) = decoupled(BLOCKS);
    assert!(decouple(&mut tree, "/dir/full", 2, BLOCKS).is_ok());
}

#[test]
fn a_missing_subtree_is_not_decoupled() {
    let mut tree = Tree::new();
    assert_eq!(decouple(&mut tree, "/nothing", 1, BLOCKS), Err(Errno::NotFound));
    assert_eq!(decouple(&mut tree, "/dir/file", 1, BLOCKS), Err(Errno::NotDirectory));
}

#[test]
fn a_subtree_is_not_decoupled_with_an_illegal_policy() {
    let mut tree = Tree::new();
    assert_eq!(decouple(&mut tree, "/dir/sub", 1, "nonsense: 1\n"), Err(Errno::Invalid));
}

#[test]
fn a_decoupling_fails_if_the_table_cannot_be_stored() {
    let mut tree = Tree::new();
    tree.fails = |op| {
        let is_table = matches!(op, metastore::request::StoreOp::Put { object, .. }
            if object.starts_with("rank/"));
        is_table.then_some(Errno::Io)
    };
    assert_eq!(decouple(&mut tree, "/dir/sub", 1, BLOCKS), Err(Errno::Io));
    tree.fails = |_| None;
    tree.connect(2);
    let dir = tree.sub;
    let op = Op::Read(ReadOp::List { dir, after: None, limit: 9, attrs: false });
    assert!(answer_of(&mut tree, 2, op).is_ok(), "the subtree is no client's");
}

#[test]
fn a_blocking_subtree_is_busy_for_other_clients() {
    let (mut tree, _) = decoupled(BLOCKS);
    let (dir, sub) = (tree.dir, tree.sub);
    let ops = [
        Op::Read(ReadOp::GetAttr { ino: sub }),
        Op::Read(ReadOp::Lookup { parent: dir, name: b"sub" }),
        Op::Read(ReadOp::Lookup { parent: sub, name: b"x" }),
        Op::Read(ReadOp::List { dir: sub, after: None, limit: 9, attrs: false }),
        Op::Change(ChangeOp::Rmdir { parent: dir, name: b"sub" }),
        Op::Read(ReadOp::Walk { base: Ino::ROOT, path: b"/dir/sub/x" }),
    ];
    for op in ops {
        assert_eq!(answer_of(&mut tree, 2, op), Err(Errno::Busy), "{op:?}");
    }
    assert_eq!(tree.counted(0, "busy"), 6);
}

#[test]
fn a_blocking_subtree_is_open_to_its_own_client() {
    let (mut tree, _) = decoupled(BLOCKS);
    let sub = tree.sub;
    assert_eq!(answer_of(&mut tree, 1, Op::Read(ReadOp::GetAttr { ino: sub })).map(drop), Ok(()));
}

#[test]
fn a_subtree_that_does_not_block_is_open_to_other_clients() {
    let (mut tree, _) = decoupled(ALLOWS);
    let sub = tree.sub;
    assert_eq!(answer_of(&mut tree, 2, Op::Read(ReadOp::GetAttr { ino: sub })).map(drop), Ok(()));
}

#[test]
fn a_client_gets_more_numbers_for_its_subtree() {
    let (mut tree, given) = decoupled(BLOCKS);
    let op = Op::Job(JobOp::Extend { subtree: tree.sub, count: 500 });
    let Ok(Answer::Range(range)) = tree.answer(op) else { panic!() };
    assert!(range.len() == 500 && range.start >= given.range.end);
}

#[test]
fn another_client_gets_no_numbers_for_the_subtree() {
    let (mut tree, _) = decoupled(BLOCKS);
    let op = Op::Job(JobOp::Extend { subtree: tree.sub, count: 500 });
    assert_eq!(answer_of(&mut tree, 2, op), Err(Errno::Busy));
}

#[test]
fn no_client_gets_numbers_for_a_subtree_that_is_not_decoupled() {
    let mut tree = Tree::new();
    let op = Op::Job(JobOp::Extend { subtree: tree.sub, count: 500 });
    assert_eq!(tree.refusal(op), Some(Errno::Stale));
}

#[test]
fn a_client_gets_numbers_for_its_own_creates() {
    let mut tree = Tree::new();
    let op = Op::Job(JobOp::Extend { subtree: Ino(0), count: 10 });
    let Ok(Answer::Range(range)) = tree.answer(op) else { panic!() };
    assert_eq!(range.len(), 10);
}

#[test]
fn a_released_subtree_is_open_to_other_clients() {
    let (mut tree, _) = decoupled(BLOCKS);
    let subtree = tree.sub;
    tree.answer(Op::Job(JobOp::Release { subtree, unused: UnusedNumbers::default() })).unwrap();
    assert!(answer_of(&mut tree, 2, Op::Read(ReadOp::GetAttr { ino: subtree })).is_ok());
}

#[test]
fn a_subtree_is_released_by_its_client_or_root() {
    let (mut tree, _) = decoupled(ALLOWS);
    let subtree = tree.sub;
    let op = Op::Job(JobOp::Release { subtree, unused: UnusedNumbers::default() });
    let cred = crate::tests::fixture::guest();
    let tid = tree.ask_as(2, &cred, op);
    assert_eq!(tree.reply(2, tid).result.unwrap_err().errno, Errno::Busy);
    assert_eq!(answer_of(&mut tree, 2, op), Ok(Answer::Done), "root ends any decoupling");
}

#[test]
fn a_subtree_that_is_not_decoupled_is_not_released() {
    let mut tree = Tree::new();
    let op = Op::Job(JobOp::Release { subtree: tree.sub, unused: UnusedNumbers::default() });
    assert_eq!(tree.refusal(op), Some(Errno::Stale));
}

#[test]
fn unused_numbers_come_back_with_the_subtree() {
    let (mut tree, given) = decoupled(BLOCKS);
    let rest = InoRange { start: given.range.start + 10, end: given.range.end };
    let subtree = tree.sub;
    let unused = UnusedNumbers::encode(&[rest]);
    tree.answer(Op::Job(JobOp::Release { subtree, unused: UnusedNumbers::new(&unused) })).unwrap();
    let op = Op::Job(JobOp::Extend { subtree: Ino(0), count: 90 });
    assert_eq!(tree.answer(op), Ok(Answer::Range(rest)));
}

#[test]
fn a_taken_over_subtree_fences_its_client() {
    let (mut tree, given) = decoupled(BLOCKS);
    let subtree = tree.sub;
    let taken = answer_of(&mut tree, 2, Op::Job(JobOp::TakeOver { subtree }));
    let Ok(Answer::Decoupled(taken)) = taken else { panic!("{taken:?}") };
    assert_eq!(taken.range, given.range);
    assert_eq!(tree.closed, [1]);
    let logged = tree.log.iter().rfind(|event| event.name == "client.fenced").unwrap();
    assert_eq!(logged.fields, [("client", 1.into()), ("dir", subtree.0.into())]);
    tree.connect(1);
    let fenced = |it: &(u64, Notice)| matches!(it, (1, Notice::Welcome(it)) if it.fenced);
    assert!(tree.notices.iter().any(fenced));
}

#[test]
fn a_subtree_that_is_not_decoupled_is_not_taken_over() {
    let mut tree = Tree::new();
    let subtree = tree.sub;
    assert_eq!(tree.refusal(Op::Job(JobOp::TakeOver { subtree })), Some(Errno::Stale));
    assert_eq!(tree.refusal(Op::Job(JobOp::TakeOver { subtree: NOTHING })), Some(Errno::Stale));
}

#[test]
fn a_subtree_is_taken_over_by_root_or_its_owner() {
    let (mut tree, _) = decoupled(BLOCKS);
    let subtree = tree.sub;
    let cred = crate::tests::fixture::guest();
    let tid = tree.ask_as(2, &cred, Op::Job(JobOp::TakeOver { subtree }));
    assert_eq!(tree.reply(2, tid).result.unwrap_err().errno, Errno::NotPermitted);
}

#[test]
fn a_policy_of_a_decoupled_subtree_waits_for_its_release() {
    let (mut tree, _) = decoupled(ALLOWS);
    let policy = "consistency: rpcs\ndurability: stream\n";
    assert_eq!(tree.set_policy("/dir/sub", policy), Ok(Answer::Pending(ClientId(1))));
}

#[test]
fn a_merge_brings_the_files_of_the_journal() {
    let (mut tree, given) = decoupled(BLOCKS);
    let bytes = files(&tree, &given, &["a", "b"]);
    let report = merge(&mut tree, &bytes, RELEASE).unwrap();
    assert_eq!((report.events, report.created, report.rejected), (2, 2, 0));
    let sub = tree.sub;
    assert_eq!(tree.names(sub), ["a", "b"]);
}

#[test]
fn a_restarted_server_does_not_take_a_subtree_back_over_lost_merges() {
    let (mut tree, given) = decoupled(BLOCKS);
    let bytes = files(&tree, &given, &["a"]);
    let before = MergeFlags { in_term: types::Epoch(given.epoch.0 + 7), ..RELEASE };
    assert_eq!(merge(&mut tree, &bytes, before), Err(Errno::Canceled));
    // The subtree is still the client's.
    let now = MergeFlags { in_term: given.epoch, ..RELEASE };
    assert_eq!(merge(&mut tree, &bytes, now).unwrap().created, 1);
}

#[test]
fn a_dry_run_brings_nothing() {
    let (mut tree, given) = decoupled(BLOCKS);
    let bytes = files(&tree, &given, &["a"]);
    let report = merge(&mut tree, &bytes, MergeFlags { dry_run: true, ..PLAIN }).unwrap();
    assert_eq!(report.events, 1);
    let sub = tree.sub;
    assert!(tree.names(sub).is_empty());
}

#[test]
fn a_merge_wins_over_the_names_of_other_clients() {
    let (mut tree, given) = decoupled(ALLOWS);
    let sub = tree.sub;
    tree.file(sub, "a");
    let bytes = files(&tree, &given, &["a"]);
    let report = merge(&mut tree, &bytes, PLAIN).unwrap();
    assert_eq!(report.replaced, 1);
    assert_eq!(tree.lookup(sub, "a"), Ok(Ino(given.range.start)));
}

#[test]
fn a_merge_with_checks_leaves_out_the_names_of_other_clients() {
    let (mut tree, given) = decoupled(ALLOWS);
    let sub = tree.sub;
    let theirs = tree.file(sub, "a");
    let bytes = files(&tree, &given, &["a", "b"]);
    let report = merge(&mut tree, &bytes, MergeFlags { check: true, ..PLAIN }).unwrap();
    assert_eq!((report.rejected, report.created), (1, 1));
    assert_eq!(tree.lookup(sub, "a"), Ok(theirs));
}

#[test]
fn a_repeated_merge_brings_nothing_twice() {
    let (mut tree, given) = decoupled(BLOCKS);
    let bytes = files(&tree, &given, &["a"]);
    merge(&mut tree, &bytes, PLAIN).unwrap();
    merge(&mut tree, &bytes, PLAIN).unwrap();
    let sub = tree.sub;
    assert_eq!(tree.names(sub), ["a"]);
}

/// A merge by client 1 whose answer is lost; then client 2 has everything stored. Repeats the merge
/// after some further steps.
fn repeated_merge(flags: MergeFlags, meanwhile: impl Fn(&mut Tree)) -> Result<Answer, Errno> {
    let (mut tree, given) = decoupled(BLOCKS);
    let bytes = files(&tree, &given, &["a"]);
    let tid = begin_merge(&mut tree, 1, &bytes, flags);
    assert!(tree.reply(1, tid).result.is_ok());
    tree.disconnect(1);
    let stored = answer_of(&mut tree, 2, Op::Admin(AdminOp::Checkpoint));
    assert!(stored.is_ok(), "{stored:?}");
    meanwhile(&mut tree);
    tree.replies.clear();
    tree.connect(1);
    let (subtree, length) = (tree.sub, bytes.len() as u64);
    let unused = UnusedNumbers::default();
    let op = Op::Job(JobOp::Merge { subtree, bytes: length, object: b"", flags, unused });
    tree.send(1, 0, Request::new(tid, Tid(tid.0 - 1), Cred::root(), op));
    let conn = tree.conn(1, 0);
    tree.input(0, MdsInput::Message(conn, Message::Chunk { tid, bytes: &bytes }));
    tree.reply(1, tid).result.map_err(|failure| failure.errno)
}

#[test]
fn a_merge_whose_answer_was_lost_is_answered_again_after_the_release() {
    for store in [false, true] {
        let answer = repeated_merge(MergeFlags { store, ..RELEASE }, |_| {});
        assert!(matches!(answer, Ok(Answer::Merged(_))), "store: {store}: {answer:?}");
    }
}

#[test]
fn a_merge_whose_answer_was_lost_is_answered_again_when_another_client_has_the_subtree() {
    let answer = repeated_merge(RELEASE, |tree| {
        decouple(tree, "/dir/sub", 2, BLOCKS).unwrap();
    });
    assert!(matches!(answer, Ok(Answer::Merged(_))), "{answer:?}");
}

/// Whether the rank's table has a released subtree after a checkpoint, and when its client has
/// asked for something else.
fn is_known_released(flags: MergeFlags, unstored: bool) -> [bool; 2] {
    let (mut tree, given) = decoupled(BLOCKS);
    let bytes = files(&tree, &given, &["a"]);
    let subtree = tree.sub;
    if unstored {
        tree.mds_mut().checkpoint.note_merge(Seq(u64::MAX), subtree, b"journal/client/later");
    }
    merge(&mut tree, &bytes, flags).unwrap();
    assert!(answer_of(&mut tree, 2, Op::Admin(AdminOp::Checkpoint)).is_ok());
    let is_known = |tree: &Tree| tree.mds(0).tables.decoupled.contains_key(&subtree);
    let stored = is_known(&tree);
    tree.attr(subtree);
    tree.pass(2_000);
    [stored, is_known(&tree)]
}

#[test]
fn a_released_subtree_is_known_until_its_client_has_the_answer() {
    assert_eq!(is_known_released(MergeFlags { store: true, ..RELEASE }, false), [true, false]);
    assert_eq!(is_known_released(RELEASE, false), [false, false]);
}

#[test]
fn a_released_subtree_is_known_while_a_merge_of_it_is_not_stored() {
    assert_eq!(is_known_released(RELEASE, true), [true, true]);
}

#[test]
fn a_merge_that_is_stored_is_in_the_metadata_store() {
    let (mut tree, given) = decoupled(BLOCKS);
    let bytes = files(&tree, &given, &["a"]);
    merge(&mut tree, &bytes, MergeFlags { store: true, ..PLAIN }).unwrap();
    assert_eq!(tree.store.names_in(tree.sub), ["a"]);
}

#[test]
fn a_journal_with_foreign_numbers_is_refused() {
    let (mut tree, given) = decoupled(BLOCKS);
    let (sub, file) = (tree.sub, tree.file);
    let bytes = journal_of(sub, 1, given.epoch, &[("a", file.0)]);
    assert_eq!(merge(&mut tree, &bytes, PLAIN), Err(Errno::NotPermitted));
}

#[test]
fn an_event_outside_of_the_subtree_is_left_out() {
    let (mut tree, given) = decoupled(BLOCKS);
    let header = journal_of(tree.sub, 1, given.epoch, &[]);
    let outside = journal_of(tree.open, 1, given.epoch, &[("a", given.range.start)]);
    let blocks = &outside[journal::segment::HEADER_BYTES..];
    let bytes = [&header[..journal::segment::HEADER_BYTES], blocks].concat();
    let report = merge(&mut tree, &bytes, PLAIN).unwrap();
    assert_eq!((report.created, report.rejected), (0, 1));
    let open = tree.open;
    assert!(tree.names(open).is_empty());
}

#[test]
fn a_journal_of_another_client_is_refused() {
    let (mut tree, given) = decoupled(BLOCKS);
    let bytes = journal_of(tree.sub, 2, given.epoch, &[("a", given.range.start)]);
    assert_eq!(merge(&mut tree, &bytes, PLAIN), Err(Errno::Invalid));
}

#[test]
fn a_damaged_journal_is_refused() {
    let (mut tree, given) = decoupled(BLOCKS);
    let mut bytes = files(&tree, &given, &["a"]);
    *bytes.last_mut().unwrap() ^= 1;
    assert_eq!(merge(&mut tree, &bytes, PLAIN), Err(Errno::BadMessage));
}

#[test]
fn a_journal_that_is_longer_than_announced_is_refused() {
    let (mut tree, given) = decoupled(BLOCKS);
    let bytes = files(&tree, &given, &["a"]);
    let (subtree, unused, flags) = (tree.sub, UnusedNumbers::default(), PLAIN);
    let op = Op::Job(JobOp::Merge { subtree, bytes: 10, object: b"", flags, unused });
    let tid = tree.ask(1, op);
    let conn = tree.conn(1, 0);
    tree.input(0, MdsInput::Message(conn, Message::Chunk { tid, bytes: &bytes }));
    assert_eq!(tree.reply(1, tid).result.unwrap_err().errno, Errno::BadMessage);
}

#[test]
fn a_merge_by_a_client_that_does_not_have_the_subtree_is_refused() {
    let (mut tree, _) = decoupled(ALLOWS);
    let (subtree, unused, flags) = (tree.sub, UnusedNumbers::default(), PLAIN);
    let op = Op::Job(JobOp::Merge { subtree, bytes: 10, object: b"", flags, unused });
    assert_eq!(answer_of(&mut tree, 2, op), Err(Errno::Busy));
}

#[test]
fn a_merge_into_a_subtree_that_is_not_decoupled_is_refused() {
    let mut tree = Tree::new();
    let (subtree, unused, flags) = (tree.sub, UnusedNumbers::default(), PLAIN);
    let op = Op::Job(JobOp::Merge { subtree, bytes: 10, object: b"", flags, unused });
    assert_eq!(tree.refusal(op), Some(Errno::Stale));
}

#[test]
fn a_merge_of_a_journal_that_is_too_large_is_refused() {
    let (mut tree, _) = decoupled(BLOCKS);
    let (subtree, unused, flags) = (tree.sub, UnusedNumbers::default(), PLAIN);
    let op = Op::Job(JobOp::Merge { subtree, bytes: u64::MAX, object: b"", flags, unused });
    assert_eq!(tree.refusal(op), Some(Errno::TooBig));
}

#[test]
fn a_merge_by_reference_needs_a_list_of_runs() {
    let (mut tree, _) = decoupled(BLOCKS);
    let (subtree, unused) = (tree.sub, UnusedNumbers::default());
    let flags = MergeFlags { by_reference: true, ..PLAIN };
    let op = Op::Job(JobOp::Merge { subtree, bytes: 0, object: b"", flags, unused });
    assert_eq!(tree.refusal(op), Some(Errno::NotSupported));
}

#[test]
fn a_merge_of_a_journal_object_that_is_gone_is_refused() {
    let (mut tree, _) = decoupled(BLOCKS);
    let (subtree, unused, flags) = (tree.sub, UnusedNumbers::default(), PLAIN);
    let op =
        Op::Job(JobOp::Merge { subtree, bytes: 0, object: b"journal/client/x", flags, unused });
    assert_eq!(tree.refusal(op), Some(Errno::NotFound));
}

#[test]
fn a_merge_whose_connection_ends_is_dropped() {
    let (mut tree, given) = decoupled(ALLOWS);
    let bytes = files(&tree, &given, &["a"]);
    let (subtree, unused, flags) = (tree.sub, UnusedNumbers::default(), PLAIN);
    let length = bytes.len() as u64;
    tree.ask(1, Op::Job(JobOp::Merge { subtree, bytes: length, object: b"", flags, unused }));
    assert!(tree.mds(0).is_merging());
    tree.disconnect(1);
    assert!(!tree.mds(0).is_merging());
}

/// Makes a file with content in a data object, and returns the prefix of its objects.
fn stored_file(tree: &mut Tree, parent: Ino, name: &str) -> String {
    let new = NewInode { mode: FILE, size: 10, ..NewInode::default() };
    let op = Op::Change(ChangeOp::Create { parent, name: name.as_bytes(), new });
    let Ok(Answer::Attr(attr)) = tree.answer(op) else { panic!("no file") };
    let prefix = metastore::data_prefix(attr.ino, attr.stripe.pool());
    let (data, condition) = (b"0123456789".to_vec(), Condition::Any);
    tree.store.execute(StoreOp::Put { object: format!("{prefix}0"), data, condition });
    prefix
}

/// The next server has nothing of the tree in memory, and client 1 still has the subtree.
fn forget(tree: &mut Tree) {
    tree.checkpoint();
    tree.crash(0);
    tree.start(0);
    tree.connect(1);
    tree.until(|tree| tree.mds(0).is_active());
}

/// Waits until the objects of a file are gone, which takes a checkpoint.
fn wait_for_purge(tree: &mut Tree, prefix: &str) {
    tree.checkpoint();
    tree.until(|tree| tree.store.names(prefix).is_empty());
}

#[test]
fn the_content_of_a_file_goes_that_a_merge_replaces_outside_of_memory() {
    let (mut tree, given) = decoupled(ALLOWS);
    let sub = tree.sub;
    let (kept, lost) = (stored_file(&mut tree, sub, "b"), stored_file(&mut tree, sub, "a"));
    forget(&mut tree);
    assert!(!tree.mds(0).namespace().is_complete(sub));
    let bytes = files(&tree, &given, &["a", "c"]);
    let report = merge(&mut tree, &bytes, PLAIN).unwrap();
    assert_eq!((report.created, report.replaced), (2, 1));
    wait_for_purge(&mut tree, &lost);
    assert_eq!(tree.store.names(&kept).len(), 1);
    assert_eq!(tree.names(sub), ["a", "b", "c"]);
}

#[test]
fn the_content_below_a_directory_goes_that_a_merge_replaces_outside_of_memory() {
    let (mut tree, given) = decoupled(ALLOWS);
    let sub = tree.sub;
    let outer = tree.dir(sub, "a");
    let inner = tree.dir(outer, "inner");
    let lost = stored_file(&mut tree, inner, "x");
    forget(&mut tree);
    // The directory itself is in memory, and the names in the inner one are not.
    assert_eq!(tree.lookup(sub, "a"), Ok(outer));
    assert!(!tree.mds(0).namespace().is_complete(inner));
    let bytes = files(&tree, &given, &["a"]);
    assert_eq!(merge(&mut tree, &bytes, PLAIN).unwrap().replaced, 1);
    wait_for_purge(&mut tree, &lost);
}

#[test]
fn a_merge_into_a_large_directory_looks_up_its_names_at_once() {
    let (mut tree, given) = decoupled(ALLOWS);
    let sub = tree.sub;
    tree.file(sub, "a");
    forget(&mut tree);
    let before = tree.counted(0, "cold_lookups");
    let bytes = files(&tree, &given, &["a", "b", "c"]);
    merge(&mut tree, &bytes, PLAIN).unwrap();
    assert_eq!(tree.counted(0, "cold_lookups") - before, 1);
}

/// The order to stop comes between a journal and its merge, which the journal of the rank will not
/// have.
#[test]
fn a_merge_without_a_record_is_stored_before_the_next_server_starts() {
    let policy = "consistency: append_client_journal+volatile_apply\ndurability: none\n";
    let (mut tree, given) = decoupled(policy);
    let journal = files(&tree, &given, &["a", "b"]);
    let (subtree, bytes, unused) = (tree.sub, journal.len() as u64, UnusedNumbers::default());
    let op = JobOp::Merge { subtree, bytes, object: b"", flags: PLAIN, unused };
    let tid = tree.ask(1, Op::Job(op));
    let conn = tree.conn(1, 0);
    tree.input(0, MdsInput::Message(conn, Message::Chunk { tid, bytes: &journal }));
    tree.input(0, MdsInput::Terminate);
    tree.until(|tree| tree.stopped == [0]);
    tree.stopped.clear();
    tree.start(0);
    tree.connect(1);
    tree.until(|tree| tree.mds(0).is_active());
    tree.answer(Op::Read(ReadOp::Walk { base: Ino::ROOT, path: b"/dir/sub" })).unwrap();
    assert_eq!(tree.names(subtree), ["a", "b"]);
}
