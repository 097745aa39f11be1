//! Which connections work as which client, so that a client can be shut out of the store.
//!
//! A client that has a subtree to itself writes to the store without asking anybody: content of files,
//! its journal. Whoever takes the subtree over must be sure that nothing of that arrives later. So the
//! client's processes hold a lock together, Ceph's own, which says from where each is connected, and
//! whoever takes over has these addresses put on the blocklist of all OSDs.
//!
//! Not a sign of life: who died is still there, and is shut out all the same.
//!
//! Invariant: whoever writes as a client has entered before.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use types::{ClientId, Result};

use super::errors::told;
use super::lock::exclude;
use super::sys::{Cluster, Code, CodeResult, Pool, Read, Step};

/// The name of the lock on the client's object.
const LOCK: &CStr = c"cudele";

/// The object of a client, where locks are.
fn object_of(client: ClientId) -> String {
    format!("clients/{}", client.0)
}

/// This process works as a client, until this is dropped.
#[derive(Debug)]
pub(super) struct Entered {
    pool: Arc<Pool>,
    object: String,
    cookie: String,
}

impl Entered {
    pub(super) fn new(cluster: &Cluster, pool: &Arc<Pool>, client: ClientId) -> Result<Self> {
        static ENTERED: AtomicU64 = AtomicU64::new(0);
        let number = ENTERED.fetch_add(1, Ordering::Relaxed);
        let (pool, object) = (Arc::clone(pool), object_of(client));
        let cookie = format!("{}.{number}", cluster.instance());
        pool.share(&object, LOCK, &cookie).map_err(|code| told(&object, "enter", code))?;
        Ok(Self { pool, object, cookie })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // What stays is small, and says nothing wrong: this address is not used again.
        let _ = self.pool.unlock(&self.object, LOCK, &self.cookie);
        let _ = remove_unused(&self.pool, &self.object);
    }
}

/// Removes the object of a client as whom nobody works.
fn remove_unused(pool: &Pool, object: &str) -> CodeResult<()> {
    let mut buffer = [];
    let object_name = object.into();
    let read =
        Read { object: object_name, offset: 0, buffer: &mut buffer, version: None, attr: None };
    // Whoever enters changes the version.
    let version = pool.read(read)?.version;
    if pool.holders(object, LOCK)?.is_empty() {
        pool.change(object, &[Step::AssertVersion(version), Step::Remove])?;
    }
    Ok(())
}

/// Shuts out whoever works as a client, but not this process. Afterwards nothing of theirs arrives any more
/// that has not arrived.
pub(super) fn shut_out(cluster: &Cluster, pool: &Pool, client: ClientId) -> Result<()> {
    let object = object_of(client);
    let me = format!("client.{}", cluster.instance());
    let holders = pool.holders(&object, LOCK);
    for holder in holders.map_err(|code| told(&object, "see who works as this client", code))? {
        if holder.client != me {
            exclude(cluster, pool, &object, LOCK, &holder)?;
        }
    }
    match remove_unused(pool, &object) {
        // Somebody else has removed it, or entered.
        Ok(()) | Err(Code::NOT_FOUND | Code::RANGE | Code::OVERFLOW) => Ok(()),
        Err(code) => Err(told(&object, "tidy up", code)),
    }
}
