//! Changes since the configuration was read: by operators, and by health checks.

use crate::config::Config;
use hotloop::packet::prefix::PrefixSet;
use hotloop_balancer::services::{Removal, Standing, TargetName};
use hotloop_health::quorum::Down;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Changes by operators and health checks since the configuration was read.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Backends that fail their probes, each with its kind of probe.
    pub down: Down,
    /// Prefixes whose packets to services are dropped; `None` if there are none.
    pub blocked: Option<Arc<PrefixSet>>,
    /// Weights other than the configuration's.
    pub weights: HashMap<TargetName, u32>,
    /// Backends taken out of their services.
    pub removed: HashMap<TargetName, Removal>,
}

impl Overrides {
    /// The same for service tables of `config`: a backend of a service is down if any of its probes fails.
    #[must_use]
    pub fn standing(&self, config: &Config) -> Standing {
        Standing {
            down: self.down_in(config),
            blocked: self.blocked.clone(),
            weights: self.weights.clone(),
            removed: self.removed.clone(),
        }
    }

    fn down_in(&self, config: &Config) -> HashSet<TargetName> {
        // Of many backends, few are down: probes are compared only for these.
        let addresses: HashSet<IpAddr> = self.down.iter().map(|(address, _)| *address).collect();
        let mut down = HashSet::new();
        if addresses.is_empty() {
            return down;
        }
        for service in &config.services {
            let Some(health) = config.health.get(&service.name) else { continue };
            for backend in
                service.backends.iter().filter(|backend| addresses.contains(&backend.address))
            {
                let address = backend.address;
                if health.ways().any(|way| self.down.contains(&(address, way))) {
                    down.insert(TargetName::new(&service.name, address));
                }
            }
        }
        down
    }
}
