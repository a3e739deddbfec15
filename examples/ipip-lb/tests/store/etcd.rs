//! A real etcd with one member.

use hotloop_cluster::settings::StoreAddress;
use hotloop_cluster::store::etcd::{Bounds, Etcd};
use hotloop_cluster::store::phases::Outcome;
use hotloop_cluster::store::{Carried, Key, Proposal, layout};
use hotloop_tests::{free_address, tool};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Maximum time for any step, on however busy a machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// An etcd that runs, or is temporarily down, in a folder of its own.
pub struct Server {
    folder: tempfile::TempDir,
    ports: [u16; 2],
    child: Option<Child>,
}

impl Server {
    /// Starts one, if etcd is installed.
    pub fn start() -> Result<Self, String> {
        tool("etcd")?;
        let folder = tempfile::tempdir().unwrap();
        let ports = [(); 2].map(|()| free_address().port());
        let mut server = Self { folder, ports, child: None };
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
        let mut command = tool("etcd").unwrap();
        command.arg("--data-dir").arg(self.folder.path().join("data"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.arg("--initial-cluster").arg(format!("default={peer}"));
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

    pub fn client(&self) -> Etcd {
        Etcd::new(self.address(), Bounds::default())
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
