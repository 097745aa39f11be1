use super::{PolicyWarning, strict, warnings};
use crate::{Composition, Mechanism};

fn check(text: &str, expected: &[PolicyWarning]) {
    assert_eq!(warnings(&Composition::parse(text).unwrap()), expected, "{text}");
}

#[test]
fn senseless_compositions_are_remarked_on() {
    check("create+rpcs", &[PolicyWarning::AppendWithRpcs]);
    check(
        "stream+save",
        &[
            PolicyWarning::NoUpdates,
            PolicyWarning::StreamWithoutRpcs,
            PolicyWarning::StreamWithPersist,
        ],
    );
    check("rpcs+stream+save", &[PolicyWarning::StreamWithPersist]);
    check("create+stream", &[PolicyWarning::StreamWithoutRpcs]);
    check("rpcs+v.apply", &[PolicyWarning::ApplyWithoutAppend]);
    check("v.apply", &[PolicyWarning::NoUpdates, PolicyWarning::ApplyWithoutAppend]);
    check("v.apply+create", &[PolicyWarning::ApplyBeforeAppend]);
    check("create||v.apply", &[PolicyWarning::ApplyBeforeAppend]);
    check("create+v.apply+apply", &[PolicyWarning::AppliedTwice]);
    check("save+create", &[PolicyWarning::PersistBeforeUpdates]);
    check("rpcs||save", &[PolicyWarning::PersistBeforeUpdates]);
    check("none", &[PolicyWarning::NoUpdates]);
    check("rpcs+rpcs", &[PolicyWarning::Repeated(Mechanism::Rpcs)]);
}

#[test]
fn applying_before_persisting_is_remarked_on() {
    check("create+v.apply+save", &[PolicyWarning::ApplyBeforePersist]);
    check("create+v.apply||save", &[PolicyWarning::ApplyBeforePersist]);
    check("create+apply+persist", &[PolicyWarning::ApplyBeforePersist]);
}

#[test]
fn sensible_compositions_pass_without_remark() {
    for text in ["create+(save||persist)+v.apply", "create+persist+apply", "rpcs||stream"] {
        check(text, &[]);
    }
}

#[test]
fn strict_callers_get_einval() {
    assert_eq!(strict(&[]), Ok(()));
    let error = strict(&[PolicyWarning::AppendWithRpcs]).unwrap_err();
    assert_eq!(error.errno, types::Errno::Invalid);
    assert_eq!(error.remedy, "keep one of the two");
    assert!(PolicyWarning::Repeated(Mechanism::Rpcs).to_string().starts_with("rpcs occurs"));
}
