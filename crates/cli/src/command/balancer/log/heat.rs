//! Figure 1 of the paper from a live run: which directories were hot when. Time goes to the right,
//! directories stand below each other by their paths, and the redder the hotter.
//!
//! Invariant: the picture has at most [`ROWS_MAX`] rows and [`COLUMNS_MAX`] columns, however many
//! directories and ticks there were. The coldest directories share the last row.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use balancer::{DecisionRecord, RecordedEvent, TickRecord};

use super::path;

/// Sizes in pixels.
const CELL: usize = 14;
const NAMES: usize = 260;
const TOP: usize = 40;
const AXIS: usize = 44;
const LEGEND: usize = 52;
/// The narrowest that title and legend fit in.
const WIDTH_MIN: usize = 620;
/// As many columns as a screen has: more ticks share some.
const COLUMNS_MAX: usize = 120;
/// As many rows as a screen has, without the one that the coldest share.
const ROWS_MAX: usize = 40;
/// Steps of the legend's colours.
const SHADES: usize = 24;

/// How hot a directory was in one column, and by which rank.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    load: f64,
    rank: u16,
}

impl Cell {
    fn or_hotter(&mut self, other: Self) {
        if other.load >= self.load {
            *self = other;
        }
    }
}

/// Cells by column.
type Row = BTreeMap<usize, Cell>;

/// The rows and scales of a picture.
struct Heat {
    rows: Vec<(String, Row)>,
    columns: usize,
    /// How much time all columns, and one of them, stand for.
    seconds: f64,
    column_seconds: f64,
    /// Of the hottest cell.
    most: f64,
    /// How many directories there were.
    directories: usize,
}

/// A picture, and its extent.
pub(super) struct Picture {
    pub(super) svg: String,
    pub(super) directories: usize,
    pub(super) seconds: f64,
}

/// The picture, as SVG. Load is all hits of a directory and below, faded, of the rank with most.
pub(super) fn draw<'a>(records: impl Iterator<Item = &'a DecisionRecord>) -> Picture {
    let heat = Heat::of(records);
    let height = TOP + heat.rows.len() * CELL + AXIS + LEGEND;
    let width = (NAMES + heat.columns * CELL + 20).max(WIDTH_MIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n<text \
         x=\"8\" y=\"18\" font-size=\"13\">Hot directories over {:.0} s, one column for {:.1} s; \
         hottest: {:.0} hits, faded</text>\n",
        heat.seconds, heat.column_seconds, heat.most
    );
    for (number, (name, row)) in heat.rows.iter().enumerate() {
        draw_row(&mut svg, &heat, (TOP + number * CELL, name, row));
    }
    let bottom = TOP + heat.rows.len() * CELL;
    draw_axis(&mut svg, &heat, bottom);
    draw_legend(&mut svg, &heat, bottom + AXIS);
    svg.push_str("</svg>\n");
    Picture { svg, directories: heat.directories, seconds: heat.seconds }
}

impl Heat {
    fn of<'a>(records: impl Iterator<Item = &'a DecisionRecord>) -> Self {
        let ticks: Vec<_> = records
            .filter_map(|record| match &record.what {
                RecordedEvent::Tick(tick) => Some((record, tick)),
                RecordedEvent::Move(_) => None,
            })
            .collect();
        let begun = ticks.iter().map(|(record, _)| record.time.0).min().unwrap_or_default();
        let ended = ticks.iter().map(|(record, _)| record.time.0).max().unwrap_or_default();
        let tick_seconds = ticks.first().map_or(1.0, |(_, tick)| tick.tick_seconds).max(0.001);
        let seconds = seconds(ended - begun).max(tick_seconds);
        let columns = clamp(seconds / tick_seconds + 1.0).clamp(1, COLUMNS_MAX);
        let column_seconds = seconds / count(columns);
        let mut all: BTreeMap<String, Row> = BTreeMap::new();
        for (record, tick) in &ticks {
            let at = self::seconds(record.time.0 - begun) / column_seconds;
            add(&mut all, clamp(at).min(columns - 1), (record.rank.0, tick));
        }
        let directories = all.len();
        let rows = grouped(all);
        let cells = rows.iter().flat_map(|(_, row)| row.values());
        let most = cells.map(|cell| cell.load).fold(0.0, f64::max).max(1e-9);
        Self { rows, columns, seconds, column_seconds, most, directories }
    }
}

fn add(all: &mut BTreeMap<String, Row>, column: usize, (rank, tick): (u16, &TickRecord)) {
    for warm in &tick.units {
        let row = all.entry(path(&warm.path)).or_default();
        let cell = Cell { load: warm.unit.counts.sum(), rank };
        row.entry(column).or_default().or_hotter(cell);
    }
}

/// The hottest directories, by path; behind them one row for the rest. The load of a directory
/// includes the directories below it.
fn grouped(all: BTreeMap<String, Row>) -> Vec<(String, Row)> {
    let hottest = |row: &Row| row.values().map(|cell| cell.load).fold(0.0, f64::max);
    let mut by_heat: Vec<_> = all.iter().map(|(name, row)| (hottest(row), name.clone())).collect();
    by_heat.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let kept: BTreeSet<_> = by_heat.into_iter().take(ROWS_MAX).map(|(_, name)| name).collect();
    let others = all.len() - kept.len();
    let (mut rows, mut rest) = (Vec::new(), Row::new());
    for (name, row) in all {
        if kept.contains(&name) {
            rows.push((name, row));
            continue;
        }
        for (column, cell) in row {
            rest.entry(column).or_default().or_hotter(cell);
        }
    }
    if others > 0 {
        rows.push((format!("the hottest of {others} others"), rest));
    }
    rows
}

