//! `[cluster]`, as far as it says where the configuration of all nodes is.

use super::ConfigError;
use super::document::Section;
use crate::kept_file;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The prefix of keys where an address names none.
const PREFIX_DEFAULT: &str = "/ipip-lb/";

/// The longest prefix of keys, in bytes.
const PREFIX_BYTES_MAX: usize = 200;

/// What is wrong with an address, and what to write instead.
const EXAMPLE: &str =
    "write etcd://HOST:PORT, with more HOST:PORT after commas and /PREFIX at its end as you need";

/// Where the configuration of all nodes is: an etcd, and the prefix of its keys there.
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

    /// What all keys begin with: it begins and ends with a slash.
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

/// The store that has the configuration of all nodes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Store {
    /// Where it is.
    pub address: StoreAddress,
    /// The name of this node there.
    pub node: String,
    /// The file in which the node keeps the last one that was in force, for a start without the store.
    pub copy: PathBuf,
}

/// The keys of `[cluster]` that [`store`] reads.
pub const STORE_KEYS: [&str; 2] = ["store", "store_copy"];

/// The store of the node called `node`, where the section names one.
pub fn store(cluster: &Section<'_>, node: &str) -> Result<Option<Store>, ConfigError> {
    let Some(address) = cluster.optional("store") else {
        return match cluster.optional("store_copy") {
            Some(copy) => {
                Err(copy.error("there is no store; write store = \"etcd://HOST:PORT\" too"))
            }
            None => Ok(None),
        };
    };
    let address = address.parsed_by(StoreAddress::from_str)?;
    let copy = kept_file(cluster, "store_copy", (node, "toml"))?;
    Ok(Some(Store { address, node: node.to_owned(), copy }))
}

/// The file that `key` names, or else the one of this ending that is the node's by default: one that may be replaced.
pub fn kept_file(
    cluster: &Section<'_>,
    key: &str,
    (node, ending): (&str, &str),
) -> Result<PathBuf, ConfigError> {
    let path = |node: &str| format!("/var/lib/ipip-lb/{node}.{ending}");
    let absolute = |text: &str| text.starts_with('/').then(|| PathBuf::from(text));
    let named = cluster.optional(key);
    let file = match &named {
        None => path(node).into(),
        Some(named) => {
            named.parsed("an absolute path", &format!("{:?}", path("NODE")), absolute)?
        }
    };
    let Some(what) = kept_file::obstacle(&file) else { return Ok(file) };
    let problem = format!(
        "{} is {what}, and only a regular file is replaced; name one, or one that is not there yet",
        file.display()
    );
    Err(named.map_or_else(|| cluster.error(key, &*problem), |named| named.error(&*problem)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_members_and_a_prefix() {
        for (text, endpoints, prefix) in [
            ("etcd://127.0.0.1:2379", &["127.0.0.1:2379"][..], "/ipip-lb/"),
            (
                "etcd://a:1,[2001:db8::1]:2,c.example:3/",
                &["a:1", "[2001:db8::1]:2", "c.example:3"],
                "/ipip-lb/",
            ),
            ("etcd://a:1/site/lb", &["a:1"], "/site/lb/"),
        ] {
            let address: StoreAddress = text.parse().unwrap();
            assert_eq!(
                (address.endpoints(), address.prefix()),
                (&endpoints.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()[..], prefix)
            );
            assert_eq!(address.to_string().parse(), Ok(address));
        }
        for wrong in [
            "",
            "http://a:1",
            "etcd://",
            "etcd://a",
            "etcd://a:0",
            "etcd://a:1,",
            "etcd://a:1/ü",
            "etcd://[a]:1",
            "etcd://u:p@a:1",
        ] {
            let error = wrong.parse::<StoreAddress>().unwrap_err();
            assert!(error.contains("write etcd://HOST:PORT"), "{error}");
        }
    }
}
