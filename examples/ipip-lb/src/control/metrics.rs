//! The balancer's own metrics. Reads all owners, and changes none.
//!
//! There can be 131,072 services, and Prometheus should not keep a series for each backend of each
//! of them. The first `metrics.backends_max` backends, in the order of the services and with removed
//! ones last, have series of their own. Packets to a service's other backends are one series, whose
//! backend is [`OTHERS`]. Services after the first [`NAMED_SERVICES_MAX`] share one series. So sums
//! are complete. Of the first `metrics.services_max` services there are the numbers of backends.

use super::Control;
use crate::config::MetricsLimits;
use hotloop_balancer::counts::TargetSums;
use hotloop_balancer::services::TargetName;
use hotloop_ops::{Metric, Scrape};
use std::collections::HashMap;
use std::time::Instant;

/// Maximum number of services with series for their packets, unless `metrics.services_max` is less.
const NAMED_SERVICES_MAX: usize = 1000;

/// Maximum number of VIPs with series of their own.
const NAMED_VIPS_MAX: usize = 1000;

/// The label of everything without a series of its own. No service has such a name.
const OTHERS: &str = "(others)";

const CONNECTIONS: Metric = Metric::gauge(
    "ipip_lb_connections",
    &["worker", "ip"],
    "Connections that each worker remembers, by IP version.",
);
const CONNECTIONS_MAX: Metric = Metric::gauge(
    "ipip_lb_connections_max",
    &["worker", "ip"],
    "Connections that each worker can remember, by IP version.",
);
const ADMITTED: Metric =
    Metric::counter("ipip_lb_connections_admitted_total", &[], "Connections that were new.");
const STATELESS: Metric = Metric::counter(
    "ipip_lb_connections_stateless_total",
    &[],
    "New connections that were balanced without being remembered.",
);
const TO_CLIENTS: Metric = Metric::counter(
    "ipip_lb_packets_to_clients_total",
    &[],
    "Packets that were unwrapped and sent on to clients.",
);
const REPLIES_KNOWN: Metric = Metric::counter(
    "ipip_lb_packets_replies_known_total",
    &[],
    "Packets to clients that are replies of connections which are remembered.",
);
const ANSWERED: Metric =
    Metric::counter("ipip_lb_packets_answered_total", &[], "Packets that were answered by ICMP.");
const SERVICES: Metric = Metric::gauge("ipip_lb_services", &[], "Services configured.");
const DOWN: Metric = Metric::gauge(
    "ipip_lb_backends_down",
    &[],
    "Backends that count as down, one for each way of probing.",
);
const DOWN_HERE: Metric = Metric::gauge(
    "ipip_lb_backends_down_here",
    &[],
    "Backends that this node's own health checks find down, one for each way of probing.",
);
const HEALTH_NODES: Metric = Metric::gauge(
    "ipip_lb_health_nodes",
    &[],
    "Nodes that decide together which backends are down: 1 where this node decides alone.",
);
const RELOADS: Metric =
    Metric::counter("ipip_lb_reloads_total", &[], "Configurations taken over since the start.");
const RELOAD_FAILED: Metric =
    Metric::gauge("ipip_lb_reload_failed", &[], "1 where the last reload failed.");
const OPERATOR_FILE_FAILED: Metric = Metric::gauge(
    "ipip_lb_operator_file_failed",
    &[],
    "1 where what operators have changed could not be written to balancer.operator_file.",
);
const STORE_REVISION: Metric = Metric::gauge(
    "ipip_lb_store_revision",
    &[],
    "The revision of the store's configuration that is in force.",
);
const STORE_UNREAD: Metric = Metric::gauge(
    "ipip_lb_store_unread_seconds",
    &[],
    "For how long the store could not be read: 0 where it can.",
);
const STORE_PENDING: Metric = Metric::gauge(
    "ipip_lb_store_pending",
    &[],
    "1 where the store has another revision than is in force, as it was refused or is under way.",
);
const BACKEND_PACKETS: Metric = Metric::counter(
    "ipip_lb_backend_packets_total",
    &["service", "backend"],
    "Packets sent to a backend of a service.",
);
const BACKEND_CONNECTIONS: Metric = Metric::gauge(
    "ipip_lb_backend_connections",
    &["service", "backend"],
    "Connections remembered of a backend of a service.",
);
const BACKEND_UP: Metric = Metric::gauge(
    "ipip_lb_backend_up",
    &["service", "backend"],
    "1 where a backend is not known to be down.",
);
const BACKEND_WEIGHT: Metric = Metric::gauge(
    "ipip_lb_backend_weight",
    &["service", "backend"],
    "The weight of a backend: 0 where it is drained.",
);

