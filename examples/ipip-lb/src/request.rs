//! The requests of `ipip-lb ctl` to a running balancer: each command once, for the command line,
//! the control socket and control.
//!
//! A variant is a command of `ctl`, with its explanation and its arguments. Its name and its fields
//! are also those of the JSON on the socket, `{"command": "drain", "arguments": {"backend":
//! "10.0.0.1"}}`. [`ctl`](crate::ctl) writes this JSON, [`control`](crate::control) reads it, and
//! operators' changes are [saved](crate::replace::saved_overrides) in the same types. This module depends
//! on neither.
//!
//! An argument may be missing if it is optional or a text, and unknown arguments are ignored, so
//! that programs of two versions understand each other. Times, limits and weights are in range once
//! they were read.

use crate::config::WEIGHT_MAX;
use crate::until::{TIME_S_MAX, Until};
use clap::{Args, Subcommand};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// Maximum number of connections in a listing.
pub const LIMIT_MAX: u64 = 50_000;

/// A command, with its arguments.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, Subcommand)]
#[serde(tag = "command", content = "arguments", rename_all = "kebab-case")]
pub enum Request {
    /// Print what runs: the request of `ctl status`.
    #[command(skip)]
    Overview,
    /// Print every service, with its scheduler, backends, packets and connections.
    Services,
    /// Print every backend of every service, with its weight, health, packets and connections.
    Backends,
    /// Print every next hop: its port, address, Ethernet address and state, the time since its last
    /// answer, and the number of backends that it reaches.
    NextHops,
    /// Print this node of a cluster and its peers: their state, the changes of connections that
    /// they have not entered yet, and the age of those; and the nodes in its store.
    Cluster,
    /// Print connections.
    Connections {
        /// A filter: `client=PREFIX`, `vip=PREFIX`, `port=N`, `protocol=NAME`, `service=NAME`,
        /// `backend=ADDRESS`, with commas between; connections must match all of them.
        #[arg(long, value_name = "FILTER")]
        filter: Option<String>,
        /// The maximum number: 100 by default, and up to 50000.
        #[arg(long, value_name = "N")]
        #[serde(default, deserialize_with = "limit")]
        limit: Option<u64>,
    },
    /// Print where the packets of a flow go: which worker, which rule, which backend, and why.
    Lookup(Flow),
    /// Give a backend no new connections; existing ones continue. With a time, or with
    /// --until-empty, it is then taken out as `remove` does, at whichever comes first; `weight` and
    /// `drain` without either cancel that.
    Drain {
        /// The backend.
        #[command(flatten)]
        #[serde(flatten)]
        backend: Backend,
        /// The end of the drain.
        #[command(flatten)]
        #[serde(flatten)]
        end: DrainEnd,
    },
    /// Give a backend another weight than the configuration does.
    Weight {
        /// The backend.
        #[command(flatten)]
        #[serde(flatten)]
        backend: Backend,
        /// Its share of new connections: 0 to 65535.
        #[serde(deserialize_with = "weight")]
        weight: u32,
    },
    /// Take a backend out; its connections go to others.
    Remove {
        /// The backend.
        #[command(flatten)]
        #[serde(flatten)]
        backend: Backend,
        /// End its connections instead: packets of TCP are dropped until a SYN comes.
        #[arg(long)]
        #[serde(default)]
        flush: bool,
    },
    /// Drop packets of these clients to services, even of known connections, until they are
    /// unblocked.
    Block(Block),
    /// Remove a block of clients.
    Unblock {
        /// The clients, in the form in which they were blocked.
        #[serde(default)]
        prefix: String,
    },
    /// Print every block, and its remaining time.
    Blocks,
    /// Read the configuration again, and the certificates for peers. If they are invalid, nothing
    /// changes. The changes by `drain`, `weight`, `remove`, `block` and `withdraw` stay in force,
    /// except for backends that the configuration no longer has.
    Reload {
        /// End these changes.
        #[arg(long)]
        #[serde(default)]
        reset: bool,
    },
    /// Withdraw every announced VIP until `announce`. Packets that still arrive are forwarded.
    Withdraw,
    /// Announce the ready VIPs again, and cancel `leave`.
    Announce,
    /// Withdraw every VIP, wait until no connection is left, and end the program as SIGTERM does.
    /// `announce` cancels that.
    Leave {
        /// End the program after this time at the latest: `30s`, `10m`, `2h` or `1d`.
        #[arg(long = "for", value_name = "TIME", value_parser = seconds)]
        #[serde(default, deserialize_with = "time")]
        for_s: Option<u64>,
        /// Wait without a limit, as without a time.
        #[arg(long, conflicts_with = "for_s")]
        #[serde(skip)]
        until_empty: bool,
    },
    /// Let a program take over: the request of `run --replace`.
    #[command(skip)]
    Replace(Candidate),
    /// A command that this version doesn't know.
    #[command(skip)]
    #[serde(other)]
    Unknown,
}

