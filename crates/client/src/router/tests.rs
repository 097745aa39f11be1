//! Routes against servers that are functions: each test says which effects a route asks for, in
//! their order.

#![allow(clippy::wildcard_enum_match_arm, reason = "a server of a test answers few requests")]

use types::{Attr, Errno, Error, FileType, Frag, Moment, RenameFlags, Result};
use wire::{ChangeOp, JobOp, NewInode, Op, RankOp, ReadOp, Redirect, SessionOp};

use super::*;

/// An inode that rank 0 allocated, and one of rank 1.
const HERE: Ino = Ino((1 << 40) + 5);
const THERE: Ino = Ino((2 << 40) + 7);

/// The world of a route: its router, the ranks of the cluster, and everything that happened.
struct World {
    router: Router,
    ranks: Vec<Rank>,
    now: Moment,
    log: Vec<String>,
    /// How often the session with another rank has the open state of the file.
    held: u32,
}

impl World {
    fn new(ranks: u16) -> Self {
        let ranks = (0..ranks).map(Rank).collect();
        Self { router: Router::default(), ranks, now: Moment(1), log: Vec::new(), held: 0 }
    }

    /// Carries a route out, with a function as the servers.
    fn drive(
        &mut self,
        mut route: Route,
        given: Op<'_>,
        mut serve: impl FnMut(Rank, &Op<'_>) -> Result<Answer>,
    ) -> Result<Answer> {
        let mut input = RouteInput::Start;
        for _ in 0..100_000 {
            input = match route.handle(&mut self.router, self.now, &given, input) {
                RouteEffect::Done(result) => {
                    self.router.validate();
                    return result;
                }
                RouteEffect::Send { rank, op, own, .. } => {
                    let own = if own { " (own)" } else { "" };
                    self.log.push(format!("{} {}{own}", rank.0, shown(&op)));
                    RouteInput::Answer(serve(rank, &op))
                }
                RouteEffect::Ranks => {
                    self.log.push("ranks".into());
                    RouteInput::Ranks(Ok(self.ranks.clone()))
                }
                RouteEffect::Wait(span) => {
                    self.now = self.now + span;
                    self.log.push("wait".into());
                    RouteInput::Done
                }
                RouteEffect::Reclaim { rank, .. } => {
                    self.log.push(format!("reclaim {}", rank.0));
                    let is_any = self.held > 0;
                    self.held = self.held.saturating_sub(1);
                    RouteInput::Reclaimed(is_any)
                }
                RouteEffect::Close(ranks) => {
                    self.log.push(format!("close {ranks:?}"));
                    RouteInput::Done
                }
            };
        }
        panic!("the route never ends: {:?}", &self.log[..20])
    }

    fn log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }
}

fn shown(op: &Op<'_>) -> String {
    let ino = named(op).map_or_else(String::new, |ino| format!(" {}", ino.0 & 0xffff));
    format!("{}{ino}", op.name())
}

fn attr(ino: Ino) -> Answer {
    Answer::Attr(Attr { ino, nlink: 1, mode: FileType::Regular.mode_bits(), ..Attr::default() })
}

fn dir_attr(ino: Ino) -> Attr {
    Attr { ino, nlink: 2, mode: FileType::Directory.mode_bits(), ..Attr::default() }
}

fn moved(rank: u16) -> Result<Answer> {
    Ok(Answer::Redirect(Box::new(Redirect { rank: Rank(rank), ..Redirect::default() })))
}

fn stale<T>() -> Result<T> {
    Err(Error::of(Errno::Stale, ""))
}

fn fails<T>(errno: Errno) -> Result<T> {
    Err(Error::of(errno, ""))
}

fn errno(result: Result<Answer>) -> Errno {
    result.expect_err("it fails").errno
}

#[test]
fn the_first_rank_answers_without_any_other_effect() {
    let mut world = World::new(1);
    let op = Op::Read(ReadOp::Lookup { parent: HERE, name: b"a" });
    assert!(is_direct(&op));
    let found = world.drive(Route::request(), op, |_, _| Ok(attr(HERE)));
    assert_eq!(found, Ok(attr(HERE)));
    assert_eq!(world.log(), ["0 lookup 5"]);
    assert!(!world.router.is_needed());
}

