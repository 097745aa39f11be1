//! How to mount.

use std::time::Duration;

use posix::{Atime, IdMap};
use types::{Errno, Error, Result};

/// The longest time that `latency` may name: a longer one would demand nothing of any processor.
const LATENCY_MAX_US: u32 = 1_000_000;
/// How long programs wait for a server that is away.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The mount options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// `ro`: nothing may be changed.
    pub read_only: bool,
    /// `allow_other`: users other than the mounting one may use it, with their permissions.
    pub allow_other: bool,
    /// `dev`: device files work.
    pub devices: bool,
    /// `suid`: set-user-id and set-group-id work.
    pub set_id: bool,
    /// `noexec`: nothing can be executed.
    pub no_exec: bool,
    /// `valid=SECONDS`: the time for which names and attributes that other clients may change are
    /// cached. Strong consistency needs 0, the default.
    pub valid: Duration,
    /// `relatime` (the default), `noatime` or `strictatime`: which reads change the time of a
    /// file's last access.
    pub atime: Atime,
    /// `timeout=SECONDS`, `soft` (the default) or `hard`: the time that a program waits for an
    /// absent metadata server before it gets `EIO`; with `hard`, or 0 seconds, for ever.
    pub timeout: Option<Duration>,
    /// `wsync`, or `nowsync` (the default, as in CephFS since Linux 5.17): whether changes in
    /// directories that no other client uses wait for the answer of the metadata server. Where the
    /// policy has `ack: safe`, changes wait in either case.
    pub synchronous: bool,
    /// `noacl`, or `acl` (the default): access control lists are refused, and the kernel asks for
    /// none. Servers enforce those that exist all the same; in a decoupled subtree the mode alone
    /// says who may open a file.
    pub no_access_lists: bool,
    /// `uidmap=HERE:CLUSTER:COUNT`, `gidmap=...`, each also several times: the machine's numbers of
    /// users and groups, and the cluster's. `all_squash=UID:GID`: all callers are this user of the
    /// cluster, and the servers alone check permissions.
    pub ids: IdMap,
    /// `threads=N`: requests that are answered at the same time.
    pub threads: usize,
    /// `latency=MICROSECONDS`: while programs send requests, idle processors of the machine wake
    /// within this time; with 0 they do not sleep. Only for root.
    pub latency_us: Option<u32>,
    /// `io_uring`, `noio_uring`: whether requests come over io_uring, to a thread of the processor
    /// of their program. By default they do where the kernel offers that (`fuse.enable_uring`).
    pub io_uring: Option<bool>,
    /// `remount`: a mount in use gets other flags.
    pub remount: bool,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            allow_other: false,
            devices: false,
            set_id: false,
            no_exec: false,
            valid: Duration::ZERO,
            atime: Atime::default(),
            timeout: Some(TIMEOUT),
            synchronous: false,
            no_access_lists: false,
            ids: IdMap::default(),
            threads: 4,
            latency_us: None,
            io_uring: None,
            remount: false,
        }
    }
}

impl MountOptions {
    /// Takes in one list of options, as it follows `-o`.
    ///
    /// # Errors
    /// `EINVAL`, naming the option that is not known or has a senseless value.
    pub fn parse(&mut self, list: &str) -> Result<()> {
        list.split(',').filter(|option| !option.is_empty()).try_for_each(|option| self.set(option))
    }

