use metastore::{Attached, Manifest, RowValue, merge};
use namespace::{PlannedInode, Refusal};
use proptest::prelude::*;
use types::{
    ClientId, Cred, EntryName, Epoch, FileType, InoRange, RenameFlags, Timestamp, XattrChange,
};

use super::*;
use crate::{ClientSubtree, Grant};

const ROOT: Ino = Ino(16);
const RANGE: InoRange = InoRange { start: 1_000, end: 100_000 };
/// An entry of another client in the root, if the root is not empty.
const OLD_DIR: Ino = Ino(50);
const OLD_FILE: Ino = Ino(51);
const EVERYTHING: RunThreshold = RunThreshold { names_min: 0, names_per_directory_min: 0 };

fn attr(ino: Ino, mode: u32) -> Attr {
    let time = Timestamp(5);
    let (mtime, ctime, btime, atime) = (time, time, time, time);
    Attr { ino, mode, nlink: 1, mtime, ctime, btime, atime, ..Attr::default() }
}

/// The server's namespace: the root, and perhaps names of other clients in it.
fn base(is_empty: bool) -> Namespace {
    let mut namespace = Namespace::new();
    namespace.store().adopt_root(&attr(ROOT, 0o040_755), is_empty);
    if !is_empty {
        namespace.store().load_entry(ROOT, b"a", &attr(OLD_DIR, 0o040_755), b"");
        namespace.store().load_entry(ROOT, b"b", &attr(OLD_FILE, 0o100_644), b"old");
        for dir in [OLD_DIR, ROOT] {
            namespace.store().finish_load(dir, Seq(0), Default::default());
        }
    }
    namespace
}

fn decoupled(is_empty: bool) -> ClientSubtree {
    let grant = Grant {
        client: ClientId(1),
        root: attr(ROOT, 0o040_755),
        range: RANGE,
        epoch: Epoch(1),
        empty: is_empty,
        check: false,
    };
    let mut inner = ClientSubtree::new(grant, Seq(1));
    if !is_empty {
        *inner.view().namespace_mut() = base(false);
    }
    inner
}

/// Everything in a namespace: path, attributes, content.
fn dump(namespace: &mut Namespace) -> Vec<String> {
    let (mut lines, mut todo) = (Vec::new(), vec![(ROOT, String::new())]);
    while let Some((dir, path)) = todo.pop() {
        if !namespace.is_complete(dir) {
            // It was never stored: the server would find that out.
            namespace.store().finish_load(dir, Seq(0), Default::default());
        }
        let about = namespace.getattr(dir).expect("it is there");
        lines.push(format!(
            "{path}/ {:?} {:?} {:o} {}",
            about.mtime, about.ctime, about.mode, about.uid
        ));
        let entries = namespace.list(&Cred::root(), dir, None, usize::MAX, true);
        for entry in entries.expect("it is complete") {
            let name = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
            let data = namespace.data(entry.attr.ino).expect("it is there").to_vec();
            if entry.attr.is_dir() {
                todo.push((entry.attr.ino, name));
            } else {
                lines.push(format!("{name} {:?} {data:?}", entry.attr));
            }
        }
    }
    lines.sort();
    lines
}

fn apply(namespace: &mut Namespace, blocks: &[Vec<u8>]) {
    each_event(blocks, |_, event| {
        namespace.apply(Seq(100), Mode::Merge, event);
        Ok(())
    })
    .expect("its own journal is intact");
}

/// The directories as a server fetches them, including its notes about the runs.
fn attach(namespace: &mut Namespace, reference: &ByReference) {
    let mut objects = reference.objects.iter();
    for runs in reference.list.dirs.chunk_by(|one, next| one.dir == next.dir) {
        let (dir, mut names, mut stored) = (runs[0].dir, 0, Vec::new());
        let dirfrag = DirFragId { ino: dir, frag: Frag::WHOLE };
        let mut manifest = Manifest::new(dirfrag);
        for run in runs {
            let (name, bytes) = objects.next().expect("each run is an object");
            assert_eq!(*name, run_name(dirfrag, run.run.id));
            let attached = Attached { run: run.run.id, position: Seq(99), ranges: vec![RANGE] };
            manifest.runs.push(run.run);
            manifest.attached.push(attached);
            stored.push(bytes.clone());
            names += run.run.rows;
        }
        let rows = merge(&manifest, &stored).expect("it was just written");
        assert_eq!(rows.len() as u64, names, "nothing of it may be left out");
        let subdirs = rows.iter().filter(|row| match row.value {
            RowValue::Inode(record) => record.attr.is_dir(),
            RowValue::Remote { .. } | RowValue::Removed => false,
        });
        assert_eq!(subdirs.count() as u64, runs.iter().map(|run| run.subdirs).sum::<u64>());
        namespace.store().load(dir, rows.iter());
        namespace.store().finish_load(dir, Seq(0), Default::default());
    }
}

