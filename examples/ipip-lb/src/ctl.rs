//! `ipip-lb ctl`: asking a running balancer.

mod text;

use crate::until::TIME_S_MAX;
use clap::{Args, Subcommand};
use hotloop_ops::{CaptureArgs, CommonCommand, CtlArgs, Request};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;
use text::{
    announced_text, backends_text, blocked_text, cluster_text, connections_text, counted,
    drained_text, leaving_text, lookup_text, overview_text, reloaded_text, removed_text,
    services_text, table, with_warning, withdrawn_text,
};

/// `ipip-lb ctl`.
#[derive(Args, Debug)]
pub struct Ctl {
    /// Which balancer, and how it is to answer.
    #[command(flatten)]
    pub args: CtlArgs,
    /// What to ask.
    #[command(subcommand)]
    pub command: CtlCommand,
}

/// What can be asked of a running balancer.
#[derive(Debug, Subcommand)]
pub enum CtlCommand {
    /// Print what runs, since when, what went through each core, and how the balancer is.
    Status,
    /// Print what each stage on each core has counted, and drops by reason.
    Counters,
    /// Print how far each core is from its limit, what takes its time, and what waits for it: of the
    /// last second.
    Load,
    /// Print every figure of each device, by its driver's own names.
    Xstats,
    /// Write packets that pass to a file, for tcpdump and Wireshark, until Ctrl-C.
    Capture(CaptureArgs),
    /// Print every service, with its scheduler, backends, packets and connections.
    Services,
    /// Print every backend of every service, with its weight, health, packets and connections.
    Backends,
    /// Print every next hop: its port, address, Ethernet address and state, for how long it has not
    /// answered, and how many backends are reached by it.
    NextHops,
    /// Print this node of a cluster and its peers: how they stand, what they are still to hear of
    /// connections, and for how long that has been waiting; and the nodes that its store knows.
    Cluster,
    /// Print connections.
    Connections {
        /// Which: `client=PREFIX`, `vip=PREFIX`, `port=N`, `protocol=NAME`, `service=NAME`,
        /// `backend=ADDRESS`, with commas between: those that fit all of them.
        #[arg(long, value_name = "FILTER")]
        filter: Option<String>,
        /// How many at most, of 100 without it, and 50000 at most.
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
    },
    /// Say where the packets of a flow go: which worker, which rule, which backend, and why.
    Lookup {
        /// `tcp`, `udp`, `icmp`, `icmpv6`, or a number.
        protocol: String,
        /// The client, such as `198.51.100.7:4000` or `[2001:db8::7]:4000`.
        client: String,
        /// The service's address and port, likewise.
        vip: String,
    },
    /// Give a backend no new connections until the next reload; those it has go on. With a time, or
    /// with --until-empty, it is then taken out as `remove` does, at whichever comes first. `weight`,
    /// `drain` without either and a reload end that plan.
    Drain {
        /// Which backend.
        #[command(flatten)]
        backend: Backend,
        /// Take it out after this time: `30s`, `10m`, `2h` or `1d`.
        #[arg(long = "for", value_name = "TIME", value_parser = time)]
        time: Option<Duration>,
        /// Take it out as soon as no connection of it is left.
        #[arg(long)]
        until_empty: bool,
    },
    /// Give a backend another weight until the next reload.
    Weight {
        /// Which backend.
        #[command(flatten)]
        backend: Backend,
        /// Its share of new connections: 0 to 65535.
        weight: u32,
    },
    /// Take a backend out until the next reload; its connections go to others.
    Remove {
        /// Which backend.
        #[command(flatten)]
        backend: Backend,
        /// End its connections instead: packets of TCP are dropped until a SYN comes.
        #[arg(long)]
        flush: bool,
    },
    /// Drop packets of these clients to services, those of known connections among them, until they
    /// are unblocked or the program ends; a reload changes nothing about that, nor does a restart in a
    /// cluster.
    Block {
        /// The clients: an address, or a prefix such as `198.51.100.0/24`.
        prefix: String,
        /// For how long: `30s`, `10m`, `2h` or `1d`.
        #[arg(long = "for", value_name = "TIME", value_parser = time)]
        time: Option<Duration>,
    },
    /// Take these clients' block away.
    Unblock {
        /// The clients, as they were blocked.
        prefix: String,
    },
    /// Print every block, and how long it lasts.
    Blocks,
    /// Read the configuration again, and the certificates for peers. If something is wrong with them, nothing
    /// changes.
    Reload,
    /// Withdraw every VIP that is announced until `announce`, whatever is reloaded meanwhile; what still
    /// comes is balanced.
    Withdraw,
    /// Announce the VIPs that are ready again. A balancer that was to leave stays.
    Announce,
    /// Withdraw every VIP, wait until no connection is left, and end the program as SIGTERM does.
    /// `announce` undoes that meanwhile.
    Leave {
        /// End it after this time at the latest: `30s`, `10m`, `2h` or `1d`.
        #[arg(long = "for", value_name = "TIME", value_parser = time)]
        time: Option<Duration>,
        /// However long that takes, as without a time.
        #[arg(long, conflicts_with = "time")]
        until_empty: bool,
    },
}

