//! The bounds of a run, and the sentence about a broken one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::records::Sample;
use crate::harness::stats::real;

/// See the module documentation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// Resident memory of a daemon.
    pub(crate) daemon_mib: u64,
    /// Resident memory of a client.
    pub(crate) client_mib: u64,
    /// Open descriptors of any process.
    pub(crate) descriptors: u64,
    /// Objects of the store, besides one for each hundred names of the large directory.
    pub(crate) objects: u64,
    /// The slowest answer outside of announced outages.
    pub(crate) stall_ms: u64,
    /// How long a cluster may need after an incident until `cudele health` finds nothing.
    pub(crate) heal_s: u64,
}

impl Limits {
    /// The time that `health` has.
    pub(crate) fn heal(&self) -> Duration {
        Duration::from_secs(self.heal_s)
    }

    /// The first bound that a sample breaks.
    pub(crate) fn broken_by(&self, sample: &Sample, large_names: u64) -> Option<String> {
        for (name, kib) in &sample.memory_kib {
            let daemon = name.starts_with("mds") || name == "mon";
            let most = if daemon { self.daemon_mib } else { self.client_mib };
            if *kib > most * 1024 {
                return Some(format!(
                    "memory: {name} has {} MiB resident, and the bound is {most} MiB",
                    kib / 1024
                ));
            }
        }
        for (name, count) in &sample.descriptors {
            if *count > self.descriptors {
                let most = self.descriptors;
                return Some(format!(
                    "descriptors: {name} has {count} open, and the bound is {most}"
                ));
            }
        }
        let most = self.objects + large_names / 100;
        (sample.objects > most)
            .then(|| format!("objects: the store has {}, and the bound is {most}", sample.objects))
    }

    /// The sentence about an answer that took too long. The lateness of the machine itself does not
    /// count.
    pub(crate) fn stalled(
        &self,
        slowest_ms: f64,
        machine_ms: f64,
        announced: Option<Duration>,
    ) -> Option<String> {
        let most = real(self.stall_ms).max(announced.map_or(0.0, |one| one.as_secs_f64() * 1e3));
        let counted = slowest_ms - machine_ms;
        (counted > most).then(|| {
            format!(
                "stall: the probe waited {slowest_ms:.0} ms for an answer, {machine_ms:.0} ms of \
                 that for the machine, and the bound is {most:.0} ms"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        daemon_mib: 10,
        client_mib: 5,
        descriptors: 20,
        objects: 100,
        stall_ms: 100,
        heal_s: 1,
    };

    fn sample(name: &str, kib: u64, descriptors: u64, objects: u64) -> Sample {
        Sample {
            memory_kib: [(name.to_owned(), kib)].into(),
            descriptors: [(name.to_owned(), descriptors)].into(),
            objects,
            ..Sample::default()
        }
    }

    #[test]
    fn a_broken_bound_has_a_sentence_with_process_and_figure() {
        let said = |sample: Sample| LIMITS.broken_by(&sample, 500).unwrap_or_default();
        assert_eq!(said(sample("mds[7]", 10 * 1024, 20, 105)), "");
        assert!(said(sample("mds[7]", 11 * 1024, 0, 0)).contains("mds[7] has 11 MiB"));
        assert!(said(sample("writer.1", 6 * 1024, 0, 0)).contains("the bound is 5 MiB"));
        assert!(said(sample("mon", 0, 21, 0)).contains("mon has 21 open"));
        assert!(said(sample("mon", 0, 0, 106)).contains("the store has 106"));
    }

    #[test]
    fn a_late_machine_and_an_announced_outage_are_no_stall() {
        assert_eq!(LIMITS.stalled(150.0, 60.0, None), None);
        assert!(LIMITS.stalled(150.0, 10.0, None).is_some());
        assert_eq!(LIMITS.stalled(1900.0, 0.0, Some(Duration::from_secs(2))), None);
    }
}
