//! The nodes of a cluster and the address of its store, as plain values.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// This node of a cluster, and its peers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cluster {
    /// The name of this node.
    pub node: String,
    /// The address that it listens at for peers that connect to it.
    pub listen: SocketAddr,
    /// The other nodes; no name and no address twice.
    pub peers: Vec<ClusterPeer>,
    /// The authentication of peers.
    pub security: Security,
    /// Maximum time to wait for the peers' snapshots before the node announces VIPs, in seconds.
    pub ready_timeout_s: u32,
    /// Time in which workers examine all connections when the reference table moves, in milliseconds.
    pub prepare_ms_max: u32,
    /// How long all nodes must want the same backends before those become the reference table, in
    /// seconds.
    pub settle_s: u32,
}

/// One of the other nodes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClusterPeer {
    /// The node's name.
    pub name: String,
    /// The address that it listens at.
    pub address: SocketAddr,
}

/// The way that nodes authenticate their peers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Security {
    /// Not at all: no other host can send to the network between them, or read it.
    TrustedNetwork,
    /// TLS, with certificates on both sides. Each file is PEM.
    Tls {
        /// This node's certificate, for its name, and the certificates between it and the
        /// authority.
        certificate: PathBuf,
        /// The certificate's private key.
        key: PathBuf,
        /// The certificates of the authorities that sign the nodes' certificates.
        authority: PathBuf,
    },
}

/// The store of the configuration of all nodes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Store {
    /// The way to the store.
    pub access: StoreAccess,
    /// The name of this node in the store.
    pub node: String,
    /// The node's copy of the last configuration in force, for a start without the store.
    pub copy: PathBuf,
}

/// The way to a store: its address, and what both sides show each other.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoreAccess {
    /// The store's address.
    pub address: StoreAddress,
    /// The settings for TLS; `None` for HTTP in clear, without a user.
    pub tls: Option<StoreTls>,
}

/// TLS to a store. Each file is PEM, except the password.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoreTls {
    /// The certificates of the authorities that sign the certificates of the store's members.
    pub authority: PathBuf,
    /// This node's certificate for the store, and its private key, if the store requires one.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The user of the store, if the store has users.
    pub user: Option<StoreUser>,
}

/// A user of a store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoreUser {
    /// The user's name.
    pub name: String,
    /// The file that contains the password, on its first line.
    pub password_file: PathBuf,
}

/// Access in clear.
impl From<StoreAddress> for StoreAccess {
    fn from(address: StoreAddress) -> Self {
        Self { address, tls: None }
    }
}

/// The prefix of keys if an address has no prefix.
const PREFIX_DEFAULT: &str = "/ipip-lb/";

/// Maximum length of a prefix of keys, in bytes.
const PREFIX_BYTES_MAX: usize = 200;

/// The end of each error message: the text to write instead.
const EXAMPLE: &str = "write etcd://HOST:PORT, with more HOST:PORT after commas and /PREFIX at its end as you need, and \
     store_authority for TLS";

/// The address of the configuration of all nodes: an etcd, and the prefix of the keys there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoreAddress {
    /// `HOST:PORT` of each member, tried in turn.
    endpoints: Vec<String>,
    prefix: String,
}

impl StoreAddress {
    /// `HOST:PORT` of each member, at least one.
    #[must_use]
    pub fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// The prefix of all keys, which begins and ends with a slash.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl FromStr for StoreAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("{text:?} {what}; {EXAMPLE}");
        let rest = text.strip_prefix("etcd://").ok_or_else(|| wrong("is no address of a store"))?;
        let (endpoints, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let endpoints: Vec<_> = endpoints.split(',').map(str::to_owned).collect();
        if let Some(endpoint) = endpoints.iter().find(|endpoint| !is_endpoint(endpoint)) {
            return Err(wrong(&format!("names a member {endpoint:?}, which is not HOST:PORT")));
        }
        let prefix = prefix.trim_matches('/');
        let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
        if prefix.len() > PREFIX_BYTES_MAX || !prefix.bytes().all(sound) {
            let what = "names a prefix of keys that is not up to 200 letters, digits, \
                        '-', '_', '.', ':' and '/'";
            return Err(wrong(what));
        }
        let prefix = match prefix {
            "" => PREFIX_DEFAULT.to_owned(),
            prefix => format!("/{prefix}/"),
        };
        Ok(Self { endpoints, prefix })
    }
}

fn is_endpoint(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_name = |host: &str| {
        let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !host.is_empty() && host.bytes().all(sound)
    };
    let v6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host =
        v6.map_or_else(|| is_name(host), |host| host.parse::<std::net::Ipv6Addr>().is_ok());
    is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// As it is written in a configuration.
impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcd://{}", self.endpoints.join(","))?;
        match self.prefix.as_str() {
            PREFIX_DEFAULT => Ok(()),
            prefix => f.write_str(prefix.trim_end_matches('/')),
        }
    }
}
