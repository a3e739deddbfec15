//! Changes by operators and health checks since the configuration was read, in a form for another
//! program.

use crate::answer::ChangeCounts;
use crate::config::{Config, WEIGHT_MAX};
use crate::overrides::Overrides;
use crate::request::{Block, DrainEnd};
use hotloop_balancer::services::{Removal, TargetName};
use hotloop_health::settings::Health;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Everything that exists only in memory, except connections.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct SavedOverrides {
    /// Weights other than the configuration's.
    #[serde(serialize_with = "rows::serialize", deserialize_with = "weights")]
    pub weights: Vec<(TargetName, u32)>,
    /// Backends taken out of their services, and whether their connections end.
    #[serde(with = "rows")]
    pub removed: Vec<(TargetName, bool)>,
    /// Backends that fail their probes: each with the number of its kind of probe, among those of
    /// its service.
    #[serde(with = "rows")]
    pub down: Vec<(TargetName, usize)>,
    /// Drains with an end.
    #[serde(with = "rows")]
    pub drains: Vec<(TargetName, DrainEnd)>,
    /// Blocked prefixes.
    #[serde(deserialize_with = "blocks")]
    pub blocks: Vec<Block>,
    /// Whether an operator has withdrawn the VIPs.
    pub is_withdrawn: bool,
}

impl SavedOverrides {
    /// The [down backends](Self::down) of a configuration.
    #[must_use]
    pub fn down_of(overrides: &Overrides, config: &Config) -> Vec<(TargetName, usize)> {
        let is_down = |(.., key): &(_, _, (IpAddr, Health))| overrides.down.contains(key);
        ways(config).filter(is_down).map(|(name, way, _)| (name, way)).collect()
    }

    /// Takes out the changes of backends that the configuration doesn't have, and returns them. A
    /// weight that the configuration has too is no change, unless the backend is drained until an
    /// end.
    pub fn take_unknown(&mut self, config: &Config) -> Self {
        let named: HashSet<_> = self.names().map(|name| name.service.clone()).collect();
        let services = config.services.iter().filter(|service| named.contains(&service.name));
        let backends = services.flat_map(|service| {
            let backends = service.backends.iter();
            backends.map(|backend| ((&*service.name, backend.address), backend.weight))
        });
        let configured: HashMap<_, _> = backends.collect();
        let weight = |name: &TargetName| configured.get(&(&*name.service, name.address)).copied();
        let unknown = Self {
            weights: extract(&mut self.weights, |name| weight(name).is_none()),
            removed: extract(&mut self.removed, |name| weight(name).is_none()),
            drains: extract(&mut self.drains, |name| weight(name).is_none()),
            ..Self::default()
        };
        let draining: HashSet<_> = self.drains.iter().map(|(name, _)| name).collect();
        let is_change = |name: &_, is: u32| weight(name) != Some(is) || draining.contains(name);
        self.weights.retain(|(name, is)| is_change(name, *is));
        unknown
    }

    /// The backends that operators have changed, some more than once.
    pub fn names(&self) -> impl Iterator<Item = &TargetName> {
        let names = self.weights.iter().map(|(name, _)| name);
        let names = names.chain(self.removed.iter().map(|(name, _)| name));
        names.chain(self.drains.iter().map(|(name, _)| name))
    }

    /// The numbers of operators' changes.
    #[must_use]
    pub const fn counts(&self) -> ChangeCounts {
        ChangeCounts {
            weights: self.weights.len(),
            removed: self.removed.len(),
            drains: self.drains.len(),
            blocks: self.blocks.len(),
            withdrawn: self.is_withdrawn,
        }
    }

    /// The weights in force.
    #[must_use]
    pub fn weights(&self) -> HashMap<TargetName, u32> {
        self.weights.iter().cloned().collect()
    }

    /// The removals in force.
    #[must_use]
    pub fn removals(&self) -> HashMap<TargetName, Removal> {
        let removal = |is_flush| if is_flush { Removal::Flush } else { Removal::Rebalance };
        self.removed.iter().map(|(name, is_flush)| (name.clone(), removal(*is_flush))).collect()
    }

    /// The overrides for service tables.
    #[must_use]
    pub fn overrides(&self, config: &Config) -> Overrides {
        let is_down: HashSet<_> = self.down.iter().cloned().collect();
        let down = ways(config).filter(|(name, way, _)| is_down.contains(&(name.clone(), *way)));
        let down = down.map(|(_, _, key)| key).collect();
        let blocks = self.blocks.iter().filter_map(|block| block.prefix.parse().ok());
        let blocked = (!self.blocks.is_empty()).then(|| Arc::new(blocks.collect()));
        Overrides { down, blocked, weights: self.weights(), removed: self.removals() }
    }
}

/// Removes the values of these backends, and returns them.
fn extract<T>(
    values: &mut Vec<(TargetName, T)>,
    is_meant: impl Fn(&TargetName) -> bool,
) -> Vec<(TargetName, T)> {
    values.extract_if(.., |(name, _)| is_meant(name)).collect()
}

/// Values of backends, in the form for another program.
mod rows {
    use super::*;

    #[derive(Deserialize, Serialize)]
    struct Row<T> {
        service: String,
        backend: String,
        is: T,
    }

