//! Notes on settings that work, but may surprise.

use super::shares;
use crate::config::{Announced, Config};
use hotloop::packet::prefix::Prefix;
use hotloop_balancer::maglev::slots_for;
use hotloop_balancer::rules::Rules;
use hotloop_balancer::spec::{AllDown, Scheduler, ServiceSpec};
use std::collections::HashMap;

/// Notes on settings that may surprise.
#[derive(Debug)]
pub struct Notes {
    /// Notes about each service, by its index.
    services: HashMap<usize, Vec<String>>,
    /// Notes about no service in particular.
    general: Vec<String>,
}

impl Notes {
    pub fn of(config: &Config, rules: &Rules) -> Self {
        let mut notes: HashMap<usize, Vec<String>> = HashMap::new();
        for index in rules.hidden(config.services.len()) {
            let note = "no packet comes here: other services of its address take all of its ports";
            notes.entry(index).or_default().push(note.to_owned());
        }
        for (index, service) in config.services.iter().enumerate() {
            let more = about_choice(service, config);
            let more = more.into_iter().chain(about_backends(service, config, rules));
            let more = more.chain(about_address(service, config));
            let more = more.chain(about_nodes(service, config));
            for note in more {
                notes.entry(index).or_default().push(note);
            }
        }
        let general = about_peers(config).into_iter().chain(about_all_down(config)).collect();
        Self { services: notes, general }
    }

    /// The notes about no service in particular.
    pub fn general(&self) -> &[String] {
        &self.general
    }

    /// The notes about the service at `index`.
    pub fn about(&self, index: usize) -> &[String] {
        self.services.get(&index).map_or(&[], Vec::as_slice)
    }
}

/// Notes on the addresses that may send tunnels.
fn about_peers(config: &Config) -> Vec<String> {
    let all = config.balancer.tunnel_peers.iter().filter(|peer| peer.len() == 0);
    let note = |peer: &Prefix| {
        format!(
            "tunnel_peers has {peer}: tunnels from anybody are unwrapped, so that anybody can send \
             packets in anybody's name past filters of source addresses; name the peers"
        )
    };
    all.map(note).collect()
}

/// A note that VIPs are withdrawn although their services would forward to backends that are down.
fn about_all_down(config: &Config) -> Option<String> {
    let announce = config.announce.as_ref()?;
    let services = config.services.iter().filter(|service| {
        config.health.contains_key(&service.name)
            && service.all_down == AllDown::Forward
            && service.address.is_host()
    });
    let mut services = services.filter(|_| announce.vips == Announced::Ready);
    let (first, more_count) = (services.next()?, services.count());
    let more = if more_count > 0 { format!(" and {more_count} more") } else { String::new() };
    Some(format!(
        "announce.vips = \"ready\" withdraws a VIP when all of its backends are down, although \
         all_down = \"forward\" then forwards to all of them (service {}{more}): where the probe may be \
         what is wrong, write announce.vips = \"always\"; otherwise, all_down = \"drop\"",
        first.name
    ))
}

/// A note about a service's address.
fn about_address(service: &ServiceSpec, config: &Config) -> Option<String> {
    let balancer = &config.balancer;
    let ends = balancer.decapsulate.iter().copied().map(|address| ("decapsulate", address));
    let ends = ends.filter(|(_, own)| service.address.contains(*own));
    let source = |own: &Prefix| {
        service.address.contains(own.network()) || own.contains(service.address.network())
    };
    let sources = balancer.sources().filter(source).map(|own| ("source", own.to_string()));
    let own = ends.map(|(key, own)| (key, own.to_string())).chain(sources);
    let own: Vec<_> = own.map(|(key, own)| format!("{own} ({key})")).collect();
    (!own.is_empty()).then(|| {
        format!(
            "its address holds the balancer's own {}: what comes there and is no tunnel goes to a \
             backend, ICMP errors about the balancer's tunnels among it",
            own.join(", ")
        )
    })
}

/// A note about connections that the other nodes of a cluster must learn of.
fn about_nodes(service: &ServiceSpec, config: &Config) -> Option<String> {
    config.cluster.as_ref()?;
    match service.scheduler {
        Scheduler::RoundRobin | Scheduler::LeastConnections if service.backends.len() > 1 => Some(
            "nearly every connection is an exception, of which all nodes in cluster.peers hear: \
                 this scheduler goes by what a node has seen; with maglev, all nodes choose alike"
                .to_owned(),
        ),
        Scheduler::Source if service.persistence_s > 0 => Some(
            "which client keeps which backend by persistence_s is not known to the nodes in \
             cluster.peers: a client's next connection may go to another backend by another node"
                .to_owned(),
        ),
        _ => None,
    }
}

/// Notes about the choice of backends.
fn about_choice(service: &ServiceSpec, config: &Config) -> Vec<String> {
    let slot_count = config.balancer.maglev_slots;
    let mut notes = Vec::new();
    let usable_count = service.backends.iter().filter(|backend| backend.weight > 0).count();
    if usable_count == 0 {
        let note = "no backend of weight above 0: new flows are dropped as no_backend";
        notes.push(note.to_owned());
    }
    let slots_wanted = slots_for(usable_count);
    if usable_count > 1 && slot_count < slots_wanted {
        notes.push(format!(
            "{slot_count} Maglev slots are few for {usable_count} backends, whose shares may be off \
             by some per cent; maglev_slots = {slots_wanted} mends that"
        ));
    }
    let by_client = service.scheduler == Scheduler::Source;
    if by_client && service.persistence_s == 0 && usable_count > 1 {
        let note = "without persistence_s, a change of the backends or of their health moves \
                    clients that have no connection just then";
        notes.push(note.to_owned());
    }
    if !config.health.contains_key(&service.name) && service.all_down == AllDown::Drop {
        notes.push("all_down says nothing: without health no backend is ever down".to_owned());
    }
    notes
}

fn about_backends(service: &ServiceSpec, config: &Config, rules: &Rules) -> Vec<String> {
    let mut notes = Vec::new();
    for (backend, share) in shares(service, config.balancer.maglev_slots) {
        let address = backend.address;
        if backend.weight > 0 && share == 0.0 {
            notes.push(format!(
                "{address} gets no flow: its weight is too small beside the others'"
            ));
        }
        // A whole prefix may well contain the backends; this is about single addresses.
        let vip = rules.any_of(address).map(|index| &config.services[index]);
        if let Some(vip) = vip.filter(|vip| vip.address.is_host()) {
            let name = &vip.name;
            notes.push(format!(
                "{address} is service {name}'s address too: its tunnels must not come back to this \
                 balancer"
            ));
        }
    }
    notes
}