/// Converts a client's work while it works, with a piece written after this many of its blocks.
fn reference_in_background(
    inner: &mut ClientSubtree,
    is_empty: bool,
    worth: RunThreshold,
    every: usize,
) -> Result<ByReference, ByValue> {
    let mut collector = RunCollector::new(ROOT, is_empty, worth);
    let header = inner.header();
    let blocks = inner.blocks();
    let mut objects = Vec::new();
    let write = |collector: &mut RunCollector, objects: &mut Vec<Object>, piece: Piece| {
        let (object, part) = piece.encode()?;
        assert_eq!(object.0, part.object());
        objects.push(object);
        collector.written(part)
    };
    for (at, block) in blocks.iter().enumerate() {
        collector.take(block)?;
        if at % every == every - 1 {
            for piece in collector.every_piece() {
                write(&mut collector, &mut objects, piece)?;
            }
        }
    }
    for piece in collector.end()? {
        write(&mut collector, &mut objects, piece)?;
    }
    let useless = collector.take_useless();
    objects.retain(|(name, _)| useless.iter().all(|part| part.object() != *name));
    let mut reference = collector.finish(&header, blocks)?;
    // In the order of the list.
    for run in &reference.list.dirs {
        let name = run_name(DirFragId { ino: run.dir, frag: Frag::WHOLE }, run.run.id);
        let at = objects.iter().position(|(known, _)| *known == name).expect("it is stored");
        reference.objects.push(objects.swap_remove(at));
    }
    assert!(objects.is_empty(), "whatever is stored is listed or useless");
    Ok(reference)
}

#[derive(Clone, Copy, Debug)]
enum Op {
    /// A file whose length follows.
    Grow,
    Blind(u8, u8),
    Make(u8, u8, bool),
    Unlink(u8, u8),
    Rmdir(u8, u8),
    Rename(u8, u8, u8, u8, bool),
    Mode(u8),
    Data(u8, u8),
    Size(u8),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let (dir, name) = (0..5u8, 0..6u8);
    let op = prop_oneof![
        4 => (dir.clone(), name.clone()).prop_map(|(d, n)| Op::Blind(d, n)),
        4 => (dir.clone(), name.clone(), any::<bool>()).prop_map(|(d, n, is)| Op::Make(d, n, is)),
        2 => (dir.clone(), name.clone()).prop_map(|(d, n)| Op::Unlink(d, n)),
        1 => (dir.clone(), name.clone()).prop_map(|(d, n)| Op::Rmdir(d, n)),
        2 => (dir.clone(), name.clone(), dir, name, prop::bool::weighted(0.2))
            .prop_map(|(d, n, e, m, x)| Op::Rename(d, n, e, m, x)),
        1 => any::<u8>().prop_map(Op::Mode),
        1 => (any::<u8>(), 0..9u8).prop_map(|(at, bytes)| Op::Data(at, bytes)),
        1 => any::<u8>().prop_map(Op::Size),
    ];
    prop::collection::vec(op, 1..60)
}

/// Operations that can mostly be converted while they happen.
fn plain_ops() -> impl Strategy<Value = Vec<Op>> {
    let (dir, name) = (0..5u8, 0..6u8);
    let op = prop_oneof![
        8 => (dir.clone(), name.clone()).prop_map(|(d, n)| Op::Blind(d, n)),
        8 => (dir, name, any::<bool>()).prop_map(|(d, n, is)| Op::Make(d, n, is)),
        2 => Just(Op::Grow),
    ];
    // One time in so many something else.
    let plain = prop::collection::vec(op, 1..60);
    (plain, prop::option::weighted(0.1, ops())).prop_map(|(mut all, more)| {
        all.extend(more.into_iter().flatten().take(2));
        all
    })
}

