//! An experiment with its results: pictures and tables, ready to be written.

use std::path::Path;

use serde_json::Value;
use types::Result;

use super::describe::{Description, Kind};
use super::results::Results;
use super::scene::Scene;
use super::{chart, paint, pick, svg, table};

/// See the module documentation.
pub(crate) struct Figure<'a> {
    pub(crate) description: &'a Description,
    pub(crate) results: Option<Results>,
    pub(crate) plots: Vec<Plot>,
}

/// One picture, and the same in numbers.
pub(crate) struct Plot {
    pub(crate) title: String,
    /// The files' name without its end.
    pub(crate) stem: String,
    pub(crate) scene: Scene,
    /// The same for a phone.
    pub(crate) narrow: Vec<Scene>,
    pub(crate) cells: Vec<Vec<String>>,
}

impl<'a> Figure<'a> {
    /// The figure so far: without results there are only published values.
    pub(crate) fn of(description: &'a Description, results: Option<Results>) -> Result<Self> {
        let rows: Vec<&Value> = results.iter().flat_map(Results::rows).collect();
        let mut plots = Vec::new();
        for (at, chart) in description.chart.iter().enumerate() {
            let mut drawn = pick::series(chart, &rows);
            // Without cases that have no values: a quick run has fewer.
            let mut chart = chart.clone();
            if chart.kind == Kind::Dots && rows.is_empty() {
                drawn.retain(|series| series.published);
            }
            if chart.title.is_empty() {
                chart.title.clone_from(&description.title);
            }
            let title = format!("{} · {}", description.figure, chart.title);
            let Some(scene) = chart::scene(&chart, &title, &drawn) else { continue };
            let narrow = chart::narrow(&chart, &title, &drawn);
            let cells = table::cells(&chart, &drawn);
            let stem = if at == 0 { "plot".into() } else { format!("plot-{}", at + 1) };
            plots.push(Plot { title: chart.title, stem, scene, narrow, cells });
        }
        Ok(Self { description, results, plots })
    }

    /// Writes the pictures into a folder.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        for plot in &self.plots {
            let name = |end: &str| folder.join(format!("{}.{end}", plot.stem));
            super::output::write(&name("svg"), svg::alone(&plot.scene).as_bytes())?;
            super::output::write(&name("png"), &paint::picture(&plot.scene)?)?;
        }
        Ok(())
    }
}
