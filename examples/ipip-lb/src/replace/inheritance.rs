//! The state that a program passes to its successor, apart from connections.

use super::saved_overrides::SavedOverrides;
use hotloop::packet::ethernet::MacAddress;
use hotloop_balancer::exceptions::{Change, Record};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The predecessor's state at the end.
#[derive(Debug)]
pub struct Inheritance {
    /// The [time](super::machine_time) since which it has received nothing.
    pub closed: Duration,
    /// The names of the interfaces, in the order of the files that come with this message.
    pub interfaces: Vec<String>,
    /// The neighbours of the predecessor's ports, each with the port's name, so that no packet must
    /// wait until they are known.
    pub neighbours: Vec<(String, IpAddr, MacAddress)>,
    /// Changes by operators and health checks.
    pub saved: SavedOverrides,
}

impl Inheritance {
    /// The form that is sent.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "closed_ns": self.closed.as_nanos() as u64,
            "interfaces": self.interfaces,
            "neighbours": self.neighbours.iter()
                .map(|(port, address, mac)| [address.to_string(), mac.to_string(), port.clone()])
                .collect::<Vec<_>>(),
            "standings": self.saved,
        })
    }

    /// Reads the form that was sent.
    ///
    /// # Errors
    /// If it is invalid.
    pub fn of_json(json: &Value) -> Result<Self, String> {
        let closed_ns =
            json["closed_ns"].as_u64().ok_or("it has not said since when nothing is received")?;
        let interfaces = json["interfaces"].as_array().into_iter().flatten();
        let neighbours = json["neighbours"].as_array().into_iter().flatten();
        let neighbour = |row: &Value| {
            let [address, mac, port] = [0, 1, 2].map(|index| row[index].as_str());
            Some((port?.to_owned(), address?.parse().ok()?, mac?.parse().ok()?))
        };
        Ok(Self {
            neighbours: neighbours.filter_map(neighbour).collect(),
            closed: Duration::from_nanos(closed_ns),
            interfaces: interfaces.filter_map(Value::as_str).map(str::to_owned).collect(),
            saved: serde_json::from_value(json["standings"].clone())
                .map_err(|error| error.to_string())?,
        })
    }
}

/// The state that the successor has received.
#[derive(Debug)]
pub struct Inherited {
    /// See [`Inheritance::closed`].
    pub closed: Duration,
    /// Changes by operators and health checks.
    pub saved: SavedOverrides,
    /// See [`Inheritance::neighbours`].
    pub neighbours: Vec<(String, IpAddr, MacAddress)>,
    /// The files of the predecessor's TAP interfaces, by interface name.
    pub interfaces: HashMap<String, OwnedFd>,
    /// Connections on another backend than the configuration chooses, each with the time of the
    /// report.
    connections: Vec<(Record, Instant)>,
}

impl Inherited {
    /// Combines all of the predecessor's state.
    #[must_use]
    pub fn new(
        known: Inheritance,
        files: Vec<OwnedFd>,
        connections: Vec<(Record, Instant)>,
    ) -> Self {
        let interfaces = known.interfaces.iter().cloned().zip(files).collect();
        let Inheritance { closed, saved, neighbours, .. } = known;
        Self { closed, saved, neighbours, interfaces, connections }
    }

    /// The connections, with their times as of now.
    pub fn take_connections(&mut self) -> Vec<Change> {
        let now = Instant::now();
        let passed_ms = |since| now.saturating_duration_since(since).as_millis() as u64;
        let taken = std::mem::take(&mut self.connections).into_iter();
        taken.map(|(record, since)| Change::Claim(record.later(passed_ms(since)))).collect()
    }
}
