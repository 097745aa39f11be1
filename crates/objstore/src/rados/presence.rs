//! Which connections work as which client, so that a client can be shut out of the store.
//!
//! A client with a decoupled subtree writes to the store without a server: content of files, its
//! journal. A process that takes the subtree over must be sure that no such write arrives later. So
//! the client's processes share a lock, Ceph's own, which records the address of each, and the new
//! owner has these addresses put on the blocklist of all OSDs.
//!
//! Not a sign of life: a dead process is still listed, and is blocklisted all the same.
//!
//! Invariant: every process that writes as a client has entered before.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use types::{ClientId, Result};

use super::errors::to_error;
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
        pool.share(&object, LOCK, &cookie).map_err(|code| to_error(&object, "enter", code))?;
        Ok(Self { pool, object, cookie })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // The leftover is small and harmless: this address is not used again.
        let _ = self.pool.unlock(&self.object, LOCK, &self.cookie);
        let _ = remove_unused(&self.pool, &self.object);
    }
}

/// Removes the object of a client without processes.
fn remove_unused(pool: &Pool, object: &str) -> CodeResult<()> {
    let mut buffer = [];
    let object_name = object.into();
    let read =
        Read { object: object_name, offset: 0, buffer: &mut buffer, version: None, attr: None };
    // A process that enters changes the version.
    let version = pool.read(read)?.version;
    if pool.holders(object, LOCK)?.is_empty() {
        pool.change(object, &[Step::AssertVersion(version), Step::Remove])?;
    }
    Ok(())
}

/// Blocklists all processes that work as a client, but not this one. Afterwards no late write of
/// theirs can arrive.
pub(super) fn shut_out(cluster: &Cluster, pool: &Pool, client: ClientId) -> Result<()> {
    let object = object_of(client);
    let me = format!("client.{}", cluster.instance());
    let holders = pool.holders(&object, LOCK);
    for holder in holders.map_err(|code| to_error(&object, "see who works as this client", code))? {
        if holder.client != me {
            exclude(cluster, pool, &object, LOCK, &holder)?;
        }
    }
    match remove_unused(pool, &object) {
        // Another process has removed it, or entered.
        Ok(()) | Err(Code::NOT_FOUND | Code::RANGE | Code::OVERFLOW) => Ok(()),
        Err(code) => Err(to_error(&object, "tidy up", code)),
    }
}
