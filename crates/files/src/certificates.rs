//! Certificates of authorities, and the reasons that TLS refuses a certificate.

use crate::file::read_certificates;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CertificateError, Error, RootCertStore};
use std::net::IpAddr;
use std::path::Path;

/// Reads the certificates of authorities from a PEM file.
///
/// # Errors
/// If the file can't be read, or holds no certificate, or a broken one. The message doesn't name the file.
pub fn authorities(path: &Path) -> Result<RootCertStore, String> {
    let text = read_certificates(path).map_err(|error| error.to_string())?;
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(pem_words)?;
        store.add(certificate).map_err(|error| why(&error))?;
    }
    if store.is_empty() {
        return Err("has no certificate; write an authority's in PEM, which begins \
                    -----BEGIN CERTIFICATE-----"
            .into());
    }
    Ok(store)
}

fn pem_words(error: rustls::pki_types::pem::Error) -> String {
    match error {
        rustls::pki_types::pem::Error::Io(error) => error.to_string(),
        error => format!("not PEM: {error}"),
    }
}

/// Describes a TLS error for an operator.
#[must_use]
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

/// Strips a name of the type that the verifier writes around it: `DnsName("lb.example")`, `IpAddress(0::1)`.
fn bare(name: &str) -> String {
    let inner = name.split_once('(').map_or(name, |(_, inner)| inner.trim_matches(['"', ')']));
    inner.parse::<IpAddr>().map_or_else(|_| inner.to_owned(), |address| address.to_string())
}
