use super::*;
use types::{Cred, FileType, Seq, Timestamp};
use wire::{NewInode, RenameFlags, Reply};

type Answered = Result<Answer, Failure>;

const DIR: Ino = Ino(10);
const FILE: Ino = Ino(20);

fn dir(ino: Ino) -> Attr {
    Attr { ino, mode: FileType::Directory.mode_bits() | 0o755, nlink: 2, ..Attr::default() }
}

fn file(ino: Ino) -> Attr {
    Attr { ino, mode: FileType::Regular.mode_bits() | 0o644, nlink: 1, ..Attr::default() }
}

fn grants(inode: bool) -> Option<Grants> {
    Some(Grants { dir: dir(DIR), inode, ..Grants::default() })
}

fn absent() -> Result<Answer, Failure> {
    Err(Errno::NotFound.into())
}

struct Bench {
    cache: Cache,
    next: u64,
}

impl Bench {
    fn new() -> Self {
        Self { cache: Cache::default(), next: 0 }
    }

    fn ask(&mut self, op: &Op<'_>) -> Tid {
        self.next += 1;
        self.cache.ask(Tid(self.next), op);
        Tid(self.next)
    }

    #[allow(clippy::needless_pass_by_value, reason = "reads better")]
    fn answered(&mut self, op: &Op<'_>, result: Answered, grants: Option<Grants>) {
        let tid = self.ask(op);
        self.reply(tid, result, grants, 1);
    }

    fn reply(&mut self, tid: Tid, result: Answered, grants: Option<Grants>, time: i64) {
        let (seq, safe, time) = (Seq(0), Seq(0), Timestamp(time));
        self.cache.note_reply(&Reply { tid, seq, time, safe, grants, result });
    }

    fn look(&self, name: &[u8]) -> Option<Result<Ino, Errno>> {
        let answer =
            self.cache.answer(&Cred::root(), &Op::Read(ReadOp::Lookup { parent: DIR, name }))?;
        Some(answer.map_err(|failure| failure.errno).map(|answer| {
            let Answer::Attr(attr) = answer else { panic!("{answer:?}") };
            attr.ino
        }))
    }

    /// A new directory, of which everything is known.
    fn made() -> Self {
        let mut bench = Self::new();
        let create = Op::Change(ChangeOp::Create {
            parent: Ino::ROOT,
            name: b"d",
            new: NewInode::default(),
        });
        let grants = Some(Grants { dir: dir(Ino::ROOT), inode: true, ..Grants::default() });
        bench.answered(&create, Ok(Answer::Attr(dir(DIR))), grants);
        bench
    }

    fn create(&mut self, name: &[u8], ino: Ino) {
        let create = Op::Change(ChangeOp::Create { parent: DIR, name, new: NewInode::default() });
        self.answered(&create, Ok(Answer::Attr(file(ino))), grants(true));
    }
}

#[test]
fn names_and_absent_names_are_cached() {
    let mut bench = Bench::new();
    let lookup = |name| Op::Read(ReadOp::Lookup { parent: DIR, name });
    assert_eq!(bench.look(b"a"), None);
    bench.answered(&lookup(b"a"), Ok(Answer::Attr(file(FILE))), grants(true));
    bench.answered(&lookup(b"b"), absent(), grants(false));
    assert_eq!(bench.look(b"a"), Some(Ok(FILE)));
    assert_eq!(bench.look(b"b"), Some(Err(Errno::NotFound)));
    assert_eq!(bench.look(b"c"), None);
    bench.cache.forget(DIR);
    assert_eq!((bench.look(b"a"), bench.look(b"b")), (None, None));
    assert!(bench.cache.homes.is_empty() && bench.cache.names == 0);
}

#[test]
fn without_a_capability_nothing_is_cached() {
    let mut bench = Bench::new();
    bench.answered(
        &Op::Read(ReadOp::Lookup { parent: DIR, name: b"a" }),
        Ok(Answer::Attr(file(FILE))),
        None,
    );
    assert_eq!(bench.look(b"a"), None);
}

#[test]
fn a_new_directory_answers_every_lookup_from_the_cache() {
    let mut bench = Bench::made();
    assert_eq!(bench.look(b"a"), Some(Err(Errno::NotFound)));
    bench.create(b"a", FILE);
    assert_eq!(bench.look(b"a"), Some(Ok(FILE)));
    bench.answered(
        &Op::Change(ChangeOp::Unlink { parent: DIR, name: b"a" }),
        Ok(Answer::Done),
        grants(false),
    );
    assert_eq!(bench.look(b"a"), Some(Err(Errno::NotFound)));
    assert!(bench.cache.answer(&Cred::root(), &Op::Read(ReadOp::GetAttr { ino: FILE })).is_none());
}

