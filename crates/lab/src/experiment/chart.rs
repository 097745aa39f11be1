//! A chart: absolute values in one panel, ratios in the other, over the same cases.
//!
//! Measured values are filled and joined by lines, published ones are hollow and dashed. A bar
//! through a point goes from the least to the largest repetition. Invariant: both panels show the
//! same points.

use super::axis::{Scale, short};
use super::describe::{Axis, Chart, Kind, Ratio};
use super::pick::{Drawn, Point, index};
use super::scene::{ADVANCE, Anchor, Ink, Mark, Scene, Spot, TEXT_SIZE, spot, width};

const WIDTH: f64 = 960.0;
/// Of a picture for a phone.
const NARROW: f64 = 340.0;
const MARGIN: f64 = 14.0;
/// From one line of text to the next.
const LINE: f64 = 20.0;
const BETWEEN: f64 = 36.0;
/// Of a panel with lines.
const HEIGHT: f64 = 250.0;
/// Of a case among dots: for itself, and for each series.
const CASE: f64 = 10.0;
const LANE: f64 = 10.0;
/// The width of the numbers beside an axis.
const NUMBERS: f64 = 52.0;
const RADIUS: f64 = 3.6;
/// From one series to the next in a map of discs, and the largest disc.
const BAND: f64 = 18.0;
const DISC: f64 = 8.5;

/// A panel's place and values.
struct Panel<'a> {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    label: &'a str,
    log: bool,
    series: Vec<Drawn>,
}

/// Draws a chart; None if there is nothing to draw.
pub(crate) fn scene(chart: &Chart, title: &str, drawn: &[Drawn]) -> Option<Scene> {
    scene_on(WIDTH, chart, title, drawn)
}

/// The same for a phone: one panel below the other, and the names of cases above them.
pub(crate) fn narrow(chart: &Chart, title: &str, drawn: &[Drawn]) -> Vec<Scene> {
    let most = (NARROW - 60.0) / (TEXT_SIZE * ADVANCE);
    let short = |series: &Drawn| Drawn { label: cut(&series.label, most), ..series.clone() };
    let drawn: Vec<_> = drawn.iter().map(short).collect();
    let absolute = Chart { ratio: None, ..chart.clone() };
    let mut scenes: Vec<_> = scene_on(NARROW, &absolute, title, &drawn).into_iter().collect();
    if let Some(ratio) = &chart.ratio {
        let y = Axis { label: ratio.label.clone(), log: ratio.log };
        let relative = Chart { y, ..absolute };
        scenes.extend(scene_on(NARROW, &relative, title, &ratios(&drawn, ratio)));
    }
    scenes
}

/// The beginning of a text that has more characters than fit.
fn cut(text: &str, most: f64) -> String {
    if index(text.chars().count()) <= most {
        return text.to_owned();
    }
    let kept = text.chars().enumerate().take_while(|(at, _)| index(*at) + 2.0 <= most);
    kept.map(|(_, letter)| letter).chain(['…']).collect()
}

/// A title in as many lines as it takes; returns the last one's place.
fn heading(scene: &mut Scene, title: &str) -> f64 {
    let most = (scene.width - 2.0 * MARGIN) / (TEXT_SIZE * ADVANCE);
    let (mut line, mut y) = (String::new(), 22.0);
    for word in title.split(' ') {
        let longer = index(line.chars().count() + 1 + word.chars().count());
        if !line.is_empty() && longer > most {
            scene.bold(spot(MARGIN, y), &line);
            (line, y) = (String::new(), y + LINE - 4.0);
        }
        let space = if line.is_empty() { "" } else { " " };
        line = format!("{line}{space}{word}");
    }
    scene.bold(spot(MARGIN, y), &line);
    y
}

/// The width left of the first panel. On a phone the names of cases are above them.
fn gutter(paper: f64, chart: &Chart, drawn: &[Drawn]) -> f64 {
    match chart.kind {
        Kind::Dots if paper < WIDTH => 0.0,
        Kind::Dots => {
            let widest = chart.cases.iter().map(|case| width(case.label())).fold(0.0, f64::max);
            widest + 12.0
        }
        Kind::Lines => NUMBERS,
        Kind::Heat => drawn.iter().map(|one| width(&one.label)).fold(0.0, f64::max) + 12.0,
    }
}

/// How high a case among dots is.
fn case_height(paper: f64, lanes: usize) -> f64 {
    let name = if paper < WIDTH { LINE } else { 0.0 };
    name + CASE + LANE * index(lanes)
}

