//! The decisions of a seed before a run: sizes, speeds and the kinds of faults.
//!
//! Every run uses a few features and leaves out the rest ("swarm"): a fault in every run would hide
//! the behaviour without it.

use mds::Settings;
use types::Span;

use types::rng::Rng;

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Of the metadata server.
    pub settings: Settings,
    /// Clients that work.
    pub clients: usize,
    /// Requests that a client has under way at most.
    pub window: usize,
    /// Names that are used in a directory.
    pub names: u64,
    /// Rounds of work; each ends with a comparison.
    pub rounds: u64,
    /// Requests of each client in a round, at most.
    pub requests: u64,
    /// Faults.
    pub faults: Faults,
    /// How often each kind of request is made.
    pub weights: Weights,
    /// Whether there is a volatile subtree, one that acknowledges only safe changes, and the number
    /// of decoupled ones.
    pub volatile: bool,
    /// See `volatile`.
    pub ack_safe: bool,
    /// See `volatile`.
    pub decoupled: u64,
    /// Whether clients that remember also take directories alone.
    pub exclusive: bool,
    /// Whether clients remember the strong subtree under leases, with clocks that drift apart.
    pub leases: bool,
    /// Whether trees are removed at once, restored, and removed for good.
    pub trash: bool,
    /// Regions have quotas.
    pub quotas: bool,

    /// Snapshots that are taken, looked at or forgotten in a round, at most.
    pub snapshots: u64,
    /// The longest time a message or store operation takes, in nanoseconds.
    pub delay_max: u64,
}

/// Faults, and how often they happen in a round.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Crashes of the server.
    pub crashes: u64,
    /// Broken connections.
    pub breaks: u64,
    /// Clients that are killed.
    pub kills: u64,
    /// Store operations in a hundred that fail.
    pub errors_percent: u64,
    /// Orders to stop that the server gets.
    pub stops: u64,
    /// Messages between ranks in a hundred that are lost, and those that arrive twice.
    pub lost_percent: u64,
    /// How long a client stays away after its connection broke, at most, in nanoseconds.
    pub away_max: u64,
}

/// How often each kind of request is made, relative to each other.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "one field for each kind of request")]
pub struct Weights {
    pub create: u64,
    pub mkdir: u64,
    pub remove: u64,
    pub rename: u64,
    pub link: u64,
    pub attr: u64,
    pub xattr: u64,
    pub data: u64,
    pub read: u64,
    pub sync: u64,
    pub other: u64,
}

impl Plan {
    /// The decisions of a seed.
    #[must_use]
    pub fn draw(rng: &mut Rng) -> Self {
        let ms = Span::from_millis;
        let settings = Settings {
            // The model counts.
            about_bytes: u64::MAX,
            segment_bytes_max: rng.pick(&[600, 2048, 4096, 8192]),
            dispatch: rng.pick(&[1, 1, 2, 3]),
            commit_interval: rng.pick(&[ms(0), ms(1), ms(5), ms(40)]),
            commit_bytes: rng.pick(&[64, 400, 4096]),
            segments_max: rng.pick(&[2, 3, 4]),
            capture_rows: rng.pick(&[1, 3, 16, 4096]),

            merge_events: rng.pick(&[1, 5, 64, 8192]),
            inodes_max: rng.pick(&[8, 25, 60, 100_000, 100_000]),
            observe: true,
            quiet: ms(2),
            evict: ms(2000),
            reconnect: rng.pick(&[ms(500), ms(2000)]),
            ..Settings::default()
        };
        let away_max = rng.pick(&[5, 100, 400, 3000]) * 1_000_000;
        let faults = Faults {
            crashes: rng.pick(&[0, 1, 2, 5]),
            breaks: rng.pick(&[0, 0, 3, 12]),
            kills: rng.pick(&[0, 0, 0, 1]),
            errors_percent: rng.pick(&[0, 0, 0, 2]),
            stops: rng.pick(&[0, 0, 0, 1]),
            lost_percent: 0,
            away_max,
        };
        let mut weigh = |usual: u64| rng.pick(&[0, usual, usual, usual * 3]);
        let weights = Weights {
            create: 20,
            mkdir: 6 + weigh(4),
            remove: weigh(12),
            rename: weigh(10),
            link: weigh(6),
            attr: weigh(6),
            xattr: weigh(3),
            data: weigh(4),
            read: weigh(15),
            sync: weigh(3),
            other: weigh(2),
        };
        let mut plan = Self {
            settings,
            clients: rng.pick(&[1, 2, 3, 4]),
            window: rng.pick(&[1, 1, 3, 8]),
            names: rng.pick(&[3, 6, 20]),
            rounds: rng.between(1, 3),
            requests: rng.between(10, 120),
            faults,
            weights,
            volatile: rng.percent(30),
            ack_safe: rng.percent(30),
            decoupled: rng.pick(&[0, 0, 1, 2]),
            delay_max: rng.pick(&[100_000, 1_000_000, 20_000_000]),
            // Not drawn: later draws stay the same as before this option existed.
            exclusive: rng.clone().percent(60),
            leases: rng.clone().below(1000).is_multiple_of(4),
            trash: rng.clone().below(1000) % 5 == 2,
            quotas: rng.clone().below(1000) % 7 < 3,

            snapshots: if rng.clone().below(1000) % 3 == 1 { 6 } else { 0 },
        };
        plan.settle(rng);
        if rng.percent(20) {
            plan.crowd();
        } else if plan.exclusive {
            // Time to have something alone.
            plan.requests *= 4;
        }
        plan
    }

    /// Sets what follows from the options.
    fn settle(&mut self, rng: &Rng) {
        if self.leases {
            let ms = Span::from_millis;
            self.settings.dir_lease = [ms(1000), ms(50), ms(5)][rng.clone().index(3)];
            self.settings.dir_lease_slack = Span(self.settings.dir_lease.0 / 100);
        }
        if self.trash {
            // A name that is lost with a tree is counted off at an unknown time.
            self.weights.link = 0;
        }
    }

    /// All clients work in the one strong subtree, on few names: each sees the changes of the rest.
    fn crowd(&mut self) {
        (self.clients, self.names, self.requests) = (4, 3, self.requests.max(60));
        (self.volatile, self.ack_safe, self.decoupled) = (false, false, 0);
    }
}
