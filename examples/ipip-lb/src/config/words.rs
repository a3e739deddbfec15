//! The words that stand for a choice: as they are written in a configuration, and printed.

use super::via::ViaKind;
use super::{
    AllDown, Announced, DeploymentKind, IcmpEcho, Ports, Probe, Protocol, Scheduler, Side, Via,
};
use std::fmt;

pub const DEPLOYMENTS: &[(&str, DeploymentKind)] = &[
    ("run-to-completion", DeploymentKind::RunToCompletion),
    ("pipeline", DeploymentKind::Pipeline),
];

pub const ANNOUNCED: &[(&str, Announced)] =
    &[("ready", Announced::Ready), ("always", Announced::Always)];

pub const SIDES: &[(&str, Side)] =
    &[("client", Side::Client), ("backend", Side::Backend), ("both", Side::Both)];

pub const PROTOCOLS: &[(&str, Protocol)] =
    &[("tcp", Protocol::Tcp), ("udp", Protocol::Udp), ("any", Protocol::Any)];

pub const ICMP_ECHOES: &[(&str, IcmpEcho)] =
    &[("reply", IcmpEcho::Reply), ("forward", IcmpEcho::Forward), ("drop", IcmpEcho::Drop)];

pub const SCHEDULERS: &[(&str, Scheduler)] = &[
    ("maglev", Scheduler::Maglev),
    ("round-robin", Scheduler::RoundRobin),
    ("least-connections", Scheduler::LeastConnections),
    ("source", Scheduler::Source),
];

pub const ALL_DOWNS: &[(&str, AllDown)] = &[("forward", AllDown::Forward), ("drop", AllDown::Drop)];

pub const VIAS: &[(&str, ViaKind)] =
    &[("direct", ViaKind::Direct), ("tunnel", ViaKind::Tunnel), ("both", ViaKind::Both)];

/// What kind of probe, without what it asks for.
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

impl Probe {
    const fn kind(&self) -> ProbeKind {
        match self {
            Self::Tcp => ProbeKind::Tcp,
            Self::Http(_) => ProbeKind::Http,
            Self::Https(..) => ProbeKind::Https,
            Self::Icmp => ProbeKind::Icmp,
            Self::Udp => ProbeKind::Udp,
        }
    }
}

/// The word for `choice`.
fn word<T: PartialEq>(words: &[(&'static str, T)], choice: &T) -> &'static str {
    words.iter().find(|(_, it)| it == choice).map_or("", |(word, _)| word)
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

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word(SIDES, self))
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word(PROTOCOLS, self))
    }
}

impl fmt::Display for IcmpEcho {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word(ICMP_ECHOES, self))
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word(SCHEDULERS, self))
    }
}

impl fmt::Display for AllDown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word(ALL_DOWNS, self))
    }
}

/// The kind of probe, as [`Health`](super::Health) has it: `http`, for instance.
impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word(PROBES, &self.kind()))
    }
}

/// `direct`, `tunnel` or `both`.
impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word(VIAS, &self.kind()))
    }
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
