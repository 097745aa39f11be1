use expect_test::{Expect, expect};
use proptest::prelude::*;
use types::{Pool, Span, Stripe};

use super::{FILE_BYTES_MAX, Policy};
use crate::{Ack, Cache, Check, InterferePolicy, MergeTrigger, PolicyWarning, TRASH_SECONDS_MAX};

const LISTINGS: [&str; 7] = [
    include_str!("../../testdata/deltafs.indent4.listing"),
    include_str!("../../testdata/deltafs.indent2.listing"),
    include_str!("../../testdata/batchfs.indent2.listing"),
    include_str!("../../testdata/block.indent4.listing"),
    include_str!("../../testdata/block.indent2.listing"),
    TRUNCATED,
    // The same members in the other two forms.
    "allocated_inodes: \"100000\"\ninterfere_policy: 'block'\nconsistency: RPCs # as usual\n",
];
const TRUNCATED: &str = include_str!("../../testdata/batchfs.truncated.listing");

fn policy(text: &str) -> Policy {
    Policy::parse(text).unwrap().policy
}

fn check_error(text: &str, expected: &Expect) {
    expected.assert_eq(&Policy::parse(text).unwrap_err().to_string());
}

#[test]
fn the_printed_listings_are_read_as_printed() {
    for (listings, consistency, durability, effective) in [
        (
            &LISTINGS[0..2],
            "append_client_journal",
            "local_persist",
            "append_client_journal+local_persist",
        ),
        (
            &LISTINGS[2..3],
            "append_client_journal+volatile_apply",
            "local_persist",
            "append_client_journal+local_persist+volatile_apply",
        ),
        (&LISTINGS[3..5], "rpcs", "stream", "rpcs+stream"),
    ] {
        for listing in listings {
            let parsed = Policy::parse(listing).unwrap();
            assert_eq!(parsed.warnings, []);
            let policy = parsed.policy;
            assert_eq!(policy.consistency.to_string(), consistency);
            assert_eq!(policy.durability.to_string(), durability);
            assert_eq!(policy.effective().to_string(), effective);
            assert_eq!(policy.allocated_inodes, 100_000);
            assert_eq!(policy.interfere, InterferePolicy::Block);
        }
    }
}

#[test]
fn the_truncated_listing_is_an_error_and_no_guess() {
    check_error(
        TRUNCATED,
        &expect![
            "line 4, column 43: consistency: `volatile_ap` is no mechanism; did you mean `volatile_apply`?"
        ],
    );
    let completed = TRUNCATED.replace("volatile_ap", "volatile_apply");
    check_error(
        &completed,
        &expect![
            "line 5, column 34: the brace opened at line 1, column 1 is not closed; add } at the end; the text may be incomplete"
        ],
    );
    assert!(Policy::parse(&format!("{completed}}}")).is_ok());
}

#[test]
fn an_empty_file_is_posix() {
    for empty in
        ["", "\n \n", "# nothing yet\n", "---\n", "{}", " { \n } \n", "\u{feff}", "\u{feff}{}"]
    {
        assert_eq!(policy(empty), Policy::default(), "{empty:?}");
    }
}

#[test]
fn yaml_json_and_braces_mean_the_same() {
    let expected = policy("durability: none\nallocated_inodes: 7\n");
    for text in [
        r#"{"durability": "none", "allocated_inodes": 7}"#,
        r#"{"durability": "none" "allocated_inodes": 7}"#,
        r#"{"durability": "", "allocated_inodes": "7",}"#,
        "{durability: none\nallocated_inodes: 7}",
        "# in front\n{ # inside\n  'durability': 'none' # behind\n  allocated_inodes: 7 # and so on\n}\n# after",
        r#"{"dura\u0062ility": "no\u006ee" "allocated_inodes": 7}"#,
        "durability: ''\nAllocated Inodes: 0007\n",
        "\"durability\": \"none\"\n'allocated-inodes': 7\n",
        "--- # a policy\ndurability: >\n  none\nallocated_inodes: 7\n...\n",
        "{\r\n\"durability\": \"none\"\r\n\"allocated_inodes\": \"7\"\r\n}\r\n",
    ] {
        assert_eq!(policy(text), expected, "{text}");
    }
}

