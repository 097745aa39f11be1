//! The keys of a cluster: they prove over TCP which daemon, or which user, is at the other end.
//!
//! A cluster has an authority ([`Authority`]), which signs a certificate for each key. A key file
//! has the certificate, its private key and the certificate of the authority ([`KeyFile`]). The
//! certificate names the holder ([`Holder`]) and the id of the key, so a daemon needs no list of
//! keys, only the list of those that were revoked ([`Revoked`]). Connections are TLS 1.3, and both
//! sides prove themselves; rustls does the cryptography.
//!
//! Invariants: only the key of a daemon proves a daemon to a client; a daemon accepts no key that
//! has expired, was revoked, or comes from another authority.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "I/O edge: reads and writes key files, and knows the time"
)]

mod authority;
mod certificate;
mod file;
mod holder;
mod narrow;
mod revoked;
mod verifier;

pub use authority::{Authority, IssuedKey, NewKey};
pub use file::{DAEMON_FILE, FOLDER, KeyFile, Keyring};
pub use holder::{Holder, KeyId, NamedKey};
pub use ipnet::IpNet;
pub use narrow::{Narrower, narrow, narrowable};
pub use revoked::Revoked;
pub use rustls::pki_types::CertificateDer;
pub use rustls::{ClientConfig, ServerConfig};
pub use types::{IdRanges, KeyRule, KeyRules, Rights};

#[cfg(test)]
mod tests;

/// Configurations of rustls, and of the cryptography below it, are made here only.
fn provider() -> std::sync::Arc<rustls::crypto::CryptoProvider> {
    std::sync::Arc::new(rustls::crypto::ring::default_provider())
}

fn failed(subject: &std::path::Path, cause: &impl std::fmt::Display) -> types::Error {
    types::Error::new(types::Errno::Io, subject.display().to_string(), cause.to_string())
}
