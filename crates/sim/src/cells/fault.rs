//! Faults, and when they strike.

use types::rng::Rng;

/// A fault of the client that works on a subtree, or of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The client's process is killed; its machine keeps running.
    Kill,
    /// The client's machine loses its power: unsynced data is torn.
    Power,
    /// The client's machine and its disk never come back.
    Gone,
    /// The server is killed, and its unsynced writes to the store are torn.
    Server,
    /// The server gets the order to stop.
    Stop,
    /// The process is killed, then the server.
    KillServer,
    /// The client's machine loses its power, then the server is killed.
    PowerServer,
    /// The client's machine never comes back, and the server is killed.
    GoneServer,
}

impl Fault {
    pub(super) const ALL: [Self; 8] = [
        Self::Kill,
        Self::Power,
        Self::Gone,
        Self::Server,
        Self::Stop,
        Self::KillServer,
        Self::PowerServer,
        Self::GoneServer,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Power => "power",
            Self::Gone => "gone",
            Self::Server => "server",
            Self::Stop => "stop",
            Self::KillServer => "kill+server",
            Self::PowerServer => "power+server",
            Self::GoneServer => "gone+server",
        }
    }

    /// Whether the client's process ends, and the fate of its machine.
    pub(super) fn ends_client(self) -> bool {
        !matches!(self, Self::Server | Self::Stop)
    }

    pub(super) fn cuts_power(self) -> bool {
        matches!(self, Self::Power | Self::PowerServer)
    }

    pub(super) fn takes_disk(self) -> bool {
        matches!(self, Self::Gone | Self::GoneServer)
    }

    pub(super) fn kills_server(self) -> bool {
        matches!(self, Self::Server | Self::KillServer | Self::PowerServer | Self::GoneServer)
    }
}

/// A fault that strikes after some steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fuse {
    pub(super) steps: u64,
    pub(super) fault: Fault,
}

impl Fuse {
    /// Each step of the next operation is equally likely, for three steps as for three hundred.
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let most = rng.pick(&[4, 12, 30, 80, 250]);
        Self { steps: rng.below(most), fault: rng.pick(&Fault::ALL) }
    }
}
