//! From a history to groups of places that have to do with each other, in small numbers.

use std::collections::{BTreeMap, BTreeSet};

use types::Ino;

use super::state::{self, End, NONE, Names, Operation, State};
use super::{Act, CallOutcome, History, Place, PlaceContent, RecordedCall, Seen};
use crate::{TimedOperation, partition};

/// Crashes in a history, at most.
const CRASHES_MAX: usize = 64;
/// Lines of an order that are shown.
const LINES_MAX: usize = 16;

/// One group that is checked by itself alone.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) names: Names,
    pub(super) initial: State,
    pub(super) entries: Vec<TimedOperation<Operation>>,
    /// For each call of the group, its number in the history.
    calls: Vec<usize>,
}

/// What connects requests: a place, or a directory that is itself in some place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Link {
    Place(Place),
    Dir(Ino),
}

/// Splits a history. Groups without any request are left out: no client saw them.
pub(super) fn groups(history: &History) -> Vec<Group> {
    assert!(history.crashes.len() <= CRASHES_MAX, "crashes are counted in bits");
    let whole = Whole::of(history);
    let mut keys: Vec<Vec<Link>> = history.calls.iter().map(|call| whole.links(call)).collect();
    // The initial content connects places as a look-up would.
    for (place, thing) in &history.initial {
        let end = Some((0, CallOutcome::Did(Seen::PlaceContent(*thing))));
        keys.push(
            whole.links(&RecordedCall { end, ..RecordedCall::new(Act::Look(place.clone()), 0) }),
        );
    }
    let count = history.calls.len();
    let mut groups = Vec::new();
    for group in partition(&keys) {
        let (calls, initial): (Vec<_>, Vec<_>) = group.into_iter().partition(|at| *at < count);
        if !calls.is_empty() {
            let initial = initial.into_iter().map(|at| &history.initial[at - count]).collect();
            groups.push(compile(&whole, calls, initial));
        }
    }
    groups
}

/// The claims of a call about places: from its answer, or unknown so far.
fn shown(call: &RecordedCall) -> Vec<(Place, PlaceContent)> {
    let Some((_, CallOutcome::Did(seen))) = &call.end else { return Vec::new() };
    match (&call.act, seen) {
        (Act::Look(at) | Act::Make { at, .. }, Seen::PlaceContent(thing)) => {
            vec![(at.clone(), *thing)]
        }
        (Act::List(dir), Seen::All(names) | Seen::Some(names)) => {
            names.iter().map(|(name, thing)| (Place::new(*dir, name), *thing)).collect()
        }
        (Act::Link { ino, at }, _) => vec![(at.clone(), PlaceContent { ino: *ino, dir: false })],
        _ => Vec::new(),
    }
}

/// Facts about the whole history, collected before it is split.
struct Whole<'a> {
    history: &'a History,
    /// The places in a directory.
    places: BTreeMap<Ino, BTreeSet<Place>>,
    /// Directories that were seen in some place.
    held: BTreeSet<Ino>,
    /// All things with a known creator.
    made: BTreeSet<Ino>,
}

impl<'a> Whole<'a> {
    fn of(history: &'a History) -> Self {
        let (places, held, made) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        let mut whole = Self { history, places, held, made };
        for (place, thing) in &history.initial {
            whole.add(place, thing);
            whole.made.insert(thing.ino);
        }
        for call in &history.calls {
            let shown = shown(call);
            for (place, thing) in &shown {
                whole.add(place, thing);
            }
            if let (Act::Make { .. }, [(_, thing)]) = (&call.act, shown.as_slice()) {
                whole.made.insert(thing.ino);
            }
            for place in call.act.places() {
                whole.places.entry(place.dir).or_default().insert(place);
            }
        }
        whole
    }

    fn add(&mut self, place: &Place, thing: &PlaceContent) {
        self.places.entry(place.dir).or_default().insert(place.clone());
        if thing.dir {
            self.held.insert(thing.ino);
        }
    }

    fn within(&self, dir: Ino) -> impl Iterator<Item = &Place> {
        self.places.get(&dir).into_iter().flatten()
    }

    /// The places and things of a call.
    fn links(&self, call: &RecordedCall) -> Vec<Link> {
        let mut places = call.act.places();
        let shown = shown(call);
        places.extend(shown.iter().map(|(place, _)| place.clone()));
        if let (Act::List(dir), Some((_, CallOutcome::Did(Seen::All(_))))) = (&call.act, &call.end)
        {
            places.extend(self.within(*dir).cloned());
        }
        let dirs = places.iter().map(|place| place.dir).filter(|dir| self.held.contains(dir));
        let seen = shown.iter().filter(|(_, thing)| thing.dir).map(|(_, thing)| thing.ino);
        let dirs: Vec<Link> = dirs.chain(seen).map(Link::Dir).collect();
        places.into_iter().map(Link::Place).chain(dirs).collect()
    }
}

/// Assigns numbers to the places and things of a group.
#[derive(Default)]
struct Numbers {
    places: BTreeMap<Place, usize>,
    things: BTreeMap<Ino, state::PlaceContent>,
    dirs: Vec<bool>,
}

