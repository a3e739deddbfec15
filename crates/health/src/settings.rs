//! The settings of probes.

use hotloop::packet::prefix::Prefix;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

/// The probes of a service's backends.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Health {
    /// The kind of probe, with its expectations.
    pub probe: Probe,
    /// The probed port; 0 for [`Probe::Icmp`], which has no ports.
    pub port: u16,
    /// Time from one probe of a backend to the next, in milliseconds.
    pub interval_ms: u32,
    /// Maximum duration of a probe, in milliseconds; at most the interval.
    pub timeout_ms: u32,
    /// Number of probes in a row that must pass before a backend that is down comes up.
    pub rise: u32,
    /// Number of probes in a row that must fail before a backend that is up goes down.
    pub fall: u32,
    /// The path of the probes.
    pub via: Via,
}

impl Health {
    /// The probes that must all pass. Each of them takes one path.
    pub fn ways(&self) -> impl Iterator<Item = Self> {
        let ways = match self.via {
            Via::Both(path) => [Some(Via::Direct), Some(Via::Tunnel(path))],
            one => [Some(one), None],
        };
        ways.into_iter().flatten().map(|via| Self { via, ..self.clone() })
    }
}

/// The path of probes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Via {
    /// To the backend's own address, over the kernel's sockets.
    Direct,
    /// To the service's address, through the backend's tunnel, like clients' packets.
    Tunnel(TunnelPath),
    /// Both paths. The probes on each must pass.
    Both(TunnelPath),
}

impl Via {
    /// The path through the tunnel, if probes take it.
    #[must_use]
    pub const fn tunnel(&self) -> Option<&TunnelPath> {
        match self {
            Self::Direct => None,
            Self::Tunnel(path) | Self::Both(path) => Some(path),
        }
    }
}

/// `direct`, `tunnel` or `both`.
impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Tunnel(_) => "tunnel",
            Self::Both(_) => "both",
        })
    }
}

/// The path through a tunnel, without the backend's address.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct TunnelPath {
    /// The service's address.
    pub vip: IpAddr,
    /// The source of probes and the destination of replies, of the VIP's IP version.
    pub probe_source: IpAddr,
    /// The source of tunnels to IPv4 backends.
    pub source_v4: Prefix,
    /// The source of tunnels to IPv6 backends. A backend of IPv6 requires it.
    pub source_v6: Option<Prefix>,
}

/// A kind of probe, and when it passes.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Probe {
    /// Passes if a TCP connection is accepted.
    Tcp,
    /// Passes if an HTTP/1.1 GET has the expected answer.
    Http(HttpProbe),
    /// The same over TLS.
    Https(HttpProbe, Trust),
    /// Passes if an echo request is answered.
    Icmp,
    /// Passes unless a UDP datagram is answered by ICMP's port unreachable.
    Udp,
}

/// `tcp`, `http`, `https`, `icmp` or `udp`.
impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Http(_) => "http",
            Self::Https(..) => "https",
            Self::Icmp => "icmp",
            Self::Udp => "udp",
        })
    }
}

/// A request and the expected answer.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct HttpProbe {
    /// The path, from its slash on, with the query.
    pub path: String,
    /// The status of an answer that passes.
    pub expect_status: u16,
    /// The `User-Agent` of the request: the program's name.
    pub user_agent: &'static str,
}

/// The authorities that a TLS connection trusts.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Trust {
    /// Trusts a certificate for the backend's address that one of this PEM file's authorities has signed.
    CaFile(PathBuf),
    /// Trusts any certificate.
    Insecure,
}