    pub fn serialize<T: Serialize, S: Serializer>(
        values: &[(TargetName, T)],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(values.iter().map(|(name, is)| Row {
            service: name.service.clone(),
            backend: name.address.to_string(),
            is,
        }))
    }

    pub fn deserialize<'de, T: Deserialize<'de> + Serialize, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<(TargetName, T)>, D::Error> {
        let rows = Vec::<Row<T>>::deserialize(from)?.into_iter();
        let value = |row: Row<T>| match row.backend.parse() {
            Ok(address) => Ok((TargetName::new(&row.service, address), row.is)),
            Err(_) => Err(D::Error::custom(format!("{} names no backend", json!(row)))),
        };
        rows.map(value).collect()
    }
}

fn weights<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(TargetName, u32)>, D::Error> {
    let weights: Vec<(_, u32)> = rows::deserialize(from)?;
    match weights.iter().find(|(_, weight)| *weight > WEIGHT_MAX) {
        None => Ok(weights),
        Some((_, weight)) => {
            Err(D::Error::custom(format!("{weight} is a weight above {WEIGHT_MAX}")))
        }
    }
}

/// Skips blocks that have just ended, which have no time left.
fn blocks<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Block>, D::Error> {
    let rows = Vec::<Value>::deserialize(from)?.into_iter().filter(|row| row["for_s"] != 0);
    rows.map(serde_json::from_value).collect::<Result<_, _>>().map_err(D::Error::custom)
}

/// Every probe of every backend, with its number, and in the form of service tables.
fn ways(config: &Config) -> impl Iterator<Item = (TargetName, usize, (IpAddr, Health))> {
    config.services.iter().flat_map(|service| {
        let ways = config.ways_of(&service.name).enumerate();
        ways.flat_map(move |(number, way)| {
            service.backends.iter().map(move |backend| {
                let name = TargetName::new(&service.name, backend.address);
                (name, number, (backend.address, way.clone()))
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replace::tests::CONFIG;

    #[test]
    fn what_is_sent_is_what_was() {
        let text = CONFIG.replace("ports", "health = { kind = \"tcp\", port = 80 }\nports");
        let config = Config::parse("lb.toml", &text).unwrap();
        let [one, two] = ["10.0.0.1", "10.0.0.2"]
            .map(|address| TargetName::new("web", address.parse().unwrap()));
        let (_, _, key) = ways(&config).next().unwrap();
        let overrides = Overrides {
            down: [key].into(),
            blocked: None,
            weights: [(one.clone(), 0)].into(),
            removed: [(two.clone(), Removal::Flush)].into(),
        };
        let down = SavedOverrides::down_of(&overrides, &config);
        assert_eq!(down, [(one.clone(), 0)]);
        let (weights, removed) = (vec![(one.clone(), 0)], vec![(two, true)]);
        let mut saved = SavedOverrides { down, weights, removed, ..SavedOverrides::default() };
        saved.drains.push((one, DrainEnd { for_s: Some(9), until_empty: true }));
        saved.blocks.push(Block { prefix: "10.0.0.0/8".into(), for_s: None });
        saved.is_withdrawn = true;
        let read = |json: Value| serde_json::from_value::<SavedOverrides>(json);
        let again = read(json!(saved)).unwrap();
        assert_eq!(again, saved);
        let again = again.overrides(&config);
        assert_eq!(
            (again.down, again.weights, again.removed),
            (overrides.down, overrides.weights, overrides.removed)
        );
        read(json!({ "weights": [{ "service": "web" }] })).unwrap_err();
        assert_eq!(read(json!({})).unwrap(), SavedOverrides::default());
    }

    /// The configuration has 10.0.0.1 and 10.0.0.2, both of weight 1.
    #[test]
    fn what_the_configuration_has_too_is_no_change() {
        let config = Config::parse("lb.toml", CONFIG).unwrap();
        let name = |service: &str, last: u8| TargetName::new(service, [10, 0, 0, last].into());
        let end = DrainEnd { for_s: Some(9), until_empty: false };
        let unknown = SavedOverrides {
            weights: vec![(name("web", 9), 7)],
            removed: vec![(name("dns", 1), false)],
            drains: vec![(name("web", 9), end.clone())],
            ..SavedOverrides::default()
        };
        let kept = SavedOverrides {
            weights: vec![(name("web", 1), 7)],
            removed: vec![(name("web", 2), true)],
            drains: vec![(name("web", 1), end)],
            blocks: vec![Block { prefix: "10.0.0.0/8".into(), for_s: None }],
            is_withdrawn: true,
            ..SavedOverrides::default()
        };
        let mut all = kept.clone();
        all.weights.insert(0, (name("web", 2), 1));
        all.weights.extend(unknown.weights.clone());
        all.removed.extend(unknown.removed.clone());
        all.drains.extend(unknown.drains.clone());
        assert_eq!(all.take_unknown(&config), unknown);
        assert_eq!(all, kept);
        // With a drain, the weight stays.
        all.weights = vec![(name("web", 1), 1)];
        let drained = all.clone();
        assert_eq!(all.take_unknown(&config), SavedOverrides::default());
        assert_eq!(all, drained);
    }
}
