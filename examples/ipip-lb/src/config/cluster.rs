//! `[cluster]`.

use super::ConfigError;
use super::document::{Section, Value};
use super::health::CaFiles;
use super::store::{STORE_KEYS, store};
use hotloop_cluster::settings::{Cluster, ClusterPeer, Security, Store};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

/// Default time that a node waits for its peers' snapshots, in seconds.
const READY_TIMEOUT_S: u32 = 30;

/// Maximum such time.
const READY_TIMEOUT_S_MAX: u32 = 3_600;

/// Default time in which workers examine all connections after a change, in milliseconds.
pub const PREPARE_MS_MAX: u32 = 1_000;

/// The range of that time.
const PREPARE_MS_RANGE: RangeInclusive<u32> = 10..=60_000;

/// Default time that all nodes must want the same backends before those become the reference table, in
/// seconds. By then, claims to exceptions have cost about twice the bytes of a move.
const SETTLE_S: u32 = 60;

/// The range of that time.
const SETTLE_S_RANGE: RangeInclusive<u32> = 1..=86_400;

/// Maximum number of peers.
const PEERS_MAX: usize = 31;

/// Maximum number of nodes.
pub const NODES_MAX: usize = PEERS_MAX + 1;

/// Maximum length of a node's name, in bytes: a label of a domain name (RFC 1035, section 2.3.4).
const NAME_BYTES_MAX: usize = 63;

/// The keys of the files that secure connections between nodes.
const PEER_KEYS: [&str; 9] = [
    "peers",
    "listen",
    "trusted_network",
    "certificate",
    "key",
    "authority",
    "ready_timeout_s",
    "prepare_ms_max",
    "settle_s",
];

/// The settings in `[cluster]`.
#[derive(Debug, Default)]
pub struct ClusterSection {
    pub cluster: Option<Cluster>,
    pub store: Option<Store>,
}

impl ClusterSection {
    /// The node's name, if there is a cluster.
    pub fn node(&self) -> Option<&str> {
        let of_store = self.store.as_ref().map(|store| &*store.node);
        of_store.or_else(|| self.cluster.as_ref().map(|cluster| &*cluster.node))
    }
}

/// Reads the peers of this node and the store of the configuration of all nodes, one of them or
/// both.
pub fn cluster(section: &Section<'_>, files: &mut CaFiles) -> Result<ClusterSection, ConfigError> {
    section.allow_only(&[&STORE_KEYS[..], &PEER_KEYS].concat())?;
    let store = store(section, files)?;
    let has_peer_keys = PEER_KEYS.into_iter().any(|key| section.optional(key).is_some());
    let has_peers = has_peer_keys || store.is_none();
    let cluster = has_peers.then(|| peered(section, files)).transpose()?;
    Ok(ClusterSection { cluster, store })
}

/// Reads the peers of this node, and the settings for connections to them.
fn peered(section: &Section<'_>, files: &mut CaFiles) -> Result<Cluster, ConfigError> {
    let node = node_name(&section.required("node", "\"lb-a\"")?)?;
    let mut peers = peers(section)?;
    let own = peers.iter().position(|peer| peer.name == node).map(|index| peers.remove(index));
    let listen = match (section.optional("listen"), own) {
        (Some(value), _) => address(&value)?,
        (None, Some(own)) => own.address,
        (None, None) => {
            let remedy = "listen = \"192.0.2.1:4790\", or this node among the peers";
            return Err(section.missing("listen", remedy));
        }
    };
    let ready_timeout_s =
        section.integer_or("ready_timeout_s", 0..=READY_TIMEOUT_S_MAX, READY_TIMEOUT_S)?;
    let prepare_ms_max = section.integer_or("prepare_ms_max", PREPARE_MS_RANGE, PREPARE_MS_MAX)?;
    let settle_s = section.integer_or("settle_s", SETTLE_S_RANGE, SETTLE_S)?;
    let security = security(section, files)?;
    Ok(Cluster { node, listen, peers, security, ready_timeout_s, prepare_ms_max, settle_s })
}

/// Reads the listed nodes. This node may be among them, so that all nodes can have the same list.
fn peers(section: &Section<'_>) -> Result<Vec<ClusterPeer>, ConfigError> {
    let example = "[{ name = \"lb-2\", address = \"192.0.2.2:4790\" }]";
    let list = section.required("peers", example)?;
    let sections = section.sections("peers")?;
    if !(1..=NODES_MAX).contains(&sections.len()) {
        return Err(list.error(format!("{} nodes; write 1 to {PEERS_MAX} others", sections.len())));
    }
    let (mut names, mut addresses) = (HashSet::new(), HashSet::new());
    let peer = |peer: Section<'_>| {
        peer.allow_only(&["name", "address"])?;
        let name = node_name(&peer.required("name", "\"lb-2\"")?)?;
        let address = address(&peer.required("address", "\"192.0.2.2:4790\"")?)?;
        if !names.insert(name.clone()) {
            return Err(peer.error("name", format!("{name} is there twice; leave one out")));
        }
        if !addresses.insert(address) {
            return Err(peer.error("address", format!("{address} is there twice; mend one")));
        }
        Ok(ClusterPeer { name, address })
    };
    sections.into_iter().map(peer).collect()
}

/// Reads the name of a node, which its certificate is issued for.
fn node_name(value: &Value<'_>) -> Result<String, ConfigError> {
    let sound = |text: &str| {
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=NAME_BYTES_MAX).contains(&text.len())
            && text.bytes().all(is_plain)
            && !text.starts_with('-')
            && !text.ends_with('-')
    };
    let example = "1 to 63 lower-case letters, digits and inner '-'";
    value.parsed("the name of a node", example, |text| sound(text).then(|| text.to_owned()))
}

fn address(value: &Value<'_>) -> Result<SocketAddr, ConfigError> {
    let example = "192.0.2.1:4790 or [2001:db8::1]:4790";
    value.parsed("an IP address and a port", example, |text| {
        text.parse().ok().filter(|address: &SocketAddr| address.port() != 0)
    })
}

fn security(section: &Section<'_>, files: &mut CaFiles) -> Result<Security, ConfigError> {
    if section.boolean_or("trusted_network", false)? {
        let file = ["certificate", "key", "authority"].iter().find_map(|key| section.optional(key));
        return match file {
            None => Ok(Security::TrustedNetwork),
            Some(value) => {
                Err(value.error("trusted_network = true uses no TLS; leave out one of the two"))
            }
        };
    }
    let file = |key, example| {
        let remedy = format!(
            "\"{example}\", or trusted_network = true if no other host can read this network or \
             send to it"
        );
        section.required(key, &remedy)
    };
    let certificate = file("certificate", "lb-1.pem")?;
    let (key, authority) = (file("key", "lb-1.key")?, file("authority", "ca.pem")?);
    Ok(Security::Tls {
        certificate: files.checked(&certificate)?,
        key: files.path(&key)?,
        authority: files.checked(&authority)?,
    })
}
