//! Verifies the key of a peer that connects to a daemon.
//!
//! The rules of certificates (signature, authority, time, use) are those of webpki; this module
//! adds that the certificate states a holder, and that its key was not revoked.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use crate::holder::NamedKey;
use crate::revoked::Revoked;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Verifier {
    pub(crate) rules: Arc<dyn ClientCertVerifier>,
    pub(crate) revoked: Arc<Revoked>,
}

/// The key that a certificate states; `None` if it states none.
pub(crate) fn stated(certificate: &CertificateDer<'_>) -> Option<NamedKey> {
    let parsed = webpki::EndEntityCert::try_from(certificate).ok()?;
    NamedKey::from_names(parsed.valid_dns_names())
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.rules.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.rules.verify_client_cert(end_entity, intermediates, now)?;
        let Some(key) = stated(end_entity) else {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        };
        if self.revoked.has(key.id) { Err(CertificateError::Revoked.into()) } else { Ok(verified) }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.rules.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.rules.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.rules.supported_verify_schemes()
    }
}
