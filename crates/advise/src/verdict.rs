//! Which cells would have been safe.
//!
//! A client that looks at another client's work relies on visibility: an *invisible* subtree never
//! shows it, a *weak* one shows it after the other client has merged, which happens at its end. A
//! client that cannot make an existing name, or waits for a lock, relies on sharing one place with
//! other clients: only *strong* answers that. A client that calls `fsync` was promised durability:
//! *none* breaks that promise.

use std::collections::{BTreeMap, BTreeSet};

use policy::{Cell, Consistency, Durability};

use crate::acts::{ActKind, Acts, TraceLine, TracedAct};

/// Why a cell is not safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The client looks at another client's work.
    Looks,
    /// The client looks at the work of another client that is still running.
    LooksAtOnce,
    /// It is refused a name because another client has it.
    Excluded,
    /// Two clients make or remove the same name: one of them loses when they merge.
    BothChange,
    /// Several clients lock a file.
    Locks,
    /// It asks for something to be durable.
    Syncs,
}

impl Reason {
    /// The end of a sentence that begins with "the program …".
    #[must_use]
    pub fn says(self) -> &'static str {
        match self {
            Self::Looks => "looks at what another client made",
            Self::LooksAtOnce => "looks at what another client made while that one still works",
            Self::Excluded => "expects to be refused a name that another client has",
            Self::BothChange => {
                "changes a name that another client changed, while that one still works"
            }
            Self::Locks => "locks a file that another client locks",
            Self::Syncs => "asks for something to be durable (fsync)",
        }
    }

    fn forbids(self, cell: Cell) -> bool {
        match self {
            Self::Looks => cell.consistency == Consistency::Invisible,
            Self::LooksAtOnce | Self::Excluded | Self::BothChange | Self::Locks => {
                cell.consistency != Consistency::Strong
            }
            Self::Syncs => cell.durability == Durability::None,
        }
    }
}

/// The lines that show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The act that relies on a promise.
    pub line: TraceLine,
    /// The act on which it relies.
    pub on: Option<TraceLine>,
    /// About which path.
    pub path: Vec<u8>,
}

/// An unsafe cell, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forbidden {
    /// Why.
    pub reason: Reason,
    /// How often.
    pub times: u64,
    /// The first of these times.
    pub evidence: Vec<Evidence>,
}

/// The safe cells for a program, as far as its trace shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    /// Every reason against something, in order.
    pub reasons: Vec<Forbidden>,
}

/// So many lines are shown for each reason.
const EVIDENCE_MAX: usize = 3;

impl Advice {
    /// The reasons against a cell; none if it is safe.
    pub fn against(&self, cell: Cell) -> impl Iterator<Item = &Forbidden> {
        self.reasons.iter().filter(move |forbidden| forbidden.reason.forbids(cell))
    }

    /// The cells that are safe.
    pub fn safe(&self) -> impl Iterator<Item = Cell> {
        Cell::all().filter(|cell| self.against(*cell).next().is_none())
    }

    /// The weakest safe cell that shows its result to other clients in the end.
    #[must_use]
    pub fn best(&self) -> Option<Cell> {
        let shown = self.safe().filter(|cell| cell.consistency != Consistency::Invisible);
        shown.min_by_key(|cell| (cell.consistency as u8, cell.durability as u8))
    }

    fn note(&mut self, reason: Reason, act: &TracedAct, on: Option<&Seen>) {
        let evidence =
            Evidence { line: act.line, on: on.map(|seen| seen.line), path: act.path.clone() };
        match self.reasons.iter_mut().find(|forbidden| forbidden.reason == reason) {
            Some(forbidden) => {
                forbidden.times += 1;
                if forbidden.evidence.len() < EVIDENCE_MAX {
                    forbidden.evidence.push(evidence);
                }
            }
            None => {
                self.reasons.push(Forbidden { reason, times: 1, evidence: vec![evidence] });
            }
        }
    }
}

/// The last change of a path.
#[derive(Clone, Debug)]
struct Seen {
    client: usize,
    line: TraceLine,
}