#[test]
fn while_a_change_is_under_way_nothing_is_answered() {
    let mut bench = Bench::made();
    bench.create(b"a", FILE);
    let change = types::AttrChange { mode: Some(0o600), ..Default::default() };
    let tid = bench.ask(&Op::Change(ChangeOp::SetAttr { ino: FILE, change }));
    assert_eq!(bench.look(b"a"), None);
    // The answer to a question that was asked before does not bring the old attributes back.
    bench.answered(
        &Op::Read(ReadOp::Lookup { parent: DIR, name: b"a" }),
        Ok(Answer::Attr(file(FILE))),
        grants(true),
    );
    assert_eq!(bench.look(b"a"), None);
    bench.reply(tid, Ok(Answer::Done), None, 1);
    assert_eq!(bench.look(b"a"), None, "what it is now was not told");
}

#[test]
fn a_late_answer_to_a_change_is_not_cached() {
    let mut bench = Bench::made();
    let create = Op::Change(ChangeOp::Create { parent: DIR, name: b"a", new: NewInode::default() });
    let tid = bench.ask(&create);
    bench.cache.forget(DIR);
    bench.answered(&Op::Read(ReadOp::Lookup { parent: DIR, name: b"b" }), absent(), grants(false));
    bench.reply(tid, Ok(Answer::Attr(file(FILE))), None, 1);
    assert_eq!(bench.look(b"a"), None);
}

#[test]
fn a_renamed_entry_is_cached_under_its_new_name() {
    let mut bench = Bench::made();
    bench.create(b"a", FILE);
    bench.create(b"b", Ino(21));
    let flags = RenameFlags::default();
    let rename = Op::Change(ChangeOp::Rename {
        parent: DIR,
        name: b"a",
        new_parent: DIR,
        new_name: b"b",
        flags,
    });
    bench.answered(&rename, Ok(Answer::Done), grants(false));
    assert_eq!(bench.look(b"a"), Some(Err(Errno::NotFound)));
    assert_eq!(bench.look(b"b"), None, "its time of change is another one");
    assert_eq!(bench.cache.named(DIR, b"b"), Some(FILE));
}

#[test]
fn a_listing_makes_a_directory_complete_if_nothing_came_in_between() {
    let list = |after| Op::Read(ReadOp::List { dir: DIR, after, limit: 1, attrs: true });
    let page = |name: &[u8], more| {
        Ok(Answer::Entries { entries: vec![(name.to_vec(), file(FILE))], more })
    };
    let mut bench = Bench::new();
    bench.answered(&list(None), page(b"a", true), grants(true));
    assert_eq!(bench.look(b"x"), None);
    bench.answered(&list(Some(b"a")), page(b"b", false), grants(true));
    assert_eq!(bench.look(b"x"), Some(Err(Errno::NotFound)));

    let mut bench = Bench::new();
    bench.answered(&list(None), page(b"a", true), grants(true));
    bench.cache.forget(DIR);
    bench.answered(&list(Some(b"a")), page(b"b", false), grants(true));
    assert_eq!((bench.look(b"x"), bench.look(b"b")), (None, Some(Ok(FILE))));
}

#[test]
fn a_lookup_without_search_permission_fails_with_eacces() {
    let mut bench = Bench::new();
    let closed = Attr { mode: FileType::Directory.mode_bits() | 0o700, ..dir(DIR) };
    let lookup = Op::Read(ReadOp::Lookup { parent: DIR, name: b"a" });
    bench.answered(
        &lookup,
        absent(),
        Some(Grants { dir: closed, inode: false, ..Grants::default() }),
    );
    let other = Cred { uid: 5, gid: 5, groups: vec![] };
    let answer = bench.cache.answer(&other, &lookup);
    assert_eq!(answer, Some(Err(Errno::Access.into())));
}

#[test]
fn a_rename_of_an_unknown_name_may_change_any_inode() {
    let mut bench = Bench::made();
    let flags = RenameFlags::default();
    let (from, to) = (Ino(77), Ino(78));
    let rename = Op::Change(ChangeOp::Rename {
        parent: from,
        name: b"a",
        new_parent: to,
        new_name: b"b",
        flags,
    });
    let tid = bench.ask(&rename);
    assert!(bench.cache.answer(&Cred::root(), &Op::Read(ReadOp::GetAttr { ino: DIR })).is_none());
    bench.reply(tid, Ok(Answer::Done), None, 1);
    assert!(bench.cache.answer(&Cred::root(), &Op::Read(ReadOp::GetAttr { ino: DIR })).is_none());
}

#[test]
fn a_refused_rename_invalidates_the_inode_that_it_names() {
    let mut bench = Bench::made();
    bench.create(b"a", FILE);
    let other = Ino(FILE.0 + 1);
    bench.create(b"b", other);
    let known = |bench: &Bench, ino| {
        let answer = bench.cache.answer(&Cred::root(), &Op::Read(ReadOp::GetAttr { ino }));
        answer.is_some_and(|answer| answer.is_ok())
    };
    assert!(known(&bench, FILE) && known(&bench, other));
    let flags = RenameFlags::default();
    let rename = Op::Change(ChangeOp::Rename {
        parent: DIR,
        name: b"a",
        new_parent: Ino(77),
        new_name: b"a",
        flags,
    });
    // Not of a directory that is not known at all: that may be about anything.
    bench.answered(&Op::Read(ReadOp::Lookup { parent: Ino(77), name: b"a" }), absent(), {
        Some(Grants { dir: dir(Ino(77)), ..Grants::default() })
    });
    let tid = bench.ask(&rename);
    // The journal could not be written: other clients see the new name nevertheless.
    bench.reply(tid, Err(Errno::NoSpace.into()), None, 0);
    assert!(!known(&bench, FILE));
    assert!(known(&bench, other));
    assert_eq!(bench.look(b"a"), None);
}

