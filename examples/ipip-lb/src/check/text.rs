//! A configuration for people.

use super::notes::Notes;
use super::{Memory, Understood, shares};
use super::{PUBLIC_HASHES, SECRET_HASHES};
use crate::config::{Announce, Config, Engine, Port};
use hotloop::packet::excerpt::excerpt;
use hotloop_balancer::rules::Rules;
use hotloop_balancer::spec::{Backend, Balancer, Limits, Scheduler, ServiceSpec};
use hotloop_cluster::settings::{Cluster, Security, Store, StoreAccess, StoreTls};
use hotloop_health::settings::{Health, Probe, Trust, Via};
use hotloop_kernel::PuntPeer;
use std::fmt::{self, Display, Formatter};

impl Display for Understood<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Config { engine, balancer, limits, ports, services, announce, .. } = self.0;
        let rules = Rules::new(services);
        let notes = Notes::of(self.0, &rules);
        write_engine(f, engine)?;
        write_balancer(f, balancer)?;
        write_limits(f, limits)?;
        for note in notes.general() {
            writeln!(f, "  note: {note}")?;
        }
        write_memory(f, balancer.maglev_slots, Memory::of(self.0, &rules))?;
        for port in ports {
            write_port(f, port)?;
        }
        if let Some(Announce { vips, interface, linger_ms, hold_s }) = announce {
            writeln!(
                f,
                "announce: VIPs, {vips}, by routes to interface {interface}; one that was withdrawn, \
                 once it has been ready for {hold_s} s; at the end, {linger_ms} ms for what still comes"
            )?;
        }
        write_cluster(f, self.0)?;
        for (index, service) in services.iter().enumerate() {
            write_service(f, service, self.0)?;
            for note in notes.about(index) {
                writeln!(f, "  note: {note}")?;
            }
        }
        Ok(())
    }
}

fn write_port(f: &mut Formatter<'_>, port: &Port) -> fmt::Result {
    let Port { name, next_hop, side, .. } = port;
    write!(f, "port {name}: {}", excerpt(&port.device))?;
    if let Some(vlan) = port.vlan {
        write!(f, ", VLAN {vlan}")?;
    }
    write!(f, ", next hop {next_hop}, side {side}")?;
    if port.accept_any_mac {
        write!(f, ", takes frames to any address")?;
    }
    if let Some(interface) = &port.kernel_interface {
        write!(f, ", the rest to interface {interface}")?;
    }
    for PuntPeer { prefix, gtsm } in &port.kernel_peers {
        write!(f, ", peer {prefix}{}", if *gtsm { " (TTL 255)" } else { "" })?;
    }
    if port.takeover {
        write!(f, ", by takeover")?;
    }
    writeln!(f, "{}", port.settings)
}

fn write_cluster(f: &mut Formatter<'_>, config: &Config) -> fmt::Result {
    let Config { cluster, store, operator_file, quorum, .. } = config;
    if let Some(cluster) = cluster {
        let Cluster { node, listen, peers, security, ready_timeout_s, prepare_ms_max, settle_s } =
            cluster;
        let peers: Vec<_> =
            peers.iter().map(|peer| format!("{} at {}", peer.name, peer.address)).collect();
        let by = match security {
            Security::TrustedNetwork => "a trusted network, without TLS",
            Security::Tls { .. } => "TLS",
        };
        writeln!(
            f,
            "cluster: node {node} at {listen}, by {by}; peers: {}; announces without their \
             snapshots after {ready_timeout_s} s; looks through connections in {prepare_ms_max} ms; \
             moves the reference table after {settle_s} s",
            peers.join(", ")
        )?;
    }
    if let Some(Store { access: StoreAccess { address, tls }, node: _, copy }) = store {
        let (by, copy) = (store_tls(tls.as_ref()), copy.display());
        writeln!(
            f,
            "store: what all nodes share comes from {address}, {by}; a copy is kept in {copy}"
        )?;
    }
    if let Some(file) = operator_file {
        let file = file.display();
        writeln!(f, "balancer: what operators change is kept in {file} for the next start")?;
    }
    if let Some(quorum) = quorum {
        writeln!(f, "health: a backend is down once {quorum} of the nodes find it down")?;
    }
    Ok(())
}

fn store_tls(tls: Option<&StoreTls>) -> String {
    let Some(StoreTls { authority: _, certificate, user }) = tls else {
        return "without TLS".to_owned();
    };
    let certificate = if certificate.is_some() { "with" } else { "without" };
    let user = user.as_ref().map_or_else(String::new, |user| format!(", as user {}", user.name));
    format!("by TLS {certificate} a certificate of this node{user}")
}

fn write_engine(f: &mut Formatter<'_>, engine: &Engine) -> fmt::Result {
    let hugepages = if engine.require_hugepages { ", on hugepages alone" } else { "" };
    writeln!(f, "engine: {}, idle: {}{hugepages}", engine.deployment(), engine.idle)
}

