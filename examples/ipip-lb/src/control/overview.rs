//! The answers of `ctl status`, `services` and `backends`. Reads all owners, and changes none.

use super::config_store::ConfigStore;
use super::probe_verdict::verdict;
use super::{Control, Keeper};
use crate::answer::{self, Held, Probe, Probes, Service, Status};
use crate::config::Config;
use hotloop::engine;
use hotloop_balancer::counts::TargetSums;
use hotloop_balancer::services::{Removal, Target, TargetName};
use hotloop_balancer::spec::{Backend, ServiceSpec};
use hotloop_health::State;
use hotloop_health::settings::{Health, Via};
use hotloop_ops::Reply;
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::mpsc::TryRecvError;
use std::time::Instant;

impl Control {
    /// The answer of `ctl status`.
    pub(super) fn overview(&self, control: &engine::Control<'_>) -> Status {
        let Config { services, .. } = &*self.publisher.config;
        let announcer = self.presence.announcer.as_ref();
        let held = self.presence.held().map(|held| held.into_iter());
        Status {
            engine: hotloop_ops::status(control, self.since),
            balancer: self.summary().sums(),
            config: self.source.config.display().to_string(),
            services: services.len(),
            backends: services.iter().map(|service| service.backends.len()).sum(),
            down: self.down_count(),
            health: self.members.health(&self.publisher.config, &self.link),
            announced: announcer.map(|announcer| announcer.installed().collect()),
            held: held.map(|held| held.map(|(vip, left_s)| Held { vip, left_s }).collect()),
            leaving: self.presence.leave.map(|leave| leave.ending(Instant::now())),
            store: self.link.store.as_ref().map(ConfigStore::status),
            tables: self.summary().tables(),
            is_loading: self.publisher.publication.is_loading(),
            reloads: self.publisher.reload_count,
            reload_failure: self.publisher.reload_failure.clone(),
            operator_failure: self.members.keeper.as_ref().and_then(Keeper::failure).cloned(),
        }
    }

    /// Number of down backends. One that fails both of its probes counts once.
    fn down_count(&self) -> usize {
        let down = self.members.overrides.down.iter();
        let backends = down.map(|(address, health)| (address, health.port, &health.probe));
        backends.collect::<HashSet<_>>().len()
    }

    /// The rows of `ctl services`.
    pub(super) fn services(&self) -> Vec<Service> {
        let targets = self.targets();
        let held = self.presence.held().unwrap_or_default();
        let services = self.publisher.config.services.iter().map(|service| {
            let vip = service.address.is_host().then(|| service.address.network());
            let members = service.backends.iter().filter_map(|backend| {
                targets.get(&(service.name.as_str(), backend.address)).copied()
            });
            let members: Vec<_> = members.collect();
            let sums = members.iter().fold(TargetSums::default(), |sums, (_, more)| TargetSums {
                packets: sums.packets + more.packets,
                connections: sums.connections + more.connections,
            });
            Service {
                name: service.name.clone(),
                address: service.address.to_string(),
                protocol: service.protocol.to_string(),
                ports: service.ports.to_string(),
                scheduler: service.scheduler.to_string(),
                backends: members.len(),
                up: members.iter().filter(|(target, _)| target.is_up).count(),
                usable: members.iter().filter(|(target, _)| target.is_usable).count(),
                sums,
                held_s: vip.and_then(|vip| held.get(&vip)).copied(),
            }
        });
        services.collect()
    }

    /// The rows of `ctl backends`, once the probing thread has reported its states. That thread may
    /// be reading a certificate file from a disk that hangs.
    pub(super) fn backends(&mut self) -> Reply {
        let (answerer, reply) = Reply::later();
        self.members.backends_asked.push((self.members.probes.ask_states(), answerer));
        reply
    }

    /// Answers the clients that wait for the backends.
    pub(super) fn answer_backends(&mut self) {
        for (states, answerer) in std::mem::take(&mut self.members.backends_asked) {
            match states.try_recv() {
                Ok(states) => answerer.send(Ok(json!(self.backend_rows(&states)))),
                Err(TryRecvError::Empty) if answerer.is_awaited() => {
                    self.members.backends_asked.push((states, answerer));
                }
                Err(_) => {}
            }
        }
    }

