//! From rows to points.
//!
//! Invariant: a point is the median of all repetitions of its row, with their range.

use serde_json::Value;

use super::describe::{Chart, Kind, Published, Ratio, Series};

/// A value with its known spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    /// The number of the case, or the number that the case is.
    pub(crate) x: f64,
    pub(crate) mid: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// The data of one colour.
#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    pub(crate) label: String,
    pub(crate) published: bool,
    pub(crate) points: Vec<Point>,
    /// The value that is 1 for the ratio.
    pub(crate) base: Option<f64>,
    pub(crate) colour: usize,
}

impl Point {
    fn map(self, of: impl Fn(f64) -> f64) -> Self {
        let (a, b) = (of(self.low), of(self.high));
        Self { x: self.x, mid: of(self.mid), low: a.min(b), high: a.max(b) }
    }

    /// Over a base, as a ratio says.
    pub(crate) fn over(self, base: f64, ratio: &Ratio) -> Self {
        self.map(|value| if ratio.inverse { base / value } else { value / base })
    }
}

/// The data of a chart: first measured, then published values.
pub(crate) fn series(chart: &Chart, rows: &[&Value]) -> Vec<Drawn> {
    let mut drawn: Vec<Drawn> = Vec::new();
    for series in &chart.series {
        let points = measured(chart, series, rows);
        // Peers that were not there leave no empty line in the legend.
        if points.is_empty() && series.peer {
            continue;
        }
        let base = chart.ratio.as_ref().and_then(|ratio| {
            let base = series.base.as_ref().unwrap_or(&ratio.base);
            let row = rows.iter().find(|row| row["name"] == base.as_str())?;
            Some(value(row, series, None)?.mid)
        });
        let colour = colour(&drawn, series.like.as_deref());
        let label = series.label.clone();
        drawn.push(Drawn { label, published: false, points, base, colour });
    }
    for published in &chart.published {
        let colour = colour(&drawn, published.like.as_deref());
        let (label, base) = (published.label.clone(), published.base);
        let points = known(chart, published);
        drawn.push(Drawn { label, published: true, points, base, colour });
    }
    drawn
}

fn colour(drawn: &[Drawn], like: Option<&str>) -> usize {
    let same = drawn.iter().find(|other| like == Some(other.label.as_str()));
    same.map_or_else(
        || drawn.iter().map(|other| other.colour + 1).max().unwrap_or(0),
        |other| other.colour,
    )
}

fn measured(chart: &Chart, series: &Series, rows: &[&Value]) -> Vec<Point> {
    let named = |name: &str| rows.iter().find(|row| row["name"] == name);
    match chart.kind {
        Kind::Dots => {
            let pattern = series.row.as_deref().unwrap_or("{}");
            let cases = chart.cases.iter().enumerate();
            let point = cases.filter_map(|(at, case)| {
                let row = named(&pattern.replace("{}", case.row()))?;
                Some(Point { x: index(at), ..value(row, series, case.value())? })
            });
            point.collect()
        }
        Kind::Lines | Kind::Heat => {
            let pattern = series.rows.as_deref().unwrap_or("{}");
            let of = |row: &&Value| {
                let x = number(row["name"].as_str()?, pattern)?;
                Some(Point { x, ..value(row, series, None)? })
            };
            let mut points: Vec<_> = rows.iter().filter_map(of).collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            points
        }
    }
}

fn known(chart: &Chart, published: &Published) -> Vec<Point> {
    let point = |x: f64, values: &[f64]| {
        let mid = *values.first()?;
        let low = values.get(1).copied().unwrap_or(mid);
        Some(Point { x, mid, low, high: values.get(2).copied().unwrap_or(mid) })
    };
    match chart.kind {
        Kind::Dots => {
            let cases = chart.cases.iter().enumerate();
            let of = |(at, case): (usize, &super::describe::Case)| {
                point(index(at), published.values.get(case.label())?)
            };
            cases.filter_map(of).collect()
        }
        Kind::Lines | Kind::Heat => {
            let of = |values: &Vec<f64>| point(*values.first()?, values.get(1..)?);
            published.points.iter().filter_map(of).collect()
        }
    }
}

/// The number of a case: there are few.
#[allow(clippy::cast_precision_loss, reason = "a handful of cases")]
pub(crate) fn index(at: usize) -> f64 {
    at as f64
}

