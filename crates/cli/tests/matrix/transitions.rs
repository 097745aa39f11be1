//! Changes of policy that are interrupted: every ordered pair of the nine cells, with real
//! processes that are killed before, inside and after the steps of the change. Afterwards the old
//! policy or the new one is in force, the subtree is one client's or shared, and the promise of the
//! policy in force is kept.
//!
//! The default run strikes every pair once, another fault and another step from pair to pair. All
//! of them: `cargo test -p cli --test matrix -- --ignored --nocapture transition`.

use std::path::Path;

use cudele::{Mechanism, Stage};
use policy::{Cell, Composition, Consistency, Durability, Policy, Transition};

use crate::client::Task;
use crate::site::{Client, Site};
use crate::step::{mechanisms, passes};
use crate::tree::{Tree, acts, after};

/// Acts for which the old policy was completed; the rest are pending.
const COMPLETED: usize = 9;

/// The victim of `kill -9`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Client,
    Mds,
    Both,
}

const FAULTS: [Fault; 3] = [Fault::Client, Fault::Mds, Fault::Both];

/// A change, and where and how it is interrupted.
#[derive(Clone, Debug)]
struct Case {
    from: Cell,
    to: Cell,
    place: String,
    fault: Fault,
}

#[test]
fn every_transition_meets_a_fault() {
    let pairs = pairs().into_iter().enumerate();
    report(pairs.map(|(number, (from, to))| {
        let places = places(from, to);
        let place = places[(number + number / 9) % places.len()].clone();
        Case { from, to, place, fault: FAULTS[(number + number / 8) % FAULTS.len()] }
    }));
}

#[test]
#[ignore = "all steps: minutes"]
fn every_transition_meets_every_fault_at_every_step() {
    report(pairs().into_iter().flat_map(|(from, to)| {
        places(from, to).into_iter().flat_map(move |place| {
            FAULTS.map(|fault| Case { from, to, place: place.clone(), fault })
        })
    }));
}

fn pairs() -> Vec<(Cell, Cell)> {
    let all = || Cell::all();
    all().flat_map(|from| all().map(move |to| (from, to))).filter(|(from, to)| from != to).collect()
}

/// The places of a change, in the order in which the client comes to them. At `changing` it does
/// not wait.
fn places(from: Cell, to: Cell) -> Vec<String> {
    let mut places = vec!["held".to_owned(), "changing".to_owned()];
    if from.consistency != Consistency::Strong {
        let [before, after] = [from, to].map(Policy::of_cell);
        let Transition { persist, merge, .. } = Transition::between(&before, &after, true);
        let mut carried = mechanisms(&if merge { before.effective() } else { persist });
        if merge && !carried.contains(&Mechanism::VolatileApply) {
            carried.push(Mechanism::VolatileApply);
        }
        for mechanism in carried {
            let stages = Stage::ALL.into_iter().filter(|stage| passes(mechanism, *stage));
            places.extend(stages.map(|stage| format!("{}:{}", mechanism.name(), stage.name())));
        }
    }
    places.push("changed".to_owned());
    places
}

fn report(cases: impl Iterator<Item = Case>) {
    let site = Site::new();
    let (mut count, mut wrong) = (0, Vec::new());
    for case in cases {
        count += 1;
        let Case { from, to, place, fault } = &case;
        let line = format!("{from:<16} to {to:<16} {place:<24} {fault:?}");
        match run(&site, &case, count) {
            Ok(seen) => println!("{line}: {seen}"),
            Err(error) => {
                println!("{line}: WRONG: {error}");
                wrong.push(format!("{line}: {error}"));
            }
        }
    }
    println!("{count} transitions, {} not as promised", wrong.len());
    assert_eq!(wrong, [""; 0]);
}

/// The state of the subtree in a client's view: the policy in force, and whether it has an owner.
fn state(site: &Site, path: &str) -> Result<(Cell, bool), String> {
    let said = site.client(Task::Policy, path, &site.path("elsewhere"), &[]).result()?;
    let cell = Cell::from_name(&said["cell"]).ok_or_else(|| format!("no cell: {said:?}"))?;
    Ok((cell, said["owner"] != "0"))
}

/// The policy in force is the old or the new one, and the owner is the stated one.
fn check_state(site: &Site, case: &Case, path: &str) -> Result<Cell, String> {
    let (cell, owned) = state(site, path)?;
    let strong = |cell: Cell| cell.consistency == Consistency::Strong;
    if cell != case.from && cell != case.to {
        return Err(format!("under {cell}"));
    }
    // The owner keeps it, unless it is strong.
    let expected = !strong(case.from) && !strong(cell);
    if owned != expected {
        return Err(format!("under {cell}, and owned by a client: {owned}"));
    }
    Ok(cell)
}

