//! Clusters for tests.

use std::sync::Arc;

use objstore::Store;
use tempfile::TempDir;
use testceph::{CephCluster, CephSettings, Running};

/// A cluster with a directory that goes with it.
pub(crate) struct Ceph {
    pub(crate) cluster: Running,
    _home: TempDir,
}

/// Brings a cluster up, or says that the test is skipped.
pub(crate) fn up(change: impl FnOnce(&mut CephSettings)) -> Option<Ceph> {
    let home = tempfile::Builder::new().prefix("cudele-engine.").tempdir().unwrap();
    let mut settings = CephSettings::new(&home.path().join("ceph"));
    change(&mut settings);
    let cluster = CephCluster::unless_skipped(&settings).unwrap_or_else(|error| panic!("{error}"));
    Some(Ceph { cluster: cluster?, _home: home })
}

impl Ceph {
    /// A new connection to the store.
    pub(crate) fn open(&self) -> Arc<dyn Store> {
        objstore::open(&self.cluster.url("test")).unwrap()
    }
}
