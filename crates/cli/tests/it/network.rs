//! Clusters whose daemons listen on TCP: with keys, and without them on one machine.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;

use cudele::{Cluster as Library, Cred, Errno, Fs, NewFile, Policy};
use net::Keyring;
use serde_json::{Value, json};

use crate::cluster::{Cluster, eventually, text};
use crate::site::Hosts;

/// A user other than root, without an entry in the list of users.
const USER: &str = "424242";

/// A cluster whose daemons were started by hand.
struct Networked {
    cluster: Cluster,
    monitor: String,
    daemons: Vec<Child>,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).unwrap().port()
}

impl Networked {
    /// A monitor and this many ranks, at addresses of this kind.
    fn start(kind: &str, ranks: usize) -> Self {
        let cluster = Cluster::down();
        cluster.start();
        cluster.run(&["down"]);
        let address = || format!("{kind}:127.0.0.1:{}", free_port());
        let monitor = address();
        let mut daemons = vec![daemon(&cluster, &["mon", "--listen", &monitor])];
        for rank in 0..ranks {
            let (rank, listen) = (rank.to_string(), address());
            let arguments = ["mds", "--rank", &rank, "--listen", &listen, "--mon", &monitor];
            daemons.push(daemon(&cluster, &arguments));
        }
        let networked = Self { cluster, monitor, daemons };
        eventually("the ranks are active", || {
            let output = networked.command(&["status", "--json"]).output().unwrap();
            let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let servers = status["mds"].as_array().cloned().unwrap_or_default();
            servers.iter().filter(|server| server["state"] == "active").count() == ranks
        });
        networked
    }

    /// The program with the key of the daemons.
    fn command(&self, arguments: &[&str]) -> std::process::Command {
        self.cluster.command(&[&["--mon", &self.monitor], arguments].concat())
    }

