use super::{median, quantile, real, seconds_between, spread};

#[test]
#[allow(clippy::float_cmp, reason = "the figures are exact in binary")]
fn the_median_is_the_middle_or_the_mean_of_both_middles() {
    assert_eq!(median(&[]), 0.0);
    assert_eq!(median(&[3.0]), 3.0);
    assert_eq!(median(&[9.0, 1.0, 4.0]), 4.0);
    assert_eq!(median(&[8.0, 1.0, 2.0, 4.0]), 3.0);
}

#[test]
fn the_spread_covers_every_repetition() {
    assert_eq!(spread(&[]), (0.0, 0.0));
    assert_eq!(spread(&[2.0, 0.5, 7.0]), (0.5, 7.0));
}

#[test]
fn quantiles_are_values_that_occurred() {
    let values: Vec<u32> = (1..=1000).collect();
    assert_eq!(quantile(&values, 500), 500);
    assert_eq!(quantile(&values, 990), 990);
    assert_eq!(quantile(&values, 1000), 1000);
    assert_eq!(quantile(&[7], 1), 7);
    assert_eq!(quantile(&[], 500), 0);
}

#[test]
#[allow(clippy::float_cmp, reason = "the figures are exact in binary")]
fn times_do_not_run_backwards() {
    assert_eq!(seconds_between(1_000_000_000, 3_500_000_000), 2.5);
    assert_eq!(seconds_between(5, 3), 0.0);
    assert_eq!(real(1 << 40), 1_099_511_627_776.0);
}