/// The number that stands in a name in the place of `{}`; `K` and `M` are thousands and millions.
fn number(name: &str, pattern: &str) -> Option<f64> {
    let (before, after) = pattern.split_once("{}")?;
    let text = name.strip_prefix(before)?.strip_suffix(after)?;
    let (digits, factor) = match text.strip_suffix('K') {
        Some(digits) => (digits, 1e3),
        None => text.strip_suffix('M').map_or((text, 1.0), |digits| (digits, 1e6)),
    };
    Some(digits.parse::<f64>().ok()? * factor)
}

/// A figure of a row; none if it has none, or nothing came of it.
/// A figure of the row with this name: the median of its repetitions.
pub(crate) fn figure(rows: &[&Value], name: &str, figure: &str) -> Option<f64> {
    let row = rows.iter().find(|row| row["name"] == name)?;
    Some(middle_of(repetitions(row, figure)?)?.mid)
}

fn value(row: &Value, series: &Series, figure: Option<&str>) -> Option<Point> {
    let all = repetitions(row, figure.unwrap_or(&series.value))?;
    let all = all.into_iter().map(|one| {
        let one = if series.overhead { (1.0 / one - 1.0) * 100.0 } else { one };
        one * series.times
    });
    middle_of(all.collect())
}

/// The median, with the range of the repetitions.
fn middle_of(mut all: Vec<f64>) -> Option<Point> {
    all.retain(|one| one.is_finite());
    all.sort_by(f64::total_cmp);
    let (low, high) = (*all.first()?, *all.last()?);
    let middle = all.len() / 2;
    let mid =
        if all.len() % 2 == 1 { all[middle] } else { f64::midpoint(all[middle - 1], all[middle]) };
    Some(Point { x: 0.0, mid, low, high })
}

/// A row's values of a figure, one for each repetition.
fn repetitions(row: &Value, figure: &str) -> Option<Vec<f64>> {
    let list = |value: &Value| -> Option<Vec<f64>> {
        let list: Vec<f64> = value.as_array()?.iter().filter_map(Value::as_f64).collect();
        (!list.is_empty()).then_some(list)
    };
    if figure == "per_second"
        && let Some(seconds) = list(&row["seconds"])
    {
        let operations = row["files"].as_f64()? * row["clients"].as_f64()?;
        return (operations > 0.0)
            .then(|| seconds.iter().map(|seconds| operations / seconds).collect());
    }
    list(&row["each"][figure])
        .or_else(|| list(&row[figure]))
        .or_else(|| Some(vec![row[figure].as_f64()?]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn series(value: &str) -> Series {
        let text = format!("label = \"a\"\nvalue = \"{value}\"");
        toml::from_str(&text).expect("a series")
    }

    #[test]
    fn a_point_is_the_median_with_its_spread() {
        let row = json!({"files": 100, "clients": 2, "seconds": [2.0, 1.0, 4.0],
                         "each": {"share": [0.5, 0.7]}, "bytes_per_event": 3.0});
        let point = value(&row, &series("per_second"), None).expect("it was measured");
        assert_eq!((point.low, point.mid, point.high), (50.0, 100.0, 200.0));
        let point = value(&row, &series("share"), None).expect("it was measured");
        assert!((point.mid - 0.6).abs() < 1e-12 && point.low < point.high);
        assert_eq!(value(&row, &series("bytes_per_event"), None).map(|point| point.mid), Some(3.0));
        assert_eq!(value(&row, &series("absent"), None), None);
        // A row without a count of operations has no rate.
        let none = json!({"files": 0, "clients": 1, "seconds": [1.0]});
        assert_eq!(value(&none, &series("per_second"), None), None);
    }

    #[test]
    fn numbers_are_found_in_names() {
        assert_eq!(number("by_value_100K", "by_value_{}"), Some(1e5));
        assert_eq!(number("sync_25s", "sync_{}s"), Some(25.0));
        assert_eq!(number("block_8_paced", "block_{}"), None);
        assert_eq!(number("clients_18", "knee"), None);
    }

    #[test]
    fn a_ratio_turns_the_spread_with_it() {
        let ratio: Ratio =
            toml::from_str("label = \"\"\nbase = \"\"\ninverse = true").expect("a ratio");
        let point = Point { x: 0.0, mid: 50.0, low: 40.0, high: 100.0 }.over(100.0, &ratio);
        assert_eq!((point.low, point.mid, point.high), (1.0, 2.0, 2.5));
    }
}
