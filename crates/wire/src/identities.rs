//! Identities: the users for which a process behind a connection may send messages.
//!
//! A request names a user, and the rules of the namespace judge the request for that user. This
//! module decides whether the sender may name the user. A peer that speaks for every user has no
//! entry, so a message costs one comparison while no other peer is connected.

use types::{ClientId, ConnId, Cred, Errno, KeyRules, Map, Path, Peer, Rights};

use crate::Failure;

/// The peers of a daemon that may not do everything. Every other peer is trusted.
#[derive(Debug, Default)]
pub struct Identities {
    limited: Map<ConnId, Peer>,
}

/// The users for whom a peer speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpeaksFor {
    /// Every user, with all rights.
    All,
    /// This user only.
    User(u32),
    /// Several users, and not root, or with the limited rights of a key.
    Several,
}

impl Identities {
    /// A peer connected.
    pub fn opened(&mut self, conn: ConnId, peer: Peer) {
        if !peer.is_trusted() {
            self.limited.insert(conn, peer);
        }
    }

    /// A connection is gone, and no message can come from it any more.
    pub fn closed(&mut self, conn: ConnId) {
        self.limited.remove(&conn);
    }

    /// Whether every peer may do everything.
    #[inline]
    #[must_use]
    pub fn are_trusted(&self) -> bool {
        self.limited.is_empty()
    }

    /// Whether the peer may do everything, and be a daemon.
    #[must_use]
    pub fn is_trusted(&self, conn: ConnId) -> bool {
        !self.limited.contains_key(&conn)
    }

    /// The users for whom the peer speaks.
    #[must_use]
    pub fn speaks_for(&self, conn: ConnId) -> SpeaksFor {
        let Some(peer) = self.limited.get(&conn) else { return SpeaksFor::All };
        match peer.unlimited() {
            Peer::User(own) => SpeaksFor::User(own.uid),
            Peer::Host { users, .. } if users.has(0) && peer.rules().is_none() => SpeaksFor::All,
            Peer::Host { .. } | Peer::Trusted | Peer::Limited(..) => SpeaksFor::Several,
        }
    }

    /// Whether the peer speaks for one user only.
    #[must_use]
    pub fn is_user(&self, conn: ConnId) -> bool {
        matches!(self.limited.get(&conn).map(Peer::unlimited), Some(Peer::User(_)))
    }

    /// The rules of the peer's key; `None` if it has every right of its kind.
    #[inline]
    #[must_use]
    pub fn rules(&self, conn: ConnId) -> Option<&KeyRules> {
        self.limited.get(&conn).and_then(Peer::rules)
    }

    /// Whether the peer's key has these rights at a path.
    ///
    /// # Errors
    /// As [`refusal`].
    pub fn check_path(&self, conn: ConnId, rights: Rights, path: &[u8]) -> Result<(), Failure> {
        let Some(rules) = self.rules(conn) else { return Ok(()) };
        let path = Path::parse(path)?;
        let refused = || Err(refusal(rules, rights, Some(&path)));
        rules.giving(rights, &path).map_or_else(refused, |_| Ok(()))
    }

    /// Whether the peer may be told of a path: with a limited key only of what it may read, and of
    /// the way there.
    #[must_use]
    pub fn may_see(&self, conn: ConnId, path: &[u8]) -> bool {
        let Some(rules) = self.rules(conn) else { return true };
        let path = Path::parse(path);
        path.is_ok_and(|path| rules.giving(Rights::READ, &path).is_some() || rules.lead_over(&path))
    }

    /// The user of the clients that the peer registers; 0 for a peer that speaks for several users.
    #[must_use]
    pub fn uid(&self, conn: ConnId) -> u32 {
        self.limited.get(&conn).map_or(0, Peer::uid)
    }

    /// The user for whom a request is served that names `cred`: the named one (`None`), or another
    /// where the peer may not ask for that one: so root of a user namespace is the user who made
    /// the namespace, and root of a host may be nobody ([`Peer::instead_of`]). A client need not
    /// know whether a server believes it.
    ///
    /// # Errors
    /// `EPERM` with both users, if the peer may not ask in the name of that user.
    pub fn identify(&self, conn: ConnId, cred: &Cred) -> Result<Option<Cred>, Failure> {
        let Some(peer) = self.limited.get(&conn).filter(|peer| !peer.may_act_as(cred)) else {
            return Ok(None);
        };
        if let Some(other) = peer.instead_of(cred) {
            return Ok(Some(other));
        }
        let (uid, gid) = (cred.uid, cred.gid);
        let text = if let Peer::Host { users, groups } = peer.unlimited() {
            format!(
                "a host asks in the name of user {uid} and group {gid}; its key speaks for the \
                 users {users} with the groups {groups}"
            )
        } else {
            let own = peer.uid();
            format!(
                "a process of user {own} asks in the name of user {uid} and group {gid}; only \
                 root and the owner of the cluster may do that"
            )
        };
        Err(Failure { errno: Errno::NotPermitted, text })
    }

