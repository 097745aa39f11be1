use types::Timestamp;

use super::*;

const DIR: Ino = Ino(7);

#[test]
fn changes_of_one_moment_are_tried_in_the_order_of_their_execution() {
    let mut recorder = Recorder::default();
    recorder.watch(vec![DIR]);
    let (now, keys) = (500, [1, 2, 3].map(|client| (ClientId(client), Tid(9))));
    for (key, name) in keys.iter().zip(["a", "b", "c"]) {
        recorder.asked(*key, &CallKind::Unlink { parent: DIR, name: name.to_owned() }, 100);
    }
    let executed = [keys[2], keys[0], keys[1]];
    for (seq, key) in (1..).zip(executed) {
        let applied = Applied { seq: Seq(seq), ino: Ino(0), time: Timestamp(EPOCH + 500) };
        recorder.applied(key, &applied, now);
    }
    recorder.recovered(Seq(3));
    recorder.crashed(now);
    for (client, tid) in keys {
        let (time, result) = (Timestamp(EPOCH + 500), Ok(Answer::Done));
        let reply = Reply { tid, seq: Seq(1), time, safe: Seq(0), grants: None, result };
        recorder.note_reply(client, 2, &reply, 900 + client.0);
    }
    let history = recorder.end(&Tree::new(), &[], 1000).expect("calls");
    let hint_of = |(client, _): Key| {
        let call = &history.calls[client.0 as usize - 1];
        assert_eq!(call.guesses.iter().map(|guess| guess.hint).collect::<Vec<_>>(), [call.hint]);
        call.hint
    };
    let mut hints: Vec<u64> = executed.into_iter().map(hint_of).collect();
    hints.push(history.crashes[0].hint);
    assert!(hints.is_sorted_by(|one, next| one < next), "{hints:?}");
}
