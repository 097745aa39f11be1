//! Open files and locks of a client follow a file to another rank (F-13).
//!
//! The giving rank reports the move, or the client finds the receiving rank by a redirect. The
//! session with the receiving rank then gets the state of the file from the client's other
//! sessions, and registers it, as it would at a restarted server. Nothing may be between two
//! sessions while one of these functions runs, or when the client asks for a holder.

use types::{Ino, Rank};

use crate::FileState;

/// The sessions of a client, one for each rank that it asks.
pub trait Sessions {
    /// The ranks of the sessions.
    fn ranks(&self) -> Vec<Rank>;

    /// As [`Session::has`](crate::Session::has).
    fn has(&mut self, rank: Rank, ino: Ino) -> bool;

    /// As [`Session::awaits_report`](crate::Session::awaits_report).
    fn awaits_report(&mut self, rank: Rank, ino: Ino) -> bool;

    /// As [`Session::take_out`](crate::Session::take_out).
    fn take_out(&mut self, rank: Rank, ino: Ino) -> FileState;

    /// As [`Session::put_in`](crate::Session::put_in).
    fn put_in(&mut self, rank: Rank, ino: Ino, state: Option<FileState>);
}

/// The ranks besides one in whose sessions a file is open or locked.
fn holders(sessions: &mut impl Sessions, ino: Ino, but: Rank) -> Vec<Rank> {
    let mut ranks = sessions.ranks();
    ranks.retain(|rank| *rank != but && sessions.has(*rank, ino));
    ranks
}

/// Whether a file that this rank serves is open or locked in the session with another.
pub fn is_elsewhere(sessions: &mut impl Sessions, ino: Ino, place: Rank) -> bool {
    !holders(sessions, ino, place).is_empty()
}

/// The rank in whose session a file is open or locked; if there is none, `place`, which serves it.
/// The other sessions are asked only if the one with `place` does not have the file: the way to
/// another server may be in use for a while.
pub fn holder(sessions: &mut impl Sessions, ino: Ino, place: Rank) -> Rank {
    if sessions.has(place, ino) {
        return place;
    }
    holders(sessions, ino, place).first().copied().unwrap_or(place)
}

/// A rank whose session has one of these files, and that will answer a report about this file: the
/// caller waits for the answer before [`reclaim`] or [`follow`] takes the state of the file out.
pub fn awaits_report(sessions: &mut impl Sessions, files: &[Ino], to: Rank) -> Option<(Rank, Ino)> {
    files.iter().find_map(|ino| {
        let holders = holders(sessions, *ino, to);
        let rank = holders.into_iter().find(|rank| sessions.awaits_report(*rank, *ino))?;
        Some((rank, *ino))
    })
}

/// The session with a rank gets the state of a file from the others. Returns whether there was any.
pub fn reclaim(sessions: &mut impl Sessions, ino: Ino, to: Rank) -> bool {
    let mut is_any = false;
    for from in holders(sessions, ino, to) {
        let state = sessions.take_out(from, ino);
        is_any |= !state.is_empty();
        sessions.put_in(to, ino, Some(state));
    }
    is_any
}

