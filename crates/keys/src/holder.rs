//! The holder of a key, as its certificate states it.
//!
//! A certificate states facts as names of hosts below a domain that is never looked up: every
//! library for certificates can write and read names of hosts, and checks their form. Rules, ranges
//! of ids and networks are URIs. A name says that there are some, so that no version reads a
//! certificate without them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use types::{Cred, IdRanges, KeyRule, KeyRules, Peer};

use crate::revoked::Revoked;

/// The domain of the names; `internal` is reserved for private use.
const DOMAIN: &str = ".cudele.internal";
/// The name in the certificate of a key for reading only.
const READER: &str = "reader";
/// The name in the certificate of a key with other rules.
const LIMITED: &str = "limited";
/// The name in the certificate of a key for some users of a host.
const HOST: &str = "host";
/// The name in the certificate of a key that is used from some networks only.
const BOUND: &str = "networks";
/// The URI of a rule begins so.
const RULE: &str = "cudele:";
/// Those of the users and of the groups of a host.
const USERS: &str = "cudele-users:";
const GROUPS: &str = "cudele-groups:";
/// That of a network.
const NETWORK: &str = "cudele-network:";

/// The users and daemons that a key speaks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A daemon of the cluster. Clients and other daemons believe it.
    Daemon,
    /// The mount of a host: it speaks for several users, and is no daemon.
    Host {
        /// These users. Without root in the set, requests of its root are those of nobody.
        users: IdRanges,
        /// Its users have these groups.
        groups: IdRanges,
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
    /// It is used from these networks only; from any network if there are none.
    pub networks: Vec<IpNet>,
    /// The key of the authority from which it was narrowed. The user who narrows a key chooses the
    /// id of the narrower key.
    pub narrowed_from: Option<KeyId>,
}

impl Holder {
    /// The mount of a host that speaks for every user.
    #[must_use]
    pub fn everyone() -> Self {
        Self::Host { users: IdRanges::all(), groups: IdRanges::all() }
    }

    /// The mount of a host that speaks for every user but root.
    #[must_use]
    pub fn without_root() -> Self {
        Self::Host { users: IdRanges::without_root(), groups: IdRanges::all() }
    }

    /// The peer that has proved to have such a key.
    #[must_use]
    pub fn peer(&self) -> Peer {
        match self {
            Self::Daemon => Peer::Trusted,
            Self::Host { users, groups } => {
                Peer::Host { users: users.clone(), groups: groups.clone() }
            }
            Self::User(cred) => Peer::User(cred.clone()),
            Self::Limited(holder, rules) => Peer::Limited(Box::new(holder.peer()), rules.clone()),
        }
    }

    /// The user, of a key of one.
    #[must_use]
    pub fn uid(&self) -> Option<u32> {
        match self {
            Self::Daemon | Self::Host { .. } => None,
            Self::User(cred) => Some(cred.uid),
            Self::Limited(holder, _) => holder.uid(),
        }
    }

    /// The rules, if it has some.
    #[must_use]
    pub fn rules(&self) -> Option<&KeyRules> {
        if let Self::Limited(_, rules) = self { Some(rules) } else { None }
    }

    /// The users and the groups of a host that speaks for some users only.
    pub(crate) fn some_users(&self) -> Option<(&IdRanges, &IdRanges)> {
        match self {
            Self::Limited(holder, _) => holder.some_users(),
            Self::Host { users, groups } if self.kind() == HOST => Some((users, groups)),
            Self::Daemon | Self::Host { .. } | Self::User(_) => None,
        }
    }

    /// The word for it in lists.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Daemon => "daemon",
            Self::Host { .. } if *self == Self::everyone() => "everyone",
            Self::Host { .. } if *self == Self::without_root() => "users",
            Self::Host { .. } => HOST,
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
    /// The key of the authority's behind it: itself, or the one from which it was narrowed.
    #[must_use]
    pub fn issued(&self) -> KeyId {
        self.narrowed_from.unwrap_or(self.id)
    }

    /// Whether it was revoked, or the key from which it was narrowed.
    #[must_use]
    pub fn is_revoked(&self, revoked: &Revoked) -> bool {
        revoked.has(self.id) || self.narrowed_from.is_some_and(|id| revoked.has(id))
    }

    /// The key as it was narrowed from a wider one; `None` if it would have more: another holder,
    /// a longer life, more networks or rights. A host makes no key of a user: the host speaks for
    /// its users, but is not their clients.
    pub(crate) fn narrowed(self, wider: &Self) -> Option<Self> {
        let acts = match (wider.unlimited(), self.unlimited()) {
            (Holder::Daemon | Holder::Limited(..), _) => false,
            (same, own) if same == own => true,
            (user @ Holder::User(_), Holder::User(cred)) => user.peer().may_act_as(cred),
            _ => false,
        };
        let covers = |own: &IpNet| wider.networks.iter().any(|network| network.contains(own));
        let is_bound = wider.networks.is_empty()
            || (!self.networks.is_empty() && self.networks.iter().all(covers));
        let holder = match (self.holder, wider.holder.rules()) {
            (Holder::Limited(holder, rules), wider) => {
                Holder::Limited(holder, rules.narrowed(wider)?)
            }
            (holder, None) => holder,
            (_, Some(_)) => return None,
        };
        let is_narrower = acts && is_bound && self.until <= wider.until;
        is_narrower.then_some(Self { holder, narrowed_from: Some(wider.id), ..self })
    }

