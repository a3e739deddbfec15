//! What stands where in the live demo: addresses, and the programs that run at them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;

use super::super::cpus;
use super::network::{Family, Link, Network};
use super::running::Running;

/// How many backends there are.
pub const BACKEND_COUNT: usize = 3;

/// The services' addresses, IPv4 first.
pub const VIPS: [&str; 2] = ["203.0.113.10", "2001:db8:f::10"];

/// The balancer's own tunnel addresses.
pub const TUNNEL_ENDS: [&str; 2] = ["192.0.2.1", "2001:db8:e::1"];

/// Where the client is.
pub const CLIENT: Link =
    Link { host: "client", interface: "eth0", v4: "198.51.100", v6: "2001:db8:c::", number: 1 };

/// The balancer's link towards clients.
pub const FRONT: Link =
    Link { host: "balancer", interface: "front", v4: "10.0.1", v6: "2001:db8:1::", number: 2 };

/// The balancer's link towards backends.
pub const BACK: Link =
    Link { host: "balancer", interface: "back", v4: "10.0.2", v6: "2001:db8:2::", number: 3 };

/// Where the backends are.
pub const BACKENDS: [Backend; BACKEND_COUNT] = [
    Backend {
        link: backend("backend-1", "10.1.1", "2001:db8:b1::", 11),
        is_v6: false,
        replies_through: None,
    },
    Backend {
        link: backend("backend-2", "10.1.2", "2001:db8:b2::", 12),
        is_v6: true,
        replies_through: None,
    },
    Backend {
        link: backend("backend-3", "10.1.3", "2001:db8:b3::", 13),
        is_v6: false,
        replies_through: Some(TUNNEL_ENDS[0]),
    },
];

/// How many bytes a page has: several packets' worth.
pub const PAGE_BYTES: usize = 16 * 1024;

/// How many bytes the page has that is read slowly.
pub const LONG_PAGE_BYTES: usize = 2 << 20;

/// The TAP interface's name at each backend.
const TAP: &str = "tap0";

/// The routing table for what the services answer.
const ANSWER_TABLE: &str = "100";

const fn backend(host: &'static str, v4: &'static str, v6: &'static str, number: u8) -> Link {
    Link { host, interface: "eth0", v4, v6, number }
}

/// A backend: nginx behind ipip-endpoint.
pub struct Backend {
    /// Its link.
    pub link: Link,
    /// Whether the balancer's tunnel to it is IPv6.
    pub is_v6: bool,
    /// The balancer's address that its answers go to in a tunnel; clients get them directly where
    /// there is none.
    pub replies_through: Option<&'static str>,
}

impl Backend {
    /// Its end of the tunnel.
    pub fn address(&self) -> String {
        let [v4, v6] = self.link.addresses();
        if self.is_v6 { v6 } else { v4 }
    }
}

/// Folders and programs of the demo.
pub struct Site {
    /// For everything that is made.
    folder: tempfile::TempDir,
    balancer: PathBuf,
    endpoint: PathBuf,
}

