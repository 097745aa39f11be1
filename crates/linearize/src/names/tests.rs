use types::{Errno, Ino};

use super::{Act, CallOutcome, Crash, History, Judgement, Place, PlaceContent, RecordedCall, Seen};

const ROOT: Ino = Ino(1);

fn place(name: &str) -> Place {
    Place::new(ROOT, name)
}

fn file(ino: u64) -> PlaceContent {
    PlaceContent { ino: Ino(ino), dir: false }
}

fn dir(ino: u64) -> PlaceContent {
    PlaceContent { ino: Ino(ino), dir: true }
}

fn done() -> CallOutcome {
    CallOutcome::Did(Seen::Done)
}

/// A history in the making. Times are pairs: asked, answered.
#[derive(Clone, Default)]
struct Story(History);

impl Story {
    fn call(mut self, (start, end): (u64, u64), act: Act, outcome: CallOutcome) -> Self {
        self.0.calls.push(RecordedCall::new(act, start).ended(end, outcome));
        self
    }

    fn pending(mut self, start: u64, act: Act) -> Self {
        self.0.calls.push(RecordedCall::new(act, start));
        self
    }

    fn made(self, at: (u64, u64), name: &str, thing: PlaceContent) -> Self {
        let act = Act::Make { at: place(name), dir: thing.dir };
        self.call(at, act, CallOutcome::Did(Seen::PlaceContent(thing)))
    }

    fn exists(self, at: (u64, u64), name: &str) -> Self {
        let act = Act::Make { at: place(name), dir: false };
        self.call(at, act, CallOutcome::Refused(Errno::Exists))
    }

    fn sees(self, at: (u64, u64), name: &str, thing: PlaceContent) -> Self {
        self.call(at, Act::Look(place(name)), CallOutcome::Did(Seen::PlaceContent(thing)))
    }

    fn misses(self, at: (u64, u64), name: &str) -> Self {
        self.call(at, Act::Look(place(name)), CallOutcome::Refused(Errno::NotFound))
    }

    fn removed(self, at: (u64, u64), name: &str, dir: bool) -> Self {
        self.call(at, Act::Remove { at: place(name), dir }, done())
    }

    fn moved(self, at: (u64, u64), from: &str, to: &str) -> Self {
        self.call(at, moving(place(from), place(to)), done())
    }

    fn crash(mut self, at: u64) -> Self {
        self.0.crashes.push(Crash { start: at, end: at, hint: at });
        self
    }

    /// The client of the last call does not live to send it again.
    fn doubted(mut self) -> Self {
        self.0.calls.last_mut().unwrap().doubt = u64::MAX;
        self
    }

    fn safe(mut self, at: u64) -> Self {
        self.0.calls.last_mut().unwrap().safe = at;
        self
    }

    #[track_caller]
    fn accepted(&self) {
        let judgement = self.0.judge(1_000_000);
        assert_eq!(judgement, Judgement::Linearizable);
    }

    #[track_caller]
    fn rejected(&self) {
        let judgement = self.0.judge(1_000_000);
        assert!(matches!(judgement, Judgement::Violation(_)), "{judgement:?}");
    }
}

fn story() -> Story {
    Story::default()
}

fn moving(from: Place, to: Place) -> Act {
    Act::Move { from, to, exchange: false, no_replace: false }
}

#[test]
fn one_client_sees_what_it_does() {
    let story = story().misses((1, 2), "a").made((3, 4), "a", file(9)).sees((5, 6), "a", file(9));
    let story = story.moved((7, 8), "a", "b").misses((9, 10), "a").sees((11, 12), "b", file(9));
    story.removed((13, 14), "b", false).misses((15, 16), "b").accepted();
}

#[test]
fn an_old_answer_is_rejected() {
    story().made((1, 2), "a", file(9)).misses((3, 4), "a").rejected();
    story().made((1, 5), "a", file(9)).misses((3, 4), "a").accepted();
}

