//! `[cluster]`.

use super::ConfigError;
use super::document::{Section, Value};
use super::health::CaFiles;
use super::parse::name;
use super::store::{STORE_KEYS, kept_file, store};
use hotloop_cluster::settings::{Cluster, ClusterPeer, Security, Store};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Default time that a node waits for its peers' snapshots, in seconds.
const READY_TIMEOUT_S: u32 = 30;

/// Maximum such time.
const READY_TIMEOUT_S_MAX: u32 = 3_600;

/// Default time in which workers examine all connections after a change, in milliseconds.
pub const PREPARE_MS_MAX: u32 = 1_000;

/// The range of that time.
const PREPARE_MS_RANGE: RangeInclusive<u32> = 10..=5_000;

/// Maximum number of peers.
const PEERS_MAX: usize = 31;

/// Maximum number of nodes.
pub const NODES_MAX: usize = PEERS_MAX + 1;

/// Maximum length of a node's name, in bytes: a label of a domain name (RFC 1035, section 2.3.4).
const NAME_BYTES_MAX: usize = 63;

/// The key of the file in which a node keeps operators' changes.
const OPERATOR_FILE: &str = "operator_file";

/// The keys of the files that secure connections between nodes.
const PEER_KEYS: [&str; 8] = [
    "peers",
    "listen",
    "trusted_network",
    "certificate",
    "key",
    "authority",
    "ready_timeout_s",
    "prepare_ms_max",
];

/// Reads the peers of this node, and the store of the configuration of all nodes: one of them or
/// both.
pub fn cluster(
    section: &Section<'_>,
    files: &mut CaFiles,
) -> Result<(Option<Cluster>, Option<Store>), ConfigError> {
    section.allow_only(&[&["node", OPERATOR_FILE][..], &STORE_KEYS, &PEER_KEYS].concat())?;
    let node = section.required("node", "the node's name, such as node = \"lb-a\"")?;
    let store = store(section, &name(&node)?)?;
    let named = PEER_KEYS.into_iter().find(|key| section.optional(key).is_some());
    let cluster = match (named, &store) {
        (None, Some(_)) => None,
        _ => Some(peered(section, node_name(&node)?, files)?),
    };
    Ok((cluster, store))
}

/// Reads the name of the file in which the node keeps operators' changes; the other file is the
/// copy of its store.
pub fn operator_file(section: &Section<'_>, store: Option<&Store>) -> Result<PathBuf, ConfigError> {
    let node = name(&section.required("node", "the node's name")?)?;
    let file = kept_file(section, OPERATOR_FILE, &node, "operator.json")?;
    if store.is_some_and(|store| store.copy == file) {
        let problem = format!("{} is store_copy too; name another file", file.display());
        return Err(section.error(OPERATOR_FILE, problem));
    }
    Ok(file)
}

/// Reads the peers of the node called `node`, and the settings for connections to them.
fn peered(
    section: &Section<'_>,
    node: String,
    files: &mut CaFiles,
) -> Result<Cluster, ConfigError> {
    let mut peers = peers(section)?;
    let own = peers.iter().position(|peer| peer.name == node).map(|index| peers.remove(index));
    let listen = match (section.optional("listen"), own) {
        (Some(value), _) => address(&value)?,
        (None, Some(own)) => own.address,
        (None, None) => {
            let problem =
                "missing; write listen = \"192.0.2.1:4790\", or this node among the peers";
            return Err(section.error("listen", problem));
        }
    };
    let ready_timeout_s =
        section.integer_or("ready_timeout_s", 0..=READY_TIMEOUT_S_MAX, READY_TIMEOUT_S)?;
    let prepare_ms_max = section.integer_or("prepare_ms_max", PREPARE_MS_RANGE, PREPARE_MS_MAX)?;
    let security = security(section, files)?;
    Ok(Cluster { node, listen, peers, security, ready_timeout_s, prepare_ms_max })
}

/// Reads the listed nodes. This node may be among them, so that all nodes can have the same list.
fn peers(section: &Section<'_>) -> Result<Vec<ClusterPeer>, ConfigError> {
    let example = "peers = [{ name = \"lb-2\", address = \"192.0.2.2:4790\" }]";
    let list = section.required("peers", example)?;
    let sections = section.sections("peers")?;
    if !(1..=NODES_MAX).contains(&sections.len()) {
        return Err(list.error(format!("{} nodes; write 1 to {PEERS_MAX} others", sections.len())));
    }
    let (mut names, mut addresses) = (HashSet::new(), HashSet::new());
    let peer = |peer: Section<'_>| {
        peer.allow_only(&["name", "address"])?;
        let name = node_name(&peer.required("name", "name = \"lb-2\"")?)?;
        let address = address(&peer.required("address", "address = \"192.0.2.2:4790\"")?)?;
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
    let named = ["certificate", "key", "authority"].map(|key| section.optional(key));
    let is_trusted = section.boolean_or("trusted_network", false)?;
    match named {
        [None, None, None] if is_trusted => Ok(Security::TrustedNetwork),
        [Some(certificate), Some(key), Some(authority)] if !is_trusted => Ok(Security::Tls {
            certificate: files.checked(&certificate)?,
            key: files.path(&key)?,
            authority: files.checked(&authority)?,
        }),
        [certificate, key, authority] if is_trusted => {
            let problem = "trusted_network = true uses no TLS; leave out one of the two";
            let value = certificate.or(key).or(authority);
            Err(value.map_or_else(
                || section.error("certificate", problem),
                |value| value.error(problem),
            ))
        }
        [certificate, key, _] => {
            let (missing, example) = match (certificate, key) {
                (None, _) => ("certificate", "certificate = \"lb-1.pem\""),
                (_, None) => ("key", "key = \"lb-1.key\""),
                _ => ("authority", "authority = \"ca.pem\""),
            };
            let problem = format!(
                "missing; write {example}, or trusted_network = true where nobody else can send to \
                 this network or read it"
            );
            Err(section.error(missing, problem))
        }
    }
}