const PORT_INFO: Metric = Metric::gauge(
    "ipip_lb_port_info",
    &["port", "name"],
    "The name in the configuration of each port of the metrics hotloop_port_*.",
);
const SERVICE_BACKENDS: Metric =
    Metric::gauge("ipip_lb_service_backends", &["service"], "Backends of a service.");
const SERVICE_BACKENDS_UP: Metric = Metric::gauge(
    "ipip_lb_service_backends_up",
    &["service"],
    "Backends of a service that are not known to be down.",
);
const VIP_ANNOUNCED: Metric =
    Metric::gauge("ipip_lb_vip_announced", &["vip"], "1 while a VIP is announced.");
const VIP_WITHHELD: Metric = Metric::gauge(
    "ipip_lb_vip_withheld",
    &["vip", "reason"],
    "1 while a VIP is not announced, for this reason.",
);

impl Control {
    /// Adds the balancer's metrics.
    pub(super) fn add_metrics(&self, scrape: &mut Scrape) {
        for (worker, counts) in self.publisher.counts.iter().enumerate() {
            let worker = worker.to_string();
            for (count, ip) in counts.connections.iter().zip(["4", "6"]) {
                scrape.add(&CONNECTIONS, &[&worker, ip], count.count());
                let max = self.publisher.config.balancer.connections_max;
                scrape.add(&CONNECTIONS_MAX, &[&worker, ip], max as u64);
            }
            scrape.add(&ADMITTED, &[], counts.admitted.count());
            scrape.add(&STATELESS, &[], counts.stateless.count());
            scrape.add(&TO_CLIENTS, &[], counts.to_clients.count());
            scrape.add(&REPLIES_KNOWN, &[], counts.replies_known.count());
            scrape.add(&ANSWERED, &[], counts.answered.count());
        }
        scrape.add(&SERVICES, &[], self.publisher.config.services.len() as u64);
        scrape.add(&DOWN, &[], self.members.overrides.down.len() as u64);
        scrape.add(&DOWN_HERE, &[], self.members.findings.own_count() as u64);
        scrape.add(&HEALTH_NODES, &[], self.members.findings.node_count() as u64);
        scrape.add(&RELOADS, &[], self.publisher.reload_count);
        scrape.add(&RELOAD_FAILED, &[], self.publisher.reload_failure.is_some().into());
        if let Some(keeper) = &self.members.keeper {
            scrape.add(&OPERATOR_FILE_FAILED, &[], keeper.failure().is_some().into());
        }
        if let Some(store) = &self.link.store {
            scrape.add(&STORE_REVISION, &[], u64::try_from(store.revision()).unwrap_or(0));
            scrape.add(&STORE_UNREAD, &[], store.unread_s().unwrap_or(0));
            scrape.add(&STORE_PENDING, &[], store.is_pending().into());
        }
        if let Some(node) = &self.link.node {
            node.add_metrics(&self.publisher.table, scrape);
        }
        for [port, name] in &self.port_names {
            scrape.add(&PORT_INFO, &[port, name], 1);
        }
        self.add_vips(scrape);
        self.add_services(scrape);
        self.add_backends(scrape);
    }

