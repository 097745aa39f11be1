//! Several hosts: network namespaces of this machine, with a switch between them, and a site in
//! which they do what hosts do: lose their cables, and end.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::cluster::{Cluster, eventually, text};

/// Hosts with a cable to one switch.
pub(crate) struct Hosts {
    id: u32,
    names: Vec<String>,
}

impl Hosts {
    /// `None` where this process may make no network namespaces.
    pub(crate) fn new(names: &[&str]) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = std::process::id() * 10 + COUNT.fetch_add(1, Ordering::Relaxed);
        let hosts = Self { id, names: names.iter().map(|name| (*name).to_owned()).collect() };
        let switch = hosts.namespace("switch");
        let mut made = ip(&["netns", "add", &switch])
            && ip(&["-n", &switch, "link", "add", "bridge", "type", "bridge"])
            && ip(&["-n", &switch, "link", "set", "bridge", "up"]);
        for name in names {
            made = made && hosts.connect(name, &switch);
        }
        if !made {
            println!("skipped: `ip netns` makes no network namespaces here");
        }
        made.then_some(hosts)
    }

    fn connect(&self, host: &str, switch: &str) -> bool {
        let (own, [near, far]) = (self.namespace(host), self.cable(host));
        let address = format!("{}/24", self.address(host));
        ip(&["netns", "add", &own])
            && ip(&["link", "add", &near, "type", "veth", "peer", "name", &far])
            && ip(&["link", "set", &near, "netns", &own])
            && ip(&["link", "set", &far, "netns", switch])
            && ip(&["-n", switch, "link", "set", &far, "master", "bridge"])
            && ip(&["-n", switch, "link", "set", &far, "up"])
            && ip(&["-n", &own, "addr", "add", &address, "dev", &near])
            && ip(&["-n", &own, "link", "set", &near, "up"])
            && ip(&["-n", &own, "link", "set", "lo", "up"])
    }

    fn namespace(&self, name: &str) -> String {
        format!("cudele-{}-{name}", self.id)
    }

    fn number(&self, host: &str) -> usize {
        self.names.iter().position(|name| name == host).expect("a host of this test")
    }

    /// The ends of its cable: at the host, and at the switch.
    fn cable(&self, host: &str) -> [String; 2] {
        let number = self.number(host);
        ["h", "s"].map(|end| format!("cu{}{end}{number}", self.id))
    }

    /// The address of a host.
    pub(crate) fn address(&self, host: &str) -> String {
        format!("10.203.0.{}", self.number(host) + 1)
    }

    /// Nothing reaches the host any more, nor leaves it.
    fn cut(&self, host: &str) {
        self.set_cable(host, "down");
    }

    fn mend(&self, host: &str) {
        self.set_cable(host, "up");
    }

    fn set_cable(&self, host: &str, state: &str) {
        let [_, far] = self.cable(host);
        assert!(ip(&["-n", &self.namespace("switch"), "link", "set", &far, state]));
    }

    /// A program on a host.
    pub(crate) fn on(&self, host: &str, program: &Command) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(host)]);
        command.arg(program.get_program()).args(program.get_args());
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(Stdio::null());
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in self.names.iter().map(String::as_str).chain(["switch"]) {
            ip(&["netns", "del", &self.namespace(name)]);
        }
    }
}

