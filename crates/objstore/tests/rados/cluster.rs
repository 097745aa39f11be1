//! Clusters for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use objstore::Store;
use tempfile::TempDir;
use testceph::{CephCluster, CephSettings, OsdStore, Running};

const PATIENCE: Duration = Duration::from_secs(120);

/// A cluster with a directory that goes with it.
pub(crate) struct Ceph {
    pub(crate) cluster: Running,
    pub(crate) home: TempDir,
}

impl std::ops::Deref for Ceph {
    type Target = CephCluster;

    fn deref(&self) -> &CephCluster {
        &self.cluster
    }
}

/// Brings a cluster up, or says that the test is skipped.
pub(crate) fn up(change: impl FnOnce(&mut CephSettings)) -> Option<Ceph> {
    let home = tempfile::Builder::new().prefix("cudele-rados.").tempdir().unwrap();
    let mut settings = CephSettings::new(&home.path().join("ceph"));
    change(&mut settings);
    let cluster = CephCluster::unless_skipped(&settings).unwrap_or_else(|error| panic!("{error}"));
    Some(Ceph { cluster: cluster?, home })
}

/// Two OSDs that keep two copies of everything in files.
pub(crate) fn two_copies(settings: &mut CephSettings) {
    (settings.osds, settings.copies, settings.store) = (2, 2, OsdStore::File);
}

impl Ceph {
    /// A new store.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        static STORES: AtomicU64 = AtomicU64::new(0);
        let number = STORES.fetch_add(1, Ordering::Relaxed);
        self.open(&format!("&namespace=store-{number}"))
    }

    /// The store at this cluster's address with these options.
    pub(crate) fn open(&self, options: &str) -> Arc<dyn Store> {
        objstore::open(&format!("{}{options}", self.url("test"))).unwrap()
    }

    /// Ceph's own tool about a pool and a namespace.
    pub(crate) fn rados(
        &self,
        pool: &str,
        namespace: &str,
        arguments: &[&str],
    ) -> std::process::ExitStatus {
        let mut rados = std::process::Command::new("rados");
        rados.arg("-c").arg(self.conf()).args(["-p", pool, "-N", namespace]).args(arguments);
        rados.status().unwrap()
    }

    /// Names of the RADOS objects of a pool in a namespace, as Ceph's own tool shows them.
    pub(crate) fn objects(&self, pool: &str, namespace: &str) -> Vec<String> {
        let mut rados = std::process::Command::new("rados");
        rados.arg("-c").arg(self.conf()).args(["-p", pool, "-N", namespace, "ls"]);
        let output = rados.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let mut names: Vec<String> = text.lines().map(str::to_owned).collect();
        names.sort();
        names
    }
}

/// Waits for a condition that other processes bring about.
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
