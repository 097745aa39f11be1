//! Subtrees that move between ranks while clients work and servers are killed.

/// The seeds that are always run; `cargo xtask sim` runs others.
const SEEDS: u64 = 150;

#[test]
fn subtrees_move_between_ranks_and_nothing_is_lost() {
    let (mut moves, mut crashes_moving, mut redirected, mut merges) = (0, 0, 0, 0);
    let (mut balanced, mut faulty_ticks) = (0, 0);
    let (mut splits, mut joins) = (0, 0);
    for seed in 0..SEEDS {
        let report = sim::ranks::run(seed, false, false);
        assert_eq!(report.violation, None, "seed {seed:#x}");
        moves += report.moves;
        splits += report.splits;
        joins += report.joins;
        crashes_moving += report.crashes_moving;
        redirected += report.redirected;
        balanced += report.balanced;
        faulty_ticks += report.faulty_ticks;
        merges += report.merges;
    }
    // What is not tried is not tested.
    assert!(
        moves > SEEDS && crashes_moving > SEEDS / 4 && redirected > SEEDS,
        "{moves} moves, {crashes_moving} deaths on the way, {redirected} redirected"
    );
    assert!(
        balanced > SEEDS && faulty_ticks > SEEDS / 10,
        "{balanced} moves that policies wanted, {faulty_ticks} ticks in which they failed"
    );
    assert!(splits > SEEDS / 4 && joins > SEEDS / 20, "{splits} split, {joins} joined");
    assert!(merges > 10 * SEEDS, "{merges} journals of decoupled subtrees");
}
