//! An authority of a test, and the certificates that it signs.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, SupportedProtocolVersion};
use std::sync::Arc;

pub use rcgen::date_time_ymd;

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
    der: CertificateDer<'static>,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let (pem, der) = (certificate.pem(), certificate.der().clone());
        Self { issuer: Issuer::new(params, key), pem, der }
    }

    /// A server with a certificate for `name`, with the test's changes.
    pub fn server(
        &self,
        name: &str,
        versions: &[&'static SupportedProtocolVersion],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        server(vec![certificate.der().clone()], &key, versions)
    }

    /// A server that shows the authority's own certificate `length` times after its own.
    pub fn server_with_chain(&self, name: &str, length: usize) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let mut chain = vec![certificate.der().clone()];
        chain.resize(length, self.der.clone());
        server(chain, &key, rustls::ALL_VERSIONS)
    }

    /// A server that shows the authority's own certificate.
    pub fn itself(&self) -> Arc<ServerConfig> {
        server(vec![self.der.clone()], self.issuer.key(), rustls::ALL_VERSIONS)
    }
}

fn server(
    chain: Vec<CertificateDer<'static>>,
    key: &KeyPair,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(default_provider().into())
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    Arc::new(config)
}
