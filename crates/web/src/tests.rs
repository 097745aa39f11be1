use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use balancer::{
    Counts, DecisionRecord, MoveRecord, RecordedDirectory, RecordedEvent, TickRecord, TickResult,
    Unit,
};
use cudele::{BalancerLog, ClusterMap, Errno, Error, MdsEntry, MdsState, Result};
use httpserver::{HttpAddress, HttpServer, exchange};
use serde_json::Value;
use types::{ClientId, DirFragId, Frag, Ino, Rank, Timestamp};
use wire::DecoupledSubtree;

use crate::source::grown;
use crate::{ClusterSite, ClusterSource, ROWS_MAX, WebKey};

/// A cluster on paper.
#[derive(Default)]
struct Paper {
    map: ClusterMap,
    log: Vec<Vec<u8>>,
    looks: Arc<AtomicUsize>,
    fails: bool,
}

impl ClusterSource for Paper {
    fn map(&self) -> Result<ClusterMap> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        match self.fails {
            true => Err(Error::new(Errno::Io, "monitor", "it is away")),
            false => Ok(self.map.clone()),
        }
    }

    fn balancer_log(&self, after: u64) -> Result<BalancerLog> {
        let records = self.log.iter().skip(usize::try_from(after).unwrap()).cloned().collect();
        Ok(BalancerLog { before: after, records })
    }
}

struct Bench {
    site: Arc<ClusterSite>,
    server: HttpServer,
    key: WebKey,
}

impl Bench {
    fn of(paper: Paper) -> Self {
        let key = WebKey::draw().unwrap();
        let site = Arc::new(ClusterSite::new(Box::new(paper), key.clone()));
        let server = HttpServer::start("--web", &HttpAddress::port(0), site.clone()).unwrap();
        Self { site, server, key }
    }

    fn ask(&self, path: &str, fields: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\n{fields}\r\n");
        String::from_utf8(exchange(self.server.address(), &request).unwrap()).unwrap()
    }

    fn facts(&self, path: &str) -> Value {
        let link = self.key.link("");
        let key = link.strip_prefix("/#key=").unwrap();
        let answer = self.ask(path, &format!("Authorization: Bearer {key}\r\n"));
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }
}

fn subtree(number: u64) -> DecoupledSubtree {
    DecoupledSubtree {
        path: format!("/jobs/{number}/<b>").into_bytes(),
        ino: Ino(number),
        client: ClientId(number % 7),
        policy: "consistency: append_client_journal+volatile_apply".to_owned(),
        ..DecoupledSubtree::default()
    }
}

#[test]
fn facts_need_the_key_and_pages_have_no_secret() {
    let bench = Bench::of(Paper::default());
    for path in ["/", "/style.css", "/app.js", "/charts.js", "/favicon.ico"] {
        let page = bench.ask(path, "");
        assert!(page.starts_with("HTTP/1.1 200 "), "{path}: {page}");
        assert!(page.contains("Content-Security-Policy: default-src 'none';"), "{path}");
    }
    let wrong = WebKey::draw().unwrap().link("");
    let wrong = wrong.strip_prefix("/#key=").unwrap();
    for fields in ["", "Authorization: Bearer \r\n", &format!("Authorization: Bearer {wrong}\r\n")]
    {
        for path in [
            "/api/cluster",
            "/api/decoupled",
            "/api/decisions",
            "/api/heat",
            "/api/history",
            "/api/x",
        ] {
            let answer = bench.ask(path, fields);
            assert!(answer.starts_with("HTTP/1.1 401 "), "{path} {fields}: {answer}");
        }
    }
    assert_eq!(bench.facts("/api/cluster")["findings"][0]["code"], "NO_SERVER");
    assert_eq!(bench.facts("/api/cluster")["findings"][0]["severity"], "error");
}