    /// The program without the directory of the cluster, as on another host.
    fn elsewhere(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_cudele"));
        command.env_remove("CUDELE_DIR").env_remove("CUDELE_KEY").env("HOME", &self.cluster.home);
        command.env("CUDELE_MON", &self.monitor);
        command.env("CUDELE_STATE", self.cluster.home.join("state.elsewhere"));
        command.args(arguments).stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// A new key.
    fn key(&self, name: &str, options: &[&str]) -> PathBuf {
        let file = self.cluster.home.join(format!("{name}.pem"));
        let arguments = ["auth", "add", name, "--out", file.to_str().unwrap()];
        self.cluster.run(&[&arguments, options].concat());
        file
    }

    /// A client with this key.
    fn client(&self, key: &Path) -> cudele::Result<Arc<Fs>> {
        Library::connect_with(&self.monitor.parse()?, &Keyring::of(key))?.mount()
    }
}

impl Drop for Networked {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

fn daemon(cluster: &Cluster, arguments: &[&str]) -> Child {
    let log = fs::OpenOptions::new().create(true).append(true).open(cluster.home.join("daemons"));
    let log = log.unwrap();
    let mut command = cluster.command(arguments);
    command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
}

#[test]
fn a_key_says_for_whom_its_process_asks_over_tcp() {
    let site = Networked::start("tcp", 2);
    site.run(&["mkdir", "-m", "700", "/private"]);
    site.run(&["mkdir", "-m", "1777", "/open"]);
    fs::write(site.cluster.home.join("secret"), "the secret").unwrap();
    let secret = format!("local:{}", site.cluster.home.join("secret").display());
    site.run(&["cp", &secret, "/private/secret"]);
    // The other rank serves it: the two talk over TCP, too.
    site.run(&["mds", "pin", "/open", "1"]);

    let alice = site.key("alice", &["--user", USER]);
    let fs = site.client(&alice).unwrap();
    assert_eq!(fs.stat("/private/secret").unwrap_err().errno, Errno::Access);
    let made = fs.make_dir("/open/hers", 0o755).unwrap();
    assert_eq!(made.uid.to_string(), USER);
    let file = fs.open_dir("/open/hers").unwrap().create("file", &NewFile::default()).unwrap();
    assert_eq!(file.uid.to_string(), USER);
    assert_eq!(fs.client().user().to_string(), USER);

    // A mount speaks for root of its host, or not, and never commands.
    let (host, squashed) =
        (site.key("host", &["--everyone"]), site.key("squashed", &["--squash-root"]));
    assert_eq!(site.client(&host).unwrap().stat("/private/secret").unwrap().size, 10);
    let nobody = site.client(&squashed).unwrap();
    if cudele::own_cred().is_root() {
        assert_eq!(nobody.stat("/private/secret").unwrap_err().errno, Errno::Access);
        assert_eq!(nobody.make_dir("/open/nobodys", 0o755).unwrap().uid, types::NOBODY);
    }

    // A key for reading.
    let reader = site.key("reader", &["--everyone", "--read-only"]);
    let reader = site.client(&reader).unwrap();
    assert_eq!(reader.stat("/private/secret").unwrap().size, 10);
    assert_eq!(reader.make_dir("/open/x", 0o755).unwrap_err().errno, Errno::ReadOnly);
    assert_eq!(reader.remove_tree("/open/hers").unwrap_err().errno, Errno::ReadOnly);
    let policy = Policy::from_name_or_text("batchfs").unwrap().policy;
    assert_eq!(reader.decouple("/open", &policy).unwrap_err().errno, Errno::ReadOnly);

    // The program of another host, with this key and without one.
    let key = alice.to_str().unwrap();
    let listed = site.elsewhere(&["--key", key, "ls", "/open"]).output().unwrap();
    assert!(text(&listed.stdout).starts_with("hers\n"), "{}", text(&listed.stderr));
    let host = host.to_str().unwrap();
    let commands = [&["--key", key, "down"][..], &["--key", key, "mds", "fail", "0"]];
    for arguments in commands.into_iter().chain([&["--key", host, "down"][..]]) {
        let refused = site.elsewhere(arguments).output().unwrap();
        assert!(!refused.status.success());
        let said = text(&refused.stderr);
        assert!(said.contains("does not administer this cluster"), "{said}");
    }
    // All of that is in the audit log, with the user and the key.
    let noted = site.cluster.json(&["audit"]);
    let noted = noted.as_array().unwrap();
    let find = |op: &str, peer: &str| {
        let found = noted.iter().find(|line| line["op"] == op && line["peer"] == peer);
        found.unwrap_or_else(|| panic!("{op} by {peer}: {noted:?}")).clone()
    };
    let user = format!("user {USER}");
    for (op, peer, result) in [
        ("export", "owner", "ok"),
        ("stop", &user, "EPERM"),
        ("fail", &user, "EPERM"),
        ("stop", "host", "EPERM"),
        ("decouple", "host with read:/", "EROFS"),
    ] {
        let line = find(op, peer);
        assert_eq!(line["result"], result, "{line}");
        assert!(line["from"].as_str().unwrap().contains("key "), "{line}");
    }

    let refused = site.elsewhere(&["ls", "/"]).output().unwrap();
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("needs a key"), "{said}");
    assert!(said.contains("cudele auth add") && said.contains("CUDELE_KEY"), "{said}");
}

/// A rank on another host, which has a key of its own and no list but its own.
fn other_host(site: &mut Networked, rank: usize) -> PathBuf {
    let folder = site.cluster.home.join("other-host");
    fs::create_dir(&folder).unwrap();
    let key = folder.join("daemon.pem");
    let made = ["auth", "add", "other-host", "--daemon", "--out", key.to_str().unwrap()];
    site.cluster.run(&made);
    let listen = format!("tcp:127.0.0.1:{}", free_port());
    let arguments = ["--key", key.to_str().unwrap(), "mds", "--rank", &rank.to_string()];
    let places = ["--listen", &listen, "--mon", &site.monitor];
    let daemon = daemon(&site.cluster, &[&arguments[..], &places].concat());
    site.daemons.push(daemon);
    eventually("the rank is active", || {
        let status: Value = serde_json::from_str(&site.run(&["status", "--json"])).unwrap();
        status["mds"][rank]["state"] == "active"
    });
    folder
}

#[test]
fn a_key_is_revoked_on_all_hosts() {
    let mut site = Networked::start("tcp", 1);
    let folder = other_host(&mut site, 1);
    site.run(&["mkdir", "-m", "1777", "/there"]);
    site.run(&["mds", "pin", "/there", "1"]);
    let alice = site.key("alice", &["--user", USER]);
    let hers = site.client(&alice).unwrap();
    hers.make_dir("/there/a", 0o755).unwrap();
    let status = site.client(&alice).unwrap().cluster().status().unwrap();
    let there = status.mds[1].address.parse().unwrap();
    assert!(net::Connection::open(&there, &Keyring::of(&alice)).is_ok());
    site.cluster.run(&["auth", "rm", "alice"]);
    eventually("the other host refuses the key", || {
        let opened = net::Connection::open(&there, &Keyring::of(&alice));
        opened.is_err_and(|error| error.errno == Errno::Access)
    });
    let mut number = 0;
    eventually("her session there ends", || {
        number += 1;
        hers.make_dir(format!("/there/again.{number}"), 0o755).is_err()
    });
    // For the daemons that this host starts without the monitor.
    let (list, first) = (folder.join("revoked"), site.cluster.home.join("c/keys/revoked"));
    assert_eq!(fs::read_to_string(list).unwrap(), fs::read_to_string(first).unwrap());

    // And a client refuses the server of a host whose key was stolen.
    let node = site.key("node", &["--everyone"]);
    let client = site.client(&node).unwrap();
    client.stat("/there/a").unwrap();
    site.cluster.run(&["auth", "rm", "other-host"]);
    eventually("the map says so", || client.cluster().status().unwrap().revoked.len() == 2);
    let refused = net::Connection::open(&there, client.cluster().keys()).unwrap_err();
    assert_eq!(refused.errno, Errno::Access, "{refused}");
}

#[test]
fn a_revoked_key_ends_its_connections() {
    let site = Networked::start("tcp", 1);
    site.run(&["mkdir", "-m", "1777", "/open"]);
    let (alice, node) = (site.key("alice", &["--user", USER]), site.key("node", &["--everyone"]));
    let (hers, other) = (site.client(&alice).unwrap(), site.client(&node).unwrap());
    hers.make_dir("/open/a", 0o755).unwrap();
    other.make_dir("/open/b", 0o755).unwrap();
    assert_eq!(other.stat("/open/b").unwrap().uid, rustix::process::getuid().as_raw());
    site.cluster.run(&["auth", "rm", "alice"]);
    let refused = site.client(&alice).unwrap_err();
    assert_eq!(refused.errno, Errno::Access, "{refused}");
    let mut number = 0;
    eventually("its session ends", || {
        number += 1;
        hers.make_dir(format!("/open/again.{number}"), 0o755).is_err()
    });
    // Also a client that would wait for a server for ever, as a mount does, hears that it need not.
    hers.set_patience(None);
    let refused = hers.make_dir("/open/never", 0o755).unwrap_err();
    assert_eq!(refused.errno, Errno::Access, "{refused}");
    other.make_dir("/open/c", 0o755).unwrap();
    assert_eq!(other.stat("/open/never").unwrap_err().errno, Errno::NotFound);
}

#[test]
fn keys_of_another_cluster_and_of_a_user_make_no_server() {
    let (site, other) = (Networked::start("tcp", 1), Networked::start("tcp", 1));
    let stranger = other.key("mallory", &["--daemon"]);
    let refused = site.client(&stranger).unwrap_err();
    assert_eq!(refused.errno, Errno::Access, "{refused}");
    // A server that has only a user's key is none.
    let alice = site.key("alice", &["--user", USER]);
    let listen = format!("tcp:127.0.0.1:{}", free_port());
    let arguments = ["--key", alice.to_str().unwrap(), "mds", "--rank", "1", "--listen", &listen];
    let mut false_server =
        daemon(&site.cluster, &[&arguments[..], &["--mon", &site.monitor]].concat());
    let mount = site.key("node", &["--everyone"]);
    let address = listen.parse().unwrap();
    eventually("it is refused", || {
        let opened = net::Connection::open(&address, &Keyring::of(&mount));
        let errno = opened.unwrap_err().errno;
        assert!(matches!(errno, Errno::Access | Errno::Refused), "{errno:?}");
        errno == Errno::Access
    });
    let status: Value = serde_json::from_str(&site.run(&["status", "--json"])).unwrap();
    assert_eq!(status["mds"].as_array().unwrap().len(), 1, "{status}");
    false_server.kill().unwrap();
    false_server.wait().unwrap();
}

#[test]
fn a_port_without_keys_is_on_loopback_and_asked_for_by_name() {
    let site = Networked::start("plain", 1);
    let listed = site.elsewhere(&["ls", "/"]).output().unwrap();
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    drop(site);
    let cluster = Cluster::down();
    cluster.start();
    cluster.run(&["down"]);
    let said = cluster.fails(2, &["mon", "--listen", "plain:0.0.0.0:7"]);
    assert!(said.contains("loopback") && said.contains("tcp:"), "{said}");
}

#[test]
fn an_altered_audit_log_is_told() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "/a"]);
    for policy in ["batchfs", "posix", "batchfs"] {
        cluster.run(&["policy", "set", "/a", policy]);
    }
    let said = cluster.say(&["audit"]);
    assert_eq!(said.lines().filter(|line| line.contains("setpolicy")).count(), 3, "{said}");
    let line = format!("/a: done (as {}, owner, unix)", rustix::process::getuid().as_raw());
    assert!(said.contains(&line), "{said}");
    let file = cluster.dir.join("log/audit.mon.jsonl");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&file).unwrap();
    let without_second: Vec<&str> =
        text.lines().enumerate().filter(|(number, _)| *number != 1).map(|(_, it)| it).collect();
    fs::write(&file, without_second.join("\n") + "\n").unwrap();
    let said = cluster.fails(1, &["audit"]);
    assert!(said.contains("audit.mon.jsonl line 2"), "{said}");
}

