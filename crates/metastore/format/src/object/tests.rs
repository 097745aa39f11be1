use types::{DirFragId, Frag, Ino, Pool};

use super::*;

const WHOLE: DirFragId = DirFragId { ino: Ino(1 << 40), frag: Frag::WHOLE };
const PART: DirFragId = DirFragId { ino: Ino::ROOT, frag: Frag { bits: 3, value: 0xe000_0000 } };

#[test]
fn names_are_what_the_format_page_says() {
    assert_eq!(prefix(WHOLE), "dirs/0000010000000000.00000000.0/");
    assert_eq!(manifest_name(PART), "dirs/0000000000000001.e0000000.3/manifest");
    assert_eq!(
        run_name(WHOLE, RunId(255)),
        "dirs/0000010000000000.00000000.0/run.00000000000000ff"
    );
    assert_eq!(data_name(Ino(0x1_23ab), Pool::USUAL, 17), "data/ab/00000000000123ab.00000011");
    assert_eq!(data_name(Ino(1), Pool::USUAL, 1 << 32), "data/01/0000000000000001.100000000");
}

#[test]
fn names_are_read_back() {
    for name in [
        ObjectName::Manifest(WHOLE),
        ObjectName::Manifest(PART),
        ObjectName::Run(PART, RunId(u64::MAX)),
        ObjectName::Data(Ino(u64::MAX), Pool::USUAL, 0),
        ObjectName::Data(Ino(u64::MAX), Pool(1), 0),
        ObjectName::Data(Ino(1), Pool(255), u64::MAX),
    ] {
        assert_eq!(ObjectName::parse(&name.to_string()), Some(name));
    }
}

#[test]
fn foreign_names_are_refused() {
    for name in [
        "",
        "dirs/",
        "journal/0/1",
        "dirs/0000000000000001.00000000.0",
        "dirs/0000000000000001.00000000.0/",
        "dirs/0000000000000001.00000000.0/manifest2",
        "dirs/0000000000000001.00000000.0/run.1",
        "dirs/0000000000000001.00000000.0/run.00000000000000FF",
        "dirs/0000000000000001.00000000.00/manifest",
        "dirs/0000000000000001.00000000.+0/manifest",
        "dirs/0000000000000001.00000000.25/manifest",
        "dirs/0000000000000001.10000000.3/manifest",
        "dirs/0000000000000001.00000000.0.0/manifest",
        "dirs/00000000000000001.00000000.0/manifest",
        "dirs/10000000000000001.00000000.0/manifest",
        "data/02/0000000000000001.00000000",
        "data/pool00/01/0000000000000001.00000000",
        "data/pool1/01/0000000000000001.00000000",
        "data/poolFF/01/0000000000000001.00000000",
        "data/pool100/01/0000000000000001.00000000",
        "data/01/0000000000000001.000000000",
        "data/01/0000000000000001.0",
        "data/01/0000000000000001.10000000000000000",
    ] {
        assert_eq!(ObjectName::parse(name), None, "{name}");
    }
}
