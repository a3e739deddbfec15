//! The answer about this node of a cluster.

use super::{counted, table};
use hotloop_cluster::sync::PeerStatus;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

/// `ctl cluster`.
#[derive(Debug, Deserialize, Serialize)]
pub struct Cluster {
    pub node: String,
    /// This node among its peers, if it has any.
    #[serde(flatten)]
    pub among: Option<Among>,
    pub peers: Vec<Peer>,
    pub store: Option<Store>,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct Among {
    pub listen: SocketAddr,
    pub is_ready: bool,
    /// The end of the certificate, in seconds since the epoch.
    pub certificate_not_after: Option<u64>,
    /// The digest of the service table.
    pub tables: String,
    /// The numbers of the reference tables, of the one in use first; two during a move.
    #[serde(default)]
    pub references: Vec<u32>,
    /// Whether connections that this node has lost may be alive.
    #[serde(default)]
    pub is_waiting: bool,
    /// Whether workers have marked all exceptions.
    pub is_marked: bool,
    pub waiting: usize,
    pub stale: u64,
    pub refused: u64,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct Peer {
    #[serde(flatten)]
    pub status: PeerStatus,
    /// The number of the peer's reference table in use.
    pub reference: Option<u32>,
    pub is_waiting: Option<bool>,
    pub tables: Option<String>,
    pub is_ready: Option<bool>,
}

/// The store of the configuration.
#[derive(Debug, Deserialize, Serialize)]
pub struct Store {
    pub address: String,
    pub revision: i64,
    pub newest: i64,
    pub proposed: Option<i64>,
    pub is_registered: bool,
    pub is_replaced: bool,
    /// How long the store has been out of reach.
    pub unread_s: Option<u64>,
    pub failure: Option<String>,
    pub copy_failure: Option<String>,
    /// Only in the answer to `ctl cluster`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<StoreNode>>,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct StoreNode {
    pub name: String,
    pub revision: i64,
    pub answer_to: Option<i64>,
    pub refused: Option<String>,
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.node)?;
        match &self.among {
            Some(among) => write!(f, " at {among}{}", peers_text(&self.peers))?,
            None => f.write_str(": shares no connections (it has no cluster.peers)")?,
        }
        let Some(store) = &self.store else { return Ok(()) };
        let nodes = store.nodes.iter().flatten();
        let nodes = table!(nodes, node => name: node.name, revision: node.revision,
            answer_to: node.answer_to, refused: node.refused);
        write!(f, "\n\n{store}{nodes}")
    }
}

impl fmt::Display for Among {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { listen, tables, stale, refused, .. } = self;
        let ready = if self.is_ready { "ready" } else { "waits for its peers" };
        let marked = if self.is_marked { "all" } else { "not all" };
        let waiting = counted(self.waiting, "change");
        let reference = match self.references[..] {
            [] => "none".to_owned(),
            [number] => number.to_string(),
            [in_use, other, ..] => format!("{in_use}, moving ({other})"),
        };
        let lost = if self.is_waiting { "; lost connections may be alive" } else { "" };
        let certificate = self.certificate_not_after.map(certificate_text).unwrap_or_default();
        write!(
            f,
            "{listen}, tables {tables}: {ready}; {marked} exceptions are handed over, {waiting} waiting\n\
             reference table {reference}{lost}\n\
             of peers: {stale} stale, {refused} refused\n{certificate}"
        )
    }
}

fn peers_text(peers: &[Peer]) -> String {
    let mut text = table!(peers, peer => name: peer.status.name, address: peer.status.address,
        state: peer.status.state, revision: peer.status.revision, tables: peer.tables,
        reference: peer.reference, is_ready: peer.is_ready, has_its_snapshot: peer.status.has_its_snapshot,
        is_caught_up: peer.status.is_caught_up, lag_records: peer.status.lag_records,
        lag_ms: peer.status.lag_ms, sent: peer.status.counts.sent,
        received: peer.status.counts.received);
    for PeerStatus { name, last_error, .. } in peers.iter().map(|peer| &peer.status) {
        if let Some(error) = last_error {
            text.push_str(&format!("\n{name}: {error}"));
        }
    }
    text
}

/// A line with the remaining time of this node's certificate.
fn certificate_text(not_after: u64) -> String {
    // A clock that is not set shows the epoch.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let time = match not_after.abs_diff(now) / 3_600 {
        hours @ ..48 => counted(hours, "hour"),
        hours => counted(hours / 24, "day"),
    };
    match now > not_after {
        true => format!("the certificate ended {time} ago: write another, and ctl reload\n"),
        false => format!("the certificate ends in {time}\n"),
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, revision, newest, .. } = self;
        write!(f, "store {address}: revision {revision} in force")?;
        if newest != revision {
            write!(f, ", {newest} refused or under way")?;
        }
        if let Some(proposed) = self.proposed {
            write!(f, ", {proposed} being prepared")?;
        }
        if self.is_replaced {
            write!(f, "; another node has this one's name, and changes wait for that one")?;
        } else if !self.is_registered {
            write!(f, "; changes do not wait for this node")?;
        }
        if let Some((failure, unread_s)) = self.failure.as_ref().zip(self.unread_s) {
            write!(f, "; not read for {unread_s} s: {failure}")?;
        }
        if let Some(failure) = &self.copy_failure {
            write!(f, "; no copy: {failure}")?;
        }
        writeln!(f)
    }
}
