//! `ipip-lb ctl`: sends a request to a running balancer, and prints its answer. The commands are
//! those of [`Request`], and those that every program answers; the answers and their text form are
//! those of the module `answer`.

use crate::answer::{
    Backend, Block, Change, Cluster, Connections, Lookup, NextHop, Saved, Service, Status,
};
use crate::request::Request;
use clap::{Args, Subcommand};
use hotloop_ops::{CommonCommand, CtlArgs, one_line};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::process::ExitCode;

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
    /// Requests that every program answers.
    #[command(flatten)]
    Common(CommonCommand),
    /// Requests that only the balancer answers.
    #[command(flatten)]
    Balancer(Request),
}

impl Ctl {
    /// Sends the request, prints the answer, and returns the exit code.
    #[must_use]
    pub fn ask(&self) -> ExitCode {
        match &self.command {
            CtlCommand::Common(CommonCommand::Status) => self.ask_balancer(&Request::Overview),
            CtlCommand::Common(command) => command.ask(NAME, &self.args),
            CtlCommand::Balancer(request) => self.ask_balancer(request),
        }
    }

    /// Reads the answer to each request as the type that [`control`](crate::control) fills in.
    fn ask_balancer(&self, request: &Request) -> ExitCode {
        match request {
            Request::Overview => self.print(request, Status::to_string),
            Request::Services => self.print(request, Service::text),
            Request::Backends => self.print(request, Backend::text),
            Request::NextHops => self.print(request, NextHop::text),
            Request::Cluster => self.print(request, Cluster::to_string),
            Request::Connections { .. } => self.print(request, Connections::to_string),
            Request::Lookup(_) => self.print(request, Lookup::to_string),
            Request::Blocks => self.print(request, Block::text),
            Request::Drain { .. }
            | Request::Weight { .. }
            | Request::Remove { .. }
            | Request::Block(_)
            | Request::Unblock { .. }
            | Request::Reload { .. }
            | Request::Withdraw
            | Request::Announce
            | Request::Leave { .. } => {
                let named = request.changed().unwrap_or_default();
                self.print(request, |saved: &Saved<Change>| saved.text(named))
            }
            // The command line has neither.
            Request::Replace(_) | Request::Unknown => self.print(request, Value::to_string),
        }
    }

    fn print<A: DeserializeOwned>(
        &self,
        request: &Request,
        text: impl FnOnce(&A) -> String,
    ) -> ExitCode {
        self.args.ask(NAME, &request.to_ops(), text)
    }
}

const NAME: &str = "ipip-lb";

/// Whether a request changes nothing.
#[must_use]
pub fn is_query(request: &hotloop_ops::Request) -> bool {
    let known = Request::read(request).ok().filter(|known| *known != Request::Unknown);
    known.is_some_and(|known| known.changed().is_none())
}

/// The balancer's log of a request and its answer, if it changes anything.
#[must_use]
pub fn note(
    request: &hotloop_ops::Request,
    answer: &dyn Fn() -> Result<Value, String>,
) -> Option<String> {
    let request = Request::read(request).ok()?;
    let named = request.changed()?;
    let text = |answer: Value| match serde_json::from_value(answer) {
        Ok(saved) => Saved::<Change>::text(&saved, named),
        // The answer of a takeover.
        Err(_) => "another program asks to take over".to_owned(),
    };
    Some(one_line(&answer().map_or_else(|why| format!("error: {why}"), text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_a_known_command_that_changes_nothing() {
        let is_query = |command| is_query(&hotloop_ops::Request::new(command));
        for query in ["overview", "services", "backends", "connections", "cluster", "blocks"] {
            assert!(is_query(query), "{query}");
        }
        for other in ["drain", "block", "reload", "withdraw", "leave", "replace", "capture", "x"] {
            assert!(!is_query(other), "{other}");
        }
    }
}
