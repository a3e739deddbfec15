//! A real etcd with one member.

use crate::sync::authority::Authority;
use hotloop_cluster::settings::{Security, StoreAccess, StoreAddress, StoreTls, StoreUser};
use hotloop_cluster::store::etcd::{Bounds, Etcd};
use hotloop_cluster::store::phases::Outcome;
use hotloop_cluster::store::{Carried, Key, Proposal, layout};
use hotloop_tests::{free_address, tool};
use rcgen::DistinguishedName;
use rustls::crypto::ring::default_provider;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

/// Maximum time for any step, on however busy a machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// An etcd that runs, or is temporarily down, in a folder of its own.
pub struct Server {
    folder: tempfile::TempDir,
    ports: [u16; 2],
    child: Option<Child>,
    /// The access, if it is by TLS.
    tls: Option<StoreTls>,
}

/// The name of the user of a secure server, and of the user's role.
pub const USER: &str = "lb";

/// The user's password.
pub const PASSWORD: &str = "right";

impl Server {
    /// Starts one, if etcd is installed.
    pub fn start() -> Result<Self, String> {
        Self::new(|_| None)
    }

    /// Starts one that requires client certificates, and has a user that may access the prefix only.
    /// The certificate `named` has a Common Name.
    pub fn start_secure() -> Result<Self, String> {
        let mut server = Self::new(|folder| {
            let authority = Authority::new("etcd's");
            authority.signed(folder, "server", "127.0.0.1", |_| {});
            authority.signed(folder, "named", "node", |_| {});
            let node = authority.signed(folder, "node", "node", |params| {
                params.distinguished_name = DistinguishedName::new();
            });
            let Security::Tls { certificate, key, authority } = node else { unreachable!() };
            Some(StoreTls { authority, certificate: Some((certificate, key)), user: None })
        })?;
        server.enable_users();
        let password_file = server.folder.path().join("password");
        std::fs::write(&password_file, format!("{PASSWORD}\n")).unwrap();
        let user = Some(StoreUser { name: USER.to_owned(), password_file });
        let tls = server.tls.clone().map(|tls| StoreTls { user, ..tls });
        server.tls = tls;
        Ok(server)
    }

    fn new(tls: impl FnOnce(&Path) -> Option<StoreTls>) -> Result<Self, String> {
        tool("etcd")?;
        let folder = tempfile::tempdir().unwrap();
        let ports = [(); 2].map(|()| free_address().port());
        let tls = tls(folder.path());
        let mut server = Self { folder, ports, child: None, tls };
        server.restart();
        Ok(server)
    }

    /// Kills it, if it runs.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Sends it a signal, such as `STOP`, to silence it, and `CONT`.
    pub fn signal(&self, name: &str) {
        let kill = format!("kill -s {name} {}", self.child.as_ref().unwrap().id());
        assert!(tool("sh").unwrap().args(["-c", &kill]).status().unwrap().success());
    }

