//! Two sides of a connection in memory, with keys of every kind.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustls::{ClientConnection, Connection, ServerConnection};
use types::{Cred, Errno, KeyRule, KeyRules, Peer, Timestamp};

use crate::*;

const EVERYONE: Holder = Holder::Everyone { squash_root: false };
const SQUASHED: Holder = Holder::Everyone { squash_root: true };
const HOST: Peer = Peer::Host { squash_root: false };
const DAY: i64 = 24 * 3600 * 1_000_000_000;

fn now() -> Timestamp {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp(i64::try_from(now.as_nanos()).unwrap())
}

fn user() -> Cred {
    Cred { uid: 7, gid: 70, groups: vec![71, 72] }
}

fn put(dir: &Path, name: &str, text: &str) -> Keyring {
    let file = dir.join(name);
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    Keyring::of(&file)
}

/// A cluster with an authority, and a key of this holder.
struct Site {
    dir: tempfile::TempDir,
    authority: Authority,
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::ensure(dir.path(), now()).unwrap();
        Self { dir, authority }
    }

    fn daemon(&self) -> Keyring {
        Keyring::of_cluster(self.dir.path())
    }

    fn key(&self, name: &str, holder: Holder, made: Timestamp) -> Keyring {
        put(self.dir.path(), name, &self.authority.issue(name, holder, 30, made).unwrap())
    }
}

/// Passes bytes between the sides until neither has more; the error of the side that refuses.
fn exchange(client: &mut Connection, server: &mut Connection) -> Result<(), String> {
    for _ in 0..10 {
        for turn in 0..2 {
            let (from, to) =
                if turn == 0 { (&mut *client, &mut *server) } else { (&mut *server, &mut *client) };
            let mut bytes = Vec::new();
            while from.wants_write() {
                from.write_tls(&mut bytes).unwrap();
            }
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                to.read_tls(&mut rest).unwrap();
                to.process_new_packets().map_err(|error| error.to_string())?;
            }
        }
    }
    Ok(())
}

/// The peer that a daemon sees.
fn meet(client: &Keyring, server: &Keyring) -> Result<Peer, String> {
    let config = client.key().unwrap().client().map_err(|error| error.to_string())?;
    let connection = ClientConnection::new(config, KeyFile::daemon_name()).unwrap();
    let mut client = Connection::Client(connection);
    let config = server.key().unwrap().server().map_err(|error| error.to_string())?;
    let mut server = Connection::Server(ServerConnection::new(config).unwrap());
    exchange(&mut client, &mut server)?;
    assert!(!client.is_handshaking() && !server.is_handshaking());
    let stated = KeyFile::stated(server.peer_certificates().unwrap_or_default());
    Ok(stated.ok_or("no key is stated")?.holder.peer())
}

#[test]
fn a_daemon_learns_for_whom_a_key_speaks() {
    let site = Site::new();
    let daemon = site.daemon();
    assert_eq!(meet(&daemon, &daemon), Ok(Peer::Trusted));
    for squash_root in [false, true] {
        let mount =
            site.key(&format!("mount.{squash_root}"), Holder::Everyone { squash_root }, now());
        assert_eq!(meet(&mount, &daemon), Ok(Peer::Host { squash_root }));
    }
    let alice = site.key("alice", Holder::User(user()), now());
    assert_eq!(meet(&alice, &daemon), Ok(Peer::User(user())));
}

#[test]
fn only_the_key_of_a_daemon_proves_a_daemon() {
    let site = Site::new();
    let alice = site.key("alice", Holder::User(user()), now());
    for name in ["mount", "bob"] {
        let holder = if name == "mount" { EVERYONE } else { Holder::User(user()) };
        let key = site.key(name, holder, now());
        assert!(meet(&alice, &key).is_err(), "{name}");
    }
}

#[test]
fn keys_of_another_authority_are_refused_by_both_sides() {
    let (site, other) = (Site::new(), Site::new());
    let stranger = other.key("mallory", EVERYONE, now());
    assert!(meet(&stranger, &site.daemon()).is_err());
    assert!(meet(&other.daemon(), &site.daemon()).is_err());
    // A certificate of the other authority, followed by this one's.
    let forged = other.authority.issue("forged", EVERYONE, 30, now()).unwrap();
    let own = std::fs::read_to_string(site.dir.path().join("keys/authority.pem")).unwrap();
    let theirs = std::fs::read_to_string(other.dir.path().join("keys/authority.pem")).unwrap();
    let forged = put(site.dir.path(), "forged", &forged.replace(&theirs, &own));
    let refused = meet(&forged, &site.daemon()).unwrap_err();
    assert!(refused.contains("certificate"), "{refused}");
}

