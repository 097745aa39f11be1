//! The judge fails on broken survivors, and numbers give their cases.

use policy::Cell;
use types::{Attr, Ino};

use super::case::{AceCase, run_case};
use super::grammar::AceOp;
use super::judge::Survivors;
use super::workload::operations;
use super::{AceRun, Strike, workloads};
use crate::cells::ledger::Shown;
use crate::tree::Item;

/// A finished workload in the cell with this name.
fn promised(cell: &str) -> (AceRun, Survivors) {
    let cell = Cell::all().find(|known| known.to_string() == cell).expect("a cell of this name");
    let mut run = AceRun::new(cell, 1, false);
    let work = [
        AceOp::Mkdir("A"),
        AceOp::Create("A/foo"),
        AceOp::Write("A/foo"),
        AceOp::SetXattr("A/foo"),
        AceOp::Link("A/foo", "A/bar"),
        AceOp::Rename("A/foo", "B"),
    ];
    assert_eq!(run.work(&work), Ok(()));
    assert_eq!(run.check("after the work"), Ok(()), "{:?}", run.cells.requests.world.violation);
    let seen = run.read();
    (run, seen)
}

/// Whether the judge accepts survivors after a change.
fn accepts(run: &mut AceRun, seen: &Survivors, change: impl FnOnce(&mut Survivors)) -> bool {
    let mut changed = seen.clone();
    change(&mut changed);
    let (statuses, executed) = (run.statuses(), run.cells.requests.executed.len());
    run.judge(&statuses, executed, &changed).is_ok()
}

/// A part of an object, and a change of the part.
type BrokenItem = (&'static str, fn(&mut Item));

fn change_item(seen: &mut Survivors, path: &str, change: impl FnOnce(&mut Item)) {
    change(seen.tree.get_mut(path).expect("the workload made the path"));
}

#[test]
fn the_judge_rejects_survivors_that_no_promise_explains() {
    for cell in ["weak-global", "weak-none", "strong-global", "strong-none", "strong-local"] {
        let (mut run, seen) = promised(cell);
        let run = &mut run;
        assert!(accepts(run, &seen, |_| {}), "{cell}");
        let lost = |seen: &mut Survivors| drop(seen.tree.remove("/c0/A/bar"));
        assert!(!accepts(run, &seen, lost), "{cell}: a lost name");
        let extra = |seen: &mut Survivors| {
            let item = seen.tree["/c0/A/bar"].clone();
            seen.tree.insert("/c0/A/strange".into(), item);
        };
        assert!(!accepts(run, &seen, extra), "{cell}: a name that no operation made");
        let returned = |seen: &mut Survivors| {
            let item = seen.tree["/c0/A/bar"].clone();
            seen.tree.insert("/c0/A/foo".into(), item);
        };
        assert!(!accepts(run, &seen, returned), "{cell}: a name before its rename");
        let dangling = |seen: &mut Survivors| seen.dangling.extend(["/c0/A/bar".to_owned()]);
        assert!(!accepts(run, &seen, dangling), "{cell}: a name without an inode");
        let changes: [BrokenItem; 6] = [
            ("data", |item| item.data.clear()),
            ("an extended attribute", |item| item.xattrs.clear()),
            ("links", |item| item.attr.nlink = 1),
            ("the owner", |item| item.attr.uid = 1),
            ("the time", |item| item.attr.mtime.0 += 1),
            ("the inode", |item| item.attr = Attr { ino: Ino(7), ..item.attr }),
        ];
        for (what, change) in changes {
            let broken = |seen: &mut Survivors| change_item(seen, "/c0/B", change);
            assert!(!accepts(run, &seen, broken), "{cell}: {what}");
        }
    }
}

#[test]
fn a_lost_event_is_noticed_also_where_a_crash_tore_the_store() {
    let (mut run, seen) = promised("weak-none");
    // A server crashed before the rename was merged again.
    let mut statuses = run.statuses();
    for status in &mut statuses {
        (status.shown, status.torn) = (Shown::Perhaps, true);
    }
    let judge = |run: &AceRun, statuses: &[_], change: fn(&mut Survivors)| {
        let mut changed = seen.clone();
        change(&mut changed);
        run.judge(statuses, run.cells.requests.executed.len(), &changed).is_ok()
    };
    assert!(judge(&run, &statuses, |_| {}));
    assert!(judge(&run, &statuses, |seen| seen.tree.retain(|path, _| path == "/c0")));
    // The name was stored, and the directory above not.
    assert!(!judge(&run, &statuses, |seen| {
        let item = seen.tree["/c0/B"].clone();
        seen.tree.insert("/c0/A/strange".into(), item);
    }));
    assert!(!judge(&run, &statuses, |seen| change_item(seen, "/c0/B", |it| it.data.truncate(1))));
    statuses[0].shown = Shown::Stable;
    assert!(!judge(&run, &statuses, |seen| seen.tree.retain(|path, _| path == "/c0")));
    run.cells.end_process();
}

#[test]
fn a_number_gives_its_case() {
    let strike = Strike::of(513, 6);
    for strike in [None, Some(strike)] {
        let case = AceCase { length: 3, workload: 59_318, cell: 8, strike };
        assert_eq!(AceCase::of_number(case.number()), Some(case));
    }
    let case = AceCase { length: 1, workload: workloads(1), cell: 0, strike: None };
    assert_eq!(AceCase::of_number(case.number()), None);
}

#[test]
fn a_case_gives_the_same_run_again() {
    for (cell, point) in [(1, 5), (4, 9), (5, 12), (8, 7)] {
        let strike = Some(Strike::of(point, 3));
        let case = AceCase { length: 2, workload: 400, cell, strike };
        let run = || run_case(case, false).expect("the workload is possible");
        assert_eq!(run().fingerprint, run().fingerprint, "{}", case.words());
    }
}

#[test]
fn operations_have_what_they_need_before_them() {
    let cell = Cell::all().find(|cell| cell.to_string() == "strong-global").expect("a cell");
    let words = |number| {
        let all = operations(2, number, cell)?;
        Some(all.iter().map(AceOp::to_string).collect::<Vec<_>>().join(", "))
    };
    let all: Vec<_> = (0..workloads(2)).filter_map(words).collect();
    for expected in [
        "mkdir A, create A/foo, unlink A/foo, create A/foo",
        "mkdir A, create A/foo, link A/foo A/bar, unlink A/foo",
        "mkdir A, create A/foo, write A/foo, truncate A/foo, sync",
        "mkdir B, create B/foo, unlink B/foo, rmdir B",
        "decouple, merge, branch",
        "decouple, sync part, merge",
    ] {
        assert!(all.iter().any(|known| known == expected), "{expected}");
    }
    assert!(all.iter().all(|known| !known.contains("policy strong-global, policy strong-global")));
}
