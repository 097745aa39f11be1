//! The connection to the monitor.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use client::{Delivery, MonitorAttempts};
use net::{Address, Connection, Keyring};
use types::{ClientId, Cred, Errno, Error, Peer, Rank, Result, Tid};
use wire::{ClusterMap, Decoupled, MergeFlags, Message, MonAnswer, MonOp, UnusedNumbers};

use crate::contact::Contact;
use crate::waiting::{Awaited, Noted, ServerWait};
use crate::{Fs, Locator, StateDir};

/// How long the monitor may take to answer.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The number of a request that needs no answer.
const ASIDE: Tid = Tid(u64::MAX);

/// A cluster, through its monitor.
#[derive(Debug)]
pub struct Cluster {
    address: Address,
    keys: Keyring,
    link: Mutex<Option<Link>>,
    /// Clients of this process.
    mounted: Mutex<Vec<Weak<Fs>>>,
    pub(crate) contact: Contact,
    /// The wait for an answer.
    asked: Noted,
    /// Its clients may start threads.
    threads: bool,
}

/// The effect of setting a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicySet {
    /// The policy is in force, also for existing names.
    ActivePolicy,
    /// It will when this client gives the subtree back; until then the old one does (P-16).
    Waits(ClientId),
}

#[derive(Debug)]
struct Link {
    connection: Connection,
    next: u64,
}

impl Cluster {
    /// Finds a cluster and connects to its monitor. Waits for a monitor that restarts.
    ///
    /// # Errors
    /// As [`Locator::find`]; `ECONNREFUSED` if the monitor does not run.
    pub fn find(locator: &Locator) -> Result<Arc<Self>> {
        let found = locator.find()?;
        let cluster = Self::new(&found.mon, &found.keys, true);
        cluster.call(MonOp::Status)?;
        crate::waiting::note(&cluster);
        Ok(cluster)
    }

    /// Connects to a monitor on this machine. For servers that listen on TCP, it has the key that
    /// is beside the monitor's socket, if this user may read it.
    ///
    /// # Errors
    /// As [`Cluster::connect_with`].
    pub fn connect(address: &Address) -> Result<Arc<Self>> {
        let dir = if let Address::Unix(socket) = address { socket.parent() } else { None };
        Self::connect_with(address, &dir.map(Keyring::of_cluster).unwrap_or_default())
    }

    /// Connects to a monitor; over TCP with a key.
    ///
    /// # Errors
    /// `ECONNREFUSED` or `ENOENT` without a monitor; `EACCES` without a key that it accepts.
    pub fn connect_with(address: &Address, keys: &Keyring) -> Result<Arc<Self>> {
        let cluster = Self::new(address, keys, true);
        // The caller asks whether there is a monitor now.
        cluster.once(MonOp::Status)?;
        crate::waiting::note(&cluster);
        Ok(cluster)
    }

    /// The same for clients that start no thread.
    pub(crate) fn connect_threadless(address: &Address, keys: &Keyring) -> Result<Arc<Self>> {
        let cluster = Self::new(address, keys, false);
        cluster.call(MonOp::Status)?;
        Ok(cluster)
    }

    fn new(address: &Address, keys: &Keyring, threads: bool) -> Arc<Self> {
        Arc::new(Self {
            address: address.clone(),
            keys: keys.clone(),
            link: Mutex::default(),
            mounted: Mutex::default(),
            contact: Contact::default(),
            asked: Noted::default(),
            threads,
        })
    }

    pub(crate) fn has_threads(&self) -> bool {
        self.threads
    }

    /// For a thread of a client.
    ///
    /// # Errors
    /// `EAGAIN` if the clients start no thread.
    pub(crate) fn thread(&self, name: &str) -> std::io::Result<std::thread::Builder> {
        match self.threads {
            true => Ok(std::thread::Builder::new().name(name.to_owned())),
            false => Err(std::io::ErrorKind::WouldBlock.into()),
        }
    }

