//! Directories, names and content, held against one another. Of a store at rest only.

use std::collections::BTreeMap;

use types::{DirFragId, Ino};

use crate::FsckReport;
use crate::facts::{Facts, Home};
use crate::finding::{Finding, FindingKind, Subject};
use crate::survey::StoreSurvey;

/// Whether a directory needs no name.
fn is_top(dir: Ino) -> bool {
    matches!(dir, Ino::ROOT | Ino::LINKS | Ino::ANCHOR | Ino::TRASH) || dir.is_mount_stub()
}

pub(crate) fn check(survey: &StoreSurvey, facts: &mut Facts, report: &mut FsckReport) {
    facts.sort();
    let mut found = Vec::new();
    places(facts, &mut found);
    links(facts, &mut found);
    reach(survey, facts, &mut found);
    content(survey, facts, &mut found);
    numbers(facts, &mut found);
    for finding in &mut found {
        finding.path = match &finding.subject {
            Subject::Name(dir, _) => facts.path(*dir),
            Subject::Inode(ino) => facts.path(*ino),
            Subject::Object(_) => None,
        };
    }
    report.findings.extend(found);
}

/// Every inode has one home. The inode of a subtree's root is also with the rank that serves the
/// subtree: this is no second home.
fn places(facts: &Facts, found: &mut Vec<Finding>) {
    let mut older: Option<&Home> = None;
    for home in facts.homes.iter().filter(|home| home.dirfrag.ino != Ino::mount_stub(home.ino)) {
        if let Some(older) = older.filter(|older| older.ino == home.ino) {
            let kind = FindingKind::TwoPlaces(older.dirfrag, home.dirfrag);
            found.push(Finding::new(Subject::Inode(home.ino), kind));
        }
        older = Some(home);
    }
}

/// Inodes with several names have as many as they count.
fn links(facts: &Facts, found: &mut Vec<Finding>) {
    let mut names: BTreeMap<Ino, u32> = BTreeMap::new();
    for (ino, dirfrag, name) in &facts.remotes {
        if facts.links.contains_key(ino) {
            *names.entry(*ino).or_default() += 1;
        } else {
            let subject = Subject::Name(dirfrag.ino, name.to_vec());
            found.push(Finding::new(subject, FindingKind::NameOfNothing(*ino)));
        }
    }
    for (ino, counted) in &facts.links {
        let kind = match names.get(ino) {
            None => FindingKind::Nameless,
            Some(has) if has != counted => FindingKind::LinkCount(*counted, *has),
            Some(_) => continue,
        };
        found.push(Finding::new(Subject::Inode(*ino), kind));
    }
}

/// Every directory leads to the root. Of a tree without a way to the root, only the top is
/// reported.
fn reach(survey: &StoreSurvey, facts: &Facts, found: &mut Vec<Finding>) {
    let mut reached: BTreeMap<Ino, bool> = BTreeMap::new();
    let unreachable = |dir: Ino| {
        let dirfrag = DirFragId { ino: dir, ..DirFragId::default() };
        Finding::new(Subject::Inode(dir), FindingKind::Unreachable(dirfrag))
    };
    let fragments = survey.fragments.iter().filter(|(_, objects)| objects.manifest);
    let dirs = fragments.map(|(dirfrag, _)| dirfrag.ino);
    for dir in dirs.filter(|dir| !facts.removed.contains(dir)) {
        let (mut at, mut way) = (dir, Vec::new());
        let ends = loop {
            if is_top(at) {
                break true;
            }
            if let Some(known) = reached.get(&at) {
                break *known;
            }
            // A directory that comes twice on the way up is in a circle.
            reached.insert(at, false);
            way.push(at);
            match facts.dirs.get(&at) {
                Some((home, _)) if way.contains(home) => {
                    found.push(unreachable(at));
                    break false;
                }
                Some((home, _)) => at = *home,
                None => {
                    found.push(unreachable(at));
                    break false;
                }
            }
        };
        reached.extend(way.into_iter().map(|dir| (dir, ends)));
    }
}

/// Content belongs to a file in the namespace, to a client that has not merged, or to a branch. The
/// purge queue of a server is no leak.
fn content(survey: &StoreSurvey, facts: &Facts, found: &mut Vec<Finding>) {
    if !survey.branches.is_empty() {
        return;
    }
    for (ino, objects) in &survey.content {
        let is_known = facts.files.binary_search(ino).is_ok() || facts.removed.contains(ino);
        if !is_known && !facts.is_granted(*ino) {
            let kind = FindingKind::LeftContent(objects.len() as u64);
            found.push(Finding::new(Subject::Inode(*ino), kind));
        }
    }
}

/// No inode has a number that its rank will give out.
fn numbers(facts: &Facts, found: &mut Vec<Finding>) {
    let given = |home: &&Home| home.ino.0 >= Ino::FIRST_FREE && !metastore::is_of_branch(home.ino);
    for home in facts.homes.iter().filter(given) {
        let rank = home.ino.given_by();
        let next = facts.tables.iter().find(|table| table.rank == rank).map(|table| table.next);
        if next.is_some_and(|next| home.ino.0 >= next && !facts.is_granted(home.ino)) {
            found.push(Finding::new(Subject::Inode(home.ino), FindingKind::NumberNotGiven));
        }
    }
}