    fn backend_rows(&self, states: &[State]) -> Vec<answer::Backend> {
        let targets = self.targets();
        let states: HashMap<_, _> =
            states.iter().map(|state| ((state.address, &state.health), state)).collect();
        let summary = self.summary();
        let (removed, _) = summary.removed();
        let mut rows = Vec::new();
        for service in &self.publisher.config.services {
            for backend in &service.backends {
                let target = targets.get(&(service.name.as_str(), backend.address)).copied();
                rows.push(self.backend(service, backend, target, &states, &removed));
            }
        }
        rows
    }

    fn backend(
        &self,
        service: &ServiceSpec,
        backend: &Backend,
        target: Option<(&Target, TargetSums)>,
        states: &HashMap<(IpAddr, &Health), &State>,
        removed: &HashMap<&TargetName, u64>,
    ) -> answer::Backend {
        let name = TargetName { service: service.name.clone(), address: backend.address };
        let ways = self.publisher.config.ways_of(&service.name);
        let probes: Vec<_> =
            ways.filter_map(|health| states.get(&(backend.address, &health)).copied()).collect();
        let state = match (self.members.overrides.removed.get(&name), target) {
            (Some(Removal::Flush), _) => "flushed",
            (Some(Removal::Rebalance), _) | (None, None) => "removed",
            (None, Some((target, _))) if !target.is_up => "down",
            (None, Some((target, _))) if target.weight == 0 => "drained",
            (None, Some(_)) => "up",
        };
        let mut sums = target.map(|(_, sums)| sums).unwrap_or_default();
        sums.packets += removed.get(&name).copied().unwrap_or(0);
        // The other backends, perhaps a hundred thousand, leave these out.
        let is_through_tunnel = probes.iter().any(|state| state.health.via != Via::Direct);
        let config = &self.publisher.config;
        answer::Backend {
            service: service.name.clone(),
            address: backend.address,
            weight: target.map_or(0, |(target, _)| target.weight),
            configured_weight: backend.weight,
            state: state.to_owned(),
            is_probed: !probes.is_empty(),
            probe: probe_text(&probes),
            sums,
            probes: is_through_tunnel.then(|| Probes {
                probes: probes.iter().map(|state| probe(state)).collect(),
                verdict: verdict_of(&probes),
            }),
            health: self.members.difference(service, backend.address, config, &self.link),
            draining: self.members.drains.of(&name).map(|until| until.ending(Instant::now())),
        }
    }

    /// The targets by service and address, with the workers' counts.
    fn targets(&self) -> HashMap<(&str, IpAddr), (&Target, TargetSums)> {
        let (table, summary) = (&self.publisher.table, self.summary());
        let targets = table.used_targets().map(|(service, id, target)| {
            let name = (&*table.all()[service as usize].name, target.address());
            (name, (target, summary.target(id)))
        });
        targets.collect()
    }
}

/// The outcome of the last probe; `None` before the first one.
fn last_text(state: &State) -> Option<String> {
    state.last.as_ref().map(|last| match last {
        Ok(took) => format!("passed in {:.1} ms", took.as_secs_f64() * 1e3),
        Err(why) => why.clone(),
    })
}

/// The outcomes of the last probes, with the route of each if there are several.
fn probe_text(probes: &[&State]) -> Option<String> {
    if let [state] = probes {
        return last_text(state);
    }
    let named = |state: &&State| Some(format!("{}: {}", state.health.via, last_text(state)?));
    let texts: Vec<_> = probes.iter().filter_map(named).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

fn probe(state: &State) -> Probe {
    Probe { via: state.health.via.to_string(), is_up: state.is_up, last: last_text(state) }
}

/// The location of a fault, if a backend is probed through its tunnel and fails.
fn verdict_of(probes: &[&State]) -> Option<String> {
    let tunnel = probes.iter().find(|state| state.health.via.tunnel().is_some())?;
    let direct = probes.iter().find(|state| state.health.via == Via::Direct);
    let (path, outcome) = (tunnel.health.via.tunnel()?, tunnel.last.as_ref()?);
    if direct.is_some_and(|state| state.last.is_none()) {
        return None;
    }
    verdict(tunnel.address, path, direct.and_then(|state| state.last.as_ref()), outcome)
}
