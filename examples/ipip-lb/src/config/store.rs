//! The keys of `[cluster]` for the store of the configuration of all nodes.

use super::ConfigError;
use super::document::Section;
use super::parse::name;
use hotloop_cluster::settings::{Store, StoreAddress};
use hotloop_files::kept_file;
use std::path::PathBuf;
use std::str::FromStr;

/// The key of the file in which a node keeps operators' changes.
const OPERATOR_FILE: &str = "operator_file";

/// The keys of `[cluster]` that [`store_and_operator_file`] reads.
pub const NODE_KEYS: [&str; 4] = ["node", OPERATOR_FILE, "store", "store_copy"];

/// Reads the store of this node, if the section names one, and the name of the file in which the
/// node keeps operators' changes; the store's copy is another file.
pub fn store_and_operator_file(
    cluster: &Section<'_>,
) -> Result<(Option<Store>, PathBuf), ConfigError> {
    let remedy = "the node's name, such as node = \"lb-a\"";
    let node = name(&cluster.present("node", remedy)?)?;
    let store = store(cluster, &node)?;
    let file = kept_file(cluster, OPERATOR_FILE, &node, "operator.json")?;
    if store.as_ref().is_some_and(|store| store.copy == file) {
        let problem = format!("{} is store_copy too; name another file", file.display());
        return Err(cluster.error(OPERATOR_FILE, problem));
    }
    Ok((store, file))
}

/// Reads the store of the node called `node`, if the section names one.
fn store(cluster: &Section<'_>, node: &str) -> Result<Option<Store>, ConfigError> {
    let Some(address) = cluster.optional("store") else {
        return cluster.read("store_copy", |copy| {
            Err(copy.error("there is no store; write store = \"etcd://HOST:PORT\" too"))
        });
    };
    let address = address.parsed_by(StoreAddress::from_str)?;
    let copy = kept_file(cluster, "store_copy", node, "toml")?;
    Ok(Some(Store { address, node: node.to_owned(), copy }))
}

/// The file that `key` names, or else the node's default file with this ending; it must be
/// replaceable.
fn kept_file(
    cluster: &Section<'_>,
    key: &str,
    node: &str,
    ending: &str,
) -> Result<PathBuf, ConfigError> {
    let path = |node: &str| format!("/var/lib/ipip-lb/{node}.{ending}");
    let absolute = |text: &str| text.starts_with('/').then(|| PathBuf::from(text));
    let example = format!("{:?}", path("NODE"));
    let named = cluster.read(key, |value| value.parsed("an absolute path", &example, absolute))?;
    let file = named.unwrap_or_else(|| path(node).into());
    let Some(what) = kept_file::obstacle(&file) else { return Ok(file) };
    let problem = format!(
        "{} is {what}, and only a regular file is replaced; name one, or one that is not there yet",
        file.display()
    );
    Err(cluster.error_at(key, problem))
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