fn run(site: &Site, case: &Case, number: usize) -> Result<String, String> {
    let (path, disk) = (format!("/t{number}"), site.path(&format!("disk{number}")));
    let Case { from, to, place, fault } = case;
    let [old, new] = [from, to].map(Cell::to_string);
    let task = Task::Change { from: old, to: new, completed: COMPLETED };
    let mut client = site.client(task, &path, &disk, &[place, "changed"]);
    client.await_place(place);
    match fault {
        Fault::Client => client.kill(),
        Fault::Mds => site.kill_mds(),
        Fault::Both => {
            client.kill();
            site.kill_mds();
        }
    }
    site.up();
    if *fault == Fault::Mds {
        return client_goes_on(site, case, client, &path);
    }
    drop(client);
    let found = check_state(site, case, &path)?;
    if place == "held" && found != *from || place == "changed" && found != *to {
        return Err(format!("under {found}"));
    }
    let seen = measure(&site.look(&path));
    others_go_on(site, case, &path, &disk)?;
    let kept = measure(&site.look(&path));
    judge(case, found, kept)?;
    check_use(site, case, &path)?;
    Ok(format!("under {found}, seen {seen:?}, kept {kept:?}"))
}

/// The client lives, and carries the change to its end.
fn client_goes_on(
    site: &Site,
    case: &Case,
    mut client: Client,
    path: &str,
) -> Result<String, String> {
    if case.place != "changed" {
        if case.place != "changing" {
            client.go();
        }
        client.await_place("changed");
    }
    let found = check_state(site, case, path)?;
    if found != case.to {
        return Err(format!("changed, and under {found}"));
    }
    client.go();
    client.result()?;
    let kept = measure(&site.look(path));
    judge(case, found, kept)?;
    check_use(site, case, path)?;
    Ok(format!("kept {kept:?}"))
}

/// The client is dead: a process on its disk takes over its leftovers.
fn others_go_on(site: &Site, case: &Case, path: &str, disk: &Path) -> Result<(), String> {
    for end in [false, true] {
        site.client(Task::Recover { end }, path, disk, &[]).result()?;
    }
    let (cell, owned) = state(site, path)?;
    if cell != case.from && cell != case.to {
        return Err(format!("taken up, and under {cell}"));
    }
    if owned {
        // Nothing on the disk says that it was the client's.
        site.run(&["discard", "--force", path]);
    }
    Ok(())
}

/// In the end it is shared and usable.
fn check_use(site: &Site, case: &Case, path: &str) -> Result<(), String> {
    site.run(&["mkdir", &format!("{path}/after")]);
    match state(site, path)? {
        (cell, false) if cell == case.from || cell == case.to => Ok(()),
        (cell, owned) => Err(format!("in the end under {cell}, owned by a client: {owned}")),
    }
}

/// The number of existing acts; None if the tree is not the result of the first of them.
fn measure(tree: &Tree) -> Option<usize> {
    (0..=acts().len()).rev().find(|count| after(*count) == *tree)
}

/// Whether the existing tree keeps the promise of the policy in force.
fn judge(case: &Case, found: Cell, kept: Option<usize>) -> Result<(), String> {
    let all = acts().len();
    let strong = case.from.consistency == Consistency::Strong;
    if !is_kept(case, found) {
        return Ok(());
    }
    let [before, after] = [case.from, case.to].map(Policy::of_cell);
    let Transition { persist, merge, .. } = Transition::between(&before, &after, !strong);
    // Pending acts stay pending if the new policy needs nothing of them.
    let carried = merge || persist != Composition::Nothing || case.fault == Fault::Mds;
    let promised = if strong || (found == case.to && carried) { all } else { COMPLETED };
    match kept {
        Some(kept) if kept == all || kept == promised => Ok(()),
        _ => Err(format!("under {found}, kept {kept:?}, not {promised} or {all}")),
    }
}

/// Whether the line of the table for a policy promises that its updates survive the fault.
fn is_kept(case: &Case, found: Cell) -> bool {
    let durable = found.durability != Durability::None;
    // Of the completed acts the server has those that were answered, or merged then or for the
    // change.
    let strong = found.consistency == Consistency::Strong;
    let from_strong = case.from.consistency == Consistency::Strong;
    let merged = case.from.consistency != Consistency::Invisible || strong;
    match case.fault {
        Fault::Client => durable || merged,
        Fault::Both => durable,
        // The client has the rest.
        Fault::Mds if case.place == "changed" => durable || !merged,
        // Nobody waits there: the change may have been in force before the server was killed.
        Fault::Mds if case.place == "changing" && !durable && from_strong => false,
        // Merged into the server's memory, where the new policy leaves it.
        Fault::Mds if strong && !durable && case.place.starts_with("volatile_apply") => false,
        // Acts that the old policy had left in the server's memory are lost with it.
        Fault::Mds => {
            let of = case.from;
            of.durability != Durability::None || of.consistency == Consistency::Invisible
        }
    }
}

#[test]
fn the_places_of_a_change_are_those_of_what_it_needs() {
    let cell = |name| Cell::from_name(name).unwrap();
    let places = |from, to| places(cell(from), cell(to)).len();
    assert_eq!(places("strong-none", "weak-global"), 3);
    assert_eq!(places("invisible-local", "invisible-none"), 3);
    assert_eq!(places("invisible-none", "weak-local"), 3 + 5);
    assert_eq!(places("invisible-none", "strong-none"), 3 + 5);
    assert_eq!(places("weak-local", "strong-global"), 3 + 5 + 5);
    assert_eq!(mechanisms(&Composition::Nothing), []);
}
