//! The sequential specification: the content of each place, and the changes that may still be
//! undone.
//!
//! Places and things are small numbers here ([`super::compile`] gives them out); thing 0 is none.

use types::Errno;

use crate::{Next, Specification};

/// Changes that a crash may take; if there are more, not every subset is tried.
const LOST_MAX: usize = 10;

pub(super) type Place = usize;
pub(super) type PlaceContent = u16;

/// The thing in a free place.
pub(super) const NONE: PlaceContent = 0;

/// [`super::Act`] in small numbers. A list holds its claims about places.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Look(Place),
    List(Vec<(Place, PlaceContent)>),
    Make { at: Place, dir: bool },
    Link { thing: PlaceContent, at: Place },
    Remove { at: Place, dir: bool },
    Move { from: Place, to: Place, exchange: bool, no_replace: bool },
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With success, and with this thing if it is about one.
    Did(PlaceContent),
    Refused(Errno),
    Unknown,
}

/// A request. Bit n of a set of crashes is the n-th crash.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) act: Act,
    pub(super) end: End,
    /// The crashes that may undo it.
    pub(super) loose: u64,
    /// How many crashes there had been when it was answered, at least and at most.
    pub(super) eras: (u32, u32),
    /// After how many crashes it was probably carried out for good.
    pub(super) likely: u32,
    /// It may be carried out at more times than one.
    pub(super) repeats: bool,
}

/// A possible step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// The answer of a call.
    Answer(usize),
    /// A call takes effect after this number of crashes, and no client learns of it yet.
    Silent(usize, u32),
    /// The server crashes; crashes are counted.
    Crash(u32),
}

/// The specification for a group of places.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub(super) calls: Vec<Call>,
    /// For each place, the directory it is in, if that is a thing of the group.
    pub(super) parents: Vec<PlaceContent>,
    /// For each thing, whether it is a directory, and the places in it.
    pub(super) things: Vec<(bool, Vec<Place>)>,
    /// Seen things without a known creator.
    pub(super) orphans: Vec<PlaceContent>,
    /// For each call, a thing that it may have made although no client ever saw its number.
    pub(super) unseen: Vec<PlaceContent>,
    /// For each call, the thing that it probably made: only an order of trials.
    pub(super) guesses: Vec<Vec<PlaceContent>>,
}

/// A change that took effect and may have to be repeated without some earlier changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Logged {
    call: usize,
    thing: PlaceContent,
}

/// The content of the places, and the changes that led to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// How many crashes there were.
    era: u32,
    /// The content of each place.
    pub(super) at: Vec<PlaceContent>,
    /// Calls that took effect and may do so again, with the things that they made, sorted.
    done: Vec<(usize, PlaceContent)>,
    /// Changes since the first one that a crash may undo, and the state before it.
    log: Vec<Logged>,
    base: Vec<PlaceContent>,
}

impl State {
    /// So many places, all free.
    pub(super) fn new(places: usize) -> Self {
        Self { at: vec![NONE; places], ..Self::default() }
    }

    fn made(&self, call: usize) -> Option<PlaceContent> {
        let found = self.done.binary_search_by_key(&call, |(done, _)| *done);
        found.ok().map(|at| self.done[at].1)
    }
}

impl Names {
    fn is_dir(&self, thing: PlaceContent) -> bool {
        self.things[usize::from(thing)].0
    }

    /// Whether a directory has entries, as far as the group knows.
    fn is_empty(&self, at: &[PlaceContent], thing: PlaceContent) -> bool {
        self.things[usize::from(thing)].1.iter().all(|place| at[*place] == NONE)
    }

    /// Whether the directory of a place exists.
    fn is_reachable(&self, at: &[PlaceContent], place: Place) -> bool {
        let parent = self.parents[place];
        parent == NONE || at.contains(&parent)
    }

    /// Executes a change, if the state allows it. `thing` is the thing that it makes.
    fn execute(&self, at: &mut [PlaceContent], act: &Act, thing: PlaceContent) -> bool {
        match *act {
            Act::Look(_) | Act::List(_) => true,
            Act::Make { at: place, .. } => {
                let may = at[place] == NONE && self.is_reachable(at, place);
                at[place] = thing;
                may
            }
            Act::Link { thing, at: place } => {
                let may = at[place] == NONE && self.is_reachable(at, place);
                at[place] = thing;
                may
            }
            Act::Remove { at: place, dir } => {
                let thing = std::mem::replace(&mut at[place], NONE);
                thing != NONE && self.is_dir(thing) == dir && (!dir || self.is_empty(at, thing))
            }
            Act::Move { from, to, exchange, no_replace } => {
                let (moved, over) = (at[from], at[to]);
                if moved == NONE || !self.is_reachable(at, to) {
                    return false;
                }
                if over == NONE {
                    at[from] = NONE;
                    at[to] = moved;
                    return !exchange;
                }
                if no_replace {
                    return false;
                }
                if over == moved {
                    return true;
                }
                at[from] = if exchange { over } else { NONE };
                at[to] = moved;
                let alike = self.is_dir(moved) == self.is_dir(over);
                exchange || (alike && self.is_empty(at, over))
            }
        }
    }