impl Numbers {
    fn place(&mut self, place: &Place) -> usize {
        let next = self.places.len();
        *self.places.entry(place.clone()).or_insert(next)
    }

    fn new_thing(&mut self, dir: bool) -> state::PlaceContent {
        self.dirs.push(dir);
        state::PlaceContent::try_from(self.dirs.len() - 1).expect("histories are shorter than that")
    }

    fn thing(&mut self, thing: PlaceContent) -> state::PlaceContent {
        if let Some(known) = self.things.get(&thing.ino) {
            return *known;
        }
        let number = self.new_thing(thing.dir);
        self.things.insert(thing.ino, number);
        number
    }
}

fn compile(whole: &Whole<'_>, calls: Vec<usize>, initial: Vec<&(Place, PlaceContent)>) -> Group {
    let history = whole.history;
    let mut numbers = Numbers::default();
    let none = numbers.new_thing(false);
    debug_assert_eq!(none, NONE);
    let mut names = Names::default();
    let mut held = Vec::new();
    for (place, thing) in initial {
        held.push((numbers.place(place), numbers.thing(*thing)));
    }
    let mut entries = Vec::new();
    for (at, number) in calls.iter().enumerate() {
        let call = &history.calls[*number];
        for (place, thing) in shown(call) {
            numbers.place(&place);
            numbers.thing(thing);
        }
        let compiled = compile_call(whole, call, &mut numbers);
        let more = entries_of(history, call, &compiled, at);
        let silent = more.iter().filter(|entry| matches!(entry.operation, Operation::Silent(..)));
        let repeats = silent.count() > 0;
        entries.extend(more);
        names.calls.push(state::Call { repeats, ..compiled });
        let unseen = matches!(call.act, Act::Make { .. }) && repeats;
        let dir = matches!(call.act, Act::Make { dir: true, .. });
        names.unseen.push(if unseen { numbers.new_thing(dir) } else { NONE });
    }
    for number in &calls {
        let guesses = history.calls[*number].guesses.iter();
        let made = guesses.filter_map(|guess| numbers.things.get(&guess.made));
        names.guesses.push(made.copied().collect());
    }
    for (at, crash) in (0..).zip(&history.crashes) {
        let operation = Operation::Crash(at);
        entries.push(TimedOperation {
            start: crash.start,
            end: Some(crash.end),
            hint: Some(crash.hint),
            operation,
        });
    }
    let orphans = numbers.things.iter().filter(|(ino, _)| !whole.made.contains(ino));
    names.orphans = orphans.map(|(_, thing)| *thing).collect();
    names.things = numbers.dirs.iter().map(|dir| (*dir, Vec::new())).collect();
    names.parents = vec![NONE; numbers.places.len()];
    for (place, at) in &numbers.places {
        // The remaining directories are never seen in a place, and always exist.
        let is_held = whole.held.contains(&place.dir);
        if let Some(parent) = numbers.things.get(&place.dir).filter(|_| is_held) {
            names.parents[*at] = *parent;
            names.things[usize::from(*parent)].1.push(*at);
        }
    }
    let mut initial = State::new(numbers.places.len());
    for (place, thing) in held {
        initial.at[place] = thing;
    }
    Group { names, initial, entries, calls }
}

fn compile_call(whole: &Whole<'_>, call: &RecordedCall, numbers: &mut Numbers) -> state::Call {
    let act = match &call.act {
        Act::Look(at) => state::Act::Look(numbers.place(at)),
        Act::List(dir) => state::Act::List(listed(whole, *dir, call, numbers)),
        Act::Make { at, dir } => state::Act::Make { at: numbers.place(at), dir: *dir },
        Act::Link { ino, at } => {
            // It may be refused because it is a directory.
            let thing = numbers.thing(PlaceContent { ino: *ino, dir: whole.held.contains(ino) });
            state::Act::Link { thing, at: numbers.place(at) }
        }
        Act::Remove { at, dir } => state::Act::Remove { at: numbers.place(at), dir: *dir },
        Act::Move { from, to, exchange, no_replace } => state::Act::Move {
            from: numbers.place(from),
            to: numbers.place(to),
            exchange: *exchange,
            no_replace: *no_replace,
        },
    };
    let end = match &call.end {
        Some((_, CallOutcome::Did(Seen::PlaceContent(thing)))) => End::Did(numbers.thing(*thing)),
        Some((_, CallOutcome::Did(_))) => End::Did(NONE),
        Some((_, CallOutcome::Refused(errno))) => End::Refused(*errno),
        Some((_, CallOutcome::Unknown)) | None => End::Unknown,
    };
    let mut loose = 0;
    for (at, crash) in history_crashes(whole, call) {
        let was_answered = call
            .end
            .as_ref()
            .is_some_and(|(end, outcome)| *end <= crash.start && *outcome != CallOutcome::Unknown);
        if (!was_answered || crash.start < call.doubt) && crash.start < call.safe {
            loose |= 1 << at;
        }
    }
    let end_time = call.end.as_ref().map_or(u64::MAX, |(end, _)| *end);
    // An answer that came while the server was being killed may be that of either server.
    let crashes = &whole.history.crashes;
    let first = crashes.iter().filter(|crash| crash.end < end_time).count();
    let last = crashes.iter().filter(|crash| crash.start < end_time).count();
    let count = |crashes: usize| u32::try_from(crashes).unwrap_or(u32::MAX);
    let eras = (count(first), count(last));
    let likely = u32::try_from(likely_era(whole.history, call)).unwrap_or(u32::MAX);
    state::Call {
        act,
        end,
        loose: if call.is_change() { loose } else { 0 },
        eras,
        likely,
        repeats: false,
    }
}

