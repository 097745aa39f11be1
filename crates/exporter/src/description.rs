//! Descriptions of metrics: name, kind, labels, meaning, and when to worry.

use std::fmt::Write as _;

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A number that only grows while its process lives.
    Counter,
    /// A number that grows and shrinks.
    Gauge,
    /// Durations by size.
    Histogram,
}

impl MetricKind {
    fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricDescription {
    /// Its name, with the unit and without `_total`.
    pub name: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// Its meaning.
    pub help: &'static str,
    /// When an administrator should look at it; empty for a metric that is only looked at.
    pub worry: &'static str,
}

/// The units that end a name.
const UNITS: [&str; 3] = ["bytes", "seconds", "ratio"];

impl MetricDescription {
    /// A counter.
    #[must_use]
    pub const fn counter(name: &'static str, help: &'static str, worry: &'static str) -> Self {
        Self { name, kind: MetricKind::Counter, labels: &[], help, worry }
    }

    /// A gauge.
    #[must_use]
    pub const fn gauge(name: &'static str, help: &'static str, worry: &'static str) -> Self {
        Self { name, kind: MetricKind::Gauge, labels: &[], help, worry }
    }

    /// A histogram of durations.
    #[must_use]
    pub const fn histogram(name: &'static str, help: &'static str, worry: &'static str) -> Self {
        Self { name, kind: MetricKind::Histogram, labels: &[], help, worry }
    }

    /// The same with labels.
    #[must_use]
    pub const fn with(self, labels: &'static [&'static str]) -> Self {
        Self { labels, ..self }
    }

    /// The name that queries use.
    #[must_use]
    pub fn queried(&self) -> String {
        match self.kind {
            MetricKind::Counter => format!("{}_total", self.name),
            MetricKind::Gauge | MetricKind::Histogram => self.name.to_owned(),
        }
    }

    /// The unit at the end of the name.
    #[must_use]
    pub fn unit(&self) -> Option<&'static str> {
        UNITS.into_iter().find(|unit| self.base(unit).is_some())
    }

    /// The name without this unit, if the name ends with it.
    pub(crate) fn base(&self, unit: &str) -> Option<&'static str> {
        self.name.strip_suffix(unit)?.strip_suffix('_')
    }
}

/// The rows of these metrics in a page of the manual, in the order of their names.
#[must_use]
pub fn table(metrics: &[MetricDescription]) -> String {
    let mut sorted: Vec<&MetricDescription> = metrics.iter().collect();
    sorted.sort_unstable_by_key(|metric| metric.name);
    let mut text = "| metric | kind | meaning | when to worry |\n|---|---|---|---|\n".to_owned();
    for metric in sorted {
        let labels = match metric.labels {
            [] => String::new(),
            labels => format!("{{{}}}", labels.join(", ")),
        };
        let unit = metric.unit().map_or_else(String::new, |unit| format!(", {unit}"));
        let (name, kind) = (metric.queried(), metric.kind.word());
        let (help, worry) = (metric.help, if metric.worry.is_empty() { "–" } else { metric.worry });
        let _ = writeln!(text, "| `{name}{labels}` | {kind}{unit} | {help} | {worry} |");
    }
    text
}
