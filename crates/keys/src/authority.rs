//! The authority of a cluster: makes keys, and keeps a list of them.
//!
//! The folder `keys` of a cluster's directory has the authority's certificate and private key, the
//! list of keys that it made, the list of those that were revoked, and the key of this host's
//! daemons. A process that reads the authority's private key can be every user and every daemon.

use std::io::Write;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use types::{Errno, Error, IdRanges, KeyRules, Result, Timestamp};

use crate::certificate::{self, LAST_SECOND, SKEW, seconds_of, time_of};
use crate::file::{DAEMON_FILE, FOLDER, REVOKED_FILE, private};
use crate::holder::{Holder, KeyId, NamedKey};
use crate::revoked::Revoked;

const CERTIFICATE_FILE: &str = "authority.pem";
const PRIVATE_FILE: &str = "authority-private.pem";
/// The name of the key of this host's daemons.
const OWN_NAME: &str = "daemon";
const ISSUED_FILE: &str = "issued";
const DAY: i64 = 24 * 3600;
/// How long an authority lives, in days.
const AUTHORITY_DAYS: i64 = 20 * 365;

/// See the module documentation.
#[derive(Debug)]
pub struct Authority {
    folder: PathBuf,
    certificate: String,
    private: KeyPair,
}

/// The fields of a line of the list that not every key has begin so.
const USERS: &str = "users=";
const GROUPS: &str = "groups=";
const FROM: &str = "from=";

/// A key that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKey {
    /// The name that people give it: letters, digits and `-_.@`, 64 of them at most.
    pub name: String,
    /// Its holder.
    pub holder: Holder,
    /// It is used from these networks only; from any network if there are none.
    pub networks: Vec<IpNet>,
    /// Its life in days.
    pub days: i64,
}

impl NewKey {
    /// A key that is used from any network.
    #[must_use]
    pub fn new(name: &str, holder: Holder, days: i64) -> Self {
        Self { name: name.to_owned(), holder, networks: Vec::new(), days }
    }
}

/// A key that the authority made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedKey {
    /// Its id.
    pub id: KeyId,
    /// The name that people gave it.
    pub name: String,
    /// `daemon`, `everyone`, `users`, `host`, `user` or `reader`.
    pub kind: String,
    /// The user, of a key of one.
    pub uid: Option<u32>,
    /// The end of its life, in seconds since 1970.
    pub expires: i64,
    /// Its rules, if it has some.
    pub rules: Option<KeyRules>,
    /// The users and the groups of a host, of a key for some.
    pub host: Option<(IdRanges, IdRanges)>,
    /// It is used from these networks only; from any network if there are none.
    pub networks: Vec<IpNet>,
}

fn invalid(folder: &Path, error: &impl std::fmt::Display) -> Error {
    Error::new(Errno::Invalid, folder.display().to_string(), error.to_string())
}

impl Authority {
    /// Makes an authority in the directory of a cluster, and a key for its daemons, unless there
    /// is one.
    ///
    /// # Errors
    /// `EIO` if a file cannot be written.
    pub fn ensure(dir: &Path, now: Timestamp) -> Result<Self> {
        let folder = dir.join(FOLDER);
        if !folder.join(CERTIFICATE_FILE).is_file() {
            make_folder(&folder)?;
            let private = KeyPair::generate().map_err(|error| crate::failed(&folder, &error))?;
            let certificate = parameters(now).self_signed(&private);
            let certificate = certificate.map_err(|error| crate::failed(&folder, &error))?;
            write(&folder.join(PRIVATE_FILE), &private.serialize_pem())?;
            write(&folder.join(CERTIFICATE_FILE), &certificate.pem())?;
        }
        let authority = Self::open(dir)?;
        let daemon = folder.join(DAEMON_FILE);
        if !daemon.is_file() {
            let new = NewKey::new(OWN_NAME, Holder::Daemon, AUTHORITY_DAYS);
            let key = authority.issue(new, now)?;
            write(&daemon, &key)?;
        }
        Ok(authority)
    }

    /// The authority in the directory of a cluster.
    ///
    /// # Errors
    /// `ENOENT` if there is none, `EINVAL` if its files are damaged.
    pub fn open(dir: &Path) -> Result<Self> {
        let folder = dir.join(FOLDER);
        let read = |name| {
            let file = folder.join(name);
            std::fs::read_to_string(&file).map_err(|error| {
                if error.kind() != std::io::ErrorKind::NotFound {
                    return crate::failed(&file, &error);
                }
                let cause = "the cluster has no authority for keys";
                Error::new(Errno::NotFound, file.display().to_string(), cause)
                    .remedy("`cudele auth init --dir DIR` makes one")
            })
        };
        let certificate = read(CERTIFICATE_FILE)?;
        let private = KeyPair::from_pem(&read(PRIVATE_FILE)?);
        let private = private.map_err(|error| invalid(&folder, &error))?;
        Ok(Self { folder, certificate, private })
    }

