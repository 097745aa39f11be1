//! Properties that hold for any seed, in a cluster with only the disturbances written here.

use client::Earlier;
use metastore::{
    DirRun, InodeRecord, RowValue, Rows, RunId, RunInfo, RunList, RunReader, run_name,
};
use objstore::{Expect, ObjectStore};
use policy::{Cell, Mechanism, Policy};
use types::{
    Attr, ClientId, Cred, DirFragId, EntryName, Errno, Frag, Ino, RenameFlags, Seq, Timestamp,
};
use wire::MergeFlags;

use super::fault::{Fault, Fuse};
use super::job::journal_of;
use super::ledger::Shown;
use super::{Cells, Done, Stop};
use crate::call::CallKind;
use crate::world::Drive;

/// A process that has decoupled the first subtree under a policy of this name.
fn decoupled(seed: u64, cell: &str) -> Done<(Cells, usize)> {
    let mut cells = Cells::new(seed, false);
    cells.requests.world.fail_store(0);
    cells.requests.world.faults.errors_percent = 0;
    cells.boot()?;
    cells.decouple(cell_named(cell))?;
    let client = cells.client()?;
    Ok((cells, client))
}

/// A journal is merged by value, then from its object, and the server dies: the result of the first
/// merge is in the server's memory only, and the second one promises that it survives.
fn merged_twice(seed: u64, first: u64, then: u64) -> Done<()> {
    let (mut cells, _) = decoupled(seed, "invisible-global")?;
    cells.append(first)?;
    let merge = |cells: &mut Cells, journal, object| {
        let journal = Earlier::read("a journal".to_owned(), journal, object);
        cells.merge_one(&journal.expect("it is intact"), MergeFlags::default(), None)
    };
    let journal = journal_of(cells.holding()?);
    merge(&mut cells, journal, None)?;
    cells.append(then)?;
    cells.complete()?;
    let holding = cells.holding()?;
    assert!(holding.policy.contains(Mechanism::GlobalPersist));
    let object = holding.object_name();
    let journal = journal_of(holding);
    merge(&mut cells, journal, Some(object))?;
    cells.strike(Fault::Server);
    cells.check("after the crash");
    assert_eq!(cells.requests.world.violation, None, "seed {seed:#x}");
    let shown = cells.job().ledger.updates.iter().filter(|it| it.shown == Shown::Stable).count();
    assert_eq!(shown as u64, first + then, "seed {seed:#x}");
    Ok(())
}

#[test]
fn a_merge_from_an_object_after_one_without_survives_a_crash() {
    for seed in 0..8 {
        assert_eq!(merged_twice(seed, 5, 0), Ok(()), "seed {seed:#x}");
        assert_eq!(merged_twice(seed, 4, 5), Ok(()), "seed {seed:#x}");
    }
}

/// A journal whose first event is not a create is merged, and the server dies after some steps: all
/// of it exists, or nothing.
fn renamed_first(seed: u64, steps: u64) -> Done<()> {
    let (mut cells, _) = decoupled(seed, "weak-global")?;
    cells.append(1)?;
    // The client looks at its work before the merge, and so still sees it then.
    cells.holding()?.inner.view();
    cells.complete()?;
    let (time, root) = (cells.requests.world.clock().time, cells.job().root);
    let inner = &mut cells.holding()?.inner;
    let (from, to) = (EntryName::new(root, b"u0"), EntryName::new(root, b"moved"));
    let renamed = inner.rename(&Cred::root(), from, to, RenameFlags::default(), time);
    assert_eq!((renamed, inner.events()), (Ok(()), 1), "seed {seed:#x}");
    cells.append(7)?;
    cells.fuse = Some(Fuse { steps, fault: Fault::Server });
    // Its answer may be lost.
    let _ = cells.complete();
    cells.fuse = None;
    cells.calm_down()?;
    let seen = cells.listing(0);
    let is_there = |name: &str| seen.keys().any(|(_, known)| known == name);
    let after = (0..8).map(|at| if at == 0 { "moved".into() } else { format!("u{at}") });
    let count = after.filter(|name| is_there(name)).count();
    assert!(
        matches!((count, is_there("u0")), (0, true) | (8, false)),
        "seed {seed:#x}, after {steps} steps: {seen:?}"
    );
    Ok(())
}

