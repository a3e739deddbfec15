//! `nat44 ctl connections`: the connections of all cores.

use clap::Subcommand;
use hotloop::flow::Cursor;
use hotloop::prelude::*;
use hotloop_ops::{CtlArgs, Listing, Reply, Request, Steer};
use nat44::connections::Row;
use serde_json::{Value, json};
use std::{net::SocketAddrV4, process::ExitCode};

/// Maximum number of connections in an answer.
const LIMIT: usize = 1000;

/// The commands of `nat44 ctl`, besides those of every program.
#[derive(Subcommand)]
pub enum Command {
    /// List connections: core, protocol, the host's address and port, its port of the WAN address,
    /// and the peer's address and port.
    Connections,
}

/// Control's end of the listing.
pub struct Operator(pub Listing<(), Cursor, Row>);

impl Steer for Operator {
    fn answer(&mut self, _: &Control<'_>, request: &Request) -> Result<Reply, String> {
        match request.command.as_str() {
            "connections" => Ok(self.0.list((), LIMIT)),
            _ => request.unknown(),
        }
    }

    fn turn(&mut self, _: &Control<'_>) {
        self.0.turn(|core, (key, connection)| {
            let host = SocketAddrV4::new(key.source(), key.source_port());
            let peer = SocketAddrV4::new(key.destination(), key.destination_port());
            let (protocol, port) = (key.protocol(), connection.port);
            json!({ "core": core, "protocol": protocol, "host": host, "port": port, "peer": peer })
        });
    }
}

/// Asks the program that runs, and prints its answer: a line for each connection.
pub fn ask(ctl: &CtlArgs, Command::Connections: Command) -> ExitCode {
    ctl.ask("nat44", &Request::new("connections"), |answer: &Value| {
        let connections = answer["connections"].as_array().into_iter().flatten();
        connections.map(Value::to_string).collect::<Vec<_>>().join("\n")
    })
}