#[cfg(test)]
mod tests {
    use types::{DirFragId, Ino, Seq};

    use super::{check, is_top};
    use crate::FsckReport;
    use crate::facts::{Facts, Home};
    use crate::survey::{Objects, StoreSurvey};

    fn whole(dir: u64) -> DirFragId {
        DirFragId { ino: Ino(dir), ..DirFragId::default() }
    }

    /// Directories by number and parent, each with an object.
    fn found(
        dirs: &[(u64, u64)],
        change: impl FnOnce(&mut Facts, &mut StoreSurvey),
    ) -> Vec<String> {
        let (mut facts, mut survey) = (Facts::default(), StoreSurvey::default());
        for (dir, home) in dirs {
            facts.dirs.insert(Ino(*dir), (Ino(*home), format!("d{dir}").into_bytes().into()));
            facts.homes.push(Home { ino: Ino(*dir), version: Seq(1), dirfrag: whole(*home) });
            survey.fragments.insert(whole(*dir), Objects { manifest: true, ..Objects::default() });
        }
        change(&mut facts, &mut survey);
        let mut report = FsckReport::default();
        check(&survey, &mut facts, &mut report);
        report.findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_tree_adds_up() {
        assert!(is_top(Ino::mount_stub(Ino(77))));
        assert!(found(&[(10, 1), (11, 10), (12, 11)], |_, _| {}).is_empty());
    }

    #[test]
    fn only_the_top_of_what_is_cut_off_is_reported_and_circles_end() {
        let cut = found(&[(10, 9), (11, 10)], |_, survey| {
            survey.fragments.insert(whole(9), Objects { manifest: true, ..Objects::default() });
        });
        assert_eq!(cut, ["damage: inode 9 a directory without a name"]);
        let circle = found(&[(10, 12), (11, 10), (12, 11), (13, 12)], |_, _| {});
        assert_eq!(circle.len(), 1, "{circle:?}");
    }

    #[test]
    fn the_root_of_a_subtree_of_another_rank_is_in_two_places() {
        let all = found(&[(10, 1)], |facts, _| {
            let dirfrag = whole(Ino::mount_stub(Ino(10)).0);
            facts.homes.push(Home { ino: Ino(10), version: Seq(2), dirfrag });
        });
        assert!(all.is_empty(), "{all:?}");
        // A second name is one too many, also beside that.
        let all = found(&[(10, 1), (11, 1)], |facts, _| {
            let dirfrag = whole(Ino::mount_stub(Ino(10)).0);
            facts.homes.push(Home { ino: Ino(10), version: Seq(2), dirfrag });
            facts.homes.push(Home { ino: Ino(10), version: Seq(3), dirfrag: whole(11) });
        });
        assert_eq!(all, ["damage: /d10: inode 10 is in directory 1 and, later, in 11"]);
    }

    #[test]
    fn links_homes_and_content_are_counted() {
        let all = found(&[(10, 1)], |facts, survey| {
            facts.links.insert(Ino(20), 2);
            facts.links.insert(Ino(21), 1);
            facts.remotes.push((Ino(20), whole(1), b"once".as_slice().into()));
            facts.remotes.push((Ino(22), whole(10), b"gone".as_slice().into()));
            facts.homes.push(Home { ino: Ino(10), version: Seq(2), dirfrag: whole(10) });
            survey.content.insert(Ino(30), vec!["data/x".to_owned()]);
        });
        assert_eq!(
            all,
            [
                "damage: /d10: inode 10 is in directory 1 and, later, in 10",
                "damage: /d10: \"gone\" in directory 10 is a name of inode 22, which is not",
                "damage: inode 20 counts 2 names and has 1",
                "damage: inode 21 had several names and has none",
                "leak: inode 30 content in 1 objects, of a file that is not there",
            ]
        );
    }

    #[test]
    fn inodes_on_a_removal_list_are_neither_leaks_nor_nameless() {
        let all = found(&[(10, 1), (40, 1)], |facts, survey| {
            facts.dirs.remove(&Ino(40));
            facts.homes.retain(|home| home.ino != Ino(40));
            survey.content.insert(Ino(30), vec!["data/x".to_owned()]);
            facts.removed.extend([Ino(30), Ino(40)]);
        });
        assert_eq!(all, [""; 0]);
    }

    #[test]
    fn numbers_that_will_be_given_again_are_found() {
        let first = Ino::FIRST_FREE;
        let table = |next| mds::RankTable {
            rank: types::Rank(0),
            next,
            decoupled: Vec::new(),
            epoch: types::Epoch(1),
            last_client: types::ClientId(0),
        };
        let bad = found(&[(first + 5, 1)], |facts, _| facts.tables.push(table(first + 5)));
        assert_eq!(bad.len(), 1, "{bad:?}");
        let good = found(&[(first + 5, 1)], |facts, _| facts.tables.push(table(first + 6)));
        assert!(good.is_empty(), "{good:?}");
    }
}
