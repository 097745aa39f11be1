//! A host that reports files that do not exist as open, without end, keeps no subtree from moving.

use super::*;

const CONN: ConnId = ConnId(FIRST_CONN);
/// Longer than any of these moves takes, in milliseconds.
const WITHIN: u64 = 2_000;

/// A mount of another host, which says what it likes.
struct Liar {
    tree: Tree,
    number: u64,
}

impl Liar {
    fn connected() -> Self {
        let mut tree = Tree::on(Cluster::with(Settings::default(), 2));
        let hello = Hello { client: ClientId(9), epoch: Epoch(0), unsafe_requests: 0 };
        tree.input(0, MdsInput::Opened(CONN, Peer::host_without_root()));
        tree.input(0, MdsInput::Message(CONN, Message::Hello(hello)));
        tree.settle();
        Self { tree, number: 0 }
    }

    fn report(&mut self) {
        self.number += 1;
        let ino = Ino(Ino::space_of(Rank(0)).start + 1_000_000 + self.number);
        let access = Access { read: true, write: true, shared: false };
        let op = Op::Session(SessionOp::Reopen { ino, access });
        let request = Request::new(Tid(self.number), Tid(self.number - 1), user(7), op);
        let request = Request { replay: Some(Replay::default()), ..request };
        self.tree.input(0, MdsInput::Message(CONN, Message::Request(request)));
    }

    /// A millisecond, and a report if it is time for one. The store takes a millisecond for each
    /// operation, so that there is time between them.
    fn pass(&mut self, every: u64) {
        if self.tree.now.is_multiple_of(every) {
            self.report();
        }
        self.tree.let_those_go();
        self.tree.pass(1);
    }
}

/// Moves a subtree beside a report every so many milliseconds. Each report of a file that is not
/// here has the list of subtrees read, so that a move waits for the end of that.
fn moved_beside(every: u64) -> Result<Answer, Errno> {
    let mut liar = Liar::connected();
    liar.tree.holds = |_| true;
    (0..2 * every).for_each(|_| liar.pass(every));
    let op = Op::Rank(RankOp::Export { dir: liar.tree.full, rank: Rank(1) });
    let tid = liar.tree.ask(1, op);
    for _ in 0..WITHIN {
        liar.pass(every);
        if liar.tree.is_answered(1, tid) {
            return liar.tree.reply(1, tid).result.map_err(|failure| failure.errno);
        }
    }
    panic!("the subtree did not move in {WITHIN} ms");
}

#[test]
fn reports_of_files_that_do_not_exist_keep_no_subtree_from_moving() {
    for every in 1..10 {
        assert_eq!(moved_beside(every), Ok(Answer::Done), "a report every {every} ms");
    }
}
