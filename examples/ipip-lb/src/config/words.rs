//! The words for choices, in a configuration and in output.

use super::{Announced, DeploymentKind};
use hotloop_health::settings::{TunnelPath, Via};
use std::fmt;

pub const DEPLOYMENTS: &[(&str, DeploymentKind)] = &[
    ("run-to-completion", DeploymentKind::RunToCompletion),
    ("pipeline", DeploymentKind::Pipeline),
];

pub const ANNOUNCED: &[(&str, Announced)] =
    &[("ready", Announced::Ready), ("always", Announced::Always)];

/// A route of probes that includes this path through a tunnel.
type ByTunnel = fn(TunnelPath) -> Via;

/// Each route of probes; `None` is the direct one.
pub const VIAS: &[(&str, Option<ByTunnel>)] =
    &[("direct", None), ("tunnel", Some(Via::Tunnel)), ("both", Some(Via::Both))];

/// The kind of a probe, without its parameters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProbeKind {
    Tcp,
    Http,
    Https,
    Icmp,
    Udp,
}

pub const PROBES: &[(&str, ProbeKind)] = &[
    ("tcp", ProbeKind::Tcp),
    ("http", ProbeKind::Http),
    ("https", ProbeKind::Https),
    ("icmp", ProbeKind::Icmp),
    ("udp", ProbeKind::Udp),
];

/// The word for `choice`.
fn word<T: PartialEq>(words: &[(&'static str, T)], choice: &T) -> &'static str {
    words.iter().find(|(_, value)| value == choice).map_or("", |(word, _)| word)
}

impl fmt::Display for DeploymentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word(DEPLOYMENTS, self))
    }
}

impl fmt::Display for Announced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word(ANNOUNCED, self))
    }
}
