//! `segments`: the cost of the journal for a synchronous client, by the size of its segments, the
//! number written at once, and the number kept (Fig 3a, J-03), against no journal.

use cudele::Result;

use crate::harness::job::Task;
use crate::harness::lab::{Lab, alone, create};
use crate::harness::peers::cephfs::Peer;
use crate::harness::row::Row;
use crate::harness::stats::real;

const BENCH: &str = "segments";

/// A row's name, and the settings of its server.
const CASES: [(&str, &[&str]); 10] = [
    ("default", &[]),
    ("segment_64K_dispatch_1", &["segment_bytes_max=65536", "dispatch=1"]),
    ("segment_1M_dispatch_1", &["segment_bytes_max=1048576", "dispatch=1"]),
    ("segment_4M_dispatch_1", &["segment_bytes_max=4194304", "dispatch=1"]),
    ("segment_4M_dispatch_4", &["segment_bytes_max=4194304", "dispatch=4"]),
    ("segment_4M_dispatch_10", &["segment_bytes_max=4194304", "dispatch=10"]),
    ("segment_16M_dispatch_1", &["segment_bytes_max=16777216", "dispatch=1"]),
    ("kept_2_of_64K", &["segment_bytes_max=65536", "segments_max=2"]),
    ("kept_30_of_64K", &["segment_bytes_max=65536", "segments_max=30"]),
    ("kept_180_of_64K", &["segment_bytes_max=65536", "segments_max=180"]),
];

/// The numbers of segments that a CephFS keeps, from those of the published figure.
const CEPHFS_KEPT: [&str; 3] = ["30", "90", "180"];

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let files = lab.files(100_000, 1_000);
    let mut none = Row::new(BENCH, "no_journal", files);
    let mut rows: Vec<_> = CASES.iter().map(|(name, _)| Row::new(BENCH, *name, files)).collect();
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        for (at, (row, (name, settings))) in rows.iter_mut().zip(&CASES).enumerate() {
            lab.progress(BENCH, repetition, name);
            let cluster = lab.cluster(settings)?;
            // Each case has a server of its own, so the baseline is repeated beside each.
            let base = create(&cluster, "posix-volatile", files)?.seconds();
            if at == 0 {
                none.push(base);
            }
            let outcome = create(&cluster, "posix", files)?;
            row.push(outcome.seconds());
            row.note("of_no_journal", base / outcome.seconds());
            cluster.settle()?;
            row.note("trimmed_segments", real(cluster.counter("trimmed_segments")?));
            cluster.store().clone_into(&mut store);
        }
    }
    lab.report(&store, std::iter::once(none).chain(rows));
    if let Some(conf) = lab.cephfs.clone() {
        beside(lab, &Peer::new(&conf), files)?;
    }
    Ok(())
}

/// A CephFS that keeps this many segments, with a tenth of the files. It cannot work without a
/// journal.
fn beside(lab: &mut Lab, peer: &Peer, files: u64) -> Result<()> {
    const SETTING: &str = "mds_log_max_segments";
    let files = (files / 10).max(1);
    let usual = peer.setting(SETTING)?;
    // Of this cluster only the place for its client's state is used.
    let cluster = lab.cluster(&[])?;
    let measure = || -> Result<Vec<Row>> {
        let row = |kept: &str| Peer::row(BENCH, format!("cephfs_kept_{kept}"), files);
        let mut rows: Vec<_> = CEPHFS_KEPT.iter().map(|kept| row(kept)).collect();
        for repetition in 0..lab.repeat {
            for (row, kept) in rows.iter_mut().zip(CEPHFS_KEPT) {
                lab.progress(BENCH, repetition, &row.name);
                peer.set(SETTING, kept)?;
                let (conf, dir) = (peer.conf().to_owned(), peer.directory(BENCH));
                let task = Task::CephCreate { conf, dir, files, sync: true };
                row.push(alone(&cluster, task)?.seconds());
            }
        }
        Ok(rows)
    };
    let measured = measure();
    peer.set(SETTING, &usual)?;
    lab.report("", measured?);
    Ok(())
}