fn draw_row(svg: &mut String, heat: &Heat, (y, name, row): (usize, &str, &Row)) {
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
        NAMES - 6,
        y + CELL - 3,
        shorten(name)
    );
    for (column, Cell { load, rank }) in row {
        let _ = writeln!(
            svg,
            "<rect x=\"{}\" y=\"{y}\" width=\"{CELL}\" height=\"{CELL}\" \
             fill=\"{}\"><title>mds.{rank}: {load:.1}</title></rect>",
            NAMES + column * CELL,
            colour(load / heat.most)
        );
    }
}

/// The axis of time, below the rows.
fn draw_axis(svg: &mut String, heat: &Heat, y: usize) {
    let (left, right) = (NAMES, NAMES + heat.columns * CELL);
    let _ = writeln!(svg, "<path d=\"M{left} {TOP}V{y}H{right}\" fill=\"none\" stroke=\"#888\"/>");
    // A label takes about four columns.
    let step = heat.columns.div_ceil(8).max(4);
    for column in (0..=heat.columns).step_by(step) {
        let x = left + column * CELL;
        let second = count(column) * heat.column_seconds;
        let _ = writeln!(
            svg,
            "<path d=\"M{x} {y}v4\" stroke=\"#888\"/><text x=\"{x}\" y=\"{}\" \
             text-anchor=\"middle\">{second:.0}</text>",
            y + 16
        );
    }
    let _ =
        writeln!(svg, "<text x=\"{left}\" y=\"{}\">seconds since the first tick</text>", y + 32);
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">directory</text>",
        NAMES - 6,
        TOP - 6
    );
}

/// The scale of colours: they follow the square root of the load, which shows warm directories too.
fn draw_legend(svg: &mut String, heat: &Heat, y: usize) {
    for shade in 0..SHADES {
        let share = (count(shade) + 0.5) / count(SHADES);
        let _ = writeln!(
            svg,
            "<path d=\"M{} {y}h{CELL}v10h-{CELL}z\" fill=\"{}\"/>",
            NAMES + shade * CELL,
            colour(share * share)
        );
    }
    for (quarter, anchor) in [(0, "start"), (2, "middle"), (4, "end")] {
        let share = count(quarter) / 4.0;
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\">{:.0}</text>",
            NAMES + quarter * SHADES * CELL / 4,
            y + 22,
            share * share * heat.most
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">hits, faded</text>",
        NAMES - 6,
        y + 9
    );
}

/// White for nothing, red for the hottest.
fn colour(share: f64) -> String {
    let white = clamp(235.0 * (1.0 - share.sqrt()));
    format!("rgb(255,{white},{white})")
}

/// A path for a picture, at its end, where paths differ.
fn shorten(name: &str) -> String {
    let count = name.chars().count();
    let end: String = name.chars().skip(count.saturating_sub(38)).collect();
    let name = if count > 38 { format!("…{end}") } else { end };
    name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[allow(clippy::cast_precision_loss, reason = "for a picture")]
fn seconds(nanos: i64) -> f64 {
    nanos.max(0) as f64 / 1e9
}

#[allow(clippy::cast_precision_loss, reason = "at most some hundred")]
fn count(number: usize) -> f64 {
    number as f64
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, which is what is wanted of a place in a picture"
)]
fn clamp(value: f64) -> usize {
    value.max(0.0) as usize
}

#[cfg(test)]
mod tests {
    use balancer::{Counts, RecordedDirectory, TickRecord, Unit};
    use types::{DirFragId, Ino, Rank, Timestamp};

    use super::*;

    fn tick(second: i64, rank: u16, name: &str, load: f64) -> DecisionRecord {
        let counts = Counts { inode_writes: load, ..Counts::default() };
        let id = DirFragId { ino: Ino(9), ..DirFragId::default() };
        let unit = Unit { id, parent: None, counts, inodes: 1, movable: true, pin: None };
        let units = vec![RecordedDirectory { path: name.as_bytes().to_vec(), unit }];
        let tick = TickRecord { tick_seconds: 1.0, units, ..TickRecord::default() };
        let time = Timestamp(second * 1_000_000_000);
        DecisionRecord { rank: Rank(rank), time, what: RecordedEvent::Tick(tick) }
    }

    #[test]
    fn the_hottest_is_red_and_what_is_no_name_does_no_harm() {
        let records = [tick(5, 0, "/a", 100.0), tick(6, 1, "/<b>&", 25.0)];
        let svg = draw(records.iter()).svg;
        assert!(svg.contains("rgb(255,0,0)") && svg.contains("rgb(255,117,117)"), "{svg}");
        assert!(svg.contains("/&lt;b&gt;&amp;") && svg.contains("mds.1: 25.0"), "{svg}");
        assert_eq!(svg.matches("<rect").count(), 2);
        assert!(draw(std::iter::empty()).svg.ends_with("</svg>\n"));
    }

    #[test]
    fn many_directories_and_ticks_fit_a_screen_and_the_hottest_are_shown() {
        let load = |number: i64| if number == 777 { 5000.0 } else { 1.0 };
        let tick = |number| tick(number, 0, &format!("/d/{number:04}"), load(number));
        let records: Vec<_> = (0..1000).map(tick).collect();
        let Picture { svg, directories, .. } = draw(records.iter());
        let height = svg.split("height=\"").nth(1).and_then(|text| text.split('"').next());
        let height: usize = height.and_then(|text| text.parse().ok()).unwrap();
        assert!(height < 800, "{height}");
        assert_eq!(directories, 1000);
        assert!(svg.contains("/d/0777") && svg.contains("the hottest of 960 others"), "{svg}");
        assert!(svg.contains("seconds since the first tick") && svg.contains("hits, faded"));
        assert!(svg.matches("<rect").count() <= (ROWS_MAX + 1) * COLUMNS_MAX);
    }
}
