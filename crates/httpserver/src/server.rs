//! The server: one thread accepts, and each of a few connections has a thread.
//!
//! A connection has one request and one answer, and a deadline for both.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use types::{Errno, Error, Result};

use crate::address::{HttpStream, Listener};
use crate::request::HEAD_BYTES_MAX;
use crate::{HttpAddress, HttpRequest, HttpResponse, Site};

/// Clients at once.
const CONNECTIONS_MAX: usize = 16;
/// A client has so much time for its request and for reading the answer.
const DEADLINE: Duration = Duration::from_secs(10);
/// After a failure of the system to accept a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// See the module documentation. The server ends when it is dropped.
#[derive(Debug)]
pub struct HttpServer {
    listener: Arc<Listener>,
    address: HttpAddress,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Listens, and answers clients with the pages of a site. `option` is the option of the program
    /// that named the address; errors quote it.
    ///
    /// # Errors
    /// `EADDRINUSE` or `EACCES` for the address, `EAGAIN` if there can be no more threads.
    pub fn start(option: &str, address: &HttpAddress, site: Arc<dyn Site>) -> Result<Self> {
        let listener = Arc::new(Listener::bind(option, address)?);
        let failed = |errno, error: io::Error| {
            Error::new(errno, format!("{option} {address}"), error.to_string())
        };
        let address = listener.address().map_err(|error| failed(Errno::Io, error))?;
        let ends = Arc::new(AtomicBool::new(false));
        let (shared, is_ending) = (listener.clone(), ends.clone());
        let thread = std::thread::Builder::new().name("http".to_owned());
        let thread = thread.spawn(move || accept(&shared, &site, &is_ending));
        let thread = Some(thread.map_err(|error| failed(Errno::Again, error))?);
        Ok(Self { listener, address, ends, thread })
    }

    /// The address, with the port that the system chose for port 0.
    #[must_use]
    pub fn address(&self) -> &HttpAddress {
        &self.address
    }
}

impl Drop for HttpServer {
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

fn accept(listener: &Listener, site: &Arc<dyn Site>, ends: &AtomicBool) {
    let open = Arc::new(AtomicUsize::new(0));
    while !ends.load(Ordering::Relaxed) {
        let Ok(mut stream) = listener.accept() else {
            if !ends.load(Ordering::Relaxed) {
                std::thread::sleep(PAUSE);
            }
            continue;
        };
        if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::Relaxed);
            site.note_refused();
            continue;
        }
        let (site, counted) = (site.clone(), open.clone());
        let thread = std::thread::Builder::new().name("http.client".to_owned());
        let started = thread.spawn(move || {
            // The client sees the error of its connection, and no other part needs it.
            let _ = serve(&mut stream, &*site, Instant::now() + DEADLINE);
            counted.fetch_sub(1, Ordering::Relaxed);
        });
        if started.is_err() {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Reads a request and answers it.
fn serve(stream: &mut HttpStream, site: &dyn Site, deadline: Instant) -> io::Result<()> {
    let mut head = Vec::new();
    let answer = loop {
        match HttpRequest::parse(&head) {
            Ok(Some(request)) => break site.answer(&request).encode(request.is_head),
            Ok(None) => {}
            Err(status) => break HttpResponse::refusal(status).encode(false),
        }
        let mut piece = [0; 1024];
        bound(stream, deadline)?;
        match stream.read(&mut piece)? {
            0 => return Ok(()),
            count => head.extend(&piece[..count.min(HEAD_BYTES_MAX - head.len())]),
        }
    };
    let mut rest = &answer[..];
    while !rest.is_empty() {
        bound(stream, deadline)?;
        let count = stream.write(rest)?;
        rest = &rest[count..];
    }
    stream.end_writing();
    // Bytes that are left unread would make the system drop the answer.
    let deadline = deadline.min(Instant::now() + PAUSE);
    loop {
        bound(stream, deadline)?;
        if stream.read(&mut [0; 1024])? == 0 {
            return Ok(());
        }
    }
}

/// The next read or write ends at the deadline.
fn bound(stream: &HttpStream, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    stream.set_timeout(left)
}
