//! The description of an experiment: the question, the commands, the axes, and the published
//! values.
//!
//! Invariant: a description that names a field we do not know, or a number where a name belongs, is
//! refused with the place where it stands.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use types::{Errno, Error, Result};

use terminal::io;

/// A file `experiment.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Description {
    /// The folder's name.
    #[serde(skip)]
    pub(crate) name: String,
    /// Which published figure.
    pub(crate) figure: String,
    pub(crate) title: String,
    /// Experiments are shown and run in this order.
    pub(crate) order: u32,
    pub(crate) question: String,
    pub(crate) method: String,
    /// The expected shape of the figure.
    pub(crate) shape: String,
    /// The agreement with the published figure, the differences, and the reasons.
    pub(crate) agrees: String,
    /// The reason for a missing picture, or for missing parts of it.
    #[serde(default)]
    pub(crate) missing: Option<String>,
    /// Peers that were, or could be, measured in the same run.
    #[serde(default)]
    pub(crate) peers: Option<String>,
    /// Its rows in the table at the top of the page.
    #[serde(default)]
    pub(crate) headline: Vec<Headline>,
    #[serde(default)]
    pub(crate) run: Vec<Run>,
    #[serde(default)]
    pub(crate) chart: Vec<Chart>,
}

/// One important number, beside another: of two rows, or of a row and a published value.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Headline {
    /// The title of the row of the table.
    pub(crate) says: String,
    /// The row, and which figure of it.
    pub(crate) row: String,
    pub(crate) value: String,
    /// The unit of the figure.
    pub(crate) unit: String,
    /// The title of the other number.
    pub(crate) beside: String,
    /// Its row.
    #[serde(default)]
    pub(crate) over: Option<String>,
    /// The published value.
    #[serde(default)]
    pub(crate) published: Option<f64>,
}

/// A call of the program.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Run {
    pub(crate) arguments: Vec<String>,
    /// In small sizes; without it, the same with `--quick`.
    #[serde(default)]
    pub(crate) quick: Option<Vec<String>>,
    /// A run that takes longer has failed.
    #[serde(default = "ten_minutes")]
    pub(crate) seconds_max: u64,
    /// Whether it can measure a CephFS beside: then it runs again on the OSDs of that, with it.
    #[serde(default)]
    pub(crate) cephfs: bool,
    /// Whether it can measure a JuiceFS beside.
    #[serde(default)]
    pub(crate) juicefs: bool,
    /// Added to each row's name behind a dot, where several runs print rows of one name.
    #[serde(default)]
    pub(crate) tag: Option<String>,
}

fn ten_minutes() -> u64 {
    600
}

/// How cases stand beside each other.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Cases with names, below each other.
    Dots,
    /// Cases with numbers, from left to right.
    Lines,
    /// The same with a line of discs for each series: the larger the value, the larger the disc.
    Heat,
}

/// A picture.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Chart {
    pub(crate) kind: Kind,
    #[serde(default)]
    pub(crate) title: String,
    /// For `dots`: the names of the cases, and their rows, if these have other names.
    #[serde(default)]
    pub(crate) cases: Vec<Case>,
    #[serde(default)]
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    #[serde(default)]
    pub(crate) ratio: Option<Ratio>,
    pub(crate) series: Vec<Series>,
    #[serde(default)]
    pub(crate) published: Vec<Published>,
}

/// A case: its name; or its name and its row; or these and the figure of the row.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Case {
    Row(String),
    Named([String; 2]),
    Figure([String; 3]),
}

impl Case {
    pub(crate) fn label(&self) -> &str {
        match self {
            Self::Row(name) | Self::Named([name, _]) | Self::Figure([name, ..]) => name,
        }
    }

    pub(crate) fn row(&self) -> &str {
        match self {
            Self::Row(name) | Self::Named([_, name]) | Self::Figure([_, name, _]) => name,
        }
    }

    /// The figure, where it is not the one of the series.
    pub(crate) fn value(&self) -> Option<&str> {
        match self {
            Self::Figure([.., value]) => Some(value),
            Self::Row(_) | Self::Named(_) => None,
        }
    }
}

/// An axis.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Axis {
    pub(crate) label: String,
    #[serde(default)]
    pub(crate) log: bool,
}

/// The other axis: values over a base of their own series.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ratio {
    pub(crate) label: String,
    /// The row whose median is 1 for everything that was measured here.
    pub(crate) base: String,
    /// The base over the value, where larger values are better and the ratio is a slowdown.
    #[serde(default)]
    pub(crate) inverse: bool,
    #[serde(default)]
    pub(crate) log: bool,
}

/// A measurement of this project.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Series {
    pub(crate) label: String,
    /// Of `lines`: names of rows, with `{}` for the number that is x.
    #[serde(default)]
    pub(crate) rows: Option<String>,
    /// For `dots`: the text around the name of a case's row, with `{}` for that.
    #[serde(default)]
    pub(crate) row: Option<String>,
    /// `per_second`, `seconds`, or another figure of the rows.
    pub(crate) value: String,
    /// The factor of the figure.
    #[serde(default = "one")]
    pub(crate) times: f64,
    /// The figure is a rate as a part of another: shown is by how many percent the time is longer.
    #[serde(default)]
    pub(crate) overhead: bool,
    /// Measured beside, of something else.
    #[serde(default)]
    pub(crate) peer: bool,
    /// Has the colour of a series with this label.
    #[serde(default)]
    pub(crate) like: Option<String>,
    /// The base of its ratio, if not the picture's.
    #[serde(default)]
    pub(crate) base: Option<String>,
}

fn one() -> f64 {
    1.0
}

/// What was published.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Published {
    pub(crate) label: String,
    /// How the values are known.
    pub(crate) known: String,
    /// Of `lines`: x, y, and from where to where y went, if known.
    #[serde(default)]
    pub(crate) points: Vec<Vec<f64>>,
    /// Of `dots`: the same without x, by the case's name.
    #[serde(default)]
    pub(crate) values: BTreeMap<String, Vec<f64>>,
    /// The value that is 1 for the ratio.
    #[serde(default)]
    pub(crate) base: Option<f64>,
    #[serde(default)]
    pub(crate) like: Option<String>,
}

/// A part of published runs that is not copied.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Artefact {
    pub(crate) published: String,
    pub(crate) here: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Artefacts {
    artefact: Vec<Artefact>,
}

/// All descriptions below a directory, in their order.
pub(crate) fn all(dir: &Path) -> Result<Vec<Description>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|error| io(dir, &error))? {
        let entry = entry.map_err(|error| io(dir, &error))?;
        let path = entry.path().join("experiment.toml");
        if !path.exists() {
            continue;
        }
        let mut one: Description = parse(&path)?;
        one.name = entry.file_name().to_string_lossy().into_owned();
        found.push(one);
    }
    found.sort_by(|a, b| (a.order, &a.name).cmp(&(b.order, &b.name)));
    if found.is_empty() {
        let cause = "no folder in it has an experiment.toml";
        return Err(Error::new(Errno::NotFound, dir.display().to_string(), cause));
    }
    Ok(found)
}

/// The list of parts that are not copied.
pub(crate) fn artefacts(dir: &Path) -> Result<Vec<Artefact>> {
    Ok(parse::<Artefacts>(&dir.join("artefacts.toml"))?.artefact)
}

fn parse<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path).map_err(|error| io(path, &error))?;
    toml::from_str(&text)
        .map_err(|error| Error::new(Errno::Invalid, path.display().to_string(), error.to_string()))
}
