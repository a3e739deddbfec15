//! What the live demo asks the running balancer: `ipip-lb ctl`.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::failure::Failure;
use crate::process;

use super::site::{BACKENDS, Site};

/// A backend of a service, as `ctl backends` tells of it.
#[derive(Debug, Deserialize)]
struct Told {
    address: String,
    state: String,
}

/// How often the balancer was reloaded, as `ctl status` tells it.
#[derive(Debug, Deserialize)]
pub struct Reloads {
    /// Reloads that went well.
    #[serde(rename = "reloads")]
    pub count: u64,
    /// What was wrong with the last one, if something was.
    pub reload_failure: Option<String>,
}

/// What the balancer has counted, as `ctl counters` tells it.
#[derive(Debug, Deserialize)]
struct Counters {
    dropped: std::collections::BTreeMap<String, u64>,
}

/// The running balancer.
pub struct Balancer<'a>(pub &'a Site);

impl Balancer<'_> {
    /// Whether a backend is up in every service, by its place among the backends.
    pub fn is_up(&self, backend: usize) -> Result<bool, Failure> {
        let address = BACKENDS[backend].address();
        let told: Vec<Told> = self.ask(&["backends"])?;
        is_up(&told, &address)
            .ok_or_else(|| Failure::failed(format!("ctl backends knows no {address}: {told:?}")))
    }

    /// Shows `ctl backends` as people see it.
    pub fn show_backends(&self) -> Result<(), Failure> {
        let table = process::output(self.0.ctl().arg("backends"))?;
        table.lines().for_each(|line| println!("    {}", line.trim_end()));
        Ok(())
    }

    /// How often it was reloaded.
    pub fn reloads(&self) -> Result<Reloads, Failure> {
        self.ask(&["status"])
    }

    /// Packets dropped for a reason up to now.
    pub fn dropped(&self, reason: &str) -> Result<u64, Failure> {
        let counters: Counters = self.ask(&["counters"])?;
        Ok(counters.dropped.get(reason).copied().unwrap_or(0))
    }

    /// `ctl drain`: no new connections to a backend.
    pub fn drain(&self, backend: usize) -> Result<(), Failure> {
        self.tell(&["drain", &BACKENDS[backend].address()])
    }

    /// `ctl reload`.
    pub fn reload(&self) -> Result<(), Failure> {
        self.tell(&["reload"])
    }

    fn tell(&self, words: &[&str]) -> Result<(), Failure> {
        process::output(self.0.ctl().args(words)).map(drop)
    }

    fn ask<T: DeserializeOwned>(&self, words: &[&str]) -> Result<T, Failure> {
        let answer = process::output(self.0.ctl().args(words).arg("--json"))?;
        serde_json::from_str(&answer).map_err(|error| {
            let words = words.join(" ");
            Failure::failed(format!("ctl {words} is not as known: {error}: {answer}"))
        })
    }
}

/// Whether the backend with this address is down in no service; nothing where no service has it.
fn is_up(told: &[Told], address: &str) -> Option<bool> {
    let mut states = told.iter().filter(|told| told.address == address).peekable();
    states.peek()?;
    Some(states.all(|told| told.state != "down"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_is_up_where_no_service_finds_it_down() {
        let told = r#"[
            {"service": "a", "address": "10.0.0.1", "state": "up", "weight": 1, "probe": null},
            {"service": "b", "address": "10.0.0.1", "state": "down", "weight": 1},
            {"service": "a", "address": "10.0.0.2", "state": "drained", "weight": 0}]"#;
        let told: Vec<Told> = serde_json::from_str(told).unwrap();
        assert_eq!(is_up(&told, "10.0.0.1"), Some(false));
        assert_eq!(is_up(&told, "10.0.0.2"), Some(true));
        assert_eq!(is_up(&told, "10.0.0.3"), None);
    }

    #[test]
    fn reloads_and_drops_are_read() {
        let status = r#"{"reloads": 7, "reload_failure": "lb.toml:3: no", "services": 2}"#;
        let reloads: Reloads = serde_json::from_str(status).unwrap();
        assert_eq!((reloads.count, reloads.reload_failure.as_deref()), (7, Some("lb.toml:3: no")));
        let counters = r#"{"received": 9, "dropped": {"too_big": 4}, "places": []}"#;
        let counters: Counters = serde_json::from_str(counters).unwrap();
        assert_eq!(counters.dropped["too_big"], 4);
    }
}
