//! The keys of `[cluster]` for the store of the configuration of all nodes.

use super::ConfigError;
use super::document::Section;
use hotloop_cluster::settings::{Store, StoreAddress};
use hotloop_files::kept_file;
use std::path::PathBuf;
use std::str::FromStr;

/// The keys of `[cluster]` that [`store`] reads.
pub const STORE_KEYS: [&str; 2] = ["store", "store_copy"];

/// Reads the store of the node called `node`, if the section names one.
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
    let copy = kept_file(cluster, "store_copy", node, "toml")?;
    Ok(Some(Store { address, node: node.to_owned(), copy }))
}

/// The file that `key` names, or else the node's default file with this ending; it must be
/// replaceable.
pub fn kept_file(
    cluster: &Section<'_>,
    key: &str,
    node: &str,
    ending: &str,
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
                (
                    &endpoints.iter().map(|endpoint| (*endpoint).to_owned()).collect::<Vec<_>>()[..],
                    prefix
                )
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
