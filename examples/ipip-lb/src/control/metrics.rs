//! The balancer's own metrics. Reads all owners, and changes none.
//!
//! There can be 131,072 services, and Prometheus should not keep a series for each backend of each
//! of them. The first [`NAMED_BACKENDS_MAX`] backends, in the order of the services and with
//! removed ones last, have series of their own. Packets to a service's other backends are one
//! series, whose backend is [`OTHERS`]. Services after the first [`NAMED_SERVICES_MAX`] share one
//! series. So sums are complete, and a metric has at most 3,001 series.

use super::Control;
use hotloop_balancer::services::TargetName;
use hotloop_ops::{Metric, Scrape};
use std::collections::HashSet;

/// Maximum number of backends with series of their own.
const NAMED_BACKENDS_MAX: usize = 2000;

/// Maximum number of services with series of their own.
const NAMED_SERVICES_MAX: usize = 1000;

/// The label of everything without a series of its own. No service has such a name.
const OTHERS: &str = "(others)";

const CONNECTIONS: Metric =
    Metric::gauge("ipip_lb_connections", &["worker"], "Connections that each worker remembers.");
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

impl Control {
    /// Adds the balancer's metrics.
    pub(super) fn add_metrics(&self, scrape: &mut Scrape) {
        for (worker, counts) in self.publisher.counts.iter().enumerate() {
            scrape.add(&CONNECTIONS, &[&worker.to_string()], counts.connections.count());
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
        self.add_backends(scrape);
    }

    fn add_backends(&self, scrape: &mut Scrape) {
        let (table, summary) = (&self.publisher.table, self.summary());
        let services = table.all();
        let mut targets: Vec<_> = table.used_targets().collect();
        targets.sort_by_key(|(service, id, _)| (*service, id.slot()));
        let (mut removed, others) = summary.removed();
        let mut named_count = 0;
        for (service, id, target) in targets {
            let name = TargetName::new(&services[service as usize].name, target.address());
            let (sums, before) = (summary.target(id), removed.remove(&name).unwrap_or(0));
            let is_service_named = (service as usize) < NAMED_SERVICES_MAX;
            let is_named = is_service_named && named_count < NAMED_BACKENDS_MAX;
            named_count += usize::from(is_named);
            let (service, address) = (&*name.service, name.address.to_string());
            let labels = labels(is_service_named.then_some(service), is_named.then_some(&address));
            scrape.add(&BACKEND_PACKETS, &labels, sums.packets + before);
            scrape.add(&BACKEND_CONNECTIONS, &labels, sums.connections);
            if is_named {
                scrape.add(&BACKEND_UP, &labels, target.is_up.into());
                scrape.add(&BACKEND_WEIGHT, &labels, target.weight.into());
            }
        }
        let named: HashSet<_> =
            services.iter().take(NAMED_SERVICES_MAX).map(|service| &*service.name).collect();
        let mut removed: Vec<_> = removed.into_iter().collect();
        removed.sort();
        for (name, packets) in removed {
            let service = named.get(&*name.service).copied();
            let is_named = service.is_some() && named_count < NAMED_BACKENDS_MAX;
            named_count += usize::from(is_named);
            let address = name.address.to_string();
            scrape.add(&BACKEND_PACKETS, &labels(service, is_named.then_some(&address)), packets);
        }
        if others > 0 {
            scrape.add(&BACKEND_PACKETS, &labels(None, None), others);
        }
    }
}

/// The labels of a service and a backend; `None` for one without a series of its own.
fn labels<'a>(service: Option<&'a str>, backend: Option<&'a String>) -> [&'a str; 2] {
    [service.unwrap_or(OTHERS), backend.map_or(OTHERS, String::as_str)]
}