/// Judges which cells the acts of a program allow.
#[must_use]
pub fn judge(acts: &Acts) -> Advice {
    let mut advice = Advice::default();
    let timed = acts.acts.iter().all(|act| act.time.is_some());
    // The last act of each client: then it ends, and has merged.
    let mut last: BTreeMap<usize, usize> = BTreeMap::new();
    for (at, act) in acts.acts.iter().enumerate() {
        last.insert(act.client, at);
    }
    let one_trace = acts.acts.iter().map(|act| act.line.trace).collect::<BTreeSet<_>>().len() <= 1;
    let works = |client: usize, at: usize| {
        // Traces that do not say when something happened may have been at any time.
        !(timed || one_trace) || last.get(&client).is_some_and(|last| *last > at)
    };
    let mut changed: BTreeMap<&[u8], Seen> = BTreeMap::new();
    let mut locked: BTreeMap<&[u8], Seen> = BTreeMap::new();
    for (at, act) in acts.acts.iter().enumerate() {
        let seen = || Seen { client: act.client, line: act.line };
        let others = |of: &BTreeMap<&[u8], Seen>| {
            of.get(&act.path[..]).filter(|seen| seen.client != act.client).cloned()
        };
        match act.kind {
            ActKind::Made { .. } | ActKind::Changed | ActKind::Removed => {
                if let Some(other) = others(&changed) {
                    let reason =
                        if works(other.client, at) { Reason::BothChange } else { Reason::Looks };
                    advice.note(reason, act, Some(&other));
                    if reason == Reason::BothChange {
                        advice.note(Reason::Looks, act, Some(&other));
                    }
                }
                changed.insert(&act.path, seen());
            }
            ActKind::WasThere => {
                if let Some(other) = others(&changed) {
                    advice.note(Reason::Excluded, act, Some(&other));
                }
            }
            ActKind::Looked => {
                if let Some(other) = others(&changed) {
                    looks(&mut advice, act, &other, works(other.client, at));
                }
            }
            ActKind::Listed => {
                let mut start = act.path.clone();
                if start.last() != Some(&b'/') {
                    start.push(b'/');
                }
                let below = changed
                    .range(&start[..]..)
                    .take_while(|(path, _)| path.strip_prefix(&start[..]).is_some());
                let direct = below.filter(|(path, seen)| {
                    seen.client != act.client && !path[start.len()..].contains(&b'/')
                });
                // One name is as good as all of them.
                let direct: Vec<Seen> = direct.map(|(_, seen)| seen.clone()).collect();
                let worst = direct.iter().find(|seen| works(seen.client, at)).or(direct.first());
                if let Some(other) = worst {
                    looks(&mut advice, act, other, works(other.client, at));
                }
            }
            ActKind::Ended => {}
            ActKind::Synced => advice.note(Reason::Syncs, act, None),
            ActKind::Locked => {
                if let Some(other) = others(&locked) {
                    advice.note(Reason::Locks, act, Some(&other));
                }
                locked.insert(&act.path, seen());
            }
        }
    }
    advice.reasons.sort_by_key(|forbidden| forbidden.reason);
    advice
}

fn looks(advice: &mut Advice, act: &TracedAct, other: &Seen, at_once: bool) {
    advice.note(Reason::Looks, act, Some(other));
    if at_once {
        advice.note(Reason::LooksAtOnce, act, Some(other));
    }
}

#[cfg(test)]
mod tests {
    use policy::Cell;
    use proptest::prelude::*;

    use super::{Reason, TraceLine, judge};
    use crate::Trace;

    fn advice(texts: &[&str], each_process: bool) -> super::Advice {
        let traces: Vec<_> = texts.iter().map(|text| Trace { text, cwd: Some(b"/job") }).collect();
        judge(&Trace::read(&traces, b"/job", each_process))
    }

    fn safe(advice: &super::Advice) -> Vec<String> {
        advice.safe().map(|cell| cell.to_string()).collect()
    }

    #[test]
    fn a_program_that_only_creates_may_use_every_cell() {
        let advice = advice(
            &["1 openat(AT_FDCWD, \"a\", O_WRONLY|O_CREAT, 0644) = 3\n1 close(3) = 0\n\
               1 mkdir(\"/job/d\", 0755) = 0\n1 stat(\"/job/a\", {...}) = 0\n1 stat(\"/etc/x\", {...}) = 0"],
            true,
        );
        assert!(advice.reasons.is_empty(), "{advice:?}");
        assert_eq!(advice.safe().count(), 9);
        assert_eq!(advice.best().map(|cell| cell.to_string()).as_deref(), Some("weak-none"));
    }

