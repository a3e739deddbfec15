//! A stand-in for etcd's gateway by TLS, with users: it requires client certificates, knows one
//! user, and answers readings as an empty store does.

use crate::sync::authority::Authority;
use hotloop_cluster::settings::{StoreAccess, StoreTls, StoreUser};
use hotloop_cluster::store::etcd::{Bounds, Etcd};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The state of the users.
#[derive(Default)]
pub struct Users {
    /// The number of tokens that were given out; the last one is valid.
    pub tokens: usize,
    /// The reason that the last token is not valid any more.
    pub expired: Option<&'static str>,
    /// The number of readings that were answered.
    pub readings: usize,
}

/// etcd's answers for tokens that it refuses: the code, and the message.
pub const REFUSALS: [&str; 2] = [
    "401 Unauthorized\n{\"error\":\"etcdserver: invalid auth token\",\"code\":16}",
    "400 Bad Request\n{\"error\":\"etcdserver: revision of auth store is old\",\"code\":3}",
];

/// The stand-in, with its files in a folder.
pub struct StandIn {
    pub folder: tempfile::TempDir,
    pub address: SocketAddr,
    pub users: Arc<Mutex<Users>>,
    tls: Arc<Mutex<Arc<ServerConfig>>>,
}

impl StandIn {
    /// Starts it with a certificate of this authority for `name`; clients need one of `clients`.
    pub fn start(authority: &Authority, name: &str, clients: &Authority) -> Self {
        let folder = tempfile::tempdir().unwrap();
        authority.signed(folder.path(), "server", name, |_| {});
        clients.signed(folder.path(), "node", "node", |_| {});
        std::fs::write(folder.path().join("node.ca"), &authority.pem).unwrap();
        std::fs::write(folder.path().join("password"), "right\n").unwrap();
        let tls = Arc::new(Mutex::new(config(folder.path(), clients)));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let users = Arc::default();
        let (shared, config) = (Arc::clone(&users), Arc::clone(&tls));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (users, config) = (Arc::clone(&shared), Arc::clone(&config.lock().unwrap()));
                std::thread::spawn(move || serve(stream.unwrap(), config, &users));
            }
        });
        Self { folder, address, users, tls }
    }

    /// Accepts only clients of this authority from now on.
    pub fn trust(&self, clients: &Authority) {
        *self.tls.lock().unwrap() = config(self.folder.path(), clients);
    }

    /// The access with all of its files.
    pub fn access(&self) -> StoreAccess {
        let file = |name: &str| self.folder.path().join(name);
        let user = StoreUser { name: "lb".to_owned(), password_file: file("password") };
        let tls = StoreTls {
            authority: file("node.ca"),
            certificate: Some((file("node.pem"), file("node.key"))),
            user: Some(user),
        };
        StoreAccess { address: format!("etcd://{}", self.address).parse().unwrap(), tls: Some(tls) }
    }

    /// A client with this access, changed.
    pub fn client(&self, change: impl FnOnce(&mut StoreTls)) -> Result<Etcd, String> {
        let mut access = self.access();
        change(access.tls.as_mut().unwrap());
        Etcd::new(access, Bounds::default()).map_err(|error| error.to_string())
    }
}

fn config(folder: &Path, clients: &Authority) -> Arc<ServerConfig> {
    let provider = Arc::new(default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(clients.pem.as_bytes()).unwrap()).unwrap();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let chain = vec![CertificateDer::from_pem_file(folder.join("server.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(chain, key);
    Arc::new(config.unwrap())
}

/// Answers one request.
fn serve(stream: TcpStream, config: Arc<ServerConfig>, users: &Mutex<Users>) -> Option<()> {
    let connection = ServerConnection::new(config).unwrap();
    let mut reader = BufReader::new(StreamOwned::new(connection, stream));
    let (mut line, mut token, mut length) = (String::new(), String::new(), 0);
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "authorization" => value.clone_into(&mut token),
            "content-length" => length = value.parse().unwrap(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (status, body) = answer(&path, &token, &String::from_utf8(body).unwrap(), users);
    let mut stream = reader.into_inner();
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close", body.len());
    write!(stream, "{head}\r\n\r\n{body}").ok()?;
    stream.conn.send_close_notify();
    stream.flush().ok()
}

fn answer(path: &str, token: &str, body: &str, users: &Mutex<Users>) -> (String, String) {
    let mut users = users.lock().unwrap();
    let ok = |body: String| ("200 OK".to_owned(), body);
    let refusal = |text: &str| {
        let (status, body) = text.split_once('\n').unwrap();
        (status.to_owned(), body.to_owned())
    };
    if path == "/v3/auth/authenticate" {
        if !(body.contains("\"lb\"") && body.contains("\"right\"")) {
            let why = "etcdserver: authentication failed, invalid user ID or password";
            return refusal(&format!("400 Bad Request\n{{\"error\":\"{why}\",\"code\":3}}"));
        }
        users.tokens += 1;
        users.expired = None;
        return ok(format!("{{\"token\":\"token.{}\"}}", users.tokens));
    }
    if token.is_empty() {
        return refusal(
            "400 Bad Request\n{\"error\":\"etcdserver: user name is empty\",\"code\":3}",
        );
    }
    if token != format!("token.{}", users.tokens) {
        return refusal(REFUSALS[0]);
    }
    if let Some(why) = users.expired {
        return refusal(why);
    }
    users.readings += 1;
    ok("{\"header\":{\"revision\":\"7\"}}".to_owned())
}