/// The crashes that a call may know of, with their numbers.
fn history_crashes<'a>(
    whole: &Whole<'a>,
    call: &RecordedCall,
) -> impl Iterator<Item = (usize, &'a super::Crash)> {
    let start = call.start;
    whole.history.crashes.iter().enumerate().filter(move |(_, crash)| crash.end >= start)
}

/// The claims of a listing about places: all of the directory's, or the listed ones.
fn listed(
    whole: &Whole<'_>,
    dir: Ino,
    call: &RecordedCall,
    numbers: &mut Numbers,
) -> Vec<(usize, state::PlaceContent)> {
    let mut places: BTreeMap<usize, state::PlaceContent> = BTreeMap::new();
    if let Some((_, CallOutcome::Did(Seen::All(_)))) = call.end {
        places.extend(whole.within(dir).map(|place| (numbers.place(place), NONE)));
    }
    for (place, thing) in shown(call) {
        places.insert(numbers.place(&place), numbers.thing(thing));
    }
    places.into_iter().collect()
}

/// The number of crashes after which a call probably took effect for good; more than there were if
/// it probably never did.
fn likely_era(history: &History, call: &RecordedCall) -> usize {
    match call.guesses.iter().rev().find(|guess| !guess.undone) {
        Some(guess) => era_of(history, guess.hint),
        None if call.guesses.is_empty() => era_of(history, call.hint),
        None => usize::MAX,
    }
}

/// After how many crashes something probably happened.
fn era_of(history: &History, hint: u64) -> usize {
    history.crashes.iter().filter(|crash| crash.hint < hint).count()
}

/// When a call may have taken effect: until its answer, and silently before or instead.
fn entries_of(
    history: &History,
    call: &RecordedCall,
    compiled: &state::Call,
    at: usize,
) -> Vec<TimedOperation<Operation>> {
    let mut entries = Vec::new();
    let start = call.start;
    if let Some((end, _)) = call.end
        && compiled.end != End::Unknown
    {
        let operation = Operation::Answer(at);
        entries.push(TimedOperation { start, end: Some(end), hint: Some(call.hint), operation });
    }
    if !call.is_change() {
        return entries;
    }
    let first = history.crashes.iter().filter(|crash| crash.end < start).count();
    for era in first..=history.crashes.len() {
        let is_answered = call.end.is_some() && compiled.end != End::Unknown;
        let before = is_answered && u32::try_from(era).is_ok_and(|era| era < compiled.eras.1);
        // A change that was answered is done again only after a crash that undid it.
        let undone = era > first && compiled.loose >> (era - 1) & 1 == 1;
        let after = u32::try_from(era).is_ok_and(|era| era > compiled.eras.1) && undone;
        if !is_answered || before || after {
            let start = if era == 0 { start } else { start.max(history.crashes[era - 1].start) };
            let operation = Operation::Silent(at, u32::try_from(era).unwrap_or(u32::MAX));
            // Without a hint this order is unlikely.
            let answered = (is_answered && call.guesses.is_empty()).then_some(call.hint);
            let mut hints = call.guesses.iter().map(|guess| guess.hint).chain(answered);
            let hint = hints.find(|hint| era_of(history, *hint) == era);
            entries.push(TimedOperation { start, end: None, hint, operation });
        }
    }
    entries
}

impl Group {
    /// How far the best order gets, for people.
    pub(super) fn explain(&self, history: &History, order: &[usize], stuck: &[usize]) -> String {
        let last = order.len().saturating_sub(LINES_MAX);
        let order: String = order[last..].iter().map(|at| self.line(history, *at)).collect();
        let stuck = stuck.iter().filter(|at| self.entries[**at].end.is_some());
        let stuck: String = stuck.map(|at| self.line(history, *at)).collect();
        format!(
            "no order of requests explains the answers; the best one ends with{order}\nand none of \
             these can follow:{stuck}"
        )
    }

    fn line(&self, history: &History, at: usize) -> String {
        let entry = &self.entries[at];
        let call = |call: usize| &history.calls[self.calls[call]];
        match entry.operation {
            Operation::Answer(number) => {
                let RecordedCall { start, act, end, .. } = call(number);
                format!("\n  {start}: {act:?} -> {end:?}")
            }
            Operation::Silent(number, era) => {
                let RecordedCall { start, act, .. } = call(number);
                format!("\n  {start}: {act:?}, unseen, after {era} crashes")
            }
            Operation::Crash(_) => format!("\n  {}: a crash", entry.start),
        }
    }
}
