//! What clients do: five kinds of work that metadata servers meet.

use super::{Setup, count};
use types::rng::mix;

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Every client creates files in a directory of its own.
    Private,
    /// All clients create files in the same directory.
    Shared,
    /// Every client unpacks a source tree of 32 directories and compiles it: the hot directories
    /// change, and most requests walk along paths.
    Compile,
    /// All clients are nearly idle, and for 20 of each 60 seconds all create files in a new
    /// directory.
    Checkpoint,
    /// 64 directories that all clients read and write; four of them, other ones each minute, have
    /// most of it.
    Hotspot,
}

/// The work of one client in one second.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Activity {
    /// Directories, and the share of requests that each gets.
    pub(super) dirs: Vec<(usize, f64)>,
    /// Reads, writes and listings of each request.
    pub(super) kinds: [f64; 3],
    /// The same of each request to a directory, where it is not the same for all.
    pub(super) each: Vec<[f64; 3]>,
    /// Requests that walk along a path which the client does not remember.
    pub(super) traverses: f64,
    pub(super) think_seconds: f64,
    /// Work of a request, in creates.
    pub(super) weight: f64,
}

const SOURCES: usize = 32;
const HOT_SOURCES: usize = 4;
const HOT_DIRS: usize = 64;
const STORM_EVERY: u32 = 60;
const STORM_SECONDS: u32 = 20;
/// Directories of checkpoints, used in turn.
const STORMS: usize = 16;

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 5] =
        [Self::Private, Self::Shared, Self::Compile, Self::Checkpoint, Self::Hotspot];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Shared => "shared",
            Self::Compile => "compile",
            Self::Checkpoint => "checkpoint",
            Self::Hotspot => "hotspot",
        }
    }

    /// The workload of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|workload| workload.name() == name)
    }

    /// The directories, each with the number of the one that it stands in. The first is the root.
    pub(super) fn tree(self, clients: u16) -> Vec<Option<usize>> {
        let clients = usize::from(clients);
        let mut tree = vec![None];
        match self {
            Self::Private => tree.extend(vec![Some(0); clients]),
            Self::Shared => tree.push(Some(0)),
            Self::Compile => {
                tree.extend(vec![Some(0); clients]);
                for client in 0..clients {
                    tree.extend([Some(1 + client); SOURCES]);
                }
            }
            Self::Checkpoint => {
                tree.push(Some(0));
                tree.extend([Some(1); STORMS]);
                tree.extend(vec![Some(0); clients]);
            }
            Self::Hotspot => {
                // Eight projects of eight directories.
                tree.extend([Some(0); 8]);
                tree.extend((0..HOT_DIRS).map(|dir| Some(1 + dir / 8)));
            }
        }
        tree
    }

    pub(super) fn activity(self, setup: &Setup, client: u16, second: u32) -> Activity {
        let me = usize::from(client);
        let creates = |dirs| Activity {
            dirs,
            kinds: [0.0, 1.0, 0.0],
            each: Vec::new(),
            traverses: 0.002,
            think_seconds: setup.model.think_seconds,
            weight: 1.0,
        };
        match self {
            Self::Private => creates(vec![(1 + me, 1.0)]),
            Self::Shared => Activity { traverses: 0.02, ..creates(vec![(1, 1.0)]) },
            Self::Compile => compile(setup, me, second),
            Self::Checkpoint if second % STORM_EVERY < STORM_SECONDS => {
                let storm = usize::try_from(second / STORM_EVERY).unwrap_or(0) % STORMS;
                Activity { traverses: 0.02, ..creates(vec![(2 + storm, 1.0)]) }
            }
            Self::Checkpoint => Activity {
                kinds: [0.9, 0.1, 0.0],
                think_seconds: 0.1,
                weight: 0.4,
                ..creates(vec![(2 + STORMS + me, 1.0)])
            },
            Self::Hotspot => hotspot(setup, second),
        }
    }
}

/// A minute of unpacking, one directory after the other, then compiling, which has four hot
/// directories for 40 seconds each; again from the start every five minutes.
fn compile(setup: &Setup, me: usize, second: u32) -> Activity {
    let first = 1 + usize::from(setup.clients) + me * SOURCES;
    // Clients begin a few seconds apart.
    let second = (second + 7 * u32::try_from(me).unwrap_or(0)) % 300;
    if second < 60 {
        let dir = usize::try_from(second).unwrap_or(0) * SOURCES / 60;
        return Activity {
            dirs: vec![(first + dir, 1.0)],
            kinds: [0.2, 0.8, 0.0],
            each: Vec::new(),
            traverses: 0.05,
            think_seconds: setup.model.think_seconds,
            weight: 0.9,
        };
    }
    let phase = u64::from(second / 40);
    let mut dirs: Vec<(usize, f64)> =
        (0..SOURCES).map(|dir| (first + dir, 0.2 / count(SOURCES))).collect();
    for hot in 0..HOT_SOURCES {
        let dir = usize::try_from(mix(setup.seed ^ (phase << 8) ^ hot as u64) >> 33).unwrap_or(0);
        dirs[dir % SOURCES].1 += 0.8 / count(HOT_SOURCES);
    }
    Activity {
        dirs,
        kinds: [0.75, 0.2, 0.05],
        each: Vec::new(),
        traverses: 0.15,
        // The compiler works between two requests, too.
        think_seconds: setup.model.think_seconds * 2.0,
        weight: 0.6,
    }
}

fn hotspot(setup: &Setup, second: u32) -> Activity {
    let phase = u64::from(second / 60);
    let first = 1 + 8;
    let mut dirs: Vec<(usize, f64)> =
        (0..HOT_DIRS).map(|dir| (first + dir, 0.2 / count(HOT_DIRS))).collect();
    for hot in 0..4u64 {
        let dir = usize::try_from(mix(setup.seed ^ (phase << 16) ^ hot) >> 33).unwrap_or(0);
        dirs[dir % HOT_DIRS].1 += 0.2;
    }
    Activity {
        dirs,
        kinds: [0.7, 0.3, 0.0],
        each: Vec::new(),
        traverses: 0.05,
        think_seconds: setup.model.think_seconds,
        weight: 0.6,
    }
}
