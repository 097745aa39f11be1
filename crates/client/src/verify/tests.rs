use journal::Create;
use types::{AttrChange, Timestamp};

use super::*;

const ROOT: Ino = Ino(16);
const ALICE: u32 = 1000;

fn root() -> Attr {
    Attr { ino: ROOT, mode: 0o040_755, nlink: 2, uid: ALICE, gid: ALICE, ..Attr::default() }
}

fn alice() -> Cred {
    Cred { uid: ALICE, gid: ALICE, ..Cred::default() }
}

fn create<'a>(parent: Ino, name: &'a [u8], ino: u64, mode: u32) -> Create<'a> {
    let time = Timestamp(5);
    let (uid, gid, mtime, atime) = (ALICE, ALICE, time, time);
    Create { parent, name, ino: Ino(ino), mode, uid, gid, time, mtime, atime, ..no_create() }
}

fn no_create() -> Create<'static> {
    Create {
        parent: ROOT,
        name: b"",
        ino: Ino(0),
        mode: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        stripe: Default::default(),
        size: 0,
        time: Timestamp(0),
        mtime: Timestamp(0),
        atime: Timestamp(0),
        data: b"",
        extra: b"",
    }
}

/// The first events of honest clients.
fn honest() -> [Create<'static>; 3] {
    [
        create(ROOT, b"dir", 100, 0o040_755),
        create(Ino(100), b"file", 101, 0o100_644),
        create(Ino(100), b"closed", 102, 0o040_555),
    ]
}

