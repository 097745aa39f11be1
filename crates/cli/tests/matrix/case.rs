//! One case: a client works under the policy of a cell until it is at a step, a fault strikes, the
//! surviving processes recover all that they can, and another client looks.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use policy::{Cell, Consistency, Durability};

use crate::client::Task;
use crate::disk::Disk;
use crate::expect::{Acts, Expected, Fault, KNOWN, expected};
use crate::site::Site;
use crate::step::Step;
use crate::table::Row;
use crate::tree::{self, Tree};

/// How long a restarted server waits for a client that is alive, on a machine that is busy.
const CLIENTS_RETURN_MILLIS: u64 = 1500;

/// Everything that cases need, made once.
pub(crate) struct Lab {
    site: Site,
    /// The disk of clients with a power failure.
    disk: Option<Disk>,
    cases: usize,
}

/// The result of a case.
pub(crate) struct Outcome {
    cell: Cell,
    fault: Fault,
    place: String,
    expected: Expected,
    seen: String,
    kept: String,
    /// The differences from the table.
    wrong: Vec<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cell, fault, place, seen, kept, wrong, .. } = self;
        let cell = cell.to_string();
        write!(f, "{cell:<16} {fault:<24} {place:<28} seen {seen:<7} recovered {kept:<7}")?;
        match wrong.is_empty() {
            true => Ok(()),
            false if self.is_known() => {
                write!(f, " KNOWN: the table says {:?}", self.expected.kept)
            }
            false => wrong.iter().try_for_each(|wrong| write!(f, "\n    WRONG: {wrong}")),
        }
    }
}

/// The existing part of the whole.
fn measure(tree: &Tree) -> Result<usize, String> {
    let all = tree::acts().len();
    let found = (0..=all).rev().find(|count| tree::after(*count) == *tree);
    found.ok_or_else(|| format!("not what any of the first acts made: {tree:?}"))
}

impl Outcome {
    /// Whether it is known that the table is not kept here.
    fn is_known(&self) -> bool {
        let promised = self.expected.kept.iter().all(|acts| *acts > 0);
        promised && KNOWN.contains(&(&*self.cell.to_string(), self.fault))
    }

    /// Whether it is as the table says, or as is known.
    pub(crate) fn is_expected(&self) -> bool {
        self.wrong.is_empty() != self.is_known()
    }

    fn judge(&mut self, what: &str, tree: &Tree, expected: &Acts) -> String {
        match measure(tree) {
            Ok(count) => {
                if !expected.contains(&count) {
                    self.wrong.push(format!("{what}: {count} acts, not {expected:?}"));
                }
                format!("{count}/{}", tree::acts().len())
            }
            Err(difference) => {
                self.wrong.push(format!("{what}: {difference}"));
                "?".into()
            }
        }
    }

    fn check(&mut self, what: &str, result: Result<Tree, String>) {
        if let Err(error) = result {
            self.wrong.push(format!("{what}: {error}"));
        }
    }
}

impl Lab {
    /// A place for all faults but those of the store's power.
    pub(crate) fn new() -> Self {
        Self { site: Site::new(), disk: Disk::new("client"), cases: 0 }
    }

    /// A place for faults of the store's power; nothing where disks may not be made.
    pub(crate) fn with_power() -> Option<Self> {
        Some(Self { site: Site::on_a_disk()?, disk: None, cases: 0 })
    }

