use proptest::prelude::*;

use super::effective;
use crate::Composition;
use crate::composition::tests::any_composition;

fn check(consistency: &str, durability: &str, expected: &str) {
    let [consistency, durability] =
        [consistency, durability].map(|text| Composition::parse(text).unwrap());
    assert_eq!(effective(&consistency, &durability).to_string(), expected);
}

#[test]
fn durability_goes_between_the_append_and_the_rest() {
    check("create+v.apply", "save", "append_client_journal+local_persist+volatile_apply");
    check(
        "create+v.apply",
        "save||persist",
        "append_client_journal+local_persist||global_persist+volatile_apply",
    );
    check("create", "persist", "append_client_journal+global_persist");
    check("rpcs", "stream", "rpcs+stream");
    check("rpcs", "none", "rpcs");
    check("create+v.apply", "none", "append_client_journal+volatile_apply");
    check("none", "stream", "stream");
    check("none", "none", "none");
}

#[test]
fn durability_follows_the_last_mechanism_that_carries_updates() {
    check(
        "create+v.apply+create+apply",
        "save",
        "append_client_journal+volatile_apply+append_client_journal+local_persist\
         +nonvolatile_apply",
    );
    check("v.apply", "save", "local_persist+volatile_apply");
}

#[test]
fn in_a_parallel_group_durability_follows_the_branch_that_carries_updates() {
    check("create||v.apply", "save", "(append_client_journal+local_persist)||volatile_apply");
    check("rpcs||stream", "save", "(rpcs+local_persist)||stream");
    check("create||rpcs", "save", "append_client_journal||rpcs+local_persist");
    check(
        "(create+v.apply)||stream+apply",
        "save",
        "(append_client_journal+local_persist+volatile_apply)||stream+nonvolatile_apply",
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn nothing_is_lost_or_invented(
        consistency in any_composition(),
        durability in any_composition(),
    ) {
        let sorted = |composition: &Composition| {
            let mut mechanisms: Vec<_> = composition.mechanisms().collect();
            mechanisms.sort();
            mechanisms
        };
        let both = Composition::serial([consistency.clone(), durability.clone()]);
        let effective = effective(&consistency, &durability);
        prop_assert_eq!(sorted(&effective), sorted(&both));
        let canonical = effective.mechanisms().count() > crate::MECHANISMS_MAX
            || Composition::parse(&effective.to_string()) == Ok(effective);
        prop_assert!(canonical);
    }
}
