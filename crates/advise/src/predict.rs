//! The time of changes under a cell, from the cost of mechanisms (F-11).
//!
//! Each mechanism has a fixed cost and a cost for each change; a composition costs the sum of its
//! mechanisms, because `+` runs one after the other. Reading is not predicted: in every cell a
//! cached read costs nothing and another read costs one request.

use policy::{Cell, Guarantee, Mechanism};

/// The cost of a mechanism on a machine: seconds by the number of changes, interpolated between
/// measurements.
///
/// Not one straight line through all measurements: the fixed cost (a wait for the disk) and the
/// cost of each change differ by a factor of a thousand, and a line through two large measurements
/// guesses the fixed cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// `(changes, seconds)`, by changes; no two with the same number of them.
    points: Vec<(f64, f64)>,
}

impl Curve {
    /// The curve through measurements of `(changes, seconds)`, in any order. The last of several
    /// measurements with the same number of changes counts.
    #[must_use]
    pub fn through(measured: &[(f64, f64)]) -> Self {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for point in measured.iter().filter(|point| point.0 > 0.0 && point.1.is_finite()) {
            match points.iter_mut().find(|known| known.0.total_cmp(&point.0).is_eq()) {
                Some(known) => *known = *point,
                None => points.push(*point),
            }
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Self { points }
    }

    /// Seconds for a number of changes: between two measurements on the line through them, beyond
    /// them on the line through the nearest two. With one measurement, in proportion.
    #[must_use]
    pub fn of(&self, changes: f64) -> f64 {
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else {
            return 0.0;
        };
        let above = self.points.iter().position(|point| point.0 >= changes);
        let at = above.unwrap_or(self.points.len()).clamp(1, self.points.len().max(2) - 1);
        let (Some(low), Some(high)) = (self.points.get(at - 1), self.points.get(at)) else {
            return last.1 / last.0 * changes;
        };
        let each = (high.1 - low.1) / (high.0 - low.0);
        if changes < first.0 {
            // The fixed cost is at least 0 and at most the smallest measurement.
            let once = (first.1 - each * first.0).clamp(0.0, first.1);
            return once + (first.1 - once) / first.0 * changes;
        }
        if changes > last.0 && each <= 0.0 {
            // More changes that took less time are noise.
            return last.1 / last.0 * changes;
        }
        low.1 + each * (changes - low.0)
    }
}

/// The costs of mechanisms on a machine, as `cudele bench mechanisms` measures them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    /// `append_client_journal`.
    pub append: Curve,
    /// `local_persist`, with everything that completing a job waits for beside it.
    pub local: Curve,
    /// `global_persist`, likewise.
    pub global: Curve,
    /// `volatile_apply`, likewise.
    pub apply: Curve,
    /// `nonvolatile_apply`, likewise.
    pub store: Curve,
    /// `rpcs`.
    pub rpcs: Curve,
    /// `rpcs` and `stream` together.
    pub stream: Curve,
    /// `rpcs` with the client's log of them, which waits for the client's disk at each; None for
    /// costs that an older version measured.
    pub logged: Option<Curve>,
    /// Bytes of journal for each change.
    pub bytes: f64,
}

/// The acts of a program, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Job {
    /// Names made, changed and removed, by each client.
    pub changes: f64,
}

/// The cost of a job under a cell.
#[derive(Clone, Copy, Debug)]
pub struct Prediction {
    /// The cell.
    pub cell: Cell,
    /// Until its composition is complete.
    pub seconds: f64,
    /// Of journal, wherever it is written.
    pub bytes: f64,
    /// What survives.
    pub guarantee: Guarantee,
}

