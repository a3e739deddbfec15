//! The keys of `[cluster]` for the store of the configuration of all nodes.

use super::ConfigError;
use super::document::Section;
use super::health::CaFiles;
use super::parse::name;
use hotloop_cluster::settings::{Store, StoreAccess, StoreAddress, StoreTls, StoreUser};
use hotloop_files::kept_file;
use std::path::PathBuf;
use std::str::FromStr;

/// The key of the file in which a node keeps operators' changes.
const OPERATOR_FILE: &str = "operator_file";

/// The keys of `[cluster]` that [`store_and_operator_file`] reads.
pub const NODE_KEYS: [&str; 9] = [
    "node",
    OPERATOR_FILE,
    "store",
    "store_copy",
    AUTHORITY,
    CERTIFICATE,
    KEY,
    USER,
    PASSWORD_FILE,
];

/// The keys for TLS to the store.
const AUTHORITY: &str = "store_authority";
const CERTIFICATE: &str = "store_certificate";
const KEY: &str = "store_key";
const USER: &str = "store_user";
const PASSWORD_FILE: &str = "store_password_file";

/// Reads the store of this node, if the section names one, and the name of the file in which the
/// node keeps operators' changes; the store's copy is another file.
pub fn store_and_operator_file(
    cluster: &Section<'_>,
    files: &mut CaFiles,
) -> Result<(Option<Store>, PathBuf), ConfigError> {
    let remedy = "the node's name, such as node = \"lb-a\"";
    let node = name(&cluster.present("node", remedy)?)?;
    let store = store(cluster, &node, files)?;
    let file = kept_file(cluster, OPERATOR_FILE, &node, "operator.json")?;
    if store.as_ref().is_some_and(|store| store.copy == file) {
        let problem = format!("{} is store_copy too; name another file", file.display());
        return Err(cluster.error(OPERATOR_FILE, problem));
    }
    Ok((store, file))
}

/// Reads the store of the node called `node`, if the section names one.
fn store(
    cluster: &Section<'_>,
    node: &str,
    files: &mut CaFiles,
) -> Result<Option<Store>, ConfigError> {
    let Some(address) = cluster.optional("store") else {
        let of_store = ["store_copy", AUTHORITY, CERTIFICATE, KEY, USER, PASSWORD_FILE];
        let Some(key) = of_store.into_iter().find_map(|key| cluster.optional(key)) else {
            return Ok(None);
        };
        return Err(key.error("there is no store; write store = \"etcd://HOST:PORT\" too"));
    };
    let address = address.parsed_by(StoreAddress::from_str)?;
    let copy = kept_file(cluster, "store_copy", node, "toml")?;
    let access = StoreAccess { address, tls: tls(cluster, files)? };
    Ok(Some(Store { access, node: node.to_owned(), copy }))
}

/// Reads the settings for TLS to the store.
fn tls(cluster: &Section<'_>, files: &mut CaFiles) -> Result<Option<StoreTls>, ConfigError> {
    let Some(authority) = cluster.optional(AUTHORITY) else {
        let of_tls = [CERTIFICATE, KEY, USER, PASSWORD_FILE];
        let Some(key) = of_tls.into_iter().find_map(|key| cluster.optional(key)) else {
            return Ok(None);
        };
        let problem = "without store_authority, etcd is spoken to in clear, and anybody on the way \
                       could read or change everything; write store_authority = \"etcd-ca.pem\" too";
        return Err(key.error(problem));
    };
    let both = |first: &str, second: &str| match (cluster.optional(first), cluster.optional(second))
    {
        (None, None) => Ok(None),
        (Some(first), Some(second)) => Ok(Some((first, second))),
        (Some(value), None) => Err(value.error(format!("useless without {second}; write both"))),
        (None, Some(value)) => Err(value.error(format!("useless without {first}; write both"))),
    };
    let (certificate, user) = (both(CERTIFICATE, KEY)?, both(USER, PASSWORD_FILE)?);
    let authority = files.checked(&authority)?;
    let certificate = match certificate {
        None => None,
        Some((certificate, key)) => Some((files.checked(&certificate)?, files.path(&key)?)),
    };
    let user = match user {
        None => None,
        Some((name, file)) => {
            let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            let name = name.parsed("the name of a user of etcd", "\"ipip-lb\"", given)?;
            Some(StoreUser { name, password_file: files.path(&file)? })
        }
    };
    Ok(Some(StoreTls { authority, certificate, user }))
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