#[test]
fn a_link_has_the_key_that_it_was_made_with() {
    let key = WebKey::draw().unwrap();
    assert_eq!(
        WebKey::of_link(&format!("{}\n", key.link("http://127.0.0.1:1"))),
        Some(key.clone())
    );
    assert_ne!(WebKey::draw().unwrap(), key);
    for wrong in ["", "http://127.0.0.1:1/", "x/#key=", "x/#key=12", "x/#key=zz"] {
        assert_eq!(WebKey::of_link(wrong), None, "{wrong}");
    }
}

#[test]
fn many_clients_cost_one_look() {
    let paper = Paper::default();
    let looks = paper.looks.clone();
    let bench = Bench::of(paper);
    let start = Instant::now();
    let clients = 6;
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| (0..5).for_each(|_| drop(bench.facts("/api/cluster"))));
        }
    });
    let intervals = start.elapsed().as_millis() / crate::INTERVAL.as_millis();
    let most = usize::try_from(intervals).unwrap() + 1;
    assert!((1..=most).contains(&looks.load(Ordering::Relaxed)), "{looks:?} of {most}");
}

#[test]
fn curves_begin_before_the_page_is_opened() {
    let entry = MdsEntry {
        state: MdsState::Active,
        counters: vec![("requests".into(), 7), ("inodes".into(), 5)],
        ..MdsEntry::default()
    };
    let paper =
        Paper { map: ClusterMap { mds: vec![entry], ..ClusterMap::default() }, ..Paper::default() };
    let bench = Bench::of(paper);
    assert_eq!(bench.facts("/api/history")["samples"], serde_json::json!([]));
    for _ in 0..905 {
        bench.site.look();
    }
    let samples = bench.facts("/api/history")["samples"].clone();
    assert_eq!(samples.as_array().unwrap().len(), 900, "half an hour is kept");
    let server = &samples[0]["servers"][0];
    assert_eq!(server["counters"], serde_json::json!({ "requests": 7 }), "no more than is drawn");
    let answer = bench.ask("/api/history", "");
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
}

#[test]
fn the_history_ends_with_its_pages() {
    let paper = Paper::default();
    let looks = Arc::downgrade(&paper.looks);
    let site = Arc::new(ClusterSite::new(Box::new(paper), WebKey::draw().unwrap()));
    site.keep_history().unwrap();
    drop(site);
    // The thread holds the pages during a look only.
    let start = Instant::now();
    while looks.upgrade().is_some() {
        assert!(start.elapsed().as_secs() < 10, "the source is still there");
        std::thread::yield_now();
    }
}

#[test]
fn a_monitor_that_is_away_is_said() {
    let bench = Bench::of(Paper { fails: true, ..Paper::default() });
    let said = bench.facts("/api/cluster");
    assert!(said["error"].as_str().unwrap().contains("it is away"), "{said}");
}

#[test]
fn a_hundred_thousand_subtrees_are_shown_in_parts() {
    let entry = MdsEntry {
        state: MdsState::Active,
        counters: vec![("requests".into(), 7), ("decoupled_subtrees".into(), 100_005)],
        ..MdsEntry::default()
    };
    let decoupled: Vec<_> = (0..100_000).map(subtree).collect();
    let map = ClusterMap { mds: vec![entry], decoupled, ..ClusterMap::default() };
    let bench = Bench::of(Paper { map, ..Paper::default() });
    let cluster = bench.facts("/api/cluster");
    assert_eq!((&cluster["decoupled"], &cluster["listed"]), (&100_005.into(), &100_000.into()));
    assert_eq!(cluster["servers"][0]["counters"]["requests"], 7);
    assert_eq!(cluster["promises"].as_array().unwrap().len(), 1);
    assert_eq!(cluster["promises"][0]["subtrees"], 100_000);
    let last = bench.facts("/api/decoupled?from=99900");
    assert_eq!(last["rows"].as_array().unwrap().len(), 100);
    assert_eq!(last["rows"][99]["path"], "/jobs/99999/<b>");
    assert_eq!(bench.facts("/api/decoupled")["rows"].as_array().unwrap().len(), ROWS_MAX);
    let found = bench.facts("/api/decoupled?find=%2F4242%2f%3Cb");
    assert_eq!((&found["total"], &found["rows"][0]["ino"]), (&1.into(), &4242.into()));
    assert_eq!(bench.facts("/api/decoupled?from=x&find=%")["total"], 0);
    assert_eq!(bench.facts("/api/decoupled?from=100001")["rows"], Value::Array(Vec::new()));
}