#[test]
fn a_merge_without_a_leading_create_is_all_or_nothing() {
    for seed in 0..8 {
        for steps in 0..50 {
            assert_eq!(renamed_first(seed, steps), Ok(()), "seed {seed:#x}, {steps} steps");
        }
    }
}

/// The cell of this name.
fn cell_named(name: &str) -> Cell {
    Cell::all().find(|known| known.to_string() == name).expect("a cell of this name")
}

/// A client changes the policy from global durability to a weaker one and merges. Its machine and
/// the server die after some steps, and so does the machine of the next owner.
fn weakened(seed: u64, to: &str, steps: u64) -> Done<()> {
    let (mut cells, _) = decoupled(seed, "invisible-global")?;
    cells.append(5)?;
    cells.complete()?;
    cells.change(cell_named(to))?;
    cells.fuse = Some(Fuse { steps, fault: Fault::GoneServer });
    // Its answer may be lost.
    let _ = cells.merge();
    cells.fuse = None;
    cells.check("after the merge");
    // The next process takes the work over if the subtree was not given back.
    cells.boot()?;
    if cells.holding().is_ok() {
        cells.merge()?;
    }
    cells.decouple(cell_named("weak-none"))?;
    cells.append(2)?;
    cells.strike(Fault::GoneServer);
    cells.check("after the next owner is gone");
    cells.boot()
}

#[test]
fn a_weaker_policy_does_not_promise_the_objects_of_the_stronger_one() {
    for seed in 0..4 {
        for to in ["invisible-local", "weak-none"] {
            for steps in 0..40 {
                let done = weakened(seed, to, steps);
                assert_eq!(done, Ok(()), "seed {seed:#x}, to {to}, {steps} steps");
            }
        }
    }
}

/// The policy of a subtree is changed twice at once.
fn changed_twice(seed: u64) -> Done<()> {
    let mut cells = Cells::new(seed, false);
    cells.requests.world.fail_store(0);
    cells.boot()?;
    let ask = |cells: &mut Cells, cell: &str| {
        let path = cells.job().path.clone();
        let policy = Policy::of_cell(cell_named(cell)).to_yaml();
        cells.requests.ask_monitor(&CallKind::SetPolicy { path, policy, client: ClientId(0) })
    };
    let first = ask(&mut cells, "weak-local");
    let second = ask(&mut cells, "weak-none");
    let answers = &mut cells.requests.world.monitor.answers;
    let refused = answers.remove(&second).map(|answer| answer.map_err(|failure| failure.errno));
    assert_eq!(refused, Some(Err(Errno::Busy)), "seed {seed:#x}");
    assert!(cells.requests.world.is_unanswered(first), "seed {seed:#x}");
    cells.calm_down()?;
    let answer = cells.requests.world.monitor.answers.remove(&first);
    assert!(matches!(answer, Some(Ok(_))), "seed {seed:#x}: {answer:?}");
    let third = ask(&mut cells, "weak-none");
    assert!(cells.requests.world.is_unanswered(third), "seed {seed:#x}");
    Ok(())
}

#[test]
fn the_monitor_refuses_a_change_of_policy_while_another_one_is_under_way() {
    for seed in 0..8 {
        assert_eq!(changed_twice(seed), Ok(()), "seed {seed:#x}");
    }
}

/// A run of a directory with these names and inode numbers, in the store.
fn stored_run(cells: &Cells, dir: Ino, id: RunId, names: &[(&str, Ino, u32)]) -> DirRun {
    let dirfrag = DirFragId { ino: dir, frag: Frag::WHOLE };
    let mut rows = Rows::new();
    for (name, ino, mode) in names {
        let attr = Attr { ino: *ino, mode: *mode, nlink: 1, ..Attr::default() };
        let version = Seq(u64::MAX);
        let record = InodeRecord { attr, version, ..InodeRecord::default() };
        rows.push(name.as_bytes(), RowValue::Inode(record));
    }
    let bytes = rows.into_run(dirfrag, id);
    let run = RunInfo::of(&RunReader::open(&bytes).expect("it was just written"));
    let _ = cells.requests.world.memory.put(&run_name(dirfrag, id), &bytes, Expect::Any);
    DirRun { dir, run, subdirs: 0, touched: Timestamp(9) }
}

