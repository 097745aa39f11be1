//! How fast clients are served: closed queues, solved approximately (Schweitzer's method).
//!
//! A request visits the ranks it needs in turn and finds there, on average, the waiting requests of
//! the remaining clients.

/// One rank that a client's requests visit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Visit {
    pub(super) rank: usize,
    /// Requests answered there, of each request of the client.
    pub(super) share: f64,
    /// CPU there for each request of the client, in seconds.
    pub(super) seconds: f64,
}

/// The work of one client, for a second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Work {
    pub(super) think_seconds: f64,
    pub(super) visits: Vec<Visit>,
    /// Fragments that the requests are about.
    pub(super) units: Vec<Use>,
    /// Forwards of each request.
    pub(super) forwards: f64,
}

/// The work of a client in a fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Use {
    pub(super) part: usize,
    /// Of the client's requests.
    pub(super) share: f64,
    /// The shares of reads, writes and listings.
    pub(super) kinds: [f64; 3],
}

/// Queues of all ranks, and rates of all clients. Solutions begin with the one before.
#[derive(Clone, Debug)]
pub(super) struct Queues {
    lengths: Vec<f64>,
    /// By client: its part of each queue it visits, in the order of its visits.
    parts: Vec<Vec<(usize, f64)>>,
    rates: Vec<f64>,
    busy: Vec<f64>,
}

const ROUNDS: usize = 6;

impl Queues {
    pub(super) fn new(ranks: usize, clients: usize) -> Self {
        Self {
            lengths: vec![0.0; ranks],
            parts: vec![Vec::new(); clients],
            rates: vec![0.0; clients],
            busy: vec![0.0; ranks],
        }
    }

    /// Requests per second of a client.
    pub(super) fn rate(&self, client: usize) -> f64 {
        self.rates[client]
    }

    /// Requests at a rank, waiting or served.
    pub(super) fn length(&self, rank: usize) -> f64 {
        self.lengths[rank]
    }

    /// The busy share of a rank.
    pub(super) fn busy(&self, rank: usize) -> f64 {
        self.busy[rank].min(1.0)
    }

    /// Solves for clients that do `work` on ranks of these speeds, 1 for a whole rank.
    pub(super) fn solve(&mut self, work: &[Work], speeds: &[f64]) {
        for _ in 0..ROUNDS {
            let mut lengths = vec![0.0; self.lengths.len()];
            self.busy = vec![0.0; self.lengths.len()];
            for (client, work) in work.iter().enumerate() {
                let own = &self.parts[client];
                let waits = |visit: &super::queue::Visit| {
                    let mine = own.iter().find(|(rank, _)| *rank == visit.rank);
                    let others = self.lengths[visit.rank] - mine.map_or(0.0, |(_, part)| *part);
                    visit.seconds / speeds[visit.rank] * (1.0 + others.max(0.0))
                };
                let times: Vec<f64> = work.visits.iter().map(waits).collect();
                let cycle = work.think_seconds + times.iter().sum::<f64>();
                let rate = if work.visits.is_empty() { 0.0 } else { 1.0 / cycle.max(1e-9) };
                self.rates[client] = rate;
                let parts = work.visits.iter().zip(&times);
                self.parts[client] = parts.map(|(visit, time)| (visit.rank, rate * time)).collect();
                for (visit, time) in work.visits.iter().zip(&times) {
                    lengths[visit.rank] += rate * time;
                    self.busy[visit.rank] += rate * visit.seconds / speeds[visit.rank];
                }
            }
            self.lengths = lengths;
        }
        self.bound(work);
    }

    /// The approximation may promise a rank a little more than it can do.
    fn bound(&mut self, work: &[Work]) {
        for (client, work) in work.iter().enumerate() {
            let most = work.visits.iter().map(|visit| self.busy[visit.rank]).fold(1.0, f64::max);
            self.rates[client] /= most;
        }
    }
}
