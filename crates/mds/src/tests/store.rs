//! An object store in memory that executes the operations of servers at once, and never fails.

use std::collections::BTreeMap;

use metastore::request::{Condition, LoadedDir, StoreOp, StoreResult};
use metastore::{Manifest, RowValue, Rows};
use types::{DirFragId, Frag, Ino};

/// A directory: its manifest, and each live row in a buffer of its own.
#[derive(Debug)]
struct StoredDir {
    manifest: Manifest,
    rows: BTreeMap<Vec<u8>, Rows>,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Store {
    objects: BTreeMap<String, (Vec<u8>, u64)>,
    dirs: BTreeMap<Ino, StoredDir>,
    versions: u64,
    snapshots: u64,
}

impl Store {
    /// Executes an operation.
    pub(crate) fn execute(&mut self, op: StoreOp) -> StoreResult {
        match op {
            StoreOp::Append { object, data } => {
                self.objects.entry(object).or_default().0.extend_from_slice(&data);
                StoreResult::Done
            }
            StoreOp::Put { object, data, condition } => self.put(object, data, condition),
            StoreOp::Get { object } => match self.objects.get(&object) {
                Some((bytes, version)) => StoreResult::Bytes(bytes.clone(), *version),
                None => StoreResult::Missing,
            },
            StoreOp::List { prefix } => StoreResult::Names(self.names(&prefix)),
            StoreOp::Delete { objects } => {
                objects.iter().for_each(|object| drop(self.objects.remove(object)));
                StoreResult::Done
            }
            StoreOp::PurgeData { ino, pool, .. } => {
                for object in self.names(&metastore::data_prefix(ino, pool)) {
                    self.objects.remove(&object);
                }
                StoreResult::Done
            }
            StoreOp::PurgeDir { ino } => {
                self.dirs.remove(&ino);
                StoreResult::Done
            }
            StoreOp::LoadDir { ino } | StoreOp::LookUp { ino, .. } => self.load(ino),
            StoreOp::CompactDir { .. } => StoreResult::Written { compact: false, bytes: (0, 0) },
            StoreOp::TakeSnapshot { .. } => {
                self.snapshots += 1;
                StoreResult::Stored(self.snapshots)
            }
            StoreOp::CommitDir { ino, rows, counts, position, touched, attach } => {
                assert!(attach.is_none(), "runs of clients are tested with the engine");
                let dir = self.dirs.entry(ino).or_insert_with(|| StoredDir {
                    manifest: Manifest::new(DirFragId { ino, frag: Frag::WHOLE }),
                    rows: BTreeMap::new(),
                });
                dir.commit(&rows);
                let manifest = &mut dir.manifest;
                (manifest.entries, manifest.subdirs, manifest.counts_exact) = counts;
                (manifest.position, manifest.touched) = (position, touched);
                StoreResult::Written { compact: false, bytes: (rows.bytes() as u64, 0) }
            }
            StoreOp::AttachDirs { .. } | StoreOp::ProveRuns { .. } => {
                panic!("runs of clients are tested with the engine")
            }
        }
    }

    fn put(&mut self, object: String, data: Vec<u8>, condition: Condition) -> StoreResult {
        let known = self.objects.get(&object).map(|(_, version)| *version);
        let holds = match condition {
            Condition::Any => true,
            Condition::Absent => known.is_none(),
            Condition::Version(version) => known == Some(version),
        };
        if !holds {
            return StoreResult::Conflict;
        }
        self.versions += 1;
        self.objects.insert(object, (data, self.versions));
        StoreResult::Stored(self.versions)
    }

    fn load(&self, ino: Ino) -> StoreResult {
        let Some(dir) = self.dirs.get(&ino) else { return StoreResult::Missing };
        let mut rows = Rows::new();
        for row in dir.rows.values().flat_map(Rows::iter) {
            rows.push(row.name, row.value);
        }
        StoreResult::Dir(Box::new(LoadedDir { manifest: dir.manifest.clone(), rows }))
    }

    /// The objects with a prefix.
    pub(crate) fn names(&self, prefix: &str) -> Vec<String> {
        let names = self.objects.keys().filter(|name| name.starts_with(prefix));
        names.cloned().collect()
    }

    /// The bytes of an object.
    pub(crate) fn object(&self, name: &str) -> Option<&[u8]> {
        self.objects.get(name).map(|(bytes, _)| bytes.as_slice())
    }

    /// The names in a stored directory.
    pub(crate) fn names_in(&self, dir: Ino) -> Vec<String> {
        let names = self.dirs.get(&dir).into_iter().flat_map(|dir| dir.rows.keys());
        names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    }
}

impl StoredDir {
    fn commit(&mut self, rows: &Rows) {
        for row in rows.iter() {
            if matches!(row.value, RowValue::Removed) {
                self.rows.remove(row.name);
                continue;
            }
            let mut one = Rows::new();
            one.push(row.name, row.value);
            self.rows.insert(row.name.to_vec(), one);
        }
    }
}