impl Site {
    /// Makes the folder, and each server's pages.
    pub fn make(workspace: &Workspace) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()
            .map_err(|error| Failure::failed(format!("can't make a temporary folder: {error}")))?;
        let (balancer, endpoint) =
            (workspace.release_program("ipip-lb"), workspace.release_program("ipip-endpoint"));
        let site = Self { folder, balancer, endpoint };
        for backend in &BACKENDS {
            let name = backend.link.host;
            let pages = site.pages(name);
            fs::create_dir_all(&pages).map_err(Failure::file("make", &pages))?;
            site.write(&pages.join("index.html"), &page(name, PAGE_BYTES))?;
            site.write(&pages.join("long"), &page(name, LONG_PAGE_BYTES))?;
            let configuration = nginx(&site.folder.path().join(name));
            site.write(&site.path(&format!("{name}/nginx.conf")), &configuration)?;
        }
        Ok(site)
    }

    /// A file's path.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where a backend's pages are, and what was uploaded to it.
    pub fn pages(&self, host: &str) -> PathBuf {
        self.path(host).join("pages")
    }

    /// Writes a file.
    pub fn write(&self, path: &Path, text: &str) -> Result<(), Failure> {
        fs::write(path, text).map_err(Failure::file("write", path))
    }

    /// Starts a backend's server.
    pub fn start_server(&self, network: &Network, backend: &Backend) -> Result<Running, Failure> {
        let (host, folder) = (backend.link.host, self.path(backend.link.host));
        let mut command = network.program(host, "nginx");
        command.arg("-p").arg(&folder).arg("-c").arg(folder.join("nginx.conf"));
        Running::start(&format!("nginx-{host}"), self.folder.path(), &mut command)
    }

    /// Starts a backend's end of the tunnel, and routes what the services answer into it.
    pub fn start_endpoint(&self, network: &Network, backend: &Backend) -> Result<Running, Failure> {
        let Link { host, interface, .. } = backend.link;
        let mut command = network.program(host, &self.endpoint);
        command.args(["--port", &format!("net_af_packet0,iface={interface},qdisc_bypass=1")]);
        command.args(["--tap", TAP, "--report", "json", "--control"]);
        command.arg(self.path(&format!("{host}.sock")));
        for address in backend.link.addresses() {
            command.args(["--address", &address]);
        }
        for address in TUNNEL_ENDS {
            command.args(["--balancer", address]);
        }
        if let Some(address) = backend.replies_through {
            command.args(["--return-path", address]);
        }
        let halves = cpus::halves();
        let mut running = cpus::on(halves.as_ref().map(|[_, upper]| upper), || {
            Running::start(&format!("ipip-endpoint-{host}"), self.folder.path(), &mut command)
        })?;
        let is_up = || {
            network
                .ask(host, &["link", "show", "dev", TAP, "up"])
                .is_some_and(|link| !link.is_empty())
        };
        running.wait_until(is_up)?;
        network.configure(host, &format!("link set {TAP} arp off\n"))?;
        let prefixes = [format!("{}/32", VIPS[0]), format!("{}/128", VIPS[1])];
        for (family, vip) in [Family::V4, Family::V6].into_iter().zip(prefixes) {
            let lines = format!(
                "address add {vip} dev lo\n\
                 route add default dev {TAP} table {ANSWER_TABLE}\n\
                 rule add from {vip} lookup {ANSWER_TABLE}\n"
            );
            network.configure_family(host, family, &lines)?;
        }
        Ok(running)
    }

    /// Starts the balancer with a configuration, and waits until it answers at its control socket.
    pub fn start_balancer(&self, network: &Network) -> Result<Running, Failure> {
        let mut command = network.program(FRONT.host, &self.balancer);
        command.args(["run", "--report", "json", "--config"]).arg(self.configuration());
        command.arg("--control").arg(self.control());
        let halves = cpus::halves();
        let mut running = cpus::on(halves.as_ref().map(|[lower, _]| lower), || {
            Running::start("ipip-lb", self.folder.path(), &mut command)
        })?;
        running.wait_until(|| process::quiet_output(self.ctl().arg("status")).is_some())?;
        Ok(running)
    }

    /// `ipip-lb ctl`, for the balancer that runs.
    pub fn ctl(&self) -> Command {
        let mut command = Command::new(&self.balancer);
        command.arg("ctl").arg("--control").arg(self.control());
        command
    }

    fn control(&self) -> PathBuf {
        self.path("ipip-lb.sock")
    }

    fn configuration(&self) -> PathBuf {
        self.path("lb.toml")
    }

    /// Writes the balancer's configuration with these weights.
    pub fn configure(&self, weights: [u32; BACKEND_COUNT]) -> Result<(), Failure> {
        self.write(&self.configuration(), &configuration(weights))
    }
}

/// A page that says whose it is.
fn page(name: &str, bytes: usize) -> String {
    let mut page = format!("{name}\n");
    page.extend(std::iter::repeat_n('.', bytes - page.len()));
    page
}

/// One process in the foreground; everything that it writes is under `folder`.
fn nginx(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "daemon off; master_process off; pid {folder}/nginx.pid; error_log stderr;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 80; listen [::]:80;
        root {folder}/pages;
        client_max_body_size 8m;
        location = /healthz {{ return 200; }}
        location /upload/ {{ dav_methods PUT; create_full_put_path on; }}
    }}
}}
"
    )
}

/// The balancer's configuration.
fn configuration(weights: [u32; BACKEND_COUNT]) -> String {
    let [source_v4, source_v6] = TUNNEL_ENDS;
    let (front, back) = (FRONT.interface, BACK.interface);
    let (front_mac, back_mac) = (FRONT.router_mac(), BACK.router_mac());
    let mut text = format!(
        r#"[engine]
deployment = "run-to-completion"
workers = 1

[balancer]
source_v4 = "{source_v4}"
source_v6 = "{source_v6}"
mtu = 1500
decapsulate = ["{source_v4}", "{source_v6}"]

[[port]]
name = "front"
device = "net_af_packet0,iface={front},qdisc_bypass=1"
next_hop_mac = "{front_mac}"
side = "client"

[[port]]
name = "back"
device = "net_af_packet1,iface={back},qdisc_bypass=1"
next_hop_mac = "{back_mac}"
side = "backend"
"#
    );
    for (name, vip) in ["web-v4", "web-v6"].into_iter().zip(VIPS) {
        text += &format!(
            r#"
[[service]]
name = "{name}"
address = "{vip}"
protocol = "tcp"
ports = "80"
  [service.health]
  kind = "http"
  path = "/healthz"
  interval_ms = 200
  timeout_ms = 150
  rise = 2
  fall = 2
"#
        );
        for (backend, weight) in BACKENDS.iter().zip(weights) {
            let address = backend.address();
            text +=
                &format!("  [[service.backend]]\n  address = \"{address}\"\n  weight = {weight}\n");
        }
    }
    text
}
