//! Key files, and the configurations of TLS that are made from them.
//!
//! A key file has these parts in PEM: the certificate of the key, the certificate of the authority,
//! and the private key. Between the two certificates, the file of a user or a host has a
//! certificate with which the key signs narrower keys, and the file of a narrower key has the
//! certificate of its signer ([`crate::narrow`]). A process reads the file again when it changes,
//! so a key is renewed while daemons run.

use std::fs::OpenOptions;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use types::{Errno, Error, Peer, Result};

use crate::holder::{self, KeyId, NamedKey};
use crate::revoked::Revoked;
use crate::verifier::{self, Verifier};

/// The folder of a cluster's keys, in its directory.
pub const FOLDER: &str = "keys";
/// The key file of the daemons of a host, in that folder.
pub const DAEMON_FILE: &str = "daemon.pem";
/// The list of revoked keys, beside a key file.
pub(crate) const REVOKED_FILE: &str = "revoked";

/// The configurations made from a state of the file.
#[derive(Clone, Debug)]
struct Loaded {
    modified: SystemTime,
    own: Option<NamedKey>,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

/// See the module documentation.
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    revoked: Arc<Revoked>,
    loaded: Mutex<Option<Loaded>>,
}

/// The key of a process, if it has one. Unix sockets need none.
#[derive(Clone, Debug, Default)]
pub struct Keyring(Option<Arc<KeyFile>>);

impl PartialEq for Keyring {
    fn eq(&self, other: &Self) -> bool {
        let path = |ring: &Self| ring.0.as_ref().map(|key| key.path.clone());
        path(self) == path(other)
    }
}

impl Eq for Keyring {}

impl Keyring {
    /// The key in this file. The file is read when it is needed.
    #[must_use]
    pub fn of(file: &Path) -> Self {
        let folder = file.parent().unwrap_or(Path::new("."));
        let revoked = Arc::new(Revoked::in_file(&folder.join(REVOKED_FILE)));
        Self(Some(Arc::new(KeyFile { path: file.to_owned(), revoked, loaded: Mutex::default() })))
    }

    /// The key of the daemons in the directory of a cluster, if there is one.
    #[must_use]
    pub fn of_cluster(dir: &Path) -> Self {
        let file = dir.join(FOLDER).join(DAEMON_FILE);
        if file.is_file() { Self::of(&file) } else { Self::default() }
    }

    /// The ids of the keys that this process does not accept, in order.
    #[must_use]
    pub fn revoked(&self) -> Vec<u64> {
        let all = self.0.as_ref().map(|key| key.revoked.all()).unwrap_or_default();
        all.into_iter().map(|id| id.0).collect()
    }

    /// Accepts these keys no more: the map of the cluster lists them.
    pub fn learn_revoked(&self, ids: &[u64]) {
        if let Some(key) = self.0.as_ref().filter(|_| !ids.is_empty()) {
            key.revoked.learn(&ids.iter().copied().map(KeyId).collect::<Vec<_>>());
        }
    }

    /// The same, and later daemons of this host accept them no more either.
    pub fn keep_revoked(&self, ids: &[u64]) {
        if let Some(key) = self.0.as_ref().filter(|_| !ids.is_empty()) {
            key.revoked.keep(&ids.iter().copied().map(KeyId).collect::<Vec<_>>());
        }
    }

    /// The key.
    ///
    /// # Errors
    /// `EACCES` if the process has none.
    pub fn key(&self) -> Result<&Arc<KeyFile>> {
        self.0.as_ref().ok_or_else(|| {
            Error::new(Errno::Access, "tcp", "a connection over TCP needs a key").remedy(
                "the owner of the cluster makes one with `cudele auth add`; name its file with \
                 --key FILE, or in $CUDELE_KEY",
            )
        })
    }
}

impl KeyFile {
    /// The configuration for connecting to a daemon.
    ///
    /// # Errors
    /// As [`KeyFile::server`].
    pub fn client(&self) -> Result<Arc<ClientConfig>> {
        Ok(self.load()?.client)
    }

    /// The configuration of a daemon.
    ///
    /// # Errors
    /// `EACCES` if other users may read the file, `ENOENT`, or `EINVAL` if the file is no key file.
    pub fn server(&self) -> Result<Arc<ServerConfig>> {
        Ok(self.load()?.server)
    }

