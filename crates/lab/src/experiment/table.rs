//! The same values in numbers: a line for each case, and for each series the absolute value with
//! its spread, and the ratio.

use super::axis::short;
use super::describe::{Chart, Kind};
use super::pick::{Drawn, Point};

/// Cells as text; the first line is the head.
pub(crate) fn cells(chart: &Chart, drawn: &[Drawn]) -> Vec<Vec<String>> {
    let first = match chart.kind {
        Kind::Dots => String::new(),
        Kind::Lines | Kind::Heat => chart.x.label.clone(),
    };
    let mut head = vec![first];
    for series in drawn {
        head.push(format!("{}: {}", series.label, chart.y.label));
        if has_ratio(chart, series) {
            head.push("ratio".into());
        }
    }
    let mut lines = vec![head];
    for (x, name) in cases(chart, drawn) {
        let mut line = vec![name];
        for series in drawn {
            let point = series.points.iter().find(|point| point.x.total_cmp(&x).is_eq());
            line.push(point.map_or(String::new(), absolute));
            if has_ratio(chart, series) {
                line.push(point.and_then(|point| ratio(chart, series, point)).unwrap_or_default());
            }
        }
        lines.push(line);
    }
    lines
}

fn has_ratio(chart: &Chart, series: &Drawn) -> bool {
    chart.ratio.is_some() && series.base.is_some_and(|base| base != 0.0)
}

/// Every x of any series, with its name.
fn cases(chart: &Chart, drawn: &[Drawn]) -> Vec<(f64, String)> {
    if chart.kind == Kind::Dots {
        let cases = chart.cases.iter().enumerate();
        return cases.map(|(at, case)| (super::pick::index(at), case.label().to_owned())).collect();
    }
    let points = drawn.iter().flat_map(|series| &series.points);
    let mut xs: Vec<f64> = points.map(|point| point.x).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    xs.into_iter().map(|x| (x, short(x))).collect()
}

fn absolute(point: &Point) -> String {
    if point.low < point.high {
        format!("{} ({}–{})", short(point.mid), short(point.low), short(point.high))
    } else {
        short(point.mid)
    }
}

fn ratio(chart: &Chart, series: &Drawn, point: &Point) -> Option<String> {
    let over = point.over(series.base?, chart.ratio.as_ref()?);
    Some(format!("{}×", short(over.mid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_ratio_stands_without_its_absolute_value() {
        let chart: Chart = toml::from_str(
            "kind = \"lines\"\nx = { label = \"n\" }\ny = { label = \"s\" }\n\
             ratio = { label = \"times\", base = \"one\" }\nseries = []",
        )
        .expect("a chart");
        let points = vec![Point { x: 5.0, mid: 30.0, low: 20.0, high: 40.0 }];
        let with =
            Drawn { label: "a".into(), published: false, points, base: Some(10.0), colour: 0 };
        let point = Point { x: 1.0, mid: 2.0, low: 2.0, high: 2.0 };
        let without = Drawn { label: "b".into(), points: vec![point], base: None, ..with };
        assert_eq!(
            cells(&chart, &[with, without]),
            [
                vec!["n", "a: s", "ratio", "b: s"],
                vec!["1", "", "", "2"],
                vec!["5", "30 (20–40)", "3×", ""]
            ]
        );
    }
}
