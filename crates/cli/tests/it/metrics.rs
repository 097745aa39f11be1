//! Metrics: their page in the manual, their alerts and dashboard, and a real Prometheus.
//!
//! Prometheus is Debian's (`scripts/setup --check-tools`). Without it these parts are left out, and
//! with `CUDELE_TEST_PROMETHEUS=required` they fail.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use exporter::{MetricDescription, MetricKind, table};
use serde_json::{Value, json};

use crate::cluster::{Cluster, eventually};

/// The sections of the page with the metrics of each.
fn sections() -> [(&'static str, Vec<MetricDescription>); 4] {
    [
        ("Every process", exporter::metrics()),
        ("Metadata server", daemon::mds_metrics()),
        ("Monitor", daemon::mon_metrics()),
        ("Mount", mount::metrics()),
    ]
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn file(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// The first of so many free ports in a row, below those that the system gives to clients. Two
/// tests of a process get different ones.
fn free_ports(count: u16) -> u16 {
    static BLOCK: AtomicU16 = AtomicU16::new(0);
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let begin = u16::try_from(std::process::id() % 1_000).unwrap();
    let blocks = std::iter::repeat_with(|| (begin + BLOCK.fetch_add(1, Ordering::Relaxed)) % 1_200);
    let mut starts = blocks.take(1_200).map(|block| 12_000 + block * 16);
    starts.find(|first| (*first..first + count).all(free)).expect("free ports")
}

/// The head and the body of an answer; an empty one if no process answers.
fn answer(port: u16, path: &str, accept: &str) -> (String, String) {
    let mut answer = String::new();
    if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
        let head = format!("GET {path} HTTP/1.0\r\nHost: h\r\nAccept: {accept}\r\n\r\n");
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.read_to_string(&mut answer);
    }
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    (head.to_owned(), body.to_owned())
}

fn is_ok(head: &str) -> bool {
    head.starts_with("HTTP/1.1 200 ") || head.starts_with("HTTP/1.0 200 ")
}

/// The body of an answer with the status 200.
#[track_caller]
fn get(port: u16, path: &str, accept: &str) -> String {
    let (head, body) = answer(port, path, accept);
    assert!(is_ok(&head), "{path}: {head}\n{body}");
    body
}

/// The names in the lines `# TYPE` of a page in OpenMetrics.
fn families(text: &str) -> BTreeSet<String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

fn names(metrics: &[MetricDescription]) -> BTreeSet<String> {
    metrics.iter().map(|metric| metric.name.to_owned()).collect()
}

/// The metrics that an expression names.
fn named(expression: &str) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    // Values of labels are no metrics.
    let bare = expression.split('"').step_by(2).collect::<Vec<_>>().join("\"\"");
    let words = bare.split(|c| !is_part(c)).map(str::to_owned);
    words.filter(|word| word.starts_with("cudele_") || word.starts_with("process_")).collect()
}

/// The names that queries can have.
fn queried() -> BTreeSet<String> {
    let all = sections().into_iter().flat_map(|(_, metrics)| metrics);
    let names = all.flat_map(|metric| match metric.kind {
        MetricKind::Histogram => {
            ["bucket", "sum", "count"].map(|part| format!("{}_{part}", metric.name)).to_vec()
        }
        MetricKind::Counter | MetricKind::Gauge => vec![metric.queried()],
    });
    names.collect()
}

/// The expressions of the alerts.
fn alerts() -> Vec<String> {
    let rules = file("contrib/prometheus/rules.yml");
    let mut found = Vec::new();
    let mut lines = rules.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(expression) = line.trim_start().strip_prefix("expr: ") else { continue };
        if expression != "|" {
            found.push(expression.to_owned());
            continue;
        }
        let mut long = String::new();
        while let Some(line) = lines.next_if(|line| line.starts_with("          ")) {
            long += line;
        }
        found.push(long);
    }
    assert_eq!(found.len(), rules.matches("- alert: ").count());
    found
}

/// The queries of the dashboard.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&file("contrib/grafana/cudele.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

/// Whether Debian's Prometheus is here. Its absence is an error if it is required.
fn has_prometheus() -> bool {
    let wish = std::env::var("CUDELE_TEST_PROMETHEUS").unwrap_or_default();
    let works = |name: &str| {
        let output = Command::new(name).arg("--version").output();
        output.is_ok_and(|output| output.status.success())
    };
    let has = wish != "skip" && works("promtool") && works("prometheus");
    assert!(has || wish != "required", "apt-get install prometheus");
    if !has {
        println!("skipped: prometheus is missing, `scripts/setup --check-tools` installs it");
    }
    has
}