#[test]
fn every_key_is_read_in_any_case() {
    let read = policy(
        "Consistency: Append Client Journal + Volatile Apply\nDurability: SAVE\n\
         Allocated Inodes: 5\nInterfere Policy: Block\nAck: SAFE\nCache: Lease\nLimit: hard\nCheck: client\n\
         Merge: every 2m\n",
    );
    assert_eq!(read.effective().to_string(), "append_client_journal+local_persist+volatile_apply");
    assert_eq!((read.allocated_inodes, read.hard_limit), (5, true));
    assert_eq!((read.interfere, read.ack), (InterferePolicy::Block, Ack::Safe));
    assert_eq!(read.cache, Cache::Lease);
    assert_eq!((read.check, read.merge), (Check::Client, MergeTrigger::Every { seconds: 120 }));
}

#[test]
fn durability_left_out_is_stream_only_beside_plain_rpcs() {
    for (consistency, effective) in [
        ("rpcs", "rpcs+stream"),
        ("append_client_journal", "append_client_journal"),
        ("create+v.apply", "append_client_journal+volatile_apply"),
        ("create+save+v.apply", "append_client_journal+local_persist+volatile_apply"),
        ("rpcs+save", "rpcs+local_persist"),
        ("rpcs+stream", "rpcs+stream"),
    ] {
        let parsed = Policy::parse(&format!("consistency: {consistency}")).unwrap();
        assert_eq!(parsed.policy.effective().to_string(), effective);
        assert_eq!(parsed.warnings, []);
    }
    let explicit = Policy::parse("consistency: create\ndurability: stream").unwrap();
    assert_eq!(explicit.warnings, [PolicyWarning::StreamWithoutRpcs]);
    let error = explicit.strict().unwrap_err();
    assert_eq!(error.errno, types::Errno::Invalid);
}

#[test]
fn unknown_and_repeated_keys_are_errors() {
    check_error(
        "consistancy: rpcs",
        &expect![
            "line 1, column 1: `consistancy` is no key of a policy; did you mean `consistency`?"
        ],
    );
    check_error(
        "ack: safe\ncolour: red",
        &expect![
            "line 2, column 1: `colour` is no key of a policy; use one of: consistency, durability, allocated_inodes, interfere_policy, ack, cache, limit, check, merge, merge_by, inline_bytes, stripe_bytes, sharing, data_pool, checksums, trash"
        ],
    );
    check_error(
        "{\"ack\": \"safe\"\n \"Ack\": \"safe\"}",
        &expect!["line 2, column 3: ack: the key occurs a second time; keep one of the two"],
    );
    check_error(
        "ack: safe\nACK: safe",
        &expect!["line 2, column 1: ack: the key occurs a second time; keep one of the two"],
    );
    check_error(
        "ack: safe\nack: safe",
        &expect![
            "line 2, column 1: the key occurs a second time; write one key with one word or number to a line, as in durability: stream"
        ],
    );
}

