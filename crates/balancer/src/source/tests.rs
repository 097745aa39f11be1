use super::*;

fn sections(text: &str) -> Sections {
    match cut(text).unwrap().0 {
        Source::Mantle(sections) => sections,
        Source::Ceph(_) => panic!("Ceph's dialect: {text}"),
    }
}

#[test]
fn a_listing_is_cut_at_its_comments_and_keeps_its_lines() {
    let cut = sections(include_str!("../../testdata/listing1.lua"));
    assert_eq!(cut.metaload.unwrap().trim_end(), "\nmetaload = IWR");
    assert_eq!(cut.mdsload.unwrap().trim_end(), "\n\n\nmdsload = MDSs[i] [\"all\"]");
    assert_eq!(cut.when_where.lines().nth(8), Some("targets[whoami+1] = allmetaload/2"));
    assert_eq!(cut.target_lines, [9]);
    assert_eq!(cut.howmuch.unwrap().lines().last(), Some("{\"half\"}"));
}

#[test]
fn listing_4_has_its_where_within_its_when() {
    let cut = sections(include_str!("../../testdata/listing4.lua"));
    assert!(cut.when_where.contains("targetLoad=total/#MDSs"));
    assert!(cut.when_where.trim_end().ends_with("end"));
}

#[test]
fn a_script_without_a_when_policy_is_in_cephs_dialect() {
    let script = "-- when the sun shines\nreturn {0, 0}\n";
    assert_eq!(cut(script).unwrap().0, Source::Ceph(script.to_owned()));
    let (source, settings) = cut("-- Settings\nneed_min = 0.5\nreturn {}\n").unwrap();
    assert_eq!(source, Source::Ceph("\n\nreturn {}\n".to_owned()));
    assert_eq!(settings.need_min, 0.5);
}

fn refused(text: &str, line: Option<u32>, words: &str) {
    let fault = cut(text).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Syntax, "{text}");
    assert_eq!(fault.line, line, "{text}: {fault}");
    assert!(fault.message.contains(words), "{text}: {fault}");
}

#[test]
fn an_invalid_policy_is_refused_with_its_line() {
    refused("-- Metadata load\nIWR\n", None, "no `-- When policy`");
    refused("x = 1\n-- When policy\nif true then\n", Some(1), "before the first section");
    refused("-- When policy\n-- When policy:\n", Some(2), "a second section `When policy`");
    refused("-- Where policy\n-- When policy\nif true then", None, "stands before");
    refused("-- Settings\nspeed = 3\n-- When policy\n", Some(2), "no setting is called `speed`");
    refused("-- Settings\nneed_min = 9\n-- When policy\n", Some(2), "from 0.01 to 1");
    refused(&"x".repeat(SOURCE_BYTES_MAX + 1), None, "at most 65536");
}
