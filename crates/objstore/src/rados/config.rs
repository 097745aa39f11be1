//! The address of a RADOS store: `rados://POOL?conf=/etc/ceph/ceph.conf&id=cudele&…`.
//!
//! Not here: its use. The options are listed in `docs/formats/store.md`.
//!
//! Invariant: an option that is not known, or given twice, or not understood, is an error.

use types::{Errno, Error, Result};

/// The default namespace of a store.
const NAMESPACE: &str = "cudele";
/// The user of an address that names none, as everywhere in Ceph.
const USER: &str = "admin";
/// How long a request may take, in seconds.
const OP_TIMEOUT_S: u64 = 30;
/// How long connecting may take, in seconds.
const CONNECT_TIMEOUT_S: u64 = 10;

/// An address, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// The pool of objects without a pool of their own.
    pub(super) pool: String,
    /// Begins the names of the namespaces, so that stores can share a pool.
    pub(super) namespace: String,
    /// `journal_pool`, `data_pool`: in the order of [`super::places::PURPOSES`].
    pub(super) pools: [Option<String>; 3],
    /// Configuration file; Ceph's own if there is none.
    pub(super) conf: Option<String>,
    pub(super) keyring: Option<String>,
    /// Without `client.`.
    pub(super) user: String,
    pub(super) op_timeout_s: u64,
    pub(super) connect_timeout_s: u64,
}

impl Config {
    /// Parses the part behind `rados:`.
    ///
    /// # Errors
    /// `EINVAL`, saying which part is wrong.
    pub(crate) fn parse(url: &str, rest: &str) -> Result<Self> {
        let invalid = |cause: String| {
            Error::new(Errno::Invalid, url, cause)
                .remedy("use rados://POOL?conf=/etc/ceph/ceph.conf&id=USER&namespace=NAME")
        };
        let rest =
            rest.strip_prefix("//").ok_or_else(|| invalid("no `//` behind rados:".into()))?;
        let (pool, options) = rest.split_once('?').unwrap_or((rest, ""));
        let pool = decode(pool).filter(|pool| is_name(pool));
        let pool = pool.ok_or_else(|| invalid("the address of the store names no pool".into()))?;
        let mut config = Self {
            pool,
            namespace: NAMESPACE.into(),
            pools: [const { None }; 3],
            conf: None,
            keyring: None,
            user: USER.into(),
            op_timeout_s: OP_TIMEOUT_S,
            connect_timeout_s: CONNECT_TIMEOUT_S,
        };
        let mut given: Vec<&str> = Vec::new();
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option
                .split_once('=')
                .ok_or_else(|| invalid(format!("option {option:?} has no value")))?;
            if given.contains(&name) {
                return Err(invalid(format!("option {name} is given twice")));
            }
            given.push(name);
            let value = decode(value).filter(|value| !value.is_empty());
            let value = value.ok_or_else(|| invalid(format!("option {name} has no value")))?;
            config.set(name, value).map_err(invalid)?;
        }
        Ok(config)
    }

    fn set(&mut self, name: &str, value: String) -> std::result::Result<(), String> {
        let named = |value: String| {
            if is_name(&value) { Ok(value) } else { Err(format!("{name}: not a name")) }
        };
        let file = |value: String| {
            // Daemons, clients and commands run in different directories.
            let absolute = value.starts_with('/');
            if absolute { Ok(value) } else { Err(format!("{name}: the path must begin with `/`")) }
        };
        let seconds = |value: String| match value.parse::<u64>() {
            Ok(value) if value > 0 => Ok(value),
            Ok(_) | Err(_) => Err(format!("{name}: not a number of seconds from 1 on")),
        };
        match name {
            "namespace" => self.namespace = named(value)?,
            "journal_pool" => self.pools[0] = Some(named(value)?),
            "data_pool" => self.pools[1] = Some(named(value)?),
            "metadata_pool" => self.pools[2] = Some(named(value)?),
            "conf" => self.conf = Some(file(value)?),
            "keyring" => self.keyring = Some(file(value)?),
            "id" => self.user = named(value.trim_start_matches("client.").to_owned())?,
            "op_timeout" => self.op_timeout_s = seconds(value)?,
            "connect_timeout" => self.connect_timeout_s = seconds(value)?,
            _ => return Err(format!("unknown option {name}")),
        }
        Ok(())
    }

    /// The pool for a purpose, by its number.
    pub(super) fn pool_of(&self, purpose: usize) -> &str {
        self.pools[purpose].as_ref().unwrap_or(&self.pool)
    }
}

/// Names of pools, namespaces and users, as far as they are used here.
fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=128).contains(&text.len()) && text.bytes().all(fits)
}

/// Resolves `%2F` and the like.
fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    let digit = |byte: Option<u8>| (byte? as char).to_digit(16).and_then(|d| u8::try_from(d).ok());
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => out.push(digit(bytes.next())? << 4 | digit(bytes.next())?),
            byte => out.push(byte),
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests;
