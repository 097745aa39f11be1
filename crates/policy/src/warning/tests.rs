use super::{Warning, strict, warnings};
use crate::{Composition, Mechanism};

fn check(text: &str, expected: &[Warning]) {
    assert_eq!(warnings(&Composition::parse(text).unwrap()), expected, "{text}");
}

#[test]
fn senseless_compositions_are_remarked_on() {
    check("create+rpcs", &[Warning::AppendWithRpcs]);
    check(
        "stream+save",
        &[Warning::NoUpdates, Warning::StreamWithoutRpcs, Warning::StreamWithPersist],
    );
    check("rpcs+stream+save", &[Warning::StreamWithPersist]);
    check("create+stream", &[Warning::StreamWithoutRpcs]);
    check("rpcs+v.apply", &[Warning::ApplyWithoutAppend]);
    check("v.apply", &[Warning::NoUpdates, Warning::ApplyWithoutAppend]);
    check("v.apply+create", &[Warning::ApplyBeforeAppend]);
    check("create||v.apply", &[Warning::ApplyBeforeAppend]);
    check("create+v.apply+apply", &[Warning::AppliedTwice]);
    check("save+create", &[Warning::PersistBeforeUpdates]);
    check("rpcs||save", &[Warning::PersistBeforeUpdates]);
    check("none", &[Warning::NoUpdates]);
    check("rpcs+rpcs", &[Warning::Repeated(Mechanism::Rpcs)]);
}

#[test]
fn applying_before_persisting_is_remarked_on() {
    check("create+v.apply+save", &[Warning::ApplyBeforePersist]);
    check("create+v.apply||save", &[Warning::ApplyBeforePersist]);
    check("create+apply+persist", &[Warning::ApplyBeforePersist]);
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
    let error = strict(&[Warning::AppendWithRpcs]).unwrap_err();
    assert_eq!(error.errno, types::Errno::Invalid);
    assert_eq!(error.remedy, "keep one of the two");
    assert!(Warning::Repeated(Mechanism::Rpcs).to_string().starts_with("rpcs occurs"));
}