#[test]
fn a_single_rank_that_does_not_know_an_inode_has_the_last_word() {
    let mut world = World::new(1);
    let result =
        world.drive(Route::request(), Op::Read(ReadOp::GetAttr { ino: HERE }), |_, _| stale());
    assert_eq!(errno(result), Errno::Stale);
    assert_eq!(world.log(), ["0 getattr 5"]);
}

#[test]
fn the_open_state_of_a_file_goes_to_the_rank_that_changes_the_file_first() {
    let mut world = World::new(2);
    let op = Op::Change(ChangeOp::Grow { ino: HERE, size: 9 });
    let serve = |rank: Rank, _: &Op<'_>| if rank == Rank(0) { moved(1) } else { Ok(attr(HERE)) };
    assert_eq!(world.drive(Route::request(), op, serve), Ok(attr(HERE)));
    assert_eq!(world.log(), ["0 grow 5", "reclaim 1", "ranks", "1 grow 5"]);
}

/// The file went away and came back while the answer was on its way: its lock is with the rank that
/// has redirected the request.
#[test]
fn a_redirect_from_before_a_report_takes_no_open_state_away() {
    let mut router = Router::default();
    let op = Op::Session(SessionOp::Open { ino: HERE, write: false });
    let mut route = Route::request();
    let next = |route: &mut Route, router: &mut Router, input| match route.handle(
        router,
        Moment(1),
        &op,
        input,
    ) {
        RouteEffect::Send { rank, .. } => format!("send {}", rank.0),
        RouteEffect::Reclaim { rank, .. } => format!("reclaim {}", rank.0),
        RouteEffect::Ranks => "ranks".to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(next(&mut route, &mut router, RouteInput::Start), "send 0");
    router.note_moved(&[HERE], Rank(0));
    assert_eq!(next(&mut route, &mut router, RouteInput::Answer(moved(1))), "send 0");
    // The next answer is newer than the report.
    assert_eq!(next(&mut route, &mut router, RouteInput::Answer(moved(1))), "reclaim 1");
}

#[test]
fn a_redirect_is_followed_and_remembered() {
    let mut world = World::new(2);
    let op = Op::Read(ReadOp::GetAttr { ino: HERE });
    let serve = |rank: Rank, _: &Op<'_>| if rank == Rank(0) { moved(1) } else { Ok(attr(HERE)) };
    assert_eq!(world.drive(Route::request(), op, serve), Ok(attr(HERE)));
    assert_eq!(world.log(), ["0 getattr 5", "ranks", "1 getattr 5"]);
    assert_eq!(world.router.place(HERE), Rank(1));
    assert_eq!(world.drive(Route::request(), op, serve), Ok(attr(HERE)));
    assert_eq!(world.log(), ["1 getattr 5"]);
    assert_eq!(world.router.redirected(), 1);
}

#[test]
fn an_inode_of_another_rank_is_asked_for_there_at_once() {
    let mut world = World::new(2);
    assert!(!is_direct(&Op::Read(ReadOp::GetAttr { ino: THERE })));
    let result = world
        .drive(Route::request(), Op::Read(ReadOp::GetAttr { ino: THERE }), |_, _| Ok(attr(THERE)));
    assert_eq!(result, Ok(attr(THERE)));
    assert_eq!(world.log(), ["ranks", "1 getattr 7"]);
}

#[test]
fn the_end_of_a_lock_is_repeated_if_the_session_with_another_rank_had_the_lock() {
    let lock = types::Lock {
        kind: types::LockKind::Posix,
        mode: types::LockMode::Unlock,
        owner: 1,
        pid: 1,
        start: 0,
        end: 1,
    };
    let op = Op::Session(SessionOp::Lock { ino: HERE, lock, wait: false });
    let mut world = World::new(2);
    let result = world.drive(Route::request(), op, |_, _| Ok(Answer::Done));
    assert_eq!((result, world.log()), (Ok(Answer::Done), vec!["0 lock 5".into()]), "one rank");
    world.router.link(Rank(1));
    for (held, expected) in [
        (0, vec!["0 lock 5", "reclaim 0"]),
        (1, vec!["0 lock 5", "reclaim 0", "0 lock 5", "reclaim 0"]),
    ] {
        world.held = held;
        let result = world.drive(Route::request(), op, |_, _| Ok(Answer::Done));
        assert_eq!(
            (result, world.log()),
            (Ok(Answer::Done), expected.into_iter().map(Into::into).collect())
        );
    }
}

#[test]
fn the_inode_of_a_removed_rank_is_found_on_another_one() {
    let mut world = World::new(1);
    let result = world
        .drive(Route::request(), Op::Read(ReadOp::GetAttr { ino: THERE }), |_, _| Ok(attr(THERE)));
    assert_eq!(result, Ok(attr(THERE)));
    assert_eq!(world.log(), ["ranks", "ranks", "0 getattr 7", "reclaim 0"]);
    assert_eq!(world.router.place(THERE), Rank(0));
}

#[test]
fn a_rank_may_take_a_moment_to_notice_that_it_serves_a_subtree() {
    let mut world = World::new(2);
    let mut asked = 0;
    let serve = |rank: Rank, _: &Op<'_>| {
        asked += 1;
        match rank {
            Rank(0) => moved(1),
            _ if asked < 4 => stale(),
            _ => Ok(attr(HERE)),
        }
    };
    let result = world.drive(Route::request(), Op::Read(ReadOp::GetAttr { ino: HERE }), serve);
    assert_eq!(result, Ok(attr(HERE)));
    let log = world.log();
    assert_eq!(log[2..], ["1 getattr 5", "wait", "1 getattr 5", "wait", "1 getattr 5"]);
}

