//! Subtrees that move between ranks while clients work and servers are killed.

/// The seeds of every test run; `cargo xtask sim` runs further ones.
const SEEDS: u64 = 150;

/// Seeds with a known fault, each fixed. Directories that were renamed between ranks were lost, put
/// below themselves, or waited for without end. A rename was rejected after a crash because an
/// earlier rename came behind it. A directory was split after a crash before all answered requests
/// had been repeated. A client that waited for a file with several names, while the file moved to
/// another rank, was answered by the old rank; so was a client that waited for a subtree with a
/// subtree of a third rank in it, without end. A subtree moved before all answered requests had
/// been repeated. A rename was rejected because of an earlier place of a directory. A client
/// reported a lock that it was about to end, and that another client had got at another rank; or
/// reported it there when the first rank had refused to end it.
const FOUND: [u64; 23] = [
    0x26d, 0x30d, 0x4d0, 0xa80, 0x11228, 0x11237, 0x11276, 0x11334, 0x114aa, 0x114ce, 0x11895,
    0x88, 0x8e, 0x220, 0x7a1b7, 0xcd19f, 0x82b3, 0x8133, 0x7ff1, 0x29bf2, 0x315a9, 0x43b6258,
    0x50001f1,
];

/// The same, where no directory is renamed between ranks. A directory was lost in a recovery that
/// read stale rows of a removed directory. A client that reported its lock to the new rank of a
/// file found the lock held by a client that had lost it before. A rank redirected requests about
/// a locked file to a rank that did not serve the file. A client followed a redirect that was older
/// than a report of moved files. A client carried a lock to another rank before the first rank had
/// answered the report of the lock.
const FOUND_WITHIN: [u64; 5] = [0x54f9, 0x131336d, 0x3938798, 0x757b, 0x7535];

#[test]
fn subtrees_move_between_ranks_and_nothing_is_lost() {
    let mut all = sim::Tally::default();
    for seed in 0..SEEDS {
        let report = sim::ranks::run(seed, false, true);
        assert_eq!(report.violation, None, "seed {seed:#x}");
        all.add(&report.tally);
    }
    let [moves, crashes_moving, redirected, merges] = [
        "subtrees moved",
        "servers killed with a subtree on its way",
        "requests sent on",
        "journals merged",
    ]
    .map(|what| all.get(what));
    let [balanced, faulty_ticks, splits, joins] = [
        "subtrees moved by a balancer",
        "ticks in which a policy failed",
        "directories split",
        "directories joined",
    ]
    .map(|what| all.get(what));
    let [passed, passed_dirs] =
        ["names of files passed", "names of directories passed"].map(|what| all.get(what));
    let [linked, linked_moves, colocated, apart] = [
        "second names made",
        "subtrees moved with files of several names",
        "directories moved for second names",
        "second names not made",
    ]
    .map(|what| all.get(what));
    // The seeds must reach every feature.
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
    assert!(
        passed > SEEDS && passed_dirs > 10 * SEEDS,
        "{passed} files and {passed_dirs} directories went from one rank to another"
    );
    assert!(
        linked_moves > SEEDS / 30,
        "{linked_moves} subtrees moved with files that have several names"
    );
    assert!(
        linked > SEEDS && colocated > SEEDS / 20 && apart > SEEDS / 20,
        "{linked} second names, {colocated} directories that went for them, {apart} times none could"
    );
}

#[test]
fn seeds_that_found_something_stay_clean() {
    let within = FOUND_WITHIN.map(|seed| (seed, false));
    for (seed, directories) in FOUND.map(|seed| (seed, true)).into_iter().chain(within) {
        let report = sim::ranks::run(seed, false, directories);
        assert_eq!(report.violation, None, "seed {seed:#x}");
    }
}
