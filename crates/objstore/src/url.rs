//! Store addresses: `memory:`, `dir:/path` or a plain path, `rados://pool?option=value`.
//!
//! Not here: anything about the store behind the address.
//!
//! Invariant: one spelling means one back end; an unknown one is rejected, never guessed.

use std::path::Path;
use std::sync::Arc;

use types::{Errno, Error, Result};

use crate::{DirStore, Memory, Rados, Store, rados};

/// Opens the store at `url`, creating it if the directory is missing or empty. `memory:` is a new
/// empty store every time.
///
/// # Errors
/// `EINVAL` for an unknown address or a directory with other content, `EOPNOTSUPP` for stores of a
/// newer format and for `rados:` where Ceph's client library is not installed, and the errors of
/// [`DirStore::open`]; for `rados:` also `ENOENT` for a pool or configuration file that does not
/// exist, `EACCES` for a user or key that the cluster does not accept, `ETIMEDOUT` for a cluster
/// that does not answer.
pub fn open(url: &str) -> Result<Arc<dyn Store>> {
    open_with(url, true)
}

/// Opens the store at `url`, which must exist: a mistyped path is an error, not a new store.
///
/// # Errors
/// As [`open`]; `ENOENT` if there is no store.
pub fn open_existing(url: &str) -> Result<Arc<dyn Store>> {
    open_with(url, false)
}

/// The address of a second store with this name at `url`: a directory below it, or a namespace of
/// the same pool. Every `memory:` store is a new one anyway.
#[must_use]
pub fn beside(url: &str, name: &str) -> String {
    match split_scheme(url) {
        (Some("rados"), rest) => {
            let (pool, options) = rest.split_once('?').unwrap_or((rest, ""));
            let options = options.split('&').filter(|option| !option.is_empty());
            let options = options.filter(|option| !option.starts_with("namespace="));
            let namespace = format!("namespace={name}");
            let options: Vec<&str> = options.chain([&*namespace]).collect();
            format!("rados:{pool}?{}", options.join("&"))
        }
        (Some("memory"), _) => url.to_owned(),
        _ => format!("{}/{name}", url.trim_end_matches('/')),
    }
}

/// The number of copies that the store at `url` keeps of every object at this moment: 1 for a
/// directory or memory, for `rados:` the size of the pool with the fewest.
///
/// # Errors
/// As [`open`]; the store itself need not exist.
pub fn copies(url: &str) -> Result<u32> {
    match split_scheme(url) {
        (Some("rados"), rest) => rados::copies(url, &rados::Config::parse(url, rest)?),
        (Some(_) | None, _) => Ok(1),
    }
}

fn open_with(url: &str, create: bool) -> Result<Arc<dyn Store>> {
    let directory = |path: &str| -> Result<Arc<dyn Store>> {
        Ok(Arc::new(DirStore::open(Path::new(path), create)?))
    };
    let unknown = |cause: &str| {
        Err(Error::new(Errno::Invalid, url, cause)
            .remedy("use dir:/path or the path of a directory, rados://pool, or memory:"))
    };
    match split_scheme(url) {
        (None, "") | (Some("dir"), "") => unknown("the address of the store names no directory"),
        (None | Some("dir"), path) => directory(path),
        (Some("memory"), "") => Ok(Arc::new(Memory::new())),
        (Some("memory"), _) => unknown("a memory store has no name"),
        (Some("rados"), rest) => {
            Ok(Arc::new(Rados::open(url, rados::Config::parse(url, rest)?, create)?))
        }
        (Some(_), _) => unknown("unknown kind of store"),
    }
}

/// Splits off the part before the first `:`, unless it could only be part of a path.
fn split_scheme(url: &str) -> (Option<&str>, &str) {
    match url.split_once(':') {
        Some((scheme, rest)) if !scheme.contains(['/', '.']) => (Some(scheme), rest),
        Some(_) | None => (None, url),
    }
}
