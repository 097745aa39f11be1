//! Reads the whole namespace back through the protocol, as a client that trusts no cache.

use std::collections::BTreeMap;

use types::{Attr, Errno, Error, Ino, Result};
use wire::Answer;

use super::Requests;
use crate::call::{Call, CallKind};
use crate::invariants::liveness;
use crate::tree::{Item, Tree};
use crate::world::{Drive, Routes};

/// How often a question is repeated when the server says *not now* or does not know an inode.
const TRIES_MAX: usize = 40;

impl Requests {
    /// Makes a request of the simulation itself and waits for the answer.
    pub(crate) fn ask(&mut self, what: CallKind) -> Result<Answer> {
        self.ask_as(0, what, Vec::new())
    }

    fn ask_as(
        &mut self,
        client: usize,
        what: CallKind,
        paths: Vec<(String, Ino)>,
    ) -> Result<Answer> {
        let number = self.begin(client, Call::root(what.clone()), None, paths);
        self.workers[client].asked.insert(number, None);
        let within = liveness::ANSWERED_WITHIN.0;
        let answered =
            |run: &Self| run.workers[client].asked.get(&number).is_some_and(Option::is_some);
        if !self.run_until(within, answered) {
            self.world.check(liveness::check([format!("{what:?}")].into_iter()));
        }
        let answer = self.workers[client].asked.remove(&number).flatten();
        answer.unwrap_or_else(|| Err(Error::of(Errno::TimedOut, "answer")))
    }

    /// The client that may look at a path: the owner of a subtree that blocks all other clients.
    fn reader_of(&self, path: &str) -> usize {
        let region = self.oracle.regions.iter().find(|region| region.holds(path));
        let owner = region.and_then(|region| region.owner).map(|(owner, _)| owner);
        let owner = self.world.clients.iter().position(|client| Some(client.id) == owner);
        owner.unwrap_or(0)
    }

    /// As [`Requests::ask`], until the server can answer. The path is that of the inode.
    pub(crate) fn ask_at(&mut self, path: &str, what: &CallKind) -> Result<Answer> {
        let reader = self.reader_of(path);
        let paths = what.touched().0.into_iter().map(|ino| (path.to_owned(), ino));
        let paths: Vec<_> = paths.collect();
        let mut result = Err(Error::of(Errno::TimedOut, "answer"));
        for _ in 0..TRIES_MAX {
            if self.world.violation.is_some() {
                break;
            }
            result = self.ask_as(reader, what.clone(), paths.clone());
            match result.as_ref().map_err(|error| error.errno) {
                Err(Errno::Stale) if !paths.is_empty() => {}
                Err(Errno::Again | Errno::Io | Errno::NoSpace) => {
                    self.run_until(600_000_000, |_| false);
                }
                Ok(_) | Err(_) => break,
            }
        }
        result
    }

    /// Everything below the root, and the root itself.
    pub fn read_tree(&mut self) -> Tree {
        let mut tree = Tree::new();
        let mut todo = vec![(String::new(), Ino::ROOT)];
        while let Some((path, ino)) = todo.pop() {
            if self.world.violation.is_some() {
                break;
            }
            let item = self.read_item(&path, ino);
            if item.attr.is_dir() {
                for (name, ino) in self.read_names(&path, ino) {
                    todo.push((format!("{path}/{name}"), ino));
                }
            }
            tree.insert(path, item);
        }
        tree
    }

    fn read_item(&mut self, path: &str, ino: Ino) -> Item {
        let mut item = Item::default();
        match self.ask_at(path, &CallKind::GetAttr { ino }) {
            Ok(Answer::Attr(attr)) => item.attr = attr,
            other => self.world.check(Err(format!("{path} is listed, but {ino} is {other:?}"))),
        }
        if let Ok(Answer::Data(data)) = self.ask_at(path, &CallKind::GetData { ino }) {
            item.data = data;
        }
        item.xattrs = self.read_xattrs(path, ino);
        item
    }

    pub(crate) fn read_xattrs(&mut self, path: &str, ino: Ino) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut xattrs = BTreeMap::new();
        if let Ok(Answer::Names(names)) = self.ask_at(path, &CallKind::ListXattr { ino }) {
            for name in names {
                let what = CallKind::GetXattr { ino, name: String::from_utf8_lossy(&name).into() };
                if let Ok(Answer::Data(value)) = self.ask_at(path, &what) {
                    xattrs.insert(name, value);
                }
            }
        }
        xattrs
    }

    pub(crate) fn read_names(&mut self, path: &str, dir: Ino) -> Vec<(String, Ino)> {
        let entries = self.read_entries(path, dir).into_iter();
        entries.map(|(name, attr)| (name, attr.ino)).collect()
    }

    pub(crate) fn read_entries(&mut self, path: &str, dir: Ino) -> Vec<(String, Attr)> {
        let mut names = Vec::new();
        let mut after = None;
        loop {
            let what = CallKind::List { dir, after: after.clone(), limit: 7, attrs: true };
            let Ok(Answer::Entries { entries, more }) = self.ask_at(path, &what) else {
                return names;
            };
            for (name, attr) in entries {
                names.push((String::from_utf8_lossy(&name).into_owned(), attr));
            }
            after = names.last().map(|(name, _)| name.clone());
            if !more {
                return names;
            }
        }
    }
}