#[test]
fn a_lost_create_is_rejected() {
    let made = story().made((1, 2), "a", file(9));
    made.clone().made((3, 4), "a", file(10)).rejected();
    made.misses((90, 91), "a").rejected();
}

#[test]
fn two_creates_of_one_name_do_not_both_succeed() {
    story().made((1, 9), "a", file(9)).made((2, 8), "a", file(10)).rejected();
    story().made((1, 9), "a", file(9)).exists((2, 8), "a").accepted();
    story().exists((2, 8), "a").rejected();
}

#[test]
fn a_create_that_is_done_again_before_its_removal_may_make_another_file() {
    let seen = story().made((1, 30), "a", file(10)).sees((2, 3), "a", file(9));
    let removed = seen.removed((4, 5), "a", false);
    removed.clone().crash(10).misses((40, 41), "a").accepted();
    removed.clone().crash(10).sees((40, 41), "a", file(10)).rejected();
    removed.misses((40, 41), "a").rejected();
}

#[test]
fn a_removed_name_stays_removed() {
    let gone = story().made((1, 2), "a", file(9)).removed((3, 4), "a", false);
    gone.clone().sees((5, 6), "a", file(9)).rejected();
    gone.exists((5, 6), "a").rejected();
}

#[test]
fn no_read_sees_half_of_a_rename() {
    let moved = story().made((1, 2), "a", file(9)).moved((3, 9), "a", "b");
    moved.clone().misses((4, 5), "a").misses((6, 7), "b").rejected();
    moved.clone().misses((4, 5), "b").misses((6, 7), "a").accepted();
    moved.clone().sees((4, 5), "b", file(9)).sees((6, 7), "a", file(9)).rejected();
    // Nor in one listing.
    let both = vec![(b"a".to_vec(), file(9)), (b"b".to_vec(), file(9))];
    for names in [Vec::new(), both] {
        let seen = CallOutcome::Did(Seen::All(names));
        moved.clone().call((4, 5), Act::List(ROOT), seen).rejected();
    }
    let seen = CallOutcome::Did(Seen::All(vec![(b"b".to_vec(), file(9))]));
    moved.call((4, 5), Act::List(ROOT), seen).accepted();
}

#[test]
fn an_exchange_is_seen_at_once() {
    let exchange =
        Act::Move { from: place("a"), to: place("b"), exchange: true, no_replace: false };
    let both = story().made((1, 2), "a", file(9)).made((1, 2), "b", dir(8));
    let both = both.call((3, 9), exchange, done());
    both.clone().sees((4, 5), "a", dir(8)).sees((6, 7), "b", file(9)).accepted();
    both.sees((4, 5), "a", dir(8)).sees((6, 7), "b", dir(8)).rejected();
}

#[test]
fn two_clients_see_one_order() {
    let made = story().made((1, 20), "a", file(9)).made((1, 20), "b", file(8));
    let one = made.sees((2, 3), "a", file(9)).misses((4, 5), "b");
    let two = one.clone().sees((2, 3), "b", file(8)).misses((4, 5), "a");
    one.accepted();
    two.rejected();
}

#[test]
fn directories_are_removed_when_empty() {
    let inner = Place::new(Ino(7), "x");
    let make = Act::Make { at: inner.clone(), dir: false };
    let made = story().made((1, 2), "d", dir(7));
    let filled =
        made.clone().call((3, 4), make.clone(), CallOutcome::Did(Seen::PlaceContent(file(9))));
    filled.clone().removed((5, 6), "d", true).rejected();
    let remove = Act::Remove { at: place("d"), dir: true };
    filled.clone().call((5, 6), remove.clone(), CallOutcome::Refused(Errno::NotEmpty)).accepted();
    made.clone().call((5, 6), remove, CallOutcome::Refused(Errno::NotEmpty)).rejected();
    // And nothing is made in one that is gone.
    let gone = made.removed((3, 4), "d", true);
    gone.call((5, 6), make, CallOutcome::Did(Seen::PlaceContent(file(9)))).rejected();
    filled
        .moved((5, 6), "d", "e")
        .call((7, 8), Act::Look(inner), CallOutcome::Did(Seen::PlaceContent(file(9))))
        .accepted();
}

