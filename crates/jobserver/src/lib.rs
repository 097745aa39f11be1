//! A branch for several processes of one job (E-01): the job has a monitor and a metadata server of
//! its own, which need the object store only ([`serve`]).
//!
//! They are the usual daemons ([`daemon`]) over a store that shows the snapshot and keeps their
//! writes in memory ([`Overlay`]). The layers of the branch are the journal of the server there, so
//! the server recovers to the state of the branch. The events that it adds to the journal become
//! the next layer when the job ends.
//!
//! Invariant: the branch changes once, when [`PrivateServer::finish`] replaces its object. A death
//! before that leaves the branch as it was.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "I/O edge: threads of this process run the daemons of the job"
)]

use std::path::Path as LocalPath;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use branches::{BranchJob, Branches};
use cudele::Cluster;
use daemon::{Log, MdsOptions, MonOptions};
use engine::Overlay;
use journal::{Create, Event, JournalBuffer, SegmentHeader, SegmentReader, Writer};
use metastore::request::{MAP_NAME, StoreOp, journal_prefix, rank_name, segment_name};
use metastore::{RowValue, Rows, Snapshot};
use namespace::{Mode, Namespace};
use net::{Address, Keyring};
use objstore::{Expect, ObjectStore, Store};
use types::{
    ClientId, Epoch, Errno, Error, FileType, Ino, InoRange, Origin, Path, Rank, Result, Seq, Span,
};
use wire::{ClusterMap, MdsState};

/// Inode numbers of one job. There are as many jobs as of branches.
const NUMBERS: u64 = 1 << 32;
/// The positions of the branch's events in the server's journal begin here. The inodes of the
/// snapshot have positions of rank 0, which reach this after 10 years of 400,000 changes a second.
const NEWER: u64 = 1 << 47;
/// The time for the first answer of the daemons, without the replay of the branch.
const START: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(2);
const RANK: Rank = Rank(0);

/// See the module documentation. Dropping it discards the changes of the job.
#[derive(Debug)]
pub struct PrivateServer {
    job: BranchJob,
    address: Address,
    overlay: Arc<Overlay>,
    /// The segments of the journal that are layers of the branch.
    given: u64,
    daemons: Vec<Daemon>,
}

#[derive(Debug)]
struct Daemon {
    terminate: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Daemon {
    fn start(
        name: &str,
        run: impl FnOnce(Arc<AtomicBool>) -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let terminate = Arc::new(AtomicBool::new(false));
        let flag = terminate.clone();
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || run(flag)).map_err(|error| {
            Error::new(Errno::Again, name, format!("no thread can be started: {error}"))
                .remedy("allow this user or container more threads")
        })?;
        Ok(Self { terminate, thread: Some(thread) })
    }

    fn is_gone(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn stop(&mut self) -> Result<()> {
        self.terminate.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let died = |_| Err(Error::of(Errno::Io, "server of the branch"));
        thread.join().unwrap_or_else(died)
    }
}

/// Serves a branch to the processes of one job, which find it as a cluster at
/// [`PrivateServer::address`]. `url` is the address of the store for those processes, and `dir`
/// a directory of this machine for sockets.
///
/// # Errors
/// `ENOENT`; `EBUSY` if another process works on the branch; `EINVAL` if it is not open;
/// `EBADMSG`; `EAGAIN` if no thread can be started.
pub fn serve(branches: &Branches, name: &str, url: &str, dir: &LocalPath) -> Result<PrivateServer> {
    let mut job = branches.begin_job(name, NUMBERS)?;
    let (snapshot, numbers) = (job.snapshot(), job.numbers());
    let overlay = Arc::new(Overlay::new(branches.store().clone(), snapshot.number, numbers));
    let above = show(&*overlay, snapshot, job.path(), numbers)?;
    let next = numbers.start + above.len() as u64;
    // A monitor does not start without a map where there is a journal.
    let map = ClusterMap { next_client: ClientId(1), ..ClusterMap::default() };
    let map = mon::map_bytes(&map);
    let _ = overlay.put(MAP_NAME, &map, Expect::Absent)?;
    let _ = overlay.put(
        &rank_name(RANK),
        &mds::RankTable::begin(RANK, next, Seq(NEWER)),
        Expect::Absent,
    )?;
    let mut given = 0;
    for layer in job.layers() {
        let (name, bytes) = layer?;
        let bytes = as_segment(&bytes).map_err(|error| error.in_journal(&name))?;
        let _ = overlay.put(&segment_name(RANK, given), &bytes, Expect::Absent)?;
        given += 1;
    }
    job.record_numbers()?;
    let address = Address::Unix(dir.join("mon.sock"));
    let above = if *job.path() == Path::root() { Vec::new() } else { above };
    let mut server = PrivateServer { job, address, overlay, given, daemons: Vec::new() };
    server.start(url, dir, mds::Private { numbers, above })?;
    Ok(server)
}

impl PrivateServer {
    /// The address of the monitor (`--mon`, `$CUDELE_MON`).
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The path of the branch's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.job.path()
    }