#[test]
fn a_key_has_rights_in_its_subtrees() {
    let site = Networked::start("tcp", 2);
    for dir in ["/jobs", "/jobs/one", "/users"] {
        site.run(&["mkdir", "-m", "777", dir]);
    }
    site.run(&["mds", "pin", "/jobs", "1"]);
    let rights = ["--allow", "read,write,decouple,merge:/jobs/one"];
    let key = site.key("job", &[&["--user", USER], &rights[..]].concat());
    let fs = site.client(&key).unwrap();
    let made = fs.make_dir("/jobs/one/out", 0o755).unwrap();
    for (path, errno) in
        [("/jobs/two", Errno::Access), ("/users/x", Errno::Access), ("/x", Errno::Access)]
    {
        assert_eq!(fs.make_dir(path, 0o755).unwrap_err().errno, errno, "{path}");
    }
    assert!(fs.stat("/jobs").is_ok(), "the way to the subtree");
    assert_eq!(fs.stat("/users").unwrap_err().errno, Errno::Access);
    // The whole life of a job.
    site.run(&["mds", "pin", "/jobs", "0"]);
    let weak = "consistency: append_client_journal+volatile_apply\ndurability: none\n";
    let policy = Policy::from_name_or_text(weak).unwrap().policy;
    let mut job = fs.decouple("/jobs/one/out", &policy).unwrap();
    let uid = USER.parse().unwrap();
    job.act_as(&Cred { uid, gid: made.gid, groups: Vec::new() });
    job.create(job.root(), b"result", &NewFile::default()).unwrap();
    job.complete().unwrap();
    assert_eq!(site.run(&["ls", "/jobs/one/out"]), "result\n");
    assert_eq!(fs.decouple("/jobs", &policy).unwrap_err().errno, Errno::NotPermitted);
    // The program of another host.
    let key = key.to_str().unwrap();
    let run = |arguments: &[&str]| site.elsewhere(arguments).output().unwrap();
    let refused = run(&["--key", key, "policy", "set", "/jobs/one", "batchfs"]);
    let said = text(&refused.stderr);
    assert!(said.contains("lacks policy:/jobs/one; it has read,write,decouple,merge:"), "{said}");
    // Rights are told, and asked about.
    let listed = text(&site.cluster.run(&["auth", "ls"]));
    assert!(listed.contains("read,write,decouple,merge:/jobs/one"), "{listed}");
    let may = |right: &str, path: &str| {
        let said = site.cluster.json(&["auth", "test", "job", right, path]);
        said["allowed"].as_bool().unwrap()
    };
    assert!(may("write", "/jobs/one/out") && may("read,merge", "/jobs/one"));
    assert!(!may("write", "/jobs") && !may("policy", "/jobs/one") && !may("admin", "/"));
    site.cluster.fails(2, &["auth", "add", "x", "--everyone", "--allow", "reed:/"]);
    site.cluster.fails(2, &["auth", "add", "x", "--daemon", "--allow", "read:/"]);
    // A key that commands, and is no daemon.
    let key = site.key("operator", &["--everyone", "--allow", "read:/", "--allow", "admin:/"]);
    let refused = run(&["--key", key.to_str().unwrap(), "mkdir", "/x"]);
    assert!(text(&refused.stderr).contains("EACCES"), "{}", text(&refused.stderr));
    let stopped = run(&["--key", key.to_str().unwrap(), "down"]);
    assert!(stopped.status.success(), "{}", text(&stopped.stderr));
}

