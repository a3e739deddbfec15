//! The keys of `[cluster]` for the store of the configuration of all nodes, and the files that a
//! balancer writes.

use super::ConfigError;
use super::document::Section;
use super::health::CaFiles;
use super::parse::name;
use hotloop_cluster::settings::{Store, StoreAccess, StoreAddress, StoreTls, StoreUser};
use hotloop_files::kept_file;
use std::path::PathBuf;
use std::str::FromStr;

/// The key of the file in which operators' changes are kept, in `[balancer]`.
pub const OPERATOR_FILE: &str = "operator_file";

const STORE_COPY: &str = "store_copy";

/// The keys of `[cluster]` that [`store`] reads.
pub const STORE_KEYS: [&str; 8] =
    ["node", "store", STORE_COPY, AUTHORITY, CERTIFICATE, KEY, USER, PASSWORD_FILE];

/// The keys for TLS to the store.
const AUTHORITY: &str = "store_authority";
const CERTIFICATE: &str = "store_certificate";
const KEY: &str = "store_key";
const USER: &str = "store_user";
const PASSWORD_FILE: &str = "store_password_file";

/// Reads the name of the file in which operators' changes are kept. A node of a cluster has one of
/// its own without that, another balancer has none.
pub fn operator_file(
    balancer: &Section<'_>,
    node: Option<&str>,
    store: Option<&Store>,
) -> Result<Option<PathBuf>, ConfigError> {
    let default = node.map(|node| default_file(node, "operator.json"));
    let file = kept_file(balancer, OPERATOR_FILE, default)?;
    match file.as_ref().filter(|file| store.is_some_and(|store| store.copy == **file)) {
        None => Ok(file),
        Some(file) => {
            let problem = format!("{} is cluster.store_copy too; name another", file.display());
            Err(balancer.error_at(OPERATOR_FILE, problem))
        }
    }
}

/// Reads the store of this node, if the section names one.
pub fn store(cluster: &Section<'_>, files: &mut CaFiles) -> Result<Option<Store>, ConfigError> {
    let remedy = "the node's name, such as node = \"lb-a\"";
    let node = name(&cluster.present("node", remedy)?)?;
    let Some(address) = cluster.optional("store") else {
        let of_store = [STORE_COPY, AUTHORITY, CERTIFICATE, KEY, USER, PASSWORD_FILE];
        let Some(key) = of_store.into_iter().find_map(|key| cluster.optional(key)) else {
            return Ok(None);
        };
        return Err(key.error("there is no store; write store = \"etcd://HOST:PORT\" too"));
    };
    let address = address.parsed_by(StoreAddress::from_str)?;
    let default = default_file(&node, "toml");
    let copy = kept_file(cluster, STORE_COPY, Some(default.clone()))?.unwrap_or(default);
    let access = StoreAccess { address, tls: tls(cluster, files)? };
    Ok(Some(Store { access, node, copy }))
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

/// The default file of a node, with this ending.
fn default_file(node: &str, ending: &str) -> PathBuf {
    format!("/var/lib/ipip-lb/{node}.{ending}").into()
}

/// The file that `key` names, or else the default file; it must be replaceable.
fn kept_file(
    section: &Section<'_>,
    key: &str,
    default: Option<PathBuf>,
) -> Result<Option<PathBuf>, ConfigError> {
    let absolute = |text: &str| text.starts_with('/').then(|| PathBuf::from(text));
    let example = format!("\"/var/lib/ipip-lb/{key}\"");
    let named = section.read(key, |value| value.parsed("an absolute path", &example, absolute))?;
    let Some(file) = named.or(default) else { return Ok(None) };
    let Some(what) = kept_file::obstacle(&file) else { return Ok(Some(file)) };
    let problem = format!(
        "{} is {what}, and only a regular file is replaced; name one, or one that is not there yet",
        file.display()
    );
    Err(section.error_at(key, problem))
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