    fn start(&mut self, url: &str, dir: &LocalPath, private: mds::Private) -> Result<()> {
        let cluster = format!("branch-{:016x}", branches::random()?);
        let (store, address) = (self.overlay.clone(), self.address.clone());
        let settings = mon::MonSettings {
            cluster,
            store: url.to_owned(),
            beacon_grace: Span::from_millis(60_000),
        };
        self.daemons.push(Daemon::start("branch-mon", move |terminate| {
            daemon::run_mon(MonOptions {
                address,
                keys: Keyring::default(),
                audit: None,
                group: None,
                store,
                settings,
                read_only: false,
                metrics: None,
                standbys: None,
                beside: None,
                terminate: Some(terminate),
                log: Log::none(),
            })
        })?);
        let (store, monitor) = (self.overlay.clone(), self.address.clone());
        let address = Address::Unix(dir.join("mds.0.sock"));
        let settings = mds::Settings {
            // The journal is in memory already, and is all that will be wanted.
            segments_max: usize::MAX,
            private: Some(private),
            ..mds::Settings::default()
        };
        self.daemons.push(Daemon::start("branch-mds", move |terminate| {
            daemon::run_mds(MdsOptions {
                rank: RANK,
                address,
                keys: Keyring::default(),
                audit: None,
                group: None,
                monitor,
                store,
                settings,
                metrics: None,
                slow: None,
                warm_bytes: 0,
                terminate: Some(terminate),
                log: Log::none(),
            })
        })?);
        self.wait_until_active()
    }