    fn set(&mut self, option: &str) -> Result<()> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match name {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "allow_other" => self.allow_other = true,
            "dev" => self.devices = true,
            "nodev" => self.devices = false,
            "suid" => self.set_id = true,
            "nosuid" => self.set_id = false,
            "exec" => self.no_exec = false,
            "noexec" => self.no_exec = true,
            "noatime" => self.atime = Atime::Never,
            "atime" | "relatime" => self.atime = Atime::Relative,
            "strictatime" => self.atime = Atime::Always,
            "wsync" => self.synchronous = true,
            "nowsync" => self.synchronous = false,
            "acl" => self.no_access_lists = false,
            "noacl" => self.no_access_lists = true,
            "uidmap" => self.ids.users.add(value).map_err(|error| about(option, error))?,
            "gidmap" => self.ids.groups.add(value).map_err(|error| about(option, error))?,
            "all_squash" => {
                let ids = value
                    .split_once(':')
                    .and_then(|(user, group)| Some((user.parse().ok()?, group.parse().ok()?)));
                self.ids.all = Some(ids.ok_or_else(|| senseless(option, "UID:GID"))?);
                // The kernel checks lists by itself, for the callers as they are here.
                self.no_access_lists = true;
            }
            "threads" => {
                let threads = value.parse().ok().filter(|threads| (1..=64).contains(threads));
                self.threads = threads.ok_or_else(|| senseless(option, "a number from 1 to 64"))?;
            }
            "latency" => {
                let limit = value.parse().ok().filter(|limit| *limit <= LATENCY_MAX_US);
                let limit = limit.ok_or_else(|| senseless(option, "a number of microseconds"))?;
                self.latency_us = Some(limit);
            }
            "valid" | "attr_timeout" | "entry_timeout" => {
                let seconds = value.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
                self.valid = seconds.ok_or_else(|| senseless(option, "a number of seconds"))?;
            }
            "timeout" => {
                let seconds = value.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
                let seconds = seconds.ok_or_else(|| senseless(option, "a number of seconds"))?;
                self.timeout = Some(seconds).filter(|timeout| !timeout.is_zero());
            }
            "hard" => self.timeout = None,
            "soft" => self.timeout = self.timeout.or(Some(TIMEOUT)),
            "io_uring" => self.io_uring = Some(true),
            "noio_uring" => self.io_uring = Some(false),
            "remount" => self.remount = true,
            // Options that the kernel lists and mount(8) repeats.
            "user_id" | "group_id" | "default_permissions" | "max_read" => {}
            // Options that mount(8) and fstab interpret themselves.
            "defaults" | "auto" | "noauto" | "user" | "nouser" | "users" | "_netdev" | "nofail"
            | "async" | "diratime" | "nodiratime" => {}
            _ if name.starts_with("x-") || name.starts_with("comment") => {}
            _ => {
                return Err(Error::new(Errno::Invalid, option, "no such mount option").remedy(
                    "use ro, allow_other, dev, suid, noexec, noatime, strictatime, \
                             valid=SECONDS, timeout=SECONDS, hard, wsync, nowsync, noacl, uidmap=, gidmap=, \
                             all_squash=UID:GID, threads=N, latency=MICROSECONDS, io_uring or noio_uring",
                ));
            }
        }
        Ok(())
    }
}

fn about(option: &str, error: Error) -> Error {
    Error { subject: option.to_owned(), ..error }
}

fn senseless(option: &str, wanted: &str) -> Error {
    Error::new(Errno::Invalid, option, format!("the value is not {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_of_fstab() {
        let mut options = MountOptions::default();
        options.parse("rw,defaults,allow_other,x-systemd.automount,valid=1.5,threads=2").unwrap();
        let wanted = MountOptions {
            allow_other: true,
            valid: Duration::from_millis(1500),
            threads: 2,
            ..MountOptions::default()
        };
        assert_eq!(options, wanted);
        for (list, timeout) in [
            ("soft", Some(TIMEOUT)),
            ("timeout=2.5,soft", Some(Duration::from_millis(2500))),
            ("timeout=0", None),
            ("soft", Some(TIMEOUT)),
            ("hard", None),
        ] {
            options.parse(list).unwrap();
            assert_eq!(options.timeout, timeout, "{list}");
        }
        for (list, atime) in [
            ("noatime,ro", Atime::Never),
            ("noatime,relatime", Atime::Relative),
            ("strictatime", Atime::Always),
        ] {
            options.parse(list).unwrap();
            assert_eq!(options.atime, atime, "{list}");
        }
        for (list, io_uring) in
            [("rw", None), ("io_uring", Some(true)), ("noio_uring", Some(false))]
        {
            options.parse(list).unwrap();
            assert_eq!(options.io_uring, io_uring, "{list}");
        }
    }

    #[test]
    fn an_unknown_or_invalid_option_is_refused() {
        let lists = ["bogus", "valid=soon", "timeout=-1", "timeout", "threads=0", "valid=-1"];
        for list in lists.into_iter().chain(["latency", "latency=-1", "latency=2000000000"]) {
            let error = MountOptions::default().parse(list).unwrap_err();
            assert_eq!(error.errno, Errno::Invalid, "{list}");
            assert!(error.to_string().contains(list), "{error}");
        }
    }
}
