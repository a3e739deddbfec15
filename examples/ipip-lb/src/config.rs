//! The configuration: what an operator may write, and the types that hold nothing else.
//!
//! [`Config::load`] reads a TOML file. Everything that is wrong with one is a [`ConfigError`], which
//! names the file, the line and the key, and says what to write instead.
//!
//! ```
//! use ipip_lb::config::Config;
//!
//! let text = r#"
//!     [balancer]
//!     source_v4 = "192.0.2.1"
//!     source_v6 = "2001:db8::1"
//!     mtu = 1500
//!     decapsulate = ["192.0.2.1"]
//!
//!     [[port]]
//!     name = "uplink"
//!     device = "net_null0"
//!     next_hop_mac = "02:00:00:00:00:01"
//!
//!     [[service]]
//!     name = "web"
//!     address = "203.0.113.10"
//!     protocol = "tcp"
//!     ports = "80"
//!       [[service.backend]]
//!       address = "10.0.0.300"
//! "#;
//! let error = Config::parse("lb.toml", text).unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "lb.toml:19: service.web.backend[0].address: \"10.0.0.300\" is not an IP address; \
//!      write 10.0.0.1 or 2001:db8::1"
//! );
//! ```

mod announce;
mod balancer;
mod cluster;
mod document;
mod health;
mod limits;
mod load;
mod parse;
mod port;
mod service;
mod shared;
mod store;
mod via;
mod words;

pub use announce::HOLD_MAX;
pub use cluster::PREPARE_MS_MAX;
pub use port::{NextHop, Port, VLAN_MAX, interface_underneath};
pub use store::Store;

use crate::failure::BadInput;
use hotloop::engine::Idle;
use hotloop_balancer::prefix::Prefix;
use hotloop_balancer::spec::{Balancer, Limits, ServiceSpec, Side, Spec};
use hotloop_cluster::settings::Cluster;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;

/// The least path MTU that may be configured, in bytes: what every IPv4 host takes (RFC 791,
/// section 3.1).
pub const MTU_MIN: u16 = 576;

/// The least path MTU of IPv6, in bytes (RFC 8200, section 5).
pub const MTU_MIN_V6: u16 = 1280;

/// How many backends a service may have: schedulers other than Maglev's look at all of them for each
/// new connection.
pub const BACKENDS_MAX: usize = 1000;

/// The fewest slots that a Maglev table may be asked to have.
pub const MAGLEV_SLOTS_MIN: u32 = 7;

/// The most slots that a Maglev table may be asked to have: two bytes each, for each set of backends.
pub const MAGLEV_SLOTS_MAX: u32 = 1_000_003;

/// The longest that anything may be remembered, in seconds: 30 days.
pub const TIMEOUT_S_MAX: u32 = 30 * 86_400;

/// The largest weight of a backend.
pub const WEIGHT_MAX: u32 = 65_535;

/// How many connections a worker may be asked to remember.
pub const CONNECTIONS_MAX: u32 = 1 << 26;

/// How many dispatchers, and how many workers, there may be.
pub const CORES_MAX: u32 = 60;

/// Everything that an operator configures.
#[derive(Clone, Debug)]
pub struct Config {
    /// How work is spread over cores.
    pub engine: Engine,
    /// Settings that all services share.
    pub balancer: Balancer,
    /// Limits on new connections.
    pub limits: Limits,
    /// The ports, at least one of them towards clients and one towards backends.
    pub ports: Vec<Port>,
    /// The services, no two with the same address, protocol and ports.
    pub services: Vec<ServiceSpec>,
    /// How backends are probed, by the name of their service; a service without an entry is not probed.
    pub health: HashMap<String, Health>,
    /// Backends that may be addresses of services of this configuration.
    pub nested_backends: Vec<IpAddr>,
    /// How VIPs are announced, if they are.
    pub announce: Option<Announce>,
    /// This node of a cluster and its peers, if it has any.
    pub cluster: Option<Cluster>,
    /// The store that has the configuration of all nodes of the cluster, if one has.
    pub store: Option<Store>,
    /// The file in which a node of a cluster keeps what operators have changed, for its next start.
    pub operator_file: Option<PathBuf>,
    /// How many of the nodes that share their findings through the store must find a backend down; none is the
    /// [default](crate::health::quorum::needed_count).
    pub quorum: Option<u32>,
}

