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
    announced_text, backends_text, blocked_text, cluster_text, connections_text, drained_text,
    leaving_text, lookup_text, overview_text, reloaded_text, removed_text, services_text, table,
    weighed_text, with_warning, withdrawn_text,
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
