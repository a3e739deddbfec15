//! The arguments of `ctl capture`, and the request that they become.

use clap::Args;
use hotloop_stage::tap::Filter;
use hotloop_watch::{CaptureConfig, Drops, Points, SNAP_BYTES_MAX};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

/// Arguments of `ctl capture`.
#[derive(Args, Clone, Debug, Eq, PartialEq)]
pub struct CaptureArgs {
    /// Packets to capture, as a tcpdump expression: pcap-filter(7); by default, all.
    #[arg(value_name = "EXPRESSION")]
    pub expression: Option<String>,
    /// Write pcapng to this file, or to standard output for -.
    #[arg(short, long, value_name = "FILE")]
    pub write: PathBuf,
    /// Capture packets as they are received (rx), before they are sent (tx), as they are dropped
    /// (drop, or drop=REASON), or at several of these places, with commas between.
    #[arg(long, value_name = "PLACE", value_delimiter = ',', default_value = "rx,tx",
        value_parser = place)]
    pub at: Vec<String>,
    /// Capture on one worker only, numbered from 0 in the order of `ctl status`.
    #[arg(long, value_name = "N")]
    pub worker: Option<usize>,
    /// Keep at most this many bytes of each packet; by default, all.
    #[arg(short, long, value_name = "BYTES",
        value_parser = clap::value_parser!(u32).range(1..=262_144))]
    pub snaplen: Option<u32>,
    /// Keep one in this many matching packets.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub sample: Option<u32>,
    /// End after this many packets.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// End before the file has more bytes than this.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_bytes: Option<u64>,
}

/// Parses a place, for `--at`.
fn place(text: &str) -> Result<String, String> {
    points(&[text.to_owned()]).map(|_| text.to_owned())
}

impl CaptureArgs {
    /// The arguments of the request, as [`Sessions::begin`](crate::Sessions::begin) takes them.
    #[must_use]
    pub fn arguments(&self) -> Value {
        let wanted = Wanted {
            expression: self.expression.clone().unwrap_or_default(),
            at: self.at.clone(),
            worker: self.worker,
            snaplen: self.snaplen.map(|bytes| bytes as usize),
            sample: self.sample,
            count: self.count,
            max_bytes: self.max_bytes,
        };
        json!(wanted)
    }
}

/// The capture that a client requests.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Wanted {
    /// A pcap-filter expression; empty for every packet.
    expression: String,
    /// The places, as in `--at`.
    at: Vec<String>,
    worker: Option<usize>,
    snaplen: Option<usize>,
    sample: Option<u32>,
    pub count: Option<u64>,
    pub max_bytes: Option<u64>,
}

impl Wanted {
    /// Reads the arguments of a request; `null` for the defaults.
    pub fn read(arguments: &Value) -> Result<Self, String> {
        let wanted = Option::<Self>::deserialize(arguments);
        let wanted = wanted.map_err(|error| format!("capture: {error}; see ctl capture --help"))?;
        Ok(wanted.unwrap_or_default())
    }

    /// Converts the request for the engine. Compiles the expression as long as `waits` returns true.
    pub fn config(&self, waits: &mut dyn FnMut() -> bool) -> Result<CaptureConfig, String> {
        let default = CaptureConfig::default();
        Ok(CaptureConfig {
            points: if self.at.is_empty() { default.points.clone() } else { points(&self.at)? },
            core: self.worker,
            filter: match self.expression.trim() {
                "" => None,
                _ => Some(compile(&self.expression, waits)?),
            },
            snap_bytes: self.snaplen.unwrap_or(SNAP_BYTES_MAX),
            sample: self.sample.unwrap_or(1),
            ..default
        })
    }
}

/// Parses the places of `--at`.
fn points(at: &[String]) -> Result<Points, String> {
    let mut points = Points { receive: false, send: false, drops: Drops::None };
    for place in at {
        match place.as_str() {
            "rx" => points.receive = true,
            "tx" => points.send = true,
            "drop" => points.drops = Drops::All,
            "all" => points = Points::ALL,
            place => {
                let reason = place.strip_prefix("drop=").filter(|reason| !reason.is_empty());
                let Some(reason) = reason else {
                    return Err(format!(
                        "there is no place {place:?}: write rx, tx, drop, drop=REASON or all"
                    ));
                };
                match &mut points.drops {
                    Drops::All => {}
                    Drops::For(reasons) => reasons.push(reason.to_owned()),
                    Drops::None => points.drops = Drops::For(vec![reason.to_owned()]),
                }
            }
        }
    }
    Ok(points)
}

#[cfg(feature = "dpdk")]
fn compile(expression: &str, waits: &mut dyn FnMut() -> bool) -> Result<Arc<dyn Filter>, String> {
    let eal = hotloop_dpdk::Eal::current().ok_or("DPDK has not started yet: try again")?;
    let filter = hotloop_dpdk::Filter::compile_while(eal, expression, waits);
    Ok(Arc::new(filter.map_err(|error| error.to_string())?))
}

/// Without DPDK, expressions can't be run.
#[cfg(not(feature = "dpdk"))]
fn compile(_: &str, _: &mut dyn FnMut() -> bool) -> Result<Arc<dyn Filter>, String> {
    Err("this program was built without DPDK, which filters: leave the expression out, and filter the \
         file"
        .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_added_up() {
        let read =
            |at: &[&str]| points(&at.iter().map(|place| (*place).to_owned()).collect::<Vec<_>>());
        assert_eq!(read(&["rx"]), Ok(Points::RECEIVE));
        assert_eq!(read(&["rx", "tx", "drop"]), Ok(Points::ALL));
        assert_eq!(read(&["all"]), Ok(Points::ALL));
        let drops = Drops::For(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(read(&["drop=a", "tx", "drop=b"]), Ok(Points { drops, ..Points::SEND }));
        assert_eq!(read(&["drop", "drop=b"]), Ok(Points::DROP));
        for wrong in ["", "drop=", "RX", "rx tx"] {
            assert!(read(&[wrong]).unwrap_err().contains("write rx, tx, drop"), "{wrong}");
        }
    }
}
