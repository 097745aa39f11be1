//! The holder of a key, as its certificate states it.
//!
//! A certificate states facts as names of hosts below a domain that is never looked up: every
//! library for certificates can write and read names of hosts, and checks their form. Rules, which
//! have paths, are URIs. A name says that there are some, so that no version reads a certificate
//! without them.

use std::fmt;
use std::str::FromStr;

use types::{Cred, KeyRule, KeyRules, Peer};

/// The domain of the names; `internal` is reserved for private use.
const DOMAIN: &str = ".cudele.internal";
/// The name in the certificate of a key for reading only.
const READER: &str = "reader";
/// The name in the certificate of a key with other rules.
const LIMITED: &str = "limited";
/// The URI of a rule begins so.
const RULE: &str = "cudele:";

/// The users and daemons that a key speaks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A daemon of the cluster. Clients and other daemons believe it.
    Daemon,
    /// The mount of a host: it speaks for every user, and is no daemon.
    Everyone {
        /// Its root is nobody.
        squash_root: bool,
    },
    /// This user with these groups.
    User(Cred),
    /// The same as another holder that is no daemon, with the rights of these rules only.
    Limited(Box<Holder>, KeyRules),
}

/// Tells keys apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyId(pub u64);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for KeyId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = is_hex.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        number.map(Self).ok_or(())
    }
}

/// A key with its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedKey {
    /// Its id.
    pub id: KeyId,
    /// Its holder.
    pub holder: Holder,
    /// The end of its life, in seconds since 1970. The names in certificates of earlier versions do
    /// not have it: then it is the end of time, and only a handshake holds the key against its
    /// certificate's own date.
    pub until: i64,
}

impl Holder {
    /// The peer that has proved to have such a key.
    #[must_use]
    pub fn peer(&self) -> Peer {
        match self {
            Self::Daemon => Peer::Trusted,
            Self::Everyone { squash_root } => Peer::Host { squash_root: *squash_root },
            Self::User(cred) => Peer::User(cred.clone()),
            Self::Limited(holder, rules) => Peer::Limited(Box::new(holder.peer()), rules.clone()),
        }
    }

    /// The user, of a key of one.
    #[must_use]
    pub fn uid(&self) -> Option<u32> {
        match self {
            Self::Daemon | Self::Everyone { .. } => None,
            Self::User(cred) => Some(cred.uid),
            Self::Limited(holder, _) => holder.uid(),
        }
    }

    /// The rules, if it has some.
    #[must_use]
    pub fn rules(&self) -> Option<&KeyRules> {
        if let Self::Limited(_, rules) = self { Some(rules) } else { None }
    }

    /// The word for it in lists.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Daemon => "daemon",
            Self::Everyone { squash_root: false } => "everyone",
            Self::Everyone { squash_root: true } => "users",
            Self::User(_) => "user",
            Self::Limited(_, rules) if *rules == KeyRules::reading() => "reader",
            Self::Limited(holder, _) => holder.kind(),
        }
    }
}

/// The name that every daemon proves to have.
pub(crate) fn daemon_name() -> String {
    format!("daemon{DOMAIN}")
}

impl NamedKey {
    /// Whether its life is over at this time, in seconds since 1970.
    #[must_use]
    pub fn is_over(&self, now: i64) -> bool {
        self.until < now
    }

    /// The names in the certificate.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names =
            vec![format!("id-{}{DOMAIN}", self.id), format!("until-{}{DOMAIN}", self.until)];
        let mut holder = &self.holder;
        if let Holder::Limited(limited, rules) = holder {
            let label = if *rules == KeyRules::reading() { READER } else { LIMITED };
            names.push(format!("{label}{DOMAIN}"));
            holder = limited;
        }
        match holder {
            // A key has one list of rules.
            Holder::Limited(..) => {}
            Holder::Daemon => names.push(daemon_name()),
            Holder::Everyone { squash_root: false } => names.push(format!("everyone{DOMAIN}")),
            Holder::Everyone { squash_root: true } => names.push(format!("users{DOMAIN}")),
            Holder::User(cred) => {
                names.push(format!("uid-{}{DOMAIN}", cred.uid));
                names.push(format!("gid-{}{DOMAIN}", cred.gid));
                let groups = cred.groups.iter();
                names.extend(groups.map(|group| format!("group-{group}{DOMAIN}")));
            }
        }
        names
    }

    /// The URIs in the certificate.
    pub(crate) fn uris(&self) -> Vec<String> {
        let rules = self.holder.rules().filter(|rules| **rules != KeyRules::reading());
        let all = rules.map(KeyRules::all).unwrap_or_default();
        all.iter().map(|rule| format!("{RULE}{rule}")).collect()
    }

    /// From the names and URIs in a certificate; `None` unless they state one key with one holder.
    pub(crate) fn stated<'a>(
        names: impl Iterator<Item = &'a str>,
        uris: impl Iterator<Item = &'a str>,
    ) -> Option<Self> {
        let (mut ids, mut ends, mut holders) = (Vec::new(), Vec::new(), Vec::new());
        let (mut uids, mut gids, mut groups) = (Vec::new(), Vec::new(), Vec::new());
        let (mut is_reader, mut is_limited) = (false, false);
        for name in names {
            let label = name.strip_suffix(DOMAIN)?;
            match label.split_once('-') {
                None if label == READER => is_reader = true,
                None if label == LIMITED => is_limited = true,
                Some(("id", id)) => ids.push(id.parse().ok()?),
                Some(("until", until)) => ends.push(until.parse().ok()?),
                Some(("uid", uid)) => uids.push(uid.parse().ok()?),
                Some(("gid", gid)) => gids.push(gid.parse().ok()?),
                Some(("group", group)) => groups.push(group.parse().ok()?),
                None if label == "daemon" => holders.push(Holder::Daemon),
                None if label == "everyone" => {
                    holders.push(Holder::Everyone { squash_root: false });
                }
                None if label == "users" => holders.push(Holder::Everyone { squash_root: true }),
                _ => return None,
            }
        }
        let (id, until) = match (&ids[..], &ends[..]) {
            ([id], [until]) => (*id, *until),
            ([id], []) => (*id, i64::MAX),
            _ => return None,
        };
        let holder = match (&holders[..], &uids[..], &gids[..]) {
            (_, [], []) if groups.is_empty() && holders.len() == 1 => holders.pop()?,
            ([], &[uid], &[gid]) => Holder::User(Cred { uid, gid, groups }),
            _ => return None,
        };
        let rules: Option<Vec<KeyRule>> =
            uris.map(|uri| uri.strip_prefix(RULE)?.parse().ok()).collect();
        let rules = match (is_reader, is_limited, rules?) {
            (false, false, rules) if rules.is_empty() => return Some(Self { id, holder, until }),
            (true, false, rules) if rules.is_empty() => KeyRules::reading(),
            (false, true, rules) => KeyRules::new(rules)?,
            _ => return None,
        };
        let holder = (holder != Holder::Daemon).then(|| Holder::Limited(Box::new(holder), rules));
        Some(Self { id, holder: holder?, until })
    }
}
