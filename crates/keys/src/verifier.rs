//! Verifies the key of a peer: of a client, for a daemon, and of a daemon, for whoever connects.
//!
//! The rules of certificates (signature, authority, time, use) are those of webpki; this module
//! adds that the certificate states a holder, and that its key was not revoked. A key that its
//! owner narrowed comes with one certificate between it and the authority's, and has no more than
//! the key in that one.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use crate::holder::NamedKey;
use crate::revoked::Revoked;

/// See the module documentation. `R` are the rules for one side.
#[derive(Debug)]
pub(crate) struct Verifier<R: ?Sized> {
    pub(crate) revoked: Arc<Revoked>,
    pub(crate) rules: Arc<R>,
}

impl<R: ?Sized> Verifier<R> {
    /// Refuses a certificate that states no key, or a revoked one.
    fn check(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
    ) -> Result<(), Error> {
        match stated_by(certificate, between) {
            None => Err(CertificateError::ApplicationVerificationFailure.into()),
            Some(key) if key.is_revoked(&self.revoked) => Err(CertificateError::Revoked.into()),
            Some(_) => Ok(()),
        }
    }
}

/// The key that a certificate states, without its signer; `None` if it states no key.
pub(crate) fn stated(certificate: &CertificateDer<'_>) -> Option<NamedKey> {
    let parsed = webpki::EndEntityCert::try_from(certificate).ok()?;
    NamedKey::stated(parsed.valid_dns_names(), parsed.valid_uri_names())
}

/// The key that a certificate states, with those between it and the authority's. If there is one
/// between, it may be the one that signed: then the key has no more than the key in that one. Of
/// several between, a sender could choose.
pub(crate) fn stated_by(
    certificate: &CertificateDer<'_>,
    between: &[CertificateDer<'_>],
) -> Option<NamedKey> {
    let key = stated(certificate)?;
    match between {
        [] => Some(key),
        [wider] => {
            let wider = stated(wider)?;
            // The owner of a key that can be narrowed sends both of its certificates.
            if key == wider { Some(key) } else { key.narrowed(&wider) }
        }
        _ => None,
    }
}

impl ClientCertVerifier for Verifier<dyn ClientCertVerifier> {
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
        self.check(end_entity, intermediates)?;
        Ok(verified)
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

impl ServerCertVerifier for Verifier<dyn ServerCertVerifier> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let rules = &self.rules;
        let verified =
            rules.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)?;
        self.check(end_entity, intermediates)?;
        Ok(verified)
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