#[test]
fn values_are_held_to_their_key() {
    check_error(
        "interfere_policy: maybe",
        &expect![
            "line 1, column 19: interfere_policy: `maybe` is none of its values; use one of: allow, block"
        ],
    );
    check_error(
        "interfere_policy: 'blok'",
        &expect![
            "line 1, column 20: interfere_policy: `blok` is none of its values; did you mean `block`?"
        ],
    );
    check_error(
        "limit: true",
        &expect!["line 1, column 8: limit: `true` is none of its values; use one of: soft, hard"],
    );
    check_error(
        "merge: sometimes",
        &expect![
            "line 1, column 8: merge: `sometimes` is no merge trigger; use at_end, idle, on_demand, every 10s (or m, h; at most a week), or at 5000 updates"
        ],
    );
    for inodes in [
        "0",
        "-1",
        "+1",
        "1e3",
        "0x10",
        "1_000",
        "1.0",
        "1099511627777",
        "99999999999999999999",
        "many",
        "''",
    ] {
        for text in
            [format!("allocated_inodes: {inodes}"), format!("{{allocated_inodes: {inodes}}}")]
        {
            let error = Policy::parse(&text).unwrap_err();
            assert_eq!(error.key, "allocated_inodes", "{text}");
        }
    }
    assert_eq!(policy("allocated_inodes: 1099511627776").allocated_inodes, 1 << 40);
}

#[test]
fn removed_trees_are_kept_for_a_time_with_a_unit() {
    for (word, seconds) in [
        ("off", None),
        ("1d", Some(86_400)),
        ("36H", Some(36 * 3600)),
        ("90m", Some(5400)),
        ("3650d", Some(TRASH_SECONDS_MAX)),
    ] {
        let kept = policy(&format!("trash: {word}")).trash;
        assert_eq!(kept, seconds.map(|seconds| Span::from_millis(seconds * 1000)), "{word}");
    }
    for (text, written) in [("trash: 48h", Some("trash: 2d\n")), ("trash: off", None)] {
        let yaml = policy(text).to_yaml();
        assert_eq!(yaml.find("trash").map(|at| &yaml[at..]), written);
    }
    for word in ["1", "0s", "-1d", "1.5d", "1w", "d", "3651d", "forever"] {
        let error = Policy::parse(&format!("trash: {word}")).unwrap_err();
        assert_eq!(error.key, "trash", "{word}");
    }
}