fn blocks(events: &[Event<'_>]) -> Vec<Vec<u8>> {
    let mut journal = JournalBuffer::new(Seq(1), false);
    for event in events {
        journal.append(Origin::default(), event);
    }
    journal.close_block();
    journal.take_blocks()
}

fn verify(events: &[Event<'_>]) -> Result<Vec<Vec<u8>>, VerifyError> {
    let mut verifier = Verifier::new(&root(), true, alice());
    verifier.begin(Seq(1));
    blocks(events).iter().try_for_each(|block| verifier.judge(block))?;
    Ok(verifier.end())
}

/// The verdict on honest work and one event more.
#[track_caller]
fn refused(event: Event<'_>) -> Errno {
    let honest = honest().map(Event::Create);
    let all: Vec<Event<'_>> = honest.into_iter().chain([event]).collect();
    match verify(&all) {
        Err(VerifyError::Illegal { seq: Seq(4), errno, .. }) => errno,
        other => panic!("{other:?}"),
    }
}

#[test]
fn permitted_events_pass_the_verifier_unchanged() {
    let events = honest().map(Event::Create);
    assert_eq!(verify(&events), Ok(blocks(&events)));
    let change = AttrChange { mode: Some(0o700), ..AttrChange::default() };
    let change = Event::SetAttr { ino: Ino(102), home: Ino(100), change, time: Timestamp(6) };
    let inside = Event::Create(create(Ino(102), b"now", 103, 0o100_644));
    let [one, two, three] = events;
    assert!(verify(&[one, two, three, change, inside]).is_ok());
}

#[test]
fn forgeries_are_refused() {
    let made = |create| refused(Event::Create(create));
    // A parent outside of the subtree, one that is no directory, and one that is nothing.
    assert_eq!(made(create(Ino::ROOT, b"x", 103, 0o100_644)), Errno::NotFound);
    assert_eq!(made(create(Ino(101), b"x", 103, 0o100_644)), Errno::Access);
    assert_eq!(made(create(Ino(999), b"x", 103, 0o100_644)), Errno::NotFound);
    // Permissions and owners.
    assert_eq!(made(create(Ino(102), b"x", 103, 0o100_644)), Errno::Access);
    assert_eq!(made(Create { uid: 0, ..create(ROOT, b"x", 103, 0o104_755) }), Errno::NotPermitted);
    assert_eq!(made(Create { gid: 0, ..create(ROOT, b"x", 103, 0o100_644) }), Errno::NotPermitted);
    // Names; the journal itself refuses those of a wrong length, and modes without a type.
    for name in [&b"../x"[..], b"..", b".", b"a/b", b"a\0b"] {
        made(create(ROOT, name, 103, 0o100_644));
    }
    // An existing name, or an existing number.
    assert_eq!(made(create(Ino(100), b"file", 103, 0o100_644)), Errno::Exists);
    assert_eq!(made(create(ROOT, b"x", 101, 0o100_644)), Errno::Exists);
    assert_eq!(made(create(ROOT, b"x", ROOT.0, 0o100_644)), Errno::Exists);
    // Events that only servers write.
    let policy = Event::SetPolicy { ino: Ino(100), policy: b"", time: Timestamp(6), home: ROOT };
    assert_eq!(refused(policy), Errno::NotPermitted);
    let gone = Event::Unlink { parent: ROOT, name: b"dir", ino: Ino(100), time: Timestamp(6) };
    assert_eq!(refused(gone), Errno::IsDirectory);
    let large = vec![0; INLINE_BYTES_MAX + 1];
    let size = large.len() as u64;
    let (ino, home, time) = (Ino(101), Ino(100), Timestamp(6));
    assert_eq!(refused(Event::SetData { ino, home, data: &large, size, time }), Errno::TooBig);
}

#[test]
fn every_flipped_bit_of_a_block_is_found() {
    let good = blocks(&honest().map(Event::Create)).remove(0);
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        let mut verifier = Verifier::new(&root(), true, alice());
        verifier.begin(Seq(1));
        assert!(matches!(verifier.judge(&bad), Err(VerifyError::Damaged(_))), "byte {at}");
    }
}

#[test]
fn the_verifier_asks_once_for_an_existing_directory() {
    let mut verifier = Verifier::new(&root(), false, alice());
    verifier.begin(Seq(1));
    let block = blocks(&honest().map(Event::Create)).remove(0);
    assert_eq!(verifier.judge(&block), Err(VerifyError::Cold(ROOT)));
    let old = Attr { ino: Ino(50), mode: 0o100_644, nlink: 1, ..Attr::default() };
    let namespace = verifier.namespace_mut();
    namespace.store().load_entry(ROOT, b"old", &old, b"");
    namespace.store().finish_load(ROOT, Seq(0), Default::default());
    assert_eq!(verifier.judge(&block), Ok(()));
    let mut more = JournalBuffer::new(Seq(4), false);
    more.append(Origin::default(), &Event::Create(create(ROOT, b"old", 103, 0o100_644)));
    more.close_block();
    let doubt = verifier.judge(&more.blocks()[0]);
    assert!(matches!(doubt, Err(VerifyError::Illegal { errno: Errno::Exists, .. })), "{doubt:?}");
}

#[test]
fn a_legal_journal_is_proved_or_left_to_the_server() {
    let key = metastore::ProofKey::new([7; 32]);
    let writer = journal::Writer::Client { client: types::ClientId(3), subtree: ROOT };
    let epoch = types::Epoch(2);
    let header = journal::SegmentHeader { writer, epoch, first_seq: Seq(1) };
    let journal_of = |names: u64| {
        let names: Vec<_> = (0..names).map(|at| (at, format!("file.{at}").into_bytes())).collect();
        let creates = names.iter().map(|(at, name)| create(ROOT, name, 100 + at, 0o100_644));
        let events: Vec<_> = creates.map(Event::Create).collect();
        let front = header.encode().to_vec();
        [&[front][..], &blocks(&events)].concat().concat()
    };
    let mut verifier = Verifier::new(&root(), true, alice());
    let (events, proved) = verifier.prove("journal", &journal_of(5000), &key).unwrap();
    let proved = proved.unwrap();
    assert_eq!((events, proved.names, proved.runs.len()), (5000, 5000, 1));
    assert!(proved.message.ends_with(&proved.rest));
    let mut verifier = Verifier::new(&root(), true, alice());
    let small = verifier.prove("journal", &journal_of(3), &key).unwrap();
    assert_eq!((small.0, small.1.err()), (3, Some(crate::ByValue::Small)));
    let illegal =
        [&header.encode()[..], &blocks(&[Event::Create(create(Ino(77), b"a", 100, 0o100_644))])[0]]
            .concat();
    let error = Verifier::new(&root(), true, alice()).prove("journal", &illegal, &key).unwrap_err();
    assert_eq!(error.errno, Errno::NotPermitted);
}

#[test]
fn only_journals_of_the_last_decoupling_are_verified() {
    let found = [(2, 5, "c"), (1, 9, "old"), (2, 1, "b")];
    let found = found.map(|(epoch, seq, name)| (types::Epoch(epoch), Seq(seq), name.to_owned()));
    assert_eq!(of_last_decoupling(found.to_vec()), ["b", "c"]);
}
