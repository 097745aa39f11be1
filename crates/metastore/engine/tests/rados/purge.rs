//! Removal of directories and content.

use engine::execute;
use metastore::DirTouch;
use metastore::request::StoreOp;
use objstore::{Counting, Expect, ObjectStore, Operation, PutOutcome};
use types::{DirFragId, Frag, Ino, Pool, Seq, Timestamp};

use crate::cluster::up;

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn a_purge_does_not_search_the_whole_store() {
    let Some(ceph) = up(|_| {}) else { return };
    let store = Counting::new(ceph.open());
    let counters = store.counters();
    let (file, dir, other) = (Ino(1 << 40), Ino(7), Ino(8));
    // A hole, and stripes behind the length that the server knew, as of a writer that died.
    for stripe in [0, 2, 4, 5, 6, 7, 11, 12] {
        let name = metastore::data_name(file, Pool::USUAL, stripe);
        assert!(matches!(store.put(&name, b"x", Expect::Any), Ok(PutOutcome::Done(_))));
    }
    let commit = |ino| {
        let (rows, counts) = (metastore::Rows::default(), (0, 0, true));
        let (position, touched) = (Seq(1), DirTouch { time: Timestamp(1), seq: Seq(1) });
        execute(&store, StoreOp::CommitDir { ino, rows, counts, position, touched, attach: None })
            .unwrap();
    };
    // So often that runs are rewritten as one.
    (0..20).for_each(|_| commit(dir));
    commit(other);
    let whole = DirFragId { ino: dir, frag: Frag::WHOLE };
    let left = metastore::run_name(whole, metastore::RunId(21));
    assert!(matches!(
        store.put(&left, b"of a server that died", Expect::Any),
        Ok(PutOutcome::Done(_))
    ));

    let before = counters.counts().of(Operation::List).calls;
    execute(&store, StoreOp::PurgeData { ino: file, pool: Pool::USUAL, stripes: 3 }).unwrap();
    execute(&store, StoreOp::PurgeDir { ino: dir }).unwrap();
    execute(&store, StoreOp::PurgeDir { ino: dir }).unwrap();
    assert_eq!(counters.counts().of(Operation::List).calls, before);
    let prefix = metastore::prefix(DirFragId { ino: other, frag: Frag::WHOLE });
    let names = store.list("").unwrap();
    assert!(names.len() == 2 && names.iter().all(|name| name.starts_with(&prefix)), "{names:?}");
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn content_that_is_gone_with_its_pool_is_purged() {
    let pools = ["test", "fast", "bulk"].map(str::to_owned).to_vec();
    let Some(ceph) = up(|settings| settings.pools = pools) else { return };
    let (file, store) = (Ino(0x101), ceph.open());
    let [fast, bulk] = ["fast", "bulk"].map(|name| store.pool(name).unwrap());
    let data = |pool| metastore::data_name(file, pool, 0);
    for pool in [fast, bulk] {
        store.write_range(&data(pool), 0, b"x").unwrap();
    }
    let sure = "--yes-i-really-really-mean-it";
    ceph.cluster.ceph(&["config", "set", "mon", "mon_allow_pool_delete", "true"]).unwrap();
    ceph.cluster.ceph(&["osd", "pool", "delete", "bulk", "bulk", sure]).unwrap();
    let store = ceph.open();
    assert!(execute(&store, StoreOp::PurgeData { ino: file, pool: bulk, stripes: 1 }).is_ok());
    assert_eq!(store.list("data/").unwrap(), [data(fast)]);
}