/// The flow of `ctl lookup`.
#[derive(Args, Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Flow {
    /// `tcp`, `udp`, `icmp`, `icmpv6`, or a number.
    #[serde(default)]
    pub protocol: String,
    /// The client, such as `198.51.100.7:4000` or `[2001:db8::7]:4000`.
    #[serde(default)]
    pub client: String,
    /// The service's address and port, in the same form.
    #[serde(default)]
    pub vip: String,
}

/// The backends to change.
#[derive(Args, Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Backend {
    /// The backend's address.
    #[arg(value_name = "ADDRESS")]
    #[serde(default)]
    pub backend: String,
    /// Only in this service; without it, in all services that have the backend.
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
}

/// The end of a drain, at whichever comes first; the default is no end.
#[derive(Args, Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct DrainEnd {
    /// Take it out after this time: `30s`, `10m`, `2h` or `1d`.
    #[arg(long = "for", value_name = "TIME", value_parser = seconds)]
    #[serde(default, deserialize_with = "time")]
    pub for_s: Option<u64>,
    /// Take it out as soon as no connection of it is left.
    #[arg(long)]
    #[serde(default)]
    pub until_empty: bool,
}

/// The clients of `ctl block`.
#[derive(Args, Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Block {
    /// The clients: an address, or a prefix such as `198.51.100.0/24`.
    #[serde(default)]
    pub prefix: String,
    /// The duration: `30s`, `10m`, `2h` or `1d`.
    #[arg(long = "for", value_name = "TIME", value_parser = seconds)]
    #[serde(default, deserialize_with = "time")]
    pub for_s: Option<u64>,
}

impl Request {
    /// Reads a request from the socket. It is [`Unknown`](Self::Unknown) if there is no such command.
    ///
    /// # Errors
    /// An argument is missing or wrong.
    pub fn read(request: &hotloop_ops::Request) -> Result<Self, String> {
        let hotloop_ops::Request { command, arguments } = request;
        // A command without arguments ignores any that are given.
        if let Ok(request) = serde_json::from_value(json!({ "command": command })) {
            return Ok(request);
        }
        let arguments = if arguments.is_object() { arguments } else { &json!({}) };
        let request = json!({ "command": command, "arguments": arguments });
        serde_json::from_value(request).map_err(|error| error.to_string())
    }

    /// The backend or the prefix that the request changes, or "" for other changes. `None` if it changes
    /// nothing.
    #[must_use]
    pub fn changed(&self) -> Option<&str> {
        match self {
            Self::Drain { backend, .. }
            | Self::Weight { backend, .. }
            | Self::Remove { backend, .. } => Some(&backend.backend),
            Self::Block(Block { prefix, .. }) | Self::Unblock { prefix } => Some(prefix),
            Self::Reload { .. }
            | Self::Withdraw
            | Self::Announce
            | Self::Leave { .. }
            | Self::Replace(_) => Some(""),
            Self::Overview
            | Self::Services
            | Self::Backends
            | Self::NextHops
            | Self::Cluster
            | Self::Connections { .. }
            | Self::Lookup(_)
            | Self::Blocks
            | Self::Unknown => None,
        }
    }

    /// The request for the socket.
    #[must_use]
    pub fn to_ops(&self) -> hotloop_ops::Request {
        let json = json!(self);
        let command = json["command"].as_str().unwrap_or_default();
        hotloop_ops::Request::with(command, json["arguments"].clone())
    }
}

fn limit<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    within(from, 1..=LIMIT_MAX, || format!("give a limit from 1 to {LIMIT_MAX}"))
}

fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    within(from, 1..=TIME_S_MAX, || format!("for_s: give a time from 1 to {TIME_S_MAX} seconds"))
}

fn weight<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let wrong = || format!("give a weight from 0 to {WEIGHT_MAX}");
    let weight = within(from, 0..=WEIGHT_MAX.into(), wrong)?;
    weight.map(|weight| weight as u32).ok_or_else(|| D::Error::custom(wrong()))
}

/// A number within these bounds; `None` for null. Anything else is `wrong`.
fn within<'de, D: Deserializer<'de>>(
    from: D,
    allowed: RangeInclusive<u64>,
    wrong: impl FnOnce() -> String,
) -> Result<Option<u64>, D::Error> {
    match Value::deserialize(from)? {
        Value::Null => Ok(None),
        value => {
            let number = value.as_u64().filter(|number| allowed.contains(number));
            number.map(Some).ok_or_else(|| D::Error::custom(wrong()))
        }
    }
}

/// Reads `30s`, `10m`, `2h` or `1d`, as seconds.
fn seconds(text: &str) -> Result<u64, String> {
    let unit_s = |unit| match unit {
        's' => Some(1),
        'm' => Some(60),
        'h' => Some(3600),
        'd' => Some(86_400),
        _ => None,
    };
    let seconds = || {
        let unit_s = unit_s(text.chars().next_back()?)?;
        let count: u64 = text[..text.len() - 1].parse().ok()?;
        count.checked_mul(unit_s).filter(|seconds| (1..=TIME_S_MAX).contains(seconds))
    };
    seconds().ok_or_else(|| "write a time up to a year, such as 30s, 10m, 2h or 1d".to_owned())
}

/// The description that a program gives of itself when it asks to take over.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Candidate {
    pub(crate) version: u64,
    pub(crate) frames: u64,
    pub(crate) digest: String,
}

