//! From values to places on paper, and which values are written beside an axis.
//!
//! Invariant: every value that is drawn lies between the ends of its axis.

/// Longest list of marks.
const MARKS_MAX: usize = 8;

/// A range of values, laid along a range of places.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    from: f64,
    to: f64,
    log: bool,
    /// Where `from` is.
    start: f64,
    /// Where `to` is.
    end: f64,
}

impl Scale {
    /// A scale for these values, from one place on paper to another. A logarithmic one leaves out
    /// values that are not positive; a linear one begins at 0 unless values are below.
    pub(crate) fn of(values: impl Iterator<Item = f64>, log: bool, start: f64, end: f64) -> Self {
        let values: Vec<f64> =
            values.filter(|value| value.is_finite() && (!log || *value > 0.0)).collect();
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if values.is_empty() {
            return Self { from: if log { 1.0 } else { 0.0 }, to: 10.0, log, start, end };
        }
        if log {
            let (from, to) = (least / 1.3, most * 1.3);
            // Less than a decade says little.
            let to = if to / from < 10.0 { from * 10.0 } else { to };
            return Self { from, to, log, start, end };
        }
        let from = least.min(0.0);
        let to = if most > from { most } else { from + 1.0 };
        let step = step(to - from);
        // A hair's breadth above a mark is no reason for another.
        let last = ((to / step - 0.05).ceil() * step).max(to);
        Self { from: (from / step).floor() * step, to: last, log, start, end }
    }

    /// A scale with one place for each case, the first at the beginning.
    pub(crate) fn along(
        values: impl Iterator<Item = f64>,
        log: bool,
        start: f64,
        end: f64,
    ) -> Self {
        let mut scale = Self::of(values, log, start, end);
        if log {
            // Room at both ends is enough; x needs no full decade.
            return scale;
        }
        let margin = (scale.to - scale.from) * 0.03;
        scale.from -= margin;
        scale.to += margin;
        scale
    }

    /// Where a value is; None if a logarithmic axis has no place for it.
    pub(crate) fn place(&self, value: f64) -> Option<f64> {
        let part = if self.log {
            if value <= 0.0 {
                return None;
            }
            (value / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        let part = part.clamp(0.0, 1.0);
        Some(self.start + part * (self.end - self.start))
    }

    /// Values that are written beside the axis.
    pub(crate) fn marks(&self) -> Vec<f64> {
        if self.log { self.decades() } else { self.steps() }
    }

    fn steps(&self) -> Vec<f64> {
        let step = step(self.to - self.from);
        let first = (self.from / step).ceil();
        let marks = (0..=2 * MARKS_MAX).map(|at| (first + super::pick::index(at)) * step);
        marks.take_while(|mark| *mark <= self.to * (1.0 + 1e-9)).collect()
    }

    fn decades(&self) -> Vec<f64> {
        let decades = (self.to / self.from).log10();
        let digits: &[f64] = if decades < 1.6 {
            &[1.0, 2.0, 5.0]
        } else if decades < 2.6 {
            &[1.0, 3.0]
        } else {
            &[1.0]
        };
        // Of many decades every second or third is written.
        let every = if decades > 10.0 {
            3
        } else if decades > 6.0 {
            2
        } else {
            1
        };
        let mut marks = Vec::new();
        for exponent in (-12..=15).filter(|exponent: &i32| exponent.rem_euclid(every) == 0) {
            marks.extend(digits.iter().map(|digit| digit * 10f64.powi(exponent)));
        }
        marks.retain(|mark| (self.from..=self.to).contains(mark));
        marks
    }
}

/// A round step that gives four to eight marks.
fn step(range: f64) -> f64 {
    let rough = range / 5.0;
    let magnitude = 10f64.powf(rough.log10().floor());
    let digit = rough / magnitude;
    let round = if digit < 1.5 {
        1.0
    } else if digit < 3.5 {
        2.0
    } else if digit < 7.5 {
        5.0
    } else {
        10.0
    };
    round * magnitude
}

/// A number for people: three digits, and a letter for thousands.
pub(crate) fn short(value: f64) -> String {
    let size = value.abs();
    let (scaled, letter) = match size {
        _ if size >= 0.9995e9 => (value / 1e9, "G"),
        _ if size >= 0.9995e6 => (value / 1e6, "M"),
        _ if size >= 9_999.5 => (value / 1e3, "K"),
        _ => (value, ""),
    };
    format!("{}{letter}", digits(scaled))
}

fn digits(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        return "0".into();
    }
    if size < 0.001 {
        return format!("{value:.1e}");
    }
    let places = match size {
        _ if size >= 99.95 => 0,
        _ if size >= 9.995 => 1,
        _ if size >= 0.9995 => 2,
        _ if size >= 0.0995 => 3,
        _ => 4,
    };
    let text = format!("{value:.places$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else if size >= 999.5 {
        // Four digits have a comma.
        let (head, tail) = text.split_at(text.len() - 3);
        format!("{head},{tail}")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_letter() {
        let said =
            [0.0, 0.00004, 0.0123, 1.0, 9.04, 104.2, 2_325.0, 68_600.0, 816_802.0, 2.2e6, 9_999.7];
        let expected =
            ["0", "4.0e-5", "0.0123", "1", "9.04", "104", "2,325", "68.6K", "817K", "2.2M", "10K"];
        assert_eq!(said.map(short), expected);
    }

    #[test]
    fn every_value_has_a_place_and_some_have_marks() {
        let values = [3.0, 70.0, 812.0];
        for log in [false, true] {
            let scale = Scale::of(values.into_iter(), log, 0.0, 100.0);
            let places = values.map(|value| scale.place(value).expect("it is positive"));
            assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{places:?}");
            assert!(places.iter().all(|place| (0.0..=100.0).contains(place)));
            let marks = scale.marks();
            assert!((3..=2 * MARKS_MAX).contains(&marks.len()), "{marks:?}");
        }
        assert_eq!(Scale::of(values.into_iter(), true, 0.0, 1.0).place(0.0), None);
    }

    #[test]
    fn nothing_and_one_value_are_no_range() {
        for values in [vec![], vec![5.0], vec![0.0], vec![-2.0]] {
            let scale = Scale::of(values.iter().copied(), false, 0.0, 100.0);
            assert!(scale.marks().len() > 2, "{values:?}: {:?}", scale.marks());
            assert!(scale.place(5.0).is_some_and(f64::is_finite));
        }
    }
}