    /// Whether the peer may command the cluster: one that speaks for every user may, and a key with
    /// this right in the whole namespace.
    ///
    /// # Errors
    /// `EPERM` if it may not.
    pub fn check_command(&self, conn: ConnId, right: Rights) -> Result<(), Failure> {
        let Some(peer) = self.limited.get(&conn) else { return Ok(()) };
        if let Some(rules) = peer.rules() {
            let root = Path::root();
            let refused = || Err(refusal(rules, right, Some(&root)));
            return rules.giving(right, &root).map_or_else(refused, |_| Ok(()));
        }
        let who = match peer.unlimited() {
            Peer::User(own) => format!("user {}", own.uid),
            Peer::Trusted | Peer::Host { .. } | Peer::Limited(..) => {
                "the mount of a host".to_owned()
            }
        };
        let text =
            format!("{who} does not administer this cluster; root and its owner may do that");
        Err(Failure { errno: Errno::NotPermitted, text })
    }

    /// Whether the peer may continue the session of a client that another peer has: with a limited
    /// key only if the key of the other has the same rules. Else it could use the open files of a
    /// client with more rights.
    #[must_use]
    pub fn may_follow(&self, conn: ConnId, other: ConnId) -> bool {
        self.rules(conn).is_none_or(|rules| self.rules(other) == Some(rules))
    }

    /// Whether the peer may be a client.
    #[must_use]
    pub fn may_be(&self, conn: ConnId, client: ClientId) -> bool {
        self.limited.get(&conn).is_none_or(|peer| peer.may_be(client))
    }

    /// Checks that no trusted peer has an entry.
    ///
    /// # Panics
    /// If that does not hold.
    pub fn validate(&self) {
        for peer in self.limited.values() {
            assert!(!peer.unlimited().is_trusted(), "trusted peers have no entry");
            assert!(peer.unlimited().rules().is_none(), "a key has one list of rules");
        }
    }
}