    /// The monitor's address.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The peer that the daemons in this map take this process for, by its key; `None` if none of
    /// them uses keys.
    pub(crate) fn own_peer(&self, map: &ClusterMap) -> Result<Option<Peer>> {
        let is_tcp = |address: &Address| matches!(address, Address::Tcp(_));
        let mut served = map.mds.iter().filter_map(|entry| entry.address.parse().ok());
        let uses_keys = is_tcp(&self.address) || served.any(|address| is_tcp(&address));
        match self.keys.key() {
            Ok(key) if uses_keys => key.own_peer().map(Some),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// The key of this process for connections over TCP.
    #[must_use]
    pub fn keys(&self) -> &Keyring {
        &self.keys
    }

    /// A file system client with the rights of this process.
    ///
    /// # Errors
    /// If no metadata server is active or the object store cannot be opened.
    pub fn mount(self: &Arc<Self>) -> Result<Arc<Fs>> {
        let fs = self.mount_as(self.register()?)?;
        self.merge_again(&fs)?;
        crate::strong_log::dead::replay(&fs)?;
        Ok(fs)
    }

    /// Repeats merges of this user's that a crash of the server undid: their journals are on this
    /// machine's disk (weak consistency with local durability).
    fn merge_again(self: &Arc<Self>, fs: &Fs) -> Result<()> {
        for state in StateDir::all(fs.cluster_id())? {
            let Some(owner) = state.owner()? else { continue };
            let Some(merged_in) = owner.merged_in else { continue };
            if fs.ranks_are_several()? {
                // The path leads to the rank that serves the directory, which may be gone.
                let _ = fs.stat(&owner.path);
            }
            let term = fs.term_at(owner.root()).0;
            if merged_in == term {
                continue;
            }
            let owner_fs = self.mount_as(owner.client())?;
            match repeat_merge(&owner_fs, &state, &owner) {
                Ok(()) => {
                    let merged_in = Some(term);
                    state.set_owner(&crate::SubtreeOwner { merged_in, ..owner })?;
                }
                // A checkpoint has the merge; or another client has the subtree now, or this client
                // has it again with other numbers.
                Err(Error { errno: Errno::Stale | Errno::Busy | Errno::NotPermitted, .. }) => {
                    state.remove()?;
                }
                Err(error) => return Err(error.about(owner.path)),
            }
        }
        Ok(())
    }

    /// The same as a client that exists: for taking up the work of an earlier process.
    ///
    /// # Errors
    /// As [`Cluster::mount`].
    pub fn mount_as(self: &Arc<Self>, client: ClientId) -> Result<Arc<Fs>> {
        let fs = Arc::new(Fs::open(self.clone(), client)?);
        let mut mounted = self.mounted.lock().unwrap_or_else(PoisonError::into_inner);
        mounted.retain(|fs| fs.strong_count() > 0);
        mounted.push(Arc::downgrade(&fs));
        Ok(fs)
    }

    /// Applies requests again that a server has lost: those in the logs of this process, and those
    /// in logs that dead processes of this user left on this machine, which no process would apply
    /// under another policy.
    fn replay_logs(&self) -> Result<()> {
        let mounted = self.mounted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mounted: Vec<_> = mounted.iter().filter_map(Weak::upgrade).collect();
        for fs in mounted.iter().filter(|fs| !fs.strong_logs.all().is_empty()) {
            fs.reach()?;
        }
        mounted.first().map_or(Ok(()), |fs| crate::strong_log::dead::replay(fs))
    }

    /// Takes a client number that no client had before.
    ///
    /// # Errors
    /// If the monitor does not answer.
    pub fn register(&self) -> Result<ClientId> {
        let answer = self.call(MonOp::Register)?;
        let MonAnswer::Client(client) = answer else { return Err(unexpected(&answer)) };
        Ok(client)
    }

    /// The cluster map, with the servers' counters.
    ///
    /// # Errors
    /// If the monitor does not answer.
    pub fn status(&self) -> Result<ClusterMap> {
        let answer = self.call(MonOp::Status)?;
        let MonAnswer::Map(map) = answer else { return Err(unexpected(&answer)) };
        self.keys.learn_revoked(&map.revoked);
        Ok(*map)
    }

    /// Gives a subtree to a client.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EBUSY` if it belongs to another client, `EINVAL` for the policy.
    pub(crate) fn decouple(
        &self,
        path: &[u8],
        client: ClientId,
        policy: &str,
    ) -> Result<Decoupled> {
        // It sets a policy.
        self.replay_logs()?;
        let op = MonOp::Decouple { path, client, policy: policy.as_bytes() };
        let answer = self.call(op)?;
        let MonAnswer::Decoupled(decoupled) = answer else { return Err(unexpected(&answer)) };
        Ok(decoupled)
    }

    /// Sets the policy of a directory (canonical text or the text of a policy file), or removes it
    /// with `None`.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EPERM`; `EINVAL` for the policy; `ENODATA` to remove a policy from a
    /// directory without one; `EOPNOTSUPP` if it names a pool and the object store has no pools,
    /// `ENOENT` if there is no pool of this name.
    pub fn set_policy(&self, path: &[u8], policy: Option<&str>) -> Result<PolicySet> {
        self.set_policy_as(ClientId(0), path, policy)
    }

    /// The same as a client that may own a decoupled subtree there.
    pub(crate) fn set_policy_as(
        &self,
        client: ClientId,
        path: &[u8],
        policy: Option<&str>,
    ) -> Result<PolicySet> {
        self.replay_logs()?;
        let policy = self.numbered_text(policy.unwrap_or_default())?;
        match self.call(MonOp::SetPolicy { path, policy: policy.as_bytes(), client })? {
            MonAnswer::Done => Ok(PolicySet::ActivePolicy),
            MonAnswer::Pending(client) => Ok(PolicySet::Waits(client)),
            answer @ (MonAnswer::Client(_)
            | MonAnswer::Map(_)
            | MonAnswer::Decoupled(_)
            | MonAnswer::Balancer(_)
            | MonAnswer::BalancerLog { .. }) => Err(unexpected(&answer)),
        }
    }

    /// Ends the server of a rank, which writes everything down. A standby takes the rank over.
    ///
    /// # Errors
    /// `EAGAIN` if the rank has no server that the monitor can reach.
    pub fn fail(&self, rank: Rank) -> Result<()> {
        let answer = self.call(MonOp::Fail { rank })?;
        if answer == MonAnswer::Done { Ok(()) } else { Err(unexpected(&answer)) }
    }

    /// Ends the cluster cleanly: everything is written down, then the daemons end.
    ///
    /// # Errors
    /// If the monitor does not answer.
    pub fn stop(&self) -> Result<()> {
        let answer = self.call(MonOp::Stop)?;
        if answer == MonAnswer::Done { Ok(()) } else { Err(unexpected(&answer)) }
    }

    /// Makes a request of the monitor, and waits for a monitor that restarts.
    pub(crate) fn call(&self, op: MonOp<'_>) -> Result<MonAnswer> {
        let attempts = MonitorAttempts::new(crate::moment());
        loop {
            match self.attempt(op) {
                Ok(answer) => return answer,
                Err((delivery, error)) => {
                    crate::pause(attempts.failed(crate::moment(), &op, delivery, error)?);
                }
            }
        }
    }

    /// The same without a second attempt.
    fn once(&self, op: MonOp<'_>) -> Result<MonAnswer> {
        self.attempt(op).unwrap_or_else(|(_, error)| Err(error))
    }

    /// Makes a request of the monitor. The outer error is that of a connection that failed.
    fn attempt(&self, op: MonOp<'_>) -> Attempt {
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        self.asked.set(Some((Instant::now(), "it has not answered".to_owned())));
        let result = self.exchange(&mut link, op);
        self.asked.set(None);
        if result.is_err() {
            *link = None;
        }
        result
    }

    fn exchange(&self, link: &mut Option<Link>, op: MonOp<'_>) -> Attempt {
        let link = match link {
            Some(link) => link,
            None => link.insert(self.open().map_err(|error| (Delivery::Unsent, error))?),
        };
        let tid = Tid(link.next);
        link.next += 1;
        let cred: Cred = crate::own_cred();
        let mut frame = Message::MonRequest { tid, cred: cred.clone(), op }.to_frame();
        if frame.len() > wire::frame::FIRST_PAYLOAD_BYTES_MAX && tid == Tid(1) {
            // The first message of a connection must be short.
            let introduction = Message::MonRequest { tid: ASIDE, cred, op: MonOp::Status };
            frame.splice(..0, introduction.to_frame());
        }
        let sent = link.connection.send(&frame).map_err(|error| (Delivery::Unsent, error));
        loop {
            let payload = match link.connection.receive() {
                Ok(payload) => payload,
                Err(error) => return sent.and(Err((Delivery::Unanswered, error))),
            };
            let message = Message::decode(payload);
            let message = message.map_err(|cause| (Delivery::Unanswered, Error::from(cause)))?;
            let Message::MonReply { tid: answered, result } = message else {
                continue;
            };
            if answered == tid {
                return Ok(result.map_err(Error::from));
            }
            if let (Tid(0), Err(failure)) = (answered, result) {
                let refusal = Error::from(failure).about(self.address.to_string());
                return Err((Delivery::Unsent, refusal));
            }
        }
    }

    fn open(&self) -> Result<Link> {
        let connection = Connection::open(&self.address, &self.keys);
        let mut connection = connection.map_err(|error| {
            if !error.remedy.is_empty() || error.errno == Errno::TimedOut {
                return error;
            }
            error.remedy("start the cluster with `cudele up`, or check --mon and --dir")
        })?;
        connection.set_timeout(Some(TIMEOUT))?;
        Ok(Link { connection, next: 1 })
    }
}

/// The monitor's answer, or the error of the connection.
type Attempt = std::result::Result<Result<MonAnswer>, (Delivery, Error)>;

impl Awaited for Cluster {
    fn awaited(&self) -> Option<ServerWait> {
        let (since, cause) = self.asked.get()?;
        Some(ServerWait { since, server: "the monitor".to_owned(), cause })
    }
}

fn repeat_merge(fs: &Fs, state: &StateDir, owner: &crate::SubtreeOwner) -> Result<()> {
    let mut journals = state.journals()?.into_iter().peekable();
    while let Some(path) = journals.next() {
        let bytes = std::fs::read(&path).map_err(|error| crate::state::io_error(&path, &error))?;
        let name = path.display().to_string();
        let intact =
            journal::segment::scan(&bytes).map_err(|error| error.in_journal(&name))?.intact;
        // With the last one the server knows that it has them all.
        let release = journals.peek().is_none();
        let (flags, unused) =
            (MergeFlags { release, ..MergeFlags::default() }, UnusedNumbers::default());
        fs.merge_journal(owner.root(), &bytes[..intact], flags, unused)?;
    }
    Ok(())
}

pub(crate) fn unexpected(answer: &MonAnswer) -> Error {
    Error::new(Errno::Io, "monitor", format!("unexpected answer: {answer:?}"))
}
