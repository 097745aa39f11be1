//! Judging events of journals: an event that a live request could cause is accepted as it is, and a
//! trial on a copy has the same result as the namespace itself.

use journal::Event;
use proptest::prelude::*;
use types::{Cred, Ino, Seq, Timestamp};

use super::tree::{no_fetch, warm};
use super::world::{Op, change_op, cred, peek, plan, resolve};
use crate::{Judge, Mode, Namespace, Planned, Refusal, TrialNamespace};

type Judged<'a> = Result<Option<Planned<'a>>, Refusal>;

fn planned(namespace: &mut Namespace, op: Op, who: &Cred, number: u64) -> Option<Planned<'static>> {
    let (one, two) = op.places();
    let targets = (
        resolve(one, |dir, name| peek(namespace, &mut no_fetch, dir, name)),
        resolve(two, |dir, name| peek(namespace, &mut no_fetch, dir, name)),
    );
    let fresh = (Ino(number), Timestamp(number.cast_signed()));
    warm(namespace, &mut no_fetch, |namespace| plan(namespace, who, op, targets, fresh))
        .ok()
        .flatten()
}

fn on_trial<'a>(
    trial: &mut TrialNamespace,
    base: &Namespace,
    judge: &Judge<'_>,
    event: &Event<'a>,
) -> Judged<'a> {
    let new_parent =
        if let Event::Rename { new_parent, .. } = *event { Some(new_parent) } else { None };
    let dir = event.dentry().map(|(dir, _)| dir);
    for ino in [dir, new_parent, event.inode()].into_iter().flatten() {
        trial.bring(base, ino).expect("all is in memory");
    }
    loop {
        match trial.namespace().plan().judge(judge, event, false) {
            Err(Refusal::Cold(dir)) => trial.load(base, dir).expect("all is in memory"),
            judged => return judged,
        }
    }
}

fn seen<'a>(judged: &'a Judged<'_>) -> Result<Option<Event<'a>>, Refusal> {
    judged.as_ref().map(|planned| planned.as_ref().map(Planned::event)).map_err(|refusal| *refusal)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_live_request_is_judged_to_be_what_it_is(
        base in prop::collection::vec((change_op(), 0..4u8), 1..40),
        ops in prop::collection::vec((change_op(), 0..6u8, 0..4u8), 1..60),
    ) {
        let open = types::AttrChange { mode: Some(0o777), ..types::AttrChange::default() };
        let mut both = [Namespace::with_root(Timestamp(1)), Namespace::with_root(Timestamp(1))];
        for namespace in &mut both {
            let planned = namespace.plan().setattr(&Cred::root(), Ino::ROOT, &open, Timestamp(2));
            namespace.apply(Seq(1), Mode::Live, &planned.unwrap().event());
            for (number, (op, who)) in (1000..).zip(&base) {
                if let Some(planned) = planned_by(namespace, *op, *who, number) {
                    namespace.apply(Seq(number), Mode::Live, &planned.event());
                }
            }
        }
        let [base, mut live] = both;
        let mut trial = TrialNamespace::new(&base, Ino::ROOT);
        for (number, (op, who, other)) in (10_000..).zip(ops) {
            let (who, other) = (cred(if who > 3 { 0 } else { who }), cred(other));
            let Some(planned) = planned(&mut live, op, &who, number) else { continue };
            let event = planned.event();
            // Another user claims it without the right to do so.
            let judge = Judge { cred: &other, subtree: Ino::ROOT };
            let here = warm(&mut live, &mut no_fetch, |live| live.plan().judge(&judge, &event, false));
            let here = here.map_err(Refusal::Errno);
            let there = on_trial(&mut trial, &base, &judge, &event);
            prop_assert_eq!(seen(&here), seen(&there), "{:?}", event);
            let judge = Judge { cred: &who, subtree: Ino::ROOT };
            let judged = on_trial(&mut trial, &base, &judge, &event);
            match seen(&judged) {
                Ok(judged) => prop_assert_eq!(judged, Some(event)),
                // A live request names directories that were walked to; a journal has to prove it.
                // And no journal makes a program of a group that its user is not in.
                Err(refusal) => prop_assert!(!who.is_root(), "{:?} {:?}", refusal, event),
            }
            live.apply(Seq(number), Mode::Live, &event);
            trial.namespace_mut().apply(Seq(number), Mode::Merge, &event);
        }
    }
}

fn planned_by(namespace: &mut Namespace, op: Op, who: u8, number: u64) -> Option<Planned<'static>> {
    planned(namespace, op, &cred(who), number)
}