/// The refusal of a request that needs rights which the key of its sender does not have: `EROFS` if
/// the key is for reading only, else `EACCES` for reading and writing, and `EPERM`. `named` is the
/// path that the sender stated: a path that the server knows must not be in the text.
#[must_use]
pub fn refusal(rules: &KeyRules, rights: Rights, named: Option<&Path>) -> Failure {
    if rights != Rights::READ && rules.only_read() {
        let text = "the key of this connection is for reading only".to_owned();
        return Failure { errno: Errno::ReadOnly, text };
    }
    let is_file = rights == Rights::READ || rights == Rights::WRITE;
    let errno = if is_file { Errno::Access } else { Errno::NotPermitted };
    let place = named.map_or_else(|| " there".to_owned(), |path| format!(":{}", path.quoted()));
    let text = format!("the key of this connection lacks {rights}{place}; it has {rules}");
    Failure { errno, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: ConnId = ConnId(1);
    const OTHER: ConnId = ConnId(2);
    const ADMIN: Rights = Rights::ADMIN;

    fn user(uid: u32) -> Cred {
        Cred { uid, gid: uid, groups: Vec::new() }
    }

    fn identities() -> Identities {
        let mut identities = Identities::default();
        identities.opened(OWNER, Peer::Trusted);
        identities.opened(OTHER, Peer::User(user(7)));
        identities.validate();
        identities
    }

    #[test]
    fn a_peer_of_one_user_asks_for_this_user_only() {
        let mut known = identities();
        assert_eq!(known.identify(OTHER, &user(7)), Ok(None));
        assert_eq!(known.identify(OTHER, &Cred::root()), Ok(Some(user(7))), "not as root");
        let refused = known.identify(OTHER, &user(8)).unwrap_err();
        assert_eq!(refused.errno, Errno::NotPermitted);
        assert!(refused.text.contains("user 7 asks in the name of user 8"), "{}", refused.text);
        assert_eq!(known.identify(OWNER, &user(8)), Ok(None));
        assert_eq!(known.identify(OWNER, &Cred::root()), Ok(None));
        assert!(
            known.check_command(OTHER, ADMIN).is_err() && known.check_command(OWNER, ADMIN).is_ok()
        );
        assert!(known.is_user(OTHER) && !known.is_user(OWNER) && !known.are_trusted());
        assert!(known.is_trusted(OWNER) && !known.is_trusted(OTHER));
        known.closed(OTHER);
        assert!(known.are_trusted());
    }

    #[test]
    fn the_mount_of_a_host_is_no_daemon_and_its_root_may_be_nobody() {
        let mut known = identities();
        known.opened(ConnId(3), Peer::host_without_root());
        known.validate();
        assert!(!known.is_trusted(ConnId(3)) && !known.is_user(ConnId(3)));
        assert_eq!(known.identify(ConnId(3), &user(8)), Ok(None));
        let nobody = known.identify(ConnId(3), &Cred::root()).unwrap().unwrap();
        assert_eq!(nobody.uid, types::NOBODY);
        let (users, groups) = ("8".parse().unwrap(), "8".parse().unwrap());
        known.opened(ConnId(3), Peer::Host { users, groups });
        let refused = known.identify(ConnId(3), &user(9)).unwrap_err();
        assert!(refused.text.contains("the users 8 with the groups 8"), "{}", refused.text);
        let refused = known.check_command(ConnId(3), ADMIN).unwrap_err();
        assert!(refused.text.contains("the mount of a host"), "{}", refused.text);
        assert_eq!(known.uid(ConnId(3)), 0);
    }

    fn limited(rules: &[&str]) -> Identities {
        let rules = rules.iter().map(|rule| types::KeyRule::parse(rule).unwrap()).collect();
        let mut known = identities();
        let peer = Box::new(Peer::User(user(9)));
        known.opened(ConnId(4), Peer::Limited(peer, KeyRules::new(rules).unwrap()));
        known.validate();
        known
    }

    #[test]
    fn a_key_has_the_rights_of_its_rules_where_these_are() {
        let known = limited(&["read:/", "write,policy:/users"]);
        let check = |rights, path: &str| {
            known.check_path(ConnId(4), rights, path.as_bytes()).map_err(|failure| failure.errno)
        };
        assert_eq!(check(Rights::READ, "/etc"), Ok(()));
        assert_eq!(check(Rights::WRITE, "/users/a"), Ok(()));
        assert_eq!(check(Rights::WRITE, "/etc"), Err(Errno::Access));
        assert_eq!(check(Rights::POLICY, "/"), Err(Errno::NotPermitted));
        assert_eq!(check(Rights::POLICY, "/users/../etc"), Err(Errno::Invalid));
        assert!(known.check_path(OTHER, Rights::POLICY, b"/").is_ok(), "it has no rules");
        assert!(known.is_user(ConnId(4)) && known.rules(OWNER).is_none());
        let refused = known.check_path(ConnId(4), Rights::WRITE, b"/etc").unwrap_err();
        assert!(refused.text.contains("lacks write:/etc; it has read:/ write"), "{}", refused.text);
    }

    #[test]
    fn a_limited_key_continues_no_session_of_another_key() {
        let mut known = limited(&["read:/", "write:/users"]);
        assert!(!known.may_follow(ConnId(4), OTHER) && !known.may_follow(ConnId(4), OWNER));
        assert!(known.may_follow(OTHER, ConnId(4)) && known.may_follow(ConnId(4), ConnId(4)));
        let peer = Box::new(Peer::User(user(9)));
        known.opened(ConnId(5), Peer::Limited(peer, KeyRules::reading()));
        assert!(!known.may_follow(ConnId(4), ConnId(5)));
    }

    #[test]
    fn a_key_for_reading_meets_a_read_only_file_system() {
        let known = limited(&["read:/"]);
        let refused = known.check_path(ConnId(4), Rights::WRITE, b"/").unwrap_err();
        assert_eq!(refused.errno, Errno::ReadOnly);
    }

    #[test]
    fn a_key_commands_the_cluster_by_a_right_in_the_whole_namespace() {
        let known = limited(&["admin:/", "balance:/users"]);
        assert!(known.check_command(ConnId(4), ADMIN).is_ok());
        assert!(known.check_command(ConnId(4), Rights::BALANCE).is_err());
        assert!(!known.is_trusted(ConnId(4)), "it is no daemon");
    }

    #[test]
    fn a_peer_of_one_user_is_no_other_users_client() {
        let known = identities();
        assert!(known.may_be(OTHER, ClientId::of_user(7, 1)));
        assert!(!known.may_be(OTHER, ClientId(1)));
        assert!(known.may_be(OWNER, ClientId(1)));
        assert_eq!((known.uid(OWNER), known.uid(OTHER)), (0, 7));
    }
}
