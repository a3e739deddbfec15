//! A node's own certificate with its key, from PEM files.

use hotloop::packet::excerpt::excerpt;
use hotloop_files::certificates::why;
use hotloop_files::file::read as read_file;
use rustls::Error;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::fmt::Display;
use std::path::Path;

/// Maximum size of a file of certificates or keys, in bytes: a larger one is a mistake in the name.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A certificate and its private key.
#[derive(Debug, Eq, PartialEq)]
pub struct Identity {
    /// The chain of certificates, the node's first.
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Reads both files, and checks that the key is the certificate's.
    ///
    /// # Errors
    /// If a file can't be read, or has the wrong content; with its path.
    pub fn read(certificate: &Path, key: &Path, provider: &CryptoProvider) -> Result<Self, String> {
        let identity = Self { chain: chain(certificate)?, key: private_key(key)? };
        let (chain, own_key) = (identity.chain.clone(), identity.key.clone_key());
        match CertifiedKey::from_der(chain, own_key, provider) {
            Ok(_) => Ok(identity),
            Err(Error::InconsistentKeys(_)) => Err(format!(
                "{}: not for the key in {}; write a certificate and its own key",
                shown(certificate),
                shown(key)
            )),
            Err(error) => Err(format!("{}: {}", shown(certificate), why(&error))),
        }
    }
}

/// Reads all certificates of a file.
///
/// # Errors
/// If the file can't be read, or has no certificate; with its path.
pub fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = text(path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match chain {
        Ok(chain) if chain.is_empty() => {
            Err(at(path, &"has no certificate; write this node's, in PEM"))
        }
        Ok(chain) => Ok(chain),
        Err(error) => Err(at(path, &format!("not PEM: {error}"))),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(&text(path)?)
        .map_err(|_| at(path, &"has no private key; write that of this node's certificate, in PEM"))
}

/// Reads a file of up to 1 MiB.
///
/// # Errors
/// If the file can't be read; with its path.
pub fn text(path: &Path) -> Result<Vec<u8>, String> {
    read_file(path, FILE_BYTES_MAX)
        .map_err(|error| at(path, &format!("{error}; name a readable file")))
}

/// An error of a file.
pub fn at(path: &Path, problem: &dyn Display) -> String {
    format!("{}: {problem}", shown(path))
}

/// The path, for a message.
pub fn shown(path: &Path) -> String {
    excerpt(&path.to_string_lossy())
}
