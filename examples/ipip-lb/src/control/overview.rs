//! Telling how things are: the balancer as a whole, its services, its backends.

use super::Operator;
use crate::config::{Backend, Config, Health, Service};
use crate::counts::TargetSums;
use crate::health::State;
use crate::services::{Removal, Target, TargetName};
use hotloop::engine::Control;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::IpAddr;

impl Operator {
    /// The balancer as a whole.
    pub(super) fn overview(&self, control: &Control<'_>) -> Value {
        let Config { services, .. } = &*self.config;
        json!({
            "engine": hotloop_ops::status(control, self.since),
            "balancer": self.summary().sums_json(),
            "config": self.source.config.display().to_string(),
            "services": services.len(),
            "backends": services.iter().map(|it| it.backends.len()).sum::<usize>(),
            "down": self.standing.down.len(),
            "announced": self.announcer.as_ref().map(|announcer| {
                announcer.installed().map(|vip| vip.to_string()).collect::<Vec<_>>()
            }),
            "tables": self.summary().tables_json(),
            "is_loading": self.publication.is_loading(),
            "reloads": self.reload_count,
            "reload_failure": self.reload_failure,
        })
    }

    /// Every service.
    pub(super) fn services(&self) -> Value {
        let targets = self.targets();
        let services = self.config.services.iter().map(|service| {
            let members = service
                .backends
                .iter()
                .filter_map(|it| targets.get(&(service.name.as_str(), it.address)).copied());
            let members: Vec<_> = members.collect();
            let sum =
                |part: fn(&TargetSums) -> u64| members.iter().map(|it| part(&it.1)).sum::<u64>();
            json!({
                "name": service.name,
                "address": service.address.to_string(),
                "protocol": service.protocol.to_string(),
                "ports": service.ports.to_string(),
                "scheduler": service.scheduler.to_string(),
                "backends": members.len(),
                "up": members.iter().filter(|(target, _)| target.is_up).count(),
                "usable": members.iter().filter(|(target, _)| target.is_usable).count(),
                "packets": sum(|it| it.packets),
                "connections": sum(|it| it.connections),
            })
        });
        services.collect()
    }

    /// Every backend of every service.
    pub(super) fn backends(&self) -> Value {
        let targets = self.targets();
        let states = self.probes.states();
        let states: HashMap<_, _> =
            states.iter().map(|state| ((state.address, &state.health), state)).collect();
        let summary = self.summary();
        let (removed, _) = summary.removed();
        let mut rows = Vec::new();
        for service in &self.config.services {
            for backend in &service.backends {
                let target = targets.get(&(service.name.as_str(), backend.address)).copied();
                rows.push(self.backend(service, backend, target, &states, &removed));
            }
        }
        Value::Array(rows)
    }

    fn backend(
        &self,
        service: &Service,
        backend: &Backend,
        target: Option<(&Target, TargetSums)>,
        states: &HashMap<(IpAddr, &Health), &State>,
        removed: &HashMap<&TargetName, u64>,
    ) -> Value {
        let name = TargetName { service: service.name.clone(), address: backend.address };
        let probe = service.health.as_ref().and_then(|it| states.get(&(backend.address, it)));
        let last = probe.and_then(|state| state.last.as_ref()).map(|last| match last {
            Ok(took) => format!("passed in {:.1} ms", took.as_secs_f64() * 1e3),
            Err(why) => why.clone(),
        });
        json!({
            "service": service.name,
            "address": backend.address.to_string(),
            "weight": target.map_or(0, |(target, _)| target.weight),
            "configured_weight": backend.weight,
            "state": match (self.standing.removed.get(&name), target) {
                (Some(Removal::Flush), _) => "flushed",
                (Some(Removal::Rebalance), _) | (None, None) => "removed",
                (None, Some((target, _))) if !target.is_up => "down",
                (None, Some((target, _))) if target.weight == 0 => "drained",
                (None, Some(_)) => "up",
            },
            "is_probed": probe.is_some(),
            "probe": last,
            "packets": target.map_or(0, |(_, sums)| sums.packets)
                + removed.get(&name).copied().unwrap_or(0),
            "connections": target.map_or(0, |(_, sums)| sums.connections),
        })
    }

    /// The targets by service and address, with what the workers counted of each.
    fn targets(&self) -> HashMap<(&str, IpAddr), (&Target, TargetSums)> {
        let (table, summary) = (self.table(), self.summary());
        let mut targets = HashMap::new();
        for (slot, target) in table.targets().iter().enumerate() {
            let Some((service, id)) = target.service.zip(target.id(slot)) else { continue };
            let service = &*table.all()[service as usize].name;
            targets.insert((service, target.address()), (target, summary.target(id)));
        }
        targets
    }
}
