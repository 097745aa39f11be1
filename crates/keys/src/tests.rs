//! Two sides of a connection in memory, with keys of every kind.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustls::{ClientConnection, Connection, ServerConnection};
use types::{Cred, Errno, IdRanges, KeyRule, KeyRules, Peer, Timestamp};

use crate::*;

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
        put(
            self.dir.path(),
            name,
            &self.authority.issue(NewKey::new(name, holder, 30), made).unwrap(),
        )
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
    let ids = |text: &str| text.parse::<IdRanges>().unwrap();
    let (users, groups) = (ids("1000-1999,2500"), ids("100"));
    for (name, holder, peer) in [
        ("mount", Holder::everyone(), Peer::host()),
        ("squashed", Holder::without_root(), Peer::host_without_root()),
        (
            "node",
            Holder::Host { users: users.clone(), groups: groups.clone() },
            Peer::Host { users, groups },
        ),
    ] {
        assert_eq!(meet(&site.key(name, holder, now()), &daemon), Ok(peer), "{name}");
    }
    let alice = site.key("alice", Holder::User(user()), now());
    assert_eq!(meet(&alice, &daemon), Ok(Peer::User(user())));
}

#[test]
fn only_the_key_of_a_daemon_proves_a_daemon() {
    let site = Site::new();
    let alice = site.key("alice", Holder::User(user()), now());
    for name in ["mount", "bob"] {
        let holder = if name == "mount" { Holder::everyone() } else { Holder::User(user()) };
        let key = site.key(name, holder, now());
        assert!(meet(&alice, &key).is_err(), "{name}");
    }
}

#[test]
fn keys_of_another_authority_are_refused_by_both_sides() {
    let (site, other) = (Site::new(), Site::new());
    let stranger = other.key("mallory", Holder::everyone(), now());
    assert!(meet(&stranger, &site.daemon()).is_err());
    assert!(meet(&other.daemon(), &site.daemon()).is_err());
    // A certificate of the other authority, followed by this one's.
    let forged =
        other.authority.issue(NewKey::new("forged", Holder::everyone(), 30), now()).unwrap();
    let own = std::fs::read_to_string(site.dir.path().join("keys/authority.pem")).unwrap();
    let theirs = std::fs::read_to_string(other.dir.path().join("keys/authority.pem")).unwrap();
    let forged = put(site.dir.path(), "forged", &forged.replace(&theirs, &own));
    let refused = meet(&forged, &site.daemon()).unwrap_err();
    assert!(refused.contains("certificate"), "{refused}");
}