    #[test]
    fn only_a_program_that_waits_for_another_needs_strong_consistency() {
        let makes = "1 1.0 mkdir(\"/job/d\", 0755) = 0";
        let later = "2 2.0 stat(\"/job/d\", {...}) = 0\n2 2.5 mkdir(\"/job/e\", 0755) = 0";
        let found = advice(&[makes, later], false);
        assert_eq!(found.reasons.len(), 1);
        assert_eq!(found.reasons[0].reason, Reason::Looks);
        assert_eq!(found.reasons[0].evidence[0].line, TraceLine { trace: 1, number: 1 });
        assert_eq!(found.reasons[0].evidence[0].on, Some(TraceLine { trace: 0, number: 1 }));
        assert!(safe(&found).contains(&"weak-none".to_owned()));
        let still = "1 1.0 mkdir(\"/job/d\", 0755) = 0\n1 3.0 mkdir(\"/job/f\", 0755) = 0";
        let found = advice(&[still, later], false);
        assert_eq!(safe(&found), ["strong-none", "strong-local", "strong-global"]);
        // Without times the order is unknown.
        let found = advice(&["mkdir(\"d\", 0755) = 0", "stat(\"d\", {...}) = 0"], false);
        assert!(found.against(Cell::from_name("weak-local").unwrap()).next().is_some());
        // Acts of one client alone rely on no visibility.
        assert!(
            advice(&["1 mkdir(\"d\", 0755) = 0\n2 stat(\"/job/d\", {...}) = 0"], false)
                .reasons
                .is_empty()
        );
    }

    #[test]
    fn refusals_locks_and_listings_of_others_need_strong() {
        for (line, reason) in [
            ("2 mkdir(\"/job/d\", 0755) = -1 EEXIST (File exists)", Reason::Excluded),
            (
                "2 openat(AT_FDCWD, \"/job/d\", O_RDWR|O_CREAT|O_EXCL, 0600) = -1 EEXIST (File exists)",
                Reason::Excluded,
            ),
            (
                "2 openat(AT_FDCWD, \"/job\", O_RDONLY|O_DIRECTORY) = 3\n2 getdents64(3, {...}, 32768) = 48",
                Reason::LooksAtOnce,
            ),
            ("2 rmdir(\"/job/d\") = 0", Reason::BothChange),
        ] {
            let text =
                format!("1 mkdir(\"/job/d\", 0755) = 0\n{line}\n1 mkdir(\"/job/e\", 0755) = 0");
            let found = advice(&[&text], true);
            assert!(found.reasons.iter().any(|it| it.reason == reason), "{line}: {found:?}");
            assert_eq!(safe(&found).len(), 3, "{line}");
        }
        let locks = "1 openat(AT_FDCWD, \"/job/l\", O_RDWR|O_CREAT, 0600) = 3\n\
                     1 clone(child_stack=NULL, flags=SIGCHLD) = 2\n1 flock(3, LOCK_EX) = 0\n2 flock(3, LOCK_EX) = 0";
        assert!(advice(&[locks], true).reasons.iter().any(|it| it.reason == Reason::Locks));
        assert!(advice(&[locks], false).reasons.is_empty());
    }

    proptest! {
        #[test]
        fn arbitrary_traces_never_panic(
            words in proptest::collection::vec(
                prop_oneof![
                    Just("1 "), Just("2 "), Just("[pid 3] "), Just("1.5 "), Just("open("), Just("mkdir("),
                    Just("\"/job/a\""), Just("\"../b\", "), Just("3"), Just(", "), Just("O_CREAT"),
                    Just(") = 3"), Just(") = -1 EEXIST"), Just("\n"), Just("<unfinished ...>"),
                    Just("<... open resumed>"), Just("rename("), Just("getdents64("), Just("clone("),
                ],
                0..60,
            ),
            each in any::<bool>(),
        ) {
            let text = words.concat();
            let found = advice(&[&text, &text], each);
            prop_assert!(found.safe().count() >= 2, "what is strong and kept is always safe");
        }
    }

    #[test]
    fn a_program_that_syncs_needs_durability() {
        let text = "1 openat(AT_FDCWD, \"a\", O_WRONLY|O_CREAT, 0644) = 3\n1 fsync(3) = 0";
        let found = advice(&[text], false);
        assert_eq!(found.reasons[0].reason, Reason::Syncs);
        assert_eq!(found.best().map(|cell| cell.to_string()).as_deref(), Some("weak-local"));
        let text = "1 openat(AT_FDCWD, \"a\", O_WRONLY|O_CREAT|O_DSYNC, 0644) = 3\n1 write(3, \"x\", 1) = 1";
        assert_eq!(advice(&[text], false).reasons[0].reason, Reason::Syncs);
    }
}
