//! `run --replace`: a program takes over from the running one, as
//! [`hotloop_cluster::replace`] describes. The request, and the state that only this program
//! understands.

pub mod predecessor;
pub mod saved_overrides;

use crate::config::Config;
use crate::exception::KernelInterface;
use crate::failure::Failure;
use crate::request::Candidate;
use hotloop_agreement::barrier::{Phase, Step};
use hotloop_balancer::hashes::HashKey;
use hotloop_balancer::spec::ServiceSpec;
use hotloop_cluster::replace::{self, VERSION};
use hotloop_cluster::sync::{Agreement, Reference, sha256, wire};
use hotloop_kernel::{KernelPort, Mbufs};
use saved_overrides::SavedOverrides;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::io;

/// The state of this program that its successor needs.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct ProgramState {
    /// The neighbours of the predecessor's ports, so that no packet must wait until they are known:
    /// the address, the Ethernet address and the port's name.
    pub neighbours: Vec<[String; 3]>,
    /// Changes by operators and health checks.
    #[serde(rename = "standings")]
    pub saved: SavedOverrides,
    /// The reference tables of a node of a cluster.
    pub references: SavedReferences,
}

/// The reference tables in force, and how far the node is with a move.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct SavedReferences {
    /// The number of the table that the move began with.
    pub table: u32,
    /// The number of the move's step.
    pub step: u8,
    /// The tables' texts, of the one in use first; none without peers.
    pub texts: Vec<String>,
}

impl SavedReferences {
    /// The tables of this node.
    #[must_use]
    pub fn of(agreement: &Agreement) -> Self {
        let Phase { table, step } = agreement.phase();
        let texts = agreement.tables().iter().map(|table| table.text.to_string()).collect();
        Self { table, step: step as u8, texts }
    }

    /// The phase and the tables, if the node had any.
    #[must_use]
    pub fn tables(&self) -> Option<(Phase, Vec<Reference>)> {
        let phase = Phase { table: self.table, step: Step::from_number(self.step)? };
        let numbers = [Some(phase.in_use()), phase.other()].into_iter().flatten();
        let tables = numbers.zip(&self.texts);
        let tables: Vec<_> = tables.map(|(it, text)| Reference::new(it, &**text)).collect();
        (!tables.is_empty()).then_some((phase, tables))
    }
}

/// Everything for the program that takes over from this one.
pub type HandedOver = replace::HandedOver<ProgramState>;

/// The state that the successor has received.
pub type Inherited = replace::Inherited<ProgramState>;

impl Candidate {
    /// This program, with this configuration.
    #[must_use]
    pub fn with(config: &Config) -> Self {
        Self { version: VERSION, frames: wire::VERSION.into(), digest: digest(config) }
    }

    /// Checks that the program can take over from a balancer with this configuration.
    ///
    /// # Errors
    /// The reason that the program can't, and a remedy.
    pub fn check(&self, config: &Config) -> Result<(), String> {
        let here = Self::with(config);
        let has_frames = u16::try_from(self.frames).is_ok_and(wire::is_adjacent);
        if self.version != here.version || !has_frames {
            return Err(format!(
                "this program takes part in version {}.{} of a takeover, the other one in {}.{}: stop this one and \
                 start the other one, which ends connections that are not where the configuration says",
                here.version, here.frames, self.version, self.frames
            ));
        }
        if self.digest != here.digest {
            return Err(
                "its configuration is not the one in force here, by which connections are on their backends: load it here \
                 first (ctl reload), or give that one; services, their backends, balancer.hash_key and \
                 balancer.maglev_slots have to be the same"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

/// Adds the interfaces, which stay with everything that they have taken over.
///
/// # Errors
/// If the process has no file left.
pub fn with_interfaces(
    left: HandedOver,
    interfaces: Vec<KernelInterface>,
    vips: Option<KernelPort<Mbufs>>,
) -> Result<HandedOver, Failure> {
    let ports = interfaces.iter().map(KernelInterface::port);
    let ports = ports.chain(vips.as_ref());
    let shared = ports.map(|port| Ok((port.name().to_owned(), port.share()?)));
    let shared: io::Result<Vec<_>> = shared.collect();
    let shared = shared.map_err(|error| Failure::Run(format!("replace: {error}")))?;
    interfaces.into_iter().for_each(KernelInterface::leave);
    Ok(left.with_interfaces(shared))
}

/// A digest of everything that decides a connection's backend, unless it is an exception.
#[must_use]
pub fn digest(config: &Config) -> String {
    let mut text =
        config.balancer.hash_key.as_ref().map_or_else(|| "public".into(), HashKey::to_hex);
    let _ = writeln!(text, " {}", config.balancer.maglev_slots);
    for service in &config.services {
        let ServiceSpec { name, address, protocol, ports, scheduler, all_down, .. } = service;
        let _ = writeln!(text, "{name} {address} {protocol} {ports} {scheduler} {all_down}");
        for backend in &service.backends {
            let _ = writeln!(text, " {} {}", backend.address, backend.weight);
        }
    }
    sha256(&text).iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const CONFIG: &str = r#"
        [balancer]
        source_v4 = "192.0.2.1"
        mtu = 1500
        decapsulate = []
        [[port]]
        name = "uplink"
        device = "net_null0"
        next_hop_mac = "02:00:00:00:00:01"
        [[service]]
        name = "web"
        address = "203.0.113.10"
        protocol = "tcp"
        ports = "80"
        backend = [{ address = "10.0.0.1" }, { address = "10.0.0.2" }]
    "#;

    #[test]
    fn who_would_choose_differently_is_refused() {
        let config = |text: &str| Config::parse("lb.toml", text).unwrap();
        let here = config(CONFIG);
        assert_eq!(Candidate::with(&here).check(&here), Ok(()));
        let other_port = config(&CONFIG.replace("net_null0", "net_null1"));
        assert_eq!(Candidate::with(&other_port).check(&here), Ok(()));
        for (old, new) in [
            ("10.0.0.2\" }", "10.0.0.3\" }"),
            ("10.0.0.2\" }", "10.0.0.2\", weight = 2 }"),
            ("\"80\"", "\"81\""),
            ("\"tcp\"", "\"udp\""),
            ("mtu", "maglev_slots = 7\nmtu"),
            ("mtu", "hash_key = \"00112233445566778899aabbccddeeff\"\nmtu"),
            ("ports", "scheduler = \"round-robin\"\nports"),
        ] {
            let other = config(&CONFIG.replace(old, new));
            let refused = Candidate::with(&other).check(&here).unwrap_err();
            assert!(refused.contains("ctl reload"), "{new}: {refused}");
        }
        let later = Candidate { frames: 99, ..Candidate::with(&here) };
        assert!(later.check(&here).unwrap_err().contains("the other one in 1.99"));
        assert!(Candidate::default().check(&here).is_err());
    }
}