#[test]
fn a_rank_that_serves_a_subtree_but_has_not_loaded_the_inode_leaves_a_walk_to_the_caller() {
    let mut world = World::new(2);
    let start = world.now;
    let serve = |rank: Rank, _: &Op<'_>| if rank == Rank(0) { moved(1) } else { stale() };
    let result = world.drive(Route::request(), Op::Read(ReadOp::GetAttr { ino: HERE }), serve);
    assert_eq!(errno(result), Errno::Stale);
    assert!(world.now.since(start) < Span::from_millis(400), "the walk must not come late");
}

#[test]
fn ranks_that_refer_to_each_other_for_too_long_end_a_request() {
    let mut world = World::new(2);
    let start = world.now;
    let serve = |rank: Rank, _: &Op<'_>| moved(1 - rank.0);
    let result = world.drive(Route::request(), Op::Read(ReadOp::GetAttr { ino: HERE }), serve);
    assert_eq!(errno(result), Errno::Io);
    assert!(world.now.since(start) >= Span::from_millis(10_000));
}

#[test]
fn an_inode_that_no_rank_knows_is_asked_for_at_each_rank_once() {
    let mut world = World::new(3);
    world.router.link(Rank(2));
    let result =
        world.drive(Route::request(), Op::Read(ReadOp::GetAttr { ino: HERE }), |_, _| stale());
    assert_eq!(errno(result), Errno::Stale);
    let log = world.log();
    let sent: Vec<_> = log.iter().filter(|line| line.contains("getattr")).collect();
    assert_eq!(sent, ["0 getattr 5", "1 getattr 5", "2 getattr 5"]);
}

#[test]
fn a_walk_continues_below_the_root_of_a_subtree_of_another_rank() {
    let mut world = World::new(2);
    let serve = |rank: Rank, op: &Op<'_>| match (rank, op) {
        (Rank(0), Op::Read(ReadOp::Walk { .. })) => {
            let (root, parent, rest) = (THERE, Ino::ROOT, b"b/c".to_vec());
            let elsewhere = Redirect { rank: Rank(1), root, parent, rest };
            Ok(Answer::Redirect(Box::new(elsewhere)))
        }
        (Rank(1), Op::Read(ReadOp::Walk { base: THERE, path: b"b/c" })) => {
            Ok(Answer::Walked { parent: THERE, attr: None })
        }
        other => panic!("{other:?}"),
    };
    let op = Op::Read(ReadOp::Walk { base: Ino::ROOT, path: b"a/b/c" });
    let result = world.drive(Route::request(), op, serve);
    assert_eq!(result, Ok(Answer::Walked { parent: THERE, attr: None }));
}

