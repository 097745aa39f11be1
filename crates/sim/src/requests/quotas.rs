//! Quotas: whether their use is what the tree shows, after crashes and merges of any kind. The
//! limits are so high that no request meets them.

use std::collections::BTreeSet;

use types::quota::{LIMITS, QuotaReport, REPORT, Usage};
use types::{Ino, XattrFlags};
use wire::Answer;

use super::Requests;
use crate::call::CallKind;
use crate::tree::Tree;
use crate::world::Drive;

/// More than any simulation makes.
const HIGH: &[u8] = b"inodes=1000000000000 bytes=1000000000000000";
/// How often a server is asked whether it has finished counting.
const ASKED_MAX: usize = 100;

/// Whether a call asks for quotas, which the model does not have.
pub(crate) fn is_report(what: &CallKind) -> bool {
    matches!(what, CallKind::GetXattr { name, .. } if name.as_bytes() == REPORT)
}

impl Requests {
    /// Sets limits of a directory.
    pub(crate) fn limit(&mut self, ino: Ino, path: &str) {
        let name = String::from_utf8_lossy(LIMITS).into_owned();
        let (value, flags) = (Some(HIGH.to_vec()), XattrFlags::default());
        let set = self.ask(CallKind::SetXattr { ino, name, value, flags });
        if !matches!(set, Ok(Answer::Done | Answer::Attr(_))) {
            self.world.check(Err(format!("setting limits: {set:?}")));
        }
        self.limited.insert(ino, path.to_owned());
    }

    /// Compares the use of each directory with limits with the tree.
    pub(crate) fn compare_quotas(&mut self, tree: &Tree, when: &str) -> Result<(), String> {
        for (ino, path) in self.limited.clone() {
            let Some(used) = self.counted(ino, &path) else { break };
            let shown = shown(tree, &path);
            // A removed tree counts until its room is given back.
            let is_right = if self.plan.trash { used >= shown } else { used == shown };
            if !is_right {
                return Err(format!("{when}: {path} has {shown:?}, counted {used:?}"));
            }
            self.world.tally.count("quotas compared", 1);
        }
        Ok(())
    }

    /// The use of a quota, once the server has counted it.
    fn counted(&mut self, ino: Ino, path: &str) -> Option<Usage> {
        let name = String::from_utf8_lossy(REPORT).into_owned();
        let question = CallKind::GetXattr { ino, name };
        for _ in 0..ASKED_MAX {
            if self.world.violation.is_some() {
                return None;
            }
            if let Ok(Answer::Data(text)) = self.ask_at(path, &question)
                && let Ok(quotas) = QuotaReport::parse_all(&text)
                && let Some(quota) = quotas.first().filter(|quota| quota.is_counted)
            {
                return Some(quota.used);
            }
            self.run_until(100_000_000, |_| false);
        }
        self.world.check(Err(format!("the server does not end counting {path}")));
        None
    }
}

/// The inodes below a path, and their lengths.
fn shown(tree: &Tree, path: &str) -> Usage {
    let (mut used, mut seen) = (Usage::default(), BTreeSet::new());
    let below = format!("{path}/");
    for (_, item) in tree.iter().filter(|(path, _)| path.starts_with(&below)) {
        if seen.insert(item.attr.ino) {
            let bytes = if item.attr.is_dir() { 0 } else { item.attr.size };
            used = used.plus(Usage { inodes: 1, bytes });
        }
    }
    used
}
