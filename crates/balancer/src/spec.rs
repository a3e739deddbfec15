//! A balancer's configuration, as plain values that any program can fill: see [`Spec`].

use crate::hashes::HashKey;
use crate::maglev::SLOT_COUNT_DEFAULT;
use hotloop::packet::prefix::Prefix;
use std::fmt;
use std::net::IpAddr;

/// Maximum number of services of a [`Spec`].
pub const SERVICES_MAX: usize = 131_072;

/// The input for a [service table](crate::services::ServiceTable).
#[derive(Clone, Copy, Debug)]
pub struct Spec<'a> {
    /// Settings that all services share.
    pub balancer: &'a Balancer,
    /// Limits on new connections.
    pub limits: &'a Limits,
    /// The services, at most [`SERVICES_MAX`], no two with the same address, protocol and ports.
    pub services: &'a [ServiceSpec],
    /// Time within which workers examine all connections after a change, in milliseconds.
    pub prepare_ms_max: u32,
}

/// Settings that all services share.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Balancer {
    /// Outer source of tunnels to IPv4 backends: one address, or a prefix whose host bits each flow
    /// fills.
    pub source_v4: Prefix,
    /// Outer source of tunnels to IPv6 backends; required if there is such a backend.
    pub source_v6: Option<Prefix>,
    /// The secret of the hashes that choose workers and backends; without one, they are public.
    pub hash_key: Option<HashKey>,
    /// Longest IP packet on the path to the backends, outer header included, in bytes.
    pub mtu: u16,
    /// Own tunnel addresses.
    pub decapsulate: Vec<IpAddr>,
    /// Peers that tunnels are accepted from, besides the backends.
    pub tunnel_peers: Vec<Prefix>,
    /// Connections that each worker remembers, of each IP version.
    pub connections_max: usize,
    /// Treatment of echo requests to a service's address.
    pub icmp_echo: IcmpEcho,
    /// Whether SYN-ACKs of the return path get an MSS that fits the tunnel.
    pub clamp_mss: bool,
    /// Slots of a Maglev table, a prime.
    pub maglev_slots: u32,
    /// Connections that each worker enters into its table in a second.
    pub new_connections_per_second_max: u32,
    /// Idle timeouts of connections.
    pub timeouts: Timeouts,
    /// Source addresses of probes through tunnels, at most one of each IP version.
    pub probe_sources: Vec<IpAddr>,
}

impl Balancer {
    /// Settings with defaults for everything but the tunnels: 65,536 connections and 5,000,000 new ones a second for
    /// each worker, Maglev tables of 65,537 slots, public hashes, replies to echo requests, and nothing to unwrap.
    #[must_use]
    pub fn new(source_v4: Prefix, mtu: u16) -> Self {
        Self {
            source_v4,
            source_v6: None,
            hash_key: None,
            mtu,
            decapsulate: Vec::new(),
            tunnel_peers: Vec::new(),
            connections_max: 65_536,
            icmp_echo: IcmpEcho::Reply,
            clamp_mss: false,
            maglev_slots: SLOT_COUNT_DEFAULT,
            new_connections_per_second_max: 5_000_000,
            timeouts: Timeouts::default(),
            probe_sources: Vec::new(),
        }
    }

    /// The outer sources of tunnels.
    pub fn sources(&self) -> impl Iterator<Item = Prefix> {
        [Some(self.source_v4), self.source_v6].into_iter().flatten()
    }
}

/// Limits on connections that begin, per second and for all workers together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// The limit to each service that has no limit of its own.
    pub service_max: Option<u32>,
    /// The limit from each prefix, to all services together.
    pub source_max: Option<u32>,
    /// Length of these prefixes for IPv4, in bits: 1 to 32.
    pub source_prefix_v4: u8,
    /// Length of these prefixes for IPv6, in bits: 1 to 128.
    pub source_prefix_v6: u8,
}

impl Default for Limits {
    /// No limits.
    fn default() -> Self {
        Self { service_max: None, source_max: None, source_prefix_v4: 32, source_prefix_v6: 64 }
    }
}

/// Idle timeouts of connections by their state, in seconds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Timeouts {
    /// TCP with only SYNs seen.
    pub tcp_opening_s: u32,
    /// TCP.
    pub tcp_established_s: u32,
    /// TCP that was reset, or closed by both sides.
    pub tcp_closing_s: u32,
    /// UDP.
    pub udp_s: u32,
    /// Every other protocol.
    pub other_s: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            tcp_opening_s: 10,
            tcp_established_s: 900,
            tcp_closing_s: 20,
            udp_s: 60,
            other_s: 60,
        }
    }
}

