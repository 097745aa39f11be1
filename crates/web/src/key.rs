//! The secret that admits a browser.

use std::io::Write;
use std::path::Path;

use cudele::{Errno, Error, Result, own_file};
use types::hex;

/// Bytes of chance in a key.
const BYTES: usize = 16;

/// The secret of a server: a browser with this key may see the cluster. The key is in a file that
/// only the owner of the cluster and root can read.
#[derive(Clone, PartialEq, Eq)]
pub struct WebKey(String);

impl std::fmt::Debug for WebKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebKey")
    }
}

impl WebKey {
    /// A new key.
    ///
    /// # Errors
    /// `EIO` if the system has no random numbers.
    pub fn draw() -> Result<Self> {
        let mut bytes = [0; BYTES];
        let failed = |error: getrandom::Error| Error::new(Errno::Io, "web", error.to_string());
        getrandom::fill(&mut bytes).map_err(failed)?;
        Ok(Self(hex::encode(&bytes)))
    }

    /// The address of the page for a browser, with the key in its fragment.
    #[must_use]
    pub fn link(&self, page: &str) -> String {
        format!("{page}/#key={}", self.0)
    }

    /// The key in a [`link`](Self::link).
    #[must_use]
    pub fn of_link(link: &str) -> Option<Self> {
        let key = link.trim_end().split_once("#key=")?.1;
        let is_key = key.len() == 2 * BYTES && hex::decode(key).is_some();
        is_key.then(|| Self(key.to_owned()))
    }

    /// Writes the link of a server into a file of the owner.
    ///
    /// # Errors
    /// As [`own_file::create`].
    pub fn keep(&self, file: &Path, page: &str) -> std::io::Result<()> {
        writeln!(own_file::create(file)?, "{}", self.link(page))
    }

    /// Whether the value of a field `Authorization` has the key. Takes the same time for every
    /// value of the same length.
    pub(crate) fn is_in(&self, value: &[u8]) -> bool {
        let Some(given) = value.strip_prefix(b"Bearer ") else { return false };
        let differ = |(a, b): (&u8, u8)| a ^ b;
        given.len() == self.0.len()
            && given.iter().zip(self.0.bytes()).map(differ).fold(0, |all, bits| all | bits) == 0
    }
}
