mod model;
mod world;

use types::Rank;

use super::state::{
    Fence, ListView, Record, TransferAction, TransferEnd, TransferEvent, TransferId,
    TransferMeeting, TransferMessage, TransferState,
};

const ABSENT: ListView = ListView { record: Record::Absent, fence: Fence(3) };
const COMMITTED: ListView = ListView { record: Record::Committed, fence: Fence(3) };

fn id(number: u64, from: u16) -> TransferId {
    TransferId { number, from: Rank(from) }
}

fn run(first: TransferState, events: &[TransferEvent]) -> (TransferState, Vec<TransferAction>) {
    let step = |(state, _): (TransferState, _), event: &TransferEvent| state.step(*event, Fence(3));
    events.iter().fold((first, Vec::new()), step)
}

#[test]
fn a_giver_commits_when_the_place_is_reserved_and_the_payload_ready() {
    let reserved = TransferEvent::Message(TransferMessage::Reserved(Fence(3)));
    for events in [[reserved, TransferEvent::Ready], [TransferEvent::Ready, reserved]] {
        let (state, actions) = run(TransferState::give().0, &events);
        assert_eq!(state, TransferState::Committing { fence: Fence(3) });
        assert_eq!(actions, [TransferAction::Commit(Fence(3))]);
    }
}

#[test]
fn a_giver_in_doubt_ends_by_the_list_only() {
    let doubt = TransferState::Committing { fence: Fence(3) };
    let refused = TransferEvent::Message(TransferMessage::Refused);
    for event in [TransferEvent::Stay, refused, TransferEvent::Due] {
        assert_eq!(run(doubt, &[event]), (doubt, Vec::new()));
    }
    assert_eq!(run(doubt, &[TransferEvent::Unknown]).1, [TransferAction::ReadList]);
    assert_eq!(run(doubt, &[TransferEvent::List(COMMITTED)]).0, TransferState::Given);
    let again = TransferState::Asking { reserved: Some(Fence(3)), ready: false };
    assert_eq!(run(doubt, &[TransferEvent::List(ABSENT)]).0, again);
}

#[test]
fn a_raised_fence_makes_the_giver_ask_again() {
    let doubt = TransferState::Committing { fence: Fence(2) };
    let (state, actions) = run(doubt, &[TransferEvent::List(ABSENT)]);
    assert_eq!(state, TransferState::Asking { reserved: None, ready: false });
    let ask = TransferAction::Send(TransferMessage::Ask);
    assert_eq!(actions, [ask, TransferAction::Prepare]);
}

#[test]
fn a_taker_with_a_silent_giver_raises_its_fence_before_it_thaws() {
    let (state, actions) = run(TransferState::Reserved, &[TransferEvent::Silent]);
    assert_eq!(
        (state, &actions[..]),
        (TransferState::Withdrawing, &[TransferAction::RaiseFence][..])
    );
    let ended = TransferState::Ended(TransferEnd::Stayed);
    assert_eq!(state.step(TransferEvent::Replaced, Fence(4)), (ended, vec![TransferAction::Thaw]));
    let taking = state.step(TransferEvent::List(COMMITTED), Fence(3));
    assert_eq!(taking, (TransferState::Taking, vec![TransferAction::Take]));
}

#[test]
fn a_taker_without_a_fence_thaws_at_once() {
    let ended = TransferState::Ended(TransferEnd::Stayed);
    let next = TransferState::Reserved.step(TransferEvent::Silent, Fence::NONE);
    assert_eq!(next, (ended, vec![TransferAction::Thaw]));
}

#[test]
fn a_taker_serves_after_its_journal_and_the_list_have_the_payload() {
    let events = [TransferEvent::List(COMMITTED), TransferEvent::Safe, TransferEvent::Replaced];
    let (state, actions) = run(TransferState::Reserved, &events);
    assert_eq!(state, TransferState::Ended(TransferEnd::Moved));
    assert_eq!(actions, [TransferAction::Thaw]);
    assert!(
        events[..2]
            .iter()
            .enumerate()
            .all(|(at, _)| { run(TransferState::Reserved, &events[..=at]).0.is_frozen() })
    );
}

#[test]
fn a_message_that_says_committed_only_makes_the_taker_read_the_list() {
    let committed = TransferEvent::Message(TransferMessage::Committed);
    let next = run(TransferState::Reserved, &[committed]);
    assert_eq!(next, (TransferState::Reserved, vec![TransferAction::ReadList]));
}

#[test]
fn of_two_transfers_that_meet_the_smaller_one_proceeds() {
    let asking = TransferState::give().0;
    let (small, large) = (id(1, 1), id(2, 0));
    let yields = TransferMeeting::of(small, [(large, asking)].into_iter());
    assert_eq!(yields, TransferMeeting::Yield(vec![large]));
    let refuses = TransferMeeting::of(large, [(small, asking)].into_iter());
    assert_eq!(refuses, TransferMeeting::Refuse);
    let doubt = TransferState::Committing { fence: Fence(1) };
    assert_eq!(TransferMeeting::of(small, [(large, doubt)].into_iter()), TransferMeeting::Wait);
    assert_eq!(TransferMeeting::of(small, std::iter::empty()), TransferMeeting::Reserve);
}
