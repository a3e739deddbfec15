//! TLS for probes: which certificates they trust, and what to tell an operator about one they
//! refuse.

use crate::config::{Trust, read_certificates};
use hotloop_balancer::excerpt::excerpt;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

/// Reads which authorities to trust: what a configuration names must be there, and be right.
///
/// # Errors
/// The file cannot be read, or holds no certificate, or a broken one; with its path.
pub fn client(trust: &Trust) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?;
    let mut config = match trust {
        Trust::CaFile(path) => {
            builder.with_root_certificates(authorities(path)?).with_no_client_auth()
        }
        Trust::Insecure => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
            .with_no_client_auth(),
    };
    // A session that is taken up again shows no certificate: one that expired would go unnoticed.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Reads the certificates of authorities from a PEM file.
///
/// # Errors
/// The file can't be read, or holds no certificate, or a broken one; with its path.
pub fn authorities(path: &Path) -> Result<RootCertStore, String> {
    let at = |what: String| format!("{}: {what}", excerpt(&path.to_string_lossy()));
    let text = read_certificates(path).map_err(|error| at(error.to_string()))?;
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| at(pem_words(error)))?;
        store.add(certificate).map_err(|error| at(why(&error)))?;
    }
    if store.is_empty() {
        return Err(at("has no certificate; write an authority's in PEM, which begins \
                       -----BEGIN CERTIFICATE-----"
            .into()));
    }
    Ok(store)
}

fn pem_words(error: rustls::pki_types::pem::Error) -> String {
    match error {
        rustls::pki_types::pem::Error::Io(error) => error.to_string(),
        error => format!("not PEM: {error}"),
    }
}

/// The authorities to trust, read once for all probes that trust the same ones.
#[derive(Debug, Default)]
pub struct Clients(HashMap<Trust, Arc<ClientConfig>>);

impl Clients {
    /// As [`client`], from memory if it was read before.
    ///
    /// # Errors
    /// As [`client`].
    pub fn client(&mut self, trust: &Trust) -> Result<Arc<ClientConfig>, String> {
        if let Some(known) = self.0.get(trust) {
            return Ok(Arc::clone(known));
        }
        let read = client(trust)?;
        self.0.insert(trust.clone(), Arc::clone(&read));
        Ok(read)
    }

    /// Reads again what is still in use, and forgets the rest. What can't be read any more stays as
    /// it was.
    pub fn renew(&mut self, is_used: impl Fn(&Trust) -> bool) {
        self.0.retain(|trust, _| is_used(trust));
        for (trust, known) in &mut self.0 {
            if let Ok(read) = client(trust) {
                *known = read;
            }
        }
    }
}

/// What the TLS error within `error` says, if there is one.
pub fn why_io(error: &io::Error) -> Option<String> {
    error.get_ref()?.downcast_ref::<Error>().map(why)
}

/// What a TLS error says to an operator.
pub fn why(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => format!("certificate: {}", certificate_words(error)),
        Error::InvalidMessage(_) => "the server doesn't speak TLS".into(),
        error => format!("TLS: {error}"),
    }
}

fn certificate_words(error: &CertificateError) -> String {
    match error {
        // The second is what a stranger of the same name gets.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "signed by none of those that ca_file holds".into()
        }
        CertificateError::ExpiredContext { time, not_after } => {
            let days = time.as_secs().saturating_sub(not_after.as_secs()) / 86_400;
            match days {
                0 => "expired less than a day ago".into(),
                1 => "expired a day ago".into(),
                days => format!("expired {days} days ago"),
            }
        }
        CertificateError::NotValidYetContext { .. } => "not valid yet; is the clock right?".into(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let names: Vec<String> = presented.iter().map(|name| bare(name)).collect();
            let names = if names.is_empty() { "no name".into() } else { names.join(", ") };
            format!("for {names}, not for {}", expected.to_str())
        }
        CertificateError::Other(error) if error.to_string() == "CaUsedAsEndEntity" => {
            "an authority's own; sign another with it for the server".into()
        }
        error => error.to_string(),
    }
}

/// What is in a name as the verifier writes it: `DnsName("lb.example")`, `IpAddress(0::1)`.
fn bare(name: &str) -> String {
    let inner = name.split_once('(').map_or(name, |(_, inner)| inner.trim_matches(['"', ')']));
    inner.parse::<IpAddr>().map_or_else(|_| inner.to_owned(), |address| address.to_string())
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