#[test]
fn two_names_of_one_file_stay_when_one_is_renamed_to_the_other() {
    let mut bench = Bench::made();
    bench.create(b"a", FILE);
    let link = Op::Change(ChangeOp::Link { ino: FILE, parent: DIR, name: b"b" });
    bench.answered(&link, Ok(Answer::Done), grants(false));
    let flags = RenameFlags::default();
    let rename = Op::Change(ChangeOp::Rename {
        parent: DIR,
        name: b"a",
        new_parent: DIR,
        new_name: b"b",
        flags,
    });
    let tid = bench.ask(&rename);
    bench.reply(tid, Ok(Answer::Done), grants(false), 0);
    assert_eq!(
        (bench.cache.named(DIR, b"a"), bench.cache.named(DIR, b"b")),
        (Some(FILE), Some(FILE))
    );
}

#[test]
fn many_failed_lookups_make_a_directory_worth_listing() {
    let mut bench = Bench::new();
    for number in 0..MISSES_MIN {
        assert!(!bench.cache.is_worth_listing(DIR), "{number}");
        let name = number.to_string();
        let lookup = Op::Read(ReadOp::Lookup { parent: DIR, name: name.as_bytes() });
        bench.answered(&lookup, absent(), grants(false));
    }
    assert!(bench.cache.is_worth_listing(DIR));
    assert!(!bench.cache.is_worth_listing(DIR), "once");
}

#[test]
fn a_path_through_known_directories_is_followed_here() {
    let mut bench = Bench::made();
    bench.create(b"a", FILE);
    let look = |dir, name: &[u8]| bench.cache.look(&Cred::root(), dir, name);
    let walk = |path| super::walk(Ino::ROOT, path, look, |ino| bench.cache.attr(ino));
    let walked = |parent, attr| Some(Ok(Answer::Walked { parent, attr }));
    assert_eq!(walk(b"/d/a"), walked(DIR, Some(file(FILE))));
    assert_eq!(walk(b"/d/b"), walked(DIR, None));
    assert_eq!(walk(b"/d/b/c"), Some(Err(Errno::NotFound.into())));
    // Only the server resolves a file on the way: it may be a symbolic link.
    assert_eq!(walk(b"/d/a/c"), None);
    assert_eq!(walk(b"/e/a"), None);
}

#[test]
fn a_full_cache_returns_its_capabilities() {
    let mut bench = Bench::new();
    for number in 0..=DIRS_MAX as u64 {
        assert!(bench.cache.shrink().is_empty());
        let at = Some(Grants { dir: dir(Ino(100 + number)), inode: false, ..Grants::default() });
        let lookup = Op::Read(ReadOp::Lookup { parent: Ino(100 + number), name: b"a" });
        bench.answered(&lookup, absent(), at);
    }
    assert_eq!(bench.cache.shrink().len(), DIRS_MAX + 1);
    assert_eq!((bench.cache.dirs.len(), bench.cache.names), (0, 0));
}

#[test]
fn grants_for_a_directory_that_is_being_returned_are_not_cached() {
    let mut bench = Bench::new();
    let lookup = Op::Read(ReadOp::Lookup { parent: DIR, name: b"a" });
    let asked = bench.ask(&lookup);
    let returned = bench.ask(&Op::Session(SessionOp::Return { dir: DIR }));
    bench.reply(asked, Ok(Answer::Attr(file(FILE))), grants(true), 0);
    assert_eq!(bench.look(b"a"), None);
    bench.reply(returned, Ok(Answer::Done), None, 0);
    bench.answered(&lookup, Ok(Answer::Attr(file(FILE))), grants(true));
    assert_eq!(bench.look(b"a"), Some(Ok(FILE)));
}

/// A file had several names, and the one that is left is in another directory.
#[test]
fn the_attributes_of_a_file_are_with_the_directory_of_the_last_answer() {
    const OTHER: Ino = Ino(1 << 42);
    let mut bench = Bench::made();
    bench.create(b"a", FILE);
    let lookup = Op::Read(ReadOp::Lookup { parent: OTHER, name: b"b" });
    let there = Some(Grants { dir: dir(OTHER), inode: true, ..Grants::default() });
    bench.answered(&lookup, Ok(Answer::Attr(file(FILE))), there);
    bench.cache.validate();
    let get = Op::Read(ReadOp::GetAttr { ino: FILE });
    assert!(bench.cache.answer(&Cred::root(), &get).is_some());
    bench.cache.forget(OTHER);
    assert!(bench.cache.answer(&Cred::root(), &get).is_none());
    bench.cache.validate();
}