    /// Starts it with its old content, and waits until it answers.
    pub fn restart(&mut self) {
        self.kill();
        let [client, peer] = self.ports.map(|port| format!("http://127.0.0.1:{port}"));
        let client = client.replace("http:", if self.tls.is_some() { "https:" } else { "http:" });
        let mut command = tool("etcd").unwrap();
        command.arg("--data-dir").arg(self.folder.path().join("data"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.arg("--initial-cluster").arg(format!("default={peer}"));
        if self.tls.is_some() {
            for (option, name) in [
                ("--cert-file", "server.pem"),
                ("--key-file", "server.key"),
                ("--trusted-ca-file", "server.ca"),
            ] {
                command.arg(option).arg(self.folder.path().join(name));
            }
            command.arg("--client-cert-auth");
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().unwrap());
        let start = Instant::now();
        while let Err(error) = layout::read(&self.client()) {
            assert!(start.elapsed() < PATIENCE, "{error}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Starts it without any content.
    pub fn empty(&mut self) {
        self.kill();
        std::fs::remove_dir_all(self.folder.path().join("data")).unwrap();
        self.restart();
    }

    /// Number of configuration parts.
    pub fn part_count(&self) -> usize {
        let parts = Key::From("/ipip-lb/parts/", "/ipip-lb/parts0");
        self.client().page(parts, 0, 10_000).unwrap().values.len()
    }

    pub fn address(&self) -> StoreAddress {
        format!("etcd://127.0.0.1:{}", self.ports[0]).parse().unwrap()
    }

    pub fn access(&self) -> StoreAccess {
        StoreAccess { address: self.address(), tls: self.tls.clone() }
    }

    pub fn client(&self) -> Etcd {
        Etcd::new(self.access(), Bounds::default()).unwrap()
    }

    /// Calls the gateway with a client certificate.
    fn post(&self, path: &str, body: &str) {
        let text = |name: &str| std::fs::read(self.folder.path().join(name)).unwrap();
        let [authority, own] =
            ["node.ca", "node.pem"].map(|name| Certificate::from_pem(&text(name)).unwrap());
        let key = PrivateKey::from_pem(&text("node.key")).unwrap();
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(default_provider()))
            .root_certs(RootCerts::new_with_certs(&[authority]))
            .client_cert(Some(ClientCert::new_with_certs(&[own], key)));
        let agent = Agent::config_builder().tls_config(tls.build()).build().new_agent();
        let url = format!("https://127.0.0.1:{}{path}", self.ports[0]);
        let answer = agent.post(url).send(body);
        assert_eq!(answer.unwrap().status(), 200, "{path}");
    }

    /// Creates the user, with a role as in docs/cluster.md, and requires users from then on.
    fn enable_users(&self) {
        let (key, end) = ("L2lwaXAtbGIv", "L2lwaXAtbGIw"); // /ipip-lb/ and /ipip-lb0
        for (path, body) in [
            ("user/add", "{\"name\":\"root\",\"password\":\"root\"}".to_owned()),
            ("user/grant", "{\"user\":\"root\",\"role\":\"root\"}".to_owned()),
            ("user/add", format!("{{\"name\":\"{USER}\",\"password\":\"{PASSWORD}\"}}")),
            ("role/add", format!("{{\"name\":\"{USER}\"}}")),
            (
                "role/grant",
                format!(
                    "{{\"name\":\"{USER}\",\"perm\":{{\"permType\":\"READWRITE\",\
                     \"key\":\"{key}\",\"range_end\":\"{end}\"}}}}"
                ),
            ),
            ("user/grant", format!("{{\"user\":\"{USER}\",\"role\":\"{USER}\"}}")),
            ("enable", "{}".to_owned()),
        ] {
            self.post(&format!("/v3/auth/{path}"), &body);
        }
    }

    /// Has all nodes prepare a configuration and puts it in force; returns its revision.
    pub fn write(&self, text: &str) -> i64 {
        self.committed(text, (false, PATIENCE))
    }

    /// Puts a configuration in force, whatever the nodes' answers; returns its revision.
    pub fn force(&self, text: &str) -> i64 {
        self.committed(text, (true, Duration::from_millis(300)))
    }

    fn committed(&self, text: &str, how: (bool, Duration)) -> i64 {
        let replaces = layout::revision(&self.client()).unwrap();
        match self.propose(text, replaces, how).outcome {
            Outcome::Committed(revision) => revision,
            outcome => panic!("{outcome:?}"),
        }
    }

    /// Proposes a configuration in place of the revision `replaces`: with or without force, and for
    /// a limited time.
    pub fn propose(
        &self,
        text: &str,
        replaces: i64,
        (is_forced, within): (bool, Duration),
    ) -> Carried {
        let parts = layout::split(text).unwrap();
        let proposal =
            Proposal { parts: &parts, replaces, expected: Vec::new(), is_forced, within };
        proposal.carry_out(&self.client(), &mut |_| {}).unwrap()
    }

    /// Forgets the history up to now.
    pub fn compact(&self) {
        let all = self.client().page(Key::One("/ipip-lb/current"), 0, 1).unwrap();
        let url = format!("http://127.0.0.1:{}/v3/kv/compaction", self.ports[0]);
        let body = format!("{{\"revision\":\"{}\",\"physical\":true}}", all.revision);
        assert_eq!(ureq::post(&url).send(body).unwrap().status(), 200);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
