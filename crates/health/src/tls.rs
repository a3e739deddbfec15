//! TLS for probes: the certificates that they trust, and an operator's text for one that they
//! refuse.

use crate::settings::Trust;
use hotloop::packet::excerpt::excerpt;
use hotloop_files::certificates::{authorities, why};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// Reads the authorities to trust: files in the configuration must exist, and be valid.
///
/// # Errors
/// If the file cannot be read, or holds no certificate, or a broken one; with its path.
pub fn client(trust: &Trust) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?;
    let mut config = match trust {
        Trust::CaFile(path) => {
            let roots = authorities(path);
            let roots =
                roots.map_err(|why| format!("{}: {why}", excerpt(&path.to_string_lossy())))?;
            builder.with_root_certificates(roots).with_no_client_auth()
        }
        Trust::Insecure => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
            .with_no_client_auth(),
    };
    // A resumed session shows no certificate: an expired one would go unnoticed.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// The authorities to trust, read once for all probes that trust the same ones.
#[derive(Debug, Default)]
pub struct Clients(HashMap<Trust, Arc<ClientConfig>>);

impl Clients {
    /// Like [`client`], from memory if it was read before.
    ///
    /// # Errors
    /// Like [`client`].
    pub fn client(&mut self, trust: &Trust) -> Result<Arc<ClientConfig>, String> {
        if let Some(known) = self.0.get(trust) {
            return Ok(Arc::clone(known));
        }
        let read = client(trust)?;
        self.0.insert(trust.clone(), Arc::clone(&read));
        Ok(read)
    }

    /// Reads again the files that are still in use, and forgets the rest. A file that can't be read
    /// any more keeps its previous content.
    pub fn renew(&mut self, is_used: impl Fn(&Trust) -> bool) {
        self.0.retain(|trust, _| is_used(trust));
        for (trust, known) in &mut self.0 {
            if let Ok(read) = client(trust) {
                *known = read;
            }
        }
    }
}

/// The text for the TLS error within `error`, if there is one.
pub fn why_io(error: &io::Error) -> Option<String> {
    error.get_ref()?.downcast_ref::<Error>().map(why)
}

/// Trusts every server that answers: certificates and signatures of any kind.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
