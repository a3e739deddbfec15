//! The way to an etcd: in clear or by TLS, with or without a client certificate, and as one of its
//! users or without one.

use super::etcd::Bounds;
use crate::pem::{self, Identity, at};
use crate::settings::{StoreAccess, StoreTls, StoreUser};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hotloop_files::certificates::{authorities, why};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError, Error};
use std::cell::RefCell;
use std::fmt;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

/// A user's token, which a watch of the same client may find expired.
#[derive(Clone, Default)]
pub(super) struct Token(Arc<Mutex<Option<String>>>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(secret)")
    }
}

impl Token {
    pub fn get(&self) -> Option<String> {
        self.lock().clone()
    }

    pub fn set(&self, token: Option<String>) {
        *self.lock() = token;
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The contents of the files for TLS.
#[derive(Debug, Eq, PartialEq)]
struct Files {
    authorities: Vec<CertificateDer<'static>>,
    own: Option<Identity>,
}

/// Access to an etcd with the files that were read last.
#[derive(Debug)]
pub(super) struct Access {
    pub settings: StoreAccess,
    pub token: Token,
    bounds: Bounds,
    files: RefCell<Option<Files>>,
    agent: RefCell<Agent>,
}

impl Access {
    /// Reads the files for TLS.
    ///
    /// # Errors
    /// If a file can't be read, or has the wrong content; with its path.
    pub fn new(settings: StoreAccess, bounds: Bounds) -> Result<Self, String> {
        let files = settings.tls.as_ref().map(Files::read).transpose()?;
        let agent = RefCell::new(agent(files.as_ref(), bounds));
        Ok(Self { settings, token: Token::default(), bounds, files: files.into(), agent })
    }

    /// Reads the files for TLS again. Returns whether they are different from those in use, which
    /// they replace.
    ///
    /// # Errors
    /// Like [`new`](Self::new).
    pub fn renew(&self) -> Result<bool, String> {
        let files = self.settings.tls.as_ref().map(Files::read).transpose()?;
        let is_new = *self.files.borrow() != files;
        if is_new {
            self.agent.replace(agent(files.as_ref(), self.bounds));
            self.files.replace(files);
        }
        Ok(is_new)
    }

    /// The client of HTTP.
    pub fn agent(&self) -> Agent {
        self.agent.borrow().clone()
    }

    /// The beginning of the members' URLs.
    pub const fn scheme(&self) -> &'static str {
        if self.settings.tls.is_some() { "https" } else { "http" }
    }

    /// The user, if there is one.
    pub fn user(&self) -> Option<&StoreUser> {
        self.settings.tls.as_ref()?.user.as_ref()
    }

    /// An operator's text for an error of TLS, and the remedy. `None` if the error is another one.
    pub fn tls_error(&self, error: &ureq::Error) -> Option<(String, &'static str)> {
        let has_certificate = self.settings.tls.as_ref()?.certificate.is_some();
        let tls = match error {
            ureq::Error::Rustls(error) => Some(error),
            ureq::Error::Io(error) => error.get_ref().and_then(|error| error.downcast_ref()),
            _ => None,
        };
        let closed = || is_closed(error).then(|| closed_words(has_certificate));
        tls.map(|error| tls_words(error, has_certificate)).or_else(closed)
    }

    /// The remedy if etcd's gateway, as a client of etcd itself, may have been refused.
    pub fn gateway_remedy(&self, why: &str) -> Option<&'static str> {
        let is_refused = self.settings.tls.is_some() && why.contains("connection closed");
        is_refused.then_some(
            "start etcd; if it runs, give it a certificate for clients as well as servers, which its \
             --trusted-ca-file has signed",
        )
    }

    /// Whether the error may be that of a member that speaks TLS to a client in clear.
    pub fn may_lack_tls(&self, error: &ureq::Error) -> bool {
        let is_no_http = matches!(error, ureq::Error::Protocol(_)) || is_closed(error);
        self.settings.tls.is_none() && is_no_http
    }
}

