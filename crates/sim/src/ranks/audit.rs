//! Invariants at all times, and in the end, when everything is healed.

use std::collections::BTreeMap;

use metastore::request::{StoreOp, Token};
use metastore::{SUBTREES_NAME, Subtrees};
use objstore::ObjectStore;
use types::Ino;

use super::script::Script;
use super::{Drive, Event, PATIENCE, Ranks};

impl Ranks {
    /// Only the rank that serves a subtree writes its root directory.
    pub(super) fn check_writer(&mut self, server: usize, token: Token) {
        let Some(StoreOp::CommitDir { ino, .. } | StoreOp::CompactDir { ino }) =
            self.world.servers[server].disk.submitted(token)
        else {
            return;
        };
        let Ok((bytes, _)) = self.world.memory.get(SUBTREES_NAME) else { return };
        let list = Subtrees::decode(&bytes).unwrap_or_default();
        let served = list.unjoined_at(*ino).map(|subtree| subtree.rank);
        if served.is_some_and(|rank| usize::from(rank.0) != server) {
            let text = format!("mds.{server} writes {ino}, which is of another rank");
            self.world.fail(text);
        }
    }

    /// Each directory has one authority, and the expected entries.
    pub(super) fn audit(&mut self) {
        if self.world.violation.is_some() {
            return;
        }
        self.at_rest = true;
        let mut dirs = self.workers[0].dirs.clone();
        let inner = self.inner();
        dirs.extend(inner.filter(|_| self.workers[0].moved_inner));
        dirs.extend(self.tree.bases.iter().copied());
        // The last importer of a subtree may not know of it yet, nor the rank of the surrounding
        // subtree.
        self.run_until(PATIENCE, |run| {
            let serves = |dir: Ino| {
                let servers = run.world.servers.iter().filter_map(|it| it.mds.as_ref());
                servers.filter(|mds| mds.serves(dir)).count()
            };
            dirs.iter().all(|dir| serves(*dir) == 1)
        });
        for dir in dirs {
            let serving = (0..self.world.servers.len()).filter(|server| {
                self.world.servers[*server].mds.as_ref().is_some_and(|mds| mds.serves(dir))
            });
            let serving: Vec<usize> = serving.collect();
            if serving.len() != 1 {
                return self.world.fail(format!("{dir} is served by {serving:?}"));
            }
            self.workers[0].script.push_back(Script::list(dir));
            self.workers[0].script.push_back(Script::stat(dir));
        }
        self.audit_tree();
        self.audit_locks();
        self.world.schedule(1, Event::Turn(0));

        self.run_until(PATIENCE, Self::is_done);
        if !self.is_done() {
            self.world.fail("the last listings never ended".into());
        }
        let dirs = self.workers[0].dirs.clone();
        let leaves: Vec<Ino> = dirs
            .into_iter()
            .flat_map(|dir| self.world.clients[0].router.fragments().leaves(dir))
            .collect();
        let serving = |run: &Self, leaf: Ino| {
            let servers = run.world.servers.iter().filter_map(|it| it.mds.as_ref());
            servers.filter(|mds| mds.serves(leaf)).count()
        };
        self.audit_links();
        self.audit_opens();
        // Small fragments go to the first rank by themselves.
        self.run_until(PATIENCE, |run| leaves.iter().all(|leaf| serving(run, *leaf) == 1));
        for leaf in leaves {
            let serving = serving(self, leaf);
            if serving != 1 && self.world.violation.is_none() {
                return self.world.fail(format!("{leaf} is served by {serving} ranks"));
            }
        }
    }

    /// Each file that has, or had, several names is stored by one rank, and no file without a name
    /// is stored. Checked as far as ranks have it in memory.
    fn audit_links(&mut self) {
        let mut kept: BTreeMap<Ino, Vec<usize>> = BTreeMap::new();
        for (number, server) in self.world.servers.iter().enumerate() {
            let Some(mds) = &server.mds else { continue };
            for (_, ino) in mds.namespace().dirs().names_in(Ino::LINKS, None, usize::MAX) {
                kept.entry(ino).or_default().push(number);
            }
        }
        for (ino, ranks) in kept {
            if ranks.len() > 1 {
                return self.world.fail(format!("{ino} is kept by the ranks {ranks:?}"));
            }
            if self.registers.names_of(ino) == 0 {
                return self.world.fail(format!("{ino} has no name, and rank {ranks:?} keeps it"));
            }
        }
    }
}