/// A client at work. It gets an error for an operation that breaks a rule, as in real use.
fn work(inner: &mut ClientSubtree, ops: &[Op]) {
    work_on(inner, ops, 10, (&mut Vec::new(), &mut vec![ROOT]));
}

/// A client at work from a time on, with the files that it made before.
fn work_on(
    inner: &mut ClientSubtree,
    ops: &[Op],
    since: i64,
    (made, dirs): (&mut Vec<Ino>, &mut Vec<Ino>),
) {
    let cred = Cred::root();
    let letter = |name: u8| [b'a' + name];
    for (time, op) in (since..).zip(ops) {
        let time = Timestamp(time);
        let at = |number: u8, all: &[Ino]| all[usize::from(number) % all.len()];
        let dir = |number: u8| at(number, dirs);
        let ignore = |_: Result<(), Refusal>| ();
        match *op {
            Op::Blind(d, n) => {
                // A unique name, so that it is always new.
                let name = [&letter(n)[..], time.0.to_string().as_bytes()].concat();
                let new = PlannedInode {
                    mode: 0o100_600,
                    time,
                    data: b"x",
                    size: 1,
                    ..PlannedInode::default()
                };
                made.push(inner.create(&cred, dir(d), &name, &new).expect("numbers suffice"));
            }
            Op::Make(d, n, is_dir) => {
                let mode = if is_dir { 0o040_755 } else { 0o100_644 };
                let new = PlannedInode { mode, time, ..PlannedInode::default() };
                if let Ok(ino) =
                    inner.create_checked(&cred, EntryName::new(dir(d), &letter(n)), &new)
                {
                    made.push(ino);
                    if is_dir {
                        dirs.push(ino);
                    }
                }
            }
            Op::Unlink(d, n) => ignore(inner.unlink(&cred, dir(d), &letter(n), time)),
            Op::Rmdir(d, n) => ignore(inner.rmdir(&cred, dir(d), &letter(n), time)),
            Op::Rename(d, n, e, m, exchange) => {
                let flags = RenameFlags { exchange, ..RenameFlags::default() };
                let (from, to) = (letter(n), letter(m));
                let (from, to) = (EntryName::new(dir(d), &from), EntryName::new(dir(e), &to));
                ignore(inner.rename(&cred, from, to, flags, time));
            }
            Op::Mode(number) if !made.is_empty() => {
                let change = AttrChange { mode: Some(0o700), ..AttrChange::default() };
                ignore(inner.setattr(&cred, at(number, made), &change, time));
            }
            Op::Data(number, bytes) if !made.is_empty() => {
                let data = vec![b'd'; usize::from(bytes)];
                let size = u64::from(bytes);
                ignore(inner.setdata(&cred, at(number, made), &data, size, time));
            }
            Op::Size(number) if !made.is_empty() => {
                let change = AttrChange { size: Some(1 << 23), ..AttrChange::default() };
                ignore(inner.setattr(&cred, at(number, made), &change, time));
            }
            Op::Grow => {
                if let Some(ino) = made.last().copied()
                    && let Some(home) = inner.view().namespace().home_of(ino)
                {
                    let size = Some(1 << 22);
                    let change = AttrChange { size, ..AttrChange::default() };
                    inner.set_attr_blindly(ino, home, &change, time);
                }
            }
            Op::Mode(_) | Op::Data(..) | Op::Size(_) => {}
        }
    }
}

/// Merges a client's work both ways. Returns whether it could be merged by reference.
fn compare(ops: &[Op], is_empty: bool, worth: RunThreshold) -> Result<bool, TestCaseError> {
    let mut inner = decoupled(is_empty);
    work(&mut inner, ops);
    let header = inner.header();
    let blocks = inner.blocks().to_vec();
    let root = attr(ROOT, 0o040_755);
    match ByReference::of(&header, &blocks, &root, is_empty, worth) {
        Ok(reference) => agree(&reference, &blocks, is_empty).map(|()| true),
        Err(_) => Ok(false),
    }
}

