//! `ipip-lb ctl`: sends a request to a running balancer, and prints its answer. The commands are
//! those of [`Request`], and those that every program answers; this module has the text form of the
//! answers.

mod text;

use crate::request::{Block, Request};
use clap::{Args, Subcommand};
use hotloop_ops::{CaptureArgs, CommonCommand, CtlArgs};
use serde_json::Value;
use std::process::ExitCode;
use text::{
    backends_text, cell, cluster_text, counted, leave_text, listed, overview_text, removal_text,
    services_text, table,
};

/// `ipip-lb ctl`.
#[derive(Args, Debug)]
pub struct Ctl {
    /// The balancer, and the form of the answer.
    #[command(flatten)]
    pub args: CtlArgs,
    /// The request.
    #[command(subcommand)]
    pub command: CtlCommand,
}

/// The requests to a running balancer.
#[derive(Debug, Subcommand)]
pub enum CtlCommand {
    /// Print what runs, its start, what went through each core, and the balancer's state.
    Status,
    /// Print what each stage on each core has counted, and drops by reason.
    Counters,
    /// Print how far each core is from its limit, what takes its time, and what waits for it, over
    /// the last second.
    Load,
    /// Print every statistic of each device, under its driver's own names.
    Xstats,
    /// Write packets that pass to a file, for tcpdump and Wireshark, until Ctrl-C.
    Capture(CaptureArgs),
    /// Requests that only the balancer answers.
    #[command(flatten)]
    Balancer(Request),
}

impl Ctl {
    /// Sends the request, prints the answer, and returns the exit code.
    #[must_use]
    pub fn ask(&self) -> ExitCode {
        let name = "ipip-lb";
        let ask = |request: &Request| {
            let text = |answer: &Value| with_warning(text_of(request, answer), answer);
            self.args.ask(name, &request.to_ops(), &text)
        };
        match &self.command {
            CtlCommand::Status => ask(&Request::Overview),
            CtlCommand::Counters => CommonCommand::Counters.ask(name, &self.args),
            CtlCommand::Load => CommonCommand::Load.ask(name, &self.args),
            CtlCommand::Xstats => CommonCommand::Xstats.ask(name, &self.args),
            CtlCommand::Capture(capture) => {
                CommonCommand::Capture(capture.clone()).ask(name, &self.args)
            }
            CtlCommand::Balancer(request) => ask(request),
        }
    }
}

/// The text form of the answer to a request.
fn text_of(request: &Request, answer: &Value) -> String {
    match request {
        Request::Overview => overview_text(answer),
        Request::Services => services_text(answer),
        Request::Backends => backends_text(answer),
        Request::NextHops => {
            table(answer, &["port", "address", "mac", "state", "age_s", "backends"])
        }
        Request::Cluster => cluster_text(answer),
        Request::Connections { .. } => connections_text(answer),
        Request::Lookup(_) => lookup_text(answer),
        Request::Drain { backend, .. } => drained_text(&backend.backend, answer),
        Request::Weight { backend, weight } => weighed_text(&backend.backend, *weight, answer),
        Request::Remove { backend, .. } => removed_text(&backend.backend, answer),
        Request::Block(Block { prefix, .. }) => blocked_text(prefix, answer),
        Request::Unblock { prefix } => format!("{prefix} is no longer blocked"),
        Request::Blocks => table(answer, &["prefix", "left_s"]),
        Request::Reload => reloaded_text(answer),
        Request::Withdraw => withdrawn_text(answer),
        Request::Announce => announced_text(answer),
        Request::Leave { .. } => leaving_text(answer),
        // The command line has neither.
        Request::Replace(_) | Request::Unknown => answer.to_string(),
    }
}

/// The text, with a warning if a restart would undo the change.
fn with_warning(text: String, answer: &Value) -> String {
    match answer["unsaved"].as_str() {
        Some(why) => {
            format!("{text}\nwarning: this is in force, but a restart of the node undoes it: {why}")
        }
        None => text,
    }
}

fn blocked_text(prefix: &str, answer: &Value) -> String {
    match answer["for_s"].as_u64() {
        Some(seconds) => format!("{prefix} is blocked for {seconds} s"),
        None => format!("{prefix} is blocked until it is unblocked"),
    }
}

fn removed_text(backend: &str, answer: &Value) -> String {
    let services = counted(&answer["removed"], "service");
    let end = if answer["flush"] == true { ", and its connections end" } else { "" };
    format!("{backend} is taken out of {services}{end}")
}

fn reloaded_text(answer: &Value) -> String {
    let services = counted(&answer["services"], "service");
    format!("reloaded: {services} with {}", counted(&answer["backends"], "backend"))
}

fn drained_text(backend: &str, answer: &Value) -> String {
    let services = counted(&answer["changed"], "service");
    let end = removal_text(&answer["draining"]);
    format!("{backend} gets no new connections in {services}{end}")
}

fn weighed_text(backend: &str, weight: u32, answer: &Value) -> String {
    format!("{backend} has weight {weight} in {}", counted(&answer["changed"], "service"))
}

fn withdrawn_text(answer: &Value) -> String {
    format!("withdrawn: {}", listed(&answer["withdrawn"]))
}

fn leaving_text(answer: &Value) -> String {
    let (withdrawn, left) = (withdrawn_text(answer), counted(&answer["connections"], "connection"));
    format!("{withdrawn}\nthe program ends {}: {left} now", leave_text(&answer["leaving"]))
}

fn announced_text(answer: &Value) -> String {
    format!("announced again: {}", listed(&answer["ready"]))
}

fn connections_text(answer: &Value) -> String {
    let rows = &answer["connections"];
    let columns = ["protocol", "client", "vip", "worker", "state", "service", "backend"];
    let listed = rows.as_array().map_or(0, Vec::len);
    format!("{}\n{listed} of {} connections", table(rows, &columns), cell(&answer["matching"]))
}

fn lookup_text(answer: &Value) -> String {
    let lines = ["worker", "service", "rule", "backend", "why"].map(|key| {
        let value = cell(&answer[key]);
        format!("{key:<8} {value}")
    });
    lines.join("\n")
}
