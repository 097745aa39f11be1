use super::*;

/// The eight hot fragments of the paper's section 2.2.3.
const LOADS: [f64; 8] = [12.7, 13.3, 13.3, 14.6, 15.7, 13.5, 13.7, 14.6];
const TARGET: f64 = 55.7;

fn listed(loads: &[f64]) -> Vec<Candidate> {
    loads.iter().enumerate().map(|(unit, load)| Candidate { unit, load: *load }).collect()
}

fn check(selector: Selector, target: f64, sum: f64, distance: f64) {
    let choice = selector.choose(&listed(&LOADS), target);
    assert!((choice.sum - sum).abs() < 1e-9, "{selector:?}: {choice:?}");
    assert!((choice.distance - distance).abs() < 1e-9, "{selector:?}: {choice:?}");
}

#[test]
fn the_papers_example_gives_its_sums_with_the_rule_until_reaching() {
    check(Selector::BigFirst, TARGET, 58.6, 2.9);
    check(Selector::SmallFirst, TARGET, 66.5, 10.8);
    check(Selector::BigSmall, TARGET, 56.3, 0.6);
    check(Selector::Half, TARGET, 53.9, 1.8);
    check(Selector::HalfBig, TARGET, 58.6, 2.9);
    // The paper's target is rounded, and so are the distances from it.
    check(Selector::BigSmall, 55.6, 56.3, 0.7);
    check(Selector::BestFit, 55.6, 55.6, 0.0);
}

#[test]
fn scaled_by_four_fifths_the_original_ships_three() {
    let choice = Selector::BigFirst.choose(&listed(&LOADS), 0.8 * 55.6);
    let loads: Vec<f64> = choice.sent.iter().map(|candidate| candidate.load).collect();
    assert_eq!(loads, [15.7, 14.6, 14.6]);
}

#[test]
fn of_the_four_the_paper_names_big_small_is_closest() {
    let four = [Selector::BigFirst, Selector::SmallFirst, Selector::BigSmall, Selector::Half];
    assert_eq!(closest(&four, &listed(&LOADS), TARGET).unwrap().selector, Selector::BigSmall);
}

#[test]
fn of_equals_the_first_is_taken() {
    let equal = listed(&[1.0, 1.0, 1.0, 1.0]);
    let choice = closest(&[Selector::SmallFirst, Selector::BigFirst], &equal, 2.0).unwrap();
    assert_eq!(choice.selector, Selector::SmallFirst);
    assert_eq!(choice.sent.iter().map(|c| c.unit).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(closest(&[], &equal, 2.0), None);
}

#[test]
fn an_odd_one_goes_with_the_first_half() {
    let choice = Selector::Half.choose(&listed(&[1.0, 9.0, 2.0]), 0.5);
    assert_eq!(choice.sent.iter().map(|c| c.unit).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn no_units_or_a_target_of_zero_give_an_empty_choice() {
    for (_, selector) in NAMED {
        assert!(selector.choose(&[], 5.0).sent.is_empty(), "{selector:?}");
    }
    assert!(Selector::BigFirst.choose(&listed(&LOADS), 0.0).sent.is_empty());
}

#[test]
fn best_fit_of_many_is_as_near_as_one_exchange_brings_it() {
    let loads: Vec<f64> = (0..200u32).map(|n| f64::from(n * 7919 % 101) + 0.5).collect();
    let all: f64 = loads.iter().sum();
    for share in [0.1, 0.33, 0.5, 0.9] {
        let choice = Selector::BestFit.choose(&listed(&loads), all * share);
        assert!(choice.distance <= 0.5, "{share}: {}", choice.distance);
        let big = Selector::BigFirst.choose(&listed(&loads), all * share);
        assert!(choice.distance <= big.distance, "{share}");
    }
}

#[test]
fn homes_are_spread_and_do_not_move() {
    let mut counts = [0; 4];
    for ino in 0..4000 {
        let id = DirFragId { ino: types::Ino(ino), frag: types::Frag::WHOLE };
        counts[home(id, 4)] += 1;
    }
    assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
    let id = DirFragId { ino: types::Ino(42), frag: types::Frag { bits: 3, value: 1 << 29 } };
    assert_eq!((home(id, 4), home(id, 128), home(id, 0)), (home(id, 4), home(id, 128), 0));
}

#[test]
fn an_unknown_name_is_refused_with_the_known_ones() {
    let fault = Selector::named("medium").unwrap_err();
    assert!(fault.message.contains("`medium`") && fault.message.contains("big_small"), "{fault}");
    for (name, selector) in NAMED {
        assert_eq!(Selector::named(name), Ok(selector));
    }
}
