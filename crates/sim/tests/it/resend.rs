//! Requests that clients repeat to a server that took over, and connections that break during that.

#![allow(clippy::unwrap_used, reason = "the harness of tests")]

use metastore::request::StoreOp;
use types::Ino;
use wire::{AdminOp, Answer, ChangeOp, NewInode, Op, ReadOp};

use crate::server::{Answered, World, conn};

fn file() -> NewInode<'static> {
    NewInode { mode: 0o100_644, ..NewInode::default() }
}

fn ask(world: &mut World, client: usize, op: Op<'_>) -> Answered {
    let tid = world.ask(client, op);
    world.until(|world| world.is_answered(client, tid));
    world.clients[client].answers[&tid].clone()
}

/// A name is looked for.
fn is_look_up(op: &StoreOp) -> bool {
    matches!(op, StoreOp::LookUp { names, .. } if !names.is_empty())
}

#[test]
fn a_change_that_arrived_again_is_carried_out_although_its_connection_broke() {
    let mut world = World::new("cache: caps\n", 2);
    // The journal knows every client with a change, and recovery waits for them.
    for client in 0..2 {
        let name = format!("known{client}");
        ask(
            &mut world,
            client,
            Op::Change(ChangeOp::Create { parent: Ino::ROOT, name: name.as_bytes(), new: file() }),
        )
        .unwrap();
    }
    let dir = NewInode { mode: 0o040_777, ..NewInode::default() };
    let made = ask(
        &mut world,
        0,
        Op::Change(ChangeOp::Create { parent: Ino::ROOT, name: b"dir", new: dir }),
    );
    let Ok(Answer::Attr(dir)) = made else { panic!("{made:?}") };
    ask(
        &mut world,
        0,
        Op::Change(ChangeOp::Create { parent: dir.ino, name: b"first", new: file() }),
    )
    .unwrap();
    ask(&mut world, 0, Op::Admin(AdminOp::Checkpoint)).unwrap();
    // Answered, and not in the journal yet.
    let tid =
        world.ask(0, Op::Change(ChangeOp::Create { parent: dir.ino, name: b"name", new: file() }));
    let answer = world.clients[0].answers.get(&tid).cloned();
    let Some(Ok(Answer::Attr(created))) = answer else { panic!("{answer:?}") };
    assert_eq!(world.clients[0].session.unsafe_count(), 1);

    world.holds = Box::new(is_look_up);
    world.crash();
    assert!(world.is_holding(), "what was sent again waits for its name");
    world.handle(mds::MdsInput::Closed(conn(0)));
    world.let_go();

    // The other one sees it, whenever its client comes back.
    let found = ask(&mut world, 1, Op::Read(ReadOp::Walk { base: Ino::ROOT, path: b"dir/name" }));
    match found {
        Ok(Answer::Walked { attr: Some(attr), .. }) => assert_eq!(attr.ino, created.ino),
        other => panic!("it is lost: {other:?}"),
    }
    world.disconnect(0);
    world.connect(0);
    world.until(|world| world.clients[0].session.unsafe_count() == 0);
    assert_eq!(world.clients[0].session.take_lost(), None);
}