#[test]
fn an_expired_key_and_one_of_the_future_are_refused() {
    let site = Site::new();
    let old = site.key("old", EVERYONE, Timestamp(now().0 - 31 * DAY));
    let refused = meet(&old, &site.daemon()).unwrap_err();
    assert!(refused.contains("xpired"), "{refused}");
    let early = site.key("early", EVERYONE, Timestamp(now().0 + 3 * DAY));
    assert!(meet(&early, &site.daemon()).is_err());
    // Clocks may differ by hours.
    let hours = site.key("hours", EVERYONE, Timestamp(now().0 + DAY / 24));
    assert_eq!(meet(&hours, &site.daemon()), Ok(HOST));
}

#[test]
fn a_revoked_key_is_refused_at_once() {
    let site = Site::new();
    let alice = site.key("alice", Holder::User(user()), now());
    let daemon = site.daemon();
    assert!(meet(&alice, &daemon).is_ok());
    let issued = site.authority.list().unwrap();
    let [_, issued] = &issued[..] else { panic!("{issued:?}") };
    assert_eq!((issued.name.as_str(), issued.uid), ("alice", Some(7)));
    site.authority.revoked().add(issued.id).unwrap();
    let refused = meet(&alice, &daemon).unwrap_err();
    assert!(refused.contains("evoked"), "{refused}");
    // Its name is free again.
    let again = site.key("alice", Holder::User(user()), now());
    assert!(meet(&again, &daemon).is_ok());
}

#[test]
fn a_key_file_is_read_again_when_it_changes() {
    let site = Site::new();
    let key = site.key("mount", EVERYONE, Timestamp(now().0 - 31 * DAY));
    assert!(meet(&key, &site.daemon()).is_err());
    let renewed = site.authority.issue("mount.2", EVERYONE, 30, now()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    put(site.dir.path(), "mount", &renewed);
    assert_eq!(meet(&key, &site.daemon()), Ok(HOST));
}

#[test]
fn files_that_are_no_keys_and_keys_that_others_may_read_are_refused() {
    let site = Site::new();
    let key = site.key("mount", EVERYONE, now());
    let file = site.dir.path().join("mount");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(key.key().unwrap().client().unwrap_err().errno, Errno::Access);
    for text in ["", "no key", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let key = put(site.dir.path(), "damaged", text);
        assert_eq!(key.key().unwrap().client().unwrap_err().errno, Errno::Invalid, "{text:?}");
    }
    let absent = Keyring::of(&site.dir.path().join("absent"));
    assert_eq!(absent.key().unwrap().client().unwrap_err().errno, Errno::NotFound);
    assert_eq!(Keyring::default().key().unwrap_err().errno, Errno::Access);
}

#[test]
fn private_files_are_for_their_owner_and_names_can_be_listed() {
    let site = Site::new();
    for entry in std::fs::read_dir(site.dir.path().join(FOLDER)).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}", entry.path().display());
    }
    for name in ["", "a b", "a\nb", "../a"] {
        let refused = site.authority.issue(name, EVERYONE, 30, now()).unwrap_err();
        assert_eq!(refused.errno, Errno::Invalid, "{name:?}");
    }
    site.key("a", EVERYONE, now());
    let refused = site.authority.issue("a", EVERYONE, 30, now()).unwrap_err();
    assert_eq!(refused.errno, Errno::Exists);
    site.authority.issue("rank", Holder::Daemon, 30, now()).unwrap();
    let refused = site.authority.issue("rank", Holder::Daemon, 30, now()).unwrap_err();
    assert_eq!(refused.errno, Errno::Exists);
    // The key of the daemons here is made again if its file is gone; an authority stays.
    std::fs::remove_file(site.dir.path().join("keys/daemon.pem")).unwrap();
    Authority::ensure(site.dir.path(), now()).unwrap();
    assert!(site.daemon().key().is_ok());
    let before = std::fs::read(site.dir.path().join("keys/authority.pem")).unwrap();
    Authority::ensure(site.dir.path(), now()).unwrap();
    assert_eq!(std::fs::read(site.dir.path().join("keys/authority.pem")).unwrap(), before);
}