    /// Whether a refusal is true.
    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "all but a few errors say nothing about what holds in a place"
    )]
    fn is_refused(&self, at: &[PlaceContent], act: &Act, errno: Errno) -> bool {
        match *act {
            Act::Look(place) => errno != Errno::NotFound || at[place] == NONE,
            Act::List(_) => true,
            Act::Make { at: place, .. } | Act::Link { at: place, .. } => {
                errno != Errno::Exists || at[place] != NONE
            }
            Act::Remove { at: place, .. } => {
                let thing = at[place];
                match errno {
                    Errno::NotFound => thing == NONE,
                    Errno::IsDirectory => self.is_dir(thing),
                    Errno::NotDirectory => thing != NONE && !self.is_dir(thing),
                    Errno::NotEmpty => self.is_dir(thing) && self.may_have_entries(at, thing),
                    _ => true,
                }
            }
            Act::Move { from, to, exchange, .. } => {
                let (moved, over) = (at[from], at[to]);
                match errno {
                    Errno::NotFound => {
                        moved == NONE || (exchange && over == NONE) || !self.is_reachable(at, to)
                    }
                    Errno::Exists => moved != NONE && over != NONE,
                    Errno::IsDirectory => moved != NONE && self.is_dir(over),
                    Errno::NotDirectory => self.is_dir(moved) && over != NONE,
                    Errno::NotEmpty => moved != NONE && self.may_have_entries(at, over),
                    _ => true,
                }
            }
        }
    }

    /// A directory with an unknown number may have entries that the group does not know.
    fn may_have_entries(&self, at: &[PlaceContent], thing: PlaceContent) -> bool {
        self.is_dir(thing) && (self.unseen.contains(&thing) || !self.is_empty(at, thing))
    }

    /// The state after a change, if it can be carried out.
    fn after(&self, state: &State, call: usize, thing: PlaceContent) -> Option<State> {
        let known = &self.calls[call];
        let mut next = state.clone();
        if !self.execute(&mut next.at, &known.act, thing) {
            return None;
        }
        if next.at == state.at {
            // There was nothing to do: nothing can be undone, and nothing has to be repeated.
            return Some(next);
        }
        if known.repeats {
            let Err(place) = next.done.binary_search_by_key(&call, |(done, _)| *done) else {
                return None;
            };
            next.done.insert(place, (call, thing));
        }
        if !state.log.is_empty() || self.may_be_lost(call, state.era) {
            if state.log.is_empty() {
                next.base.clone_from(&state.at);
            }
            next.log.push(Logged { call, thing });
        }
        Some(next)
    }

    /// Whether a change that is carried out now may be undone one day.
    fn may_be_lost(&self, call: usize, era: u32) -> bool {
        self.calls[call].loose.checked_shr(era).unwrap_or(0) != 0
    }

    fn answered(&self, state: &State, call: usize) -> Next<State> {
        let known = &self.calls[call];
        let at = &state.at;
        let holds = |yes: bool| if yes { Next::Same } else { Next::Impossible };
        match (&known.act, known.end) {
            (_, End::Unknown) => Next::Same,
            (act, End::Refused(errno)) => {
                holds(state.made(call).is_none() && self.is_refused(at, act, errno))
            }
            (Act::Look(place), End::Did(thing)) => holds(at[*place] == thing),
            (Act::List(places), End::Did(_)) => {
                holds(places.iter().all(|(place, thing)| at[*place] == *thing))
            }
            // Before the crash that its client saw it may still be undone.
            (_, End::Did(_)) if state.era < known.eras.0 || state.era > known.eras.1 => {
                Next::Impossible
            }
            (_, End::Did(thing)) => match state.made(call) {
                Some(made) => holds(made == thing),
                // A call without an effect now may have an effect later.
                None => Next::One(self.after(state, call, thing).into_iter().collect()),
            },
        }
    }

    /// A change without an answer: the thing that it makes may be any seen thing without a known
    /// creator.
    fn silent(&self, state: &State, call: usize) -> Next<State> {
        if state.made(call).is_some() {
            return Next::Impossible;
        }
        let known = &self.calls[call];
        let Act::Make { dir, .. } = known.act else {
            let next = self.after(state, call, NONE).filter(|next| next != state);
            return Next::One(next.into_iter().collect());
        };
        let mut made: Vec<PlaceContent> = self.orphans.clone();
        made.retain(|thing| self.is_dir(*thing) == dir && !state.at.contains(thing));
        let guesses = self.guesses.get(call).map_or(&[][..], Vec::as_slice);
        made.sort_by_key(|thing| !guesses.contains(thing));
        if let End::Did(thing) = known.end {
            made.insert(0, thing);
        }
        made.push(self.unseen[call]);
        Next::One(made.iter().filter_map(|thing| self.after(state, call, *thing)).collect())
    }

    /// Undoes any of the changes that a crash may take, and repeats the rest. The likely cases come
    /// first: a repeated change is lost, or the end of the journal is lost.
    fn crash(&self, state: &State, crash: u32) -> Next<State> {
        let loose = state.log.iter().map(|logged| &self.calls[logged.call]);
        let loose: Vec<&Call> = loose.filter(|call| call.loose >> crash & 1 == 1).collect();
        let count = loose.len();
        let mut next: Vec<State> = Vec::new();
        let mut add = |after: Option<State>| {
            if let Some(after) = after
                && !next.contains(&after)
            {
                next.push(after);
            }
        };
        // A change is done again in its place only if that makes another thing.
        let is_redone = state.log.iter().any(|logged| self.redone(logged, crash).is_some());
        let ways: &[bool] = if is_redone { &[false, true] } else { &[false] };
        for again in ways.iter().copied() {
            add(self.without(state, crash, again, |at| loose[at].likely > crash));
        }
        for kept in (0..=count).rev() {
            for again in ways.iter().copied() {
                add(self.without(state, crash, again, |at| at >= kept));
            }
        }
        if count > LOST_MAX {
            return Next::Some(next);
        }
        for lost in 0_u64..1 << count {
            for again in ways.iter().copied() {
                add(self.without(state, crash, again, |at| lost >> at & 1 == 1));
            }
        }
        Next::One(next)
    }

    /// The other thing that a change makes when it is done again after a crash, in its place before
    /// the changes that build on it: the one in its later answer, or one that it probably made.
    fn redone(&self, logged: &Logged, crash: u32) -> Option<PlaceContent> {
        let Logged { call, thing } = *logged;
        let known = &self.calls[call];
        if known.loose >> crash & 1 == 0 || !matches!(known.act, Act::Make { .. }) {
            return None;
        }
        let made = match known.end {
            End::Did(made) => Some(made),
            End::Refused(_) => None,
            End::Unknown => self.guesses.get(call).and_then(|made| made.last().copied()),
        };
        made.filter(|made| *made != thing)
    }

    /// The state after a crash that took some of the changes that it could. With `again` those that
    /// it did not take are done again, if they make other things then.
    fn without(
        &self,
        state: &State,
        crash: u32,
        again: bool,
        lost: impl Fn(usize) -> bool,
    ) -> Option<State> {
        let mut next = State { era: crash + 1, done: state.done.clone(), ..State::default() };
        if state.log.is_empty() {
            next.at.clone_from(&state.at);
            return Some(next);
        }
        next.at.clone_from(&state.base);
        let mut loose = 0;
        for logged in &state.log {
            let Logged { call, mut thing } = *logged;
            if self.calls[call].loose >> crash & 1 == 1 {
                loose += 1;
                if lost(loose - 1) {
                    next.done.retain(|(done, _)| *done != call);
                    continue;
                }
            }
            if let Some(made) = self.redone(logged, crash).filter(|_| again) {
                thing = made;
                next.done.iter_mut().filter(|it| it.0 == call).for_each(|it| it.1 = made);
            }
            if next.log.is_empty() && self.may_be_lost(call, next.era) {
                next.base.clone_from(&next.at);
            }
            if !next.log.is_empty() || self.may_be_lost(call, next.era) {
                next.log.push(Logged { call, thing });
            }
            if !self.execute(&mut next.at, &self.calls[call].act, thing) {
                return None;
            }
        }
        Some(next)
    }
}

impl Specification for Names {
    type State = State;
    type Operation = Operation;

    fn step(&self, state: &State, operation: &Operation) -> Next<State> {
        match *operation {
            Operation::Answer(call) => self.answered(state, call),
            Operation::Silent(call, era) if era == state.era => self.silent(state, call),
            Operation::Silent(..) => Next::Impossible,
            Operation::Crash(crash) if crash == state.era => self.crash(state, crash),
            Operation::Crash(_) => Next::Impossible,
        }
    }
}
