//! Rows: the results of an experiment, for people and for programs.
//!
//! A row holds every repetition, and works the figures out when it is printed. Invariant: rates
//! are absolute (operations in a second of this machine); a ratio stands beside them, never
//! instead of them.

use serde_json::{Map, Value, json};

use super::job::JobOutcome;
use super::stats::{median, real, spread};

/// Every row's figure of its operations: the number in a second of the machine.
pub(crate) const PER_SECOND: &str = "per_second";

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    /// The experiment.
    pub(crate) bench: &'static str,
    /// What was measured.
    pub(crate) name: String,
    /// Files, events or entries of each client.
    pub(crate) files: u64,
    /// Client processes at work at the same time.
    pub(crate) clients: u32,
    /// Every repetition, from the first client's start to the last one's end.
    pub(crate) seconds: Vec<f64>,
    /// Per repetition: these seconds over those of Append Client Journal in the same repetition.
    pub(crate) slowdown: Vec<f64>,
    /// Bytes of journal per event, where a journal is written.
    pub(crate) bytes_per_event: Option<f64>,
    /// The object store.
    pub(crate) store: String,
    /// Further figures, each with a value per repetition.
    notes: Vec<(&'static str, Vec<f64>)>,
    /// Bounds for the median of further figures.
    goals: Vec<(&'static str, Bound)>,
}

/// The bound of a figure.
#[derive(Clone, Copy, Debug)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    /// Its name in a row for programs, and the figure.
    fn parts(self) -> (&'static str, f64) {
        match self {
            Self::AtLeast(bound) => ("at_least", bound),
            Self::AtMost(bound) => ("at_most", bound),
        }
    }

    fn met_by(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        }
    }
}

impl Row {
    pub(crate) fn new(bench: &'static str, name: impl Into<String>, files: u64) -> Self {
        Self { bench, name: name.into(), files, clients: 1, ..Self::default() }
    }

    pub(crate) fn clients(mut self, clients: u32) -> Self {
        self.clients = clients;
        self
    }

    /// The same figures under another name.
    pub(crate) fn named(&self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self.clone() }
    }

    /// Adds a repetition.
    pub(crate) fn push(&mut self, seconds: f64) {
        self.seconds.push(seconds);
    }

    /// Adds a repetition's value of a further figure; its name says the unit.
    pub(crate) fn note(&mut self, name: &'static str, value: f64) {
        match self.notes.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(value),
            None => self.notes.push((name, vec![value])),
        }
    }

    /// Sets the lower bound for the median of a further figure, or of [`PER_SECOND`].
    pub(crate) fn goal(&mut self, name: &'static str, at_least: f64) {
        self.goals.push((name, Bound::AtLeast(at_least)));
    }

    /// Sets the upper bound for the median of a further figure.
    pub(crate) fn limit(&mut self, name: &'static str, at_most: f64) {
        self.goals.push((name, Bound::AtMost(at_most)));
    }

    /// The goals with a measurement: the figure, its bound, its value.
    fn goals(&self) -> impl Iterator<Item = (&'static str, Bound, f64)> {
        self.goals.iter().filter_map(|(name, bound)| {
            if *name == PER_SECOND {
                return Some((*name, *bound, self.per_second()?));
            }
            let (_, values) = self.notes.iter().find(|(known, _)| known == name)?;
            Some((*name, *bound, median(values)))
        })
    }

    /// Adds the repetition's slowdown against another row of the same repetition.
    pub(crate) fn against(&mut self, base_seconds: f64) {
        if let Some(seconds) = self.seconds.last()
            && base_seconds > 0.0
        {
            self.slowdown.push(seconds / base_seconds);
        }
    }

    /// Records the processor time per operation: unlike the seconds, it hardly depends on the
    /// machine's other load.
    pub(crate) fn cpu(&mut self, outcomes: &[JobOutcome]) {
        let operations = real((self.files * u64::from(self.clients)).max(1));
        let client: f64 = outcomes.iter().map(|outcome| outcome.cpu_seconds).sum();
        let server: f64 = outcomes.iter().map(|outcome| outcome.server_cpu_seconds).sum();
        self.note("client_cpu_us", client * 1e6 / operations);
        self.note("server_cpu_us", server * 1e6 / operations);
    }

    /// Operations of all clients in a second, at the median.
    pub(crate) fn per_second(&self) -> Option<f64> {
        let seconds = median(&self.seconds);
        let operations = real(self.files * u64::from(self.clients));
        (seconds > 0.0 && operations > 0.0).then(|| operations / seconds)
    }

    pub(crate) fn to_json(&self) -> Value {
        let (min, max) = spread(&self.seconds);
        let slowdown = (!self.slowdown.is_empty()).then(|| median(&self.slowdown));
        let mut object = Map::new();
        for (key, value) in [
            ("bench", json!(self.bench)),
            ("name", json!(self.name)),
            ("files", json!(self.files)),
            ("clients", json!(self.clients)),
            ("seconds", json!(self.seconds)),
            ("median", json!(median(&self.seconds))),
            ("min", json!(min)),
            ("max", json!(max)),
            (PER_SECOND, json!(self.per_second())),
            ("slowdown", json!(slowdown)),
            ("bytes_per_event", json!(self.bytes_per_event)),
            ("store", json!(self.store)),
            ("replication", json!(replication(&self.store))),
            ("version", json!(env!("CARGO_PKG_VERSION"))),
        ] {
            object.insert(key.to_owned(), value);
        }
        for (name, values) in &self.notes {
            object.insert((*name).to_owned(), json!(median(values)));
        }
        let each: Map<String, Value> =
            self.notes.iter().map(|(name, values)| ((*name).to_owned(), json!(values))).collect();
        object.insert("each".to_owned(), Value::Object(each));
        let goals: Vec<_> = self
            .goals()
            .map(|(figure, bound, value)| {
                let (asked, least_or_most) = bound.parts();
                json!({"figure": figure, asked: least_or_most, "met": bound.met_by(value)})
            })
            .collect();
        if !goals.is_empty() {
            object.insert("goals".to_owned(), Value::Array(goals));
        }
        Value::Object(object)
    }

    fn cells(&self) -> [String; 8] {
        let (min, max) = spread(&self.seconds);
        let slowdown = if self.slowdown.is_empty() {
            String::new()
        } else {
            format!("{:.2}x", median(&self.slowdown))
        };
        [
            self.name.clone(),
            self.files.to_string(),
            self.clients.to_string(),
            format!("{:.4}", median(&self.seconds)),
            format!("{min:.4}..{max:.4}"),
            self.per_second().map_or(String::new(), |rate| format!("{rate:.0}")),
            slowdown,
            self.bytes_per_event.map_or(String::new(), |bytes| format!("{bytes:.2}")),
        ]
    }

    /// The kind of store, and how many copies it keeps.
    fn on(&self) -> String {
        let kind = self.store.split(':').next().unwrap_or_default();
        match replication(&self.store) {
            Some(1) => format!("{kind}, 1 copy"),
            Some(copies) => format!("{kind}, {copies} copies"),
            None => kind.to_owned(),
        }
    }

    fn notes_text(&self) -> String {
        let notes = self.notes.iter().map(|(name, values)| {
            let (min, max) = spread(values);
            let range = format!(" ({}..{})", short(min), short(max));
            format!("{name} {}{}", short(median(values)), if min < max { &range } else { "" })
        });
        let goals = self.goals().map(|(name, bound, value)| {
            let met = if bound.met_by(value) { "met" } else { "missed" };
            format!("goal {name} {} {met}", short(bound.parts().1))
        });
        notes.chain(goals).collect::<Vec<_>>().join(", ")
    }
}

