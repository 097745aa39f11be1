//! The load of subtrees, for metrics.

use types::Ino;

use super::load::whole;
use crate::Mds;

/// Subtrees beyond the hottest ones are left out.
const SHOWN_MAX: usize = 64;

/// How often a subtree was used lately: hits a second, faded by half in every half-life.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SubtreeLoad {
    /// Its root.
    pub root: Ino,
    /// The path of its root, if it was asked for and is known.
    pub path: Option<String>,
    /// The kinds of hits, each with its rate.
    pub rates: [(&'static str, f64); 5],
}

/// The load of these subtrees of a rank, the hottest first.
pub(crate) fn subtree_loads(mds: &Mds, roots: &[Ino], paths: bool) -> Vec<SubtreeLoad> {
    let now = mds.clock.now;
    let half_life = super::view::seconds(mds.settings.balance_half_life);
    // A steady rate r adds up to r * half-life / ln 2.
    let factor = if half_life > 0.0 { std::f64::consts::LN_2 / half_life } else { 0.0 };
    let mut loads: Vec<_> = roots
        .iter()
        .map(|root| (*root, mds.balance.table.nested(whole(*root), now).times(factor)))
        .collect();
    loads.sort_by(|(_, a), (_, b)| b.sum().total_cmp(&a.sum()));
    loads.truncate(SHOWN_MAX);
    let shown = loads.into_iter().map(|(root, counts)| {
        let path = if paths { mds.namespace.path_of(root) } else { None };
        let path = path.map(|path| String::from_utf8_lossy(&path.to_bytes()).into_owned());
        let rates = [
            ("inode_read", counts.inode_reads),
            ("inode_write", counts.inode_writes),
            ("readdir", counts.readdirs),
            ("fetch", counts.fetches),
            ("store", counts.stores),
        ];
        SubtreeLoad { root, path, rates }
    });
    shown.collect()
}
