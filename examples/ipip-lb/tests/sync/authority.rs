//! An authority of a test, and the certificates of nodes that it signs.

use hotloop_cluster::settings::Security;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::fs;
use std::path::Path;

/// An authority, which signs certificates into a folder.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// The node's settings with files in `folder`: a certificate for `name`, with the test's
    /// changes.
    pub fn signed(
        &self,
        folder: &Path,
        node: &str,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Security {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let written = |kind: &str, text: String| {
            let path = folder.join(format!("{node}.{kind}"));
            fs::write(&path, text).unwrap();
            path
        };
        Security::Tls {
            certificate: written("pem", certificate.pem()),
            key: written("key", key.serialize_pem()),
            authority: written("ca", self.pem.clone()),
        }
    }
}