fn ip(arguments: &[&str]) -> bool {
    let status = Command::new("ip").args(arguments).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// A cluster whose daemons are on several hosts, with keys of their own.
struct Site {
    // Before the hosts, so that no process is left in them.
    daemons: Vec<(String, Child)>,
    hosts: Hosts,
    cluster: Cluster,
    monitor: String,
    /// The hosts whose clocks are wrong, and by how much.
    clocks: BTreeMap<String, &'static str>,
}

/// Two users.
const ALICE: &str = "1000";
const BOB: &str = "2000";

impl Site {
    /// A monitor on the first host, and a rank on each of the first ones.
    fn start(hosts: Hosts, ranks: &[&str]) -> Self {
        Self::start_with(hosts, ranks, &[], &[])
    }

    /// The same with wrong clocks, and with options for the first start.
    fn start_with(
        hosts: Hosts,
        ranks: &[&str],
        clocks: &[(&str, &'static str)],
        options: &[&str],
    ) -> Self {
        let cluster = Cluster::down().with(options);
        cluster.start();
        cluster.run(&["down"]);
        let clocks = clocks.iter().map(|(host, by)| ((*host).to_owned(), *by)).collect();
        let monitor = format!("tcp:{}:6800", hosts.address(ranks[0]));
        let mut site = Self { daemons: Vec::new(), hosts, cluster, monitor, clocks };
        let monitor = site.monitor.clone();
        site.daemon(ranks[0], "mon", &["mon", "--listen", &monitor]);
        for (rank, host) in ranks.iter().enumerate() {
            site.rank(rank, host);
        }
        for rank in 0..ranks.len() {
            site.await_state(rank, "active");
        }
        site
    }

    /// The directory of the cluster on a host. Each has a key of its own for its daemons, which is
    /// for its address only.
    fn dir(&self, host: &str) -> PathBuf {
        if self.hosts.number(host) == 0 {
            return self.cluster.dir.clone();
        }
        let dir = self.cluster.home.join(host);
        if !dir.exists() {
            let keys = dir.join("keys");
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&keys).unwrap();
            fs::copy(self.cluster.dir.join("cudele-cluster"), dir.join("cudele-cluster")).unwrap();
            let from = format!("{}/32", self.hosts.address(host));
            let out = keys.join("daemon.pem");
            let out = out.to_str().unwrap();
            self.cluster.run(&["auth", "add", host, "--daemon", "--from", &from, "--out", out]);
        }
        dir
    }

    /// The program, by the clock of a host.
    fn program(&self, host: &str) -> Command {
        let cudele = env!("CARGO_BIN_EXE_cudele");
        let Some(by) = self.clocks.get(host) else { return Command::new(cudele) };
        let mut program = Command::new("faketime");
        // Waits are by the clock that never goes back, which runs right.
        program.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").args(["-f", by, cudele]);
        program
    }

    fn daemon(&mut self, host: &str, name: &str, arguments: &[&str]) {
        let log = self.cluster.home.join(format!("{name}.log"));
        let log = fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        let mut program = self.program(host);
        program.args(arguments).arg("--dir").arg(self.dir(host)).env("HOME", &self.cluster.home);
        program.env_remove("CUDELE_DIR").env_remove("CUDELE_MON").env_remove("CUDELE_KEY");
        let mut command = self.hosts.on(host, &program);
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        self.daemons.push((name.to_owned(), child));
    }

    /// Starts a metadata server on a host.
    fn rank(&mut self, rank: usize, host: &str) {
        let listen = format!("tcp:{}:{}", self.hosts.address(host), 6801 + rank);
        let (monitor, rank) = (self.monitor.clone(), rank.to_string());
        let arguments = ["mds", "--rank", &rank, "--listen", &listen, "--mon", &monitor];
        self.daemon(host, &format!("mds.{rank}"), &arguments);
    }

    /// Starts a standby on a host.
    fn standby(&mut self, host: &str) {
        let listen = format!("tcp:{}:6900", self.hosts.address(host));
        let monitor = self.monitor.clone();
        let arguments = ["mds", "--standby", "--listen", &listen, "--mon", &monitor];
        self.daemon(host, "standby", &arguments);
    }

    /// Whether a daemon has ended; then it is forgotten.
    fn has_ended(&mut self, name: &str) -> bool {
        let ended = |(known, child): &mut (String, Child)| {
            known == name && child.try_wait().is_ok_and(|status| status.is_some())
        };
        let at = self.daemons.iter_mut().position(ended);
        at.map(|at| self.daemons.swap_remove(at)).is_some()
    }

    fn kill(&mut self, name: &str) {
        let at = self.daemons.iter().position(|(known, _)| known == name).expect("it runs");
        let (_, mut child) = self.daemons.swap_remove(at);
        child.kill().and_then(|()| child.wait()).unwrap();
    }

    /// The command on a host, with this key.
    fn command(&self, host: &str, key: &Path, arguments: &[&str]) -> Command {
        let mut program = self.program(host);
        program.args(arguments).env_remove("CUDELE_DIR").env("HOME", &self.cluster.home);
        program.env("CUDELE_MON", &self.monitor).env("CUDELE_KEY", key);
        program.env("CUDELE_STATE", self.cluster.home.join(format!("state.{host}")));
        self.hosts.on(host, &program)
    }

    fn key(&self, name: &str, options: &[&str]) -> PathBuf {
        let file = self.cluster.home.join(format!("{name}.pem"));
        let arguments = ["auth", "add", name, "--out", file.to_str().unwrap()];
        self.cluster.run(&[&arguments, options].concat());
        file
    }

    fn owners_key(&self) -> PathBuf {
        self.cluster.dir.join("keys/daemon.pem")
    }

    #[track_caller]
    fn run(&self, host: &str, key: &Path, arguments: &[&str]) -> String {
        let output = self.command(host, key, arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?} on {host}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn state(&self, rank: usize) -> String {
        let (host, key) = (&self.hosts.names[0], self.owners_key());
        let output = self.command(host, &key, &["status", "--json"]).output().unwrap();
        let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let servers = status["mds"].as_array().cloned().unwrap_or_default();
        let server = servers.into_iter().find(|server| server["rank"] == rank);
        server.map(|server| server["state"].as_str().unwrap_or("?").to_owned()).unwrap_or_default()
    }

    #[track_caller]
    fn await_state(&self, rank: usize, state: &str) {
        eventually(&format!("rank {rank} is {state}"), || self.state(rank) == state);
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (name, _) in &self.daemons {
                let log = fs::read(self.cluster.home.join(format!("{name}.log")));
                println!("{name}: {}", text(&log.unwrap_or_default()));
            }
        }
        for (_, daemon) in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// A job that makes files, makes a file `begun`, waits for a file `go`, and makes more files.
const JOB: &str = "cd $CUDELE_JOB && for i in $(seq 200); do : > a$i; done && : > $0.begun && \
                   while [ ! -e $0.go ]; do sleep 0.02; done && \
                   for i in $(seq 200); do : > b$i; done && chown 0:0 a7 && : > $0.done";

#[test]
fn a_site_works_on_through_partitions_and_the_loss_of_a_host() {
    let names = ["head", "mds1", "mds2", "node1", "node2", "login"];
    let Some(hosts) = Hosts::new(&names) else { return };
    let mut site = Site::start(hosts, &["head", "mds1", "mds2"]);
    let owner = site.owners_key();
    site.run("head", &owner, &["balancer", "set", "static"]);
    for (dir, rank) in [("/a", "0"), ("/b", "1"), ("/c", "2")] {
        site.run("head", &owner, &["mkdir", "-m", "1777", dir]);
        site.run("head", &owner, &["mds", "pin", dir, rank]);
    }
    let alice = site.key("alice", &["--user", ALICE, "--from", "10.203.0.0/24"]);
    let login = format!("{}/32", site.hosts.address("login"));
    let bob = site.key("bob", &["--user", BOB, "--from", &login]);

    // Alice narrows her key for the job, and is on a batch node; bob's key is for the login host.
    let job_key = site.cluster.home.join("job.pem");
    let out = job_key.to_str().unwrap();
    let allow = ["--allow", "read,write,decouple,merge:/a"];
    let narrow = [&["auth", "narrow", alice.to_str().unwrap(), "--out", out][..], &allow].concat();
    site.run("node1", &alice, &narrow);
    let refused = site.command("node1", &bob, &["ls", "/a"]).output().unwrap();
    assert!(text(&refused.stderr).contains("not for the network"), "{}", text(&refused.stderr));
    let word = site.cluster.home.join("job");
    let file = |end: &str| word.with_extension(end);
    let run = ["run", "--policy", "batchfs", "/a/job", "--", "sh", "-c", JOB];
    let run = [&run[..], &[word.to_str().unwrap()]].concat();
    let mut job = site.command("node1", &job_key, &run).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the job has begun, or failed", || {
        file("begun").exists() || job.try_wait().is_ok_and(|status| status.is_some())
    });
    if !file("begun").exists() {
        let output = job.wait_with_output().unwrap();
        panic!("{}: {}", output.status, text(&output.stderr));
    }

    // The node of the job is cut off: the job and the other hosts work on.
    site.hosts.cut("node1");
    fs::write(file("go"), "").unwrap();
    for dir in ["/a/1", "/b/1", "/c/1"] {
        site.run("login", &bob, &["mkdir", dir]);
    }
    eventually("the job is done", || file("done").exists());
    site.hosts.mend("node1");
    let ended = job.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    let merged = site.run("login", &bob, &["ls", "/a/job"]);
    assert_eq!(merged.lines().count(), 400, "{merged}: {}", text(&ended.stderr));
    // The job is root's on its node, and alice's by its key.
    for file in ["/a/job/a7", "/a/job/b7"] {
        let made = site.run("login", &bob, &["stat", "--json", file]);
        let made: Value = serde_json::from_str(&made).unwrap();
        assert_eq!(made["uid"].to_string(), ALICE, "{made}");
    }

    lose_a_rank_for_a_while(&mut site, &bob);
    lose_a_host(&mut site, &bob);

    // The store is whole.
    site.run("head", &owner, &["down"]);
    for name in ["mon", "mds.0", "standby", "mds.2"] {
        eventually("all daemons have ended", || site.has_ended(name));
    }
    site.cluster.run(&["fsck"]);
}

/// A rank is cut off: what the others have is served, and a request for it waits.
fn lose_a_rank_for_a_while(site: &mut Site, bob: &Path) {
    site.hosts.cut("mds2");
    eventually("the monitor misses the rank", || site.state(2) != "active");
    for dir in ["/a/2", "/b/2"] {
        site.run("login", bob, &["mkdir", dir]);
    }
    let waiting = site.command("login", bob, &["mkdir", "/c/2"]).stderr(Stdio::piped()).spawn();
    site.hosts.mend("mds2");
    // Its service manager starts it again if it ended.
    eventually("the rank is back", || {
        if site.has_ended("mds.2") {
            site.rank(2, "mds2");
        }
        site.state(2) == "active"
    });
    let waited = waiting.unwrap().wait_with_output().unwrap();
    assert!(waited.status.success(), "{}", text(&waited.stderr));
}

/// A host is lost, and a standby on another host takes its rank over.
fn lose_a_host(site: &mut Site, bob: &Path) {
    site.standby("node2");
    site.hosts.cut("mds1");
    site.kill("mds.1");

    eventually("the rank serves from the other host", || {
        let made = site.command("login", bob, &["mkdir", "/b/3"]).output().unwrap();
        made.status.success()
    });
    site.await_state(1, "active");
    assert_eq!(site.run("login", bob, &["ls", "/a/job"]).lines().count(), 400);
    let listed = ["/a", "/b", "/c"].map(|dir| site.run("login", bob, &["ls", dir]));
    assert_eq!(listed, ["1\n2\njob\n", "1\n2\n3\n", "1\n2\n"]);
}

#[test]
#[ignore = "needs faketime: cargo test -p cli --test it hosts::clocks -- --ignored"]
fn clocks_that_are_wrong_by_an_hour_stop_nobody() {
    assert!(has_program("faketime"), "faketime is installed");
    let Some(hosts) = Hosts::new(&["head", "mds1", "node1", "login"]) else { return };
    let clocks = [("mds1", "+1h"), ("node1", "-1h")];
    let mut site = Site::start_with(hosts, &["head", "mds1"], &clocks, &[]);
    let owner = site.owners_key();
    site.run("head", &owner, &["balancer", "set", "static"]);
    for (dir, rank) in [("/a", "0"), ("/b", "1")] {
        site.run("head", &owner, &["mkdir", "-m", "1777", dir]);
        site.run("head", &owner, &["mds", "pin", dir, rank]);
    }
    // A key that was made at the right time is good on all hosts, and so is one that is narrowed
    // where it is an hour earlier.
    let alice = site.key("alice", &["--user", ALICE, "--days", "1"]);
    let job_key = site.cluster.home.join("job.pem");
    let out = job_key.to_str().unwrap();
    let allow = ["--allow", "read,write,decouple,merge:/a", "--hours", "2"];
    let narrow = [&["auth", "narrow", alice.to_str().unwrap(), "--out", out][..], &allow].concat();
    site.run("node1", &alice, &narrow);
    let script = "for i in $(seq 100); do : > $CUDELE_JOB/f$i; done";
    let run = ["run", "--policy", "batchfs", "/a/job", "--", "sh", "-c", script];
    site.run("node1", &job_key, &run);
    assert_eq!(site.run("login", &alice, &["ls", "/a/job"]).lines().count(), 100);

    // Times are those of the clock by which the change was made, here the node's.
    let seconds = |arguments: &[&str]| {
        let output = Command::new("date").args(arguments).arg("+%s").output().unwrap();
        text(&output.stdout).trim().parse::<i64>().unwrap()
    };
    for (path, behind) in [("/a/job/f1", 3600), ("/a", 0)] {
        let stat = site.run("login", &alice, &["stat", "--json", path]);
        let stat: Value = serde_json::from_str(&stat).unwrap();
        let made = seconds(&["-d", stat["btime"].as_str().unwrap()]);
        let off = seconds(&[]) - made - behind;
        assert!((0..600).contains(&off), "{path} is {off} seconds off: {stat}");
    }

    // A server whose clock is right takes over from one whose clock is an hour ahead, and what is
    // made then is not older than what was there.
    site.run("login", &alice, &["mkdir", "/b/before"]);
    site.kill("mds.1");
    site.rank(1, "login");
    site.await_state(1, "active");
    site.run("login", &alice, &["mkdir", "/b/after"]);
    assert_eq!(site.run("node1", &alice, &["ls", "/b"]), "after\nbefore\n");
    site.run("head", &owner, &["down"]);
    for name in ["mon", "mds.0", "mds.1"] {
        eventually("all daemons have ended", || site.has_ended(name));
    }
    site.cluster.run(&["fsck"]);
}

fn has_program(name: &str) -> bool {
    Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
}