/// Which backend.
#[derive(Args, Debug)]
pub struct Backend {
    /// Its address.
    #[arg(value_name = "ADDRESS")]
    pub backend: String,
    /// In this service alone, instead of in all that have it.
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
}

impl Ctl {
    /// Asks, prints the answer, and returns the exit code.
    #[must_use]
    pub fn ask(&self) -> ExitCode {
        let name = "ipip-lb";
        let ask = |command: &str, arguments: Value, text: &dyn Fn(&Value) -> String| {
            let text = |answer: &Value| with_warning(text(answer), answer);
            self.args.ask(name, &Request::with(command, arguments), &text)
        };
        let backend = |it: &Backend| json!({ "backend": it.backend, "service": it.service });
        match &self.command {
            CtlCommand::Status => ask("overview", Value::Null, &overview_text),
            CtlCommand::Counters => CommonCommand::Counters.ask(name, &self.args),
            CtlCommand::Load => CommonCommand::Load.ask(name, &self.args),
            CtlCommand::Xstats => CommonCommand::Xstats.ask(name, &self.args),
            CtlCommand::Capture(capture) => {
                CommonCommand::Capture(capture.clone()).ask(name, &self.args)
            }
            CtlCommand::Services => ask("services", Value::Null, &services_text),
            CtlCommand::NextHops => ask("next-hops", Value::Null, &|rows| {
                table(rows, &["port", "address", "mac", "state", "age_s", "backends"])
            }),
            CtlCommand::Cluster => ask("cluster", Value::Null, &cluster_text),
            CtlCommand::Backends => ask("backends", Value::Null, &backends_text),
            CtlCommand::Connections { filter, limit } => {
                let arguments = json!({ "filter": filter, "limit": limit });
                ask("connections", arguments, &connections_text)
            }
            CtlCommand::Lookup { protocol, client, vip } => {
                let arguments = json!({ "protocol": protocol, "client": client, "vip": vip });
                ask("lookup", arguments, &lookup_text)
            }
            CtlCommand::Drain { backend: of, time, until_empty } => {
                let mut arguments = backend(of);
                arguments["for_s"] = json!(time.map(|it| it.as_secs()));
                arguments["until_empty"] = json!(until_empty);
                ask("drain", arguments, &|answer| drained_text(&of.backend, answer))
            }
            CtlCommand::Weight { backend: of, weight } => {
                let mut arguments = backend(of);
                arguments["weight"] = json!(weight);
                ask("weight", arguments, &|answer| {
                    let services = counted(&answer["changed"], "service");
                    format!("{} has weight {weight} in {services}", of.backend)
                })
            }
            CtlCommand::Remove { backend: of, flush } => {
                let mut arguments = backend(of);
                arguments["flush"] = json!(flush);
                ask("remove", arguments, &|answer| removed_text(&of.backend, answer))
            }
            CtlCommand::Block { prefix, time } => {
                let for_s = time.map(|it| it.as_secs());
                let arguments = json!({ "prefix": prefix, "for_s": for_s });
                ask("block", arguments, &|answer| blocked_text(prefix, answer))
            }
            CtlCommand::Unblock { prefix } => ask("unblock", json!({ "prefix": prefix }), &|_| {
                format!("{prefix} is no longer blocked")
            }),
            CtlCommand::Blocks => {
                ask("blocks", Value::Null, &|rows| table(rows, &["prefix", "left_s"]))
            }
            CtlCommand::Reload => ask("reload", Value::Null, &reloaded_text),
            CtlCommand::Withdraw => ask("withdraw", Value::Null, &withdrawn_text),
            CtlCommand::Announce => ask("announce", Value::Null, &announced_text),
            CtlCommand::Leave { time, until_empty: _ } => {
                let arguments = json!({ "for_s": time.map(|it| it.as_secs()) });
                ask("leave", arguments, &leaving_text)
            }
        }
    }
}

/// Reads `30s`, `10m`, `2h` or `1d`.
fn time(text: &str) -> Result<Duration, String> {
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
        count.checked_mul(unit_s).filter(|it| (1..=TIME_S_MAX).contains(it))
    };
    let wrong = || "write a time up to a year, such as 30s, 10m, 2h or 1d".to_owned();
    seconds().map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_and_a_unit() {
        for (text, seconds) in [("30s", 30), ("10m", 600), ("2h", 7200), ("365d", TIME_S_MAX)] {
            assert_eq!(time(text), Ok(Duration::from_secs(seconds)));
        }
        for wrong in ["", "10", "m", "0s", "366d", "1w", "1.5h", "-1s", "10µ", "99999999999999999d"]
        {
            assert!(time(wrong).unwrap_err().contains("such as 30s"), "{wrong}");
        }
    }
}
