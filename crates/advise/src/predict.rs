//! How long changes take under a cell, from what mechanisms cost (F-11).
//!
//! Each mechanism costs something at once and something for each change; a composition costs the sum of its
//! mechanisms, because `+` is one after the other. Reading is not predicted: what is remembered costs nothing, what
//! is not costs a request in every cell.

use policy::{Cell, Guarantee, Mechanism};

/// What a mechanism costs on a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Line {
    /// Seconds, however many changes there are.
    pub fixed: f64,
    /// Seconds for each change.
    pub each: f64,
}

impl Line {
    /// The line through measurements of `(changes, seconds)`: two or more, or one, which then goes through 0.
    #[must_use]
    pub fn through(points: &[(f64, f64)]) -> Self {
        let (Some(first), Some(last)) = (points.first(), points.last()) else {
            return Self::default();
        };
        let each = (last.1 - first.1) / (last.0 - first.0);
        if points.len() < 2 || !each.is_finite() || each <= 0.0 || first.1 < each * first.0 {
            return Self { fixed: 0.0, each: last.1 / last.0.max(1.0) };
        }
        Self { fixed: first.1 - each * first.0, each }
    }

    fn of(self, changes: f64) -> f64 {
        self.fixed + self.each * changes
    }
}

/// What mechanisms cost on a machine, as `cudele bench mechanisms` measures them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// `append_client_journal`.
    pub append: Line,
    /// `local_persist`.
    pub local: Line,
    /// `global_persist`.
    pub global: Line,
    /// `volatile_apply`.
    pub apply: Line,
    /// `nonvolatile_apply`.
    pub store: Line,
    /// `rpcs`.
    pub rpcs: Line,
    /// `rpcs` and `stream` together.
    pub stream: Line,
    /// `rpcs` with the client's log of them, which waits for the client's disk at each; not known of costs that
    /// were measured by an older version.
    pub logged: Option<Line>,
    /// Bytes of journal for each change.
    pub bytes: f64,
}

/// What a program does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Job {
    /// Names made, changed and removed, by each client.
    pub changes: f64,
}

/// What a job costs under a cell.
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
        let logged = costs.logged.filter(|_| logs);
        let line = |mechanism: &Mechanism| match mechanism {
            Mechanism::AppendClientJournal => costs.append,
            Mechanism::LocalPersist if logged.is_some() => Line::default(),
            Mechanism::LocalPersist => costs.local,
            Mechanism::GlobalPersist => costs.global,
            Mechanism::VolatileApply => costs.apply,
            Mechanism::NonvolatileApply => costs.store,
            Mechanism::Rpcs if streams => costs.stream,
            Mechanism::Rpcs => logged.unwrap_or(costs.rpcs),
            // Measured together with `rpcs`.
            Mechanism::Stream => Line::default(),
        };
        let seconds = mechanisms.iter().map(|mechanism| line(mechanism).of(job.changes)).sum();
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
    use super::{Costs, Job, Line, predict};

    #[test]
    fn lines_go_through_what_was_measured() {
        let line = Line::through(&[(100.0, 2.0), (1100.0, 12.0)]);
        assert!((line.each - 0.01).abs() < 1e-12 && (line.fixed - 1.0).abs() < 1e-9, "{line:?}");
        // What is noise more than a line goes through the last point.
        assert_eq!(Line::through(&[(100.0, 2.0), (200.0, 1.0)]), Line { fixed: 0.0, each: 0.005 });
        assert_eq!(Line::through(&[(10.0, 1.0)]), Line { fixed: 0.0, each: 0.1 });
        assert_eq!(Line::through(&[]), Line::default());
    }

    #[test]
    fn a_composition_costs_the_sum_of_its_mechanisms() {
        let each = |each| Line { fixed: 0.0, each };
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
