//! A link whose other name is removed is a rename.

use types::{Attr, AttrChange, Cred, Moment, RenameFlags};
use wire::{Answer, ChangeOp, ReadOp, SessionOp};

use super::async_ops::{DIR_MODE, FILE_MODE, SUB, create, kinds};
use super::*;
use crate::LocalAnswer;

const FROM: &[u8] = b"tmp_obj";
const TO: &[u8] = b"object";

fn link<'a>(ino: Ino, name: &'a [u8]) -> Op<'a> {
    Op::Change(ChangeOp::Link { ino, parent: SUB, name })
}

fn unlink(name: &[u8]) -> Op<'_> {
    Op::Change(ChangeOp::Unlink { parent: SUB, name })
}

fn lookup(name: &[u8]) -> Op<'_> {
    Op::Read(ReadOp::Lookup { parent: SUB, name })
}

impl Bench {
    fn make(&mut self, parent: Ino, name: &[u8], mode: u32) -> Ino {
        let (_, answer) = self.perform_async(create(parent, name, mode));
        let Answer::Attr(Attr { ino, .. }) = answer else { panic!("{answer:?}") };
        ino
    }

    /// One with a file that has a second name.
    fn with_second_name() -> (Self, Ino) {
        let mut bench = Self::with_sub();
        let ino = bench.make(SUB, FROM, FILE_MODE);
        bench.send_async();
        bench.perform_async(link(ino, TO));
        (bench, ino)
    }

    /// The attributes that are known without the server.
    fn attr_of(&mut self, op: Op<'_>) -> Option<Attr> {
        let known = self.known(op);
        let LocalAnswer::Local(Ok(Answer::Attr(attr))) = known else { return None };
        Some(attr)
    }

    fn is_done_here(&mut self, op: Op<'_>) -> bool {
        matches!(self.known(op), LocalAnswer::Local(Ok(Answer::Done)))
    }
}

#[test]
fn a_link_whose_other_name_is_removed_is_sent_as_a_rename() {
    let mut bench = Bench::with_sub();
    let (ino, dir) = (bench.make(SUB, FROM, FILE_MODE), bench.make(SUB, b"dir", DIR_MODE));
    bench.send_async();
    bench.perform_async(link(ino, TO));
    assert!(bench.session.is_async() && bench.session.async_bytes() > 0, "it will be sent");
    for op in [lookup(FROM), lookup(TO), Op::Read(ReadOp::GetAttr { ino })] {
        let attr = bench.attr_of(op).unwrap();
        assert_eq!((attr.ino, attr.nlink, attr.ctime), (ino, 2, Timestamp(7)), "{op:?}");
    }
    // Other names are what they were, and changes in other directories do not matter.
    assert_eq!(bench.attr_of(lookup(b"dir")).map(|attr| attr.ino), Some(dir));
    bench.make(dir, b"other", FILE_MODE);
    assert!(bench.is_done_here(unlink(FROM)));
    assert_eq!(bench.attr_of(lookup(TO)).map(|attr| (attr.ino, attr.nlink)), Some((ino, 1)));
    assert!(bench.attr_of(lookup(FROM)).is_none());
    let sent = bench.send_async();
    assert_eq!(kinds(&sent), [("rename", true), ("create", true), ("settle", false)]);
    let flags = RenameFlags { no_replace: true, ..RenameFlags::default() };
    assert!(
        matches!(sent[0].op, Op::Change(ChangeOp::Rename { flags: sent, .. }) if sent == flags)
    );
    // The file is as any other with one name.
    bench.perform_async(unlink(TO));
    bench.session.validate();
}

#[test]
fn a_link_stays_one_if_something_depends_on_it() {
    let change = AttrChange { mode: Some(0o444), ..AttrChange::default() };
    let followers = [
        create(SUB, b"other", FILE_MODE),
        create(SUB, b"dir", DIR_MODE),
        Op::Read(ReadOp::List { dir: SUB, after: None, limit: 9, attrs: false }),
        Op::Session(SessionOp::Open { ino: SUB, write: false }),
        unlink(TO),
        link(SUB, b"third"),
    ];
    for follower in followers {
        let (mut bench, ino) = Bench::with_second_name();
        bench.known(follower);
        bench.session.validate();
        let changed = bench.known(Op::Change(ChangeOp::SetAttr { ino, change }));
        assert!(matches!(changed, LocalAnswer::Nothing), "{follower:?}: the server has it now");
        assert!(matches!(bench.known(unlink(FROM)), LocalAnswer::Nothing), "{follower:?}");
        assert_eq!(kinds(&bench.send_async())[0], ("link", true), "{follower:?}");
    }
}

#[test]
fn a_held_link_shows_in_its_directory() {
    let (mut bench, ino) = Bench::with_second_name();
    let of_dir = Op::Read(ReadOp::GetAttr { ino: SUB });
    let held = bench.attr_of(of_dir).unwrap();
    assert_eq!((held.size, held.mtime), (2, Timestamp(7)));
    bench.known(Op::Read(ReadOp::GetXattr { ino, name: b"user.a" }));
    assert!(matches!(bench.known(unlink(FROM)), LocalAnswer::Nothing), "the view has the link");
    assert_eq!(bench.attr_of(of_dir), Some(held));
}

#[test]
fn a_link_goes_out_with_the_changes_before_it() {
    let (mut bench, _) = Bench::with_second_name();
    assert_eq!(kinds(&bench.send_async()), [("link", true), ("settle", false)]);
    assert!(matches!(bench.known(unlink(FROM)), LocalAnswer::Nothing), "it is the server's");

    let (mut bench, _) = Bench::with_second_name();
    let revoke = Message::Revoke { dir: SUB };
    bench.session.handle(SessionInput::Message(revoke), &mut bench.effects);
    let sent = bench.requests();
    assert_eq!(kinds(&sent), [("link", true), ("settle", false), ("return", false)]);
    bench.session.validate();

    let (mut bench, _) = Bench::with_second_name();
    let sent = bench.welcome(1);
    assert!(sent.iter().any(|line| line.contains("Link")), "{sent:?}");
    bench.session.validate();
}

#[test]
fn another_user_removes_a_name_and_renames_nothing() {
    let (mut bench, _) = Bench::with_second_name();
    let other = Cred { uid: 1000, gid: 1000, ..Cred::root() };
    let removed = bench.session.known(&other, &unlink(FROM), Timestamp(8), &mut bench.effects);
    assert!(matches!(removed, LocalAnswer::Nothing), "{removed:?}");
    assert_eq!(kinds(&bench.send_async())[0], ("link", true));
}

#[test]
fn a_second_link_ends_the_hold_of_the_first() {
    let (mut bench, ino) = Bench::with_second_name();
    assert!(matches!(bench.known(link(ino, b"third")), LocalAnswer::Nothing), "it has two names");
    let next = bench.make(SUB, b"next", FILE_MODE);
    bench.perform_async(link(next, b"newest"));
    assert!(bench.is_done_here(unlink(b"next")));
    let sent = bench.send_async();
    let sent: Vec<_> = kinds(&sent).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(sent, ["link", "create", "rename", "settle"]);
    bench.session.validate();
}

#[test]
fn a_link_is_given_one_pause() {
    let (mut bench, _) = Bench::with_second_name();
    for sent in [0, 2] {
        bench.session.send_async_after_pause(Moment(1), &mut bench.effects);
        assert_eq!(bench.requests().len(), sent);
    }
}