#[test]
fn a_name_that_is_the_root_of_a_subtree_is_asked_for_at_its_rank() {
    let mut world = World::new(2);
    let serve = |rank: Rank, op: &Op<'_>| match (rank, op) {
        (Rank(0), Op::Read(ReadOp::Lookup { .. })) => {
            let (root, parent) = (THERE, Ino::ROOT);
            let elsewhere = Redirect { rank: Rank(1), root, parent, rest: Vec::new() };
            Ok(Answer::Redirect(Box::new(elsewhere)))
        }
        (Rank(1), Op::Read(ReadOp::GetAttr { ino: THERE })) => Ok(attr(THERE)),
        other => panic!("{other:?}"),
    };
    let op = Op::Read(ReadOp::Lookup { parent: Ino::ROOT, name: b"a" });
    assert_eq!(world.drive(Route::request(), op, serve), Ok(attr(THERE)));
}

#[test]
fn a_sync_goes_to_every_rank_and_forgets_a_removed_one() {
    let mut world = World::new(2);
    world.router.link(Rank(1));
    world.router.link(Rank(2));
    let serve = |rank: Rank, _: &Op<'_>| match rank {
        Rank(2) => stale(),
        _ => Ok(Answer::Safe(types::Seq(1))),
    };
    assert!(world.drive(Route::request(), Op::Session(SessionOp::Sync), serve).is_ok());
    assert_eq!(world.log(), ["1 sync", "2 sync", "ranks", "close [mds.2]", "0 sync"]);
}

#[test]
fn a_move_takes_nested_subtrees_along_first() {
    let mut world = World::new(2);
    world.router.link(Rank(1));
    let mut inner_moved = false;
    let serve = |_: Rank, op: &Op<'_>| match op {
        Op::Rank(RankOp::Export { dir: HERE, .. }) if !inner_moved => {
            let elsewhere = Redirect { rank: Rank(1), root: THERE, ..Redirect::default() };
            Ok(Answer::Redirect(Box::new(elsewhere)))
        }
        Op::Rank(RankOp::Export { dir: THERE, rank: Rank(0) }) => {
            inner_moved = true;
            Ok(Answer::Done)
        }
        Op::Rank(RankOp::Export { dir: HERE, rank: Rank(1) }) => Ok(Answer::Done),
        other => panic!("{other:?}"),
    };
    let result = world.drive(Route::pin(HERE, Rank(1)), Op::Session(SessionOp::AwaitAsync), serve);
    assert_eq!(result, Ok(Answer::Done));
    assert_eq!(world.log(), ["0 export 5", "1 export 7", "0 export 5"]);
}

#[test]
fn a_nested_subtree_moves_to_the_rank_that_serves_the_directory_now() {
    let mut world = World::new(2);
    world.router.link(Rank(1));
    world.router.set_place(HERE, Rank(1));
    let mut inner_moved = false;
    let serve = |rank: Rank, op: &Op<'_>| match (rank, op) {
        (Rank(1), Op::Rank(RankOp::Export { dir: HERE, .. })) => stale(),
        (Rank(0), Op::Rank(RankOp::Export { dir: HERE, .. })) if inner_moved => Ok(Answer::Done),
        (Rank(0), Op::Rank(RankOp::Export { dir: HERE, .. })) => {
            let elsewhere = Redirect { rank: Rank(1), root: THERE, ..Redirect::default() };
            Ok(Answer::Redirect(Box::new(elsewhere)))
        }
        (Rank(1), Op::Rank(RankOp::Export { dir: THERE, rank })) => {
            inner_moved = *rank == Rank(0);
            Ok(Answer::Done)
        }
        other => panic!("{other:?}"),
    };
    let result = world.drive(Route::pin(HERE, Rank(1)), Op::Session(SessionOp::AwaitAsync), serve);
    assert_eq!(result, Ok(Answer::Done));
}

