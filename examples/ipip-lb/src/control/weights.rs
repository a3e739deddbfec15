//! `ctl drain`, `ctl weight` and `ctl remove`: changes of backends, which take their turn in a
//! [publication](super::publication).
//!
//! Part of [`Publisher`]; reads [`Members`]. Nothing changes here: a name is checked against the
//! configuration in force, and the change is queued.

use super::build::{AfterBuild, PendingChange, WeightChange};
use super::members::Members;
use super::publisher::Publisher;
use crate::answer::Change;
use crate::request::{Backend, DrainEnd};
use hotloop_balancer::services::{Removal, TargetName};
use hotloop_ops::{Answerer, Reply};
use serde_json::json;
use std::net::IpAddr;
use std::time::Instant;

impl Publisher {
    /// Gives a backend no new connections: for good, or until it is removed.
    pub(super) fn drain(
        &mut self,
        backend: &Backend,
        end: &DrainEnd,
        members: &Members,
    ) -> Result<Reply, String> {
        let (now, names) = (Instant::now(), self.named(backend, members)?);
        let until = end.until(now);
        let draining = until.map(|until| until.ending(now));
        let answer = json!(Change::Drained { changed: names.len(), weight: 0, draining });
        let (until, why) = (until.map(|until| (until, now)), "an operator drains it for good");
        Ok(self.queue(|answerer| {
            PendingChange::Weights(WeightChange { names, weight: 0, until, why, answerer, answer })
        }))
    }

    pub(super) fn set_weight(
        &mut self,
        backend: &Backend,
        weight: u32,
        members: &Members,
    ) -> Result<Reply, String> {
        let names = self.named(backend, members)?;
        let answer = json!(Change::Weighed { changed: names.len(), weight });
        let (until, why) = (None, "an operator has changed its weight");
        Ok(self.queue(|answerer| {
            PendingChange::Weights(WeightChange { names, weight, until, why, answerer, answer })
        }))
    }

    /// Queues the removal of a backend from its services.
    pub(super) fn remove(&mut self, backend: &Backend, flush: bool) -> Reply {
        let removal = if flush { Removal::Flush } else { Removal::Rebalance };
        self.queue(|answerer| PendingChange::Removal(backend.clone(), removal, answerer))
    }

    /// Queues a change, and returns the promise of its answer.
    fn queue(&mut self, change: impl FnOnce(Answerer) -> PendingChange) -> Reply {
        let (answerer, reply) = Reply::later();
        self.publication.queue.push_back(change(answerer));
        reply
    }

    /// The named backends: those with an address, in all services or in one.
    pub(super) fn named(
        &self,
        backend: &Backend,
        members: &Members,
    ) -> Result<Vec<TargetName>, String> {
        let Backend { backend: text, service } = backend;
        let address: IpAddr =
            text.parse().map_err(|_| format!("{text:?} is not a backend's address"))?;
        let service = service.as_ref();
        let services = &self.config.services;
        if let Some(name) = service
            && !services.iter().any(|service| service.name == *name)
        {
            return Err(format!("there is no service {name:?}; ctl services lists them"));
        }
        let meant = services.iter().filter(|spec| service.is_none_or(|name| spec.name == *name));
        let meant =
            meant.filter(|spec| spec.backends.iter().any(|backend| backend.address == address));
        let names = meant.map(|service| TargetName { service: service.name.clone(), address });
        let names: Vec<_> = names.filter(|name| !self.is_removed(name, members)).collect();
        if names.is_empty() {
            return Err(format!("{address} is no backend there; ctl backends lists them"));
        }
        Ok(names)
    }

    /// Whether a backend is removed, or will be: a service table without it is being built.
    fn is_removed(&self, name: &TargetName, members: &Members) -> bool {
        let is_leaving = match self.publication.under_way() {
            Some(AfterBuild::Removal(removed, _)) => {
                removed.names.iter().any(|removed| removed.0 == *name)
            }
            Some(AfterBuild::Drained(drained)) => {
                drained.iter().any(|drained| drained.name == *name)
            }
            Some(
                AfterBuild::Configuration(..)
                | AfterBuild::Weights(_)
                | AfterBuild::Proposal(_)
                | AfterBuild::References(_),
            )
            | None => false,
        };
        is_leaving || members.overrides.removed.contains_key(name)
    }
}