    /// Makes a key, and returns the text of its key file.
    ///
    /// # Errors
    /// `EEXIST` if a key of this name is in use, `EINVAL` for a name that cannot be listed, `EIO`.
    pub fn issue(&self, new: NewKey, now: Timestamp) -> Result<String> {
        let NewKey { name, holder, networks, days } = new;
        let name = name.as_str();
        let is_fine = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_fine) {
            let cause = "a name of a key has letters, digits and - _ . @, and 64 of them at most";
            return Err(Error::new(Errno::Invalid, name, cause));
        }
        let mut same = self.list()?.into_iter().filter(|issued| issued.name == name);
        // The key of this host's daemons is made again when its file is gone.
        let is_own = name == OWN_NAME && holder == Holder::Daemon;
        if same.any(|issued| !self.revoked().has(issued.id)) && !is_own {
            return Err(Error::new(Errno::Exists, name, "there is a key of this name")
                .remedy(format!("choose another name, or `cudele auth rm {name}`")));
        }
        let failed = |error: rcgen::Error| crate::failed(&self.folder, &error);
        let id = getrandom::u64().map_err(|error| crate::failed(&self.folder, &error))?;
        let seconds = seconds_of(now);
        let expires = seconds.saturating_add(days.saturating_mul(DAY)).clamp(0, LAST_SECOND);
        let key = NamedKey { id: KeyId(id), holder, until: expires, networks, narrowed_from: None };
        let own = KeyPair::generate().map_err(failed)?;
        let issuer = Issuer::from_params(&PARAMETERS_OF_ISSUER, &self.private);
        let sign = |made: std::result::Result<CertificateParams, rcgen::Error>| {
            made?.signed_by(&own, &issuer).map(|certificate| certificate.pem())
        };
        let mut text = sign(certificate::of_key(&key, name, seconds)).map_err(failed)?;
        if key.holder != Holder::Daemon {
            text += &sign(certificate::of_signer(&key, seconds)).map_err(failed)?;
        }
        self.note(&key, name, expires)?;
        Ok([text, self.certificate.clone(), own.serialize_pem()].concat())
    }

    /// The keys that were made, the oldest first.
    ///
    /// # Errors
    /// `EIO` if the list cannot be read.
    pub fn list(&self) -> Result<Vec<IssuedKey>> {
        let file = self.folder.join(ISSUED_FILE);
        match std::fs::read_to_string(&file) {
            Ok(text) => Ok(text.lines().filter_map(parse).collect()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(crate::failed(&file, &error)),
        }
    }

    /// The keys that were revoked.
    #[must_use]
    pub fn revoked(&self) -> Revoked {
        Revoked::in_file(&self.folder.join(REVOKED_FILE))
    }

    fn note(&self, key: &NamedKey, name: &str, expires: i64) -> Result<()> {
        let uid = key.holder.uid().map_or_else(|| "-".to_owned(), |uid| uid.to_string());
        // A full disk may have cut the line before off.
        let mut more = key.holder.rules().map(|rules| format!(" {rules}")).unwrap_or_default();
        if let Some((users, groups)) = key.holder.some_users() {
            more += &format!(" {USERS}{users} {GROUPS}{groups}");
        }
        more.extend(key.networks.iter().map(|network| format!(" {FROM}{network}")));
        let line = format!("\n{} {name} {} {uid} {expires}{more}\n", key.id, key.holder.kind());
        let file = self.folder.join(ISSUED_FILE);
        let append = || -> std::io::Result<()> {
            let mut list = private().append(true).create(true).open(&file)?;
            list.write_all(line.as_bytes())?;
            list.sync_all()
        };
        append().map_err(|error| crate::failed(&file, &error))
    }
}

/// A line of the list of keys.
fn parse(line: &str) -> Option<IssuedKey> {
    let [id, name, kind, uid, expires, ref more @ ..] = line.split(' ').collect::<Vec<_>>()[..]
    else {
        return None;
    };
    let (mut rules, mut networks) = (Vec::new(), Vec::new());
    let (mut users, mut groups) = (None, None);
    for field in more {
        if let Some(ids) = field.strip_prefix(USERS) {
            users = Some(ids.parse().ok()?);
        } else if let Some(ids) = field.strip_prefix(GROUPS) {
            groups = Some(ids.parse().ok()?);
        } else if let Some(network) = field.strip_prefix(FROM) {
            networks.push(network.parse().ok()?);
        } else {
            rules.push(field.parse().ok()?);
        }
    }
    Some(IssuedKey {
        id: id.parse().ok()?,
        name: name.to_owned(),
        kind: kind.to_owned(),
        uid: uid.parse().ok(),
        expires: expires.parse().ok()?,
        // Earlier versions listed no rules.
        rules: KeyRules::new(rules).or_else(|| (kind == "reader").then(KeyRules::reading)),
        host: users.zip(groups),
        networks,
    })
}

/// The fields of the authority's certificate that a signature needs. They are the same for every
/// cluster, so the certificate need not be parsed.
static PARAMETERS_OF_ISSUER: std::sync::LazyLock<CertificateParams> =
    std::sync::LazyLock::new(|| parameters(Timestamp(0)));

fn parameters(now: Timestamp) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, "cudele authority");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    parameters.not_before = time_of(seconds_of(now) - SKEW);
    parameters.not_after = time_of(seconds_of(now) + AUTHORITY_DAYS * DAY);
    parameters
}

fn make_folder(folder: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().mode(0o700).recursive(true).create(folder);
    made.map_err(|error| crate::failed(folder, &error))
}

/// Writes a new file for its owner alone, durably and as a whole: a kill or a full disk leaves no
/// file under its name.
fn write(file: &Path, text: &str) -> Result<()> {
    let new = file.with_extension("new");
    let make = || -> std::io::Result<()> {
        let mut made = private().write(true).create(true).truncate(true).open(&new)?;
        made.write_all(text.as_bytes())?;
        made.sync_all()?;
        std::fs::rename(&new, file)
    };
    make().map_err(|error| crate::failed(file, &error))
}