#[test]
fn keys_are_made_listed_and_revoked() {
    let cluster = Cluster::down();
    cluster.start();
    let file = cluster.home.join("alice.pem");
    cluster.run(&["auth", "add", "alice", "--user", USER, "--days", "30"]);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let folder = fs::metadata(cluster.dir.join("keys")).unwrap();
    assert_eq!(folder.permissions().mode() & 0o777, 0o700);
    let again = cluster.fails(1, &["auth", "add", "alice", "--everyone", "--out", "other"]);
    assert!(again.contains("there is a key of this name"), "{again}");
    assert!(!cluster.home.join("other").exists());
    cluster.fails(2, &["auth", "add", "both", "--everyone", "--daemon"]);
    cluster.fails(2, &["auth", "add", "none"]);
    cluster.fails(2, &["auth", "add", "bob", "--user", "no-such-user"]);
    cluster.run(&["auth", "rm", "alice"]);
    cluster.fails(1, &["auth", "rm", "alice"]);
    let listed = cluster.json(&["auth", "ls"]);
    let states: Vec<_> = listed.as_array().unwrap().iter().map(|key| &key["state"]).collect();
    assert_eq!(states, [&json!("in use"), &json!("revoked")], "{listed}");
    assert_eq!(listed[1]["uid"].to_string(), USER);
    // `up` made the authority; without one, a command says how to make it.
    fs::remove_dir_all(cluster.dir.join("keys")).unwrap();
    let said = cluster.fails(1, &["auth", "ls"]);
    assert!(said.contains("cudele auth init"), "{said}");
    cluster.run(&["auth", "init"]);
    assert_eq!(cluster.json(&["auth", "ls"]).as_array().unwrap().len(), 1);
}

