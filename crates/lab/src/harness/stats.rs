//! Figures about repetitions: median, spread, quantiles.
//!
//! Not an estimate of errors: with a handful of repetitions on a machine that does other things
//! too, the median and the range say all there is. Invariant: no function divides by a constant or
//! leaves a repetition out.

/// The median; 0 for nothing. Of an even number, the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.len() % 2, sorted.get(middle)) {
        (_, None) => 0.0,
        (1, Some(value)) => *value,
        (_, Some(value)) => f64::midpoint(sorted[middle - 1], *value),
    }
}

/// The smallest and the largest value; zeros for nothing.
pub(crate) fn spread(values: &[f64]) -> (f64, f64) {
    let smallest = values.iter().copied().min_by(f64::total_cmp);
    let largest = values.iter().copied().max_by(f64::total_cmp);
    (smallest.unwrap_or(0.0), largest.unwrap_or(0.0))
}

/// The value below which `per_mille` thousandths of the values lie (nearest rank); 0 for nothing.
/// The values must be sorted.
pub(crate) fn quantile(sorted: &[u32], per_mille: usize) -> u32 {
    let rank = (sorted.len() * per_mille).div_ceil(1000);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

/// A count as a figure to divide with.
#[allow(clippy::cast_precision_loss, reason = "counts below 2^53 are exact")]
pub(crate) fn real(count: u64) -> f64 {
    count as f64
}

/// Seconds between two readings of a clock in nanoseconds.
pub(crate) fn seconds_between(start_ns: u64, end_ns: u64) -> f64 {
    real(end_ns.saturating_sub(start_ns)) / 1e9
}

#[cfg(test)]
mod tests;
