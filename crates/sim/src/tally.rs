//! The figures of simulations, by name.

use std::collections::BTreeMap;
use std::fmt;

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<String, u64>);

/// The result of a simulation.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// A hash of everything that happened.
    pub fingerprint: u64,
    /// The promise that was found broken.
    pub violation: Option<String>,
    /// The last lines of the trace, if one was asked for.
    pub trace: Vec<String>,
    /// The figures.
    pub tally: Tally,
}

impl Tally {
    /// Adds to a figure.
    pub fn count(&mut self, what: &str, more: u64) {
        if let Some(sum) = self.0.get_mut(what) {
            *sum += more;
        } else if more > 0 {
            self.0.insert(what.to_owned(), more);
        }
    }

    /// A figure.
    #[must_use]
    pub fn get(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }

    /// Adds the figures of another simulation.
    pub fn add(&mut self, other: &Self) {
        other.0.iter().for_each(|(what, more)| self.count(what, *more));
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let single = self.0.iter().filter(|(what, _)| !what.contains(':'));
        single.into_iter().try_for_each(|(what, sum)| write!(f, ", {sum} {what}"))
    }
}
