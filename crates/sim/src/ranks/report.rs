//! The report of a run of several ranks.

use mds::Mds;

/// The figures of a run.
#[derive(Clone, Debug, Default)]
pub struct RanksReport {
    /// The promise that was broken, if one was.
    pub violation: Option<String>,
    /// Answers that were judged.
    pub judged: u64,
    /// Subtrees that changed hands.
    pub moves: u64,
    /// Those of them that were fragments of fragments.
    pub inner_moves: u64,
    /// Those of them that had names of files with several names, all in them.
    pub linked_moves: u64,
    /// Directories that were split, and put together.
    pub splits: u64,
    /// See `splits`.
    pub joins: u64,
    /// Moves that were refused or given up.
    pub refused: u64,
    /// Requests that were sent on to another rank.
    pub redirected: u64,
    /// Requests that ended with `ESTALE` although the path of their inodes led to these.
    pub stale: u64,
    /// Files that were renamed from a directory of one rank to one of another.
    pub passed: u64,
    /// Directories that were.
    pub passed_dirs: u64,
    /// Renames of directories that were rejected because of the ranks that serve them, and because
    /// they may not leave their rank.
    pub busy_dirs: u64,
    /// See `busy_dirs`.
    pub kept_dirs: u64,
    /// Directories that went to another rank because one rank must serve both ends of a link or
    /// rename.
    pub colocated: u64,
    /// Names that there were not because neither directory could go.
    pub apart: u64,
    /// Names of files that had one already.
    pub linked: u64,
    /// Journals of a decoupled subtree that were merged.
    pub merges: u64,
    /// Servers that were killed.
    pub crashes: u64,
    /// Those of them that were killed during an export or import.
    pub crashes_moving: u64,
    /// Subtrees that changed hands because a balancer wanted it.
    pub balanced: u64,
    /// Ticks in which a policy failed.
    pub faulty_ticks: u64,
    /// The trace, if the caller wanted it.
    pub trace: Vec<String>,
}

impl RanksReport {
    /// Adds the counters of a server at its end.
    pub(super) fn count(&mut self, mds: &Mds) {
        for (name, value) in mds.counters() {
            match name.as_str() {
                "colocated" => self.colocated += value,
                "renamed_away" => self.passed += value,
                "dirs_renamed_away" => self.passed_dirs += value,
                _ => {}
            }
        }
    }
}