#[test]
fn a_move_waits_for_a_server_that_does_not_know_yet_that_the_rank_is_active() {
    let pin = || (Route::pin(HERE, Rank(1)), Op::Session(SessionOp::AwaitAsync));
    let mut world = World::new(2);
    let mut refusals = 3;
    let ((route, op), serve) = (pin(), |_: Rank, _: &Op<'_>| {
        refusals -= 1;
        if refusals < 0 { Ok(Answer::Done) } else { fails(Errno::Again) }
    });
    assert_eq!(world.drive(route, op, serve), Ok(Answer::Done));
    assert_eq!(world.log().iter().filter(|line| *line == "wait").count(), 3);
    // A rank without a server is told, soon.
    let (start, (route, op)) = (world.now, pin());
    let never = |_: Rank, _: &Op<'_>| fails(Errno::Again);
    assert_eq!(errno(world.drive(route, op, never)), Errno::Again);
    let waited = world.now.since(start);
    assert!((Span::from_millis(1_000)..Span::from_millis(1_100)).contains(&waited), "{waited:?}");
}

fn fragments_of(dir: Ino, first: u64) -> Fragments {
    let parts = [0, 1, 2, 3, 4, 5, 6, 7].map(|at| (Ino((1 << 40) + first + at), Rank(0)));
    let attr = Attr { nlink: 0, ..dir_attr(dir) };
    Fragments { attr, frag: Frag::WHOLE, parts, rest: Vec::new() }
}

/// A server of a directory that is split into eight fragments with one name each.
fn split(_: Rank, op: &Op<'_>) -> Result<Answer> {
    let is_part = |ino: Ino| (100..108).contains(&(ino.0 & 0xffff));
    match *op {
        Op::Read(ReadOp::GetAttr { ino }) if is_part(ino) => {
            Ok(Answer::Attr(Attr { size: 1, nlink: 3, ..dir_attr(ino) }))
        }
        Op::Read(ReadOp::List { dir, .. }) if is_part(dir) => {
            let name = format!("n{}", dir.0 & 0xffff).into_bytes();
            Ok(Answer::Entries { entries: vec![(name, dir_attr(dir))], more: false })
        }
        Op::Change(ChangeOp::SetAttr { .. }) => Ok(Answer::Done),
        Op::Change(ChangeOp::Create { parent, .. }) if is_part(parent) => Ok(attr(THERE)),
        _ => Ok(Answer::Fragments(Box::new(fragments_of(HERE, 100)))),
    }
}

#[test]
fn the_attributes_of_a_split_directory_are_the_sum_of_its_fragments() {
    let mut world = World::new(1);
    let result = world.drive(Route::request(), Op::Read(ReadOp::GetAttr { ino: HERE }), split);
    let Ok(Answer::Attr(whole)) = result else { panic!("{result:?}") };
    assert_eq!((whole.ino, whole.size, whole.nlink), (HERE, 8, 10));
    assert_eq!(world.log().len(), 9);
    assert!(world.router.is_needed());
}

#[test]
fn a_listing_of_a_split_directory_has_the_names_of_all_fragments() {
    let mut world = World::new(1);
    let list = Op::Read(ReadOp::List { dir: HERE, after: None, limit: 4096, attrs: true });
    let result = world.drive(Route::request(), list, split);
    let Ok(Answer::Entries { entries, more: false }) = result else { panic!("{result:?}") };
    let names: Vec<_> = entries.iter().map(|(name, _)| name.as_slice()).collect();
    assert_eq!(names.len(), 8);
    assert!(names.contains(&&b"n100"[..]) && names.contains(&&b"n107"[..]));
}

#[test]
fn a_listing_of_a_split_directory_has_as_many_names_as_the_caller_wants() {
    let mut world = World::new(1);
    let list = Op::Read(ReadOp::List { dir: HERE, after: None, limit: 6, attrs: true });
    let result = world.drive(Route::request(), list, split);
    let Ok(Answer::Entries { entries, more: true }) = result else { panic!("{result:?}") };
    assert_eq!(entries.len(), 6);
}