impl DrainEnd {
    /// The end of a drain that begins now; `None` if it waits neither for a time nor until no connection is left.
    #[must_use]
    pub fn until(&self, now: Instant) -> Option<Until> {
        let end = self.for_s.map(|seconds| now + Duration::from_secs(seconds));
        (end.is_some() || self.until_empty).then_some(Until { end, is_empty: self.until_empty })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_and_a_unit() {
        for (text, s) in [("30s", 30), ("10m", 600), ("2h", 7200), ("365d", TIME_S_MAX)] {
            assert_eq!(seconds(text), Ok(s));
        }
        for wrong in ["", "10", "m", "0s", "366d", "1w", "1.5h", "-1s", "10µ", "99999999999999999d"]
        {
            assert!(seconds(wrong).unwrap_err().contains("such as 30s"), "{wrong}");
        }
    }

    #[test]
    fn a_time_is_a_second_to_a_year() {
        let for_s = |for_s: Value| {
            let end: Result<DrainEnd, _> = serde_json::from_value(json!({ "for_s": for_s }));
            end.map(|end| end.for_s).map_err(|error| error.to_string())
        };
        assert_eq!(for_s(json!(TIME_S_MAX)), Ok(Some(TIME_S_MAX)));
        for wrong in [json!(0), json!(TIME_S_MAX + 1), json!(-1), json!(1.5), json!("10m")] {
            let refusal = for_s(wrong.clone()).unwrap_err();
            assert!(refusal.contains("from 1 to 31536000 seconds"), "{wrong}: {refusal}");
        }
    }

    fn read(command: &str, arguments: Value) -> Result<Request, String> {
        Request::read(&hotloop_ops::Request::with(command, arguments))
    }

    #[test]
    fn on_the_socket_a_command_has_the_names_that_programs_of_all_versions_know() {
        let backend = Backend { backend: "10.0.0.1".into(), service: None };
        let end = DrainEnd { for_s: Some(9), until_empty: true };
        let block = Block { prefix: "::/0".into(), for_s: None };
        let flow = Flow { protocol: "tcp".into(), client: "a".into(), vip: "b".into() };
        let leave = Request::Leave { for_s: Some(9), until_empty: false };
        for (request, command, arguments) in [
            (Request::NextHops, "next-hops", Value::Null),
            (
                Request::Connections { filter: None, limit: Some(7) },
                "connections",
                json!({ "filter": null, "limit": 7 }),
            ),
            (
                Request::Lookup(flow),
                "lookup",
                json!({ "protocol": "tcp", "client": "a", "vip": "b" }),
            ),
            (
                Request::Drain { backend: backend.clone(), end },
                "drain",
                json!({ "backend": "10.0.0.1", "service": null, "for_s": 9, "until_empty": true }),
            ),
            (
                Request::Weight { backend: backend.clone(), weight: 3 },
                "weight",
                json!({ "backend": "10.0.0.1", "service": null, "weight": 3 }),
            ),
            (
                Request::Remove { backend, flush: true },
                "remove",
                json!({ "backend": "10.0.0.1", "service": null, "flush": true }),
            ),
            (Request::Block(block), "block", json!({ "prefix": "::/0", "for_s": null })),
            (Request::Unblock { prefix: "a".into() }, "unblock", json!({ "prefix": "a" })),
            (leave, "leave", json!({ "for_s": 9 })),
        ] {
            assert_eq!(request.to_ops(), hotloop_ops::Request::with(command, arguments.clone()));
            assert_eq!(read(command, arguments), Ok(request));
        }
    }

    #[test]
    fn arguments_may_be_missing_or_unknown_and_a_wrong_one_is_refused() {
        let all = Request::Connections { filter: None, limit: None };
        for nothing in [Value::Null, json!({}), json!([1]), json!({ "other": 1 })] {
            assert_eq!(read("connections", nothing.clone()), Ok(all.clone()));
            assert_eq!(read("reload", nothing.clone()), Ok(Request::Reload { reset: false }));
            assert_eq!(read("nothing", nothing.clone()), Ok(Request::Unknown));
            let unblock = Request::Unblock { prefix: String::new() };
            assert_eq!(read("unblock", nothing), Ok(unblock));
        }
        for (command, arguments, why) in [
            ("connections", json!({ "limit": 50_001 }), "give a limit from 1 to 50000"),
            ("connections", json!({ "limit": "7" }), "give a limit from 1 to 50000"),
            ("weight", json!({ "weight": 65_536 }), "give a weight from 0 to 65535"),
            ("weight", json!({ "weight": null }), "give a weight from 0 to 65535"),
            ("weight", json!({}), "missing field `weight`"),
            ("drain", json!({ "for_s": 0 }), "for_s: give a time from 1 to 31536000 seconds"),
            ("leave", json!({ "for_s": "1h" }), "for_s: give a time from 1 to 31536000 seconds"),
            ("lookup", json!({ "vip": 7 }), "invalid type: integer `7`, expected a string"),
        ] {
            assert_eq!(read(command, arguments), Err(why.to_owned()), "{command}");
        }
    }
}