    /// Whether its life is over at this time, in seconds since 1970.
    #[must_use]
    pub fn is_over(&self, now: i64) -> bool {
        self.until < now
    }

    /// Whether it may be used from this address.
    #[must_use]
    pub fn is_for(&self, address: IpAddr) -> bool {
        // A listener for both versions of IP has the addresses of version 4 in those of 6.
        let address = address.to_canonical();
        self.networks.is_empty() || self.networks.iter().any(|network| network.contains(&address))
    }

    /// Its holder without the rules.
    pub(crate) fn unlimited(&self) -> &Holder {
        if let Holder::Limited(holder, _) = &self.holder { holder } else { &self.holder }
    }

    /// The names in the certificate.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names =
            vec![format!("id-{}{DOMAIN}", self.id), format!("until-{}{DOMAIN}", self.until)];
        if let Some(rules) = self.holder.rules() {
            let label = if *rules == KeyRules::reading() { READER } else { LIMITED };
            names.push(format!("{label}{DOMAIN}"));
        }
        if !self.networks.is_empty() {
            names.push(format!("{BOUND}{DOMAIN}"));
        }
        match self.unlimited() {
            // A key has one list of rules.
            Holder::Limited(..) => {}
            Holder::Daemon => names.push(daemon_name()),
            host @ Holder::Host { .. } => names.push(format!("{}{DOMAIN}", host.kind())),
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
        let mut uris: Vec<String> = all.iter().map(|rule| format!("{RULE}{rule}")).collect();
        if let Some((users, groups)) = self.holder.some_users() {
            uris.extend([format!("{USERS}{users}"), format!("{GROUPS}{groups}")]);
        }
        uris.extend(self.networks.iter().map(|network| format!("{NETWORK}{network}")));
        uris
    }

    /// From the names and URIs in a certificate; `None` unless they state one key with one holder.
    pub(crate) fn stated<'a>(
        names: impl Iterator<Item = &'a str>,
        uris: impl Iterator<Item = &'a str>,
    ) -> Option<Self> {
        let (mut ids, mut ends, mut kinds) = (Vec::new(), Vec::new(), Vec::new());
        let (mut uids, mut gids, mut groups) = (Vec::new(), Vec::new(), Vec::new());
        let (mut is_reader, mut is_limited, mut is_bound) = (false, false, false);
        for name in names {
            let label = name.strip_suffix(DOMAIN)?;
            match label.split_once('-') {
                None if label == READER => is_reader = true,
                None if label == LIMITED => is_limited = true,
                None if label == BOUND => is_bound = true,
                Some(("id", id)) => ids.push(id.parse().ok()?),
                Some(("until", until)) => ends.push(until.parse().ok()?),
                Some(("uid", uid)) => uids.push(uid.parse().ok()?),
                Some(("gid", gid)) => gids.push(gid.parse().ok()?),
                Some(("group", group)) => groups.push(group.parse().ok()?),
                None => kinds.push(label),
                Some(_) => return None,
            }
        }
        let (id, until) = match (&ids[..], &ends[..]) {
            ([id], [until]) => (*id, *until),
            ([id], []) => (*id, i64::MAX),
            _ => return None,
        };
        let stated = StatedUris::read(uris)?;
        let holder = match (&kinds[..], &uids[..], &gids[..]) {
            ([], &[uid], &[gid]) => Holder::User(Cred { uid, gid, groups }),
            ([kind], [], []) if groups.is_empty() => stated.holder_of(kind)?,
            _ => return None,
        };
        let is_host = kinds == [HOST];
        let rules = match (is_reader, is_limited) {
            (false, false) if stated.rules.is_empty() => None,
            (true, false) if stated.rules.is_empty() => Some(KeyRules::reading()),
            (false, true) => Some(KeyRules::new(stated.rules)?),
            _ => return None,
        };
        if is_host == stated.ids.is_empty() || is_bound == stated.networks.is_empty() {
            return None;
        }
        let holder = match rules {
            None => holder,
            Some(_) if holder == Holder::Daemon => return None,
            Some(rules) => Holder::Limited(Box::new(holder), rules),
        };
        Some(Self { id, holder, until, networks: stated.networks, narrowed_from: None })
    }
}

/// The facts that the URIs in a certificate state.
#[derive(Default)]
struct StatedUris {
    rules: Vec<KeyRule>,
    /// The users and the groups of a host.
    ids: Vec<IdRanges>,
    networks: Vec<IpNet>,
}

impl StatedUris {
    fn read<'a>(uris: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut stated = Self::default();
        for uri in uris {
            if let Some(rule) = uri.strip_prefix(RULE) {
                stated.rules.push(rule.parse().ok()?);
            } else if let Some(network) = uri.strip_prefix(NETWORK) {
                stated.networks.push(network.parse().ok()?);
            } else {
                // Users first.
                let expected = if stated.ids.is_empty() { USERS } else { GROUPS };
                stated.ids.push(uri.strip_prefix(expected)?.parse().ok()?);
            }
        }
        Some(stated)
    }

    /// The holder of a kind that is no user.
    fn holder_of(&self, kind: &str) -> Option<Holder> {
        match (kind, &self.ids[..]) {
            ("daemon", []) => Some(Holder::Daemon),
            ("everyone", []) => Some(Holder::everyone()),
            ("users", []) => Some(Holder::without_root()),
            (HOST, [users, groups]) => {
                Some(Holder::Host { users: users.clone(), groups: groups.clone() })
            }
            _ => None,
        }
    }
}