/// A service: the addresses that clients connect to, and the backends that answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServiceSpec {
    /// The service's name in reports.
    pub name: String,
    /// The service's addresses (VIPs).
    pub address: Prefix,
    /// The service's protocols.
    pub protocol: Protocol,
    /// The service's ports.
    pub ports: Ports,
    /// The scheduler, which chooses the backend of a new connection.
    pub scheduler: Scheduler,
    /// Time in seconds for which a client keeps its backend after its last new connection. Only with
    /// [`Scheduler::Source`]; 0 keeps it no longer than the backends stay the same.
    pub persistence_s: u32,
    /// Treatment of new connections while every backend is down.
    pub all_down: AllDown,
    /// Connections to the service that may begin in a second; if `None`, [`Limits::service_max`]
    /// holds.
    pub new_connections_per_second_max: Option<u32>,
    /// The backends that answer; no address twice.
    pub backends: Vec<Backend>,
}

impl ServiceSpec {
    /// A service of all ports of `protocol`, with Maglev's hashing and without limits. While every
    /// backend is down, new connections go to all of them.
    #[must_use]
    pub fn new(name: &str, address: Prefix, protocol: Protocol, backends: Vec<Backend>) -> Self {
        Self {
            name: name.to_owned(),
            address,
            protocol,
            ports: Ports::Any,
            scheduler: Scheduler::Maglev,
            persistence_s: 0,
            all_down: AllDown::Forward,
            new_connections_per_second_max: None,
            backends,
        }
    }
}

/// A host that answers for a service.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Backend {
    /// The address of the backend's end of the tunnel.
    pub address: IpAddr,
    /// The backend's share of new connections, in proportion to the other weights: 0 for no share.
    pub weight: u32,
}

/// The destination ports of a service.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ports {
    /// All ports, and packets of protocols without ports.
    Any,
    /// From `first` to `last`, both included.
    Range {
        /// The lowest port, not 0.
        first: u16,
        /// The highest port, not below `first`.
        last: u16,
    },
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Range { first, last } if first == last => write!(f, "{first}"),
            Self::Range { first, last } => write!(f, "{first}-{last}"),
        }
    }
}

/// An enum of words: each variant has the word that stands for it in configurations and reports.
macro_rules! words {
    ($(
        $(#[$attribute:meta])*
        pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }
    )*) => {$(
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// Every variant with its word.
            pub const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant)),*];
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $word,)* })
            }
        }
    )*};
}

words! {
    /// The hosts that are reached through a port.
    pub enum Side {
        /// Clients.
        Client = "client",
        /// Backends.
        Backend = "backend",
        /// Both.
        Both = "both",
    }

    /// Treatment of echo requests to a service's address.
    pub enum IcmpEcho {
        /// The balancer answers.
        Reply = "reply",
        /// They go to a backend.
        Forward = "forward",
        /// They are dropped.
        Drop = "drop",
    }

    /// The protocols of a service.
    pub enum Protocol {
        /// Only TCP.
        Tcp = "tcp",
        /// Only UDP.
        Udp = "udp",
        /// TCP and UDP; with [`Ports::Any`], every protocol.
        Any = "any",
    }

    /// The choice of the backend for a new connection.
    pub enum Scheduler {
        /// Maglev's consistent hashing of all five fields, weighted.
        Maglev = "maglev",
        /// In turns, weighted.
        RoundRobin = "round-robin",
        /// The backend with the fewest connections for its weight.
        LeastConnections = "least-connections",
        /// Maglev's consistent hashing of the client's address, weighted.
        Source = "source",
    }

    /// Treatment of new connections while every backend of a service is down.
    pub enum AllDown {
        /// The connections go to all backends, as if all were up.
        Forward = "forward",
        /// The packets are dropped.
        Drop = "drop",
    }
}

impl Side {
    /// Whether clients are reached.
    #[must_use]
    pub const fn has_clients(self) -> bool {
        matches!(self, Self::Client | Self::Both)
    }

    /// Whether backends are reached.
    #[must_use]
    pub const fn has_backends(self) -> bool {
        matches!(self, Self::Backend | Self::Both)
    }
}