#[test]
fn another_host_reaches_the_cluster_with_its_key_only() {
    let Some(hosts) = Hosts::new(&["server", "client"]) else { return };
    let cluster = Cluster::down();
    cluster.start();
    cluster.run(&["down"]);
    let [monitor, server] =
        [6800, 6801].map(|port| format!("tcp:{}:{port}", hosts.address("server")));
    let start = |arguments: &[&str]| {
        let log = fs::File::create(cluster.home.join(arguments[0])).unwrap();
        let mut command = hosts.on("server", &cluster.command(arguments));
        command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
    };
    let daemons = vec![
        start(&["mon", "--listen", &monitor]),
        start(&["mds", "--rank", "0", "--listen", &server, "--mon", &monitor]),
    ];
    let site = Networked { cluster, monitor, daemons };
    let key = site.key("host", &["--squash-root"]);
    let key = key.to_str().unwrap();
    let elsewhere = |arguments: &[&str]| {
        let output = hosts.on("client", &site.elsewhere(arguments)).output().unwrap();
        (output.status.success(), text(&output.stdout) + &text(&output.stderr))
    };
    eventually("the other host sees the cluster", || {
        let (_, said) = elsewhere(&["--key", key, "status", "--json"]);
        let status: Value = serde_json::from_str(&said).unwrap_or_default();
        status["mds"][0]["state"] == "active"
    });
    let made =
        hosts.on("server", &site.command(&["mkdir", "-m", "1777", "/open"])).status().unwrap();
    assert!(made.success());
    let (done, said) = elsewhere(&["--key", key, "mkdir", "/open/there"]);
    assert!(done, "{said}");
    let (done, said) = elsewhere(&["--key", key, "stat", "--json", "/open/there"]);
    let stat: Value = serde_json::from_str(&said).unwrap_or_default();
    assert!(done && stat["uid"] == types::NOBODY, "{said}");
    let (done, said) = elsewhere(&["ls", "/"]);
    assert!(!done && said.contains("needs a key"), "{said}");
}

