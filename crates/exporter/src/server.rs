//! The server for scrapers: one thread accepts, and each of a few connections has a thread.
//!
//! A connection has one request and one answer, and a deadline for both.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use types::{Errno, Error, Result};

use crate::address::{Listener, Scraper};
use crate::request::{HEAD_BYTES_MAX, ScrapeRequest, Status, Wish, parse};
use crate::{Feed, MetricsAddress};

/// Scrapers at once.
const CONNECTIONS_MAX: usize = 8;
/// A scraper has so much time for its request and for reading the answer.
const DEADLINE: Duration = Duration::from_secs(10);
/// After a failure of the system to accept a connection.
const PAUSE: Duration = Duration::from_millis(100);

const OK: Status = (200, "OK");
const UNAVAILABLE: Status = (503, "Service Unavailable");
const PLAIN: &str = "text/plain; charset=utf-8";
const INDEX: &str = "/metrics\n/healthz\n";

/// See the module documentation. The server ends when it is dropped.
#[derive(Debug)]
pub struct MetricsServer {
    listener: Arc<Listener>,
    address: MetricsAddress,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Listens, and answers scrapers from a feed.
    ///
    /// # Errors
    /// `EADDRINUSE` or `EACCES` for the address, `EAGAIN` if there can be no more threads.
    pub fn start(address: &MetricsAddress, feed: Arc<Feed>) -> Result<Self> {
        let listener = Arc::new(Listener::bind(address)?);
        let failed = |errno, error: io::Error| {
            Error::new(errno, format!("--metrics {address}"), error.to_string())
        };
        let address = listener.address().map_err(|error| failed(Errno::Io, error))?;
        let ends = Arc::new(AtomicBool::new(false));
        let (shared, is_ending) = (listener.clone(), ends.clone());
        let thread = std::thread::Builder::new().name("metrics".to_owned());
        let thread = thread.spawn(move || accept(&shared, &feed, &is_ending));
        let thread = Some(thread.map_err(|error| failed(Errno::Again, error))?);
        Ok(Self { listener, address, ends, thread })
    }

    /// The address, with the port that the system chose for port 0.
    #[must_use]
    pub fn address(&self) -> &MetricsAddress {
        &self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // Ends the `accept` of the thread.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.listener.remove();
    }
}

fn accept(listener: &Listener, feed: &Arc<Feed>, ends: &AtomicBool) {
    let open = Arc::new(AtomicUsize::new(0));
    while !ends.load(Ordering::Relaxed) {
        let Ok(mut scraper) = listener.accept() else {
            if !ends.load(Ordering::Relaxed) {
                std::thread::sleep(PAUSE);
            }
            continue;
        };
        if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::Relaxed);
            feed.note_refused();
            continue;
        }
        let (feed, counted) = (feed.clone(), open.clone());
        let thread = std::thread::Builder::new().name("scrape".to_owned());
        let started = thread.spawn(move || {
            // The scraper sees the error of its connection, and no other part needs it.
            let _ = serve(&mut scraper, &feed, Instant::now() + DEADLINE);
            counted.fetch_sub(1, Ordering::Relaxed);
        });
        if started.is_err() {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Reads a request and answers it.
fn serve(scraper: &mut Scraper, feed: &Feed, deadline: Instant) -> io::Result<()> {
    let mut head = Vec::new();
    let request = loop {
        match parse(&head) {
            Ok(Some(request)) => break Ok(request),
            Ok(None) => {}
            Err(status) => break Err(status),
        }
        let mut piece = [0; 1024];
        bound(scraper, deadline)?;
        match scraper.read(&mut piece)? {
            0 => return Ok(()),
            count => head.extend(&piece[..count.min(HEAD_BYTES_MAX - head.len())]),
        }
    };
    let answer = match request {
        Ok(request) => answer(request, feed),
        Err(status) => response(status, PLAIN, &format!("{}\n", status.1), false),
    };
    let mut rest = &answer[..];
    while !rest.is_empty() {
        bound(scraper, deadline)?;
        let count = scraper.write(rest)?;
        rest = &rest[count..];
    }
    scraper.end_writing();
    // Bytes that are left unread would make the system drop the answer.
    let deadline = deadline.min(Instant::now() + PAUSE);
    loop {
        bound(scraper, deadline)?;
        if scraper.read(&mut [0; 1024])? == 0 {
            return Ok(());
        }
    }
}

/// The next read or write ends at the deadline.
fn bound(scraper: &Scraper, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    scraper.set_timeout(left)
}

fn answer(ScrapeRequest { wish, is_head }: ScrapeRequest, feed: &Feed) -> Vec<u8> {
    match wish {
        Wish::Metrics(form) => match feed.page() {
            (Some(page), _) => response(OK, form.content_type(), &page.text(form), is_head),
            (None, _) => response(UNAVAILABLE, PLAIN, "no page yet\n", is_head),
        },
        Wish::Health => match feed.page() {
            (_, true) => response(OK, PLAIN, "ok\n", is_head),
            (_, false) => response(UNAVAILABLE, PLAIN, "the daemon does not answer\n", is_head),
        },
        Wish::Index => response(OK, PLAIN, INDEX, is_head),
    }
}

fn response((code, reason): Status, kind: &str, body: &str, is_head: bool) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {code} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    );
    let mut bytes = head.into_bytes();
    if !is_head {
        bytes.extend(body.as_bytes());
    }
    bytes
}
