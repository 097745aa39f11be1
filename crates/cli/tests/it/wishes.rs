//! Options that `cudele up` cannot carry out, and servers that listen on the network.

use std::process::{Child, Command, Stdio};

use crate::cluster::{Cluster, eventually, text};

#[test]
fn up_refuses_options_that_it_cannot_apply() {
    let cluster = Cluster::down();
    let said = cluster.fails(2, &["up", "--mon", "tcp:127.0.0.1:1"]);
    assert!(
        said.contains("--mon tcp:127.0.0.1:1") && said.contains("cudele mon --listen"),
        "{said}"
    );
    let said = cluster.fails(2, &["up", "--set", "nosuch=1"]);
    assert!(said.contains("unknown setting"), "{said}");
    assert!(!cluster.dir.exists(), "nothing was started");
    let options = ["up", "--mds", "2", "--set", "inodes_max=50000"];
    cluster.run(&options);
    cluster.run(&options);
    for (arguments, words) in [
        (&["up", "--mds", "1"][..], ["2 metadata servers", "cudele mds remove 1"]),
        (&["up", "--set", "nosuch=1"], ["unknown setting", "cudele mds --help"]),
        (&["up", "--set", "inodes_max=60000"], ["runs already", "cudele mds fail 0"]),
        (&["up", "--set", "segments_max=9"], ["runs already", "cudele mds fail 0"]),
    ] {
        let said = cluster.fails(2, arguments);
        assert!(words.iter().all(|word| said.contains(word)), "{arguments:?}: {said}");
    }
    let socket = format!("unix:{}", cluster.dir.join("mon.sock").display());
    cluster.run(&["up", "--mon", &socket]);
}

/// A daemon in the foreground, ended with this.
struct Daemon(Child);

impl Daemon {
    fn start(mut command: Command) -> Self {
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("tcp:{}", listener.local_addr().unwrap())
}

#[test]
fn servers_on_several_hosts_are_set_up_as_documented() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "/made"]);
    cluster.run(&["down"]);
    let (mon, first, second) = (free_address(), free_address(), free_address());
    let start = |of: &Cluster, arguments: &[&str]| Daemon::start(of.command(arguments));
    let _mon = start(&cluster, &["mon", "--listen", &mon]);
    // Another host has nothing of the cluster but its marker file and a key.
    let other = Cluster::down();
    std::fs::create_dir_all(other.dir.join("keys")).unwrap();
    let key = other.dir.join("keys/daemon.pem");
    cluster.run(&["auth", "add", "other", "--daemon", "--out", key.to_str().unwrap()]);
    std::fs::copy(cluster.dir.join("cudele-cluster"), other.dir.join("cudele-cluster")).unwrap();
    let _first = start(&cluster, &["mds", "--rank", "0", "--listen", &first, "--mon", &mon]);
    let _second = start(&other, &["mds", "--rank", "1", "--listen", &second, "--mon", &mon]);
    let client = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cudele"));
        command.env("CUDELE_MON", &mon).env("CUDELE_STATE", other.home.join("state"));
        command.env("CUDELE_KEY", &key).env_remove("CUDELE_DIR");
        command.args(arguments).output().unwrap()
    };
    eventually("both ranks are active", || {
        let said = client(&["mds", "ls", "--json"]);
        text(&said.stdout).matches("\"active\"").count() == 2
    });
    assert_eq!(text(&client(&["ls"]).stdout), "made\n");
    assert!(client(&["mds", "pin", "/made", "1"]).status.success());
    assert!(client(&["mkdir", "/made/there"]).status.success());
    let wrong = other.fails(2, &["mds", "--rank", "2", "--listen", "tcp:0.0.0.0:7", "--mon", &mon]);
    assert!(wrong.contains("clients are told this address"), "{wrong}");
    let store = cluster.dir.join("store");
    std::fs::rename(&store, cluster.dir.join("hidden")).unwrap();
    let said = client(&["ls"]);
    let said = text(&said.stderr);
    std::fs::rename(cluster.dir.join("hidden"), &store).unwrap();
    assert!(said.contains("this machine has no store there"), "{said}");
    assert!(said.contains("Ceph") && said.contains("Several hosts"), "{said}");
    assert!(client(&["down"]).status.success());
}