#[track_caller]
fn promtool(arguments: &[&str], input: &str) {
    let mut command = Command::new("promtool");
    command.args(arguments).current_dir(root().join("contrib/prometheus"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&said));
}

/// A cluster with metrics from this port on, in which something has happened.
fn cluster(options: &[&str]) -> (Cluster, u16) {
    let port = free_ports(3);
    let text = port.to_string();
    let ours = ["--mds", "2", "--metrics", &text, "--set", "balance_interval_ms=50"];
    let cluster = Cluster::up_with(&[&ours, options].concat());
    cluster.run(&["mkdir", "/secret-name"]);
    cluster.run(&["policy", "set", "/secret-name", "posix"]);
    cluster.run(&["mkdir", "/secret-name/below"]);
    eventually("the ranks have heard each other", || {
        let text = get(port + 1, "/metrics", "*/*");
        text.contains("cudele_mds_heartbeats_received_total{rank=\"1\"}")
    });
    (cluster, port)
}

#[test]
fn metrics_are_described_in_the_manual() {
    let (path, page) = (root().join("docs/metrics.md"), file("docs/metrics.md"));
    let mut wanted = String::new();
    for section in page.split_inclusive("\n## ") {
        let known = sections().into_iter().find(|(title, _)| section.starts_with(title));
        let Some((title, metrics)) = known else {
            wanted += section;
            continue;
        };
        let next = if section.ends_with("\n## ") { "\n## " } else { "" };
        wanted += &format!("{title}\n\n{}{next}", table(&metrics));
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, wanted).unwrap();
    } else {
        assert!(page == wanted, "`UPDATE_EXPECT=1 cargo test -p cli --test it metrics` repairs it");
    }
}

#[test]
fn alerts_and_dashboard_name_metrics_that_exist() {
    let (known, alerts, queries) = (queried(), alerts(), queries());
    assert!(alerts.len() >= 15 && queries.len() >= 30);
    for expression in alerts.iter().chain(&queries) {
        let named = named(expression);
        assert!(!named.is_empty() || expression.contains("up{"), "{expression}");
        for name in &named {
            assert!(known.contains(name), "{name} of {expression} does not exist");
        }
    }
    if has_prometheus() {
        promtool(&["check", "config", "prometheus.yml"], "");
        promtool(&["test", "rules", "rules_test.yml"], "");
    }
}

#[test]
fn a_cluster_shows_the_metrics_of_the_manual_and_no_names() {
    let (cluster, port) = cluster(&[]);
    let [(_, common), (_, mds), (_, mon), _] = sections();
    for (port, own) in [(port, mon), (port + 1, mds)] {
        let text = get(port, "/metrics", "application/openmetrics-text");
        assert!(text.ends_with("# EOF\n"));
        assert_eq!(families(&text), names(&[common.clone(), own].concat()));
        assert!(!text.contains("secret") && !text.contains("below"), "{text}");
        assert_eq!(get(port, "/healthz", "*/*"), "ok\n");
        if has_prometheus() {
            promtool(&["check", "metrics"], &get(port, "/metrics", "text/plain"));
        }
    }
    let text = get(port + 1, "/metrics", "*/*");
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}")).trim().parse::<f64>().unwrap()
    };
    assert!(value("cudele_mds_creates_total") >= 2.0);
    assert!(value("cudele_mds_request_duration_seconds_count{op=\"create\"}") >= 2.0);
    assert!(value("cudele_mds_store_duration_seconds_count{op=\"append\"}") >= 1.0);
    assert!((value("cudele_mds_setting{setting=\"balance_interval_ms\"}") - 50.0).abs() < 0.1);
    // A cluster that runs without metrics, or at other ports, is not taken for one with them.
    let said = cluster.fails(2, &["up", "--metrics", &(port + 7).to_string()]);
    assert!(said.contains("without metrics at this port"), "{said}");
}

#[test]
fn paths_of_subtrees_are_shown_if_they_are_wanted() {
    let (_cluster, port) = cluster(&["--metrics-paths"]);
    let text = get(port + 1, "/metrics", "*/*");
    assert!(text.contains("path=\"/secret-name\",kind=\"inode_write\""), "{text}");
    assert!(!text.contains("below"), "{text}");
}

#[test]
fn a_standby_has_the_port_of_the_rank_that_it_takes_over() {
    let port = free_ports(3);
    let cluster = Cluster::up_with(&["--metrics", &port.to_string(), "--standby", "1"]);
    eventually("the monitor knows the standby", || {
        get(port, "/metrics", "*/*").contains("cudele_mon_standbys 1\n")
    });
    let term = |text: &str| {
        text.lines().find_map(|line| line.strip_prefix("cudele_mds_term ")?.parse::<u64>().ok())
    };
    let before = term(&get(port + 1, "/metrics", "*/*"));
    cluster.run(&["mds", "fail", "0"]);
    eventually("the standby has taken over", || {
        let after = term(&answer(port + 1, "/metrics", "*/*").1);
        after.is_some() && after > before
    });
}