/// The same for work that is converted in the background, in pieces; a block ends after this many
/// of its operations.
fn compare_in_background(
    ops: &[Op],
    (is_empty, worth): (bool, RunThreshold),
    (events, every): (usize, usize),
) -> Result<bool, TestCaseError> {
    let mut inner = decoupled(is_empty);
    let (mut made, mut dirs) = (Vec::new(), vec![ROOT]);
    for (at, ops) in ops.chunks(events).enumerate() {
        work_on(
            &mut inner,
            ops,
            10 + i64::try_from(at * events).expect("few"),
            (&mut made, &mut dirs),
        );
        inner.blocks();
    }
    match reference_in_background(&mut inner, is_empty, worth, every) {
        Ok(reference) => agree(&reference, inner.blocks(), is_empty).map(|()| true),
        Err(_) => Ok(false),
    }
}

/// The namespace is that of a merge by value.
fn agree(reference: &ByReference, blocks: &[Vec<u8>], is_empty: bool) -> Result<(), TestCaseError> {
    let mut by_value = base(is_empty);
    apply(&mut by_value, blocks);
    let mut by_reference = base(is_empty);
    attach(&mut by_reference, reference);
    apply(&mut by_reference, &reference.blocks);
    prop_assert_eq!(dump(&mut by_reference), dump(&mut by_value));
    let mut creates = 0;
    each_event(&reference.blocks, |_, event| {
        creates += u64::from(matches!(event, Event::Create(_)));
        Ok(())
    })
    .expect("it was just written");
    let mut all = 0;
    each_event(blocks, |_, event| {
        all += u64::from(matches!(event, Event::Create(_)));
        Ok(())
    })
    .expect("it was just written");
    prop_assert_eq!(creates + reference.created, all, "every create is told once");
    prop_assert!(reference.list.last.0 + 1 >= reference.header.first_seq.0 + creates);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn runs_and_rest_give_the_namespace_that_the_journal_gives(
        ops in ops(),
        is_empty in any::<bool>(),
        names_min in 0..6u64,
    ) {
        let worth = RunThreshold { names_min, names_per_directory_min: names_min / 2 };
        compare(&ops, is_empty, worth)?;
    }

    #[test]
    fn runs_written_in_the_background_give_the_same_namespace(
        ops in plain_ops(),
        is_empty in any::<bool>(),
        names_min in 0..6u64,
        (events, every) in (1..9usize, 1..4usize),
    ) {
        let worth = RunThreshold { names_min, names_per_directory_min: names_min / 2 };
        compare_in_background(&ops, (is_empty, worth), (events, every))?;
    }
}

#[test]
fn usual_jobs_write_their_runs_in_the_background() {
    // The property above would hold if nothing could.
    let ops = [
        Op::Make(0, 0, true),
        Op::Make(1, 1, true),
        Op::Blind(1, 1),
        Op::Blind(2, 2),
        Op::Make(2, 3, false),
        Op::Make(2, 4, true),
        Op::Blind(3, 4),
    ];
    for (events, every) in [(1, 1), (3, 2), (9, 1)] {
        assert!(compare_in_background(&ops, (true, EVERYTHING), (events, every)).unwrap());
        // `a` belongs to another client here, so that the first directory is another.
        let ops = [&[Op::Make(0, 2, true)], &ops[1..]].concat();
        assert!(compare_in_background(&ops, (false, EVERYTHING), (events, every)).unwrap());
    }
    // A length that follows, as long as the row is in memory.
    let grows = [&ops[..], &[Op::Grow, Op::Blind(1, 5)]].concat();
    assert!(compare_in_background(&grows, (true, EVERYTHING), (9, 1000)).unwrap());
    assert!(!compare_in_background(&grows, (true, EVERYTHING), (1, 1)).unwrap());
    for (op, reason) in [
        (Op::Unlink(2, 3), ByValue::Changes),
        (Op::Rename(0, 0, 0, 5, false), ByValue::Changes),
        (Op::Mode(0), ByValue::Changes),
        (Op::Data(2, 5), ByValue::Changes),
    ] {
        let mut inner = decoupled(true);
        work(&mut inner, &[&ops[..], &[op]].concat());
        let reference = reference_in_background(&mut inner, true, EVERYTHING, 1);
        assert_eq!(reference.map(drop).unwrap_err(), reason, "{op:?}");
    }
}