#[test]
fn an_expired_key_and_one_of_the_future_are_refused() {
    let site = Site::new();
    let old = site.key("old", Holder::everyone(), Timestamp(now().0 - 31 * DAY));
    let refused = meet(&old, &site.daemon()).unwrap_err();
    assert!(refused.contains("xpired"), "{refused}");
    let early = site.key("early", Holder::everyone(), Timestamp(now().0 + 3 * DAY));
    assert!(meet(&early, &site.daemon()).is_err());
    // Clocks may differ by hours.
    let hours = site.key("hours", Holder::everyone(), Timestamp(now().0 + DAY / 24));
    assert_eq!(meet(&hours, &site.daemon()), Ok(Peer::host()));
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
    let key = site.key("mount", Holder::everyone(), Timestamp(now().0 - 31 * DAY));
    assert!(meet(&key, &site.daemon()).is_err());
    let renewed =
        site.authority.issue(NewKey::new("mount.2", Holder::everyone(), 30), now()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    put(site.dir.path(), "mount", &renewed);
    assert_eq!(meet(&key, &site.daemon()), Ok(Peer::host()));
}

#[test]
fn files_that_are_no_keys_and_keys_that_others_may_read_are_refused() {
    let site = Site::new();
    let key = site.key("mount", Holder::everyone(), now());
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
        let refused =
            site.authority.issue(NewKey::new(name, Holder::everyone(), 30), now()).unwrap_err();
        assert_eq!(refused.errno, Errno::Invalid, "{name:?}");
    }
    site.key("a", Holder::everyone(), now());
    let refused =
        site.authority.issue(NewKey::new("a", Holder::everyone(), 30), now()).unwrap_err();
    assert_eq!(refused.errno, Errno::Exists);
    site.authority.issue(NewKey::new("rank", Holder::Daemon, 30), now()).unwrap();
    let refused = site.authority.issue(NewKey::new("rank", Holder::Daemon, 30), now()).unwrap_err();
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
        limited(Holder::everyone(), &["read:/"]),
        limited(Holder::User(user()), &["read:/"]),
        limited(Holder::without_root(), &["read:/", "read,write,decouple:/a b/\u{e9}"]),
    ];
    let ids = |text: &str| text.parse::<IdRanges>().unwrap();
    let host = Holder::Host { users: ids("1000-1999,2500"), groups: ids("100") };
    let some = limited(host.clone(), &["read:/"]);
    let holders =
        [Holder::Daemon, Holder::everyone(), Holder::without_root(), Holder::User(user())];
    for holder in holders.into_iter().chain(readers).chain([host, some]) {
        for networks in [&[][..], &["10.0.0.0/8"], &["10.1.2.0/24", "2001:db8::/32"]] {
            let networks = networks.iter().map(|it| it.parse().unwrap()).collect();
            let key = NamedKey {
                id,
                holder: holder.clone(),
                until: 1_900_000_000,
                networks,
                narrowed_from: None,
            };
            assert_eq!(stated(&key.names(), &key.uris()), Some(key));
        }
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
}