fn scene_on(paper: f64, chart: &Chart, title: &str, drawn: &[Drawn]) -> Option<Scene> {
    if drawn.iter().all(|series| series.points.is_empty()) {
        return None;
    }
    let mut scene = Scene {
        width: paper,
        height: 0.0,
        marks: Vec::new(),
        description: format!("{title}: {}", chart.y.label),
    };
    let top = heading(&mut scene, title) + 22.0;
    let top = match chart.kind {
        // Each series has its name beside it.
        Kind::Heat => top + 6.0,
        Kind::Dots | Kind::Lines => legend(&mut scene, drawn, top) + 14.0,
    };
    let ratio = chart.ratio.as_ref().map(|ratio| (ratio, ratios(drawn, ratio)));
    let ratio = ratio.filter(|(_, series)| series.iter().any(|one| !one.points.is_empty()));
    let second = if chart.kind == Kind::Lines { NUMBERS } else { 0.0 };
    let left = MARGIN + gutter(paper, chart, drawn);
    let right = paper - MARGIN - 10.0;
    let middle = left + (right - left - BETWEEN - second) / 2.0;
    let bottom = top
        + 14.0
        + match chart.kind {
            Kind::Dots => index(chart.cases.len()) * case_height(paper, drawn.len()),
            Kind::Lines => HEIGHT,
            Kind::Heat => index(drawn.len()) * BAND,
        };
    let end = if ratio.is_some() { middle } else { right };
    let (label, log) = (chart.y.label.as_str(), chart.y.log);
    let mut panels = vec![Panel {
        left,
        right: end,
        top: top + 14.0,
        bottom,
        label,
        log,
        series: drawn.to_vec(),
    }];
    if let Some((ratio, series)) = ratio {
        let left = middle + BETWEEN + second;
        let (label, log) = (ratio.label.as_str(), ratio.log);
        panels.push(Panel { left, right, top: top + 14.0, bottom, label, log, series });
    }
    for panel in &panels {
        scene.text(spot(panel.left, top), &fitting(panel), Ink::Muted, Anchor::Start);
        match chart.kind {
            Kind::Dots => dots(&mut scene, chart, panel),
            Kind::Lines => lines(&mut scene, chart, panel),
            Kind::Heat => heat(&mut scene, chart, panel),
        }
    }
    if chart.kind == Kind::Dots {
        names(&mut scene, chart, &panels[0], drawn.len());
    }
    scene.height = bottom + if chart.kind == Kind::Dots { 30.0 } else { 46.0 };
    Some(scene)
}

/// The text above a panel, cut if it does not fit.
fn fitting(panel: &Panel<'_>) -> String {
    let kind = if panel.log { " (log)" } else { "" };
    let text = format!("{}{kind}", panel.label);
    let most = (panel.right - panel.left + BETWEEN / 2.0) / (TEXT_SIZE * ADVANCE);
    if index(text.chars().count()) <= most { text } else { cut(panel.label, most) }
}

/// The same values over the base of each series.
fn ratios(drawn: &[Drawn], ratio: &Ratio) -> Vec<Drawn> {
    let over = |series: &Drawn| {
        let base = series.base.filter(|base| *base != 0.0);
        let points: Vec<Point> = base.map_or_else(Vec::new, |base| {
            series.points.iter().map(|point| point.over(base, ratio)).collect()
        });
        Drawn { points, ..series.clone() }
    };
    drawn.iter().map(over).collect()
}

/// One entry after the other, in as many lines as it takes; returns the last one's place.
fn legend(scene: &mut Scene, drawn: &[Drawn], top: f64) -> f64 {
    let (mut x, mut y) = (MARGIN, top);
    for series in drawn {
        let needed = 30.0 + width(&series.label) + 22.0;
        if x + needed > scene.width && x > MARGIN {
            (x, y) = (MARGIN, y + LINE);
        }
        let ink = Ink::Series(series.colour);
        let places = vec![spot(x, y - 4.0), spot(x + 22.0, y - 4.0)];
        let dashed = series.published;
        scene.marks.push(Mark::Line { places, ink, width: 1.6, dashed });
        dot(scene, spot(x + 11.0, y - 4.0), series);
        scene.text(spot(x + 30.0, y), &series.label, Ink::Text, Anchor::Start);
        x += needed;
    }
    y + LINE
}

fn dot(scene: &mut Scene, at: Spot, series: &Drawn) {
    let ink = Ink::Series(series.colour);
    scene.marks.push(Mark::Dot { at, radius: RADIUS, ink, filled: !series.published });
}