    fn add_vips(&self, scrape: &mut Scrape) {
        let Some(announcer) = &self.presence.announcer else { return };
        for (index, (vip, withheld)) in announcer.withheld(Instant::now()).enumerate() {
            let vip = if index < NAMED_VIPS_MAX { vip.to_string() } else { OTHERS.to_owned() };
            scrape.add(&VIP_ANNOUNCED, &[&vip], withheld.is_none().into());
            if let Some(reason) = withheld {
                scrape.add(&VIP_WITHHELD, &[&vip, reason.word()], 1);
            }
        }
    }

    /// Adds the numbers of each service's backends.
    fn add_services(&self, scrape: &mut Scrape) {
        let services = self.publisher.table.all();
        let services = services.iter().take(self.publisher.config.metrics.services_max);
        let mut counts = vec![[0_u64; 2]; services.len()];
        for (service, _, target) in self.publisher.table.used_targets() {
            if let Some([all, up]) = counts.get_mut(service as usize) {
                *all += 1;
                *up += u64::from(target.is_up);
            }
        }
        for (service, [all, up]) in services.zip(counts) {
            scrape.add(&SERVICE_BACKENDS, &[&service.name], all);
            scrape.add(&SERVICE_BACKENDS_UP, &[&service.name], up);
        }
    }

    fn add_backends(&self, scrape: &mut Scrape) {
        let (table, summary) = (&self.publisher.table, self.summary());
        let services = table.all();
        let MetricsLimits { services_max, backends_max } = self.publisher.config.metrics;
        let named = &services[..services.len().min(services_max).min(NAMED_SERVICES_MAX)];
        let mut targets: Vec<_> = table.used_targets().collect();
        targets.sort_by_key(|(service, id, _)| (*service, id.slot()));
        let (mut removed, removed_others) = summary.removed();
        let mut named_count = 0;
        // Of each named service, and of all others together.
        let mut others = vec![None; named.len() + 1];
        let mut add_other = |service: usize, sums: TargetSums| {
            let other = others[service.min(named.len())].get_or_insert_with(TargetSums::default);
            other.packets += sums.packets;
            other.connections += sums.connections;
        };
        for (service, id, target) in targets {
            let service = service as usize;
            let mut sums = summary.target(id);
            if !removed.is_empty() {
                let name = TargetName::new(&services[service].name, target.address());
                sums.packets += removed.remove(&name).unwrap_or(0);
            }
            if service >= named.len() || named_count >= backends_max {
                add_other(service, sums);
                continue;
            }
            named_count += 1;
            let labels = [&*named[service].name, &target.address().to_string()];
            scrape.add(&BACKEND_PACKETS, &labels, sums.packets);
            scrape.add(&BACKEND_CONNECTIONS, &labels, sums.connections);
            scrape.add(&BACKEND_UP, &labels, target.is_up.into());
            scrape.add(&BACKEND_WEIGHT, &labels, target.weight.into());
        }
        let mut removed: Vec<_> = removed.into_iter().collect();
        removed.sort();
        let indices = named.iter().enumerate().map(|(index, service)| (&*service.name, index));
        let indices: HashMap<_, _> = indices.filter(|_| !removed.is_empty()).collect();
        for (name, packets) in removed {
            match indices.get(&*name.service) {
                Some(_) if named_count < backends_max => {
                    named_count += 1;
                    let labels = [&*name.service, &name.address.to_string()];
                    scrape.add(&BACKEND_PACKETS, &labels, packets);
                }
                service => {
                    let service = service.copied().unwrap_or(named.len());
                    add_other(service, TargetSums { packets, connections: 0 });
                }
            }
        }
        if removed_others > 0 {
            add_other(named.len(), TargetSums { packets: removed_others, connections: 0 });
        }
        let names = named.iter().map(|service| &*service.name).chain([OTHERS]);
        for (service, sums) in names.zip(others) {
            if let Some(TargetSums { packets, connections }) = sums {
                scrape.add(&BACKEND_PACKETS, &[service, OTHERS], packets);
                scrape.add(&BACKEND_CONNECTIONS, &[service, OTHERS], connections);
            }
        }
    }
}