#[test]
fn a_name_that_is_given_twice_is_found_across_pieces() {
    let new = PlannedInode { mode: 0o100_644, ..PlannedInode::default() };
    let mut inner = decoupled(true);
    for name in [&b"a"[..], b"b", b"c", b"b"] {
        inner.create(&Cred::root(), ROOT, name, &new).expect("numbers suffice");
        inner.blocks();
    }
    for every in [1, 2, 9] {
        let reference = reference_in_background(&mut inner, true, EVERYTHING, every);
        assert_eq!(reference.map(drop).unwrap_err(), ByValue::TakenTwice, "{every}");
    }
}

#[test]
fn pieces_come_before_the_end_and_in_halves_at_it() {
    let file =
        PlannedInode { mode: 0o100_644, data: &[7; 1000], size: 1000, ..PlannedInode::default() };
    let mut inner = decoupled(true);
    inner.extend(InoRange { start: 1 << 20, end: 1 << 21 });
    let names = 90_000u32;
    let mut collector = RunCollector::new(ROOT, true, RunThreshold::default());
    let (mut seen, mut pieces) = (0, Vec::new());
    for number in 0..names {
        // Backwards, so that the pieces follow each other the other way round.
        let name = format!("{:08}", names - number).into_bytes();
        inner.create(&Cred::root(), ROOT, &name, &file).expect("numbers suffice");
        for block in &inner.closed_blocks()[seen..] {
            collector.take(block).expect("it is plain");
            pieces.extend(collector.next_piece().expect("it is worth it"));
        }
        seen = inner.closed_blocks().len();
    }
    assert!(pieces.len() >= 4, "{}", pieces.len());
    let small = PlannedInode { data: &[], size: 0, ..file };
    for number in 0..70_000u32 {
        let name = format!("s{number}").into_bytes();
        inner.create(&Cred::root(), ROOT, &name, &small).expect("numbers suffice");
    }
    let header = inner.header();
    inner.blocks()[seen..].iter().for_each(|block| collector.take(block).expect("it is plain"));
    let before = pieces.len();
    pieces.extend(collector.end().expect("it is worth it"));
    assert_eq!(pieces.len(), before + 2, "two halves of what was left");
    let mut rows = 0;
    for piece in pieces {
        let (_, part) = piece.encode().expect("each name is new");
        collector.written(part).expect("each name is new");
    }
    let reference = collector.finish(&header, inner.blocks()).expect("it is worth it");
    reference.list.dirs.iter().for_each(|run| rows += run.run.rows);
    assert_eq!((rows, reference.created, reference.events), (160_000, 160_000, 160_000));
    assert_eq!(reference.list.dirs.len(), before + 2);
}

#[test]
fn most_changes_in_new_directories_merge_by_reference() {
    // The property above would hold if nothing could.
    let ops = [
        Op::Make(0, 0, true),
        Op::Make(1, 1, true),
        Op::Blind(1, 1),
        Op::Blind(2, 2),
        Op::Make(2, 3, false),
        Op::Rename(2, 3, 1, 4, false),
        Op::Unlink(1, 4),
        Op::Data(2, 5),
        Op::Mode(0),
    ];
    assert!(compare(&ops, true, EVERYTHING).unwrap());
    assert!(compare(&ops[1..], true, EVERYTHING).unwrap());
    // `a` belongs to another client here, so that the first directory is another.
    let ops = [&[Op::Make(0, 2, true)], &ops[1..]].concat();
    assert!(compare(&ops, false, EVERYTHING).unwrap());
}

fn reference(ops: &[Op], is_empty: bool) -> Result<ByReference, ByValue> {
    let mut inner = decoupled(is_empty);
    work(&mut inner, ops);
    let header = inner.header();
    let root = attr(ROOT, 0o040_755);
    ByReference::of(&header, inner.blocks(), &root, is_empty, EVERYTHING)
}

