//! The connection to the monitor.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use net::{Address, Connection};
use types::{ClientId, Cred, Errno, Error, Result, Tid};
use wire::{ClusterMap, Decoupled, Message, MonAnswer, MonOp};

use crate::{Fs, Locator};

/// How long the monitor may take to answer.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A cluster, through its monitor.
#[derive(Debug)]
pub struct Cluster {
    address: Address,
    link: Mutex<Option<Link>>,
}

#[derive(Debug)]
struct Link {
    connection: Connection,
    next: u64,
}

impl Cluster {
    /// Finds a cluster and connects to its monitor.
    ///
    /// # Errors
    /// As [`Locator::find`]; `ECONNREFUSED` if the monitor does not run.
    pub fn find(locator: &Locator) -> Result<Arc<Self>> {
        Self::connect(&locator.find()?.mon)
    }

    /// Connects to a monitor.
    ///
    /// # Errors
    /// `ECONNREFUSED` or `ENOENT` if none is there.
    pub fn connect(address: &Address) -> Result<Arc<Self>> {
        let cluster = Arc::new(Self { address: address.clone(), link: Mutex::new(None) });
        cluster.call(MonOp::Status)?;
        Ok(cluster)
    }

    /// The monitor's address.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// A file system client with the rights of this process.
    ///
    /// # Errors
    /// If no metadata server is active or the object store cannot be opened.
    pub fn mount(self: &Arc<Self>) -> Result<Arc<Fs>> {
        self.mount_as(self.register()?)
    }

    /// The same as a client that exists: for taking up the work of an earlier process.
    ///
    /// # Errors
    /// As [`Cluster::mount`].
    pub fn mount_as(self: &Arc<Self>, client: ClientId) -> Result<Arc<Fs>> {
        Fs::open(self.clone(), client).map(Arc::new)
    }

    /// A client id that nobody had before.
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
        let op = MonOp::Decouple { path, client, policy: policy.as_bytes() };
        let answer = self.call(op)?;
        let MonAnswer::Decoupled(decoupled) = answer else { return Err(unexpected(&answer)) };
        Ok(decoupled)
    }

    /// Sets the policy of a directory (canonical text or the text of a policy file), or removes it
    /// with `None`.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EPERM`, `EINVAL` for the policy, `ENODATA` to remove what is not there.
    pub fn set_policy(&self, path: &[u8], policy: Option<&str>) -> Result<()> {
        let policy = policy.unwrap_or_default().as_bytes();
        let answer = self.call(MonOp::SetPolicy { path, policy })?;
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

    fn call(&self, op: MonOp<'_>) -> Result<MonAnswer> {
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        let result = self.exchange(&mut link, op);
        if result.as_ref().is_err_and(|error| matches!(error.errno, Errno::Io | Errno::TimedOut)) {
            *link = None;
        }
        result
    }

    fn exchange(&self, link: &mut Option<Link>, op: MonOp<'_>) -> Result<MonAnswer> {
        let link = match link {
            Some(link) => link,
            None => {
                let mut connection = Connection::open(&self.address).map_err(|error| {
                    error.remedy("start the cluster with `cudele up`, or check --mon and --dir")
                })?;
                connection.set_timeout(Some(TIMEOUT))?;
                link.insert(Link { connection, next: 1 })
            }
        };
        let tid = Tid(link.next);
        link.next += 1;
        let cred: Cred = crate::own_cred();
        link.connection.send(&Message::MonRequest { tid, cred, op }.to_frame())?;
        loop {
            let payload = link.connection.receive()?;
            if let Message::MonReply { tid: answered, result } = Message::decode(payload)?
                && answered == tid
            {
                return result.map_err(Error::from);
            }
        }
    }
}

fn unexpected(answer: &MonAnswer) -> Error {
    Error::new(Errno::Io, "monitor", format!("unexpected answer: {answer:?}"))
}