/// Whether the member has closed the connection in place of an answer.
fn is_closed(error: &ureq::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let closed = [BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof];
    matches!(error, ureq::Error::Io(error) if closed.contains(&error.kind()))
}

/// In TLS 1.3, a server refuses a certificate after the handshake, and may close the connection before
/// the client has read the reason.
fn closed_words(has_certificate: bool) -> (String, &'static str) {
    let remedy = if has_certificate {
        "start etcd; if it runs, write a store_certificate for clients that its --trusted-ca-file \
         has signed"
    } else {
        "start etcd; if it runs and requires client certificates, write store_certificate and \
         store_key"
    };
    ("closed the connection".into(), remedy)
}

fn tls_words(error: &Error, has_certificate: bool) -> (String, &'static str) {
    match error {
        Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => (
            "certificate: signed by none of those that store_authority holds".into(),
            "write the authority of etcd's certificate into the file of store_authority",
        ),
        Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. }) => (
            why(error),
            "name the members in the store's address as their certificates do, or sign others",
        ),
        Error::InvalidCertificate(_) => (why(error), "give etcd another certificate"),
        Error::InvalidMessage(_) => (
            "doesn't speak TLS".into(),
            "start etcd with --cert-file and --key-file, or leave out store_authority",
        ),
        Error::AlertReceived(alert) if !has_certificate => (
            format!("requires a client certificate ({alert:?})"),
            "write store_certificate and store_key",
        ),
        Error::AlertReceived(AlertDescription::CertificateExpired) => (
            "refuses this node's certificate: it has expired, by etcd's clock".into(),
            "write a new one into the file of store_certificate",
        ),
        Error::AlertReceived(alert) => (
            format!("refuses this node's certificate ({alert:?})"),
            "write a store_certificate for clients that etcd's --trusted-ca-file has signed",
        ),
        error => (why(error), "compare the settings for TLS of etcd and of the store"),
    }
}

/// The password of a user: the first line of its file.
///
/// # Errors
/// If the file can't be read, or has no password; with its path.
pub(super) fn password(user: &StoreUser) -> Result<String, String> {
    let path = &user.password_file;
    let text = String::from_utf8(pem::text(path)?).map_err(|_| at(path, &"not UTF-8"))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(at(path, &"has no password on its first line; write that of store_user")),
    }
}

impl Files {
    fn read(tls: &StoreTls) -> Result<Self, String> {
        // The trust anchors of rustls lack the certificates, which ureq requires.
        authorities(&tls.authority).map_err(|why| at(&tls.authority, &why))?;
        let own = tls.certificate.as_ref();
        let own = own
            .map(|(certificate, key)| Identity::read(certificate, key, &ring::default_provider()));
        Ok(Self { authorities: pem::chain(&tls.authority)?, own: own.transpose()? })
    }

    fn to_tls(&self) -> TlsConfig {
        let certificates = |chain: &[CertificateDer<'static>]| -> Vec<_> {
            chain.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect()
        };
        let own = self.own.as_ref().and_then(|own| {
            Some(ClientCert::new_with_certs(&certificates(&own.chain), private_key(&own.key)?))
        });
        TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
            .root_certs(RootCerts::from(certificates(&self.authorities)))
            .client_cert(own)
            .build()
    }
}

/// The key in the form that ureq takes, which names the kind of a key in PEM only.
fn private_key(key: &PrivateKeyDer<'static>) -> Option<PrivateKey<'static>> {
    let label = match key {
        PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
        PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
        _ => "PRIVATE KEY",
    };
    let text = STANDARD.encode(key.secret_der());
    let text = format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n");
    PrivateKey::from_pem(text.as_bytes()).ok()
}

fn agent(files: Option<&Files>, bounds: Bounds) -> Agent {
    let config = Agent::config_builder()
        // The environment's proxies are not for this connection.
        .proxy(None)
        .max_redirects(0)
        .http_status_as_error(false)
        .timeout_connect(Some(bounds.connect))
        .user_agent("ipip-lb");
    let config = match files {
        Some(files) => config.tls_config(files.to_tls()),
        None => config,
    };
    config.build().into()
}