fn ends(panel: &Panel<'_>) -> impl Iterator<Item = f64> {
    let points = panel.series.iter().flat_map(|series| &series.points);
    let ends: Vec<f64> = points.flat_map(|point| [point.low, point.mid, point.high]).collect();
    ends.into_iter()
}

fn dots(scene: &mut Scene, chart: &Chart, panel: &Panel<'_>) {
    let scale = Scale::of(ends(panel), panel.log, panel.left, panel.right);
    for mark in scale.marks() {
        if let Some(x) = scale.place(mark) {
            scene.line(spot(x, panel.top), spot(x, panel.bottom), Ink::Grid, 1.0);
            scene.text(spot(x, panel.bottom + 18.0), &short(mark), Ink::Muted, Anchor::Middle);
        }
    }
    let lanes = panel.series.len();
    let height = case_height(scene.width, lanes);
    let name = height - CASE - LANE * index(lanes);
    for at in 0..=chart.cases.len() {
        let y = panel.top + index(at) * height;
        scene.line(spot(panel.left, y), spot(panel.right, y), Ink::Grid, 1.0);
    }
    for (lane, series) in panel.series.iter().enumerate() {
        for point in &series.points {
            let y = panel.top + point.x * height + name + CASE / 2.0 + LANE * (index(lane) + 0.5);
            let place = |value: f64| scale.place(value);
            if let (Some(low), Some(high)) = (place(point.low), place(point.high)) {
                scene.line(spot(low, y), spot(high, y), Ink::Series(series.colour), 2.0);
            }
            if let Some(x) = place(point.mid) {
                dot(scene, spot(x, y), series);
            }
        }
    }
}

/// The names of the cases, left of the first panel, or above each case.
fn names(scene: &mut Scene, chart: &Chart, panel: &Panel<'_>, lanes: usize) {
    let height = case_height(scene.width, lanes);
    for (at, case) in chart.cases.iter().enumerate() {
        if scene.width < WIDTH {
            let y = panel.top + index(at) * height + LINE - 5.0;
            let most = (panel.right - panel.left) / (TEXT_SIZE * ADVANCE);
            let label = cut(case.label(), most);
            scene.text(spot(panel.left, y), &label, Ink::Text, Anchor::Start);
            continue;
        }
        let y = panel.top + (index(at) + 0.5) * height + 4.0;
        scene.text(spot(panel.left - 10.0, y), case.label(), Ink::Text, Anchor::End);
    }
}

/// A band for each series, its name beside it, and in it a disc for each point: areas are in
/// proportion to values.
fn heat(scene: &mut Scene, chart: &Chart, panel: &Panel<'_>) {
    let across = numbers_below(scene, chart, panel);
    let most = ends(panel).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    for (at, series) in panel.series.iter().enumerate() {
        let y = panel.top + (index(at) + 0.5) * BAND;
        scene.line(spot(panel.left, y), spot(panel.right, y), Ink::Grid, 1.0);
        let beside = spot(panel.left - 10.0, y + 4.0);
        scene.text(beside, &series.label, Ink::Text, Anchor::End);
        for point in series.points.iter().filter(|point| point.mid > 0.0) {
            if let Some(x) = across.place(point.x) {
                let radius = DISC * (point.mid / most).sqrt();
                scene.marks.push(Mark::Dot {
                    at: spot(x, y),
                    radius,
                    ink: Ink::Series(0),
                    filled: true,
                });
            }
        }
    }
}

/// The numbers below a panel and their name; returns their scale.
fn numbers_below(scene: &mut Scene, chart: &Chart, panel: &Panel<'_>) -> Scale {
    let xs = panel.series.iter().flat_map(|series| series.points.iter().map(|point| point.x));
    let across = Scale::along(xs, chart.x.log, panel.left, panel.right);
    let below = panel.bottom + 18.0;
    for mark in across.marks() {
        if let Some(x) = across.place(mark) {
            scene.line(spot(x, panel.bottom), spot(x, panel.bottom + 5.0), Ink::Grid, 1.0);
            scene.text(spot(x, below), &short(mark), Ink::Muted, Anchor::Middle);
        }
    }
    let middle = f64::midpoint(panel.left, panel.right);
    scene.text(spot(middle, below + LINE), &chart.x.label, Ink::Muted, Anchor::Middle);
    across
}

