//! TLS between nodes: each shows a certificate for its name, signed by an authority that both know.

use crate::pem::{Identity, at, shown};
use crate::settings::{Cluster, Security};
use hotloop::packet::excerpt::excerpt;
use hotloop_files::certificates::{authorities, why};
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{
    Resumption, WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor, verify_server_name,
};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Connection, Error,
    RootCertStore, ServerConfig, ServerConnection,
};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A node's certificate, and the authorities that it trusts.
#[derive(Clone, Debug)]
pub struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    server_verifier: Arc<WebPkiServerVerifier>,
    client_verifier: Arc<dyn ClientCertVerifier>,
    files: Arc<Files>,
}

/// The contents of the files.
#[derive(Debug, Eq, PartialEq)]
struct Files {
    own: Identity,
    authorities: Vec<TrustAnchor<'static>>,
}

impl Tls {
    /// Reads the files that a configuration names; returns `None` for a trusted network.
    ///
    /// # Errors
    /// If a file can't be read, or has the wrong content; with its path.
    pub fn load(security: &Security) -> Result<Option<Self>, String> {
        let Security::Tls { certificate, key, authority } = security else { return Ok(None) };
        let roots = authorities(authority).map_err(|why| at(authority, &why))?;
        let roots = Arc::new(roots);
        let provider = Arc::new(ring::default_provider());
        let own = Identity::read(certificate, key, &provider)?;
        let files = Files { own, authorities: roots.roots.clone() };
        let of_roots = |error| format!("{}: {error}", shown(authority));
        let servers =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let servers = servers.build().map_err(of_roots)?;
        let clients = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
        let clients = clients.build().map_err(of_roots)?;
        let of_own = |error: Error| at(certificate, &why(&error));
        let client = files.client(Arc::clone(&provider), Arc::clone(&servers)).map_err(of_own)?;
        let server = files.server(provider, Arc::clone(&clients)).map_err(of_own)?;
        Ok(Some(Self {
            client: Arc::new(client),
            server: Arc::new(server),
            server_verifier: servers,
            client_verifier: clients,
            files: Arc::new(files),
        }))
    }

    /// Reads the files of `cluster` again. `self` has their previous contents. Returns `None` if
    /// they are unchanged.
    ///
    /// # Errors
    /// Like [`load`](Self::load); and if no peer with the same authorities would accept the
    /// certificate, with the reason.
    pub fn renewed(&self, cluster: &Cluster) -> Result<Option<Self>, String> {
        let read = Self::load(&cluster.security)?.filter(|read| read.files != self.files);
        if let (Some(tls), Security::Tls { certificate, .. }) = (&read, &cluster.security) {
            tls.check_own(&cluster.node).map_err(|why| {
                format!("{}: {why}; write a certificate that peers accept", shown(certificate))
            })?;
        }
        Ok(read)
    }

    /// Checks the node's own certificate as its peers do, on either side of a connection.
    fn check_own(&self, node: &str) -> Result<(), String> {
        let (own, others) = self.files.own.chain.split_first().ok_or("has no certificate")?;
        let (name, now) = (server_name(node)?, UnixTime::now());
        let checked = self
            .server_verifier
            .verify_server_cert(own, others, &name, &[], now)
            .and_then(|_| self.client_verifier.verify_client_cert(own, others, now));
        checked.map(drop).map_err(|error| why_not(&error))
    }

    /// When the first of the node's own certificates expires, in seconds since the beginning of
    /// 1970.
    #[must_use]
    pub fn not_after(&self) -> Option<u64> {
        self.files.own.chain.iter().filter_map(not_after).min()
    }

    /// The client's side of a connection to the peer of this name.
    ///
    /// # Errors
    /// If the name can't be in a certificate.
    pub fn connect(&self, peer: &str) -> Result<Connection, String> {
        let name = server_name(peer)?;
        let connection = ClientConnection::new(Arc::clone(&self.client), name);
        connection.map(Connection::from).map_err(|error| why_not(&error))
    }

    /// The server's side of a connection.
    ///
    /// # Errors
    /// If the settings contradict each other, which settings from [`load`](Self::load) never do.
    pub fn accept(&self) -> Result<Connection, String> {
        let connection = ServerConnection::new(Arc::clone(&self.server));
        connection.map(Connection::from).map_err(|error| why_not(&error))
    }
}

impl Files {
    fn client(
        &self,
        provider: Arc<CryptoProvider>,
        verifier: Arc<WebPkiServerVerifier>,
    ) -> Result<ClientConfig, Error> {
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_webpki_verifier(verifier)
            .with_client_auth_cert(self.own.chain.clone(), self.own.key.clone_key())?;
        // A resumed session shows no certificate: an expired one would go unnoticed.
        client.resumption = Resumption::disabled();
        Ok(client)
    }

    fn server(
        &self,
        provider: Arc<CryptoProvider>,
        verifier: Arc<dyn ClientCertVerifier>,
    ) -> Result<ServerConfig, Error> {
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.own.chain.clone(), self.own.key.clone_key())?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(server)
    }
}

/// Checks that the other side's certificate is for this peer. Nothing has compared a client's
/// certificate with a name before.
///
/// # Errors
/// The names in the certificate.
pub fn check_name(connection: &Connection, peer: &str) -> Result<(), String> {
    let chain = connection.peer_certificates().unwrap_or_default();
    let first = chain.first().ok_or("shows no certificate")?;
    let certificate = ParsedCertificate::try_from(first).map_err(|error| why_not(&error))?;
    verify_server_name(&certificate, &server_name(peer)?).map_err(|error| why_not(&error))
}

/// When a certificate expires. For an expired certificate, the verifier's error has that time, so
/// the verifier is asked for a time after all expiry.
fn not_after(certificate: &CertificateDer<'_>) -> Option<u64> {
    let certificate = ParsedCertificate::try_from(certificate).ok()?;
    let (none, end) = (RootCertStore::empty(), UnixTime::since_unix_epoch(Duration::MAX));
    match verify_server_cert_signed_by_trust_anchor(&certificate, &none, &[], end, &[]) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            Some(not_after.as_secs())
        }
        _ => None,
    }
}

fn server_name(peer: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(peer.to_owned()).map_err(|_| format!("{} is no DNS name", excerpt(peer)))
}

/// An operator's text for an error of a connection between nodes.
pub fn why_io(error: &io::Error) -> String {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    tls.map_or_else(|| error.to_string(), why_not)
}

fn why_not(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => "certificate: signed by none of those that cluster.authority holds".into(),
        Error::NoCertificatesPresented => "shows no certificate".into(),
        Error::InvalidMessage(_) => "doesn't speak TLS; is trusted_network = true there?".into(),
        Error::AlertReceived(alert) => {
            let what = match alert {
                AlertDescription::UnknownCA => "its authority is another".into(),
                AlertDescription::CertificateExpired => {
                    "it has expired, by the peer's clock".into()
                }
                alert => format!("{alert:?}"),
            };
            format!("the peer refuses this node's certificate: {what}")
        }
        error => why(error),
    }
}
