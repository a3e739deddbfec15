//! Changing what runs: reloading, draining, weights, removing.

use super::Operator;
use crate::config::{Config, WEIGHT_MAX};
use crate::directory::{Removal, Standing, TargetName};
use serde_json::{Value, json};
use std::net::IpAddr;

impl Operator {
    /// Reads the configuration again and goes over to it. What was changed by hand since the last
    /// time is as the file says again.
    ///
    /// # Errors
    /// What is wrong with it; nothing has changed then.
    pub(super) fn reload(&mut self) -> Result<(), String> {
        let reloaded = self.try_reload();
        self.reload_failure = reloaded.as_ref().err().cloned();
        self.reload_count += u64::from(reloaded.is_ok());
        reloaded
    }

    fn try_reload(&mut self) -> Result<(), String> {
        let config = self.source.configuration().map_err(|error| error.to_string())?;
        check_same_run(&self.config, &config)?;
        let old_config = std::mem::replace(&mut self.config, config);
        let old_standing = self.standing.clone();
        self.standing = Standing { down: old_standing.down.clone(), ..Standing::default() };
        self.probe();
        self.refresh_down();
        if let Err(error) = self.publish() {
            (self.config, self.standing) = (old_config, old_standing);
            self.probe();
            return Err(error);
        }
        Ok(())
    }

    pub(super) fn reload_now(&mut self) -> Result<Value, String> {
        self.reload()?;
        let services = &self.config.services;
        let backend_count: usize = services.iter().map(|it| it.backends.len()).sum();
        Ok(json!({ "services": services.len(), "backends": backend_count }))
    }

    /// Gives a backend no new connections.
    pub(super) fn drain(&mut self, arguments: &Value) -> Result<Value, String> {
        self.weigh(arguments, 0)
    }

    pub(super) fn set_weight(&mut self, arguments: &Value) -> Result<Value, String> {
        let weight = arguments["weight"].as_u64().and_then(|it| u32::try_from(it).ok());
        let weight = weight.filter(|weight| *weight <= WEIGHT_MAX);
        self.weigh(arguments, weight.ok_or(format!("give a weight from 0 to {WEIGHT_MAX}"))?)
    }

    fn weigh(&mut self, arguments: &Value, weight: u32) -> Result<Value, String> {
        let names = self.named(arguments)?;
        let changed = names.len();
        self.change(|standing| {
            standing.weights.extend(names.into_iter().map(|name| (name, weight)));
        })?;
        Ok(json!({ "changed": changed, "weight": weight }))
    }

    /// Takes a backend out of its services.
    pub(super) fn remove(&mut self, arguments: &Value) -> Result<Value, String> {
        let is_flush = arguments["flush"].as_bool().unwrap_or(false);
        let removal = if is_flush { Removal::Flush } else { Removal::Rebalance };
        let names = self.named(arguments)?;
        let removed = names.len();
        self.change(|standing| {
            standing.removed.extend(names.into_iter().map(|name| (name, removal)));
        })?;
        Ok(json!({ "removed": removed, "flush": is_flush }))
    }

    /// Changes how things stand, or nothing where that can't be.
    fn change(&mut self, change: impl FnOnce(&mut Standing)) -> Result<(), String> {
        let old = self.standing.clone();
        change(&mut self.standing);
        self.publish().inspect_err(|_| self.standing = old)
    }

    /// The backends meant: those of an address, in all services or in the one that is named.
    fn named(&self, arguments: &Value) -> Result<Vec<TargetName>, String> {
        let text = arguments["backend"].as_str().unwrap_or_default();
        let address: IpAddr =
            text.parse().map_err(|_| format!("{text:?} is not a backend's address"))?;
        let service = arguments["service"].as_str();
        let services = &self.config.services;
        if let Some(name) = service
            && !services.iter().any(|it| it.name == name)
        {
            return Err(format!("there is no service {name:?}; ctl services lists them"));
        }
        let meant = services.iter().filter(|it| service.is_none_or(|name| it.name == name));
        let meant = meant.filter(|it| it.backends.iter().any(|it| it.address == address));
        let names = meant.map(|it| TargetName { service: it.name.clone(), address });
        let names: Vec<_> =
            names.filter(|name| !self.standing.removed.contains_key(name)).collect();
        if names.is_empty() {
            return Err(format!("{address} is no backend there; ctl backends lists them"));
        }
        Ok(names)
    }
}

/// That the new configuration differs in nothing that a run keeps from its start.
fn check_same_run(old: &Config, new: &Config) -> Result<(), String> {
    let same_ports = old.ports.len() == new.ports.len()
        && old.ports.iter().zip(&new.ports).all(|(old, new)| {
            (&old.name, &old.device, old.next_hop_mac, old.side)
                == (&new.name, &new.device, new.next_hop_mac, new.side)
        });
    let what = if old.engine != new.engine {
        "[engine]"
    } else if !same_ports {
        "[[port]]"
    } else if old.balancer.connections_max != new.balancer.connections_max {
        "balancer.connections_max"
    } else if old.balancer.hash_key != new.balancer.hash_key {
        "balancer.hash_key"
    } else {
        return Ok(());
    };
    Err(format!("{what} can't change while the balancer runs: restart it, or change that back"))
}
