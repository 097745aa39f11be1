//! The invariants of the groups of changes.

use super::Groups;

impl Groups {
    /// Checks the invariants of the groups.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(&self) {
        let sent = self.sent.iter().map(|(_, group)| group);
        let groups = sent.chain(&self.unsafe_groups).chain([&self.collected, &self.behind]);
        let found: usize = groups.map(|group| group.count).sum();
        let found = found + usize::from(self.is_holding());
        assert!(self.is_holding() || self.behind.count == 0, "others wait behind a held request");
        assert!(found == self.count, "{found} changes are under way, and {} counted", self.count);
        let order = self.sent.iter().is_sorted_by_key(|(settle, _)| *settle);
        assert!(order, "groups are settled in the order in which they were sent");
        for group in &self.unsafe_groups {
            assert!(group.seq.is_some(), "the position of a settled group is known");
            assert!(group.count > 0, "a settled group has a change");
        }
        for group in self.sent.iter().map(|(_, group)| group).filter(|group| group.count > 0) {
            assert!(group.first <= group.last, "the first change of a group is not the last");
        }
    }
}
