//! `ipip-lb ctl`: asking a running balancer. The commands are those of [`Request`], and those that every program answers;
//! this module has how the answers read.

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
    /// What the balancer alone answers.
    #[command(flatten)]
    Balancer(Request),
}

impl Ctl {
    /// Asks, prints the answer, and returns the exit code.
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

/// How people read the answer to a request.
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