/// A server said that files moved to a rank: the session with that rank gets the state of each, or
/// reports that the file is not open.
pub fn follow(sessions: &mut impl Sessions, files: &[Ino], to: Rank) {
    for ino in files {
        if is_elsewhere(sessions, *ino, to) {
            reclaim(sessions, *ino, to);
        } else {
            sessions.put_in(to, *ino, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use types::{ClientId, Cred, Epoch, Errno, Tid};
    use wire::{Answer, Message, Op, Opened, Reply, SessionOp, Welcome};

    use super::*;
    use crate::{Session, SessionEffects, SessionInput};

    const FILE: Ino = Ino(77);
    const OTHER: Ino = Ino(78);

    /// Two sessions, and how often each was asked for a file.
    struct Pair([(Session, SessionEffects); 2], [u32; 2]);

    impl Pair {
        fn connected() -> Self {
            let session = || (Session::new(ClientId(1), Tid(1)), SessionEffects::default());
            let mut pair = Self([(); 2].map(|()| session()), [0; 2]);
            (0..2).for_each(|at| pair.connect(at));
            pair
        }

        fn connect(&mut self, at: usize) {
            let (session, effects) = &mut self.0[at];
            session.handle(SessionInput::Connected, effects);
            let welcome = Message::Welcome(Welcome { epoch: Epoch(1), ..Welcome::default() });
            session.handle(SessionInput::Message(welcome), effects);
        }

        fn open(&mut self, at: usize) {
            let (session, effects) = &mut self.0[at];
            let op = Op::Session(SessionOp::Open { ino: FILE, write: true });
            let tid = session.call(&Cred::root(), op, effects);
            let result = Ok(Answer::Opened(Opened::default()));
            let reply = Reply { tid, result, ..Reply::refusal(Errno::Io.into()) };
            session.handle(SessionInput::Message(Message::Reply(reply)), effects);
        }

        fn sent(&mut self, at: usize) -> usize {
            std::mem::take(&mut self.0[at].1.frames).len()
        }
    }

    impl Sessions for Pair {
        fn ranks(&self) -> Vec<Rank> {
            vec![Rank(0), Rank(1)]
        }

        fn has(&mut self, rank: Rank, ino: Ino) -> bool {
            self.1[usize::from(rank.0)] += 1;
            self.0[usize::from(rank.0)].0.has(ino)
        }

        fn awaits_report(&mut self, rank: Rank, ino: Ino) -> bool {
            self.0[usize::from(rank.0)].0.awaits_report(ino)
        }

        fn take_out(&mut self, rank: Rank, ino: Ino) -> FileState {
            let (session, effects) = &mut self.0[usize::from(rank.0)];
            session.take_out(ino, effects)
        }

        fn put_in(&mut self, rank: Rank, ino: Ino, state: Option<FileState>) {
            let (session, effects) = &mut self.0[usize::from(rank.0)];
            session.put_in(ino, state, effects);
        }
    }

    #[test]
    fn an_open_file_follows_a_move_and_a_closed_one_is_reported() {
        let mut pair = Pair::connected();
        pair.open(0);
        assert!(is_elsewhere(&mut pair, FILE, Rank(1)) && !is_elsewhere(&mut pair, FILE, Rank(0)));
        assert_eq!(holder(&mut pair, FILE, Rank(1)), Rank(0));
        pair.sent(1);
        follow(&mut pair, &[FILE], Rank(1));
        assert_eq!(holder(&mut pair, FILE, Rank(1)), Rank(1));
        assert!(pair.sent(1) > 0 && !is_elsewhere(&mut pair, FILE, Rank(1)));
        follow(&mut pair, &[OTHER], Rank(1));
        assert!(pair.sent(1) > 0, "the rank waits for the report of every file");
        assert!(!reclaim(&mut pair, FILE, Rank(1)) && pair.sent(1) == 0, "it is there");
        assert!(reclaim(&mut pair, FILE, Rank(0)), "it came back");
    }

    #[test]
    fn a_file_whose_report_has_no_answer_is_waited_for() {
        let mut pair = Pair::connected();
        pair.open(0);
        assert_eq!(awaits_report(&mut pair, &[OTHER, FILE], Rank(1)), None);
        let (session, effects) = &mut pair.0[0];
        session.handle(SessionInput::Disconnected, effects);
        pair.connect(0);
        assert_eq!(awaits_report(&mut pair, &[OTHER, FILE], Rank(1)), Some((Rank(0), FILE)));
        assert_eq!(awaits_report(&mut pair, &[FILE], Rank(0)), None, "the file is there");
    }

    #[test]
    fn the_session_of_the_serving_rank_is_asked_alone_if_it_has_the_file() {
        let mut pair = Pair::connected();
        pair.open(1);
        pair.1 = [0; 2];
        assert_eq!(holder(&mut pair, FILE, Rank(1)), Rank(1));
        assert_eq!(pair.1, [0, 1]);
    }
}