fn write_balancer(f: &mut Formatter<'_>, balancer: &Balancer) -> fmt::Result {
    let sources: Vec<_> = balancer.sources().map(|source| source.to_string()).collect();
    let sources = sources.join(" and ");
    writeln!(f, "balancer: tunnels from {sources}, path MTU {} bytes", balancer.mtu)?;
    let hashes = if balancer.hash_key.is_some() { SECRET_HASHES } else { PUBLIC_HASHES };
    writeln!(f, "  {hashes}")?;
    writeln!(f, "  unwraps tunnels to {}", listed(&balancer.decapsulate))?;
    writeln!(f, "  from the backends and {}", listed(&balancer.tunnel_peers))?;
    let clamp = if balancer.clamp_mss { "lowered to what fits" } else { "left as it is" };
    writeln!(f, "  echo requests: {}; MSS of SYN-ACKs: {clamp}", balancer.icmp_echo)?;
    let (max, new_max) = (balancer.connections_max, balancer.new_connections_per_second_max);
    writeln!(f, "  remembers {max} connections a worker of each IP version")?;
    writeln!(f, "  at most {new_max} new ones a worker and second")?;
    let times = balancer.timeouts;
    let (opening, established) = (times.tcp_opening_s, times.tcp_established_s);
    let (closing, udp, other) = (times.tcp_closing_s, times.udp_s, times.other_s);
    writeln!(
        f,
        "  after their last packets for: TCP opening {opening} s, established {established} s, \
         closing {closing} s; UDP {udp} s; others {other} s"
    )
}

fn write_limits(f: &mut Formatter<'_>, limits: &Limits) -> fmt::Result {
    if let Some(max) = limits.service_max {
        writeln!(f, "limits: {max} new connections a second to each service")?;
    }
    if let Some(max) = limits.source_max {
        let (v4, v6) = (limits.source_prefix_v4, limits.source_prefix_v6);
        writeln!(
            f,
            "limits: {max} new connections a second from each /{v4} of IPv4, /{v6} of IPv6"
        )?;
    }
    Ok(())
}

/// Minimum size of Maglev tables for a note about it, in bytes.
const MAGLEV_BYTES_NOTED: usize = 1 << 30;

fn write_memory(f: &mut Formatter<'_>, slots: u32, memory: Memory) -> fmt::Result {
    let (each, all) = (memory.connections_bytes_per_worker, memory.connections_bytes);
    writeln!(f, "memory: connections {} a worker, {} in all", bytes(each), bytes(all))?;
    let count = memory.maglev_tables;
    let maglev = bytes(memory.maglev_bytes);
    let tables = if count == 1 { "table" } else { "tables" };
    writeln!(f, "  {count} Maglev {tables} of up to {slots} slots {maglev}")?;
    let wanted = memory.maglev_slots_wanted;
    if memory.maglev_bytes > MAGLEV_BYTES_NOTED && wanted < slots {
        writeln!(f, "  note: maglev_slots = {wanted} would do for these backends, in less memory")?;
    }
    writeln!(f, "  rules {}", bytes(memory.rules_bytes))
}

fn write_service(f: &mut Formatter<'_>, service: &ServiceSpec, config: &Config) -> fmt::Result {
    let ServiceSpec { name, address, protocol, ports, scheduler, .. } = service;
    write!(f, "service {name}: {address}, protocol {protocol}, ports {ports}, {scheduler}")?;
    match (scheduler, service.persistence_s) {
        (Scheduler::Source, 1..) => writeln!(f, ", kept {} s", service.persistence_s)?,
        _ => writeln!(f)?,
    }
    if let Some(max) = service.new_connections_per_second_max {
        writeln!(f, "  at most {max} new connections a second")?;
    }
    if let Some(health) = config.health.get(name) {
        write_health(f, health)?;
        writeln!(f, "  when all backends are down: {}", service.all_down)?;
    }
    for (Backend { address, weight }, share) in shares(service, config.balancer.maglev_slots) {
        let percent = share * 100.0;
        writeln!(f, "  backend {address}: weight {weight}, {percent:.1} % of flows")?;
    }
    Ok(())
}

fn write_health(f: &mut Formatter<'_>, health: &Health) -> fmt::Result {
    let Health { probe, port, interval_ms, timeout_ms, rise, fall, via } = health;
    write!(f, "  health: {probe}")?;
    if *port != 0 {
        write!(f, " to port {port}")?;
    }
    if let Probe::Http(http) | Probe::Https(http, _) = probe {
        write!(f, ", GET {} answered {}", http.path, http.expect_status)?;
    }
    match probe {
        Probe::Https(_, Trust::CaFile(path)) => {
            write!(f, ", trusting {}", excerpt(&path.to_string_lossy()))?
        }
        Probe::Https(_, Trust::Insecure) => write!(f, ", trusting anybody")?,
        _ => {}
    }
    match via {
        Via::Direct => {}
        Via::Tunnel(path) => write!(f, ", through the tunnel from {}", path.probe_source)?,
        Via::Both(path) => {
            write!(f, ", directly and through the tunnel from {}", path.probe_source)?;
        }
    }
    writeln!(
        f,
        ", every {interval_ms} ms within {timeout_ms} ms, up after {rise}, down after {fall}"
    )
}

fn listed<T: Display>(items: &[T]) -> String {
    if items.is_empty() {
        return "nobody".to_owned();
    }
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// A number of bytes, in a suitable unit.
fn bytes(count: usize) -> String {
    let kib = count as f64 / 1024.0;
    match count {
        0..1024 => format!("{count} bytes"),
        1024..1_048_576 => format!("{kib:.1} KiB"),
        _ => format!("{:.1} MiB", kib / 1024.0),
    }
}
