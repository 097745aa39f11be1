//! Figure 1 of the paper from a live run: which directories were hot when. Time goes to the right,
//! directories stand below each other by their paths, and the redder the hotter.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use balancer::{Record, What};

use super::path;

/// Sizes in pixels.
const CELL: usize = 14;
const NAMES: usize = 260;
const TOP: usize = 40;
/// As many columns as a screen has: more ticks share some.
const COLUMNS_MAX: usize = 120;

/// The picture, as SVG. Load is all hits of a directory and below, faded, summed over the ranks.
pub(super) fn draw<'a>(records: impl Iterator<Item = &'a Record>) -> String {
    let mut heat: BTreeMap<(String, usize), f64> = BTreeMap::new();
    let mut ranks: BTreeMap<(String, usize), u16> = BTreeMap::new();
    let ticks: Vec<_> = records
        .filter_map(|record| match &record.what {
            What::Tick(tick) => Some((record, tick)),
            What::Move(_) => None,
        })
        .collect();
    let begun = ticks.iter().map(|(record, _)| record.time.0).min().unwrap_or_default();
    let ended = ticks.iter().map(|(record, _)| record.time.0).max().unwrap_or_default();
    let tick_seconds = ticks.first().map_or(1.0, |(_, tick)| tick.tick_seconds).max(0.001);
    let seconds = seconds(ended - begun);
    let columns = clamp(seconds / tick_seconds + 1.0).clamp(1, COLUMNS_MAX);
    let width = seconds.max(tick_seconds) / count(columns);
    for (record, tick) in &ticks {
        let at = self::seconds(record.time.0 - begun) / width;
        let column = clamp(at).min(columns - 1);
        for warm in &tick.units {
            let key = (path(&warm.path), column);
            let load = warm.unit.counts.sum();
            let known = heat.entry(key.clone()).or_default();
            if load >= *known {
                *known = load;
                ranks.insert(key, record.rank.0);
            }
        }
    }
    let names: BTreeSet<&String> = heat.keys().map(|(name, _)| name).collect();
    let most = heat.values().copied().fold(0.0, f64::max).max(1e-9);
    let size = (NAMES + columns * CELL + 20, TOP + names.len() * CELL + 30);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<text x=\"8\" y=\"18\" \
         font-size=\"13\">Hot directories over {seconds:.0} s, one column for {width:.1} s; \
         hottest: {most:.0} hits, faded</text>\n",
        size.0, size.1
    );
    for (row, name) in names.iter().enumerate() {
        let y = TOP + row * CELL;
        let shown = shorten(name);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{shown}</text>",
            NAMES - 6,
            y + CELL - 3
        );
        for column in 0..columns {
            let key = ((*name).clone(), column);
            let Some(load) = heat.get(&key) else { continue };
            let white = clamp(235.0 * (1.0 - (load / most).sqrt()));
            let rank = ranks.get(&key).copied().unwrap_or_default();
            let _ = writeln!(
                svg,
                "<rect x=\"{}\" y=\"{y}\" width=\"{CELL}\" height=\"{CELL}\" \
                 fill=\"rgb(255,{white},{white})\"><title>mds.{rank}: {load:.1}</title></rect>",
                NAMES + column * CELL
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
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
    use balancer::{Counts, TickRecord, Unit, Warm};
    use types::{DirFragId, Ino, Rank, Timestamp};

    use super::*;

    fn tick(second: i64, rank: u16, name: &str, load: f64) -> Record {
        let counts = Counts { inode_writes: load, ..Counts::default() };
        let id = DirFragId { ino: Ino(9), ..DirFragId::default() };
        let unit = Unit { id, parent: None, counts, inodes: 1, movable: true, pin: None };
        let units = vec![Warm { path: name.as_bytes().to_vec(), unit }];
        let tick = TickRecord { tick_seconds: 1.0, units, ..TickRecord::default() };
        let time = Timestamp(second * 1_000_000_000);
        Record { rank: Rank(rank), time, what: What::Tick(tick) }
    }

    #[test]
    fn the_hottest_is_red_and_what_is_no_name_does_no_harm() {
        let records = [tick(5, 0, "/a", 100.0), tick(6, 1, "/<b>&", 25.0)];
        let svg = draw(records.iter());
        assert!(svg.contains("rgb(255,0,0)") && svg.contains("rgb(255,117,117)"), "{svg}");
        assert!(svg.contains("/&lt;b&gt;&amp;") && svg.contains("mds.1: 25.0"), "{svg}");
        assert_eq!(svg.matches("<rect").count(), 2);
        assert!(draw(std::iter::empty()).ends_with("</svg>\n"));
    }
}