#[test]
fn each_merge_by_value_names_its_reason() {
    type Act<'a> = &'a dyn Fn(&mut ClientSubtree);
    let made = [Op::Make(0, 2, true), Op::Make(1, 0, false), Op::Make(1, 1, false)];
    let with = |op: &[Op]| reference(&[&made[..], op].concat(), false).map(drop).unwrap_err();
    assert_eq!(with(&[Op::Rename(1, 0, 0, 5, false)]), ByValue::Moves);
    assert_eq!(with(&[Op::Size(1), Op::Unlink(1, 0)]), ByValue::Content);
    assert_eq!(reference(&[Op::Make(0, 4, false)], false).map(drop).unwrap_err(), ByValue::Small);
    let twice = |inner: &mut ClientSubtree| {
        let new = PlannedInode { mode: 0o100_644, ..PlannedInode::default() };
        for _ in 0..2 {
            inner.create(&Cred::root(), ROOT, b"same", &new).expect("numbers suffice");
        }
    };
    let link = |inner: &mut ClientSubtree| {
        let new = PlannedInode { mode: 0o100_644, ..PlannedInode::default() };
        let ino = inner.create(&Cred::root(), ROOT, b"one", &new).expect("numbers suffice");
        inner.link(&Cred::root(), ino, EntryName::new(ROOT, b"two"), Timestamp(9)).expect("it may");
    };
    let xattr = |inner: &mut ClientSubtree| {
        let new = PlannedInode { mode: 0o100_644, ..PlannedInode::default() };
        let ino = inner.create(&Cred::root(), ROOT, b"one", &new).expect("numbers suffice");
        let flags = types::XattrFlags::default();
        inner
            .setxattr(
                &Cred::root(),
                ino,
                XattrChange { name: b"user.a", value: Some(b"1"), flags },
                Timestamp(9),
            )
            .expect("ok");
    };
    let cases: [(Act<'_>, ByValue); 3] =
        [(&twice, ByValue::TakenTwice), (&link, ByValue::HardLinks), (&xattr, ByValue::Xattrs)];
    for (act, reason) in cases {
        let mut inner = decoupled(true);
        act(&mut inner);
        let header = inner.header();
        let root = attr(ROOT, 0o040_755);
        let reference = ByReference::of(&header, inner.blocks(), &root, true, EVERYTHING);
        assert_eq!(reference.map(drop).unwrap_err(), reason);
    }
}

#[test]
fn small_trees_merge_by_value_beside_large_ones() {
    let mut inner = decoupled(true);
    let cred = Cred::root();
    let dir = PlannedInode { mode: 0o040_755, ..PlannedInode::default() };
    let file = PlannedInode { mode: 0o100_644, ..PlannedInode::default() };
    let [large, small] = [&b"large"[..], b"small"]
        .map(|name| inner.create(&cred, ROOT, name, &dir).expect("numbers suffice"));
    for number in 0..200 {
        let name = format!("{number}").into_bytes();
        inner.create(&cred, large, &name, &file).expect("numbers suffice");
    }
    inner.create(&cred, small, b"one", &file).expect("numbers suffice");
    let (header, blocks) = (inner.header(), inner.blocks().to_vec());
    let worth = RunThreshold { names_min: 100, names_per_directory_min: 100 };
    let root = attr(ROOT, 0o040_755);
    let reference = ByReference::of(&header, &blocks, &root, true, worth).unwrap();
    assert_eq!(reference.list.dirs.iter().map(|run| run.dir).collect::<Vec<_>>(), [large]);
    assert_eq!((reference.events, reference.created), (200, 200));
    let worth = RunThreshold { names_min: 100, names_per_directory_min: 10 };
    let reference = ByReference::of(&header, &blocks, &root, true, worth).unwrap();
    assert_eq!(reference.list.dirs.len(), 3, "the root, which has both, is worth it then");
}

#[test]
fn a_damaged_journal_is_not_merged_by_reference() {
    let mut inner = decoupled(true);
    work(&mut inner, &[Op::Make(0, 0, true), Op::Blind(1, 1)]);
    let (header, mut blocks) = (inner.header(), inner.blocks().to_vec());
    let middle = blocks[0].len() / 2;
    blocks[0][middle] ^= 1;
    let root = attr(ROOT, 0o040_755);
    let reference = ByReference::of(&header, &blocks, &root, true, EVERYTHING);
    assert_eq!(reference.map(drop).unwrap_err(), ByValue::Senseless);
    assert_eq!(FileType::from_mode(root.mode), Some(FileType::Directory));
}
