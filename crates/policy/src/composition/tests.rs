use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::{Composition, EXPRESSION_BYTES_MAX, MECHANISMS_MAX, NESTING_MAX};
use crate::Mechanism;

fn check(text: &str, canonical: &str) {
    let composition = Composition::parse(text).unwrap();
    assert_eq!(composition.to_string(), canonical, "{text:?}");
    assert_eq!(Composition::parse(canonical), Ok(composition));
}

fn check_error(text: &str, expected: &Expect) {
    let error = Composition::parse(text).unwrap_err();
    assert!(error.at <= text.len() && text.is_char_boundary(error.at));
    expected.assert_eq(&format!("{} [{}] {error}", error.at, error.word));
}

#[test]
fn every_spelling_of_the_language_is_read() {
    check("rpcs", "rpcs");
    check("RPCs + Stream", "rpcs+stream");
    check(" append client journal+Volatile-Apply ", "append_client_journal+volatile_apply");
    check("create+save+v.apply", "append_client_journal+local_persist+volatile_apply");
    check("create+persist+apply", "append_client_journal+global_persist+nonvolatile_apply");
    check("save||persist", "local_persist||global_persist");
    check("save ||| persist", "local_persist||global_persist");
    check("append\nclient\tjournal", "append_client_journal");
    for nothing in ["", "  \n", "none", " None "] {
        check(nothing, "none");
    }
}

#[test]
fn parallel_binds_tighter_than_serial() {
    let text = "append_client_journal+local_persist||global_persist+volatile_apply";
    let one = Composition::One;
    let expected = Composition::Serial(vec![
        one(Mechanism::AppendClientJournal),
        Composition::Parallel(vec![one(Mechanism::LocalPersist), one(Mechanism::GlobalPersist)]),
        one(Mechanism::VolatileApply),
    ]);
    assert_eq!(Composition::parse(text), Ok(expected));
    check(text, text);
}

#[test]
fn only_parentheses_that_mean_something_remain() {
    check("((rpcs))", "rpcs");
    check("rpcs+(stream+save)", "rpcs+stream+local_persist");
    check("rpcs||(stream||save)", "rpcs||stream||local_persist");
    check("rpcs+(stream||save)", "rpcs+stream||local_persist");
    check("(rpcs+stream)||save", "(rpcs+stream)||local_persist");
}

#[test]
fn faults_are_reported_with_place_word_and_remedy() {
    check_error(
        "append_client_journal+volatile_ap",
        &expect![
            "22 [volatile_ap] column 23: `volatile_ap` is no mechanism; did you mean `volatile_apply`?"
        ],
    );
    check_error(
        "é+rpcs",
        &expect![
            "0 [é] column 1: `é` is no mechanism; use one of: rpcs, stream, append_client_journal, volatile_apply, nonvolatile_apply, local_persist, global_persist"
        ],
    );
    check_error(
        "rpcs stream",
        &expect![
            "0 [rpcs stream] column 1: `rpcs stream` is no mechanism; put + or || between mechanisms"
        ],
    );
    check_error(
        "rpcs+",
        &expect![
            "5 [] column 6: a mechanism is missing at the end; name one, or remove the operator or parenthesis before it"
        ],
    );
    check_error(
        "+rpcs",
        &expect!["0 [+] column 1: a mechanism is missing before `+`; name one, or remove the sign"],
    );
    check_error(
        "rpcs|stream",
        &expect!["4 [|] column 5: `|` is no operator; write || for both at the same time"],
    );
    check_error(
        "rpcs||||stream",
        &expect!["4 [||||] column 5: `||||` is no operator; write || for both at the same time"],
    );
    check_error(
        "rpcs+(stream",
        &expect!["5 [(] column 6: the parenthesis is not closed; add the closing one"],
    );
    check_error("rpcs)", &expect!["4 [)] column 5: nothing is open here; remove the parenthesis"]);
    check_error(
        "()",
        &expect!["1 [)] column 2: a mechanism is missing before `)`; name one, or remove the sign"],
    );
    check_error(
        "rpcs(stream)",
        &expect![
            "4 [(] column 5: an operator is missing here; write + for one after the other, or || for both at the same time"
        ],
    );
    check_error(
        "(rpcs(stream))",
        &expect![
            "5 [] column 6: an operator is missing here; write + for one after the other, or || for both at the same time"
        ],
    );
    check_error(
        "rpcs+none",
        &expect!["5 [none] column 6: `none` cannot be composed; write it alone or remove it"],
    );
}

#[test]
fn depth_size_and_length_are_bounded() {
    let nested = |depth| format!("{}rpcs{}", "(".repeat(depth), ")".repeat(depth));
    check(&nested(NESTING_MAX), "rpcs");
    let error = Composition::parse(&nested(NESTING_MAX + 1)).unwrap_err();
    assert_eq!(error.at, NESTING_MAX);
    assert!(Composition::parse(&"(".repeat(EXPRESSION_BYTES_MAX)).is_err());

    let longest = vec!["create"; MECHANISMS_MAX].join("+");
    check(&longest, &vec!["append_client_journal"; MECHANISMS_MAX].join("+"));
    let error = Composition::parse(&format!("{longest}+create")).unwrap_err();
    assert_eq!(error.at, longest.len() + 1);

    let error = Composition::parse(&"é".repeat(EXPRESSION_BYTES_MAX)).unwrap_err();
    assert_eq!(error.at, EXPRESSION_BYTES_MAX);
}

#[test]
fn errors_carry_einval() {
    let error = types::Error::from(Composition::parse("rpcs+x").unwrap_err());
    assert_eq!(error.errno, types::Errno::Invalid);
    assert_eq!(error.subject, "composition, column 6");
}

#[test]
fn mechanisms_come_in_written_order() {
    let composition = Composition::parse("create+(save||persist)+v.apply").unwrap();
    let order: Vec<_> = composition.mechanisms().collect();
    assert_eq!(
        order,
        [
            Mechanism::AppendClientJournal,
            Mechanism::LocalPersist,
            Mechanism::GlobalPersist,
            Mechanism::VolatileApply,
        ]
    );
    assert!(composition.contains(Mechanism::GlobalPersist));
    assert!(!composition.contains(Mechanism::Rpcs));
    assert!(Composition::default().is_nothing());
}

/// Any canonical composition that is small enough to be read back.
pub(crate) fn any_composition() -> impl Strategy<Value = Composition> {
    let leaf = prop_oneof![
        1 => Just(Composition::Nothing),
        9 => proptest::sample::select(&Mechanism::ALL[..]).prop_map(Composition::One),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let members = proptest::collection::vec(inner, 0..4);
        prop_oneof![
            members.clone().prop_map(Composition::serial),
            members.prop_map(Composition::parallel),
        ]
    })
    .prop_filter("readable", |composition| composition.mechanisms().count() <= MECHANISMS_MAX)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn the_text_of_a_composition_reads_back_as_itself(composition in any_composition()) {
        prop_assert_eq!(Composition::parse(&composition.to_string()), Ok(composition));
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "([a-z_ .+|()é]|rpcs|save|\\|\\||none){0,24}") {
        match Composition::parse(&text) {
            Ok(read) => prop_assert_eq!(Composition::parse(&read.to_string()), Ok(read)),
            Err(error) => prop_assert!(text.is_char_boundary(error.at)),
        }
    }
}