#[test]
fn a_create_goes_to_the_fragment_that_has_its_name() {
    let mut world = World::new(1);
    let op = Op::Change(ChangeOp::Create { parent: HERE, name: b"name", new: NewInode::default() });
    assert_eq!(world.drive(Route::request(), op, split), Ok(attr(THERE)));
    let home = world.router.fragments().home(HERE, b"name");
    assert_eq!(world.log(), ["0 create 5".into(), format!("0 create {}", home.0 & 0xffff)]);
}

#[test]
fn the_times_of_a_split_directory_are_set_on_all_fragments() {
    let mut world = World::new(1);
    world.router.note_fragments(&fragments_of(HERE, 100));
    let change = types::AttrChange { mtime: Some(types::Timestamp(7)), ..Default::default() };
    let op = Op::Change(ChangeOp::SetAttr { ino: HERE, change });
    assert_eq!(world.drive(Route::request(), op, split), Ok(Answer::Done));
    assert_eq!(world.log().len(), 9);
}

#[test]
fn a_fragment_that_was_joined_is_forgotten() {
    let mut world = World::new(1);
    world.router.note_fragments(&fragments_of(HERE, 100));
    let serve = |_: Rank, op: &Op<'_>| match op {
        Op::Read(ReadOp::Lookup { parent: HERE, .. }) => Ok(attr(THERE)),
        _ => stale(),
    };
    let op = Op::Read(ReadOp::Lookup { parent: HERE, name: b"name" });
    assert_eq!(world.drive(Route::request(), op, serve), Ok(attr(THERE)));
    assert!(world.router.fragments().is_empty());
}

#[test]
fn an_empty_split_directory_is_joined_before_it_is_removed() {
    let mut world = World::new(1);
    let mut is_joined = false;
    let serve = |_: Rank, op: &Op<'_>| match *op {
        Op::Rank(RankOp::Join { .. }) => {
            is_joined = true;
            Ok(Answer::Done)
        }
        Op::Change(ChangeOp::Rmdir { .. }) if is_joined => Ok(Answer::Done),
        Op::Read(ReadOp::GetAttr { ino }) if ino != HERE => Ok(Answer::Attr(dir_attr(ino))),
        _ => Ok(Answer::Fragments(Box::new(fragments_of(HERE, 100)))),
    };
    let op = Op::Change(ChangeOp::Rmdir { parent: Ino::ROOT, name: b"dir" });
    assert_eq!(world.drive(Route::request(), op, serve), Ok(Answer::Done));
    let log = world.log();
    assert!(log.contains(&"0 join 5 (own)".into()), "{log:?}");
    assert!(log.contains(&"0 rmdir 1".into()), "in the name of the caller: {log:?}");
}

#[test]
fn a_split_moves_the_fragments_to_the_ranks_in_turn() {
    let mut world = World::new(2);
    world.router.link(Rank(1));
    let mut exported = Vec::new();
    let serve = |_: Rank, op: &Op<'_>| match *op {
        Op::Rank(RankOp::Split { .. }) => Ok(Answer::Done),
        Op::Read(ReadOp::GetAttr { ino: HERE }) => {
            Ok(Answer::Fragments(Box::new(fragments_of(HERE, 100))))
        }
        Op::Read(ReadOp::GetAttr { ino }) => Ok(Answer::Attr(dir_attr(ino))),
        Op::Rank(RankOp::Export { dir, rank }) => {
            exported.push((dir.0 & 0xffff, rank.0));
            Ok(Answer::Done)
        }
        ref other => panic!("{other:?}"),
    };
    let route = Route::split(HERE, vec![Rank(0), Rank(1)]);
    assert_eq!(world.drive(route, Op::Session(SessionOp::AwaitAsync), serve), Ok(Answer::Done));
    assert_eq!(exported, [(101, 1), (103, 1), (105, 1), (107, 1)]);
}

const RENAME: Op<'static> = Op::Change(ChangeOp::Rename {
    parent: HERE,
    name: b"old",
    new_parent: THERE,
    new_name: b"new",
    flags: RenameFlags { no_replace: false, exchange: false },
});

