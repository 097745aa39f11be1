//! Where the facts come from, and how long they are used.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cudele::{BalancerLog, Cluster, ClusterMap, Result};

/// A look at the cluster serves all clients for so long.
pub const INTERVAL: Duration = Duration::from_millis(500);

/// The cluster behind the pages.
pub trait ClusterSource: Send + Sync {
    /// The cluster map, with the last reports of the servers.
    ///
    /// # Errors
    /// If the monitor does not answer.
    fn map(&self) -> Result<ClusterMap>;

    /// The records of the balancers after so many.
    ///
    /// # Errors
    /// If the monitor does not answer.
    fn balancer_log(&self, after: u64) -> Result<BalancerLog>;
}

/// Connects when a client asks first: the monitor may start after the pages, and come back after a
/// failure.
impl<F: Fn() -> Result<Arc<Cluster>> + Send + Sync> ClusterSource for F {
    fn map(&self) -> Result<ClusterMap> {
        self()?.status()
    }

    fn balancer_log(&self, after: u64) -> Result<BalancerLog> {
        self()?.balancer_log(after)
    }
}

/// The last answer of a source, or its error.
#[derive(Debug)]
pub(crate) struct Latest<T>(Mutex<Option<(Instant, Result<Arc<T>>)>>);

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Latest<T> {
    /// The last answer, if its age allows, else a new answer, made with the last one. Clients wait
    /// for each other, so that the source is asked once.
    pub(crate) fn get(&self, ask: impl FnOnce(Option<&T>) -> Result<T>) -> Result<Arc<T>> {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, answer)) = &*latest
            && at.elapsed() < INTERVAL
        {
            return answer.clone();
        }
        let before = latest.as_ref().and_then(|(_, answer)| answer.as_deref().ok());
        let answer = ask(before).map(Arc::new);
        *latest = Some((Instant::now(), answer.clone()));
        answer
    }
}

/// Records of the balancers that are kept.
const RECORDS_MAX: usize = 2000;

/// The log of the balancers with the records since the last look, cut to the newest.
pub(crate) fn grown(source: &dyn ClusterSource, log: Option<&BalancerLog>) -> Result<BalancerLog> {
    let (before, records) = log.map_or((0, &[][..]), |log| (log.before, &log.records[..]));
    let end = before + records.len() as u64;
    let mut new = source.balancer_log(end)?;
    // A monitor that lost its log counts anew, and a monitor that dropped records has a gap.
    if new.before == end {
        new.records.splice(..0, records.iter().cloned());
        new.before = before;
    }
    let surplus = new.records.len().saturating_sub(RECORDS_MAX);
    new.records.drain(..surplus);
    new.before += surplus as u64;
    Ok(new)
}