    /// The holder of the key: the peer that a daemon takes this process for.
    ///
    /// # Errors
    /// As [`KeyFile::server`]; `EINVAL` also if the certificate states no key.
    pub fn own_peer(&self) -> Result<Peer> {
        let own = self.load()?.own.ok_or_else(|| {
            let cause = "its certificate states no key of this version";
            Error::new(Errno::Invalid, self.path.display().to_string(), cause)
                .remedy("use the version of the program that made the key, or a newer one")
        })?;
        Ok(own.holder.peer())
    }

    /// The keys that this process accepts no more.
    #[must_use]
    pub fn revoked(&self) -> &Revoked {
        &self.revoked
    }

    /// The key that a peer has proved to have, by its certificates.
    #[must_use]
    pub fn stated(certificates: &[CertificateDer<'_>]) -> Option<NamedKey> {
        let (own, between) = certificates.split_first()?;
        verifier::stated_by(own, between)
    }

    /// The name that every daemon proves to have.
    #[must_use]
    pub fn daemon_name() -> ServerName<'static> {
        ServerName::try_from(holder::daemon_name()).expect("a name of a host")
    }

    fn load(&self) -> Result<Loaded> {
        let known = std::fs::metadata(&self.path);
        let known = known.map_err(|error| self.unreadable(&error))?;
        let modified = known.modified().map_err(|error| self.unreadable(&error))?;
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = loaded.as_ref().filter(|loaded| loaded.modified == modified) {
            return Ok(loaded.clone());
        }
        if known.mode() & 0o077 != 0 {
            let cause = "other users may read the private key";
            return Err(Error::new(Errno::Access, self.path.display().to_string(), cause)
                .remedy(format!("chmod 600 {}", self.path.display())));
        }
        let text = std::fs::read(&self.path).map_err(|error| self.unreadable(&error))?;
        let made = self.make(&text, modified).map_err(|cause| {
            Error::new(Errno::Invalid, self.path.display().to_string(), cause)
                .remedy("`cudele auth add` makes key files")
        })?;
        *loaded = Some(made.clone());
        Ok(made)
    }

    fn unreadable(&self, error: &std::io::Error) -> Error {
        let errno = error.raw_os_error().and_then(|code| u16::try_from(code).ok());
        let errno = errno.map_or(Errno::Io, Errno::from_code);
        Error::new(errno, self.path.display().to_string(), format!("cannot read the key: {error}"))
    }

    fn make(&self, text: &[u8], modified: SystemTime) -> std::result::Result<Loaded, String> {
        let all: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
        let all = all.map_err(|error| format!("not a key file: {error}"))?;
        let (authority, chain) = match &all[..] {
            [chain @ .., authority] if (1..=2).contains(&chain.len()) => {
                (authority, chain.to_vec())
            }
            _ => {
                let count = all.len();
                return Err(format!(
                    "a key file has two or three certificates, and this one {count}"
                ));
            }
        };
        let stated = Self::stated(&chain);
        let private = || PrivateKeyDer::from_pem_slice(text).map_err(|error| error.to_string());
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone()).map_err(|error| error.to_string())?;
        let roots = Arc::new(roots);
        let text = |error: rustls::Error| error.to_string();
        let of_servers =
            WebPkiServerVerifier::builder_with_provider(roots.clone(), crate::provider()).build();
        let of_servers = of_servers.map_err(|error| error.to_string())?;
        let mut client = ClientConfig::builder_with_provider(crate::provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(text)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier {
                revoked: self.revoked.clone(),
                rules: of_servers as Arc<dyn ServerCertVerifier>,
            }))
            .with_client_auth_cert(chain.clone(), private()?)
            .map_err(text)?;
        client.resumption = Resumption::disabled();
        let rules = WebPkiClientVerifier::builder_with_provider(roots, crate::provider()).build();
        let rules = rules.map_err(|error| error.to_string())?;
        let verifier = Arc::new(Verifier { rules, revoked: self.revoked.clone() });
        let mut server = ServerConfig::builder_with_provider(crate::provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(text)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, private()?)
            .map_err(text)?;
        // A session that is resumed would not be held against the list of revoked keys.
        server.send_tls13_tickets = 0;
        Ok(Loaded { modified, own: stated, client: Arc::new(client), server: Arc::new(server) })
    }
}

/// Opens files for their owner alone.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}