#[test]
fn a_rename_between_ranks_is_one_request_to_the_rank_of_the_old_name() {
    let mut world = World::new(2);
    let serve = |rank: Rank, op: &Op<'_>| match (rank, op) {
        (Rank(0), Op::Change(ChangeOp::Rename { .. })) => Ok(Answer::Done),
        other => panic!("{other:?}"),
    };
    assert_eq!(world.drive(Route::request(), RENAME, serve), Ok(Answer::Done));
    assert_eq!(world.log(), ["0 rename 5"]);
}

#[test]
fn a_rename_into_a_directory_that_was_split_goes_to_its_fragment() {
    let mut world = World::new(2);
    let serve = |_: Rank, op: &Op<'_>| match op {
        Op::Change(ChangeOp::Rename { new_parent: THERE, .. }) => {
            Ok(Answer::Fragments(Box::new(fragments_of(THERE, 100))))
        }
        Op::Change(ChangeOp::Rename { .. }) => Ok(Answer::Done),
        other => panic!("{other:?}"),
    };
    assert_eq!(world.drive(Route::request(), RENAME, serve), Ok(Answer::Done));
}

#[test]
fn a_rename_into_a_directory_that_was_split_in_between_is_sent_again_to_its_fragment() {
    let mut world = World::new(2);
    let serve = |_: Rank, op: &Op<'_>| match op {
        // The rank of the new name has refused: nothing was renamed.
        Op::Change(ChangeOp::Rename { new_parent: THERE, .. }) => fails(Errno::Again),
        Op::Change(ChangeOp::Rename { .. }) => Ok(Answer::Done),
        Op::Read(ReadOp::GetAttr { ino: THERE }) => {
            Ok(Answer::Fragments(Box::new(fragments_of(THERE, 100))))
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(world.drive(Route::request(), RENAME, serve), Ok(Answer::Done));
    assert!(world.log().iter().filter(|line| line.contains("rename")).count() == 2);
}

#[test]
fn a_rename_that_may_be_executed_is_not_recognised_by_its_name() {
    // The server knows the request, and answers its repetition: a name that leads to the inode is
    // no proof, because another client may have made it.
    let mut world = World::new(2);
    let serve = |_: Rank, op: &Op<'_>| match op {
        Op::Change(ChangeOp::Rename { .. }) => fails(Errno::NotFound),
        other => panic!("{other:?}"),
    };
    assert_eq!(errno(world.drive(Route::request(), RENAME, serve)), Errno::NotFound);
}

#[test]
fn a_rename_that_was_not_taken_is_sent_again() {
    let mut world = World::new(2);
    let mut renames = 0;
    let serve = |_: Rank, op: &Op<'_>| match op {
        Op::Change(ChangeOp::Rename { .. }) => {
            renames += 1;
            if renames == 1 { fails(Errno::Again) } else { Ok(Answer::Done) }
        }
        Op::Read(ReadOp::GetAttr { ino }) => Ok(attr(*ino)),
        other => panic!("{other:?}"),
    };
    assert_eq!(world.drive(Route::request(), RENAME, serve), Ok(Answer::Done));
    assert_eq!(renames, 2);
}

#[test]
fn a_rename_that_is_never_taken_ends_in_a_while() {
    let mut world = World::new(2);
    let start = world.now;
    let serve = |_: Rank, op: &Op<'_>| match op {
        Op::Change(ChangeOp::Rename { .. }) => fails(Errno::Again),
        Op::Read(ReadOp::GetAttr { ino }) => Ok(attr(*ino)),
        other => panic!("{other:?}"),
    };
    assert_eq!(errno(world.drive(Route::request(), RENAME, serve)), Errno::Again);
    let took = world.now.since(start);
    assert!((20_000..21_000).contains(&(took.0 / 1_000_000)), "{took:?}");
}

#[test]
fn a_rename_that_the_other_rank_rejects_returns_its_error() {
    let mut world = World::new(2);
    let serve = |_: Rank, op: &Op<'_>| match op {
        Op::Change(ChangeOp::Rename { .. }) => fails(Errno::NotEmpty),
        other => panic!("{other:?}"),
    };
    assert_eq!(errno(world.drive(Route::request(), RENAME, serve)), Errno::NotEmpty);
}

