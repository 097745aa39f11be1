//! The certificates of keys, as rcgen makes them.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyUsagePurpose, SanType,
};
use time::OffsetDateTime;
use types::Timestamp;

use crate::holder::{Holder, NamedKey};

/// The clocks of two machines may differ by this much, in seconds.
pub(crate) const SKEW: i64 = 24 * 3600;
/// The last second of the year 9999: a certificate has no later time.
pub(crate) const LAST_SECOND: i64 = 253_402_300_799;

/// The certificate with which a process proves to have a key.
pub(crate) fn of_key(
    key: &NamedKey,
    name: &str,
    from: i64,
) -> Result<CertificateParams, rcgen::Error> {
    let mut parameters = stating(key, from)?;
    parameters.distinguished_name = named(name);
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    if key.holder == Holder::Daemon {
        parameters.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    Ok(parameters)
}

/// The certificate with which the owner of a key signs narrower keys. A narrower key signs none.
pub(crate) fn of_signer(key: &NamedKey, from: i64) -> Result<CertificateParams, rcgen::Error> {
    let mut parameters = stating(key, from)?;
    parameters.distinguished_name = signer_name(key);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    Ok(parameters)
}

/// The name of the signer in the certificates that it signs.
pub(crate) fn signer_name(key: &NamedKey) -> DistinguishedName {
    named(&format!("cudele key {}", key.id))
}

/// A certificate that states a key, for the side that connects.
fn stating(key: &NamedKey, from: i64) -> Result<CertificateParams, rcgen::Error> {
    let mut parameters = CertificateParams::new(key.names())?;
    for uri in key.uris() {
        parameters.subject_alt_names.push(SanType::URI(uri.try_into()?));
    }
    parameters.not_before = time_of(from - SKEW);
    parameters.not_after = time_of(key.until);
    parameters.use_authority_key_identifier_extension = true;
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    Ok(parameters)
}

fn named(name: &str) -> DistinguishedName {
    let mut all = DistinguishedName::new();
    all.push(DnType::CommonName, name);
    all
}

pub(crate) fn seconds_of(now: Timestamp) -> i64 {
    now.0 / 1_000_000_000
}

/// A time that a certificate can have: from 1970.
pub(crate) fn time_of(seconds: i64) -> OffsetDateTime {
    let seconds = seconds.clamp(0, LAST_SECOND);
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}
