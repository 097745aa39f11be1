//! Pictures of a run: where the load went over time.

use std::fmt::Write as _;

use super::{SimulationReport, count};

/// Ranks that a picture shows one by one; with more, the busiest.
const RANKS_SHOWN_MAX: usize = 16;
/// The characters for a share of a rank's maximum, from nothing to all.
const SHADES: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

impl SimulationReport {
    /// One line for each rank: its requests over time as bars, all to the same scale.
    #[must_use]
    pub fn bars(&self, columns: usize) -> String {
        let columns = columns.clamp(10, 200).min(self.series.len().max(1));
        let cells = self.cells(columns);
        let most = cells.iter().flatten().copied().fold(0.0, f64::max).max(1e-9);
        let shown = self.shown(&cells);
        let mut text = String::new();
        for rank in &shown {
            let bar: String = cells.iter().map(|cell| shade(cell[*rank] / most)).collect();
            let mean = cells.iter().map(|cell| cell[*rank]).sum::<f64>() / count(cells.len());
            let _ = writeln!(text, "rank {rank:>3} |{bar}| {mean:>8.0}/s");
        }
        let ranks = self.series.first().map_or(0, Vec::len);
        if shown.len() < ranks {
            let _ = writeln!(text, "and {} ranks with less", ranks - shown.len());
        }
        let _ = writeln!(
            text,
            "{:>9}0 s{:>width$}",
            "",
            format!("{} s; a full bar is {most:.0}/s", self.series.len()),
            width = columns.saturating_sub(2)
        );
        text
    }

    /// The same as a picture of stacked areas (SVG), 960 by 320.
    #[must_use]
    pub fn svg(&self, title: &str) -> String {
        let cells = self.cells(self.series.len().clamp(1, 240));
        let totals = cells.iter().map(|cell| cell.iter().sum::<f64>());
        let most = totals.fold(0.0, f64::max).max(1e-9);
        let ranks = self.series.first().map_or(0, Vec::len);
        let (width, height) = (960.0, 320.0);
        let x = |at: usize| 60.0 + (width - 80.0) * count(at) / count(cells.len().max(2) - 1);
        let y = |value: f64| height - 30.0 - (height - 70.0) * value / most;
        let title = title.replace('&', "&amp;").replace('<', "&lt;");
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 960 320\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"960\" height=\"320\" fill=\"#fff\"/>\n\
             <text x=\"60\" y=\"20\" font-size=\"14\">{title}</text>\n"
        );
        let mut below = vec![0.0; cells.len()];
        for rank in 0..ranks {
            let mut points = String::new();
            for (at, base) in below.iter().enumerate() {
                let _ = write!(points, "{:.1},{:.1} ", x(at), y(*base));
            }
            for (base, cell) in below.iter_mut().zip(&cells) {
                *base += cell[rank];
            }
            for (at, top) in below.iter().enumerate().rev() {
                let _ = write!(points, "{:.1},{:.1} ", x(at), y(*top));
            }
            let hue = 360 * rank / ranks.max(1);
            let _ = writeln!(
                svg,
                "<polygon points=\"{}\" fill=\"hsl({hue},60%,60%)\"><title>rank {rank}</title></polygon>",
                points.trim_end()
            );
        }
        let _ = write!(
            svg,
            "<text x=\"8\" y=\"{:.0}\">{most:.0}/s</text>\n<text x=\"60\" y=\"310\">0 s</text>\n\
             <text x=\"900\" y=\"310\">{} s</text>\n</svg>\n",
            y(most) + 4.0,
            self.series.len()
        );
        svg
    }

    /// Means over equal spans of time: `cells[column][rank]`.
    fn cells(&self, columns: usize) -> Vec<Vec<f64>> {
        let ranks = self.series.first().map_or(0, Vec::len);
        let mut cells = Vec::with_capacity(columns);
        for column in 0..columns {
            let from = column * self.series.len() / columns;
            let until = ((column + 1) * self.series.len() / columns).max(from + 1);
            let span = self.series.get(from..until.min(self.series.len())).unwrap_or_default();
            let mean = |rank: usize| {
                span.iter().map(|served| served[rank]).sum::<f64>() / count(span.len()).max(1.0)
            };
            cells.push((0..ranks).map(mean).collect());
        }
        cells
    }

    fn shown(&self, cells: &[Vec<f64>]) -> Vec<usize> {
        let ranks = self.series.first().map_or(0, Vec::len);
        let sum = |rank: usize| cells.iter().map(|cell| cell[rank]).sum::<f64>();
        let mut busiest: Vec<usize> = (0..ranks).collect();
        busiest.sort_by(|a, b| sum(*b).total_cmp(&sum(*a)));
        busiest.truncate(RANKS_SHOWN_MAX);
        busiest.sort_unstable();
        busiest
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 0 and 8; a cast of a number that is none gives 0"
)]
fn shade(share: f64) -> char {
    let step = (share.clamp(0.0, 1.0) * 8.0).round() as usize;
    SHADES.get(step).copied().unwrap_or('█')
}
