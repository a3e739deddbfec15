//! Answers about single connections.

use super::{cell, table};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// `ctl connections`.
#[derive(Debug, Deserialize)]
pub struct Connections {
    /// Number of connections that match the filter, listed or not.
    pub matching: u64,
    pub connections: Vec<Connection>,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct Connection {
    pub protocol: String,
    pub client: SocketAddr,
    pub vip: SocketAddr,
    pub worker: usize,
    pub state: String,
    pub service: Option<String>,
    pub backend: Option<IpAddr>,
}

impl fmt::Display for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { matching, connections } = self;
        let table = table!(connections, row => protocol: row.protocol, client: row.client,
            vip: row.vip, worker: row.worker, state: row.state, service: row.service,
            backend: row.backend);
        write!(f, "{table}\n{} of {matching} connections", connections.len())
    }
}

/// `ctl lookup`.
#[derive(Debug, Deserialize, Serialize)]
pub struct Lookup {
    pub worker: usize,
    pub service: Option<String>,
    pub rule: Option<String>,
    pub backend: Option<IpAddr>,
    pub why: String,
}

impl fmt::Display for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { worker, service, rule, backend, why } = self;
        let (service, rule, backend) = (cell(service), cell(rule), cell(backend));
        write!(
            f,
            "worker   {worker}\nservice  {service}\nrule     {rule}\nbackend  {backend}\nwhy      {why}"
        )
    }
}