impl Config {
    /// What service tables are built from.
    #[must_use]
    pub fn spec(&self) -> Spec<'_> {
        Spec {
            balancer: &self.balancer,
            limits: &self.limits,
            services: &self.services,
            // Connections are looked through whether there are peers or not.
            prepare_ms_max: self.cluster.as_ref().map_or(PREPARE_MS_MAX, |it| it.prepare_ms_max),
        }
    }

    /// The ways in which backends of a service are probed.
    pub fn ways_of(&self, service: &str) -> impl Iterator<Item = Health> {
        self.health.get(service).into_iter().flat_map(Health::ways)
    }

    /// Whether packets to a side go by the kernel's routes: those of its first port do.
    #[must_use]
    pub fn goes_by_kernel(&self, reaches: fn(Side) -> bool) -> bool {
        let port = self.ports.iter().find(|port| reaches(port.side));
        port.is_some_and(|port| port.next_hop == NextHop::Kernel)
    }
}

/// How VIPs are announced to routing daemons.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Announce {
    /// Which of them.
    pub vips: Announced,
    /// The TAP interface that they are routed to, which the balancer makes.
    pub interface: String,
    /// How many milliseconds a balancer that is to end goes on after it has withdrawn its VIPs.
    pub linger_ms: u32,
    /// For how many seconds a VIP that was withdrawn must be ready before it is announced again, as long as
    /// it does not flap.
    pub hold_s: u32,
}

/// Which VIPs are announced.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Announced {
    /// Those with a backend that is up and may get new connections.
    Ready,
    /// All that are configured.
    Always,
}

/// How work is spread over cores.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Engine {
    /// What each core does.
    pub deployment: DeploymentKind,
    /// Cores that receive and hand on, in a pipeline: 1 to 60.
    pub dispatchers: usize,
    /// Cores that balance: 1 to 60.
    pub workers: usize,
    /// What cores do when there is nothing to do.
    pub idle: Idle,
    /// Whether to run on hugepages or not at all.
    pub require_hugepages: bool,
    /// How many milliseconds of its own CPU time a worker may use without passing a burst boundary: 0
    /// is for ever.
    pub worker_stall_ms_max: u32,
}

/// What each core does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DeploymentKind {
    /// Each core receives, balances and sends.
    RunToCompletion,
    /// Dispatchers receive, workers balance and send.
    Pipeline,
}

/// How the backends of a service are probed.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Health {
    /// What a probe is.
    pub probe: Probe,
    /// The port that is probed; 0 for [`Probe::Icmp`], which has none.
    pub port: u16,
    /// From one probe of a backend to the next, in milliseconds.
    pub interval_ms: u32,
    /// How long a probe may take, in milliseconds; at most the interval.
    pub timeout_ms: u32,
    /// How many probes in a row must pass before a backend that is down is up again.
    pub rise: u32,
    /// How many probes in a row must fail before a backend that is up is down.
    pub fall: u32,
    /// By which way the probe goes.
    pub via: Via,
}

/// By which way a backend is probed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Via {
    /// To the backend's own address, over the kernel's sockets.
    Direct,
    /// To the service's address, through the backend's tunnel, as clients' packets go.
    Tunnel(TunnelPath),
    /// Both, of which each must pass.
    Both(TunnelPath),
}

/// The way of a probe through a tunnel, but for the backend.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct TunnelPath {
    /// The service's address.
    pub vip: IpAddr,
    /// Where the probe comes from, and replies go, of the same IP version.
    pub probe_source: IpAddr,
    /// Where tunnels to IPv4 backends begin.
    pub source_v4: Prefix,
    /// Where tunnels to IPv6 backends begin.
    pub source_v6: Option<Prefix>,
}

/// What a probe is, and when it passes.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Probe {
    /// A TCP connection is accepted.
    Tcp,
    /// An HTTP/1.1 GET has the answer that is expected.
    Http(HttpProbe),
    /// The same over TLS.
    Https(HttpProbe, Trust),
    /// An echo request is answered.
    Icmp,
    /// A UDP datagram is not answered by ICMP's port unreachable.
    Udp,
}

/// What is asked for, and expected.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct HttpProbe {
    /// The path, with the query, from its slash on.
    pub path: String,
    /// The status of an answer that passes.
    pub expect_status: u16,
}

/// Which authorities a TLS connection trusts.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Trust {
    /// Certificates signed by one of this PEM file's, for the backend's address.
    CaFile(PathBuf),
    /// Any.
    Insecure,
}

/// What is wrong with a configuration, and where. It prints as one line.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{file}:{line}: {key}: {problem}")]
pub struct ConfigError {
    /// The file, by the name that the caller gave.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The key, with those of the tables it is in. A service or port is called by its name where it
    /// has one, and anything else in a list by its place, from 0.
    pub key: String,
    /// What is wrong, and what to write instead.
    pub problem: String,
}

impl From<ConfigError> for BadInput {
    fn from(error: ConfigError) -> Self {
        Self::new(error.to_string())
    }
}