/// Sends a list of runs in front of a journal without events.
fn send_runs(cells: &mut Cells, client: usize, dirs: Vec<DirRun>) -> Result<(), Errno> {
    let subtree = cells.job().root;
    let list = RunList { journal: 1, last: Seq(1), dirs, proof: None };
    let mut message = list.encode();
    message.extend(cells.holding().expect("it has one").inner.header().encode());
    let flags = MergeFlags { by_reference: true, ..MergeFlags::default() };
    let (bytes, object, unused) = (message.len() as u64, String::new(), Vec::new());
    let merge = CallKind::Merge { subtree, bytes, object, flags, unused };
    match cells.transfer(client, merge, Some(message)) {
        Ok(_) => Ok(()),
        Err(Stop::Failed(errno)) => Err(errno),
        Err(stop) => panic!("{stop:?}"),
    }
}

#[test]
fn runs_with_foreign_inode_numbers_are_not_attached() {
    const FILE: u32 = 0o100_644;
    const DIR: u32 = 0o040_755;
    let mut tried = 0;
    for seed in 0..40 {
        let (mut cells, client) = decoupled(seed, "weak-none").expect("nothing strikes");
        let root = cells.job().root;
        let range = cells.holding().expect("it has one").note.ranges[0];
        // More names than numbers are refused.
        if range.len() < 6 {
            continue;
        }
        tried += 1;
        let [first, second] = [Ino(range.start), Ino(range.start + 1)];
        let id = RunId::of_client(first, 0);
        let good = stored_run(&cells, root, id, &[("good", first, FILE)]);
        // The list must be true, and its runs must be the client's.
        let wrong = DirRun { run: RunInfo { rows: 2, ..good.run }, ..good };
        assert_eq!(send_runs(&mut cells, client, vec![wrong]), Err(Errno::BadMessage));
        let wrong = DirRun { run: RunInfo { bytes: 7, ..good.run }, ..good };
        assert_eq!(send_runs(&mut cells, client, vec![wrong]), Err(Errno::BadMessage));
        let absent =
            DirRun { run: RunInfo { id: RunId::of_client(second, 0), ..good.run }, ..good };
        assert_eq!(send_runs(&mut cells, client, vec![absent]), Err(Errno::NotFound));
        let servers = DirRun { run: RunInfo { id: RunId(1), ..good.run }, ..good };
        for refused in [
            vec![servers],
            vec![good, good],
            vec![stored_run(&cells, Ino::ROOT, id, &[("x", first, FILE)])],
            vec![stored_run(&cells, Ino::LINKS, id, &[("x", first, FILE)])],
            vec![stored_run(&cells, Ino(range.end), id, &[("x", first, FILE)])],
            vec![DirRun { run: RunInfo { rows: u64::MAX, ..good.run }, ..good }],
        ] {
            assert_eq!(send_runs(&mut cells, client, refused), Err(Errno::NotPermitted));
        }
        // Its rows count as far as their numbers are the client's.
        let names = [
            ("above", Ino::ROOT, DIR),
            ("beyond", Ino(range.end), FILE),
            ("good", first, FILE),
            ("loop", second, DIR),
        ];
        let run = stored_run(&cells, root, id, &names);
        let below = stored_run(&cells, second, id, &[("back", second, DIR), ("root", root, DIR)]);
        assert_eq!(send_runs(&mut cells, client, vec![run, below]), Ok(()));
        let seen = |cells: &mut Cells| -> Vec<String> {
            let path = cells.job().path.clone();
            cells.requests.read_names(&path, root).into_iter().map(|(name, _)| name).collect()
        };
        let mut names = seen(&mut cells);
        names.sort();
        assert_eq!(names, ["good", "loop"], "seed {seed:#x}");
        // A look-up in the loop, and a restart, find no more.
        let path = format!("{}/loop", cells.job().path);
        assert_eq!(cells.requests.read_names(&path, second), [], "seed {seed:#x}");
        cells.strike(Fault::Server);
        cells.calm_down().expect("a server comes back");
        let mut names = seen(&mut cells);
        names.sort();
        assert_eq!(names, ["good", "loop"], "seed {seed:#x}");
        assert_eq!(cells.requests.world.violation, None, "seed {seed:#x}");
        // It has names now.
        let more = stored_run(&cells, root, RunId::of_client(second, 0), &[("more", first, FILE)]);
        let again = send_runs(&mut cells, client, vec![more]);
        assert_eq!(again, Err(Errno::NotEmpty), "seed {seed:#x}");
    }
    assert!(tried > 3, "only {tried} had enough numbers");
}