#[test]
fn a_certificate_states_rules_users_and_networks_under_their_names_only() {
    let id = "id-000000000000001f.cudele.internal";
    let limited = [id, "everyone.cudele.internal", "limited.cudele.internal"];
    let host = [id, "host.cudele.internal"];
    let bound = [id, "everyone.cudele.internal", "networks.cudele.internal"];
    let (users, groups) = ("cudele-users:1000-1999", "cudele-groups:100");
    let refused: [(&[&str], &[&str]); 16] = [
        (&host, &[]),
        (&host, &[users]),
        (&host, &[groups, users]),
        (&host, &[users, groups, groups]),
        (&host, &["cudele-users:9-1", groups]),
        (&bound[..2], &[users, groups]),
        (&bound, &[]),
        (&bound[..2], &["cudele-network:10.0.0.0/8"]),
        (&bound, &["cudele-network:10.0.0.0"]),
        (&[id, "networks.cudele.internal"], &["cudele-network:10.0.0.0/8"]),
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
    assert!(stated(&host, &[users, groups]).is_some());
    assert!(stated(&bound, &["cudele-network:10.0.0.0/8"]).is_some());
}

#[test]
fn a_key_is_for_the_addresses_of_its_networks() {
    let key = |networks: &[&str]| NamedKey {
        id: KeyId(1),
        holder: Holder::everyone(),
        until: 0,
        networks: networks.iter().map(|it| it.parse().unwrap()).collect(),
        narrowed_from: None,
    };
    let from = |key: &NamedKey, address: &str| key.is_for(address.parse().unwrap());
    let here = key(&["10.1.0.0/16", "2001:db8::/32"]);
    for address in ["10.1.2.3", "::ffff:10.1.2.3", "2001:db8::7"] {
        assert!(from(&here, address), "{address}");
    }
    for address in ["10.2.2.3", "::ffff:10.2.2.3", "2001:db9::7", "::1"] {
        assert!(!from(&here, address) && from(&key(&[]), address), "{address}");
    }
}

#[test]
fn the_list_names_the_users_and_networks_of_a_key() {
    let site = Site::new();
    let ids = |text: &str| text.parse::<IdRanges>().unwrap();
    let (users, groups) = (ids("1000-1999"), ids("100,1000-1999"));
    let holder = Holder::Host { users: users.clone(), groups: groups.clone() };
    let networks = vec!["10.1.0.0/16".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
    let rules = KeyRules::new(vec![KeyRule::parse("read:/a").unwrap()]).unwrap();
    let limited = Holder::Limited(Box::new(holder.clone()), rules.clone());
    for (name, holder, rules) in [("plain", holder, None), ("limited", limited, Some(rules))] {
        let new = NewKey { networks: networks.clone(), ..NewKey::new(name, holder, 30) };
        site.authority.issue(new, now()).unwrap();
        let listed = site.authority.list().unwrap().pop().unwrap();
        assert_eq!((listed.name.as_str(), listed.kind.as_str()), (name, "host"));
        assert_eq!(listed.host, Some((users.clone(), groups.clone())));
        assert_eq!((listed.networks, listed.rules), (networks.clone(), rules));
    }
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
    site.key("alice", Holder::everyone(), now());
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

/// A rule list.
fn rules(texts: &[&str]) -> KeyRules {
    KeyRules::new(texts.iter().map(|text| KeyRule::parse(text).unwrap()).collect()).unwrap()
}

/// The text of a key file, and of one that is narrowed from it.
fn narrowed(site: &Site, new: NewKey, wish: &Narrower) -> types::Result<String> {
    let text = site.authority.issue(new, now()).unwrap();
    narrow("wide.pem", &text, wish, now())
}

const HOUR: i64 = 3600;

#[test]
fn the_key_of_a_job_changes_nothing_outside_its_subtree() {
    let site = Site::new();
    let job = types::Path::parse("/a/job").unwrap();
    let of = |name, holder| {
        let text = site.authority.issue(NewKey::new(name, holder, 30), now()).unwrap();
        let wish = Narrower::for_job(&narrowable("wide.pem", &text).unwrap(), &job, HOUR).unwrap();
        // No daemon accepts a key with more than its signer has, and neither does this.
        narrow("wide.pem", &text, &wish, now()).unwrap();
        wish.rules.unwrap().to_string()
    };
    let all = of("all", Holder::User(user()));
    assert!(all.starts_with("read,write,decouple,merge,") && all.ends_with(":/a/job read:/"));
    assert!(
        !all.contains("admin") && !all.contains("balance") && !all.contains("recover"),
        "{all}"
    );
    let limited = rules(&["read:/", "write,decouple,admin:/a", "write:/b"]);
    let limited = of("limited", Holder::Limited(Box::new(Holder::everyone()), limited));
    assert_eq!(limited, "read:/a/job write,decouple:/a/job read:/");
}

#[test]
fn a_key_that_its_owner_narrowed_has_no_more_than_the_key_that_signed_it() {
    let site = Site::new();
    let daemon = site.daemon();
    let wish =
        Narrower { rules: Some(rules(&["read,write:/job"])), seconds: HOUR, ..Narrower::default() };
    let alice = NewKey::new("alice", Holder::User(user()), 30);
    let job = put(site.dir.path(), "job", &narrowed(&site, alice, &wish).unwrap());
    let peer = Peer::Limited(Box::new(Peer::User(user())), rules(&["read,write:/job"]));
    assert_eq!(meet(&job, &daemon), Ok(peer));
    // It is the alice's that the authority knows, and that can be revoked.
    let issued = site.authority.list().unwrap().pop().unwrap().id;
    site.authority.revoked().add(issued).unwrap();
    assert!(meet(&job, &daemon).unwrap_err().contains("evoked"));

    let limited = |name: &str| {
        let holder = Holder::Limited(Box::new(Holder::everyone()), rules(&["read:/", "write:/a"]));
        NewKey { networks: vec!["10.0.0.0/8".parse().unwrap()], ..NewKey::new(name, holder, 1) }
    };
    let wishes: [(Narrower, bool); 7] = [
        (Narrower { seconds: HOUR, ..Narrower::default() }, true),
        (Narrower { rules: Some(rules(&["read:/b"])), seconds: HOUR, ..Narrower::default() }, true),
        (
            Narrower { rules: Some(rules(&["write:/"])), seconds: HOUR, ..Narrower::default() },
            false,
        ),
        (
            Narrower { rules: Some(rules(&["admin:/"])), seconds: HOUR, ..Narrower::default() },
            false,
        ),
        (
            Narrower { networks: vec!["10.1.0.0/16".parse().unwrap()], seconds: HOUR, rules: None },
            true,
        ),
        (
            Narrower { networks: vec!["11.0.0.0/8".parse().unwrap()], seconds: HOUR, rules: None },
            false,
        ),
        // Its life ends with that of the wider key.
        (Narrower { seconds: 1000 * HOUR, ..Narrower::default() }, true),
    ];
    for (number, (wish, is_given)) in wishes.iter().enumerate() {
        let made = narrowed(&site, limited(&format!("key.{number}")), wish);
        assert_eq!(made.is_ok(), *is_given, "{wish:?}");
        if let Ok(text) = made {
            meet(&put(site.dir.path(), &format!("narrow.{number}"), &text), &daemon).unwrap();
        } else if let Err(error) = made {
            assert_eq!(error.errno, Errno::NotPermitted);
        }
    }
    // The host speaks for alice, and is none of her clients.
    let named = |holder| NamedKey {
        id: KeyId(1),
        holder,
        until: 0,
        networks: Vec::new(),
        narrowed_from: None,
    };
    let (host, alice) = (named(Holder::everyone()), named(Holder::User(user())));
    assert!(host.holder.peer().may_act_as(&user()) && alice.clone().narrowed(&host).is_none());
    assert!(alice.clone().narrowed(&alice).is_some() && host.clone().narrowed(&host).is_some());
    let refuse = |text: &str| narrow("x", text, &wish, now()).unwrap_err().errno;
    let own = std::fs::read_to_string(site.dir.path().join("keys/daemon.pem")).unwrap();
    let job = std::fs::read_to_string(site.dir.path().join("job")).unwrap();
    assert_eq!([refuse(&own), refuse(&job), refuse("")], [Errno::Invalid; 3]);
}

#[test]
fn a_certificate_that_says_more_than_its_signer_is_refused() {
    use rcgen::{CertificateParams, Issuer, KeyPair};
    let site = Site::new();
    let daemon = site.daemon();
    let text = site.authority.issue(NewKey::new("alice", Holder::User(user()), 30), now()).unwrap();
    let wide = NamedKey { id: site.authority.list().unwrap().pop().unwrap().id, ..key_of(&text) };
    let parts: Vec<&str> = text.split_inclusive("-----END CERTIFICATE-----\n").collect();
    let [own, signer, authority, private] = parts[..] else { panic!("{} parts", parts.len()) };
    let private = KeyPair::from_pem(private).unwrap();
    // The owner of the key can sign each of these certificates without this program.
    let signed = |key: &NamedKey, is_ca: bool| {
        let mut by = CertificateParams::default();
        by.distinguished_name = crate::certificate::signer_name(&wide);
        let own = KeyPair::generate().unwrap();
        let from = crate::certificate::seconds_of(now());
        let made = if is_ca {
            crate::certificate::of_signer(key, from)
        } else {
            crate::certificate::of_key(key, "x", from)
        };
        let made = made.unwrap().signed_by(&own, &Issuer::from_params(&by, &private)).unwrap();
        (made.pem(), own)
    };
    let site_dir = site.dir.path();
    let try_key = |name: &str, chain: &[&str], own: &KeyPair| {
        let text = [&chain.concat(), authority, &own.serialize_pem()].concat();
        meet(&put(site_dir, name, &text), &daemon)
    };
    let limited = |holder, texts: &[&str]| Holder::Limited(Box::new(holder), rules(texts));
    let other = Cred { uid: 8, ..user() };
    let more = Cred { groups: vec![0], ..user() };
    let holders = [
        (Holder::User(user()), true),
        (limited(Holder::User(user()), &["read:/"]), true),
        (Holder::User(Cred { groups: vec![71], ..user() }), true),
        (limited(Holder::User(user()), &["admin:/"]), false),
        (Holder::User(other), false),
        (Holder::User(more), false),
        (Holder::User(Cred::root()), false),
        (Holder::everyone(), false),
        (Holder::without_root(), false),
        (Holder::Daemon, false),
    ];
    for (number, (holder, is_accepted)) in holders.into_iter().enumerate() {
        let key = NamedKey { id: KeyId(7), holder, ..wide.clone() };
        let (made, own) = signed(&key, false);
        let met = try_key(&format!("k.{number}"), &[&made, signer], &own);
        assert_eq!(met.is_ok(), is_accepted, "{key:?}: {met:?}");
        // Without its signer, or with the certificate that does not sign.
        assert!(try_key(&format!("l.{number}"), &[&made], &own).is_err());
        assert!(try_key(&format!("m.{number}"), &[&made, parts[0]], &own).is_err());
    }
    let longer = NamedKey { until: wide.until + 1, ..wide.clone() };
    let (made, own_key) = signed(&longer, false);
    assert!(try_key("longer", &[&made, signer], &own_key).is_err());
    // A narrower key signs none, and the certificate that signs proves no key.
    let (middle, middle_key) = signed(&wide, true);
    let mut by = CertificateParams::default();
    by.distinguished_name = crate::certificate::signer_name(&wide);
    let leaf_key = KeyPair::generate().unwrap();
    let leaf = crate::certificate::of_key(&wide, "x", 0).unwrap();
    let leaf = leaf.signed_by(&leaf_key, &Issuer::from_params(&by, &middle_key)).unwrap().pem();
    assert!(try_key("deep", &[&leaf, &middle], &leaf_key).is_err());
    assert!(try_key("deeper", &[&leaf, &middle, signer], &leaf_key).is_err());
    assert!(try_key("signer", &[signer], &private).is_err());
    assert!(try_key("own", &[own, signer], &private).is_ok());
    assert!(try_key("twice", &[own, signer, signer], &private).is_err());
}

/// The key that a key file states.
fn key_of(text: &str) -> NamedKey {
    use rustls::pki_types::pem::PemObject;
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(text.as_bytes()).take(1).collect();
    KeyFile::stated(&certificates.unwrap()).unwrap()
}

#[test]
fn a_narrowed_key_file_has_no_private_key_of_the_wider_one() {
    let site = Site::new();
    let new = NewKey::new("alice", Holder::User(user()), 30);
    let text = site.authority.issue(new, now()).unwrap();
    let at = text.find("-----BEGIN PRIVATE").unwrap();
    let (certificates, private) = text.split_at(at);
    let (own, others) = certificates.split_at(certificates.find("-----END").unwrap() + 26);
    let secret = private.lines().nth(1).unwrap();
    let wish = Narrower { seconds: HOUR, ..Narrower::default() };
    // As editors and other systems leave files.
    let windows = text.replace('\n', "\r\n");
    let first = [private, certificates].concat();
    let between = [own, private, others].concat();
    let commented = format!("# alice's key\n{text}# the end");
    for (number, text) in [windows, first, between, commented].iter().enumerate() {
        let made = narrow("alice.pem", text, &wish, now()).unwrap();
        assert!(text.contains(secret) && !made.contains(secret), "{number}");
        assert_eq!(made.matches("PRIVATE KEY").count(), 2, "the start and the end of one");
        let key = put(site.dir.path(), &format!("made.{number}"), &made);
        assert_eq!(meet(&key, &site.daemon()), Ok(Peer::User(user())), "{number}");
    }
}
