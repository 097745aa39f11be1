use cudele::{FileType, Timestamp};

use super::{Content, Fact, Facts, compare, group};

fn fact(file_type: FileType, content: Content) -> Fact {
    Fact {
        file_type,
        permissions: Some(0o644),
        owner: Some((1, 2)),
        mtime: Some(Timestamp(3)),
        content,
        same_as: None,
    }
}

fn sample() -> Facts {
    let mut facts = Facts::new();
    let mut add = |path: &str, fact: Fact| facts.insert(path.as_bytes().to_vec(), fact);
    add("", fact(FileType::Directory, Content::None));
    add("dir", fact(FileType::Directory, Content::None));
    add("dir/file", fact(FileType::Regular, Content::File(4, 99)));
    add("dir/same", fact(FileType::Regular, Content::File(4, 99)));
    add("link", fact(FileType::Symlink, Content::Target(b"dir".to_vec())));
    add("device", fact(FileType::CharDevice, Content::Device(259)));
    add("fifo", fact(FileType::Fifo, Content::None));
    group(&mut facts, [vec![b"dir/same".to_vec(), b"dir/file".to_vec()]]);
    facts
}

fn differences(change: impl FnOnce(&mut Facts)) -> Vec<String> {
    let mut copy = sample();
    change(&mut copy);
    let found = compare(&sample(), &copy, &|_| false);
    found.iter().map(ToString::to_string).collect()
}

/// The one difference after a change of one fact.
fn changed(path: &str, change: impl FnOnce(&mut Fact)) -> String {
    let mut all =
        differences(|facts| change(facts.get_mut(path.as_bytes()).expect("it is in the sample")));
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[test]
fn equal_trees_do_not_differ() {
    assert_eq!(differences(|_| {}), Vec::<String>::new());
}

#[test]
fn every_kind_of_planted_difference_is_found() {
    let cases = [
        (changed("dir/file", |fact| fact.permissions = Some(0o600)), "dir/file: mode"),
        (changed("dir/file", |fact| fact.owner = Some((1, 3))), "dir/file: owner"),
        (changed("dir", |fact| fact.mtime = Some(Timestamp(4))), "dir: mtime"),
        (changed("", |fact| fact.mtime = Some(Timestamp(4))), ".: mtime"),
        (changed("dir/file", |fact| fact.content = Content::File(5, 99)), "dir/file: size"),
        (changed("dir/file", |fact| fact.content = Content::File(4, 98)), "dir/file: content"),
        (changed("link", |fact| fact.content = Content::Target(b"d".to_vec())), "link: target"),
        (changed("device", |fact| fact.content = Content::Device(1)), "device: device number"),
        (changed("fifo", |fact| fact.file_type = FileType::Socket), "fifo: type"),
        (changed("dir/same", |fact| fact.same_as = None), "dir/same: hard links"),
    ];
    for (found, expected) in cases {
        assert!(found.starts_with(expected), "{found} does not start with {expected}");
    }
}

#[test]
fn missing_and_additional_names_are_found() {
    let missing = differences(|facts| drop(facts.remove(b"fifo".as_slice())));
    assert_eq!(missing, ["fifo: missing; the source has a fifo"]);
    let more = differences(|facts| {
        facts.insert(b"new".to_vec(), fact(FileType::Directory, Content::None));
    });
    assert_eq!(more, ["new: a directory that the source does not have"]);
}

#[test]
fn attributes_that_the_source_lacks_are_not_compared() {
    let mut source = sample();
    for fact in source.values_mut() {
        (fact.permissions, fact.owner, fact.mtime) = (None, None, None);
    }
    assert_eq!(compare(&source, &sample(), &|_| false), []);
    let mut copy = sample();
    copy.remove(b"fifo".as_slice());
    assert_eq!(compare(&source, &copy, &|path| path == b"fifo"), []);
}