/// Copies that the store keeps of each object, where its kind or its address tells.
fn replication(store: &str) -> Option<u32> {
    let scheme = store.split(':').next().unwrap_or_default();
    matches!(scheme, "dir" | "memory" | "rados").then(|| objstore::copies(store).ok())?
}

/// The title of rows; with the store, where there are several.
pub(crate) fn title(rows: &[Row], several: bool) -> String {
    let Some(row) = rows.first() else { return String::new() };
    if several && !row.store.is_empty() {
        format!("{} on {}", row.bench, row.on())
    } else {
        row.bench.to_owned()
    }
}

fn short(value: f64) -> String {
    if value.abs() >= 100.0 || value == value.trunc() {
        format!("{value:.0}")
    } else {
        format!("{value:.3}")
    }
}

/// A table for people: one line per row, with its further figures at the end.
pub(crate) fn table(rows: &[Row]) -> String {
    let head = ["", "files", "clients", "seconds", "spread", "per second", "slowdown", "B/event"];
    let cells = |row: &Row| {
        let mut cells = row.cells().to_vec();
        cells.push(row.notes_text());
        cells
    };
    columns(&head.map(str::to_owned), &rows.iter().map(cells).collect::<Vec<_>>())
}

/// The same rows on several stores: their rates, and of all but the first the part of the first's.
pub(crate) fn side_by_side(on: &[&[Row]]) -> String {
    let titles = on.iter().map(|rows| rows.first().map(Row::on).unwrap_or_default());
    let mut head = vec![String::new()];
    head.extend(titles.map(|title| format!("per second ({title})")));
    let Some((first, others)) = on.split_first() else { return String::new() };
    let rate = |row: Option<&Row>| row.and_then(Row::per_second);
    let lines = first.iter().map(|row| {
        let base = row.per_second();
        let mut cells = vec![row.name.clone()];
        cells.push(base.map_or(String::new(), |rate| format!("{rate:.0}")));
        for rows in others {
            let rate = rate(rows.iter().find(|other| other.name == row.name));
            let both =
                rate.zip(base).map(|(rate, base)| format!("{rate:.0} ({:.2}x)", rate / base));
            cells.push(both.unwrap_or_default());
        }
        cells
    });
    columns(&head, &lines.collect::<Vec<_>>())
}

/// Cells in columns, the first to the left, the rest to the right; cells beyond the head follow as
/// they are.
fn columns(head: &[String], lines: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|cells| cells.get(column)).map(String::len);
        cells.chain([head[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..head.len()).map(width).collect();
    let line = |cells: &[String]| {
        let mut text = format!("{:<1$}", cells[0], widths[0]);
        for (cell, width) in cells.iter().zip(&widths).skip(1) {
            text.push_str(&format!("  {cell:>width$}"));
        }
        for cell in cells.iter().skip(widths.len()) {
            text.push_str("  ");
            text.push_str(cell);
        }
        format!("{}\n", text.trim_end())
    };
    std::iter::once(head).chain(lines.iter().map(Vec::as_slice)).map(line).collect()
}

#[cfg(test)]
mod tests;
