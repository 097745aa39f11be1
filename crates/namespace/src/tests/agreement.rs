//! The namespace agrees with its specification, crate `model`.

use model::Model;
use proptest::prelude::*;
use types::{Ino, Seq, Timestamp};

use super::tree::{self, no_fetch, warm};
use super::world::{any_op, cred, on_model, plan, resolve};
use crate::{ApplyOutcome, Mode, Namespace};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn namespace_agrees_with_model(ops in prop::collection::vec((any_op(), 0..6u8), 1..120)) {
        let mut namespace = Namespace::with_root(Timestamp(1));
        let mut model = Model::with_root(Timestamp(1));
        open_root(&mut namespace, &mut model);
        for (number, (op, who)) in (2u64..).zip(ops) {
            // Half of all operations are root's.
            let who = cred(if who > 3 { 0 } else { who });
            let (ino, time) = (Ino(1000 + number), Timestamp(1000 + number.cast_signed()));
            let (one, two) = op.places();
            let targets = (
                resolve(one, |dir, name| model.peek(dir, name)),
                resolve(two, |dir, name| model.peek(dir, name)),
            );
            let expected = on_model(&mut model, &who, op, targets, (ino, time));
            let planned = warm(&mut namespace, &mut no_fetch, |namespace| {
                plan(namespace, &who, op, targets, (ino, time))
            });
            prop_assert_eq!(planned.as_ref().map(|_| ()).map_err(|errno| *errno), expected,
                "{:?} by {:?} at {:?}", op, who, targets);
            if let Ok(Some(planned)) = planned {
                let outcome = namespace.apply(Seq(number), Mode::Live, &planned.event());
                prop_assert!(outcome != ApplyOutcome::Rejected);
            }
        }
        let found = tree::of_namespace(&mut namespace, &mut no_fetch);
        tree::assert_same(&found, &tree::of_model(&model), "namespace and model");
    }
}

/// Lets all users write into the root.
fn open_root(namespace: &mut Namespace, model: &mut Model) {
    let change = types::AttrChange { mode: Some(0o777), ..types::AttrChange::default() };
    let root = cred(0);
    let planned = namespace.plan().setattr(&root, Ino::ROOT, &change, Timestamp(2)).unwrap();
    namespace.apply(Seq(1), Mode::Live, &planned.event());
    model.setattr(&root, Ino::ROOT, &change, Timestamp(2)).unwrap();
}