#[test]
fn a_mount_shows_the_metrics_of_the_manual() {
    if std::env::var_os("CUDELE_TESTS_WITHOUT_FUSE").is_some() || !Path::new("/dev/fuse").exists() {
        println!("skipped: mounts are left out");
        return;
    }
    let (cluster, port) = (Cluster::up(), free_ports(1));
    let at = cluster.home.join("mnt");
    std::fs::create_dir(&at).unwrap();
    let (shown, text) = (at.to_str().unwrap(), port.to_string());
    cluster.run(&["mount", "--metrics", &text, shown]);
    std::fs::write(at.join("secret"), [7; 5000]).unwrap();
    assert!(std::fs::metadata(at.join("absent")).is_err());
    let page = get(port, "/metrics", "*/*");
    cluster.run(&["umount", shown]);
    let [(_, common), _, _, (_, own)] = sections();
    assert_eq!(families(&page), names(&[common, own].concat()));
    assert!(!page.contains("secret"), "{page}");
    for line in [
        "cudele_mount_written_bytes_total 5000",
        "cudele_mount_requests_under_way 0",
        "cudele_mount_request_duration_seconds_count{op=\"create\"} 1",
        "cudele_mount_timeouts_total 0",
    ] {
        assert!(page.lines().any(|known| known == line), "{line} is missing in\n{page}");
    }
    eventually("the mount has ended", || answer(port, "/metrics", "*/*").0.is_empty());
}

/// A Prometheus that ends with its test.
struct Prometheus(Child);

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The vector that Prometheus answers an expression with.
#[track_caller]
fn vector(port: u16, expression: &str) -> Vec<Value> {
    let escaped: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let body = get(port, &format!("/api/v1/query?query={escaped}"), "*/*");
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(answer["status"], "success", "{expression}: {answer}");
    answer["data"]["result"].as_array().unwrap().clone()
}

#[test]
fn a_prometheus_scrapes_a_cluster() {
    if !has_prometheus() {
        return;
    }
    let (cluster, port) = cluster(&[]);
    let config = file("contrib/prometheus/prometheus.yml")
        .replace("15s", "200ms")
        .replace("9300", &port.to_string())
        .replace("9301", &(port + 1).to_string())
        .replace("9302", &(port + 2).to_string());
    let at = cluster.home.join("prometheus");
    std::fs::create_dir(&at).unwrap();
    std::fs::write(at.join("prometheus.yml"), config).unwrap();
    std::fs::write(at.join("rules.yml"), file("contrib/prometheus/rules.yml")).unwrap();
    let web = free_ports(1);
    let mut command = Command::new("prometheus");
    command.current_dir(&at).stdout(Stdio::null()).stderr(Stdio::null());
    command.args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"]);
    command.arg(format!("--web.listen-address=127.0.0.1:{web}"));
    let _prometheus = Prometheus(command.spawn().unwrap());
    eventually("prometheus is ready", || is_ok(&answer(web, "/-/ready", "*/*").0));
    eventually("prometheus has scraped all daemons", || {
        vector(web, "up{job=\"cudele\"} == 1").len() == 3
    });
    // No mount is scraped here.
    for metric in queried().into_iter().filter(|metric| !metric.starts_with("cudele_mount_")) {
        let is_there = || !vector(web, &metric).is_empty();
        eventually(&format!("{metric} is there"), is_there);
    }
    for query in queries() {
        let query = query.replace("$__rate_interval", "5s").replace("$instance", ".*");
        vector(web, &query);
    }
    for alert in alerts() {
        vector(web, &alert);
    }
    assert_eq!(vector(web, "cudele_mon_ranks{state=\"active\"}")[0]["value"][1], "2");
}

#[test]
fn top_shows_rates_as_lines_and_wants_a_terminal_else() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "/made"]);
    let lines = cluster.say(&["top", "--json", "--count", "2", "--interval", "0.2"]);
    let looks: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(looks.len(), 2);
    assert_eq!(
        (&looks[0]["mds"][0]["rank"], &looks[0]["mds"][0]["state"]),
        (&json!(0), &json!("active"))
    );
    assert!(looks[1]["mds"][0]["requests_per_second"].as_f64().unwrap() >= 0.0);
    assert!(looks[1]["seconds"].as_f64().unwrap() >= 0.2);
    let refused = cluster.fails(2, &["top"]);
    assert!(refused.contains("no terminal") && refused.contains("--json"), "{refused}");
    cluster.run(&["down"]);
}
