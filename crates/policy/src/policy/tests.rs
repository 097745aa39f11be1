use proptest::prelude::*;
use types::{Pool, Span, Stripe};

use super::{ALLOCATED_INODES_MAX, Policy};
use crate::composition::tests::any_composition;
use crate::{
    Ack, Cache, Check, Checksums, Composition, InterferePolicy, MERGE_SECONDS_MAX,
    MERGE_UPDATES_MAX, MergeBy, MergeTrigger, PolicyWarning, Sharing, TRASH_SECONDS_MAX,
};

fn policy(consistency: &str, durability: &str) -> Policy {
    Policy {
        consistency: Composition::parse(consistency).unwrap(),
        durability: Composition::parse(durability).unwrap(),
        ..Policy::default()
    }
}

#[test]
fn the_default_is_posix() {
    let default = Policy::default();
    assert_eq!(default.effective().to_string(), "rpcs+stream");
    assert_eq!(default.cell().unwrap().to_string(), "strong-global");
    assert_eq!(default.allocated_inodes, 100);
    assert_eq!(default.interfere, InterferePolicy::Allow);
    assert_eq!((default.inline_bytes, default.stripe.bytes()), (4096, 4 << 20));
    assert!(default.streams() && !default.is_decoupled() && !default.hard_limit);
    assert_eq!(default.warnings(), []);
}

#[test]
fn settings_without_effect_are_remarked_on() {
    let mut policy = policy("rpcs", "none");
    policy.ack = Ack::Safe;
    policy.merge = MergeTrigger::Every { seconds: 10 };
    policy.check = Check::Merge;
    assert_eq!(
        policy.warnings(),
        [
            PolicyWarning::SafeAckNeverComes,
            PolicyWarning::MergeTriggerUnused,
            PolicyWarning::CheckUnused
        ]
    );
    policy.ack = Ack::Async;
    policy.cache = Cache::Lease;
    assert_eq!(policy.warnings()[0], PolicyWarning::NeverExclusive);
}

#[test]
fn a_decoupled_policy_is_recognised_and_explicit_stream_remarked_on() {
    let policy = policy("create+v.apply", "stream");
    assert!(policy.is_decoupled() && policy.streams());
    assert_eq!(policy.warnings(), [PolicyWarning::StreamWithoutRpcs]);
}

#[test]
fn the_canonical_texts_name_every_key() {
    let mut policy = policy("create+v.apply", "save||persist");
    policy.merge = MergeTrigger::AtUpdates { count: 5000 };
    policy.hard_limit = true;
    expect_test::expect![[r#"
        consistency: append_client_journal+volatile_apply
        durability: local_persist||global_persist
        allocated_inodes: 100
        interfere_policy: allow
        ack: applied
        cache: caps
        limit: hard
        check: none
        merge: at 5000 updates
        merge_by: value
        inline_bytes: 4096
        stripe_bytes: 4194304
        sharing: strict
    "#]]
    .assert_eq(&policy.to_yaml());
    expect_test::expect![[r#"{"consistency":"append_client_journal+volatile_apply","durability":"local_persist||global_persist","allocated_inodes":100,"interfere_policy":"allow","ack":"applied","cache":"caps","limit":"hard","check":"none","merge":"at 5000 updates","merge_by":"value","inline_bytes":4096,"stripe_bytes":4194304,"sharing":"strict"}"#]]
    .assert_eq(&policy.to_json().to_string());
}

#[test]
fn merge_triggers_have_units_and_bounds() {
    for (words, trigger) in [
        ("at_end", Some(MergeTrigger::AtEnd)),
        ("At End", Some(MergeTrigger::AtEnd)),
        ("on_demand", Some(MergeTrigger::OnDemand)),
        ("On Demand", Some(MergeTrigger::OnDemand)),
        ("every 10s", Some(MergeTrigger::Every { seconds: 10 })),
        ("every_2m", Some(MergeTrigger::Every { seconds: 120 })),
        ("EVERY 1h", Some(MergeTrigger::Every { seconds: 3600 })),
        ("at 5000 updates", Some(MergeTrigger::AtUpdates { count: 5000 })),
        ("every 10", None),
        ("every 0s", None),
        ("every -1s", None),
        ("every +1s", None),
        ("every 1.5s", None),
        ("every 18446744073709551615h", None),
        ("every 604801s", None),
        ("at 0 updates", None),
        ("at updates", None),
        ("", None),
    ] {
        assert_eq!(MergeTrigger::from_name(words), trigger, "{words}");
    }
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let merge = prop_oneof![
        Just(MergeTrigger::AtEnd),
        Just(MergeTrigger::WhenIdle),
        Just(MergeTrigger::OnDemand),
        (1..=MERGE_SECONDS_MAX).prop_map(|seconds| MergeTrigger::Every { seconds }),
        (1..=MERGE_UPDATES_MAX).prop_map(|count| MergeTrigger::AtUpdates { count }),
    ];
    let expressions = (any_composition(), any_composition());
    let choices = (
        proptest::sample::select(InterferePolicy::ALL),
        proptest::sample::select(Ack::ALL),
        proptest::sample::select(Check::ALL),
        proptest::sample::select(Cache::ALL),
        (
            proptest::sample::select(Sharing::ALL),
            proptest::sample::select(Checksums::ALL),
            proptest::option::of(1..=TRASH_SECONDS_MAX),
        ),
        proptest::sample::select(MergeBy::ALL),
    );
    let pool =
        ("[a-z][A-Za-z0-9._-]{2,20}", 0..=255_u8).prop_filter("a word of YAML", |(name, _)| {
            !["null", "true", "false", "yes", "off"].contains(&name.to_lowercase().as_str())
        });
    let layout = (0..=65_536_u32, 16..=26_u32, proptest::option::of(pool));
    (expressions, choices, 1..=ALLOCATED_INODES_MAX, any::<bool>(), merge, layout).prop_map(
        |((consistency, durability), choices, allocated_inodes, hard, merge, layout)| {
            let (interfere, ack, check, cache, (sharing, checksums, kept), merge_by) = choices;
            Policy {
                consistency,
                durability,
                allocated_inodes,
                interfere,
                ack,
                cache,
                hard_limit: hard,
                check,
                merge,
                merge_by,
                inline_bytes: layout.0,
                stripe: Stripe::of_bytes(1 << layout.1)
                    .unwrap()
                    .in_pool(Pool(layout.2.as_ref().map_or(0, |(_, number)| *number))),
                data_pool: layout.2.map(|(name, _)| name),
                sharing,
                checksums,
                trash: kept.map(|seconds| Span::from_millis(seconds * 1000)),
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn canonical_texts_read_back_as_the_policy(policy in any_policy()) {
        prop_assert_eq!(&Policy::parse(&policy.to_yaml()).unwrap().policy, &policy);
        prop_assert_eq!(&Policy::parse(&policy.to_json().to_string()).unwrap().policy, &policy);
        let pretty = format!("{:#}", policy.to_json());
        prop_assert_eq!(&Policy::parse(&pretty).unwrap().policy, &policy);
        prop_assert_eq!(&Policy::parse(&pretty.replace(",\n", "\n")).unwrap().policy, &policy);
    }
}