#[test]
fn a_rename_whose_directory_comes_to_the_other_rank_is_redirected_there() {
    let mut world = World::new(2);
    let serve = |rank: Rank, op: &Op<'_>| match (rank, op) {
        (Rank(0), Op::Change(ChangeOp::Rename { .. })) => moved(1),
        (Rank(1), Op::Change(ChangeOp::Rename { .. })) => Ok(Answer::Done),
        other => panic!("{other:?}"),
    };
    assert_eq!(world.drive(Route::request(), RENAME, serve), Ok(Answer::Done));
    assert_eq!(world.router.place(HERE), Rank(1));
}

const LINK: Op<'static> = Op::Change(ChangeOp::Link { ino: THERE, parent: HERE, name: b"more" });

#[test]
fn a_link_for_which_no_directory_moves_fails_with_the_reasons_of_the_servers() {
    let mut world = World::new(2);
    let serve = |_: Rank, op: &Op<'_>| match op {
        Op::Change(ChangeOp::Link { .. }) => {
            Err(Error::new(Errno::CrossDevice, "", "pinned here, and there"))
        }
        other => panic!("{other:?}"),
    };
    let error = world.drive(Route::request(), LINK, serve).expect_err("both stay");
    assert_eq!(error.errno, Errno::CrossDevice);
    assert!(error.cause.contains("pinned here, and there"));
    assert_eq!(world.log(), ["0 link 5"]);
}

#[test]
fn a_removal_is_sent_again_while_its_directory_comes_home() {
    let mut world = World::new(2);
    let mut removals = 0;
    let serve = |_: Rank, op: &Op<'_>| match op {
        Op::Change(ChangeOp::Rmdir { .. }) => {
            removals += 1;
            if removals > 2 { Ok(Answer::Done) } else { fails(Errno::Again) }
        }
        other => panic!("{other:?}"),
    };
    let op = Op::Change(ChangeOp::Rmdir { parent: Ino::ROOT, name: b"dir" });
    assert_eq!(world.drive(Route::request(), op, serve), Ok(Answer::Done));
    assert_eq!(world.log(), ["0 rmdir 1", "wait", "0 rmdir 1", "wait", "0 rmdir 1"]);
}

#[test]
fn a_directory_that_is_at_home_and_busy_stays_busy_at_once() {
    let mut world = World::new(2);
    let start = world.now;
    let serve = |_: Rank, op: &Op<'_>| match op {
        Op::Change(ChangeOp::Rmdir { .. }) => fails(Errno::Busy),
        other => panic!("{other:?}"),
    };
    let op = Op::Change(ChangeOp::Rmdir { parent: Ino::ROOT, name: b"dir" });
    assert_eq!(errno(world.drive(Route::request(), op, serve)), Errno::Busy);
    assert_eq!(world.now, start, "nothing to wait for");
}

#[test]
fn a_journal_in_chunks_follows_redirects() {
    let mut world = World::new(2);
    let flags = wire::MergeFlags::default();
    let unused = wire::UnusedNumbers::default();
    let op = Op::Job(JobOp::Merge { subtree: HERE, bytes: 1, object: b"", flags, unused });
    let mut route = Route::with_chunks();
    let mut input = RouteInput::Start;
    let mut sent = Vec::new();
    loop {
        input = match route.handle(&mut world.router, world.now, &op, input) {
            RouteEffect::Send { rank, chunks, .. } => {
                sent.push((rank.0, chunks));
                RouteInput::Answer(if rank == Rank(0) { moved(1) } else { Ok(Answer::Done) })
            }
            RouteEffect::Ranks => RouteInput::Ranks(Ok(world.ranks.clone())),
            RouteEffect::Done(result) => break assert_eq!(result, Ok(Answer::Done)),
            RouteEffect::Wait(_) | RouteEffect::Reclaim { .. } | RouteEffect::Close(_) => {
                RouteInput::Done
            }
        };
    }
    assert_eq!(sent, [(0, true), (1, true)]);
}