    /// Runs a case; nothing if this lab cannot.
    pub(crate) fn run(&mut self, row: &Row, fault: Fault, step: &Step) -> Option<Outcome> {
        self.cases += 1;
        let (path, name) = (format!("/m{}", self.cases), format!("state{}", self.cases));
        let state = match (fault, &self.disk) {
            (Fault::ClientPower, None) => return None,
            (Fault::ClientPower, Some(disk)) => disk.path().join(name),
            _ => self.site.path(&name),
        };
        let mut outcome = Outcome {
            cell: row.cell,
            fault,
            place: step.place.clone(),
            expected: expected(row, fault, step),
            seen: String::new(),
            kept: String::new(),
            wrong: Vec::new(),
        };
        let objects = self.objects();
        let mut stops = vec![&*step.place];
        stops.extend(step.before_repetition.then_some("repeated"));
        let work = Task::Work { cell: row.cell.to_string(), parts: [tree::acts().len(); 2] };
        let mut client = self.site.client(work, &path, &state, &stops);
        client.await_place(&step.place);
        self.check_leftovers(&mut outcome, &state, &objects);
        match fault {
            Fault::ClientKilled | Fault::ClientGone => client.kill(),
            Fault::ClientPower => {
                let disk = self.disk.as_mut()?;
                disk.freeze();
                client.kill();
                disk.reboot();
            }
            Fault::MdsKilled => self.site.kill_mds(),
            Fault::BothKilled | Fault::GoneAndMds => {
                client.kill();
                self.site.kill_mds();
            }
            Fault::StorePower => self.site.cut_power(|| client.kill()),
        }
        if fault.takes_the_clients_disk() {
            let _ = std::fs::remove_dir_all(&state);
        }
        if fault == Fault::MdsKilled {
            self.client_goes_on(&mut outcome, client, &path, step);
        } else {
            drop(client);
            self.site.up();
            self.others_recover(&mut outcome, &path, &state);
        }
        Some(outcome)
    }

    fn objects(&self) -> BTreeSet<String> {
        self.site.objects("journal/client/").into_iter().collect()
    }

    /// The client lives: it completes its composition, again if need be, and then merges under any
    /// consistency.
    fn client_goes_on(
        &self,
        outcome: &mut Outcome,
        mut client: crate::site::Client,
        path: &str,
        step: &Step,
    ) {
        let Expected { seen, kept } = outcome.expected.clone();
        let strong = outcome.cell.consistency == Consistency::Strong;
        if strong {
            // Its repeated requests are tested: they must come in time.
            client.go();
            self.site.up_and_wait_for_clients(CLIENTS_RETURN_MILLIS);
        } else {
            self.site.up();
            let tree = self.site.look(path);
            outcome.seen = outcome.judge("seen after the fault", &tree, &seen);
            client.go();
        }
        if step.before_repetition {
            client.await_place("repeated");
            let invisible = outcome.cell.consistency == Consistency::Invisible;
            let expected = if invisible { &seen } else { &kept };
            let tree = self.site.look(path);
            let count = outcome.judge("seen after completing again", &tree, expected);
            if strong {
                outcome.seen = count;
            }
            client.go();
        }
        outcome.check("the client goes on", client.result());
        outcome.kept = outcome.judge("kept", &self.site.look(path), &kept);
    }

    /// The client is dead: a process on its disk or, if that is gone, another machine takes its
    /// work over; twice, which must not make a difference.
    fn others_recover(&self, outcome: &mut Outcome, path: &str, state: &Path) {
        let Expected { seen, kept } = outcome.expected.clone();
        outcome.seen = outcome.judge("seen after the fault", &self.site.look(path), &seen);
        for end in [false, true] {
            let task = match outcome.fault.takes_the_clients_disk() {
                false => Task::Recover { end },
                true => Task::TakeOver { end },
            };
            let result = self.site.client(task, path, state, &[]).result();
            outcome.check("recovery", result);
            let what = if end { "recovered twice" } else { "recovered" };
            outcome.kept = outcome.judge(what, &self.site.look(path), &kept);
        }
    }

    /// Nothing is written that the durability does not ask for.
    fn check_leftovers(&self, outcome: &mut Outcome, state: &Path, before: &BTreeSet<String>) {
        let Cell { consistency, durability } = outcome.cell;
        let strong = consistency == Consistency::Strong;
        let allowed: &[&str] = match durability {
            Durability::Local if strong => &["strong."],
            Durability::Local => &["owner.json", "journal.", "new.journal."],
            Durability::Global if !strong => &["owner.json"],
            Durability::None | Durability::Global => &[],
        };
        for file in files(state).iter().map(|path| name_of(path)) {
            if !allowed.iter().any(|start| file.starts_with(start)) {
                outcome.wrong.push(format!("the client's disk has {file}"));
            }
        }
        if durability != Durability::Global || strong {
            for object in self.objects().difference(before) {
                outcome.wrong.push(format!("the store has {object}"));
            }
        }
    }
}

/// The files below a directory.
pub(crate) fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

/// The last part of a path.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
