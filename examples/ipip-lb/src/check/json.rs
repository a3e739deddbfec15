//! A configuration for programs.

use super::notes::Notes;
use super::{Memory, Understood, shares};
use crate::config::{Config, Port};
use hotloop::packet::prefix::Prefix;
use hotloop_balancer::rules::Rules;
use hotloop_balancer::spec::{Balancer, Limits, ServiceSpec};
use hotloop_cluster::settings::{Cluster, ClusterPeer, Security, Store};
use hotloop_health::settings::{Health, Probe, Trust};
use hotloop_kernel::PuntPeer;
use serde_json::{Value, json};
use std::net::IpAddr;

impl Understood<'_> {
    /// The configuration for programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let Config {
            engine,
            balancer,
            limits,
            ports,
            services,
            health: _,
            metrics,
            nested_backends,
            announce,
            cluster,
            store,
            operator_file,
            quorum,
        } = self.0;
        let rules = Rules::new(services);
        let notes = Notes::of(self.0, &rules);
        let services = services.iter().enumerate();
        let services = services.map(|(index, spec)| service(spec, self.0, notes.about(index)));
        json!({
            "engine": engine,
            "balancer": self::balancer(balancer, nested_backends),
            "limits": self::limits(limits),
            "metrics": {
                "services_max": metrics.services_max,
                "backends_max": metrics.backends_max,
            },
            "announce": announce,
            "cluster": cluster.as_ref().map(self::cluster),
            "store": store.as_ref().map(self::store),
            "operator_file": operator_file,
            "quorum": quorum,
            "memory": Memory::of(self.0, &rules),
            "ports": ports.iter().map(port).collect::<Vec<_>>(),
            "services": services.collect::<Vec<_>>(),
            "notes": notes.general(),
        })
    }
}

/// The paths of keys are left out, because they are confidential.
fn cluster(cluster: &Cluster) -> Value {
    let peer = |peer: &ClusterPeer| json!({ "name": peer.name, "address": peer.address });
    json!({
        "node": cluster.node,
        "listen": cluster.listen,
        "peers": cluster.peers.iter().map(peer).collect::<Vec<_>>(),
        "trusted_network": cluster.security == Security::TrustedNetwork,
        "ready_timeout_s": cluster.ready_timeout_s,
        "prepare_ms_max": cluster.prepare_ms_max,
        "settle_s": cluster.settle_s,
    })
}

/// Of the files for TLS, only their presence is shown.
fn store(Store { access, node: _, copy }: &Store) -> Value {
    let tls = access.tls.as_ref();
    json!({
        "address": access.address.to_string(),
        "copy": copy,
        "has_tls": tls.is_some(),
        "has_certificate": tls.is_some_and(|tls| tls.certificate.is_some()),
        "user": tls.and_then(|tls| tls.user.as_ref()).map(|user| &user.name),
    })
}

fn balancer(balancer: &Balancer, nested_backends: &[IpAddr]) -> Value {
    let timeouts = balancer.timeouts;
    json!({
        "source_v4": balancer.source_v4.to_string(),
        "source_v6": balancer.source_v6.map(|source| source.to_string()),
        "has_hash_key": balancer.hash_key.is_some(),
        "nested_backends": nested_backends,
        "probe_source": balancer.probe_sources,
        "mtu": balancer.mtu,
        "decapsulate": balancer.decapsulate,
        "tunnel_peers": balancer.tunnel_peers.iter().map(Prefix::to_string).collect::<Vec<_>>(),
        "connections_max": balancer.connections_max,
        "icmp_echo": balancer.icmp_echo.to_string(),
        "clamp_mss": balancer.clamp_mss,
        "maglev_slots": balancer.maglev_slots,
        "new_connections_per_second_max": balancer.new_connections_per_second_max,
        "timeouts_s": {
            "tcp_opening": timeouts.tcp_opening_s,
            "tcp_established": timeouts.tcp_established_s,
            "tcp_closing": timeouts.tcp_closing_s,
            "udp": timeouts.udp_s,
            "other": timeouts.other_s,
        },
    })
}

/// The keys as they are configured.
fn limits(limits: &Limits) -> Value {
    json!({
        "service_new_connections_per_second_max": limits.service_max,
        "source_new_connections_per_second_max": limits.source_max,
        "source_prefix_v4": limits.source_prefix_v4,
        "source_prefix_v6": limits.source_prefix_v6,
    })
}

fn port(port: &Port) -> Value {
    json!({
        "name": port.name,
        "device": port.device,
        "next_hop": port.next_hop.to_string(),
        "side": port.side.to_string(),
        "accept_any_mac": port.accept_any_mac,
        "kernel_interface": port.kernel_interface,
        "kernel_peers": port.kernel_peers.iter().map(peer).collect::<Vec<_>>(),
        "takeover": port.takeover,
        "vlan": port.vlan,
        "rx_descriptors": port.settings.rx_descriptors,
        "tx_descriptors": port.settings.tx_descriptors,
        "mbufs": port.settings.mbufs,
        "rss": port.settings.rss_text(),
    })
}

fn peer(peer: &PuntPeer) -> Value {
    json!({ "address": peer.prefix.to_string(), "gtsm": peer.gtsm })
}

fn service(service: &ServiceSpec, config: &Config, notes: &[String]) -> Value {
    let backends = shares(service, config.balancer.maglev_slots);
    json!({
        "name": service.name,
        "address": service.address.to_string(),
        "protocol": service.protocol.to_string(),
        "ports": service.ports.to_string(),
        "scheduler": service.scheduler.to_string(),
        "persistence_s": service.persistence_s,
        "all_down": service.all_down.to_string(),
        "new_connections_per_second_max": service.new_connections_per_second_max,
        "backends": backends.into_iter().map(|(backend, share)| json!({
            "address": backend.address,
            "weight": backend.weight,
            "share": share,
        })).collect::<Vec<_>>(),
        "health": config.health.get(&service.name).map(health),
        "notes": notes,
    })
}

/// The keys as they are configured, without keys that the kind doesn't have.
fn health(health: &Health) -> Value {
    let mut keys = json!({
        "kind": health.probe.to_string(),
        "interval_ms": health.interval_ms,
        "timeout_ms": health.timeout_ms,
        "rise": health.rise,
        "fall": health.fall,
        "via": health.via.to_string(),
    });
    if health.port != 0 {
        keys["port"] = json!(health.port);
    }
    if let Probe::Http(http) | Probe::Https(http, _) = &health.probe {
        keys["path"] = json!(http.path);
        keys["expect_status"] = json!(http.expect_status);
    }
    match &health.probe {
        Probe::Https(_, Trust::CaFile(path)) => {
            keys["ca_file"] = json!(path.display().to_string());
        }
        Probe::Https(_, Trust::Insecure) => keys["insecure"] = json!(true),
        _ => {}
    }
    keys
}
