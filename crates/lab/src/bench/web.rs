//! `web`: how long the web page's questions take with many decoupled subtrees, beside the status of
//! the monitor alone, which each look of the page asks for.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use cudele::{BalancerLog, Cluster, ClusterMap, Errno, Error, Result};
use httpserver::{HttpAddress, HttpServer, exchange};
use net::{Address, Keyring};
use types::{ClientId, Ino};
use web::{ClusterSite, ClusterSource, WebKey};
use wire::DecoupledSubtree;

use crate::harness::lab::Lab;
use crate::harness::row::Row;

const BENCH: &str = "web";
/// The questions of a page at each look, and those of a search.
const QUESTIONS: [(&str, &str); 5] = [
    ("cluster", "/api/cluster"),
    ("subtrees", "/api/decoupled?from=0"),
    ("search", "/api/decoupled?find=7777"),
    ("decisions", "/api/decisions"),
    ("heat", "/api/heat"),
];
/// Looks of each repetition.
const LOOKS: u32 = 10;
/// The slowest answer, in milliseconds.
const SLOWEST: &str = "slowest_answer_ms";
const POLICIES: [&str; 2] = [
    "consistency: append_client_journal+volatile_apply",
    "consistency: append_client_journal+volatile_apply\ndurability: local_persist",
];

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let subtrees = lab.files(100_000, 1_000);
    let cluster = lab.cluster(&[])?;
    let monitor =
        Cluster::connect_with(&cluster.address().parse::<Address>()?, &Keyring::default())?;
    let key = WebKey::draw()?;
    let source = Filled::new(monitor.clone(), subtrees);
    let site = ClusterSite::new(Box::new(source), key.clone());
    let server = HttpServer::start("--web", &HttpAddress::port(0), Arc::new(site))?;
    let mut status = Row::new(BENCH, "status", 1);
    let mut rows = QUESTIONS.map(|(name, _)| Row::new(BENCH, name, 1));
    for row in &mut rows {
        row.limit(SLOWEST, 100.0);
    }
    for repetition in 0..lab.repeat {
        lab.progress(BENCH, repetition, &format!("{subtrees} decoupled subtrees"));
        let alone = slowest(|| monitor.status().map(drop))?;
        status.push(alone);
        status.note(SLOWEST, alone * 1e3);
        for ((_, path), row) in QUESTIONS.iter().zip(&mut rows) {
            let seconds = slowest(|| ask(server.address(), &key, path))?;
            row.push(seconds);
            row.note(SLOWEST, seconds * 1e3);
            row.against(alone);
        }
    }
    let store = cluster.store().to_owned();
    lab.report(&store, std::iter::once(status).chain(rows));
    Ok(())
}

/// A cluster, whose list of decoupled subtrees is filled up on paper: the monitor lists some
/// thousands of each server.
struct Filled {
    cluster: Arc<Cluster>,
    more: Vec<DecoupledSubtree>,
}

impl Filled {
    fn new(cluster: Arc<Cluster>, count: u64) -> Self {
        let more = (0..count).map(|number| DecoupledSubtree {
            path: format!("/scratch/user{:03}/job{number}", number % 500).into_bytes(),
            ino: Ino(number),
            client: ClientId(number),
            policy: POLICIES[usize::from(number % 2 == 0)].to_owned(),
            ..DecoupledSubtree::default()
        });
        Self { cluster, more: more.collect() }
    }
}

impl ClusterSource for Filled {
    fn map(&self) -> Result<ClusterMap> {
        let mut map = self.cluster.status()?;
        map.decoupled.extend_from_slice(&self.more);
        Ok(map)
    }

    fn balancer_log(&self, after: u64) -> Result<BalancerLog> {
        self.cluster.balancer_log(after)
    }
}

fn failed(what: &str) -> Error {
    Error::new(Errno::Io, BENCH, what)
}

/// The seconds of the slowest of some looks, each of which finds no answer that is young enough.
fn slowest(mut look: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut slowest = Duration::ZERO;
    for _ in 0..LOOKS {
        sleep(web::INTERVAL);
        let begin = Instant::now();
        look()?;
        slowest = slowest.max(begin.elapsed());
    }
    Ok(slowest.as_secs_f64())
}

/// Asks as a browser does, and reads the whole answer.
fn ask(address: &HttpAddress, key: &WebKey, path: &str) -> Result<()> {
    let link = key.link("");
    let (_, key) = link.split_once("#key=").unwrap_or_default();
    let request = format!("GET {path} HTTP/1.1\r\nAuthorization: Bearer {key}\r\n\r\n");
    let answer = exchange(address, &request).map_err(|error| failed(&error.to_string()))?;
    match answer.starts_with(b"HTTP/1.1 200 ") {
        true => Ok(()),
        false => Err(failed(&format!("{path} was refused"))),
    }
}
