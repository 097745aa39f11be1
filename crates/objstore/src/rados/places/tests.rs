use super::*;

fn agreed(text: &str, rest: &str) -> Result<Vec<String>> {
    let mut config = Config::parse("rados:", rest).unwrap();
    agree(text, "rados:", &mut config)?;
    Ok((0..3).map(|purpose| config.pool_of(purpose).to_owned()).collect())
}

const MARKED: &str = "cudele-store 1\njournal j\ndata d\nmetadata m\n";

#[test]
fn the_marker_says_where_things_are() {
    assert_eq!(agreed(MARKED, "//p").unwrap(), ["j", "d", "m"]);
    assert_eq!(agreed(MARKED, "//p?data_pool=d").unwrap(), ["j", "d", "m"]);
    let error = agreed(MARKED, "//p?data_pool=x").unwrap_err();
    assert_eq!(error.errno, Errno::Invalid);
    assert!(error.to_string().contains("in pool d, not in x"), "{error}");
}

#[test]
fn foreign_and_newer_stores_are_refused() {
    let errno = |text| agreed(text, "//p").unwrap_err().errno;
    assert_eq!(errno("cudele-store 2\njournal j\n"), Errno::NotSupported);
    for foreign in ["", "something", "else 1\n", "cudele-store 1\nsize 3\n"] {
        assert_eq!(errno(foreign), Errno::Invalid, "{foreign:?}");
    }
}