#[test]
fn the_key_of_a_host_speaks_for_some_users() {
    let site = Networked::start("tcp", 1);
    site.run(&["mkdir", "-m", "1777", "/open"]);
    site.run(&["mkdir", "-m", "2770", "/team"]);
    let cred = |uid: u32, gid: u32, groups: &[u32]| Cred { uid, gid, groups: groups.to_vec() };
    let node = site.key("node", &["--users", "1000-1999", "--groups", "100,1000-1999"]);
    let fs = site.client(&node).unwrap();
    let open = fs.stat("/open").unwrap().ino;
    let make = |cred: &Cred, name: &str| {
        let file = fs.as_user(cred).create(open, name.as_bytes(), &NewFile::default());
        file.map(|made| (made.uid, made.gid)).map_err(|error| (error.errno, error.to_string()))
    };
    assert_eq!(make(&cred(1000, 100, &[]), "a"), Ok((1000, 100)));
    for other in [cred(999, 100, &[]), cred(2000, 100, &[]), cred(1000, 0, &[])] {
        let (errno, said) = make(&other, "b").unwrap_err();
        assert_eq!(errno, Errno::NotPermitted);
        assert!(said.contains("the users 1000-1999 with the groups 100,1000-1999"), "{said}");
    }
    assert_eq!(make(&Cred::root(), "c"), Ok((types::NOBODY, types::NOBODY)));
    // The group that the directory belongs to is not among those of the key.
    let team = fs.stat("/team").unwrap();
    let member = cred(1000, 100, &[team.gid, 1500]);
    let refused = fs.as_user(&member).create(team.ino, b"x", &NewFile::default()).unwrap_err();
    assert_eq!(refused.errno, Errno::Access);

    let listed = site.cluster.json(&["auth", "ls"]);
    let listed = listed.as_array().unwrap().iter().find(|key| key["name"] == "node").unwrap();
    assert_eq!((&listed["kind"], &listed["users"]), (&"host".into(), &"1000-1999".into()));

    // A key for another network is refused to the program, too, and says why.
    site.key("here", &["--everyone", "--from", "127.0.0.0/8", "--from", "::1/128"]);
    let elsewhere = site.key("elsewhere", &["--everyone", "--from", "192.0.2.0/24"]);
    let ls = |key: &Path| site.elsewhere(&["--key", key.to_str().unwrap(), "ls", "/"]).output();
    let here = ls(&site.cluster.home.join("here.pem")).unwrap();
    assert!(text(&here.stdout).contains("open"), "{}", text(&here.stderr));
    let refused = ls(&elsewhere).unwrap();
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("not for the network"), "{}", text(&refused.stderr));
}