/// Predicts a job under each of the nine cells.
#[must_use]
pub fn predict(costs: &Costs, job: Job) -> Vec<Prediction> {
    let of = |cell: Cell| {
        let mechanisms: Vec<Mechanism> = cell.composition().mechanisms().collect();
        let streams = mechanisms.contains(&Mechanism::Stream);
        let logs =
            mechanisms.contains(&Mechanism::Rpcs) && mechanisms.contains(&Mechanism::LocalPersist);
        // Persisting request by request is not persisting a journal at once.
        let logged = costs.logged.as_ref().filter(|_| logs);
        let curve = |mechanism: &Mechanism| match mechanism {
            Mechanism::AppendClientJournal => Some(&costs.append),
            Mechanism::LocalPersist => logged.is_none().then_some(&costs.local),
            Mechanism::GlobalPersist => Some(&costs.global),
            Mechanism::VolatileApply => Some(&costs.apply),
            Mechanism::NonvolatileApply => Some(&costs.store),
            Mechanism::Rpcs if streams => Some(&costs.stream),
            Mechanism::Rpcs => logged.or(Some(&costs.rpcs)),
            // Measured together with `rpcs`.
            Mechanism::Stream => None,
        };
        let seconds = mechanisms.iter().filter_map(curve).map(|curve| curve.of(job.changes)).sum();
        let is_journal = |mechanism: &Mechanism| {
            !matches!(mechanism, Mechanism::Rpcs | Mechanism::VolatileApply)
        };
        let bytes = if mechanisms.iter().any(is_journal) { costs.bytes * job.changes } else { 0.0 };
        Prediction { cell, seconds, bytes, guarantee: cell.guarantee() }
    };
    Cell::all().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::{Costs, Curve, Job, predict};

    #[test]
    fn curves_go_through_what_was_measured() {
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} is not {b}");
        let curve = Curve::through(&[(1100.0, 12.0), (100.0, 2.0), (5100.0, 92.0)]);
        for (changes, seconds) in [(100.0, 2.0), (600.0, 7.0), (1100.0, 12.0), (3100.0, 52.0)] {
            near(curve.of(changes), seconds);
        }
        // Beyond the measurements the nearest line continues.
        near(curve.of(0.0), 1.0);
        near(curve.of(10_100.0), 192.0);
        // The fixed cost is never negative.
        near(Curve::through(&[(100.0, 1.0), (200.0, 9.0)]).of(50.0), 0.5);
        // A falling line is noise, and no line is drawn through noise.
        let noise = Curve::through(&[(100.0, 2.0), (200.0, 1.0)]);
        near(noise.of(400.0), 2.0);
        near(noise.of(50.0), 2.0);
        near(Curve::through(&[(10.0, 1.0)]).of(20.0), 2.0);
        near(Curve::through(&[(10.0, 1.0), (10.0, 3.0)]).of(20.0), 6.0);
        near(Curve::through(&[]).of(20.0), 0.0);
    }

    #[test]
    fn a_composition_costs_the_sum_of_its_mechanisms() {
        let each = |each| Curve::through(&[(1.0, each)]);
        let costs = Costs {
            append: each(1.0),
            local: each(2.0),
            global: each(4.0),
            apply: each(8.0),
            rpcs: each(100.0),
            stream: each(150.0),
            bytes: 3.0,
            ..Costs::default()
        };
        let said: Vec<String> = predict(&costs, Job { changes: 10.0 })
            .iter()
            .map(|it| format!("{} {} {}", it.cell, it.seconds, it.bytes))
            .collect();
        assert_eq!(
            said,
            [
                "invisible-none 10 30",
                "invisible-local 30 30",
                "invisible-global 50 30",
                "weak-none 90 30",
                "weak-local 110 30",
                "weak-global 130 30",
                "strong-none 1000 0",
                "strong-local 1020 30",
                "strong-global 1500 30",
            ]
        );
        // A log that waits for the disk at each request costs more than a journal at once.
        let costs = Costs { logged: Some(each(170.0)), ..costs };
        let said = predict(&costs, Job { changes: 10.0 });
        let strong: Vec<f64> = said.iter().skip(6).map(|it| it.seconds).collect();
        assert_eq!(strong, [1000.0, 1700.0, 1500.0]);
    }
}