#[test]
fn a_certificate_states_one_key_with_one_holder() {
    let id = KeyId(0x1f);
    let limited = |holder, rules: &[&str]| {
        let rules = rules.iter().map(|rule| KeyRule::parse(rule).unwrap()).collect();
        Holder::Limited(Box::new(holder), KeyRules::new(rules).unwrap())
    };
    let readers = [
        limited(EVERYONE, &["read:/"]),
        limited(Holder::User(user()), &["read:/"]),
        limited(SQUASHED, &["read:/", "read,write,decouple:/a b/\u{e9}"]),
    ];
    let holders = [Holder::Daemon, EVERYONE, SQUASHED, Holder::User(user())];
    for holder in holders.into_iter().chain(readers) {
        let key = NamedKey { id, holder, until: 1_900_000_000 };
        assert_eq!(stated(&key.names(), &key.uris()), Some(key));
    }
    let id = "id-000000000000001f.cudele.internal";
    let until = "until-1900000000.cudele.internal";
    // As earlier versions made it.
    let earlier = stated(&[id, "daemon.cudele.internal"], &[] as &[&str]).unwrap();
    assert_eq!((earlier.holder.kind(), earlier.is_over(i64::MAX - 1)), ("daemon", false));
    for names in [
        &[][..],
        &[id],
        &["daemon.cudele.internal"],
        &[id, "daemon.cudele.internal", "reader.cudele.internal"],
        &[id, id, "daemon.cudele.internal"],
        &[id, until, until, "daemon.cudele.internal"],
        &[id, "until-never.cudele.internal", "daemon.cudele.internal"],
        &[id, "daemon.cudele.internal", "everyone.cudele.internal"],
        &[id, "daemon.cudele.internal", "uid-1.cudele.internal", "gid-1.cudele.internal"],
        &[id, "daemon.cudele.internal", "group-1.cudele.internal"],
        &[id, "uid-1.cudele.internal"],
        &[id, "uid-x.cudele.internal", "gid-1.cudele.internal"],
        &[id, "uid-1.cudele.internal", "uid-2.cudele.internal", "gid-1.cudele.internal"],
        &[id, "daemon.example.org"],
        &[id, "daemon.cudele.internal", "other.cudele.internal"],
    ] {
        assert_eq!(stated(names, &[] as &[&str]), None, "{names:?}");
    }
    let limited = [id, "everyone.cudele.internal", "limited.cudele.internal"];
    let refused: [(&[&str], &[&str]); 6] = [
        (&limited, &[]),
        (&limited[..2], &["cudele:read:/"]),
        (&limited, &["cudele:read:/", "cudele:all:/"]),
        (&limited, &["https://example.org"]),
        (&[id, "everyone.cudele.internal", "reader.cudele.internal"], &["cudele:read:/"]),
        (&[id, "daemon.cudele.internal", "limited.cudele.internal"], &["cudele:read:/"]),
    ];
    for (names, uris) in refused {
        assert_eq!(stated(names, uris), None, "{names:?} {uris:?}");
    }
    assert!(stated(&limited, &["cudele:read:/"]).is_some());
}

fn stated(names: &[impl AsRef<str>], uris: &[impl AsRef<str>]) -> Option<NamedKey> {
    NamedKey::stated(names.iter().map(AsRef::as_ref), uris.iter().map(AsRef::as_ref))
}

#[test]
fn a_line_that_a_full_disk_cut_off_hides_no_later_one() {
    use std::io::Write;
    let site = Site::new();
    for list in ["revoked", "issued"] {
        let file = site.dir.path().join("keys").join(list);
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(file).unwrap();
        file.write_all(b"0000000000001f").unwrap();
    }
    site.key("alice", EVERYONE, now());
    let issued = site.authority.list().unwrap();
    let alice = issued.iter().find(|key| key.name == "alice").expect("listed").id;
    site.authority.revoked().add(alice).unwrap();
    assert!(site.authority.revoked().has(alice));
    assert_eq!(site.authority.revoked().all(), [alice]);
    // A key for reading, as an earlier version listed it.
    let file = site.dir.path().join("keys/issued");
    let mut file = std::fs::OpenOptions::new().append(true).open(file).unwrap();
    file.write_all(b"00000000000000ff old reader - 1900000000\n").unwrap();
    let issued = site.authority.list().unwrap();
    assert_eq!(issued.last().unwrap().rules, Some(KeyRules::reading()));
}
