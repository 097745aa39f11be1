//! The web page of a cluster, alone and in a browser.
//!
//! The browser is Debian's Chromium (`CUDELE_TEST_CHROMIUM=required scripts/setup --check-tools`).
//! Without it that test is left out, and with `CUDELE_TEST_CHROMIUM=required` it fails.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use httpserver::exchange;
use serde_json::Value;

use crate::cluster::{Cluster, eventually, text};

/// The host and the port of a link, and its key.
fn parts(link: &str) -> (String, String) {
    let (page, key) = link.split_once("/#key=").unwrap();
    (page.strip_prefix("http://").unwrap().to_owned(), key.to_owned())
}

fn link(cluster: &Cluster) -> String {
    cluster.json(&["web"])["address"].as_str().unwrap().to_owned()
}

/// The status and the body of an answer.
fn ask(host: &str, path: &str, key: &str) -> (String, String) {
    let request = format!("GET {path} HTTP/1.1\r\nAuthorization: Bearer {key}\r\n\r\n");
    let answer = exchange(&host.parse().unwrap(), &request).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

#[test]
fn the_page_shows_what_the_commands_show_to_whom_has_its_key() {
    let cluster = Cluster::up_with(&["--web", "0", "--mds", "2"]);
    cluster.run(&["mkdir", "/job"]);
    cluster.run(&["decouple", "/job", "batchfs"]);
    let link = link(&cluster);
    let (host, key) = parts(&link);
    eventually("the servers have reported", || {
        let status = cluster.json(&["status"]);
        !status["decoupled"][0].is_null() && !status["mds"][1]["counters"]["requests"].is_null()
    });
    let facts = |path: &str| {
        let (status, body) = ask(&host, path, &key);
        assert_eq!(status, "HTTP/1.1 200 OK", "{path}");
        serde_json::from_str::<Value>(&body).unwrap()
    };
    eventually("the page has the subtree", || facts("/api/cluster")["decoupled"] == 1);
    let (shown, status) = (facts("/api/cluster"), cluster.json(&["status"]));
    assert_eq!(shown["cluster"], status["cluster"]);
    assert_eq!(shown["servers"][1]["pid"], status["mds"][1]["pid"]);
    assert_eq!(facts("/api/decoupled")["rows"][0]["path"], "/job");
    assert_eq!(facts("/api/decoupled")["rows"][0]["promise"], status["decoupled"][0]["cell"]);
    // The counters that the pictures are drawn from, here and in `cudele top`.
    let counters = shown["servers"][0]["counters"].as_object().unwrap();
    for name in ["requests", "ahead", "mutations", "merged_events", "forwards", "journal_bytes"] {
        assert!(counters.contains_key(name), "{name}");
    }
    for name in ["merge_bytes", "inodes", "sessions", "open_files", "journal_segments"] {
        assert!(counters.contains_key(name), "{name}");
    }
    for wrong in ["", "00112233445566778899aabbccddeeff"] {
        assert_eq!(ask(&host, "/api/cluster", wrong).0, "HTTP/1.1 401 Unauthorized");
    }
    // Nobody else reads the key, which stays the same.
    for name in ["web", "web.key"] {
        let mode = std::fs::metadata(cluster.dir.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    cluster.run(&["down"]);
    assert!(!cluster.dir.join("web").exists());
    let said = cluster.fails(1, &["web"]);
    assert!(said.contains("ENOENT") && said.contains("cudele up --web"), "{said}");
    cluster.run(&["up", "--web", "0"]);
    assert_eq!(parts(&self::link(&cluster)).1, key);
    // The address of a killed monitor does not stay.
    cluster.daemons("mon").into_iter().for_each(Cluster::kill_process);
    cluster.run(&["up"]);
    assert!(!cluster.dir.join("web").exists());
}

#[test]
fn a_member_of_the_group_does_not_get_the_key() {
    const USER: u32 = 4243;
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    let cluster = Cluster::up_with(&["--web", "0", "--group", &USER.to_string()]);
    std::fs::set_permissions(&cluster.home, std::fs::Permissions::from_mode(0o711)).unwrap();
    for name in ["web", "web.key"] {
        let mut cat = Command::new("cat");
        let denied = cat.arg(cluster.dir.join(name)).uid(USER).gid(USER).output().unwrap();
        assert!(text(&denied.stderr).contains("Permission denied"), "{name}: {denied:?}");
    }
}

#[test]
fn a_page_that_cannot_be_shown_is_refused() {
    let cluster = Cluster::up();
    let said = cluster.fails(2, &["up", "--web", "0"]);
    assert!(said.contains("without a web page") && said.contains("cudele down"), "{said}");
    let said = cluster.fails(2, &["mon", "--web", "0.0.0.0:0"]);
    assert!(said.contains("loopback only") && said.contains("ssh -L"), "{said}");
}

fn has_chromium() -> bool {
    let wish = std::env::var("CUDELE_TEST_CHROMIUM").unwrap_or_default();
    let output = Command::new("chromium").arg("--version").output();
    let has = wish != "skip" && output.is_ok_and(|output| output.status.success());
    assert!(has || wish != "required", "apt-get install chromium");
    if !has {
        println!("skipped: chromium is missing");
    }
    has
}

/// The page after so many seconds, as the browser has it.
fn shown(cluster: &Cluster, link: &str, (size, seconds): (&str, u32)) -> String {
    let mut browser = Command::new("chromium");
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--dump-dom"]);
    browser.args(["--no-first-run", "--disable-background-networking", "--disable-sync"]);
    browser.args(["--disable-component-update", &format!("--window-size={size}")]);
    browser.arg(format!("--user-data-dir={}", cluster.home.join("browser").display()));
    browser.arg(format!("--virtual-time-budget={}", seconds * 1000)).arg(link);
    let output = browser.env("HOME", &cluster.home).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_browser_shows_servers_subtrees_and_findings() {
    if !has_chromium() {
        return;
    }
    let cluster = Cluster::up_with(&["--web", "0", "--mds", "2"]);
    let hostile = "/<img src=x onerror=alert(1)>";
    cluster.run(&["mkdir", hostile]);
    cluster.run(&["decouple", hostile, "batchfs"]);
    let link = link(&cluster);
    for size in ["390,844", "1280,800", "1920,1080"] {
        let page = shown(&cluster, &link, (size, 7));
        for part in [
            "rank 1<span class=\"pill ok\">active</span>",
            "&lt;img src=x onerror=alert(1)&gt;</td>",
            "client.",
            ">all is well</span>",
            "<section id=\"fault\" class=\"note error\" hidden=\"\">",
            "<polygon points=",
        ] {
            assert!(page.contains(part), "{size}: no {part} in\n{page}");
        }
    }
    let pid = cluster.json(&["status"])["mds"][1]["pid"].as_i64().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    eventually("the loss is found", || {
        cluster.json(&["health"])["checks"]
            .as_array()
            .unwrap()
            .iter()
            .any(|it| it["code"] == "MDS_LOST")
    });
    let page = shown(&cluster, &link, ("1280,800", 4));
    assert!(page.contains("<code>MDS_LOST</code>") && page.contains(">1 error</span>"), "{page}");
    let page = shown(&cluster, link.split('#').next().unwrap(), ("1280,800", 4));
    assert!(page.contains("This page needs its key") && !page.contains("rank 1"), "{page}");
}
