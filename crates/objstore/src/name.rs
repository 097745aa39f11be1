//! Which names objects may have.
//!
//! Not here: how a back end turns a name into a path.
//!
//! Invariant: a legal name can be printed on one line, compared byte by byte and split at `/`
//! without any component meaning "here" or "up".

use types::{Errno, Error, Result};

/// Longest name in bytes.
pub const NAME_BYTES_MAX: usize = 512;

/// Checks that `name` can name an object: 1 to 512 printable ASCII bytes (space to `~`), in
/// components separated by `/`, none of them empty, `.` or `..`.
///
/// # Errors
/// `EINVAL`, saying which rule is broken.
pub fn check_name(name: &str) -> Result<()> {
    let invalid = |cause: &str| Err(Error::new(Errno::Invalid, format!("{name:?}"), cause));
    if name.is_empty() {
        return invalid("an object name cannot be empty");
    }
    if name.len() > NAME_BYTES_MAX {
        return invalid("an object name has at most 512 bytes");
    }
    if !is_printable(name) {
        return invalid("an object name consists of printable ASCII characters");
    }
    if name.split('/').any(|component| matches!(component, "" | "." | "..")) {
        return invalid("a component of an object name cannot be empty, `.` or `..`");
    }
    Ok(())
}

/// Whether all bytes are printable ASCII.
pub(crate) fn is_printable(text: &str) -> bool {
    text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}