    fn wait_until_active(&mut self) -> Result<()> {
        let since = Instant::now();
        loop {
            let map = Cluster::connect(&self.address).and_then(|cluster| cluster.status());
            if map.is_ok_and(|map| map.mds.iter().any(|it| it.state == MdsState::Active)) {
                return Ok(());
            }
            if self.daemons.iter().any(Daemon::is_gone) {
                self.stop()?;
                return Err(Error::of(Errno::Io, "server of the branch"));
            }
            // A branch may be long, and is replayed first.
            if since.elapsed() > START + Duration::from_millis(self.job.next_seq().0 / 100) {
                return Err(Error::new(
                    Errno::TimedOut,
                    self.job.name(),
                    "its server does not answer",
                )
                .remedy("look whether this machine is overloaded, and try again"));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Ends the servers, the metadata server first. The journal then has all changes.
    fn stop(&mut self) -> Result<()> {
        let mut first = Ok(());
        while let Some(mut daemon) = self.daemons.pop() {
            let ended = daemon.stop();
            first = first.and(ended);
        }
        first
    }

    /// Ends the job: its changes become a part of the branch, all of them or, after a failure,
    /// none. Returns the number of events.
    ///
    /// # Errors
    /// The error that ended a server; `ESTALE` if another process has changed the branch; `ENOSPC`,
    /// `EIO`.
    pub fn finish(mut self) -> Result<u64> {
        self.stop()?;
        let segments = self.overlay.list(&journal_prefix(RANK))?;
        let added = segments.iter().skip(usize::try_from(self.given).unwrap_or(usize::MAX));
        self.job.finish(added.map(|name| Ok((name, self.overlay.get(name)?.0))))
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        // No caller can receive the error, and the changes are discarded.
        let _ = self.stop();
    }
}

/// A layer as a segment of the server's journal.
fn as_segment(layer: &[u8]) -> std::result::Result<Vec<u8>, journal::JournalError> {
    let first_seq = Seq(NEWER + SegmentHeader::decode(layer)?.first_seq.0);
    let mut buffer = JournalBuffer::new(first_seq, false);
    let mut reader = SegmentReader::open(layer)?;
    while let Some(block) = reader.next_block()? {
        let mut events = block.events();
        while let Some(record) = events.next_event()? {
            buffer.append(Origin::default(), &record.event);
        }
    }
    buffer.close_block();
    let header = SegmentHeader { writer: Writer::Mds { rank: RANK }, epoch: Epoch(0), first_seq };
    let mut bytes = header.encode().to_vec();
    buffer.blocks().iter().for_each(|block| bytes.extend_from_slice(block));
    Ok(bytes)
}

/// Shows the branch's directory at its path, and no other name. Returns the directories above it,
/// which have the first numbers.
fn show(
    store: &dyn Store,
    snapshot: &Snapshot,
    path: &Path,
    numbers: InoRange,
) -> Result<Vec<Ino>> {
    let time = snapshot.time;
    let mut namespace = Namespace::with_root(time);
    let (mut above, mut numbers) = (vec![Ino::ROOT], numbers);
    let mut home = Ino::ANCHOR;
    let depth = path.components().count();
    for (at, name) in (1..).zip(path.components()) {
        home = above.last().copied().unwrap_or(Ino::ROOT);
        let full = || Error::new(Errno::NoSpace, "branches", "there are no inode numbers left");
        let ino = if at == depth { snapshot.root.ino } else { numbers.take().ok_or_else(full)? };
        let mode = FileType::Directory.mode_bits() | 0o755;
        let (mtime, atime) = (time, time);
        let new = Create { parent: home, name, ino, mode, time, mtime, atime, ..Create::default() };
        namespace.apply(Seq(0), Mode::Live, &Event::Create(new));
        if at < depth {
            above.push(ino);
        }
    }
    if !snapshot.policy.is_empty() {
        let (ino, policy) = (snapshot.root.ino, snapshot.policy.as_bytes());
        namespace.apply(Seq(0), Mode::Live, &Event::SetPolicy { ino, home, policy, time });
    }
    // The snapshot has the content of the branch's own directory.
    let shown = [Ino::ANCHOR].into_iter().chain(above.iter().copied());
    for dir in shown.filter(|dir| *dir != snapshot.root.ino) {
        let Some(mut capture) = namespace.store().begin_capture(dir) else { continue };
        let mut rows = Rows::new();
        while !namespace.store().capture(&mut capture, &mut rows, usize::MAX / 2) {}
        let op = StoreOp::CommitDir {
            ino: dir,
            rows: with_root(&rows, snapshot),
            counts: namespace.dirs().counts(dir),
            position: Seq(0),
            touched: Default::default(),
            attach: None,
        };
        engine::execute(store, op).map_err(|failure| failure.error)?;
        namespace.store().end_capture(dir);
    }
    Ok(above)
}

/// The same rows, with the branch's directory as the snapshot has it.
fn with_root(rows: &Rows, snapshot: &Snapshot) -> Rows {
    let mut shown = Rows::new();
    for row in rows.iter() {
        let mut value = row.value;
        if let RowValue::Inode(record) = &mut value
            && record.attr.ino == snapshot.root.ino
        {
            record.attr = snapshot.root;
        }
        shown.push(row.name, value);
    }
    shown
}