#[test]
fn where_content_goes_has_bounds() {
    for bytes in [0, 1, 4096, 65_535, 65_536] {
        assert_eq!(policy(&format!("inline_bytes: {bytes}")).inline_bytes, bytes);
    }
    for bits in 16..=26 {
        let bytes = 1_u64 << bits;
        assert_eq!(policy(&format!("{{stripe_bytes: '{bytes}'}}")).stripe.bytes(), bytes);
    }
    let fault = |text: &str| Policy::parse(text).expect_err(text).to_string();
    expect![[r#"
        line 1, column 15: inline_bytes: `65537` is no length of inline content; write an integer from 0 to 65536
        line 1, column 15: inline_bytes: `4k` is no length of inline content; write an integer from 0 to 65536
        line 1, column 15: inline_bytes: `4294967296` is no length of inline content; write an integer from 0 to 65536
        line 1, column 15: stripe_bytes: `32768` is no size of stripes; write a power of two from 65536 to 67108864
        line 1, column 15: stripe_bytes: `134217728` is no size of stripes; write a power of two from 65536 to 67108864
        line 1, column 15: stripe_bytes: `4194305` is no size of stripes; write a power of two from 65536 to 67108864
    "#]]
    .assert_eq(
        &[
            "inline_bytes: 65537",
            "inline_bytes: 4k",
            "inline_bytes: 4294967296",
            "stripe_bytes: 32768",
            "stripe_bytes: 134217728",
            "stripe_bytes: 4194305",
        ]
        .map(|text| fault(text) + "\n")
        .concat(),
    );
}

#[test]
fn yaml_that_is_no_policy_is_an_error_with_a_place() {
    check_error(
        "durability:\nack: safe",
        &expect![
            "line 1, column 1: `durability` has no value; write one (none, for no mechanism), or remove the key for its default"
        ],
    );
    check_error(
        "consistency: [rpcs, stream]",
        &expect![
            "line 1, column 14: keys with one word or number each are expected here; write one key with one word or number to a line, as in durability: stream"
        ],
    );
    check_error(
        "- rpcs",
        &expect![
            "line 1, column 1: keys with one word or number each are expected here; write one key with one word or number to a line, as in durability: stream"
        ],
    );
    check_error(
        "ack: safe\n---\nack: safe",
        &expect![
            "line 2, column 1: a policy is one flat document, without anchors or nesting; write one key with one word or number to a line, as in durability: stream"
        ],
    );
    check_error(
        "ack: 'safe",
        &expect![
            "line 1, column 6: this is not YAML: unclosed quote; write one key with one word or number to a line, as in durability: stream"
        ],
    );
    check_error(
        "ack: &a safe\nlimit: *a",
        &expect![
            "line 1, column 9: a policy is one flat document, without anchors or nesting; write one key with one word or number to a line, as in durability: stream"
        ],
    );
}

#[test]
fn braces_that_are_no_policy_are_an_error_with_a_place() {
    check_error(
        "{\"consistency\": [\"rpcs\"]}",
        &expect![[
            r#"line 1, column 17: a value is missing here; write each member as "key": "value""#
        ]],
    );
    check_error(
        "{\"consistency\": }",
        &expect![[
            r#"line 1, column 17: a value is missing here; write each member as "key": "value""#
        ]],
    );
    check_error(
        "{consistency}",
        &expect![[
            r#"line 1, column 13: a colon is missing after `consistency`; write each member as "key": "value""#
        ]],
    );
    check_error(
        "{,}",
        &expect![[
            r#"line 1, column 2: a key is missing here; write each member as "key": "value""#
        ]],
    );
    check_error(
        "{ack: safe,, limit: hard}",
        &expect![[
            r#"line 1, column 12: a key is missing here; write each member as "key": "value""#
        ]],
    );
    check_error(
        "{\"ack\": \"safe\n}",
        &expect![
            "line 1, column 9: the quote that begins here is not closed on its line; add the closing quote"
        ],
    );
    check_error(
        "{\"ack\": \"\\q\"}",
        &expect!["line 1, column 10: this escape is not understood; write the character itself"],
    );
    check_error(
        "{\"ack\": \"\\ud83d\\ude00\"}",
        &expect!["line 1, column 10: this escape is not understood; write the character itself"],
    );
    check_error(
        "{\"ack\":",
        &expect![
            "line 1, column 8: the brace opened at line 1, column 1 is not closed; add } at the end; the text may be incomplete"
        ],
    );
    check_error(
        "{} {}",
        &expect!["line 1, column 4: there is text after the closing brace; one policy to a file"],
    );
}

#[test]
fn places_inside_expressions_are_exact_where_the_value_is_written_verbatim() {
    check_error(
        "é: 1",
        &expect![
            "line 1, column 1: `é` is no key of a policy; use one of: consistency, durability, allocated_inodes, interfere_policy, ack, cache, limit, check, merge, merge_by, inline_bytes, stripe_bytes, sharing, data_pool, checksums, trash"
        ],
    );
    check_error(
        "consistency: rpcs+x",
        &expect![
            "line 1, column 19: consistency: `x` is no mechanism; use one of: rpcs, stream, append_client_journal, volatile_apply, nonvolatile_apply, local_persist, global_persist"
        ],
    );
    check_error(
        "\n  consistency: \"rpcs+strea\"",
        &expect!["line 2, column 22: consistency: `strea` is no mechanism; did you mean `stream`?"],
    );
    check_error(
        "{consistency: \"\\u0072pcs+strea\"}",
        &expect!["line 1, column 16: consistency: `strea` is no mechanism; did you mean `stream`?"],
    );
}

#[test]
fn files_that_are_too_large_or_no_text_are_errors() {
    let large = "#".repeat(FILE_BYTES_MAX + 1);
    let error = Policy::parse(&large).unwrap_err();
    assert_eq!(error.column, FILE_BYTES_MAX + 1);
    assert!(Policy::parse(&large[1..]).is_ok());
    let error = Policy::parse_bytes(b"ack: safe\nch\xffeck: none").unwrap_err();
    assert_eq!((error.line, error.column), (2, 3));
    assert_eq!(Policy::parse_bytes(b"ack: safe").unwrap().policy.ack, Ack::Safe);
}

#[test]
fn errors_for_people_name_the_file_and_carry_einval() {
    let error = Policy::parse("ack: never").unwrap_err().in_file("job.yml");
    assert_eq!(error.errno, types::Errno::Invalid);
    expect![
        "job.yml:1:6: ack: `never` is none of its values (EINVAL); use one of: applied, safe, async"
    ]
    .assert_eq(&error.to_string());
}

#[test]
fn every_truncation_of_a_braced_listing_is_refused() {
    for listing in &LISTINGS[..6] {
        let body = listing.trim_end();
        for cut in 1..body.len() {
            assert!(Policy::parse(&body[..cut]).is_err(), "{:?}", &body[..cut]);
        }
    }
}

fn mutate(text: &str, edits: &[(usize, u8, u8)]) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for (at, kind, byte) in edits {
        let at = at % (bytes.len() + 1);
        match kind % 4 {
            0 => bytes.insert(at, *byte),
            1 if at < bytes.len() => bytes[at] = *byte,
            2 if at < bytes.len() => {
                bytes.remove(at);
            }
            _ => bytes.truncate(at.max(1)),
        }
    }
    bytes
}

/// An accepted input must be writable again; an error must name a place in the text.
fn check_bytes(bytes: &[u8]) {
    match Policy::parse_bytes(bytes) {
        Ok(parsed) => assert_eq!(policy(&parsed.policy.to_yaml()), parsed.policy),
        Err(error) => {
            assert!(error.line >= 1 && error.column >= 1);
            assert!(!error.cause.is_empty() && !error.remedy.is_empty());
            assert!(!error.to_string().contains(char::is_control));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn mutated_listings_never_panic(
        listing in proptest::sample::select(&LISTINGS[..]),
        edits in proptest::collection::vec((0..400_usize, any::<u8>(), any::<u8>()), 1..6),
    ) {
        check_bytes(&mutate(listing, &edits));
    }

    #[test]
    fn arbitrary_texts_never_panic(text in "\\PC{0,64}", braced in any::<bool>()) {
        let text = if braced { format!("{{{text}") } else { text };
        check_bytes(text.as_bytes());
        let _either = Policy::from_name_or_text(&text);
    }

    #[test]
    fn texts_of_punctuation_never_panic(text in "[ \n#:,{}\\[\\]'\"\\\\a|>&*!%@?u0-]{0,48}") {
        check_bytes(text.as_bytes());
        check_bytes(format!("{{{text}").as_bytes());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
        check_bytes(&bytes);
    }
}

#[test]
fn a_pool_is_a_name_with_or_without_its_number() {
    let pool = |text: &str| Policy::parse(text).map(|parsed| parsed.policy);
    let named = pool("data_pool: fast").unwrap();
    assert_eq!((named.data_pool.as_deref(), named.stripe.pool()), (Some("fast"), Pool::USUAL));
    for text in [
        "data_pool: Fast-1.x_#7\nstripe_bytes: 65536",
        "{stripe_bytes: 65536, data-pool: 'Fast-1.x_#7'}",
    ] {
        let numbered = pool(text).unwrap();
        assert_eq!(numbered.data_pool.as_deref(), Some("Fast-1.x_"));
        assert_eq!(numbered.stripe, Stripe::MIN.in_pool(Pool(7)));
        assert!(numbered.to_yaml().ends_with("sharing: strict\ndata_pool: Fast-1.x_#7\n"));
    }
    for wrong in ["7", "-x", "a b", "a#0", "a#256", "a#", "a#x", "No", "true", &"x".repeat(129)] {
        let error = pool(&format!("data_pool: '{wrong}'")).unwrap_err();
        assert!(error.cause.contains("is no name of a pool"), "{wrong}: {error:?}");
    }
}