fn record(rank: u16, seconds: i64, what: RecordedEvent) -> Vec<u8> {
    let time = Timestamp(seconds * 1_000_000_000);
    DecisionRecord { rank: Rank(rank), time, what }.encode()
}

fn tick(ended: TickResult, hot: &[(&str, f64)]) -> RecordedEvent {
    let units = hot.iter().map(|(path, load)| {
        let id = DirFragId { ino: Ino(9), frag: Frag::WHOLE };
        let counts = Counts { inode_reads: *load, ..Counts::default() };
        let unit = Unit { id, parent: None, counts, inodes: 1, movable: true, pin: None };
        RecordedDirectory { path: path.as_bytes().to_vec(), unit }
    });
    let units = units.collect();
    RecordedEvent::Tick(TickRecord { ended, units, policy: "greedy".into(), ..<_>::default() })
}

#[test]
fn decisions_are_the_newest_and_heat_is_of_the_last_ticks() {
    let done = MoveRecord {
        tick: 1,
        path: b"/hot".to_vec(),
        root: Ino(5),
        to: Rank(1),
        failure: String::new(),
        frozen_micros: 12_345,
        flushed: 2,
    };
    let log = vec![
        record(1, 1000, tick(TickResult::Nothing, &[("/old", 900.0)])),
        record(0, 2000, tick(TickResult::Skipped, &[("/hot", 8.0)])),
        record(0, 2001, tick(TickResult::Moves, &[("/hot", 9.0), ("/hot/a", 4.0), ("/cold", 0.0)])),
        b"of a later release".to_vec(),
        record(0, 2002, RecordedEvent::Move(done)),
        record(1, 2003, tick(TickResult::Nothing, &[("/hot", 7.0), ("/b", 10.0)])),
    ];
    let bench = Bench::of(Paper { log, ..Paper::default() });
    let decisions = bench.facts("/api/decisions");
    let numbers: Vec<_> = decisions.as_array().unwrap().iter().map(|it| &it["number"]).collect();
    assert_eq!(numbers, [6, 5, 3, 1]);
    assert_eq!((&decisions[1]["moved"], &decisions[1]["frozen_ms"]), (&true.into(), &12.into()));
    let heat = bench.facts("/api/heat");
    let hot = |at: usize| (heat[at]["path"].as_str().unwrap(), heat[at]["load"].as_f64().unwrap());
    assert_eq!([hot(0), hot(1), hot(2)], [("/b", 10.0), ("/hot", 9.0), ("/hot/a", 4.0)]);
    assert_eq!(heat.as_array().unwrap().len(), 3);
}

#[test]
fn a_log_grows_by_its_new_records() {
    /// Answers with these logs, one after the other, to these questions.
    struct Script(Mutex<VecDeque<(u64, BalancerLog)>>);
    impl ClusterSource for Script {
        fn map(&self) -> Result<ClusterMap> {
            Ok(ClusterMap::default())
        }
        fn balancer_log(&self, after: u64) -> Result<BalancerLog> {
            let (expected, log) = self.0.lock().unwrap().pop_front().unwrap();
            assert_eq!(after, expected);
            Ok(log)
        }
    }
    let log = |before, count: u8| BalancerLog { before, records: vec![vec![count]; count.into()] };
    let script = [(0, log(4, 3)), (7, log(7, 2)), (9, log(0, 1)), (1, log(1, 0))];
    let script = Script(Mutex::new(script.into()));
    let mut last = None;
    let mut next = || {
        let log = grown(&script, last.as_ref()).unwrap();
        let extent = (log.before, log.records.len());
        last = Some(log);
        extent
    };
    assert_eq!([next(), next(), next(), next()], [(4, 3), (4, 5), (0, 1), (0, 1)]);
}
