//! A page: the values of all metrics of a process at one moment, and their text.

use std::fmt::Error;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::{LatencyHistogram, MetricDescription, MetricKind};

/// The name and the value of a label.
pub type MetricLabel = (&'static str, String);

/// The forms of a page that scrapers ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextForm {
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
    /// The older form of Prometheus, version 0.0.4.
    Prometheus,
}

impl TextForm {
    /// The type of the content for the scraper.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Whole(u64),
    Real(f64),
    Durations(Box<LatencyHistogram>),
}

#[derive(Clone, Debug, PartialEq)]
struct Family {
    metric: &'static MetricDescription,
    samples: Vec<(Vec<MetricLabel>, Value)>,
}

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricsPage {
    families: Vec<Family>,
}

impl MetricsPage {
    /// Adds a whole number.
    pub fn whole(&mut self, metric: &'static MetricDescription, value: u64) {
        self.labelled(metric, Vec::new(), value);
    }

    /// Adds a whole number with labels.
    pub fn labelled(
        &mut self,
        metric: &'static MetricDescription,
        labels: Vec<MetricLabel>,
        value: u64,
    ) {
        self.put(metric, labels, Value::Whole(value));
    }

    /// Adds a number with labels.
    pub fn real(
        &mut self,
        metric: &'static MetricDescription,
        labels: Vec<MetricLabel>,
        value: f64,
    ) {
        self.put(metric, labels, Value::Real(value));
    }

    /// Adds the durations of a histogram.
    pub fn durations(
        &mut self,
        metric: &'static MetricDescription,
        labels: Vec<MetricLabel>,
        histogram: LatencyHistogram,
    ) {
        self.put(metric, labels, Value::Durations(Box::new(histogram)));
    }

    /// Adds all of another page.
    pub fn append(&mut self, other: MetricsPage) {
        self.families.extend(other.families);
    }

    fn put(&mut self, metric: &'static MetricDescription, labels: Vec<MetricLabel>, value: Value) {
        debug_assert!(
            labels.iter().map(|(name, _)| name).eq(metric.labels),
            "{} has its labels",
            metric.name
        );
        match self.families.last_mut() {
            Some(last) if last.metric == metric => last.samples.push((labels, value)),
            _ => self.families.push(Family { metric, samples: vec![(labels, value)] }),
        }
    }

    /// The text for a scraper.
    #[must_use]
    pub fn text(self: &Arc<Self>, form: TextForm) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Collected(self.clone())));
        let mut out = String::new();
        let written = match form {
            TextForm::OpenMetrics => text::encode(&mut out, &registry),
            TextForm::Prometheus => prometheus_text::encode(&mut out, &registry),
        };
        written.expect("a string takes every text");
        out
    }
}

#[derive(Debug)]
struct Collected(Arc<MetricsPage>);

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        for Family { metric, samples } in &self.0.families {
            let kind = match metric.kind {
                MetricKind::Counter => MetricType::Counter,
                MetricKind::Gauge => MetricType::Gauge,
                MetricKind::Histogram => MetricType::Histogram,
            };
            // The encoder writes the unit behind the name.
            let unit = metric.unit();
            let name = unit.and_then(|unit| metric.base(unit)).unwrap_or(metric.name);
            let unit = unit.map(|unit| Unit::Other(unit.to_owned()));
            let mut family = encoder.encode_descriptor(name, metric.help, unit.as_ref(), kind)?;
            for (labels, value) in samples {
                if labels.is_empty() {
                    encode(&mut family, metric.kind, value)?;
                } else {
                    encode(&mut family.encode_family(labels)?, metric.kind, value)?;
                }
            }
        }
        Ok(())
    }
}

fn encode(encoder: &mut MetricEncoder<'_>, kind: MetricKind, value: &Value) -> Result<(), Error> {
    match (value, kind) {
        (Value::Whole(value), MetricKind::Counter) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(value, None)
        }
        (Value::Real(value), MetricKind::Counter) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(value, None)
        }
        (Value::Whole(value), _) => encoder.encode_gauge(value),
        (Value::Real(value), _) => encoder.encode_gauge(value),
        (Value::Durations(all), _) => {
            let buckets = all.bounded();
            encoder.encode_histogram::<NoLabelSet>(all.seconds(), all.count(), &buckets, None)
        }
    }
}
