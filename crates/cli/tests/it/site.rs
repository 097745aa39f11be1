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

    /// The network namespace of a host.
    pub(crate) fn namespace(&self, name: &str) -> String {
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
    pub(crate) fn cut(&self, host: &str) {
        self.set_cable(host, "down");
    }

    pub(crate) fn mend(&self, host: &str) {
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
pub(crate) struct Site {
    // Before the hosts, so that no process is left in them.
    daemons: Vec<(String, Child)>,
    pub(crate) hosts: Hosts,
    pub(crate) cluster: Cluster,
    monitor: String,
    /// The hosts whose clocks are wrong, and by how much.
    clocks: BTreeMap<String, &'static str>,
}

impl Site {
    /// A monitor on the first host, and a rank on each of the first ones.
    pub(crate) fn start(hosts: Hosts, ranks: &[&str]) -> Self {
        Self::start_with(hosts, ranks, &[], &[])
    }

    /// The same with wrong clocks, and with options for the first start.
    pub(crate) fn start_with(
        hosts: Hosts,
        ranks: &[&str],
        clocks: &[(&str, &'static str)],
        options: &[&str],
    ) -> Self {
        let cluster = Cluster::down();
        let make = [&["up"][..], options].concat();
        for arguments in [&make[..], &["down"]] {
            let made = hosts.on(ranks[0], &cluster.command(arguments)).output().unwrap();
            assert!(made.status.success(), "{arguments:?}: {}", text(&made.stderr));
        }
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
        let mut program = Command::new(cudele);
        if let Some(by) = self.clocks.get(host) {
            // The program `faketime` would start another process, which no signal reaches.
            program.env("LD_PRELOAD", "/usr/$LIB/faketime/libfaketimeMT.so.1").env("FAKETIME", by);
            // Waits are by the clock that never goes back, which runs right.
            program.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
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
    pub(crate) fn rank(&mut self, rank: usize, host: &str) {
        let listen = format!("tcp:{}:{}", self.hosts.address(host), 6801 + rank);
        let (monitor, rank) = (self.monitor.clone(), rank.to_string());
        let arguments = ["mds", "--rank", &rank, "--listen", &listen, "--mon", &monitor];
        self.daemon(host, &format!("mds.{rank}"), &arguments);
    }

    /// Starts a standby on a host.
    pub(crate) fn standby(&mut self, host: &str) {
        let listen = format!("tcp:{}:6900", self.hosts.address(host));
        let monitor = self.monitor.clone();
        let arguments = ["mds", "--standby", "--listen", &listen, "--mon", &monitor];
        self.daemon(host, "standby", &arguments);
    }

    /// Whether a daemon has ended; then it is forgotten.
    pub(crate) fn has_ended(&mut self, name: &str) -> bool {
        let ended = |(known, child): &mut (String, Child)| {
            known == name && child.try_wait().is_ok_and(|status| status.is_some())
        };
        let at = self.daemons.iter_mut().position(ended);
        at.map(|at| self.daemons.swap_remove(at)).is_some()
    }

    pub(crate) fn kill(&mut self, name: &str) {
        let at = self.daemons.iter().position(|(known, _)| known == name).expect("it runs");
        let (_, mut child) = self.daemons.swap_remove(at);
        child.kill().and_then(|()| child.wait()).unwrap();
    }

    /// The command on a host, with this key.
    pub(crate) fn command(&self, host: &str, key: &Path, arguments: &[&str]) -> Command {
        let mut program = self.program(host);
        program.args(arguments).env_remove("CUDELE_DIR").env("HOME", &self.cluster.home);
        program.env("CUDELE_MON", &self.monitor).env("CUDELE_KEY", key);
        program.env("CUDELE_STATE", self.cluster.home.join(format!("state.{host}")));
        self.hosts.on(host, &program)
    }

    pub(crate) fn key(&self, name: &str, options: &[&str]) -> PathBuf {
        let file = self.cluster.home.join(format!("{name}.pem"));
        let arguments = ["auth", "add", name, "--out", file.to_str().unwrap()];
        self.cluster.run(&[&arguments, options].concat());
        file
    }

    pub(crate) fn owners_key(&self) -> PathBuf {
        self.cluster.dir.join("keys/daemon.pem")
    }

    #[track_caller]
    pub(crate) fn run(&self, host: &str, key: &Path, arguments: &[&str]) -> String {
        let output = self.command(host, key, arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?} on {host}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    pub(crate) fn state(&self, rank: usize) -> String {
        let (host, key) = (&self.hosts.names[0], self.owners_key());
        let output = self.command(host, &key, &["status", "--json"]).output().unwrap();
        let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let servers = status["mds"].as_array().cloned().unwrap_or_default();
        let server = servers.into_iter().find(|server| server["rank"] == rank);
        server.map(|server| server["state"].as_str().unwrap_or("?").to_owned()).unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn await_state(&self, rank: usize, state: &str) {
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