#[test]
fn an_unanswered_call_may_have_taken_effect() {
    let make = Act::Make { at: place("a"), dir: false };
    let pending = story().pending(1, make);
    pending.clone().misses((2, 3), "a").accepted();
    pending.clone().misses((2, 3), "a").sees((4, 5), "a", file(9)).accepted();
    pending.clone().exists((2, 3), "a").accepted();
    pending.clone().sees((2, 3), "a", file(9)).misses((4, 5), "a").rejected();
    pending.sees((2, 3), "a", file(9)).sees((4, 5), "a", file(8)).rejected();
    story().misses((2, 3), "a").sees((4, 5), "a", file(9)).rejected();
}

#[test]
fn an_answered_change_of_a_living_client_survives_a_crash() {
    let made = story().made((1, 2), "a", file(9)).crash(5);
    made.clone().misses((6, 7), "a").rejected();
    made.sees((6, 7), "a", file(9)).accepted();
}

#[test]
fn an_unsafe_change_of_a_dead_client_may_be_lost_in_a_crash() {
    let made = story().made((1, 2), "a", file(9)).doubted();
    made.clone().crash(5).misses((6, 7), "a").accepted();
    made.clone().crash(5).sees((6, 7), "a", file(9)).accepted();
    made.clone().crash(5).sees((3, 4), "a", file(9)).misses((6, 7), "a").accepted();
    made.clone().misses((6, 7), "a").rejected();
    made.clone().crash(5).misses((3, 4), "a").rejected();
    made.clone().safe(3).crash(5).misses((6, 7), "a").rejected();
    // Its effect is lost in this form, and does not come back later.
    let gone = made.crash(5).misses((6, 7), "a");
    gone.made((8, 9), "a", file(10)).sees((10, 11), "a", file(9)).rejected();
}

#[test]
fn a_call_repeated_after_a_crash_takes_effect_again() {
    // Another client saw it, the crash took it, and it was repeated with another number.
    let seen = story().made((1, 9), "a", file(10)).sees((2, 3), "a", file(9)).crash(5);
    seen.clone().misses((6, 7), "a").sees((10, 11), "a", file(10)).accepted();
    seen.clone().misses((10, 11), "a").rejected();
    seen.sees((10, 11), "a", file(9)).rejected();
    // Or the crash did not take it.
    let kept = story().made((1, 9), "a", file(9)).sees((2, 3), "a", file(9)).crash(5);
    kept.clone().removed((6, 7), "a", false).misses((10, 11), "a").accepted();
    kept.removed((6, 7), "a", false).sees((10, 11), "a", file(9)).rejected();
}

#[test]
fn a_change_that_depends_on_a_lost_one_is_not_lost_silently() {
    let made = story().made((1, 2), "a", file(9)).doubted();
    let moved = made.moved((3, 4), "a", "b");
    let crashed = moved.clone().crash(5);
    crashed.clone().misses((6, 7), "b").rejected();
    crashed.sees((6, 7), "b", file(9)).accepted();
    let mut told = moved;
    told.0.calls.last_mut().unwrap().doubt = 6;
    told.crash(5).misses((7, 8), "b").misses((7, 8), "a").accepted();
}

#[test]
fn thousands_of_requests_are_judged() {
    let mut story = story();
    for round in 0..2000 {
        let (at, name) = (round * 100, format!("n{}", round % 5));
        let other = format!("n{}", (round + 1) % 5);
        let ino = 100 + round;
        story =
            story.made((at, at + 60), &name, file(ino)).sees((at + 30, at + 70), &name, file(ino));
        story = story.moved((at + 50, at + 90), &name, &other).misses((at + 10, at + 99), &name);
        story = story.removed((at + 70, at + 99), &other, false);
    }
    story.accepted();
    story.sees((9_000_000, 9_000_001), "n3", file(103)).rejected();
}
