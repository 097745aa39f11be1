//! A client for tests and measurements.

use std::io::{self, Read, Write};

use crate::HttpAddress;
use crate::address::HttpStream;

/// Sends a request as it stands to a server, and returns all bytes of the answer. The server closes
/// the connection behind an answer.
///
/// # Errors
/// Those of the connection.
pub fn exchange(address: &HttpAddress, request: &str) -> io::Result<Vec<u8>> {
    let mut stream = HttpStream::connect(address)?;
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}
