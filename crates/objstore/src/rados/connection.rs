//! Connecting to a cluster, and asking it about its pools.
//!
//! Not here: the content of the pools.
//!
//! Invariant: an error names the cause of a failed connection: the file, the user, the monitor.

use std::sync::Arc;

use serde_json::{Value, json};
use types::{Errno, Error, Result};

use super::config::Config;
use super::errors::to_error;
use super::places::PURPOSES;
use super::sys::{Cluster, Code};

/// Connects to the cluster that an address names.
pub(super) fn connect(url: &str, config: &Config) -> Result<Arc<Cluster>> {
    let user = format!("client.{}", config.user);
    let failed = |doing: &str| {
        let doing = doing.to_owned();
        move |code| to_error(url, &doing, code)
    };
    let cluster = Cluster::new(&user)?.map_err(failed("prepare a connection"))?;
    let conf = config.conf.as_deref();
    cluster.read_conf(conf).map_err(|code| match code {
        Code::NOT_FOUND => {
            let file = conf.unwrap_or("/etc/ceph/ceph.conf");
            Error::new(Errno::NotFound, url, format!("there is no configuration file {file}"))
                .remedy("name the cluster's ceph.conf with conf=/PATH in the address of the store")
        }
        Code::INVALID => {
            Error::new(Errno::Invalid, url, "the configuration file cannot be understood")
                .remedy("`ceph-conf --lookup fsid -c FILE` says what is wrong with it")
        }
        code => to_error(url, "read the configuration file", code),
    })?;
    let (op, connect) = (config.op_timeout_s.to_string(), config.connect_timeout_s.to_string());
    let mut settings = vec![
        ("rados_osd_op_timeout", op.as_str()),
        ("rados_mon_op_timeout", op.as_str()),
        ("client_mount_timeout", connect.as_str()),
        // Monitors that are gone are looked for every second or three, and not ever more rarely: a
        // request that waits for them has its own end.
        ("mon_client_hunt_interval", "1"),
        ("mon_client_hunt_interval_max_multiple", "3"),
        // Errors are returned; the terminal belongs to the program.
        ("log_to_stderr", "false"),
        ("err_to_stderr", "false"),
    ];
    if let Some(keyring) = &config.keyring {
        settings.push(("keyring", keyring));
    }
    for (option, value) in settings {
        cluster.set(option, value).map_err(failed(&format!("set {option} to {value}")))?;
    }
    cluster.connect().map_err(|code| refused(url, &user, config, code))?;
    Ok(Arc::new(cluster))
}

/// The reason why a cluster rejects a connection.
fn refused(url: &str, user: &str, config: &Config, code: Code) -> Error {
    let keyring = config.keyring.as_deref().unwrap_or("the keyring of the configuration");
    match -code.0 {
        // No keyring, or no such user in it.
        2 | 22 => Error::new(Errno::Access, url, format!("no key of {user} in {keyring}"))
            .remedy("name its file with keyring=/PATH and the user with id=NAME in the address"),
        1 | 13 => {
            let cause = format!("the cluster accepts no key of {user} from {keyring}");
            Error::new(Errno::Access, url, cause).remedy(format!(
                "compare it with `ceph auth get {user}`; keyring=/PATH and id=NAME in the address \
                 say which"
            ))
        }
        110 => {
            let cause = format!("no monitor answered within {} seconds", config.connect_timeout_s);
            Error::new(Errno::TimedOut, url, cause)
                .remedy("check `mon host` in the configuration file, and `ceph status`")
        }
        _ => to_error(url, "connect to the cluster", code),
    }
}

/// How many copies the pools of a store keep: the fewest.
pub(crate) fn copies(url: &str, config: &Config) -> Result<u32> {
    let cluster = connect(url, config)?;
    let mut fewest = u32::MAX;
    for purpose in 0..PURPOSES.len() {
        let pool = config.pool_of(purpose);
        let question = json!({"prefix": "osd pool get", "pool": pool, "var": "size",
            "format": "json"});
        let answer = cluster.monitor(&question.to_string());
        let answer =
            answer.map_err(|code| to_error(url, &format!("ask about pool {pool}"), code))?;
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        let size = answer["size"].as_u64().and_then(|size| u32::try_from(size).ok());
        let size = size.ok_or_else(|| {
            let cause = format!("the cluster does not say how many copies pool {pool} keeps");
            Error::new(Errno::NotSupported, url, cause)
        })?;
        fewest = fewest.min(size);
    }
    Ok(fewest)
}
