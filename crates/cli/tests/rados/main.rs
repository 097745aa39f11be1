//! The program on a real Ceph cluster: `cudele up --store rados://…`, the main job, killed and
//! sleeping servers.
//!
//! `cargo xtask ci rados` runs these tests; each brings a cluster up and takes it down again. Where
//! Ceph is not installed they fail and say which packages are missing, unless
//! `CUDELE_TEST_RADOS=skip`.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "I/O edge: tests start daemons and kill them"
)]

mod branches;
#[path = "../it/cluster.rs"]
#[allow(dead_code, reason = "shared with the tests on a directory, which need more of it")]
mod cluster;
mod faults;
mod hosts;
mod main_job;
mod pools;
#[path = "../it/site.rs"]
#[allow(dead_code, reason = "shared with the tests on a directory, which need more of it")]
mod site;
mod takeover;

use cluster::Cluster;
use testceph::{CephSettings, Running};

/// A cluster of ours on a cluster of Ceph's. The fields are dropped in this order.
pub(crate) struct OnCeph {
    pub(crate) cluster: Cluster,
    pub(crate) ceph: Running,
    _home: tempfile::TempDir,
}

/// Brings both up, with these options of `up` now and later, or says that the test is skipped.
pub(crate) fn up(options: &[&str], change: impl FnOnce(&mut CephSettings)) -> Option<OnCeph> {
    let home = tempfile::Builder::new().prefix("cudele-rados.").tempdir().unwrap();
    let mut settings = CephSettings::new(&home.path().join("ceph"));
    change(&mut settings);
    let ceph = testceph::CephCluster::unless_skipped(&settings);
    let ceph = ceph.unwrap_or_else(|error| panic!("{error}"))?;
    let url = ceph.url("test");
    let cluster = Cluster::up_with(&[&["--store", url.as_str()], options].concat());
    Some(OnCeph { cluster, ceph, _home: home })
}

impl OnCeph {
    /// The object store, beside all servers.
    pub(crate) fn store(&self) -> std::sync::Arc<dyn objstore::Store> {
        objstore::open_existing(&self.ceph.url("test")).unwrap()
    }
}
