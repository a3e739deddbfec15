//! Changing what runs: draining, weights, removing; and what a reload can't change.

use super::Operator;
use super::publication::{Building, Change, Plans, Removed, Weighing};
use crate::config::Config;
use crate::request::{Backend, DrainEnd};
use crate::until::Until;
use hotloop_balancer::services::{Removal, TargetName};
use hotloop_ops::Reply;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

impl Operator {
    /// Gives a backend no new connections: for good, or until it is removed.
    pub(super) fn drain(&mut self, backend: &Backend, end: &DrainEnd) -> Result<Reply, String> {
        let (now, names) = (Instant::now(), self.named(backend)?);
        let until = Until::of(end, now);
        let draining = until.map(|until| until.to_json(now));
        let answer = json!({ "changed": names.len(), "weight": 0, "draining": draining });
        let until = until.map(|until| (until, now));
        Ok(self.weigh(names, (0, until, "an operator drains it for good"), answer))
    }

    pub(super) fn set_weight(&mut self, backend: &Backend, weight: u32) -> Result<Reply, String> {
        let names = self.named(backend)?;
        let answer = json!({ "changed": names.len(), "weight": weight });
        Ok(self.weigh(names, (weight, None, "an operator has changed its weight"), answer))
    }

    /// Gives these a weight in their turn, and the answer once workers have it.
    fn weigh(
        &mut self,
        names: Vec<TargetName>,
        (weight, until, why): (u32, Option<(Until, Instant)>, &'static str),
        answer: Value,
    ) -> Reply {
        let (answerer, reply) = Reply::later();
        let weighing = Weighing { names, weight, until, why, answerer, answer };
        self.publication.unbuilt.push_back(Change::Weights(weighing));
        reply
    }

    /// The plan for a service table with these weights.
    pub(super) fn plans_with(&self, all: &[Weighing]) -> Plans {
        let mut overrides = Arc::clone(&self.overrides);
        for Weighing { names, weight, .. } in all {
            let weights = names.iter().map(|name| (name.clone(), *weight));
            Arc::make_mut(&mut overrides).weights.extend(weights);
        }
        Plans { overrides, like: Some(Arc::clone(&self.table)), ..self.plans_without([]) }
    }

    /// These weights are in force, but for publishing them.
    pub(super) fn weighed(&mut self, all: Vec<Weighing>) {
        for Weighing { names, weight, until, why, answerer, answer } in all {
            for name in &names {
                match until {
                    Some((until, since)) => self.drains.plan(name.clone(), until, since),
                    None => self.drains.cancel(name, why),
                }
            }
            let weights = names.into_iter().map(|name| (name, weight));
            Arc::make_mut(&mut self.overrides).weights.extend(weights);
            self.publication.unrefreshed.push((answerer, answer));
        }
    }

    /// Takes a backend out of its services.
    pub(super) fn remove(&mut self, backend: &Backend, flush: bool) -> Reply {
        let (answerer, reply) = Reply::later();
        let removal = if flush { Removal::Flush } else { Removal::Rebalance };
        let change = Change::Removal(backend.clone(), removal, answerer);
        self.publication.unbuilt.push_back(change);
        reply
    }

    /// The plan for a service table without these backends, and their names.
    pub(super) fn plan_removal(
        &self,
        backend: &Backend,
        removal: Removal,
    ) -> Result<(Plans, Removed), String> {
        let names: Vec<_> = self.named(backend)?.into_iter().map(|name| (name, removal)).collect();
        let answer = json!({ "removed": names.len(), "flush": removal == Removal::Flush });
        Ok((self.plans_without(names.iter().cloned()), Removed { names, answer }))
    }

    /// The plan for a service table without these.
    pub(super) fn plans_without(
        &self,
        names: impl IntoIterator<Item = (TargetName, Removal)>,
    ) -> Plans {
        let mut overrides = Arc::clone(&self.overrides);
        Arc::make_mut(&mut overrides).removed.extend(names);
        let (config, builder) = (Arc::clone(&self.config), Arc::clone(&self.publication.built_by));
        let is_settled = self.removed_counts.is_settled();
        Plans { config, overrides, is_settled, old: None, like: None, builder }
    }

    /// The backends meant: those of an address, in all services or in the one that is named.
    fn named(&self, backend: &Backend) -> Result<Vec<TargetName>, String> {
        let Backend { backend: text, service } = backend;
        let address: IpAddr =
            text.parse().map_err(|_| format!("{text:?} is not a backend's address"))?;
        let service = service.as_ref();
        let services = &self.config.services;
        if let Some(name) = service
            && !services.iter().any(|it| it.name == *name)
        {
            return Err(format!("there is no service {name:?}; ctl services lists them"));
        }
        let meant = services.iter().filter(|it| service.is_none_or(|name| it.name == *name));
        let meant = meant.filter(|it| it.backends.iter().any(|it| it.address == address));
        let names = meant.map(|it| TargetName { service: it.name.clone(), address });
        let names: Vec<_> = names.filter(|name| !self.is_removed(name)).collect();
        if names.is_empty() {
            return Err(format!("{address} is no backend there; ctl backends lists them"));
        }
        Ok(names)
    }

    /// Whether a backend is out, or on its way out: a service table without it is being built.
    fn is_removed(&self, name: &TargetName) -> bool {
        let preparing = self.publication.preparing.as_ref().map(|it| &it.building);
        let is_leaving = match self.publication.building.as_ref().or(preparing) {
            Some(Building::Removal(removed, _)) => removed.names.iter().any(|it| it.0 == *name),
            Some(Building::Drained(drained)) => drained.iter().any(|it| it.name == *name),
            Some(Building::Configuration(..) | Building::Weights(_) | Building::Proposal(_))
            | None => false,
        };
        is_leaving || self.overrides.removed.contains_key(name)
    }
}

/// That the new configuration differs in nothing that a run keeps from its start.
pub(super) fn check_same_run(old: &Config, new: &Config) -> Result<(), String> {
    let same_ports = old.ports.len() == new.ports.len()
        && old.ports.iter().zip(&new.ports).all(|(old, new)| {
            let (sides, hops) = ((old.side, new.side), (old.next_hop, new.next_hop));
            (&old.name, &old.device, old.accept_any_mac, old.settings)
                == (&new.name, &new.device, new.accept_any_mac, new.settings)
                && sides.0 == sides.1
                && hops.0 == hops.1
                && (&old.kernel_interface, old.takeover) == (&new.kernel_interface, new.takeover)
                && old.kernel_peers == new.kernel_peers
        });
    let what = if old.engine != new.engine {
        "[engine]"
    } else if !same_ports {
        "[[port]]"
    } else if old.announce != new.announce {
        "[announce]"
    } else if (&old.cluster, &old.store, &old.operator_file)
        != (&new.cluster, &new.store, &new.operator_file)
    {
        "[cluster]"
    } else if old.balancer.connections_max != new.balancer.connections_max {
        "balancer.connections_max"
    } else if old.balancer.hash_key != new.balancer.hash_key {
        "balancer.hash_key"
    } else if old.balancer.probe_sources.is_empty() != new.balancer.probe_sources.is_empty() {
        "whether there is a health.probe_source"
    } else {
        return Ok(());
    };
    Err(format!("{what} can't change while the balancer runs: restart it, or change that back"))
}
