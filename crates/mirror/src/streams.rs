//! Content as streams of bytes.

use std::io::{ErrorKind, Read};
use std::path::Path;

use cudele::{Error, Result};

/// How much content is copied at a time, in bytes.
pub(crate) const PIECE: usize = 1 << 17;

/// The error of a stream: of the namespace, or of this machine.
pub(crate) fn stream_error(error: &std::io::Error) -> Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    inner.cloned().unwrap_or_else(|| terminal::io(Path::new("content"), error))
}

/// Whether two streams have the same bytes.
pub(crate) fn is_same_content(a: &mut dyn Read, b: &mut dyn Read) -> Result<bool> {
    let (mut left, mut right) = (vec![0; PIECE], vec![0; PIECE]);
    loop {
        let (some, others) = (fill(a, &mut left)?, fill(b, &mut right)?);
        if left[..some] != right[..others] {
            return Ok(false);
        }
        if some < PIECE {
            return Ok(true);
        }
    }
}

/// Reads until a buffer is full or the stream ends.
fn fill(stream: &mut dyn Read, buffer: &mut [u8]) -> Result<usize> {
    let mut at = 0;
    while at < buffer.len() {
        match stream.read(&mut buffer[at..]) {
            Ok(0) => break,
            Ok(count) => at += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(stream_error(&error)),
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_several_pieces_are_told_apart() {
        let long = vec![7; PIECE + 3];
        let mut other = long.clone();
        other[PIECE + 2] = 8;
        assert!(is_same_content(&mut &*long, &mut &*long.clone()).unwrap());
        assert!(!is_same_content(&mut &*long, &mut &*other).unwrap());
        assert!(!is_same_content(&mut &*long, &mut &long[..PIECE]).unwrap());
        assert!(!is_same_content(&mut &long[..PIECE], &mut &*long).unwrap());
        assert!(is_same_content(&mut &b""[..], &mut &b""[..]).unwrap());
    }
}
