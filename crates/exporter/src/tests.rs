use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use httpserver::{HttpAddress, exchange};

use crate::{Feed, LatencyHistogram, MetricDescription, MetricsPage, MetricsServer, TextForm};

static MADE: MetricDescription = MetricDescription::counter("made", "Things.", "");
static SENT: MetricDescription =
    MetricDescription::counter("sent_bytes", "Bytes.", "never").with(&["to"]);
static TOOK: MetricDescription = MetricDescription::histogram("took_seconds", "Time.", "");

fn page() -> MetricsPage {
    let mut page = MetricsPage::default();
    page.whole(&MADE, 7);
    page.labelled(&SENT, vec![("to", "a\"b\n".to_owned())], 5);
    page.labelled(&SENT, vec![("to", "c".to_owned())], 6);
    let mut durations = LatencyHistogram::default();
    [1, 16_000, 16_001, 3_000_000, u64::MAX / 2].iter().for_each(|nanos| durations.note(*nanos));
    page.durations(&TOOK, Vec::new(), durations);
    page
}

/// A daemon that makes a page when a scraper wants one.
fn daemon() -> (Arc<Feed>, Arc<AtomicBool>) {
    let feed = Feed::new(|| {});
    let (fed, ends) = (feed.clone(), Arc::new(AtomicBool::new(false)));
    let end = ends.clone();
    std::thread::spawn(move || {
        while !end.load(Ordering::Relaxed) {
            if fed.is_wanted() {
                fed.publish(page());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    (feed, ends)
}

fn host(server: &MetricsServer) -> String {
    let HttpAddress::Tcp(host) = server.address() else { panic!("it is on TCP") };
    host.clone()
}

fn ask(host: &str, request: &str) -> String {
    let address = HttpAddress::Tcp(host.to_owned());
    String::from_utf8(exchange(&address, request).unwrap()).unwrap()
}

#[test]
fn both_forms_have_every_value() {
    let page = Arc::new(page());
    let open = page.text(TextForm::OpenMetrics);
    for line in [
        "# TYPE made counter",
        "made_total 7",
        "# UNIT sent_bytes bytes",
        "sent_bytes_total{to=\"a\\\"b\\n\"} 5",
        "took_seconds_bucket{le=\"0.000016\"} 2",
        "took_seconds_bucket{le=\"0.000032\"} 3",
        "took_seconds_bucket{le=\"+Inf\"} 5",
        "took_seconds_count 5",
    ] {
        assert!(open.lines().any(|it| it == line), "{line} is missing in\n{open}");
    }
    assert!(open.ends_with("# EOF\n"));
    let old = page.text(TextForm::Prometheus);
    assert!(old.contains("# TYPE made_total counter\nmade_total 7\n"), "{old}");
    assert!(!old.contains("# EOF"));
}

#[test]
fn requests_are_answered_or_refused() {
    let (feed, ends) = daemon();
    let server = MetricsServer::start(&HttpAddress::port(0), feed).unwrap();
    let host = host(&server);
    let get = |path: &str, more: &str| ask(&host, &format!("GET {path} HTTP/1.1\r\n{more}\r\n"));
    let metrics = get("/metrics", "Host: a\r\n");
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
    assert!(metrics.contains("Content-Type: application/openmetrics-text; version=1.0.0;"));
    assert!(metrics.ends_with("# EOF\n") && metrics.contains("cudele_metrics_scrapes_total 1"));
    let plain = get("/metrics?x=1", "accept: text/plain;version=0.0.4\r\n");
    assert!(plain.contains("Content-Type: text/plain; version=0.0.4;"), "{plain}");
    assert!(get("/healthz", "").starts_with("HTTP/1.1 200 "));
    assert!(get("/metricsx", "").starts_with("HTTP/1.1 404 "));
    ends.store(true, Ordering::Relaxed);
}

#[test]
fn scrapers_beyond_the_limit_are_refused_and_slow_ones_delay_no_other() {
    let (feed, ends) = daemon();
    let server = MetricsServer::start(&HttpAddress::port(0), feed).unwrap();
    let host = host(&server);
    let begun = || {
        let mut stream = TcpStream::connect(&host).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        // A refused connection may be gone already.
        let _ = stream.write_all(b"GET /metr");
        stream
    };
    let slow: Vec<_> = (0..4).map(|_| begun()).collect();
    assert!(ask(&host, "GET /healthz HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
    let more: Vec<_> = (0..16).map(|_| begun()).collect();
    let is_open = |stream: &mut TcpStream| {
        let read = stream.read(&mut [0; 16]);
        read.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    };
    let mut open: Vec<_> =
        slow.into_iter().chain(more).filter_map(|mut it| is_open(&mut it).then_some(it)).collect();
    assert!((15..=16).contains(&open.len()), "{} are open", open.len());
    let mut last = open.pop().unwrap();
    drop(open);
    last.set_read_timeout(None).unwrap();
    last.write_all(b"ics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    last.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("made_total 7"), "{answer}");
    assert!(!answer.contains("cudele_metrics_refused_total 0"), "{answer}");
    ends.store(true, Ordering::Relaxed);
}

#[test]
fn a_daemon_that_hangs_is_unhealthy_and_shows_its_last_page() {
    let feed = Feed::new(|| {});
    let server = MetricsServer::start(&HttpAddress::port(0), feed.clone()).unwrap();
    let host = host(&server);
    assert!(ask(&host, "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 503 "));
    feed.publish(page());
    std::thread::sleep(Feed::INTERVAL);
    assert!(ask(&host, "GET /healthz HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 503 "));
    let text = ask(&host, "GET /metrics HTTP/1.1\r\n\r\n");
    let age = text.lines().find_map(|line| line.strip_prefix("cudele_metrics_age_seconds "));
    assert!(age.unwrap().parse::<f64>().unwrap() > 2.0, "{text}");
}
