//! A key that its owner makes from a key of their own, without the authority: for a job, for some
//! hours, with fewer rights.
//!
//! The key file of a user or a host has a second certificate of the same key, for signing. A daemon
//! holds a narrower key against the key that signed it (`verifier`), so no key gives more than it
//! has, and the revocation of a key ends all keys that were narrowed from it.

use ipnet::IpNet;
use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use types::{Errno, Error, KeyRule, KeyRules, Path, Result, Rights, Timestamp};

use crate::certificate::{self, LAST_SECOND};
use crate::holder::{Holder, KeyId, NamedKey};
use crate::verifier;

/// The rules, the networks and the life of a narrower key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Narrower {
    /// Its rules; those of the wider key if there are none.
    pub rules: Option<KeyRules>,
    /// Its networks; those of the wider key if there are none.
    pub networks: Vec<IpNet>,
    /// Its life in seconds. It ends with the life of the wider key at the latest.
    pub seconds: i64,
}

/// Rights that no job has.
const COMMANDS: Rights = Rights::ADMIN.and(Rights::BALANCE).and(Rights::RECOVER);

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// The certificates in a key file, as text, and nothing around them: the private key of the wider
/// key may stand between them.
fn certificates(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split_inclusive(END).filter(|part| part.ends_with(END));
    parts.filter_map(|part| part.rfind(BEGIN).map(|at| &part[at..]))
}

/// Makes a narrower key from the text of a key file, and returns the text of its key file.
///
/// # Errors
/// `EINVAL` if the text is no key file, or the file of a key that signs no keys: of a daemon, of a
/// key that was narrowed, or of an earlier version; `EPERM` if the wider key has less; `EIO`. All
/// name `file`.
pub fn narrow(file: &str, text: &str, wish: &Narrower, now: Timestamp) -> Result<String> {
    let invalid = |cause: &str| Error::new(Errno::Invalid, file, cause);
    let wider = narrowable(file, text)?;
    let key = wish.of(&wider, now).map_err(|error| io(file, &error))?;
    if key.clone().narrowed(&wider).is_none() {
        let rules = wider.holder.rules().map(|rules| format!("; it has {rules}"));
        let cause = format!("the key has less than that{}", rules.unwrap_or_default());
        return Err(Error::new(Errno::NotPermitted, file, cause));
    }
    let private = PrivateKeyDer::from_pem_slice(text.as_bytes());
    let private = private.map_err(|error| invalid(&format!("not a key file: {error}")))?;
    let sign = || -> std::result::Result<(String, String), rcgen::Error> {
        let private = KeyPair::try_from(&private)?;
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = certificate::signer_name(&wider);
        let issuer = Issuer::from_params(&parameters, &private);
        let own = KeyPair::generate()?;
        let from = certificate::seconds_of(now);
        let made = certificate::of_key(&key, &format!("narrowed {}", key.id), from)?;
        Ok((made.signed_by(&own, &issuer)?.pem(), own.serialize_pem()))
    };
    let (made, private) = sign().map_err(|error| io(file, &error))?;
    let others: String = certificates(text).skip(1).map(|part| format!("{part}\n")).collect();
    Ok([made, others, private].concat())
}

/// The key of a key file that can be narrowed.
///
/// # Errors
/// `EINVAL`, as [`narrow`].
pub fn narrowable(file: &str, text: &str) -> Result<NamedKey> {
    let invalid = |cause: &str| Error::new(Errno::Invalid, file, cause);
    let all: std::result::Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let all = all.map_err(|error| invalid(&format!("not a key file: {error}")))?;
    let [own, signer, _] = &all[..] else {
        return Err(invalid(
            "the key cannot be narrowed: it is a daemon's, or an earlier version made it",
        )
        .remedy("make a key for a user or a host with `cudele auth add`"));
    };
    let stated = verifier::stated(own).zip(verifier::stated(signer));
    let wider = stated.filter(|(own, signer)| own == signer).map(|(own, _)| own);
    wider.ok_or_else(|| {
        invalid("the key was itself narrowed").remedy("narrow the key that it was made from")
    })
}

fn io(file: &str, error: &impl std::fmt::Display) -> Error {
    Error::new(Errno::Io, file, error.to_string())
}

impl Narrower {
    /// A key for a job in a subtree: there it has the rights of the wider key, but none to command
    /// a cluster, and elsewhere the wider key's right to read. `None` if the wider key has too many
    /// rules to add one.
    #[must_use]
    pub fn for_job(wider: &NamedKey, subtree: &Path, seconds: i64) -> Option<Self> {
        let all = Rights::ALL.iter().filter(|(right, _)| !COMMANDS.has(*right));
        let in_job = all.fold(Rights::READ, |rights, (right, _)| rights.and(*right));
        let rule = |rights, subtree: &Path| KeyRule { rights, subtree: subtree.clone() };
        let rules = match wider.holder.rules() {
            None => vec![rule(in_job, subtree), rule(Rights::READ, &Path::root())],
            Some(rules) => {
                let above = rules.all().iter().filter(|it| subtree.starts_with(&it.subtree));
                let in_subtree = above.map(|it| rule(it.rights.shared(in_job), subtree));
                let reading = rules.all().iter().filter(|it| it.rights.has(Rights::READ));
                in_subtree.chain(reading.map(|it| rule(Rights::READ, &it.subtree))).collect()
            }
        };
        let rules = Some(KeyRules::new(rules)?);
        Some(Self { rules, networks: Vec::new(), seconds })
    }

    /// The key that is wished for, under a new id.
    fn of(
        &self,
        wider: &NamedKey,
        now: Timestamp,
    ) -> std::result::Result<NamedKey, getrandom::Error> {
        let holder = match &self.rules {
            None => wider.holder.clone(),
            Some(rules) => Holder::Limited(Box::new(wider.unlimited().clone()), rules.clone()),
        };
        let networks = if self.networks.is_empty() { &wider.networks } else { &self.networks };
        let until = certificate::seconds_of(now).saturating_add(self.seconds);
        Ok(NamedKey {
            id: KeyId(getrandom::u64()?),
            holder,
            until: until.min(wider.until).clamp(0, LAST_SECOND),
            networks: networks.clone(),
            narrowed_from: None,
        })
    }
}
