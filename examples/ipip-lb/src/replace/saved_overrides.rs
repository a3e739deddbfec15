//! Changes by operators and health checks since the configuration was read, in a form for another
//! program.

use crate::config::{Config, WEIGHT_MAX};
use crate::overrides::Overrides;
use crate::request::{Block, DrainEnd};
use hotloop_balancer::blocks::Blocks;
use hotloop_balancer::services::{Removal, TargetName};
use hotloop_health::settings::Health;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Everything that exists only in memory, except connections.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SavedOverrides {
    /// Weights other than the configuration's.
    pub weights: HashMap<TargetName, u32>,
    /// Backends taken out of their services.
    pub removed: HashMap<TargetName, Removal>,
    /// Backends that fail their probes: each with the number of its kind of probe, among those of
    /// its service.
    pub down: HashSet<(TargetName, usize)>,
    /// Drains with an end.
    pub drains: Vec<(TargetName, DrainEnd)>,
    /// Blocked prefixes.
    pub blocks: Vec<Block>,
    /// Whether an operator has withdrawn the VIPs.
    pub is_withdrawn: bool,
}

impl SavedOverrides {
    /// The [down backends](Self::down) of a configuration.
    #[must_use]
    pub fn down_of(overrides: &Overrides, config: &Config) -> HashSet<(TargetName, usize)> {
        let is_down = |(.., key): &(_, _, (IpAddr, Health))| overrides.down.contains(key);
        ways(config).filter(is_down).map(|(name, way, _)| (name, way)).collect()
    }

    /// The overrides for service tables.
    #[must_use]
    pub fn overrides(&self, config: &Config) -> Overrides {
        let down = ways(config).filter(|(name, way, _)| self.down.contains(&(name.clone(), *way)));
        let down = down.map(|(_, _, key)| key).collect();
        let (weights, removed) = (self.weights.clone(), self.removed.clone());
        let blocks = self.blocks.iter().filter_map(|block| block.prefix.parse().ok());
        let blocked = (!self.blocks.is_empty()).then(|| Arc::new(Blocks::new(blocks)));
        Overrides { down, blocked, weights, removed }
    }

    /// The form that is sent.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let named = |name: &TargetName, value: Value| json!({ "service": name.service, "backend": name.address.to_string(), "is": value });
        let flush = |removal: &Removal| json!(*removal == Removal::Flush);
        json!({
            "weights": self.weights.iter().map(|(name, weight)| named(name, json!(weight))).collect::<Vec<_>>(),
            "removed": self.removed.iter().map(|(name, removal)| named(name, flush(removal))).collect::<Vec<_>>(),
            "down": self.down.iter().map(|(name, way)| named(name, json!(way))).collect::<Vec<_>>(),
            "drains": self.drains.iter().map(|(name, drain)| named(name, json!(drain))).collect::<Vec<_>>(),
            "blocks": self.blocks,
            "is_withdrawn": self.is_withdrawn,
        })
    }

    /// Reads the form that was sent.
    ///
    /// # Errors
    /// If it is invalid.
    pub fn of_json(json: &Value) -> Result<Self, String> {
        let rows = |key: &str| json[key].as_array().cloned().unwrap_or_default();
        let number = |value: Value| value.as_u64().ok_or_else(|| format!("{value} is no number"));
        let wrong = |error: serde_json::Error| error.to_string();
        let mut saved = Self {
            is_withdrawn: json["is_withdrawn"].as_bool().unwrap_or(false),
            ..Self::default()
        };
        for row in rows("weights") {
            let (name, weight) = target(&row)?;
            let weight = u32::try_from(number(weight)?).ok().filter(|weight| *weight <= WEIGHT_MAX);
            let weight = weight.ok_or_else(|| format!("{row} is a weight above {WEIGHT_MAX}"))?;
            saved.weights.insert(name, weight);
        }
        for row in rows("removed") {
            let (name, is_flush) = target(&row)?;
            let removal = match is_flush == Value::Bool(true) {
                true => Removal::Flush,
                false => Removal::Rebalance,
            };
            saved.removed.insert(name, removal);
        }
        for row in rows("down") {
            let (name, way) = target(&row)?;
            saved.down.insert((name, number(way)? as usize));
        }
        for row in rows("drains") {
            let (name, end) = target(&row)?;
            saved.drains.push((name, serde_json::from_value(end).map_err(wrong)?));
        }
        // One that has just ended has no time left.
        for row in rows("blocks").into_iter().filter(|row| row["for_s"] != 0) {
            saved.blocks.push(serde_json::from_value(row).map_err(wrong)?);
        }
        Ok(saved)
    }
}

/// The backend of a row, and the row's value.
fn target(row: &Value) -> Result<(TargetName, Value), String> {
    let address = row["backend"].as_str().and_then(|text| text.parse::<IpAddr>().ok());
    match (row["service"].as_str(), address) {
        (Some(service), Some(address)) => {
            Ok((TargetName::new(service, address), row["is"].clone()))
        }
        _ => Err(format!("{row} names no backend")),
    }
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
        assert_eq!(down, [(one.clone(), 0)].into());
        let (weights, removed) = (overrides.weights.clone(), overrides.removed.clone());
        let mut saved = SavedOverrides { down, weights, removed, ..SavedOverrides::default() };
        saved.drains.push((one, DrainEnd { for_s: Some(9), until_empty: true }));
        saved.blocks.push(Block { prefix: "10.0.0.0/8".into(), for_s: None });
        saved.is_withdrawn = true;
        let read = SavedOverrides::of_json(&saved.to_json()).unwrap();
        assert_eq!(read, saved);
        let again = read.overrides(&config);
        assert_eq!(
            (again.down, again.weights, again.removed),
            (overrides.down, overrides.weights, overrides.removed)
        );
        assert!(SavedOverrides::of_json(&json!({ "weights": [{ "service": "web" }] })).is_err());
        assert_eq!(SavedOverrides::of_json(&Value::Null), Ok(SavedOverrides::default()));
    }
}