fn lines(scene: &mut Scene, chart: &Chart, panel: &Panel<'_>) {
    let scale = Scale::of(ends(panel), panel.log, panel.bottom, panel.top);
    for mark in scale.marks() {
        if let Some(y) = scale.place(mark) {
            scene.line(spot(panel.left, y), spot(panel.right, y), Ink::Grid, 1.0);
            scene.text(spot(panel.left - 8.0, y + 4.0), &short(mark), Ink::Muted, Anchor::End);
        }
    }
    let across = numbers_below(scene, chart, panel);
    for series in &panel.series {
        let ink = Ink::Series(series.colour);
        let place = |point: &Point| Some(spot(across.place(point.x)?, scale.place(point.mid)?));
        let places: Vec<_> = series.points.iter().filter_map(place).collect();
        if places.len() > 1 {
            let dashed = series.published;
            scene.marks.push(Mark::Line { places, ink, width: 1.6, dashed });
        }
        for point in &series.points {
            let Some(at) = place(point) else { continue };
            // A logarithmic axis has no 0: from there the bar begins at the edge.
            let low = scale.place(point.low).unwrap_or(panel.bottom);
            if let Some(high) = scale.place(point.high) {
                scene.line(spot(at.x, low), spot(at.x, high), ink, 2.0);
            }
            dot(scene, at, series);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(points: &[(f64, f64)], base: Option<f64>) -> Drawn {
        let point = |&(x, mid): &(f64, f64)| Point { x, mid, low: mid, high: mid };
        let points = points.iter().map(point).collect();
        Drawn { label: "a".into(), published: false, points, base, colour: 0 }
    }

    fn chart(kind: &str) -> Chart {
        toml::from_str(&format!(
            "kind = \"{kind}\"\ncases = [\"one\", \"two\"]\ny = {{ label = \"creates\", log = true }}\n\
             ratio = {{ label = \"times\", base = \"one\" }}\nseries = []"
        ))
        .expect("a chart")
    }

    #[test]
    fn absolute_values_and_ratios_are_both_drawn() {
        for kind in ["dots", "lines"] {
            let dots = |base| {
                let scene = scene(&chart(kind), "t", &[drawn(&[(0.0, 10.0), (1.0, 30.0)], base)]);
                let marks = scene.expect("there are values").marks;
                marks.iter().filter(|mark| matches!(mark, Mark::Dot { .. })).count()
            };
            // One in the legend.
            assert_eq!((dots(Some(10.0)), dots(None)), (5, 3), "{kind}");
        }
        assert!(scene(&chart("dots"), "t", &[drawn(&[], None)]).is_none());
    }

    #[test]
    fn the_largest_value_has_the_largest_disc() {
        let series = [drawn(&[(0.0, 0.0), (1.0, 10.0), (2.0, 40.0)], None)];
        let marks = scene(&chart("heat"), "t", &series).expect("there are values").marks;
        let radius = |mark: &Mark| match mark {
            Mark::Dot { radius, .. } => Some(*radius),
            Mark::Line { .. } | Mark::Text { .. } => None,
        };
        assert_eq!(marks.iter().filter_map(radius).collect::<Vec<_>>(), [DISC / 2.0, DISC]);
    }

    #[test]
    fn on_a_phone_one_panel_is_below_the_other_and_all_texts_fit() {
        let title = "Cudele Fig. 2 · time of the phase, beside the local file system";
        let label = "published: the load of the machine of the server, of the clients too".into();
        let mut chart = chart("dots");
        chart.y.label = "creates per second and client, of all repetitions, median".into();
        let series = [Drawn { label, ..drawn(&[(0.0, 10.0), (1.0, 30.0)], Some(10.0)) }];
        let scenes = narrow(&chart, title, &series);
        assert_eq!(scenes.len(), 2);
        for mark in scenes.iter().flat_map(|scene| &scene.marks) {
            let Mark::Text { at, text, style } = mark else { continue };
            let end = if style.anchor == Anchor::Start { at.x + width(text) } else { at.x };
            assert!(end <= NARROW && at.x >= 0.0, "{text}: to {end}");
        }
    }

    #[test]
    fn everything_is_on_the_paper() {
        let scene = scene(&chart("lines"), "t", &[drawn(&[(1.0, 0.0), (9.0, 3e9)], Some(7.0))]);
        let scene = scene.expect("there are values");
        let inside = |Spot { x, y }: Spot| {
            (0.0..=scene.width).contains(&x) && (0.0..=scene.height).contains(&y)
        };
        for mark in &scene.marks {
            match mark {
                Mark::Line { places, .. } => assert!(places.iter().copied().all(inside)),
                Mark::Dot { at, .. } | Mark::Text { at, .. } => assert!(inside(*at), "{mark:?}"),
            }
        }
    }
}
