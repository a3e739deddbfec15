//! The configuration: everything that an operator may write, and its types.
//!
//! [`Config::load`] reads a TOML file. Every error in one is a [`ConfigError`], which names the
//! file, the line and the key, and includes a remedy.
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
mod differences;
mod document;
mod health;
mod limits;
mod load;
mod metrics;
mod parse;
mod port;
mod service;
mod shared;
mod store;
mod via;
mod words;

pub use cluster::PREPARE_MS_MAX;
pub use metrics::MetricsLimits;
pub use port::{NextHop, Port, VLAN_MAX, interface_underneath};

use crate::failure::BadInput;
use hotloop::engine::Idle;
use hotloop_balancer::spec::{Balancer, Limits, ServiceSpec, Side, Spec};
use hotloop_cluster::settings::{Cluster, Store};
use hotloop_health::settings::Health;
use serde::{Serialize, Serializer};
use std::collections::HashMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::path::PathBuf;

/// Minimum path MTU that may be configured, in bytes: every IPv4 host accepts it (RFC 791, section
/// 3.1).
pub const MTU_MIN: u16 = 576;

/// Minimum path MTU of IPv6, in bytes (RFC 8200, section 5).
pub const MTU_MIN_V6: u16 = 1280;

/// Maximum number of backends of a service: schedulers other than Maglev's examine all of them for
/// each new connection.
pub const BACKENDS_MAX: usize = 1000;

/// Minimum number of slots of a Maglev table.
pub const MAGLEV_SLOTS_MIN: u32 = 7;

/// Maximum number of slots of a Maglev table: two bytes each, for each set of backends.
pub const MAGLEV_SLOTS_MAX: u32 = 1_000_003;

/// Maximum time to remember anything, in seconds: 30 days.
pub const TIMEOUT_S_MAX: u32 = 30 * 86_400;

/// Maximum weight of a backend.
pub const WEIGHT_MAX: u32 = 65_535;

/// Maximum number of connections of a worker.
pub const CONNECTIONS_MAX: u32 = 1 << 26;

/// Maximum number of dispatchers, and of workers.
pub const CORES_MAX: u32 = 60;

/// Everything that an operator configures.
#[derive(Clone, Debug)]
pub struct Config {
    /// The spread of work over cores.
    pub engine: Engine,
    /// Settings that all services share.
    pub balancer: Balancer,
    /// Limits on new connections.
    pub limits: Limits,
    /// The ports, at least one of them towards clients and one towards backends.
    pub ports: Vec<Port>,
    /// The services, no two with the same address, protocol and ports.
    pub services: Vec<ServiceSpec>,
    /// The health checks, by the name of their service; a service without an entry is not probed.
    pub health: HashMap<String, Health>,
    /// Backends that may be addresses of services of this configuration.
    pub nested_backends: Vec<IpAddr>,
    /// The numbers of series that Prometheus gets.
    pub metrics: MetricsLimits,
    /// The announcement of VIPs, if they are announced.
    pub announce: Option<Announce>,
    /// This node of a cluster and its peers, if it has any.
    pub cluster: Option<Cluster>,
    /// The store of the configuration that all nodes of the cluster share, if there is one.
    pub store: Option<Store>,
    /// The file in which operators' changes are kept for the next start.
    pub operator_file: Option<PathBuf>,
    /// The number of nodes that must find a backend down, among those that share their findings
    /// through the store; `None` for the [default](hotloop_health::quorum::needed_count).
    pub quorum: Option<u32>,
}

impl Config {
    /// The input for service tables.
    #[must_use]
    pub fn spec(&self) -> Spec<'_> {
        Spec {
            balancer: &self.balancer,
            limits: &self.limits,
            services: &self.services,
            // Workers examine connections with or without peers.
            prepare_ms_max: self
                .cluster
                .as_ref()
                .map_or(PREPARE_MS_MAX, |cluster| cluster.prepare_ms_max),
        }
    }

    /// The backends with probes, each with the settings of its service.
    pub fn probed(&self) -> impl Iterator<Item = (IpAddr, &Health)> {
        self.services.iter().flat_map(|service| {
            let health = self.health.get(&service.name).into_iter();
            health.flat_map(|health| {
                service.backends.iter().map(move |backend| (backend.address, health))
            })
        })
    }

    /// The probes of a service's backends, each with one route.
    pub fn ways_of(&self, service: &str) -> impl Iterator<Item = Health> {
        self.health.get(service).into_iter().flat_map(Health::ways)
    }

    /// Whether the kernel's routes lead packets to a side: its first port is configured so.
    #[must_use]
    pub fn goes_by_kernel(&self, reaches: fn(Side) -> bool) -> bool {
        let port = self.ports.iter().find(|port| reaches(port.side));
        port.is_some_and(|port| port.next_hop == NextHop::Kernel)
    }
}

/// The announcement of VIPs to routing daemons.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Announce {
    /// Which VIPs.
    #[serde(serialize_with = "as_text")]
    pub vips: Announced,
    /// The TAP interface that VIPs are routed to, which the balancer makes.
    pub interface: String,
    /// How many milliseconds an ending balancer continues after it has withdrawn its VIPs.
    pub linger_ms: u32,
    /// How many seconds a withdrawn VIP must be ready before it is announced again, as long as it
    /// does not flap.
    pub hold_s: u32,
}

/// Which VIPs are announced.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Announced {
    /// VIPs with a backend that is up and may get new connections.
    Ready,
    /// All configured VIPs.
    Always,
}

/// The spread of work over cores.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Engine {
    /// The role of each core.
    #[serde(serialize_with = "as_text")]
    pub deployment: DeploymentKind,
    /// Number of cores that receive and pass on packets, in a pipeline: 1 to 60.
    pub dispatchers: usize,
    /// Number of cores that balance: 1 to 60.
    pub workers: usize,
    /// The behaviour of idle cores.
    #[serde(serialize_with = "as_text")]
    pub idle: Idle,
    /// Whether to refuse to run without hugepages.
    pub require_hugepages: bool,
    /// How many milliseconds of its own CPU time a worker may use without passing a burst boundary;
    /// 0 for no limit.
    pub worker_stall_ms_max: u32,
}

/// The role of each core.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DeploymentKind {
    /// Each core receives, balances and sends.
    RunToCompletion,
    /// Dispatchers receive, workers balance and send.
    Pipeline,
}

/// Serializes a value as the text of its `Display`.
fn as_text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// An error in a configuration, with its place. It prints as one line.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{file}:{line}: {key}: {problem}")]
pub struct ConfigError {
    /// The file, under the caller's name for it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The key, after the keys of its tables. A service or port goes by its name if it has one, and
    /// anything else in a list by its index, from 0.
    pub key: String,
    /// The problem, and a remedy.
    pub problem: String,
}

impl From<ConfigError> for BadInput {
    fn from(error: ConfigError) -> Self {
        Self::new(error.to_string())
    }
}
