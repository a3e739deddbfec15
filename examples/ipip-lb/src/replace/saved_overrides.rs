//! Changes by operators and health checks since the configuration was read, in a form for another
//! program.

use crate::config::{Config, WEIGHT_MAX};
use crate::overrides::Overrides;
use crate::request::{Block, DrainEnd};
use hotloop_balancer::services::{Removal, TargetName};
use hotloop_health::settings::Health;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
use std::collections::HashSet;
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

    /// The overrides for service tables.
    #[must_use]
    pub fn overrides(&self, config: &Config) -> Overrides {
        let is_down: HashSet<_> = self.down.iter().cloned().collect();
        let down = ways(config).filter(|(name, way, _)| is_down.contains(&(name.clone(), *way)));
        let down = down.map(|(_, _, key)| key).collect();
        let removal = |is_flush| if is_flush { Removal::Flush } else { Removal::Rebalance };
        let removed =
            self.removed.iter().map(|(name, is_flush)| (name.clone(), removal(*is_flush)));
        let blocks = self.blocks.iter().filter_map(|block| block.prefix.parse().ok());
        let blocked = (!self.blocks.is_empty()).then(|| Arc::new(blocks.collect()));
        let weights = self.weights.iter().cloned().collect();
        Overrides { down, blocked, weights, removed: removed.collect() }
    }
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
}