#[test]
fn the_programs_of_a_job_have_a_key_of_their_own() {
    let site = Networked::start("tcp", 1);
    for dir in ["/open", "/other"] {
        site.run(&["mkdir", "-m", "1777", dir]);
    }
    let alice = site.key("alice", &["--user", USER]);
    let text_of = "umask 077 && echo in > {}/file && \"$0\" ls / && cat \"$CUDELE_KEY\" > \"$KEPT\" && \
        ! \"$0\" mkdir /other/made && ! \"$0\" rm -r /open && ! \"$0\" auth narrow \"$CUDELE_KEY\" --out no";
    let kept = site.cluster.home.join("kept.pem");
    let run = ["run", "--preload", "off", "/open/job", "--", "sh", "-euc", text_of];
    let mut command = site.elsewhere(&run);
    command.arg(env!("CARGO_BIN_EXE_cudele")).env("CUDELE_KEY", &alice).env("KEPT", &kept);
    let done = command.current_dir(&site.cluster.home).output().unwrap();
    let said = text(&done.stderr);
    assert!(done.status.success(), "{said}");
    assert!(text(&done.stdout).contains("other"), "it reads what the user reads");
    assert!(said.contains("read,write") && said.contains("/open/job"), "{said}");
    assert!(said.contains("was itself narrowed"), "{said}");

    // After the merge, a copy of the key works below the directory, and nowhere else.
    let fs = site.client(&kept).unwrap();
    assert_eq!(fs.make_dir("/open/job/later", 0o755).unwrap().uid.to_string(), USER);
    assert_eq!(fs.make_dir("/other/later", 0o755).unwrap_err().errno, Errno::Access);
    assert_eq!(fs.stat("/other").unwrap().mode & 0o7777, 0o1777);
}

#[test]
fn a_user_narrows_a_key_of_their_own() {
    let site = Networked::start("tcp", 1);
    site.run(&["mkdir", "-m", "1777", "/open"]);
    site.run(&["mkdir", "-m", "1777", "/other"]);
    let alice = site.key("alice", &["--user", USER]);
    let narrow = |name: &str, of: &Path, options: &[&str]| {
        let file = site.cluster.home.join(format!("{name}.pem"));
        let (of, out) = (of.to_str().unwrap(), file.to_str().unwrap());
        // On the host of the user, who neither reaches the cluster nor has its directory.
        let arguments = [&["auth", "narrow", of, "--out", out], options].concat();
        let made = site.elsewhere(&arguments).env("CUDELE_MON", "unix:/nowhere").output().unwrap();
        (file, text(&made.stderr), made.status.success())
    };
    let (job, said, made) = narrow("job", &alice, &["--allow", "read,write:/open"]);
    assert!(made, "{said}");
    let fs = site.client(&job).unwrap();
    let made = fs.make_dir("/open/hers", 0o755).unwrap();
    assert_eq!(made.uid.to_string(), USER);
    let refused = fs.make_dir("/other/hers", 0o755).unwrap_err();
    assert_eq!(refused.errno, Errno::Access);
    assert!(refused.to_string().contains("read,write:/open"), "{refused}");
    let policy = Policy::from_name_or_text("batchfs").unwrap().policy;
    assert_eq!(fs.decouple("/open", &policy).unwrap_err().errno, Errno::NotPermitted);

    // A key gives no right that it lacks, and a narrowed key signs no keys.
    let limited = site.key("limited", &["--user", USER, "--allow", "read:/open"]);
    let (_, said, made) = narrow("more", &limited, &["--allow", "write:/open"]);
    assert!(!made && said.contains("it has read:/open"), "{said}");
    let (_, said, made) = narrow("again", &job, &["--hours", "1"]);
    assert!(!made && said.contains("was itself narrowed"), "{said}");

    // The audit log names the key that the cluster has made, and its revocation ends both.
    let issued = site.cluster.json(&["auth", "ls"]);
    let issued = issued.as_array().unwrap().iter().find(|key| key["name"] == "alice").unwrap();
    let from = format!("key {}", issued["id"].as_str().unwrap());
    let noted = site.cluster.json(&["audit"]);
    let mut noted = noted.as_array().unwrap().iter();
    let line = noted.find(|line| line["op"] == "decouple").expect("it is in the audit log");
    assert_eq!(line["result"], "EPERM", "{line}");
    assert!(line["from"].as_str().unwrap().contains(&from), "{line}");
    site.cluster.run(&["auth", "rm", "alice"]);
    eventually("the narrowed key is refused", || site.client(&job).is_err());
}
